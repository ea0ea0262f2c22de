#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""Real DataLoader runs that die of a planted cause: the report has to say which process died first,
of what, and whose doing it was. Names on the command line select."""

import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402


def train(*options):
    return [dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--seconds", "30", *options]


class Live:
    """A recording that goes on while the test does something to its target."""

    def __init__(self, where, command, env=None):
        self.trace = os.path.join(where, "trace.dlbpf")
        self.err = open(os.path.join(where, "stderr"), "w+")
        self.p = subprocess.Popen([dlbpf.DLBPF, "record", "-o", self.trace, "--", *command], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=self.err, text=True, env=env)
        self.started = self.read_started()

    def read_started(self):
        for line in self.p.stdout:
            if line.startswith('{"started"'):
                return json.loads(line)["started"]
        raise AssertionError(f"the training did not start: {self.stderr()[-600:]}")

    def stderr(self):
        self.err.flush()
        with open(self.err.name) as f:
            return f.read()

    def workers(self):
        """Host pids of the trainer's children."""
        try:
            with open(f"/proc/{self.started}/task/{self.started}/children") as f:
                return [int(pid) for pid in f.read().split()]
        except OSError:
            return []

    def wait(self, seconds=60):
        try:
            return self.p.wait(seconds)
        finally:
            self.close()

    def close(self):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        self.p.stdout.close()
        self.err.close()


def crash_of(trace, pid, sig, cause):
    r = dlbpf.report(trace)
    crash = r["crash"]
    check(crash, "no crash in the report")
    equal(crash["pid"], pid, f"the process that died first ({crash})")
    equal(crash["signal"], sig, f"its signal ({crash})")
    equal(crash["cause"], cause, f"the cause ({crash})")
    return r, crash


def worker_killed(where):
    """SIGKILL by a process outside the recorded tree, as an operator does."""
    live = Live(where, train("--data", "jpeg"))
    try:
        dlbpf.wait_until(lambda: len(live.workers()) >= 2, 20, "worker")
        time.sleep(1)
        victim = live.workers()[0]
        killer = subprocess.Popen(["sh", "-c", f"kill -9 {victim}"])
        killer.wait()
        rc = live.wait()
    finally:
        live.close()
    check(rc != 0, "the training went on without its worker")
    r, crash = crash_of(live.trace, victim, signal.SIGKILL, "killed-by")
    equal(crash["role"], "worker", "the role of the victim")
    check(str(killer.pid) in crash["text"], f"the sender {killer.pid} is not named: {crash['text']}")


def shm_full(where):
    """A /dev/shm of 16 MB in a mount namespace of its own: the worker gets SIGBUS (or ENOSPC since
    PyTorch reserves its memory)."""
    inner = "mount -t tmpfs -o size=16m shm /dev/shm && exec \"$@\""
    command = ["unshare", "-m", "sh", "-c", inner, "-", *train("--data", "tensor", "--batch", "16", "--hold", "20")]
    trace = os.path.join(where, "trace.dlbpf")
    rec = dlbpf.record(command, trace, rc=None)
    check(rec.rc != 0, f"the training went on: {rec.stdout[-300:]}")
    need("Bus error" in rec.stderr + rec.stdout, f"no SIGBUS with this PyTorch: {rec.stderr[-300:]}")
    r = dlbpf.report(trace)
    crash = r["crash"]
    check(crash, "no crash in the report")
    equal(crash["signal"], signal.SIGBUS, f"the signal ({crash})")
    equal(crash["cause"], "shm-full", f"the cause ({crash})")
    equal(crash["role"], "worker", "the role of the victim")
    check("16" in crash["text"], f"the size of /dev/shm is not in the text: {crash['text']}")


