# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Loaders that work in threads of the trainer, as some write them to avoid processes."""

import collections
import concurrent.futures
import queue
import threading


def batches(make, kind, threads=1, ahead=2):
    """make(number) -> batch, in so many threads: a queue that they fill, or futures of an executor."""
    return by_queue(make, threads, ahead) if kind == "queue" else by_executor(make, threads, ahead)


def by_queue(make, threads, ahead):
    ready, stop = queue.Queue(ahead), threading.Event()
    lock, numbers = threading.Lock(), iter(range(1 << 40))

    def work():
        while not stop.is_set():
            with lock:
                number = next(numbers)
            ready.put(make(number))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for t in workers:
        t.start()
    try:
        while True:
            yield ready.get()
    finally:
        # A thread still inside torch when the interpreter goes would abort the process.
        stop.set()
        while any(t.is_alive() for t in workers):
            try:
                ready.get(timeout=0.01)
            except queue.Empty:
                pass


def by_executor(make, threads, ahead):
    numbers = iter(range(1 << 40))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        futures = collections.deque(pool.submit(make, next(numbers)) for _ in range(ahead))
        while True:
            futures.append(pool.submit(make, next(numbers)))
            yield futures.popleft().result()
