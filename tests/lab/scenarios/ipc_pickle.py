# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A batch is full of small Python objects, such as boxes and labels in lists and dicts: they are
pickled in the worker's feeder thread, go through the pipe, and are unpickled by the trainer (or by
its pin-memory thread, which looks at each object as well, to find tensors)."""

from loop import Samples
from scenario import Scenario


def boxes(count):
    return [{"id": i, "box": [i / 3, i / 5, i / 7, i / 11], "label": "object %d" % i} for i in range(count)]


class Collate:
    """The objects are made once: only what becomes of them counts."""

    def __init__(self, objects):
        self.boxes = boxes(objects)

    def __call__(self, samples):
        from torch.utils.data import default_collate

        return {"image": default_collate(samples), "boxes": self.boxes}


def release(run, batch):
    """Frees the objects while the GPU works, not while the trainer waits for the next ones."""
    batch["boxes"].clear()


def train(run):
    count = int(1000 * run.dose * run.form.get("times", 1))
    run.loop(run.loader(Samples(), 2, collate_fn=Collate(count)), step=release)


SCENARIO = Scenario(
    kind="ipc", cause="ipc", doses=(0, 8, 12, 16), unit="thousand boxes a batch",
    forms={"1 worker": {}, "pin": {"pin": True, "times": 0.3}},
    twins=("host_python",),
)
