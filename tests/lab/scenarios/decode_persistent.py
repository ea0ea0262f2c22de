# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Short epochs with persistent workers, which decode in pure Python: nothing is left of the cost of
creating workers."""

from loop import Decodes
from scenario import Scenario

BATCH = 4
EPOCH = 8  # batches
STARTUP = 0.03


def train(run):
    run.loop(run.loader(Decodes(run.dose / BATCH, EPOCH * BATCH), BATCH, persistent_workers=True))


def check(report):
    device = report["devices"][0]
    ns = sum(c["ns"] for c in device["causes"] if c["cause"] == "startup")
    if ns > STARTUP * device["idle_ns"]:
        return f"startup has {ns / device['idle_ns']:.1%}, the workers are made once"
    return None


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch", batches=40,
    gpus=("sim",), check=check,
)
