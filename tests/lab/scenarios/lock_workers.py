# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two workers need a lock that another process of the job holds for its own business, once a batch.
That process computes or sleeps meanwhile: the workers wait for the lock either way. It takes the
lock again as soon as one of them has got through, which lets both through in turn."""

import multiprocessing
import time

from data_lock import BATCH, Guarded
from loop import burn
from scenario import Scenario


def keep_books(lock, passed, ms, busy):
    while True:
        with lock:
            if busy:
                burn(ms)
            else:
                time.sleep(ms / 1000)
        passed.acquire()


def train(run):
    context = multiprocessing.get_context(run.form.get("start", "fork"))
    lock, passed = context.Lock(), context.Semaphore(0)
    keeper = context.Process(target=keep_books, args=(lock, passed, run.dose, run.form.get("busy")), daemon=True)
    keeper.start()
    run.loop(run.loader(Guarded(lock, passed), BATCH))


SCENARIO = Scenario(
    kind="lock", cause="lock", doses=(0, 24, 36, 48), unit="ms that the lock is held at a time",
    forms={"holder sleeps": {"workers": 2}, "holder computes, spawn": {"workers": 2, "busy": True, "start": "spawn"}},
    twins=("sleep_worker",), quick=True, torch2=True,
)
