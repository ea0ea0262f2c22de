# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Memory limits of cgroups: who grew, what it was made of, and growth that is harmless. The machine
itself is never brought to its limit."""

import mmap
import os

from crash import DECIDES, MIB, QUIET, Crash
import crash_places as places
import training

LIMIT = 512
BATCH = 8
LEAK = 1 * MIB  # a sample


def touched(size):
    """Private memory, every page of it touched."""
    memory = bytearray(size)
    memory[::4096] = b"\1" * len(memory[::4096])
    return memory


class Leak(training.Samples):
    """Worker 0 keeps something of every sample."""

    def __init__(self, size):
        super().__init__()
        self.size, self.kept = size, []

    def fault(self, index):
        if self.number() == 0:
            if not self.kept:
                training.say(planted="leak", bytes_per_batch=BATCH * self.size)
            self.kept.append(touched(self.size))


def worker_leaks(run):
    run.loop(run.loader(Leak(LEAK), BATCH))


def trainer_leaks(run):
    kept = []

    def keep(run, batch):
        if run.done >= 4:
            if not kept:
                training.say(planted="leak", bytes_per_batch=8 * MIB)
            kept.append(touched(8 * MIB))

    run.loop(run.loader(training.Samples(), BATCH), keep)


def cache_in_shm(run):
    """A cache of 300 MiB in /dev/shm that nobody has mapped, and then a little growth."""
    with open("/dev/shm/dataset-cache", "wb") as f:
        for _ in range(300):
            f.write(bytes(MIB))
    run.loop(run.loader(Leak(LEAK // 2), BATCH))


class Pages(training.Samples):
    """Reads all of a mapped file that is larger than the limit: the kernel drops pages as needed."""

    def __init__(self, path):
        super().__init__()
        self.path, self.map = path, None

    def fault(self, index):
        if self.map is None:
            with open(self.path, "rb") as f:
                self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        at = index * MIB % len(self.map)
        self.map[at:at + MIB:4096]


def page_cache(run):
    path = os.path.join(run.folder, "train.arrow")
    with open(path, "wb") as f:
        f.truncate(2 * LIMIT * MIB)
    training.say(planted="page cache")
    run.loop(run.loader(Pages(path), BATCH), batches=160)


def limit_is(least_anon=0, least_shmem=0):
    return {"cgroup.limit": (LIMIT * MIB, LIMIT * MIB), "cgroup.anon": (least_anon * MIB, LIMIT * MIB),
            "cgroup.shmem": (least_shmem * MIB, LIMIT * MIB)}


def who_leaks(meta, pm):
    """Only the one that was planted, and by how much a batch."""
    planted = meta["planted"][0]
    leaks = [p["pid"] for p in pm["processes"] if p.get("leaks")]
    if leaks != [planted["pid"]]:
        return f"processes that leak are {leaks}, planted is {planted['pid']}"
    p = next(p for p in pm["processes"] if p["pid"] == planted["pid"])
    each = p["growth_bytes_per_batch"]
    if each and not 0.7 * planted["bytes_per_batch"] < each < 1.4 * planted["bytes_per_batch"]:
        return f"it grows by {each} bytes a batch, planted are {planted['bytes_per_batch']}"
    return None


def nobody_leaks(meta, pm):
    leaks = [p["pid"] for p in pm["processes"] if p.get("leaks")]
    return f"processes that leak are {leaks}: it is page cache" if leaks else None


SCENARIOS = [
    Crash("oom_worker", "a memory cgroup of 512 MiB, and a worker that keeps 8 MiB of each batch", "oom-cgroup",
          worker_leaks, signal=9, place=lambda: places.memory(LIMIT), numbers=limit_is(250), check=who_leaks,
          kernel_ms=60, log_if="killed by signal", kernel=DECIDES, quick=True, now="machine", now_says=DECIDES),
    Crash("oom_worker_new", "the same with a current PyTorch", "oom-cgroup", worker_leaks, signal=9, new=True,
          place=lambda: places.memory(LIMIT), numbers=limit_is(200), check=who_leaks,
          kernel_ms=60, log_if="killed by signal", kernel=DECIDES),
    Crash("oom_trainer", "a memory cgroup of 512 MiB, and a trainer that keeps 8 MiB for each batch", "oom-cgroup",
          trainer_leaks, victim="trainer", signal=9, trainer=137, place=lambda: places.memory(LIMIT),
          numbers=limit_is(250), check=who_leaks,
          kernel_ms=60, log_if="killed by signal", kernel=DECIDES, log=QUIET, now="machine", now_says=DECIDES),
    Crash("oom_shm", "a memory cgroup of 512 MiB, 300 MiB of it files in /dev/shm that nobody has mapped",
          "oom-cgroup", cache_in_shm, victim=None, signal=9, numbers=limit_is(0, 290), kernel=DECIDES, log=QUIET,
          kernel_ms=60,
          place=lambda: places.Chain(places.memory(LIMIT), places.shm(1024))),
    Crash("oom_parent_group", "the limit of 512 MiB is that of a group above the job's", "oom-cgroup", worker_leaks,
          signal=9, place=lambda: places.memory(LIMIT, nested=True), numbers=limit_is(250), check=who_leaks,
          kernel_ms=60, log_if="killed by signal", kernel=DECIDES, names=("{limited_name}",)),
    Crash("page_cache", "mapped files twice as large as the cgroup's limit are read: page cache, harmless", "none",
          page_cache, victim=None, trainer=0, place=lambda: places.memory(LIMIT), check=nobody_leaks, log=QUIET),
]
