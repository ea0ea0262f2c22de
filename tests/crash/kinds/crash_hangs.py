# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Runs that stand still, and deaths that the trainer never learns of."""

import ctypes
import os
import threading
import time

from crash import DECIDES, FITS, QUIET, Crash
import training

AT = 480


class Mutex:
    """A lock of C (pthread_mutex): its word has who holds it."""

    def __init__(self):
        self.libc, self.memory = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        self.libc.pthread_mutex_init(self.memory, None)

    def acquire(self):
        self.libc.pthread_mutex_lock(self.memory)

    def release(self):
        self.libc.pthread_mutex_unlock(self.memory)


class Locked(training.Samples):
    """Wants a lock for each sample."""

    def __init__(self, lock):
        super().__init__()
        self.lock = lock

    def fault(self, index):
        self.lock.acquire()
        self.lock.release()


def forks_with_lock_held(make):
    """Another thread of the trainer holds the data set's lock while the workers are forked. It gives it back
    a second later, but not in the workers: there it does not exist."""
    def train(run):
        lock = make()
        held = threading.Event()

        def logger():
            lock.acquire()
            training.say(planted="lock", holder=threading.get_native_id())
            held.set()
            time.sleep(1)
            lock.release()

        threading.Thread(target=logger, daemon=True).start()
        held.wait()
        run.loop(run.loader(Locked(lock)))

    return train


class TwoLocks(training.Samples):
    """A thread of the worker takes two locks in one order, its main thread in the other."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def other(self, has):
        self.second.acquire()
        has.set()
        time.sleep(0.2)
        self.first.acquire()

    def fault(self, index):
        if index != AT:
            return
        has = threading.Event()
        self.first.acquire()
        thread = threading.Thread(target=self.other, args=(has,), daemon=True)
        thread.start()
        has.wait()
        training.say(planted="locks", main=threading.get_native_id(), other=thread.native_id)
        self.second.acquire()


def deadlock(run):
    run.loop(run.loader(TwoLocks(Mutex(), Mutex())))


class Slow(training.Samples):
    def fault(self, index):
        if index == AT:
            training.say(planted="sleep")
            time.sleep(40)


def timeout(run):
    run.loop(run.loader(Slow(), timeout=3))


def plain(run):
    run.loop(run.loader(training.Samples()))


class Stuck(training.Samples):
    """Both workers come to wait for a lock that nobody gives back."""

    def fault(self, index):
        if index >= AT:
            training.say(planted="lock")
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()


def stuck(run):
    run.loop(run.loader(Stuck()))


def nodes(run):
    """torchdata's own loader, with a process that makes batches."""
    from torchdata.nodes import Batcher, IterableWrapper, Loader, ParallelMapper, Prefetcher

    indexes = Batcher(IterableWrapper(range(1 << 20)), 8)
    run.loop(Loader(Prefetcher(ParallelMapper(indexes, Make(), 2, method="process"), 2)))


class Make:
    def __init__(self):
        self.number = None

    def __call__(self, indexes):
        import torch

        if self.number is None:
            self.number = 0 if os.getpid() % 2 else 1
            training.say(worker=0)
        time.sleep(0.01)
        return torch.zeros(len(indexes), 16)


def stop_worker(live):
    victim = live.worker(1)
    return {"victim": victim, "stopper": live.foreign("freezer", "kill -STOP $1", victim)}


def kill_worker(live):
    victim = live.worker(0)
    return {"victim": victim, "killer": live.foreign("oncall.sh", "kill -9 $1", victim), "killer_name": "oncall.sh"}


def kill_trainer(live):
    """When both workers are stuck: they do not look whether their parent is there."""
    for _ in range(400):
        if len({line["pid"] for line in live.lines() if "planted" in line}) == 2:
            break
        time.sleep(0.1)
    time.sleep(1)
    trainer = live.trainer
    return {"victim": trainer, "killer": live.foreign("oncall.sh", "kill -9 $1", trainer), "killer_name": "oncall.sh"}


