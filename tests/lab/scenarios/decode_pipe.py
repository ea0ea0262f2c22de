# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A worker reads from a pipe: cat FILE | xz -d. The work is done by a child of the worker's child, and
the worker only waits for it."""

import base64
import lzma
import os
import random
import tempfile

import data_pipe
from scenario import Scenario

BATCH = 1024


def train(run):
    text = base64.b64encode(random.Random(1).randbytes(384 << 10))
    with tempfile.TemporaryDirectory(prefix="dlbpf-lab-") as folder:
        path = os.path.join(folder, "samples.xz")
        with open(path, "wb") as f:
            f.write(lzma.compress(text, preset=0))
        # A .xz file may be several of them in a row.
        data = data_pipe.pipe(f"while cat {path}; do :; done 2>/dev/null | xz -d", BATCH + int(run.dose * 1024))
        run.loop(run.loader(data, None))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 500, 750, 1000), unit="KiB from xz a batch", batches=40,
    twins=("sleep_pipe",),
)
