# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker fetches the samples of a batch over HTTP from a server on this machine that is not recorded and
takes its time. One connection for each worker; with a time-out, the worker polls before it reads."""

import http.client

from loop import Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, port, ms, timeout):
        super().__init__()
        self.port, self.ms, self.timeout, self.connection = port, ms, timeout, None

    def cost(self, index):
        if index % BATCH:
            return
        if not self.connection:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        self.connection.request("GET", f"/sleep/{self.ms:g}")
        assert len(self.connection.getresponse().read()) == 4096


def place(_form):
    from places_server import Server

    return Server("http")


def train(run):
    run.loop(run.loader(Data(run.place["port"], run.dose, run.form.get("timeout")), BATCH))


SCENARIO = Scenario(
    kind="network", cause="network", doses=(0, 16, 24, 32), unit="ms of the server a batch", place=place,
    forms={"fork": {}, "time-out, 2 workers, pin": {"timeout": 10, "workers": 2, "pin": True}},
    twins=("external_helper", "sleep_worker", "storage_fuse"), quick=True, torch2=True,
)
