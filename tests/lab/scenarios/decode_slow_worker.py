# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One of the workers is slow. Batches come in order, so that the fast ones wait behind it. The report has
to name it."""

from loop import Samples, burn
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def cost(self, index):
        from torch.utils.data import get_worker_info

        if get_worker_info().id == 0:
            burn(self.ms)


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH))


def names_the_worker(report):
    workers = [p for p in report["processes"] if p["role"] == "worker"]
    slow = max(workers, key=lambda p: p["cpu_ns"])["pid"]
    if str(slow) not in report["verdict"]["text"]:
        return f"the slow worker, {slow}, is not named: {report['verdict']['text']}"
    return None


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 32, 48, 64), unit="ms of Python in each batch of the slow worker",
    forms={"1 of 2 workers": {"workers": 2}},
    twins=("sleep_slow_worker",), check=names_the_worker,
)
