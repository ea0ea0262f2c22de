# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers need a lock on a file (flock or POSIX) once a batch, as where a cache on disk is shared. Another
process of the job holds it for its own business, again as soon as a batch has got through."""

import fcntl
import multiprocessing
import os
import tempfile
import time

from data_lock import BATCH, Guarded
from scenario import Scenario


class Locked:
    """The file's lock by name: a forked child must open it anew, or it shares its parent's lock."""

    def __init__(self, path, posix):
        self.path, self.call, self.file = path, fcntl.lockf if posix else fcntl.flock, None

    def __enter__(self):
        if not self.file:
            self.file = open(self.path, "r+")
        self.call(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.call(self.file, fcntl.LOCK_UN)


def keep_books(lock, passed, ms):
    while True:
        with lock:
            time.sleep(ms / 1000)
        passed.acquire()


def train(run):
    with tempfile.NamedTemporaryFile() as f:
        os.chmod(f.name, 0o600)
        passed = multiprocessing.Semaphore(0)
        make = lambda: Locked(f.name, run.form.get("posix"))  # noqa: E731
        multiprocessing.Process(target=keep_books, args=(make(), passed, run.dose), daemon=True).start()
        run.loop(run.loader(Guarded(make(), passed), BATCH))


SCENARIO = Scenario(
    kind="lock", cause="lock", doses=(0, 16, 24, 32), unit="ms that the lock is held at a time",
    forms={"flock": {}, "POSIX, 2 workers": {"workers": 2, "posix": True}},
)
