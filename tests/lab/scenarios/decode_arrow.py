# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Rows of an Arrow file that is mapped into memory and is in the page cache: they are made into Python
lists, which is a CPU's work."""

import os
import tempfile

import data_arrow
from scenario import Scenario


class Rows(data_arrow.Rows):
    def __init__(self, path, rows):
        super().__init__(path)
        self.rows = rows

    def cost(self, index):
        for i in range(self.rows):
            self.row(index * self.rows + i).column(1).to_pylist()


def train(run):
    with tempfile.TemporaryDirectory(prefix="dlbpf-lab-") as folder:
        path = os.path.join(folder, "rows.arrow")
        data_arrow.make(path)
        run.loop(run.loader(Rows(path, int(run.dose)), 1))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 400, 600, 800), unit="rows made into lists of 2000 a batch", batches=40,
    twins=("storage_arrow",), gpus=("sim",), only_torch2=True, needs=("pyarrow",),
)
