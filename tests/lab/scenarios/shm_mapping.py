# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The worker keeps some shared tensors and hands over the same ones again and again, so that no page is
new. The trainer maps each, writes one byte of each of its pages, and unmaps it: what costs is to fill
its page tables and to empty them."""

import data_touch
from loop import Samples
from scenario import Scenario

KEPT = 4  # batches, more than are in flight: PyTorch would reuse a mapping that the trainer still has


class Collate:
    def __init__(self, pages, parts):
        self.pages, self.parts, self.kept, self.turn = pages, parts, [], 0

    def batch(self):
        return [data_touch.touch(data_touch.shared(self.pages // self.parts)) for _ in range(self.parts)]

    def __call__(self, samples):
        self.turn += 1
        if len(self.kept) < KEPT:
            self.kept.append(self.batch())
        return self.kept[self.turn % len(self.kept)]


def pages_for(ms):
    """By pages that are there already, mapped anew at each try."""
    import mmap
    import os

    import torch

    fd = os.memfd_create("dlbpf-lab")
    size = data_touch.PROBE * data_touch.PAGE
    os.posix_fallocate(fd, 0, size)
    try:
        return data_touch.pages_for(
            ms, lambda _: data_touch.touch(torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)))
    finally:
        os.close(fd)


def used(loader):
    """Batches that were used and unmapped; the training gets a copy of the first bytes."""
    for batch in loader:
        for tensor in batch:
            data_touch.touch(tensor)
        head = batch[0][:16].clone()
        del batch, tensor
        yield head


def train(run):
    pages = pages_for(run.dose)
    run.loop(used(run.loader(Samples(), 2, collate_fn=Collate(pages, run.form.get("parts", 1)))))


SCENARIO = Scenario(
    kind="shm", cause="shm", doses=(0, 16, 24, 32), unit="ms of mapping a batch", gpus=("sim",),
    forms={"1 tensor": {}, "8 tensors, spawn": {"start": "spawn", "parts": 8}},
    twins=("host_python",),
)
