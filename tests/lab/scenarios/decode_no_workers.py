# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""There are no workers: the data set's Python runs in the trainer, between two steps. The report has to
advise workers."""

from loop import Decodes
from scenario import Scenario

BATCH = 4


def train(run):
    run.loop(run.loader(Decodes(run.dose / BATCH), BATCH, num_workers=0))


def advises_workers(report):
    if not any("num_workers" in a for a in report["verdict"]["actions"]):
        return f"no advice to use workers: {report['verdict']['actions']}"
    return None


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch",
    gpus=("sim",),  # without GPU data the step and the making of a batch are both the trainer's own time
    forms={"": {}, "pin": {"pin": True}},
    twins=("sleep_no_workers",), check=advises_workers,
)
