# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Shared memory: none left at the first touch or at the allocation, a batch lost for it, objects that
somebody removes."""

import os
import time

from crash import DECIDES, FITS, MIB, QUIET, Crash
import crash_places as places

BATCH = 16
BATCH_BYTES = BATCH * 3 * 224 * 224 * 4
SHM = 16  # MiB
WHY = {"shm-full": "why the batch was lost", "fd-limit": "why the batch was lost"}


class Images:
    """Batches of 9.2 MiB that cost little else."""

    def __init__(self):
        import torch

        self.image = torch.zeros((3, 224, 224))

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return self.image


def hold(run, collate=None):
    """Keeps the last batches, as a metric or a mixup that looks back does."""
    kept = []
    options = {"collate_fn": collate} if collate else {}
    run.loop(run.loader(Images(), BATCH, **options), lambda run, batch: (kept.append(batch), kept[:-8]))


def full(run):
    import training

    training.say(planted="shm", batch_bytes=BATCH_BYTES)
    hold(run)


def stack(samples):
    """A collate function that knows nothing of shared memory: the thread that sends the batch makes it."""
    import torch

    return torch.stack(samples)


def lost_for_space(run):
    import training

    training.say(planted="shm", batch_bytes=BATCH_BYTES)
    hold(run, stack)


def many(samples):
    """Batches of 40 tensors: each is a descriptor on its way to the trainer."""
    import torch

    return [torch.zeros(64) for _ in range(40)]


def few_descriptors(number):
    import resource

    if number == 1:
        import training

        open_now = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 24, open_now + 24))
        training.say(planted="fds", limit=open_now + 24)


def lost_for_descriptors(run):
    run.loop(run.loader(Images(), 4, init=few_descriptors, collate_fn=many))


class Numbers:
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        time.sleep(0.001)
        return index


def lost_for_pickle(run):
    import training

    training.say(planted="pickle")
    run.loop(run.loader(Numbers(), collate_fn=sometimes))


def sometimes(samples):
    """What cannot be pickled is noticed by the thread that sends the batch, which goes on without it."""
    import torch

    return (lambda: samples) if 480 in samples else torch.zeros(len(samples))


def stands_still(live):
    time.sleep(3)
    return live.trainer


def small_and_slow(run):
    import training

    run.kernel_ms = 100
    run.loop(run.loader(training.Samples(), 8))


def remove(live):
    """A cleaner from outside removes what belongs to nobody, as it thinks."""
    dev_shm = f"/proc/{live.trainer}/root/dev/shm"
    return {"remover": live.foreign("tmpcleaner", 'exec rm "$1"/torch_*', dev_shm)}


def sizes(meta):
    """tmpfs of 16 MiB, nearly full; a batch is what it is, give or take its page."""
    return {"shm.total": (SHM * MIB, SHM * MIB), "shm.used": (SHM * MIB - BATCH_BYTES, SHM * MIB),
            "batch.bytes": (BATCH_BYTES, BATCH_BYTES + 64 * 1024)}


def needs_more(meta, pm):
    """The remedy is a size that holds what the workers make ahead."""
    needed = next((n["value"] for k, n in pm["numbers"].items() if k == "shm.needed"), None)
    if needed is None:
        return "no number shm.needed"
    if not 4 * BATCH_BYTES <= needed <= 16 * BATCH_BYTES:
        return f"shm.needed is {needed}: 2 workers make 2 batches of {BATCH_BYTES} bytes ahead"
    if not any("--shm-size" in (a["command"] or "") for a in pm["actions"]):
        return "no action with --shm-size"
    return None


SCENARIOS = [
    Crash("shm_full_touch", "a /dev/shm of 16 MiB, and batches of 9.2 MiB: first touch finds no page (SIGBUS)",
          "shm-full", full, signal=7, place=lambda: places.shm(SHM), numbers=sizes, check=needs_more, said="us error",
          old=True, log=FITS, quick=True, kernel_ms=30),
    Crash("shm_full_touch_file_system", "the same with the sharing strategy file_system", "shm-full", full, signal=7,
          place=lambda: places.shm(SHM), numbers=sizes, check=needs_more, said="us error", old=True, log=FITS,
          form={"sharing": "file_system"}, kernel_ms=30),
    Crash("shm_full_allocation", "the same with a PyTorch that reserves memory first: an error, no signal (ENOSPC)",
          "shm-full", full, place=lambda: places.shm(SHM), numbers=sizes, check=needs_more, new=True, log=DECIDES,
          said="No space left on device", trainer=1, kernel_ms=30, now="place", now_says=DECIDES),
    Crash("batch_lost_space", "the thread of a worker that sends batches finds no room in a /dev/shm of 16 MiB",
          "batch-lost", lost_for_space, place=lambda: places.shm(SHM), numbers={"shm.total": (SHM * MIB, SHM * MIB)},
          left=WHY, new=True, ends="hang", seconds=16, said="No space left on device", log=FITS, kernel_ms=30),
    Crash("batch_lost_fds", "the thread of a worker that sends batches has no file descriptor left", "batch-lost",
          lost_for_descriptors, ends="hang", seconds=16, said="Too many open files", log=FITS, left=WHY,
          quick=True),
    Crash("batch_lost_fds_new", "the same with a current PyTorch", "batch-lost", lost_for_descriptors, ends="hang",
          seconds=16, said="Too many open files", log=FITS, left=WHY, new=True),
    Crash("batch_lost_pickle", "a batch cannot be pickled, and the thread that sends batches drops it", "batch-lost",
          lost_for_pickle, victim=None, ends="hang", seconds=16, said="pickle", log=QUIET,
          also={"hang": "no system call failed: only that everybody waits is to be seen"}),
    Crash("batch_lost_found", "a recording of a run that waits for a lost batch already", "batch-lost",
          lost_for_descriptors, victim=None, ends="hang", late=stands_still, seconds=14, said="Too many open files",
          log=FITS, left=WHY, sure=False, also={"hang": "that the batch was sent and failed was before the recording"}),
    Crash("shm_unlinked", "a cleaner that is no part of the job removes its objects in /dev/shm", "shm-unlinked",
          small_and_slow, victim="trainer", place=lambda: places.shm(64), act=remove,
          form={"sharing": "file_system"}, said="No such file or directory", names=("{remover}|rm",), log=FITS,
          quick=True),
]
