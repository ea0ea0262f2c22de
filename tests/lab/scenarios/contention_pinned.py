# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers are pinned to one CPU (sched_setaffinity, as an imported library may do) while another is idle. Eight
workers that may run anywhere would keep up. The report has to say that it is the affinity, not the number of CPUs."""

import os
import time

import data_cpu
from scenario import Scenario

WORKERS, MS = 8, 32


def train(run):
    def pin(worker):
        if worker < run.dose:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    loader = run.loader(data_cpu.Data(MS), data_cpu.BATCH, num_workers=WORKERS, worker_init_fn=pin)
    batches = data_cpu.started(run, loader)
    time.sleep(0.5)  # eight at once contend for CPUs when they start, pinned or not
    run.loop(batches)


def says_affinity(report):
    said = " ".join([report["verdict"]["text"], *report["verdict"]["actions"], *data_cpu.held(report)]).lower()
    if not any(word in said for word in ("affinity", "pinned", "only on cpu", "may run only")):
        return f"nothing says that the workers may not use the idle CPU: {said}"
    return None


SCENARIO = Scenario(
    kind="cpu-contention", cause="cpu-contention", doses=(0, 6, 7, 8), unit="of 8 workers on one CPU", kernel_ms=20,
    gpus=("sim",),  # eight workers on few CPUs really contend now and then; a GPU hides what the trainer sees
    batches=48, twins=("decode_python",), check=says_affinity,
)
