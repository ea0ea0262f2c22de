# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A batch has large NumPy arrays in it, which are not tensors: they are not shared but copied through
the pipe, 64 KiB at a time. Memory once got is kept (malloc's settings), so that its first touch is
no second fault."""

from loop import Samples
from scenario import Scenario


class Collate:
    def __init__(self, mib):
        import numpy

        self.masks = numpy.ones(int(mib * (1 << 20)), numpy.uint8)

    def __call__(self, samples):
        from torch.utils.data import default_collate

        return {"image": default_collate(samples), "masks": self.masks}


def train(run):
    run.loop(run.loader(Samples(), 2, collate_fn=Collate(run.dose)))


SCENARIO = Scenario(
    kind="ipc", cause="ipc", doses=(0, 12, 18, 24), unit="MiB a batch",
    forms={"1 worker": {}, "2 workers, pin": {"workers": 2, "pin": True}},
    env={"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_ARENA_MAX": "1"},
    twins=("decode_python",),
)
