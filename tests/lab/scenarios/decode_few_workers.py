# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One worker inflates compressed samples, more than it can do alone, while a CPU is idle. zlib lets go of
the interpreter. The report has to say that more workers would keep up."""

import time
import zlib

from loop import Samples
from scenario import Scenario

BATCH, PIECE = 4, 32 << 10


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms = ms
        text = " ".join(str(i * i % 9973) for i in range(200000)).encode()
        self.packed = zlib.compress(text, 6)

    def cost(self, index):
        """In pieces, as a stream is read: no large buffer whose first touch would be a second fault."""
        end = time.thread_time_ns() + int(self.ms * 1e6)
        while time.thread_time_ns() < end:
            stream, left = zlib.decompressobj(), self.packed
            while left and time.thread_time_ns() < end:
                stream.decompress(left[:PIECE // 4], PIECE)
                left = left[PIECE // 4:]


def train(run):
    run.loop(run.loader(Data(run.dose / BATCH), BATCH))


def wants_workers(report):
    if not any("more workers" in a or "workers would keep up" in a for a in report["verdict"]["actions"]):
        return f"no advice to use more workers: {report['verdict']['actions']}"
    return None


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of zlib a batch",
    forms={"1 worker": {}, "file_system": {"sharing": "file_system"}},
    twins=("sleep_worker",), check=wants_workers,
)
