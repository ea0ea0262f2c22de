# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""numpy in a worker has a pool of OpenBLAS threads, which spin between two calls and take the CPUs from the thread
that makes the batch. They are no work, and the report has to name them."""

import data_cpu
from scenario import Scenario

EVERY = 32  # samples between two calls: the threads spin all the time


class Data(data_cpu.Data):
    def __init__(self, threads):
        super().__init__(ms=1.5)
        self.threads, self.pool, self.made = threads, None, 0

    def cost(self, index):
        if self.threads and not self.pool:
            self.pool = data_cpu.BlasPool(1 + self.threads)
        if self.threads and self.made % EVERY == 0:
            self.pool.call()
        self.made += 1
        super().cost(index)


def train(run):
    run.loop(data_cpu.started(run, run.loader(Data(run.dose), data_cpu.BATCH)))


def named(report):
    return data_cpu.names_pool(report, "worker 0")


SCENARIO = Scenario(
    kind="cpu-contention", cause="cpu-contention", doses=(0, 8, 16, 32), unit="threads that spin", kernel_ms=4,
    env=data_cpu.BlasPool.ENV, only_torch2=True, twins=("decode_python",), check=named,
)