def stands_still(live):
    """Nobody finds a hang at once."""
    time.sleep(3)
    return live.trainer


def orphan(live):
    time.sleep(1)
    return live.worker(0)


def waits_for_lock(meta, pm):
    """The worker's main thread is said to wait for a lock."""
    workers = {pid for pids in meta["workers"].values() for pid in pids}
    states = [t["state"] for t in pm["threads"] if t["pid"] in workers]
    if not any("lock" in (s or "") for s in states):
        return f"no thread of a worker waits for a lock: {states}"
    return None


def names_both(meta, pm):
    """Each of the two threads waits, and the other is who holds what it waits for."""
    planted = meta["planted"][0]
    threads = {t["tid"]: t for t in pm["threads"]}
    for tid, holder in ((planted["main"], planted["other"]), (planted["other"], planted["main"])):
        t = threads.get(tid)
        if not t:
            return f"thread {tid} is not listed"
        if "lock" not in (t["state"] or ""):
            return f"thread {tid} does not wait for a lock: {t['state']}"
    return None


def orphans_told(meta, pm):
    workers = {pid for pids in meta["workers"].values() for pid in pids}
    alive = [p for p in pm["processes"] if p["pid"] in workers and not p.get("ended")]
    if len(alive) != len(workers):
        return f"workers that go on are {[p['pid'] for p in alive]}, not {sorted(workers)}"
    return None


SCENARIOS = [
    Crash("fork_with_lock", "workers are forked while another thread of the trainer holds a lock of C", "hang",
          forks_with_lock_held(Mutex), victim=None, ends="hang", seconds=16, check=waits_for_lock, log=QUIET,
          quick=True, now="pid"),
    Crash("fork_with_python_lock", "the same with a lock of Python's", "hang",
          forks_with_lock_held(threading.Lock), victim=None, ends="hang", seconds=16, check=waits_for_lock, log=QUIET),
    Crash("deadlock", "two threads of a worker take two locks in different orders", "hang", deadlock, victim=None,
          ends="hang", seconds=16, check=names_both, log=QUIET, now="pid"),
    Crash("timeout", "DataLoader(timeout=3), and a sample that takes 40 s", "timeout", timeout, victim="trainer",
          status=1, trainer=1, log=DECIDES, said="timed out", quick=True),
    Crash("forkserver", "SIGKILL to a worker of the start method forkserver: the trainer does not learn the signal",
          "killed-by", plain, signal=9, form={"start": "forkserver"}, act=kill_worker,
          names=("{killer}", "{killer_name}"), log=FITS, log_if="exited unexpectedly"),
    Crash("nodes", "SIGKILL to a process of torchdata.nodes: the trainer never learns the death", "killed-by", nodes,
          victim=None, signal=9, act=kill_worker, names=("{killer}", "{killer_name}"), ends="hang", seconds=14,
          new=True, needs=("torchdata",), log=QUIET),
    Crash("stopped", "somebody stops a worker (SIGSTOP)", "hang", plain, victim=None, act=stop_worker, ends="hang",
          seconds=16, names=("{stopper}|freezer|stopped",), log=QUIET, now="pid"),
    Crash("orphans", "SIGKILL to the trainer, while its workers wait for a lock for ever", "killed-by", stuck,
          victim="trainer", signal=9, trainer=137, act=kill_trainer, names=("{killer}",), check=orphans_told,
          also={"orphaned": "the workers go on"}, log=QUIET),
    Crash("hang_found", "a recording of a run that hangs already: a lock was held at the fork", "hang",
          forks_with_lock_held(Mutex), victim=None, ends="hang", late=stands_still, seconds=12, check=waits_for_lock,
          log=QUIET),
    Crash("orphan_found", "a recording of a worker whose trainer is dead already", "orphaned", stuck, victim=None,
          act=kill_trainer, ends="hang", late=orphan, seconds=6, log=QUIET),
]
