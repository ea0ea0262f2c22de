# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Shared memory page by page. What a page fault costs differs by fifty times between machines, and on a
virtual machine from day to day: the dose is time, and how many pages take so long is measured first."""

import time

PAGE = 4096
PROBE = 1024  # pages
TRIES = 8


def shared(pages):
    """An untouched tensor in shared memory, allocated as default_collate does it in a worker."""
    import torch

    size = max(1, pages) * PAGE
    like = torch.zeros(1, dtype=torch.uint8)
    return like.new(like.storage()._new_shared(size)).resize_(size)


def touch(tensor):
    """Writes one byte of each page."""
    tensor[::PAGE] = 1
    return tensor


def pages_for(ms, work):
    """With how many pages work(pages) takes so long; by the fastest of some tries, since the slower
    ones were disturbed."""
    if not ms:
        return 1
    took = []
    for _ in range(TRIES):
        started = time.perf_counter_ns()
        work(PROBE)
        took.append(time.perf_counter_ns() - started)
    return int(ms * 1e6 * PROBE / min(took))


def copy_only(run, size):
    """The training takes only the first bytes of a batch to the GPU: its copy is no second fault."""
    whole = run.copy
    run.copy = lambda batch: whole(batch[:size])
