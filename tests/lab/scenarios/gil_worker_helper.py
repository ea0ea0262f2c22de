# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A thread of Python in the worker computes for so long a batch, nothing for the batch, while the data set
gives the interpreter away for an instant and has to wait for it again. In C (a sum of a range) the thread
keeps the interpreter until it is done; in Python it is made to hand it over each 5 ms, so that the data set
waits several times."""

import threading
import time

from loop import Samples, burn
from scenario import Scenario

BATCH = 4
SWITCH_MS = 5  # sys.getswitchinterval()


class Helper(threading.Thread):
    def __init__(self, ms, in_c):
        super().__init__(daemon=True)
        self.ms, self.in_c, self.go = ms, in_c, threading.Semaphore(0)
        started = time.thread_time()
        sum(range(200_000))
        self.numbers = int(ms * 200 / (time.thread_time() - started))

    def run(self):
        while True:
            self.go.acquire()
            if self.in_c:
                sum(range(self.numbers))
            else:
                burn(self.ms)


class Data(Samples):
    def __init__(self, ms, in_c):
        super().__init__()
        self.ms, self.in_c, self.helper = ms, in_c, None

    def cost(self, index):
        if index % BATCH or not self.ms:
            return
        if not self.helper:
            self.helper = Helper(self.ms, self.in_c)
            self.helper.start()
        self.helper.go.release()
        for _ in range(1 if self.in_c else int(self.ms / SWITCH_MS)):
            time.sleep(0.0003)


def train(run):
    run.loop(run.loader(Data(run.dose, run.form["in_c"]), BATCH))


SCENARIO = Scenario(
    kind="gil", cause="gil", doses=(0, 15, 25, 35), unit="ms that another thread computes, a batch",
    forms={"in C": {"in_c": True}, "in Python, spawn": {"in_c": False, "start": "spawn"}},
    twins=("decode_python", "lock_thread"), quick=True, torch2=True, batches=40,
)
