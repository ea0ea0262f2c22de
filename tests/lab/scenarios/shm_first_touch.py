# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A batch is large: its shared memory is allocated as default_collate does it, and each page of it is
touched for the first time, by writing one byte. Nothing is copied or computed, the trainer looks at the
first few bytes only. A batch is as large as takes so long on this machine."""

import data_touch
from loop import Samples
from scenario import Scenario


def made(pages):
    return data_touch.touch(data_touch.shared(pages))


class Collate:
    def __init__(self, pages):
        self.pages = pages

    def __call__(self, samples):
        return made(self.pages)


def release(run, batch):
    """Frees it while the GPU works, not while the trainer waits for the next one."""
    batch.set_()


def train(run):
    pages = data_touch.pages_for(run.dose, made)
    data_touch.copy_only(run, 16)
    run.loop(run.loader(Samples(), 2, collate_fn=Collate(pages)), step=release)


SCENARIO = Scenario(
    kind="shm", cause="shm", doses=(0, 16, 24, 32), unit="ms of first touch a batch",
    forms={"1 worker": {}, "spawn, file_system": {"start": "spawn", "sharing": "file_system"}},
    twins=("memory_first_touch", "decode_python"), quick=True, torch2=True,
)