def worker_exits(where):
    """A worker that leaves by os._exit(3): no signal, and PyTorch says that details are lost."""
    script = os.path.join(where, "leaver.py")
    with open(script, "w") as f:
        f.write("import os, torch, torch.utils.data as d\n"
                "class D(d.Dataset):\n"
                "    def __len__(self): return 4000\n"
                "    def __getitem__(self, i):\n"
                "        if i == 400: os._exit(3)\n"
                "        return torch.zeros(8)\n"
                "for b in d.DataLoader(D(), 8, num_workers=2): pass\n")
    trace = os.path.join(where, "trace.dlbpf")
    rec = dlbpf.record([dlbpf.PYTHON, "-B", script], trace, rc=None)
    check(rec.rc != 0, "the training went on")
    crash = dlbpf.report(trace)["crash"]
    check(crash, "no crash in the report")
    equal(crash["cause"], "worker-exit", f"the cause ({crash})")
    equal(crash["role"], "worker", "the role of the victim")
    check("3" in crash["text"], f"the exit code is not in the text: {crash['text']}")


def segfault(where):
    script = os.path.join(where, "segfault.py")
    with open(script, "w") as f:
        f.write("import ctypes, torch, torch.utils.data as d\n"
                "class D(d.Dataset):\n"
                "    def __len__(self): return 4000\n"
                "    def __getitem__(self, i):\n"
                "        if i == 400: ctypes.string_at(0)\n"
                "        return torch.zeros(8)\n"
                "for b in d.DataLoader(D(), 8, num_workers=2): pass\n")
    trace = os.path.join(where, "trace.dlbpf")
    rec = dlbpf.record([dlbpf.PYTHON, "-B", script], trace, rc=None)
    check(rec.rc != 0, "the training went on")
    crash = dlbpf.report(trace)["crash"]
    check(crash, "no crash in the report")
    equal((crash["cause"], crash["signal"]), ("segfault", signal.SIGSEGV), f"cause and signal ({crash})")


def trainer_killed(where):
    """kill -9 of the trainer: the trace has its exit, and the GPU records up to the last flush."""
    live = Live(where, train("--data", "python", "--gpu", "sim", "--kernel-ms", "3"), dlbpf.gpu_env())
    try:
        dlbpf.wait_until(lambda: len(live.workers()) >= 2, 20, "worker")
        time.sleep(3)
        killed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.kill(live.started, signal.SIGKILL)
        live.wait()
    finally:
        live.close()
    r, crash = crash_of(live.trace, live.started, signal.SIGKILL, "killed-by")
    equal(crash["role"], "trainer", "the role of the victim")
    check(str(os.getpid()) in crash["text"], f"the sender {os.getpid()} is not named: {crash['text']}")
    exits = [e for e in dlbpf.dump(live.trace, "exit") if e["tid"] == live.started]
    check(exits and exits[0]["code"] & 0x7F == 9, f"the trainer's exit is not in the trace: {exits}")
    kernels = dlbpf.dump(live.trace, "gpu_kernel")
    check(kernels, "no GPU records")
    late = killed - max(k["ts"] for k in kernels)
    check(late < 500_000_000, f"the last kernel is {late / 1e6:.0f} ms before the kill")


def recorder_killed(where):
    """kill -9 of the recorder: what it had written is readable up to the last second."""
    live = Live(where, train("--data", "python"))
    try:
        dlbpf.wait_until(lambda: len(live.workers()) >= 2, 20, "worker")
        time.sleep(4)
        killed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        live.p.kill()
        live.p.wait()
        check(dlbpf_alive(live.started), "the training died with its recorder")
        r = dlbpf.report(live.trace)
    finally:
        if dlbpf_alive(live.started):
            os.kill(live.started, signal.SIGTERM)
        live.close()
    check(not r["trace"]["complete"], "a cut-off trace is called complete")
    last = max(e["ts"] for e in dlbpf.dump(live.trace, "switch"))
    check(killed - last < 1_500_000_000, f"the last {(killed - last) / 1e6:.0f} ms are missing")


def dlbpf_alive(pid):
    return not dlbpf.ended(pid)


CASES = [worker_killed, shm_full, worker_exits, segfault, trainer_killed, recorder_killed]


def main():
    tests = dlbpf.Tests("crash: ")
    if not os.path.exists(dlbpf.DLBPF):
        sys.exit(f"{dlbpf.DLBPF} has not been built")
    wanted = sys.argv[1:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            with dlbpf.scratch() as where:
                os.environ["TMPDIR"] = where  # what a killed training leaves goes, too
                tests.run(case.__name__, case, where)
    tests.exit()


if __name__ == "__main__":
    main()
