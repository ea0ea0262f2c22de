# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A process to inject into: threads that allocate, load and unload libraries, fork and wait in every
way, and each checks its own results. Says "up", works until it reads "stop", says "fine COUNT" and
ends with 7, or says what was wrong and ends with 1. Runs on any CPython from 3.6 on.

argv: the libcuda to map, a library to load and unload, and the parts to run.
"""

import ctypes
import errno
import os
import queue
import random
import select
import signal
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.malloc.restype = ctypes.c_void_p
stopping = threading.Event()
wrong = []
count = {}


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def must(cond, text):
    if not cond:
        raise AssertionError(text)


def waits(seconds, fn, name, want=0):
    """A wait through the C library alone: Python would hide an EINTR."""
    ctypes.set_errno(0)
    begin = time.monotonic()
    got = fn()
    took = time.monotonic() - begin
    must(got == want, "%s gave %d, errno %s" % (name, got, errno.errorcode.get(ctypes.get_errno())))
    must(took >= seconds - 0.001, "%s returned after %.4f s of %.4f" % (name, took, seconds))


def part_alloc():
    blocks = [os.urandom(random.randrange(1, 5000)) for _ in range(50)]
    sums = [sum(b) for b in blocks]
    big = bytearray(random.randrange(1, 400000))
    copies = [bytes(bytearray(b)) for b in blocks]
    must([sum(b) for b in copies] == sums and not any(big[:100]), "memory differs")
    p = libc.malloc(ctypes.c_size_t(random.randrange(1, 300000)))
    must(p, "no memory")
    libc.free(ctypes.c_void_p(p))


def part_load():
    dlclose = libc.dlclose
    lib = ctypes.CDLL(sys.argv[2])
    must(lib.twice(21) == 42, "a function of the library is wrong")
    must(dlclose(ctypes.c_void_p(lib._handle)) == 0, "dlclose failed")


def part_fork():
    """The child loads a library: not to be run beside part_load, since glibc's loader is not safe
    to use in a child that was forked while another thread was loading."""
    pid = os.fork()
    if not pid:
        code = 99
        try:
            lib = ctypes.CDLL(sys.argv[2])
            code = lib.twice(4)
        finally:
            os._exit(code)
    got, status = os.waitpid(pid, 0)
    must(got == pid and status == 8 << 8, "a forked child ended with %#x" % status)


def part_thread():
    out = []
    t = threading.Thread(target=lambda: out.append(1))
    t.start()
    t.join()
    must(out == [1], "a thread did not run")


def part_sleep():
    waits(0.03, lambda: libc.nanosleep(ctypes.byref(Timespec(0, 30000000)), None), "nanosleep")
    begin = time.monotonic()
    time.sleep(0.02)
    must(time.monotonic() - begin >= 0.02, "time.sleep was short")


def part_poll():
    waits(0.03, lambda: libc.poll(None, ctypes.c_ulong(0), 30), "poll")


def part_select():
    tv = Timespec(0, 20000)
    waits(0.02, lambda: libc.select(0, None, None, None, ctypes.byref(tv)), "select")


def part_queue():
    q = queue.Queue()
    begin = time.monotonic()
    try:
        q.get(timeout=0.02)
        raise AssertionError("an empty queue gave something")
    except queue.Empty:
        must(time.monotonic() - begin >= 0.019, "queue.get was short")


def pipe_after(seconds):
    r, w = os.pipe()

    def send():
        time.sleep(seconds)
        os.write(w, b"x")

    t = threading.Thread(target=send)
    t.start()
    return r, w, t


def part_read():
    r, w, t = pipe_after(0.02)
    buf = ctypes.create_string_buffer(8)
    waits(0, lambda: libc.read(r, buf, ctypes.c_size_t(8)), "read of a pipe", 1)
    t.join()
    os.close(r)
    os.close(w)


def part_epoll():
    r, w, t = pipe_after(0.02)
    e = libc.epoll_create1(0)
    ev = ctypes.create_string_buffer(b"\x01" + b"\0" * 11, 12)
    must(libc.epoll_ctl(e, 1, r, ev) == 0, "epoll_ctl failed")
    out = ctypes.create_string_buffer(12)
    waits(0, lambda: libc.epoll_wait(e, out, 1, -1), "epoll_wait", 1)
    t.join()
    for fd in (e, r, w):
        os.close(fd)


def part_child():
    """A child of another program: vfork and exec."""
    pid = os.spawnv(os.P_NOWAIT, "/bin/sh", ["sh", "-c", "sleep 0.02; exit 3"])
    status = ctypes.c_int(0)
    waits(0, lambda: libc.waitpid(pid, ctypes.byref(status), 0), "waitpid", pid)
    must(status.value == 3 << 8, "a child ended with %#x" % status.value)


def part_float():
    x = 1.0
    for i in range(2000):
        x = x * 1.0000001 + 0.5 / (i + 1)
    must(abs(x - FLOAT) < 1e-12, "a sum is %r, not %r" % (x, FLOAT))


def run(name, fn):
    n = 0
    try:
        while not stopping.is_set():
            fn()
            n += 1
    except BaseException as e:
        wrong.append("%s: %s" % (name, e))
    count[name] = n


FLOAT = 1.0
for _i in range(2000):
    FLOAT = FLOAT * 1.0000001 + 0.5 / (_i + 1)


def main():
    ctypes.CDLL(sys.argv[1])
    threads = []
    for part in sys.argv[3:]:
        threads.append(threading.Thread(target=run, args=(part, globals()["part_" + part])))
    for t in threads:
        t.start()
    print("up", flush=True)
    must(sys.stdin.readline() == "stop\n", "not told to stop")
    stopping.set()
    for t in threads:
        t.join()
    for name in sys.argv[3:]:
        if not count.get(name):
            wrong.append(name + " never ran")
    print("wrong: " + "; ".join(wrong) if wrong else "fine %d" % sum(count.values()), flush=True)
    return 1 if wrong else 7


signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(main())
