# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Too many workers: an iterable data set is split among them by skipping (islice), so that each decodes every
sample and yields only its own. With a CPU for each that would cost no time; here all of them have two."""

import itertools
import os

import data_cpu
from loop import burn
from scenario import Scenario

MS, CPUS = 1.5, 2


def data():
    import torch.utils.data as d

    class Decoded(d.IterableDataset):
        def decode(self):
            import torch

            while True:
                burn(MS / data_cpu.BATCH)
                yield torch.zeros(16)

        def __iter__(self):
            me = d.get_worker_info()
            return itertools.islice(self.decode(), me.id, None, me.num_workers)

    return Decoded()


def train(run):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
    batches = data_cpu.started(run, run.loader(data(), data_cpu.BATCH, num_workers=run.dose or 1))
    run.loop(batches)


def blames_itself(report):
    if not any("The job has more to run than" in a for a in report["verdict"]["actions"]):
        return f"the job itself is not blamed: {report['verdict']['text']}"
    return None


SCENARIO = Scenario(
    kind="cpu-contention", cause="cpu-contention", doses=(0, 8, 16, 24), unit="workers (0: one)", kernel_ms=4,
    batches=96,
    twins=("decode_python",), check=blames_itself,
)
