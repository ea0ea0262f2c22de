# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A PyTorch training loop with a known bottleneck.

The loop is the usual one: a DataLoader, the copy to the device, kernels, now and then a
synchronise. What it plants is on the command line. It prints one JSON object a line: "started"
once the data set is there, "done" with what was planted and how long it took.

The GPU is the software one of tests/gpusim with --gpu sim; without it there are no GPU calls.
"""

import argparse
import json
import mmap
import os
import queue
import signal
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import datasets  # noqa: E402
import device as devices  # noqa: E402


def parse():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--data", default="jpeg",
                    choices=["jpeg", "python", "sleep", "storage", "tensor", "small"])
    ap.add_argument("--data-dir", help="where files are made and read (a temporary folder)")
    ap.add_argument("--sample-ms", type=float, default=2.0, help="cost of a python or sleep sample")
    ap.add_argument("--sample-kib", type=int, default=512, help="size of a storage sample")
    ap.add_argument("--storage-bps", type=int, default=0, help="how fast the disk is known to be, for the estimate")
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--batches", type=int, default=0, help="end after so many batches; 0: by time")
    ap.add_argument("--epoch", type=int, default=0, help="batches in an epoch; 0: one endless epoch")
    ap.add_argument("--persistent", action="store_true", help="keep workers between epochs")
    ap.add_argument("--start-method", choices=["fork", "spawn", "forkserver"])
    ap.add_argument("--threads", action="store_true", help="load in threads instead of processes")
    ap.add_argument("--val-every", type=int, default=0, help="a second loader, one batch of it every N")
    ap.add_argument("--gpu", choices=["none", "sim", "cuda"], default="none")
    ap.add_argument("--kernel-ms", type=float, default=2.0, help="GPU time of a batch")
    ap.add_argument("--kernels", type=int, default=4, help="kernels that it is made of")
    ap.add_argument("--sync-every", type=int, default=0, help="synchronise after every N batches, as .item() does")
    ap.add_argument("--pin", action="store_true", help="the batch lies in pinned memory when copied")
    ap.add_argument("--copy-mib", type=int, default=0, help="and copy so much pageable memory for each batch")
    ap.add_argument("--host-ms", type=float, default=0, help="busy Python in the trainer for each batch")
    ap.add_argument("--counter", help="file that always holds the number of batches, 8 bytes")
    ap.add_argument("--hold", type=int, default=0, help="keep the last N batches alive")
    return ap.parse_args()


class Threads:
    """A thread-based loader: what some people write to avoid processes."""

    def __init__(self, dataset, workers, batch):
        self.dataset, self.batch = dataset, batch
        self.todo, self.ready, self.stop = queue.Queue(), queue.Queue(workers * 2), False
        self.next, self.lock = 0, threading.Lock()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(workers)]
        for t in self.threads:
            t.start()

    def work(self):
        while not self.stop:
            with self.lock:
                first, self.next = self.next, self.next + self.batch
            samples = [self.dataset[first + i] for i in range(self.batch)]
            self.ready.put(torch.utils.data.default_collate(samples))

    def __iter__(self):
        while True:
            yield self.ready.get()

    def close(self):
        """A thread still inside torch when the interpreter goes would abort the process."""
        self.stop = True
        while any(t.is_alive() for t in self.threads):
            try:
                self.ready.get(timeout=0.05)
            except queue.Empty:
                pass


def loader_of(dataset, args, workers):
    if args.threads:
        return Threads(dataset, workers, args.batch)
    options = {"pin_memory": args.pin}
    if workers and args.start_method:
        options["multiprocessing_context"] = args.start_method
    if workers and args.persistent:
        options["persistent_workers"] = True
    if args.epoch:
        dataset = torch.utils.data.Subset(dataset, range(args.epoch * args.batch))
    return DataLoader(dataset, args.batch, num_workers=workers, **options)


def batches_of(loader):
    """Epoch after epoch."""
    while True:
        yield from loader


def busy(ms):
    """Python work by the thread's own CPU clock: being preempted does not shorten it."""
    end = time.thread_time() + ms / 1000
    value = 1
    while time.thread_time() < end:
        for _ in range(200):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF


