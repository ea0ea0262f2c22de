# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Every sample is read from a FUSE file system with a slow server and then decoded in Python: 60 % of what
it costs is decoding, 40 % waiting for the file."""

import os

from loop import Samples, burn
from scenario import Scenario

BATCH = 8
DECODE = 0.6
PAGE = 4096


class Data(Samples):
    def __init__(self, folder, ms):
        super().__init__()
        self.ms, self.file = ms, None
        self.path = os.path.join(folder, f"{ms * (1 - DECODE):g}")

    def cost(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        os.pread(self.file, PAGE, index * PAGE)
        if self.ms:
            burn(self.ms * DECODE)


def place(_form):
    from places_disk import SlowServer

    return SlowServer(direct=True)


def train(run):
    run.loop(run.loader(Data(run.place["folder"], run.dose / BATCH), BATCH))


SCENARIO = Scenario(
    kind="mix", cause="decode", shares={"decode": DECODE, "storage": 1 - DECODE}, doses=(0, 16, 28, 40),
    unit="ms a batch", forms={"1 worker": {}, "spawn, pin": {"start": "spawn", "pin": True}}, place=place,
    quick=True, torch2=True,
)
