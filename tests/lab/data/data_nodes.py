# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""torchdata.nodes: a graph of nodes, each with threads of its own, in place of a DataLoader."""

import threading
import time

BATCH = 4


def collate(samples):
    from torch.utils.data import default_collate

    return default_collate(samples)


class Sample:
    """A data set as the function that a node calls."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __call__(self, index):
        return self.dataset[index]


class Batch:
    """Makes all samples of a batch at once."""

    def __init__(self, sample):
        self.sample = sample

    def __call__(self, indexes):
        return collate([self.sample(i) for i in indexes])


def in_threads(sample, batches, threads=1):
    """sample(index) is made in so many threads; the batches of it are put together in another one."""
    from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, ParallelMapper, Prefetcher

    node = ParallelMapper(IterableWrapper(range(batches * BATCH)), sample, threads, method="thread")
    return Loader(Prefetcher(Mapper(Batcher(node, BATCH), collate), 2))


def in_processes(sample, batches, processes=1):
    """Processes make whole batches: of single samples each would be handed over by itself."""
    from torchdata.nodes import Batcher, IterableWrapper, Loader, ParallelMapper, Prefetcher

    indexes = Batcher(IterableWrapper(range(batches * BATCH)), BATCH)
    node = ParallelMapper(indexes, Batch(sample), processes, method="process")
    return Loader(Prefetcher(node, 2))


def train(run, source):
    """To the end of the source, and of its threads: one still inside torch when the interpreter goes would
    abort the process."""
    iterator = run.loop(source)
    if next(iterator, None) is not None:
        raise RuntimeError("there are more batches than were asked for")
    # The feeder of a process's queue stays until the interpreter ends it.
    others = [t for t in threading.enumerate() if t is not threading.current_thread() and t.name != "QueueFeederThread"]
    for _ in range(100):
        if not any(t.is_alive() for t in others):
            break
        time.sleep(0.02)
