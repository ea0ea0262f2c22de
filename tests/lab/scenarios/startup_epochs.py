# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Twelve short epochs: more and more of them make their workers anew, the others go on with workers that
stay. A new worker initialises itself for 20 ms, as one that opens an index or a database does. (One with
nothing to initialise costs 9 ms of start-up, and 2 to 3 ms more for a first batch that is decoded and handed
over with nothing to hide it and two processes more on the CPUs: those are charged as what they are, and the
slope of start-up alone is then 0.8.)"""

from loop import Samples, burn
from scenario import Scenario

BATCH, EPOCHS = 4, 12


def initialise(worker):
    burn(20)


class Epochs:
    """Iterated once an epoch. The first one makes the workers that stay."""

    def __init__(self, run, data):
        self.kept = run.loader(data, BATCH, persistent_workers=True)
        self.anew = run.loader(data, BATCH, worker_init_fn=initialise)
        self.dose, self.epoch = run.dose, 0

    def __iter__(self):
        later, self.epoch = self.epoch, self.epoch + 1
        # Spread evenly over the epochs behind the first.
        anew = later and later * self.dose // (EPOCHS - 1) != (later - 1) * self.dose // (EPOCHS - 1)
        return iter(self.anew if anew else self.kept)


def train(run):
    run.loop(Epochs(run, Samples(run.batches * BATCH // EPOCHS)))


SCENARIO = Scenario(
    kind="startup", cause="startup", doses=(0, 3, 7, 11), unit="of 11 epochs make their workers anew",
    forms={"fork": {}, "pin": {"pin": True}},
    batches=48, twins=("sleep_epochs",), torch2=True,
)
