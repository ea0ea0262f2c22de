# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two faults at once that belong to two loaders or to two trainers: one sleeps, the other decodes. The
report has to tell them apart."""

import os
import time

from loop import Samples, burn

BATCH = 4
TURN = 10  # batches


class Data(Samples):
    def __init__(self, ms, decodes):
        super().__init__()
        self.ms, self.decodes = ms, decodes

    def cost(self, index):
        if self.decodes:
            burn(self.ms)
        elif self.ms:
            time.sleep(self.ms / 1000)


def one_of(run, number):
    return run.loader(Data(run.dose / BATCH, decodes=number == 1), BATCH)


def two_loaders(run):
    """Both alive all the time, some batches of each by turns, as of training and validation."""
    sources, previous = [iter(one_of(run, n)) for n in range(2)], None
    for n in range(run.batches):
        number = n // TURN % 2
        run.part = f"loader {number}"
        started = time.monotonic_ns()
        batch = next(sources[number])
        waited = time.monotonic_ns() - started
        run.waited_ns += waited
        run.parts[run.part] = run.parts.get(run.part, 0) + waited
        previous = run.step(batch, previous)
    run.finish()


def verdicts(parts):
    """What is wrong with the verdicts of [the one that sleeps, the one that decodes]."""
    found = [p["verdict"]["cause"] for p in parts]
    return None if found == ["sleep", "decode"] else f"verdicts {found}, not sleep and decode"


def two_ranks(_form):
    """The place of both trainers."""
    from places_launch import Launcher

    return Launcher(2)


def train_rank(run):
    run.loop(one_of(run, int(os.environ["RANK"])))


def check_ranks(report):
    return verdicts(sorted(report["trainers"], key=lambda t: t["rank"]))
