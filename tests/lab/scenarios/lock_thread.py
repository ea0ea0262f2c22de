# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A helper thread in the worker holds a lock of Python's (threading.Lock) while it sleeps, once a
batch; the data set needs that lock. The interpreter is free meanwhile."""

import threading
import time

from loop import Samples
from scenario import Scenario

BATCH = 4


class Data(Samples):
    def __init__(self, ms):
        super().__init__()
        self.ms, self.lock, self.passed = ms, None, 0

    def keep_books(self):
        seen = 0
        while True:
            with self.lock:
                time.sleep(self.ms / 1000)
            while self.passed == seen:  # by looking: a wake would be a hand-over of work
                time.sleep(0.0005)
            seen += 1

    def cost(self, index):
        if not self.lock:
            self.lock = threading.Lock()
            threading.Thread(target=self.keep_books, daemon=True).start()
        if index % BATCH == 0:
            with self.lock:
                pass
            self.passed += 1


def train(run):
    run.loop(run.loader(Data(run.dose), BATCH))


SCENARIO = Scenario(
    kind="lock", cause="lock", doses=(0, 16, 24, 32), unit="ms that the lock is held, a batch",
    forms={"1 worker": {}, "file_system, pin": {"sharing": "file_system", "pin": True}},
    twins=("sleep_worker", "gil_worker_helper"),
)
