# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Samples for which a worker needs a lock once a batch, and which tell when a batch has got through."""

from loop import Samples

BATCH = 4


class Guarded(Samples):
    def __init__(self, lock, passed):
        super().__init__()
        self.lock, self.passed = lock, passed

    def cost(self, index):
        if index % BATCH == 0:
            with self.lock:
                pass
            self.passed.release()
