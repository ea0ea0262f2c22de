# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Many tensors a batch with the sharing strategy file_system: each storage is announced to the worker's
torch_shm_manager, opened by name, and given up again, by a message each. The feeder puts the tensors
into shared memory, as it does whenever a collate_fn of one's own returns plain tensors. One batch is
fetched ahead, so that not both ends are at the one manager at the same time. Each storage also has a
page of its own that is mapped, touched for the first time and freed: that part of it is shm."""

from loop import Samples
from scenario import Scenario


class Collate:
    def __init__(self, tensors):
        self.tensors = tensors

    def __call__(self, samples):
        import torch

        return [torch.zeros(4) for _ in range(1 + self.tensors)]


class Many(Samples):
    """default_collate stacks each of them into shared memory in the worker's main thread."""

    def __init__(self, tensors):
        super().__init__()
        self.tensors = tensors

    def value(self, index):
        import torch

        return [torch.zeros(4)] * (1 + self.tensors)


def release(run, batch):
    """Gives them up while the GPU works, not while the trainer waits for the next ones."""
    batch.clear()


def train(run):
    tensors = run.dose * run.form.get("times", 1)
    if run.form.get("collated"):
        run.loop(run.loader(Many(tensors), 1), step=release)
        return
    run.loop(run.loader(Samples(), 2, collate_fn=Collate(tensors)), step=release)


SCENARIO = Scenario(
    kind="ipc", cause="ipc", doses=(0, 120, 180, 240), unit="more tensors a batch",
    forms={"1 worker": {"sharing": "file_system", "prefetch": 1},
           "pin": {"sharing": "file_system", "prefetch": 1, "pin": True},
           "thousands": {"sharing": "file_system", "prefetch": 1, "times": 10, "batches": 5},
           "collated": {"sharing": "file_system", "prefetch": 1, "collated": True}},
    also=("shm",), twins=("decode_python",),
)
