# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker asks a process that is not recorded for its samples, through a Unix socket, such as a server of
features or a database on the same machine. It takes its time, asleep or computing, and is named."""

import socket

from loop import Samples
from scenario import Scenario

BATCH = 4
NAME = "sample-server"  # server.py


class Data(Samples):
    def __init__(self, path, how, ms):
        super().__init__()
        self.path, self.question, self.socket = path, f"{how} {ms:g}\n".encode(), None

    def cost(self, index):
        if not self.socket:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(self.path)
        self.socket.sendall(self.question)
        left = 4096
        while left:
            left -= len(self.socket.recv(left))


def place(_form):
    from places_server import Server

    return Server("unix")


def check(report):
    parts = report["devices"] or [report["waits"]]
    details = [c["detail"] or "" for part in parts for c in part["causes"] if c["cause"] == "external"]
    return None if any(NAME in d for d in details) else f"{NAME} is not named: {details}"


def train(run):
    run.loop(run.loader(Data(run.place["path"], run.form["how"], run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="external", cause="external", doses=(0, 16, 24, 32), unit="ms of the other process a batch", place=place,
    forms={"sleeps": {"how": "sleep"}, "computes, spawn, pin": {"how": "compute", "start": "spawn", "pin": True}},
    twins=("network_http", "sleep_worker", "decode_python"), quick=True, torch2=True, check=check,
)
