#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A multi-process loader of known behaviour, without PyTorch: what a DataLoader does, in plain
Python, so that it starts in a second on an emulated machine.

The trainer sends indexes down one pipe for each worker and polls one result pipe that all workers
share; a worker does its planted work, announces the batch on the result pipe and hands over a
memfd on a unix socket. Workers have PyTorch's four signal handlers. Prints one JSON line.

    loader.py compute|sleep|host|killed|leak|poison SECONDS [WORKERS] [WORK_MS]

The last three end with a worker's death, which the line then tells: by a signal, of the 2 MiB that the first
worker keeps of each batch, or of a page that the kernel was told is bad memory.
"""

import ctypes
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time

BATCH_BYTES = 64 * 1024
PREFETCH = 2
MADV_HWPOISON = 100
NO_POISON = 77  # exit code: the kernel cannot


def compute(ms):
    """Work by the thread's own clock, so that an emulated or a busy CPU plants the same amount."""
    end = time.thread_time() + ms / 1000
    value = 1
    while time.thread_time() < end:
        for _ in range(300):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF


def poison():
    """Touches memory that has failed, as far as the kernel knows. It must not be caught: Python's handlers run
    later, and the instruction is not passed."""
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[0] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if ctypes.CDLL(None).madvise(ctypes.c_void_p(address), mmap.PAGESIZE, MADV_HWPOISON):
        os._exit(NO_POISON)
    page[0] = 2


def died(*_):
    """A worker is gone: say which, and end."""
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        print(json.dumps({"pid": os.getpid(), "victim": pid, "status": status}), flush=True)
        os._exit(1)


def worker(mode, ms, index_fd, result_fd, sock):
    kept = []
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for sig in (signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGTERM):
        signal.signal(sig, lambda *_: os._exit(1))
    poll = select.poll()
    poll.register(index_fd, select.POLLIN)
    while True:
        poll.poll(5000)
        data = os.read(index_fd, 8)
        if len(data) < 8:
            os._exit(0)
        if mode == "sleep":
            time.sleep(ms / 1000)
        else:
            compute(ms)
        if mode == "poison" and len(kept) == 20:
            poison()
        if mode in ("leak", "poison"):
            kept.append(os.urandom(1 << 12) * (512 if mode == "leak" else 1))
        fd = os.memfd_create("batch")
        os.ftruncate(fd, BATCH_BYTES)
        with mmap.mmap(fd, BATCH_BYTES) as m:
            m.write(data * (BATCH_BYTES // 8))
        try:
            os.write(result_fd, data)
            socket.send_fds(sock, [b"b"], [fd])
        except BrokenPipeError:  # the trainer has what it wanted
            os._exit(0)
        os.close(fd)


class Loader:
    def __init__(self, mode, ms, count):
        self.result_r, self.result_w = os.pipe()
        self.index, self.socks, self.pids = [], [], []
        self.sent, self.got, self.ready = 0, 0, {}
        for number in range(count):
            r, w = os.pipe()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            pid = os.fork()
            if pid == 0:
                # Only the trainer may hold the writing ends: a worker ends when it is gone.
                os.close(w)
                for other in self.index:
                    os.close(other)
                ours.close()
                worker(mode if number == 0 or mode == "sleep" else "compute", ms, r, self.result_w, theirs)
            os.close(r)
            theirs.close()
            self.index.append(w)
            self.socks.append(ours)
            self.pids.append(pid)
        self.poll = select.poll()
        self.poll.register(self.result_r, select.POLLIN)
        for _ in range(count * PREFETCH):
            self.send()

    def send(self):
        os.write(self.index[self.sent % len(self.index)], struct.pack("q", self.sent))
        self.sent += 1

    def receive(self):
        """One batch from whichever worker is first."""
        self.poll.poll(5000)
        (i,) = struct.unpack("q", os.read(self.result_r, 8))
        _, fds, _, _ = socket.recv_fds(self.socks[i % len(self.index)], 1, 1)
        with mmap.mmap(fds[0], BATCH_BYTES) as m:
            self.ready[i] = m[0]
        os.close(fds[0])

    def next(self):
        """Batches in order, as PyTorch gives them."""
        while self.got not in self.ready:
            self.receive()
        self.ready.pop(self.got)
        self.got += 1
        self.send()

    def end(self):
        for fd in self.index:
            os.close(fd)
        for pid in self.pids:
            os.waitpid(pid, 0)


def main():
    mode, seconds = sys.argv[1], float(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    ms = float(sys.argv[4]) if len(sys.argv) > 4 else 40.0
    if mode in ("leak", "poison"):
        signal.signal(signal.SIGCHLD, died)
    loader = Loader("compute" if mode in ("host", "killed") else mode, 2.0 if mode == "host" else ms, count)
    loader.next()
    started, batches = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        loader.next()
        if mode == "host":
            compute(ms)
        batches += 1
        if mode == "killed" and batches == 5:
            # Another process than the victim, as an operator or a job manager would.
            killer = os.fork()
            if killer == 0:
                os.kill(loader.pids[-1], signal.SIGKILL)
                os._exit(0)
            os.waitpid(killer, 0)
            os.waitpid(loader.pids[-1], 0)
            time.sleep(0.3)
            print(json.dumps({"pid": os.getpid(), "killer": killer, "victim": loader.pids[-1]}), flush=True)
            os._exit(1)
    wall = time.monotonic() - started
    loader.end()
    print(json.dumps({"pid": os.getpid(), "workers": loader.pids, "batches": batches,
                      "seconds": round(wall, 3), "batch_ms": round(wall * 1000 / max(batches, 1), 3)}))


if __name__ == "__main__":
    main()
