# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A loader in a thread of the trainer decodes: in pure Python, holding the interpreter that the trainer
needs as well, or in a library that lets go of it (zlib)."""

import base64
import random
import zlib

import data_threads
from loop import burn
from scenario import Scenario

TEXT = base64.b64encode(random.Random(1).randbytes(34 << 10))


def native(ms):
    """So many units of about a millisecond."""
    for _ in range(int(ms)):
        zlib.compress(TEXT, 9)


def train(run):
    import torch

    def make(number):
        (native if run.form["work"] == "zlib" else burn)(run.dose)
        return torch.zeros(16)

    source = data_threads.batches(make, run.form["loader"])
    run.loop(source)
    source.close()


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of work a batch", batches=40,
    # Python is not run without GPU data: the trainer then also waits for the interpreter when it comes back
    # from its step, which is lost time, but not what it measures as its wait for a batch.
    forms={"executor, zlib": {"loader": "executor", "work": "zlib"},
           "queue, Python": {"loader": "queue", "work": "python"}},
    twins=("sleep_threads",),
)
