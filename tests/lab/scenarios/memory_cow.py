# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The samples are Python objects in a list that the worker has inherited by fork. Looking at one counts
its references, which writes to it, so the kernel copies its page. Each object is about a page long and is
looked at in C (a slice of the list), so that the copies are nearly all that it costs."""

from loop import Samples
from scenario import Scenario

BATCH = 4
AHEAD = 4  # batches that the loader asks for before they are trained


class Data(Samples):
    def __init__(self, objects, batches):
        super().__init__((batches + AHEAD) * BATCH)
        self.objects = objects
        self.list = [bytes(4000) for _ in range(objects * self.count)]

    def cost(self, index):
        self.list[index * self.objects:(index + 1) * self.objects]  # noqa: B018


def train(run):
    run.loop(run.loader(Data(run.dose // BATCH, run.batches), BATCH))


SCENARIO = Scenario(
    kind="memory", cause="memory", doses=(0, 3000, 5000, 7000), unit="objects looked at a batch", batches=30,
    kernel_ms=4,
    forms={"1 worker": {}, "pin, file_system": {"pin": True, "sharing": "file_system"}},
    twins=("decode_python",),
)
