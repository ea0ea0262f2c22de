# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The trainer's step uses a pool of threads now and then (numpy's OpenBLAS), which spin in between and take the
CPUs from the worker. They are no work of the trainer's, and the report has to name them."""

import data_cpu
from scenario import Scenario

EVERY = 8  # batches between two calls: the threads spin all the time


def train(run):
    batches = data_cpu.started(run, run.loader(data_cpu.Data(ms=1.5), data_cpu.BATCH))
    pool = data_cpu.BlasPool(1 + run.dose) if run.dose else None

    def metrics(run, _batch):
        if pool and run.done % EVERY == 1:
            pool.call()

    run.loop(batches, metrics)


def named(report):
    return data_cpu.names_pool(report, "trainer")


SCENARIO = Scenario(
    kind="cpu-contention", cause="cpu-contention", doses=(0, 8, 16, 32), unit="threads that spin", kernel_ms=4,
    env=data_cpu.BlasPool.ENV, only_torch2=True, twins=("decode_python",), check=named,
)
