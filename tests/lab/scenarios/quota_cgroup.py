# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The cgroup of the job may use less CPU time than the job needs, on a machine with idle CPUs.
The report has to name the limit."""

import contextlib

import data_cpu
from scenario import Scenario

DOSES = (0, 70, 80, 88)


def place(_form):
    from places_cpu import Quota

    return Quota()


def train(run):
    batches = data_cpu.started(run, run.loader(data_cpu.Data(ms=2), data_cpu.BATCH))
    limit = data_cpu.limited(run, 100 - run.dose, run.form["period_ms"]) if run.dose else contextlib.nullcontext()
    with limit:
        run.loop(batches)


def names_limit(report):
    want = f"limit {1 - DOSES[-1] / 100:.2f} CPUs"
    return None if want in report["verdict"]["text"] else f"no {want!r} in: {report['verdict']['text']}"


SCENARIO = Scenario(
    kind="cpu-quota", cause="cpu-quota", doses=DOSES, unit="% of a CPU taken away", kernel_ms=4,
    forms={"1 worker, period of 100 ms": {"period_ms": 100},
           "2 workers, period of 20 ms, spawn": {"period_ms": 20, "workers": 2, "start": "spawn"}},
    place=place, twins=("decode_python", "contention_hogs"), quick=True, torch2=True,
    check=names_limit,
)
