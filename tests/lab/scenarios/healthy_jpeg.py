# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker decodes real photographs, but in less time than the GPU takes: the data are always ready."""

import os
import sys

from loop import HERE, Samples
from decode_jpeg import Folder
from scenario import Scenario


class Data(Samples):
    def __init__(self, folder):
        super().__init__()
        sys.path.insert(0, os.path.join(os.path.dirname(HERE), "workloads"))
        import datasets

        self.jpegs = datasets.Jpeg(1 << 20, folder)

    def cost(self, index):
        self.jpegs[index]


def train(run):
    run.kernel_ms = run.dose
    run.loop(run.loader(Data(run.place["folder"]), 1))


SCENARIO = Scenario(
    kind="healthy", cause=None, doses=(15, 20, 30, 40), unit="ms of kernels a batch", needs=("PIL",),
    forms={"": {}}, place=lambda form: Folder(), batches=40,
)
