# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""SIGBUS that is not /dev/shm's, disks without room, and storage that never answers."""

import mmap
import os

from crash import FITS, MIB, QUIET, Crash
import crash_places as places
import training

PAGE = 4096
FILE_MIB = 16


class Mapped(training.Samples):
    """Reads a mapped file, page after page."""

    def __init__(self, path, step=PAGE):
        super().__init__()
        self.path, self.step, self.map = path, step, None

    def fault(self, index):
        if self.map is None:
            with open(self.path, "rb") as f:
                self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
            self.pages = len(self.map) // self.step
        self.map[index * 7 % self.pages * self.step]  # all of it within a second


def read_and_truncate(run):
    path = os.path.join(run.folder, "features.bin")
    with open(path, "wb") as f:
        f.truncate(FILE_MIB * MIB)
    run.loop(run.loader(Mapped(path)))


def truncate(live):
    path = os.path.join(live.folder, "features.bin")
    pid = live.foreign("rotate-data", 'exec truncate -s 8192 "$1"', path)
    return {"truncater": pid, "file": path}


class Cache(training.Samples):
    """Writes what it made into a mapped file, as a cache does."""

    STEP = 64 * 1024

    def __init__(self, path):
        super().__init__()
        self.path, self.map = path, None

    def fault(self, index):
        if self.map is None:
            with open(self.path, "r+b") as f:
                self.map = mmap.mmap(f.fileno(), 0)
        at = index * self.STEP % len(self.map)
        self.map[at:at + self.STEP] = bytes(self.STEP)


def write_cache(run):
    path = os.path.join(run.place["folder"], "cache.bin")
    with open(path, "wb") as f:
        f.truncate(64 * MIB)
    training.say(planted="disk", file=path)
    run.loop(run.loader(Cache(path)))


class HugePages(training.Samples):
    """One worker wants memory in huge pages, of which the machine has none to give."""

    FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | 0x4000  # MAP_HUGETLB, MAP_NORESERVE

    def fault(self, index):
        if index != 480:
            return
        with open("/proc/sys/vm/nr_hugepages") as f:
            count = int(f.read())
        memory = mmap.mmap(-1, (count + 1) * 2 * MIB, flags=self.FLAGS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        training.say(planted="hugepages", count=count)
        for i in range(count + 1):
            memory[i * 2 * MIB] = 1


def huge(run):
    run.loop(run.loader(HugePages()))


class Broken(Mapped):
    """The second half of its file cannot be read; training comes to it later."""

    def fault(self, index):
        super().fault(index if index > 480 else 0)


def broken(run):
    training.say(planted="disk", file=run.place["folder"] + "/data")
    run.loop(run.loader(Broken(run.place["folder"] + "/data", 1 << 20)))


class Reads(training.Samples):
    """Reads from a file, always another place."""

    def fault(self, index):
        with open(self.path, "rb") as f:
            f.seek(index % 512 * (128 << 10))
            f.read(PAGE)


def silent(run):
    data = Reads()
    data.path = run.place["folder"] + "/data"
    run.loop(run.loader(data))


def stop_server(live):
    server = live.place.params["server"]
    return {"stopper": live.foreign("maintenance", "kill -STOP $1", server), "server": server}


def checkpoint(run):
    """The trainer saves its model now and then."""
    import torch

    path = os.path.join(run.place["folder"], "checkpoint.pt")

    def save(run, batch):
        if run.done % 8 == 0:
            training.say(planted="disk", file=path)
            torch.save(torch.zeros(256 << 10 if run.done < 32 else 4 << 20), path)

    run.loop(run.loader(training.Samples()), save)


class DiskCache(training.Samples):
    def fault(self, index):
        with open(os.path.join(self.folder, f"{index}.npy"), "wb") as f:
            f.write(bytes(64 * 1024))


def cache_files(run):
    data = DiskCache()
    data.folder = run.place["folder"]
    training.say(planted="disk")
    run.loop(run.loader(data))


SCENARIOS = [
    Crash("mapped_truncated", "another program truncates a file that the workers have mapped", "mapped-file-truncated",
          read_and_truncate, signal=7, act=truncate, wrong=True, names=("features.bin",), said="us error", quick=True),
    Crash("mapped_truncated_core", "the same, and a core is written", "mapped-file-truncated", read_and_truncate,
          signal=7, act=truncate, wrong=True, names=("features.bin",), said="us error", core=FITS),
    Crash("mapped_truncated_new", "the same with a current PyTorch", "mapped-file-truncated", read_and_truncate,
          signal=7, act=truncate, wrong=True, names=("features.bin",), said="us error", new=True),
    Crash("mapped_tmpfs_full", "workers write to a mapped file; its file system, a tmpfs of 4 MiB, is full",
          "mapped-filesystem-full", write_cache, signal=7, wrong=True, names=("cache.bin",), said="us error",
          place=lambda: places.SmallDisk("tmpfs", 4), numbers={"fs.total": (4 * MIB, 4 * MIB)}, quick=True),
    Crash("mapped_ext4_full", "the same on an ext4 of 16 MiB", "mapped-filesystem-full", write_cache, signal=7,
          wrong=True, names=("cache.bin",), said="us error", place=lambda: places.SmallDisk("ext4", 16),
          numbers={"fs.total": (8 * MIB, 16 * MIB)}),
    Crash("hugepages_exhausted", "a worker touches memory of huge pages, and the machine has none left",
          "hugepages-exhausted", huge, signal=7, wrong=True, said="us error"),
    Crash("mapped_io_error", "a mapped file cannot be read: its FUSE server answers EIO", "mapped-file-error", broken,
          signal=7, wrong=True, names=("data",), said="us error", place=lambda: places.Fuse("broken"),
          also={"mapped-file-truncated": "the kernel does not tell an error of a FUSE server from a missing page"}),
    Crash("storage_silent", "the server of the data's file system (FUSE) is stopped: reads never return", "hang",
          silent, victim=None, act=stop_server, place=lambda: places.Fuse("whole"), ends="hang", seconds=16,
          log=QUIET),
    Crash("disk_full_checkpoint", "the disk of the checkpoint, 8 MiB, has no room: the trainer ends", "disk-full",
          checkpoint, victim="trainer", place=lambda: places.SmallDisk("tmpfs", 8), log=FITS,
          numbers={"fs.total": (8 * MIB, 8 * MIB)}, quick=True,
          left={"abort": "of a C++ exception, it is true; the output of old versions does not say why"}),
    Crash("disk_full_worker", "the disk that workers cache samples on, 4 MiB, has no room: an exception is passed on",
          "disk-full", cache_files, victim=None, trainer=1, place=lambda: places.SmallDisk("tmpfs", 4), log=FITS,
          said="No space left on device", numbers={"fs.total": (4 * MIB, 4 * MIB)}),
]
