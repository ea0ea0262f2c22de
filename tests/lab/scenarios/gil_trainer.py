# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A thread of Python in the trainer computes for so long after each step. The trainer gives its
interpreter away whenever it waits in the hand-over of a batch, and has to wait for it again: one
switch interval (5 ms) each time, until the other thread is done."""

import threading

from loop import Samples, burn
from scenario import Scenario


class Hog(threading.Thread):
    def __init__(self, ms):
        super().__init__(daemon=True)
        self.ms, self.go = ms, threading.Semaphore(0)

    def run(self):
        while True:
            self.go.acquire()
            burn(self.ms)

    def step(self, run, batch):
        self.go.release()


def train(run):
    hog = Hog(run.dose)
    hog.start()
    run.loop(run.loader(Samples(), 4), hog.step)


SCENARIO = Scenario(
    kind="gil", cause="gil", doses=(0, 16, 24, 32), unit="ms that another thread computes, a batch",
    forms={"no pin": {}, "pin": {"pin": True}, "pin, 2 workers": {"workers": 2, "pin": True}}, gpus=("sim",),
    twins=("ipc_pickle", "ipc_bytes"),
)
