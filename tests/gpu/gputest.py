# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What the GPU tests share: paths, the recorder's GPU part as a process, one line a test."""

import collections
import os
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
SIM = os.path.join(BUILD, "gpusim")
TOOLS = os.path.join(BUILD, "tests", "gpu")
COLLECTOR = os.path.join(BUILD, "libdlbpf_cupti.so")
PYTHON = os.environ.get("DLBPF_PYTHON", sys.executable)

_tests = []


class Skip(Exception):
    pass


def test(fn):
    _tests.append(fn)
    return fn


def check(cond, why="does not hold"):
    if not cond:
        raise AssertionError(why)


def equal(got, want, what):
    check(got == want, "%s is %r, not %r" % (what, got, want))


def build():
    """Quiet when there is nothing to do; the main build may have left it to us."""
    for folder in ("tests/gpusim", "tests/gpu"):
        subprocess.run(["make", "-s", "-C", folder, "O=" + os.path.abspath(BUILD)], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    if not os.path.exists(COLLECTOR):
        subprocess.run(["make", "-s", COLLECTOR], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main():
    build()
    failed = 0
    want = sys.argv[1] if len(sys.argv) > 1 else ""
    for fn in _tests:
        name = fn.__name__
        if want not in name:
            continue
        try:
            fn()
            print("ok " + name, flush=True)
        except Skip as e:
            print("skip %s: %s" % (name, e), flush=True)
        except Exception as e:
            failed += 1
            where = traceback.extract_tb(e.__traceback__)[-1]
            if not isinstance(e, AssertionError):
                traceback.print_exc(file=sys.stdout)
            line = " ".join(str(e).split())[:300]
            print("FAIL %s: %s (%s:%d)" % (name, line or repr(e), os.path.basename(where.filename), where.lineno),
                  flush=True)
    return 1 if failed else 0


# --- a target: a script on the simulated GPU ------------------------------------------------------

PRELUDE = """
import os, sys, time
sys.path.insert(0, %r)
import gpusim
def say(*a):
    print(*a, flush=True)
def wait(word):
    line = sys.stdin.readline().strip()
    assert line == word, (line, word)
""" % os.path.join(ROOT, "tests", "gpusim")


# What most targets begin with: a stream, and nothing under way when the recorder comes.
UP = """
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("go")
"""


def sim_env(**more):
    env = dict(os.environ, CUDA_INJECTION64_PATH=COLLECTOR, GPUSIM_LIB=SIM, GPUSIM_QUIET="1")
    env.update(more)
    return env


class Target:
    """A Python script that says lines and waits for words."""

    def __init__(self, code, **env):
        self.p = subprocess.Popen([PYTHON, "-c", PRELUDE + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, bufsize=1, env=sim_env(**env))
        self.pid = self.p.pid

    def expect(self, word):
        line = self.p.stdout.readline().strip()
        check(line == word, "the target said %r, not %r" % (line, word))

    def line(self):
        return self.p.stdout.readline().strip()

    def say(self, word):
        self.p.stdin.write(word + "\n")
        self.p.stdin.flush()

    def end(self, rc=0):
        got = self.p.wait(timeout=60)
        check(rc is None or got == rc, "the target ended with %r" % got)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()


class Event:
    def __init__(self, line):
        text = None
        if " text=" in line:
            line, text = line.split(" text=", 1)
        parts = line.split()
        self.kind = parts[0]
        for part in parts[1:]:
            key, val = part.split("=", 1)
            setattr(self, key, int(val) if val.isdigit() else val)
        self.text = text

    def __repr__(self):
        return str(self.__dict__)


class Recorder:
    """gpurec: the GPU part of dlbpf record, alone."""

    def __init__(self, *pids, mode=2, flush_ms=20, args=()):
        cmd = [os.path.join(TOOLS, "gpurec"), "-m", str(mode), "-f", str(flush_ms)]
        self.out = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen(cmd + [str(p) for p in pids], stdin=subprocess.PIPE, stdout=self.out, text=True)

    def lines(self):
        # Opened anew: the recorder writes at the position of the one that it was given.
        with open("/proc/self/fd/%d" % self.out.fileno()) as f:
            text = f.read()
        return text[:text.rfind("\n") + 1].splitlines()

    def events(self, kind=None):
        evs = [Event(x) for x in self.lines() if x and not x.startswith("#")]
        return [e for e in evs if kind is None or e.kind == kind]

    def notes(self):
        return [x[2:] for x in self.lines() if x.startswith("#")]

    def wait_for(self, what, cond, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if cond():
                return
            check(self.p.poll() is None, "the recorder ended while waiting for " + what)
            time.sleep(0.02)
        kinds = collections.Counter(e.kind for e in self.events())
        raise AssertionError("no %s within %d s; notes %s, events %s" % (what, seconds, self.notes()[-3:], dict(kinds)))

    def wait_on(self):
        """Until the collector is switched on: it says where its data come from."""
        self.wait_for("start of the collector", lambda: self.events("gpu_source"))

    def ask(self, line):
        # Its first line is no answer.
        self.wait_for("start of the recorder", lambda: "ready" in self.notes()[:1])
        n = len(self.notes())
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        self.wait_for("answer to " + line, lambda: len(self.notes()) > n)
        return self.notes()[n]

    def stop(self):
        if self.p.poll() is None:
            self.p.stdin.write("stop\n")
            self.p.stdin.flush()
        self.p.wait(timeout=30)
        check(self.p.returncode == 0, "the recorder ended with %r" % self.p.returncode)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        self.out.close()


def read_truth(path):
    """GPUSIM_TRUTH: what the model decided. {kind: [fields]}"""
    truth = collections.defaultdict(list)
    with open(path) as f:
        for line in f:
            parts = line.split()
            truth[parts[0]].append([int(x) if x.lstrip("-").isdigit() else x for x in parts[1:]])
    return truth


# --- a target with its truth, and what the recorder saw of it ------------------------------------------

# A second or so of mixed work, between "go" and "done".
WORK = """
dev = gpusim.Device()
s, c = dev.stream(), dev.stream()
s.kernel(us=1)
dev.synchronize()
say("up")
wait("go")
for i in range(%d):
    s.h2d(2000000)
    c.h2d(500000, pinned=True, non_blocking=True)
    s.wait(c.record())
    s.memset(4096)
    s.kernels(20, ms=4, name="forward_%%d" %% (i %% 3))
    s.kernel(ms=2, name="backward")
    s.synchronize()
say("done")
wait("end")
"""

CORR, DEV, STREAM, START, END, BYTES, DIR, MEM, SYNC, NAME = range(10)
GPU_KINDS = {"kernel": "gpu_kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


class Session:
    """A target with its truth, recorded from "up" until its work is done."""

    def __init__(self, rounds=40, mode=2, code=WORK, **env):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "truth")
        self.t = Target(code % rounds if "%d" in code else code, GPUSIM_TRUTH=self.path, **env)
        self.t.expect("up")
        self.r = Recorder(self.t.pid, mode=mode)

    def run(self):
        self.r.wait_on()
        self.t.say("go")
        self.t.expect("done")
        self.r.stop()
        self.truth = read_truth(self.path)
        self.events = self.r.events()
        return self

    def of(self, kind):
        return [e for e in self.events if e.kind == kind]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.r.__exit__()
        self.t.__exit__()
        self.dir.cleanup()


def work_only(truth, kind):
    """Without what ran before the recorder came."""
    begin = [c for c in truth["call"] if c[3] == 165][0][5]
    return [x for x in truth[kind] if x[START] > begin]


def compare(s, tolerance_ns=2000, kinds=GPU_KINDS, unsure=False):
    for kind, event in kinds.items():
        want = {x[CORR]: x for x in work_only(s.truth, kind)}
        got = {e.corr: e for e in s.of(event)}
        check(want, "the truth has no " + kind)
        equal(len(got), len(s.of(event)), event + " with a correlation id of their own")
        missing = set(want) - set(got)
        check(not missing, "%d of %d %s are missing" % (len(missing), len(want), event))
        for corr, x in want.items():
            e = got[corr]
            off = max(abs(e.ts - x[START]), abs(e.end - x[END]))
            if not (unsure and e.unsure):
                check(off <= tolerance_ns, "%s is off by %d ns" % (event, off))
            check(e.end >= e.ts, event + " ends before it starts")
            equal((e.stream, e.device), (x[STREAM], x[DEV]), "stream and device of " + event)
            if kind == "memcpy":
                equal((e.bytes, e.dir, e.src), (x[BYTES], x[DIR], x[MEM]), "a copy")
