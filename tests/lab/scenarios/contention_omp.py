# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Each worker uses many OpenMP threads for small tensor operations (torch.set_num_threads): every operation has
to wait until all of them have had a CPU. To wake so many is work as well: the worker's CPU time grows thirtyfold
for the same operations, which is decode."""

import data_cpu
from loop import Samples
from scenario import Scenario

OPERATIONS = 20  # a sample


class Data(Samples):
    def cost(self, index):
        import torch

        a = torch.zeros(40000, dtype=torch.uint8)  # more than the 32768 of which one thread's share is
        for _ in range(OPERATIONS):
            a.add_(1)


class UseThreads:
    """Sent to spawned workers, too."""

    def __init__(self, threads):
        self.threads = threads

    def __call__(self, _worker):
        import torch

        torch.set_num_threads(self.threads)


def train(run):
    loader = run.loader(Data(), data_cpu.BATCH, worker_init_fn=UseThreads(run.dose or 1))
    run.loop(data_cpu.started(run, loader))


SCENARIO = Scenario(
    kind="cpu-contention", cause="cpu-contention", doses=(0, 12, 24, 36), unit="threads a worker (0: one)", kernel_ms=4,
    forms={"1 worker": {}, "spawn, pin": {"start": "spawn", "pin": True}}, also=("decode",), twins=("decode_python",),
)
