# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A neighbour's processes compute on every CPU. The job's own work would easily fit. The report has to name
them."""

import data_cpu
from scenario import Scenario

MOST = 16


def place(_form):
    from places_cpu import Hogs

    return Hogs(MOST)


def train(run):
    batches = data_cpu.started(run, run.loader(data_cpu.Data(ms=1.5), data_cpu.BATCH))
    with data_cpu.neighbours(run, run.dose):
        run.loop(batches)


def names_neighbour(report):
    if not any("Other processes take the CPUs" in a for a in report["verdict"]["actions"]):
        return f"others are not blamed: {report['verdict']['text']}"
    if not any("outside the job" in text for text in data_cpu.held(report)):
        return f"no neighbour is named: {data_cpu.held(report)}"
    return None


SCENARIO = Scenario(
    kind="cpu-contention", cause="cpu-contention", doses=(0, 4, 8, MOST), unit="neighbours a CPU", kernel_ms=4,
    forms={"1 worker": {}, "2 workers, spawn, pin": {"workers": 2, "start": "spawn", "pin": True}},
    place=place, twins=("decode_python", "quota_cgroup"), quick=True, torch2=True, check=names_neighbour,
)
