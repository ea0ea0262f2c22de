#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 120
"""Recordings of programs that are refused something: the trace holds the refusal, and the numbers of that
moment, not those of the next round second. Names on the command line select."""

import errno
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

MIB = 1 << 20
SHM_MIB = 16
NS = 10**9
UNLIMITED = 2**64 - 1

# As PyTorch does from 2.10 on: the name, the size, and then the room, which there is not.
ALLOCATE = f"""
import os, time
def make(name, size, room):
    fd = os.open("/dev/shm/torch_%d_%s" % (os.getpid(), name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, size)
    if room:
        os.posix_fallocate(fd, 0, size)
time.sleep(1.4)
make("batch", {5 * MIB}, True)
try:
    make("more", {40 * MIB}, True)
except OSError as e:
    print(e.errno, flush=True)
time.sleep(1.5)
"""

DESCRIPTORS = """
import os, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
time.sleep(0.4)
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    del e
time.sleep(0.3)
for fd in held:
    os.close(fd)
time.sleep(1.5)
"""

# As many system calls as all CPUs can make, and then the failure.
CALLS = f"""
import os, time
end = time.monotonic() + 9
for _ in range(os.cpu_count()):
    if not os.fork():
        while time.monotonic() < end:
            for _ in range(10000):
                os.getppid()
        os._exit(0)
for _ in range(os.cpu_count()):
    os.wait()
{DESCRIPTORS}
"""

WORKER = """
import os, time
time.sleep(0.4)
pid = os.fork()
if not pid:
    block = bytearray(64 << 20)
    time.sleep(0.1)
    os._exit(3)
os.waitpid(pid, 0)
time.sleep(1.5)
"""


def record(where, source, *options, shm=False):
    command = [dlbpf.PYTHON, "-c", source]
    if shm:
        inner = f'mount -t tmpfs -o size={SHM_MIB}m tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", inner, "-", *command]
    trace = os.path.join(where, "trace.dlbpf")
    return trace, dlbpf.record(command, trace, options)


def at_once(trace, kind, ts, **which):
    """The first sample behind an instant, which must not be one of those that come when a second has passed."""
    samples = [s for s in dlbpf.dump(trace, kind) if all(s[field] == value for field, value in which.items())]
    after = [s for s in samples if s["ts"] >= ts]
    before = [s for s in samples if s["ts"] < ts]
    check(after and before, f"{len(before)} samples of {kind} before, {len(after)} after it")
    check(after[0]["ts"] - before[-1]["ts"] < NS and len(after) > 1, f"{kind} was sampled when its time had come, not at once")
    return after[0]


def shm_is_full(where):
    need(subprocess.run(["unshare", "--mount", "true"]).returncode == 0, "no mount namespaces")
    trace, r = record(where, ALLOCATE, shm=True)
    equal(r.stdout.split()[:1], [str(errno.ENOSPC)], "what the program met")
    fails = [e for e in dlbpf.dump(trace, "syscall_fail") if e["err"] == errno.ENOSPC]
    equal(len(fails), 1, f"failures for want of room ({fails})")
    equal((fails[0]["bytes"], fails[0]["limit"]), (40 * MIB, SHM_MIB * MIB), "what it asked for, and what there is")
    shm = at_once(trace, "env_shm", fails[0]["ts"], file_dev=fails[0]["file_dev"])
    equal((shm["total"], shm["torch_cnt"]), (SHM_MIB * MIB, 2), "the /dev/shm of the moment")
    equal(shm["torch_bytes"], 45 * MIB, "the size of its files")
    equal(shm["torch_blocks"], 5 * MIB, "what they take")
    equal((shm["torch_hollow_cnt"], shm["torch_largest"]), (1, 40 * MIB), "the file that the failure left behind")


def descriptors_run_out(where):
    trace, _ = record(where, DESCRIPTORS)
    fails = [e for e in dlbpf.dump(trace, "syscall_fail") if e["err"] == errno.EMFILE]
    check(fails, "no failure for want of descriptors")
    proc = at_once(trace, "env_proc", fails[0]["ts"], pid=fails[0]["pid"])
    equal((proc["fds"], proc["fds_limit"]), (64, 64), "its descriptors at that moment")
    limits = [e for e in dlbpf.dump(trace, "proc_limits") if e["pid"] == fails[0]["pid"]]
    check(len(limits) >= 2, f"its limits were told {len(limits)} times, not again when it had changed them")
    equal(limits[-1]["nofile"], 64, "its limit of descriptors")
    check(limits[0]["nofile"] != 64 and limits[0]["as"] == UNLIMITED, f"its limits before ({limits[0]})")


def worker_ends_by_itself(where):
    trace, _ = record(where, WORKER)
    exits = [e for e in dlbpf.dump(trace, "exit") if e["code"] == 3 << 8]
    equal(len(exits), 1, "exits with code 3")
    at_once(trace, "env_host", exits[0]["ts"])
    check(not [e for e in dlbpf.dump(trace, "mem") if e["pid"] == exits[0]["pid"] and not e["pgtables"]],
          "memory of 0 bytes was told of a process that had ended")


def not_asked_for(where):
    trace, _ = record(where, DESCRIPTORS, "--no-syscalls")
    equal(dlbpf.dump(trace, "syscall_fail"), [], "failures in spite of --no-syscalls")
    said = [e["text"] for e in dlbpf.dump(trace, "absent") if "--no-syscalls" in e["text"]]
    equal(len(said), 1, "what the trace says of it")


def too_many_calls(where):
    trace, _ = record(where, CALLS)
    said = [e for e in dlbpf.dump(trace, "absent") if "million calls a second" in e["text"]]
    equal(len(said), 1, "times that the trace says that they were given up")
    equal(dlbpf.dump(trace, "syscall_fail"), [], "failures after that")
    check(any("million calls a second" in text for text in dlbpf.report(trace)["absent"]), "the report does not say it")


def asked_for_in_any_case(where):
    trace, _ = record(where, CALLS, "--syscalls")
    fails = [e for e in dlbpf.dump(trace, "syscall_fail") if e["err"] == errno.EMFILE]
    check(fails, "no failure for want of descriptors, in spite of --syscalls")
    equal([e["text"] for e in dlbpf.dump(trace, "absent") if "million calls a second" in e["text"]], [],
          "what the trace says of giving up")


CASES = {f.__name__: f for f in (shm_is_full, descriptors_run_out, worker_ends_by_itself, not_asked_for, too_many_calls,
                                 asked_for_in_any_case)}


def main():
    tests = dlbpf.Tests("wants_")
    for name in sys.argv[1:] or CASES:
        with dlbpf.scratch() as where:
            tests.run(name, CASES[name], where)
    tests.exit()


if __name__ == "__main__":
    main()
