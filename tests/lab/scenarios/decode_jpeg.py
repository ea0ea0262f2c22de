# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker decodes, crops and resizes photographs, as an ImageNet training does. Each image takes and
touches new private memory."""

import os
import sys
import tempfile

from loop import HERE, Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    """Each sample is one of the last of so many images (as of a clip of a video)."""

    def __init__(self, folder, images):
        super().__init__()
        sys.path.insert(0, os.path.join(os.path.dirname(HERE), "workloads"))
        import datasets

        self.jpegs, self.images = datasets.Jpeg(1 << 20, folder), images

    def cost(self, index):
        for i in range(self.images):
            self.jpegs[index * self.images + i]


class Folder:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dlbpf-lab-jpeg-")
        self.params = {"folder": self.folder.name}

    def __exit__(self, *exc):
        self.folder.cleanup()

    def command(self, argv, dose):
        return argv


def train(run):
    run.loop(run.loader(Data(run.place["folder"], int(run.dose / BATCH)), BATCH))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 8, 12, 20), unit="images a batch",
    forms={"fork": {}}, place=lambda form: Folder(), needs=("PIL",),
    twins=("sleep_worker",),
)