class Trainer:
    def __init__(self, args, dataset):
        self.args = args
        self.device = devices.make(args)
        if args.pin:
            self.device.pin_loader()
        self.extra = torch.zeros(args.copy_mib << 18) if args.copy_mib else None
        self.loaders = [loader_of(dataset, args, args.workers)]
        self.train, self.val = batches_of(self.loaders[0]), None
        if args.val_every:
            self.loaders.append(loader_of(dataset, args, args.workers))
            self.val = batches_of(self.loaders[1])
        self.held = []
        self.done = 0

    def step(self):
        args = self.args
        batch = next(self.train)
        self.device.copy(batch[0], pinned=args.pin)
        if self.extra is not None:
            self.device.copy(self.extra, pinned=False)
        self.device.launch(args.kernel_ms, args.kernels)
        if args.host_ms:
            busy(args.host_ms)
        self.done += 1
        if args.sync_every and self.done % args.sync_every == 0:
            self.device.synchronize()
        if self.val and self.done % args.val_every == 0:
            self.device.copy(next(self.val)[0], pinned=args.pin)
            self.device.launch(args.kernel_ms / 2, 1)
        if args.hold:
            self.held = self.held[-args.hold:] + [batch]

    def close(self):
        for batches in (self.train, self.val):
            if batches:
                batches.close()
        for loader in self.loaders:
            if isinstance(loader, Threads):
                loader.close()


class Counter:
    """Progress for a benchmark to read at any time, at next to no cost."""

    def __init__(self, path):
        with open(path, "w+b") as f:
            f.truncate(8)
            self.map = mmap.mmap(f.fileno(), 8)

    def set(self, value):
        self.map[:] = value.to_bytes(8, "little")


def planted(args, dataset):
    """The bottleneck by arithmetic: stages overlap, so the slowest decides."""
    sample = dataset.sample_ms()
    # Threads of one process share its interpreter, and all workers share the disk.
    shared = (args.threads and args.data == "python") or args.data == "storage"
    workers = 1 if shared else max(1, args.workers)
    stages = {
        "gpu": args.kernel_ms if args.gpu != "none" else 0,
        dataset.planted: (sample or 0) * args.batch / workers,
        "host": args.host_ms,
    }
    if args.gpu != "none" and args.copy_mib:
        stages["pcie"] = devices.copy_ms(args.copy_mib << 20, pinned=False)
    cause = max(stages, key=stages.get)
    return {"cause": cause, "stages_ms": {k: round(v, 3) for k, v in stages.items()}}


def main():
    args = parse()
    scratch = None
    if not args.data_dir:
        scratch = tempfile.TemporaryDirectory(prefix="dlbpf-data-")
        args.data_dir = scratch.name
    torch.set_num_threads(1)
    # So that a folder made here goes away when the run is ended by a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    dataset = datasets.make(args)
    plan = planted(args, dataset)
    trainer = Trainer(args, dataset)
    print(json.dumps({"started": os.getpid(), "torch": torch.__version__, "planted": plan}), flush=True)

    trainer.step()  # workers exist from here on
    started = time.monotonic()
    counter = Counter(args.counter) if args.counter else None
    while True:
        trainer.step()
        now = time.monotonic()
        if counter:
            counter.set(trainer.done)
        if args.batches and trainer.done >= args.batches:
            break
        if not args.batches and now - started >= args.seconds:
            break
    trainer.device.synchronize()
    seconds = time.monotonic() - started
    trainer.close()
    print(json.dumps({
        "done": os.getpid(),
        "rank": int(os.environ.get("RANK", 0)),
        "batches": trainer.done,
        "seconds": round(seconds, 3),
        "batch_ms": round(seconds * 1000 / max(1, trainer.done - 1), 3),
        "planted": plan,
    }), flush=True)


if __name__ == "__main__":
    main()
