# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""For tests that record real programs and judge the report: running dlbpf, reading its JSON, and
the lines that tests/run counts."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
DLBPF = os.environ.get("DLBPF", os.path.join(BUILD, "dlbpf"))
PYTHON = os.environ.get("DLBPF_PYTHON", "/usr/bin/python3")
SCRATCH = tempfile.gettempdir()
TRAIN = os.path.join(ROOT, "tests", "workloads", "train.py")


class Skip(Exception):
    """A test that cannot run here; the text says why."""


class Tests:
    """Runs functions as tests, one line each: a test fails by an exception."""

    def __init__(self, prefix=""):
        self.prefix, self.failed = prefix, 0

    def run(self, name, fn, *args):
        name = self.prefix + name
        try:
            fn(*args)
            print(f"ok {name}", flush=True)
        except Skip as e:
            print(f"skip {name}: {e}", flush=True)
        except AssertionError as e:
            self.failed += 1
            print(f"FAIL {name}: {e}", flush=True)
        except Exception as e:  # a broken test is a failed one
            self.failed += 1
            traceback.print_exc()
            print(f"FAIL {name}: {type(e).__name__}: {e}", flush=True)

    def exit(self):
        sys.exit(1 if self.failed else 0)


def need(condition, why):
    if not condition:
        raise Skip(why)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(got, want, what):
    check(got == want, f"{what} is {got!r}, not {want!r}")


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"no {what} within {seconds} s")
        time.sleep(0.02)


class Recording:
    """A finished `dlbpf record`."""

    def __init__(self, trace, rc, stdout, stderr):
        self.trace, self.rc, self.stdout, self.stderr = trace, rc, stdout, stderr

    def lines(self):
        """The JSON objects that the recorded program printed."""
        found = []
        for line in self.stdout.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found

    def done(self):
        for value in self.lines():
            if "done" in value:
                return value
        raise AssertionError(f"the training script did not finish: {self.stdout[-400:]} {self.stderr[-800:]}")


class Machine:
    """How much CPU time all of the machine used while a recording ran."""

    last = None  # of the last recording

    def __init__(self):
        self.t0, self.busy0 = time.monotonic(), self.busy()
        self.seconds = self.used = 0

    @staticmethod
    def busy():
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.seconds, self.used = time.monotonic() - self.t0, self.busy() - self.busy0
        Machine.last = self

    def strangers(self, r):
        """The share of the CPUs that went to others than the recorded processes and dlbpf."""
        own = sum(p["cpu_ns"] for p in r["processes"]) / 1e9
        return max(0.0, self.used - own - 0.5) / (self.seconds * os.cpu_count())


def scratch():
    """A temporary folder; always below the same one, whatever TMPDIR a test has set since."""
    return tempfile.TemporaryDirectory(prefix="dlbpf-test-", dir=SCRATCH, ignore_cleanup_errors=True)


def record(command, trace, options=(), env=None, timeout=120, rc=0, **popen):
    """dlbpf record -o TRACE OPTIONS -- COMMAND; fails on another exit code than rc (None: any)."""
    machine = Machine()
    p = subprocess.run([DLBPF, "record", "-o", trace, *options, "--", *command], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                       timeout=timeout, env=env, **popen)
    machine.stop()
    if rc is not None:
        check(p.returncode == rc, f"dlbpf record ended with {p.returncode}, not {rc}: "
              f"{p.stderr.strip()[-600:]} {p.stdout.strip()[-300:]}")
    return Recording(trace, p.returncode, p.stdout, p.stderr)


def record_pid(pid, trace, seconds, options=(), timeout=60):
    machine = Machine()
    p = subprocess.run([DLBPF, "record", "-o", trace, "--duration", str(seconds), *options, "-p", str(pid)],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       errors="replace", timeout=timeout)
    machine.stop()
    check(p.returncode == 0, f"dlbpf record -p ended with {p.returncode}: {p.stderr.strip()[-600:]}")
    return Recording(trace, p.returncode, p.stdout, p.stderr)


def report(trace, *options):
    p = subprocess.run([DLBPF, "report", "--json", *options, trace], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60)
    check(p.returncode == 0, f"dlbpf report ended with {p.returncode}: {p.stderr.strip()[-400:]}")
    try:
        r = json.loads(p.stdout)
    except ValueError as e:
        raise AssertionError(f"dlbpf report --json: {e}: {p.stdout[:200]}")
    adds_up(r)
    return r


def report_text(trace):
    p = subprocess.run([DLBPF, "report", trace], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(p.returncode == 0, f"dlbpf report ended with {p.returncode}: {p.stderr.strip()[-400:]}")
    return p.stdout


def postmortem(*arguments):
    """The JSON of dlbpf postmortem; its exit code is left to others."""
    p = subprocess.run([DLBPF, "postmortem", "--json", *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, errors="replace", timeout=120)
    try:
        return json.loads(p.stdout)
    except ValueError:
        raise AssertionError(f"dlbpf postmortem {' '.join(arguments)} ended with {p.returncode}: "
                             f"{p.stderr.strip()[-300:]} {p.stdout[:200]}")


def info(trace):
    p = subprocess.run([DLBPF, "info", "--json", trace], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60)
    check(p.returncode == 0, f"dlbpf info ended with {p.returncode}: {p.stderr.strip()[-400:]}")
    return json.loads(p.stdout)


def dump(trace, kind):
    """The events of a kind, as dictionaries."""
    p = subprocess.run([DLBPF, "dump", "--json", "--kind", kind, trace], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60)
    check(p.returncode == 0, f"dlbpf dump ended with {p.returncode}: {p.stderr.strip()[-400:]}")
    events = [json.loads(line) for line in p.stdout.splitlines() if line.strip()]
    return [{**e["fields"], **e} for e in events]  # the header's members win over equally named fields


def adds_up(r):
    """The promise of every report: causes add up to the nanosecond, and so does a device's time."""
    for d in r["devices"]:
        total = sum(c["ns"] for c in d["causes"])
        check(total == d["idle_ns"], f"device {d['id']}: causes add up to {total}, idle is {d['idle_ns']}")
    waits = r.get("waits")
    if waits:
        total = sum(c["ns"] for c in waits["causes"])
        check(total == waits["total_ns"], f"causes of waits add up to {total}, not {waits['total_ns']}")


def charges(r):
    """The rows of causes: of all devices, or without GPU data of the waits."""
    return [c for part in (r["devices"] if r["devices"] else [r["waits"]]) for c in part["causes"]]


def shares(r, leave_out=()):
    """cause -> share of the idle time or of the waits, of what is left without some causes."""
    ns = {}
    for c in charges(r):
        if c["cause"] not in leave_out:
            ns[c["cause"]] = ns.get(c["cause"], 0) + c["ns"]
    total = sum(ns.values())
    check(total > 0, "nothing was idle or waiting at all")
    return {cause: n / total for cause, n in ns.items()}


def describe(r):
    """The leaders, for a failure's text."""
    top = sorted(shares(r).items(), key=lambda kv: -kv[1])[:5]
    return ", ".join(f"{cause} {share:.1%}" for cause, share in top if share)


def verdict_is(r, cause, at_least=0.0, unexplained=0.03):
    """The planted cause leads. A machine that is busy with other things plants a second one: then,
    and only then, the verdict may be cpu-contention, and the planted cause has to lead the rest."""
    strangers = Machine.last.strangers(r) if Machine.last else 0
    found = shares(r)
    if r["verdict"]["cause"] == "cpu-contention" and cause != "cpu-contention" and strangers > 0.1:
        print(f"  other programs used {strangers:.0%} of the CPUs; judged without contention: {describe(r)}", flush=True)
        found = shares(r, leave_out=["cpu-contention"])
        equal(max(found, key=found.get), cause, f"what leads besides cpu-contention ({describe(r)})")
    else:
        equal(r["verdict"]["cause"], cause, f"the verdict ({describe(r)}; other programs used {strangers:.0%} of the CPUs)")
    check(found.get(cause, 0) >= at_least or strangers > 0.1, f"{cause} has less than {at_least:.0%}: {describe(r)}")
    check(shares(r).get("unexplained", 0) < unexplained, f"unexplained: {describe(r)}")


def ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def stop(p, seconds=10):
    """Ends a process this test started."""
    if p.poll() is None:
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(seconds)
        except subprocess.TimeoutExpired:
            p.kill()
    return p.wait()


def gpu_env():
    """The environment in which CUDA is the simulated one and the collector is loaded."""
    sim = os.path.join(BUILD, "gpusim")
    collector = os.path.join(BUILD, "libdlbpf_cupti.so")
    need(os.path.isdir(sim), f"no simulated GPU in {sim}")
    need(os.path.exists(collector), f"no collector in {collector}")
    path = sim + (":" + os.environ["LD_LIBRARY_PATH"] if os.environ.get("LD_LIBRARY_PATH") else "")
    return dict(os.environ, LD_LIBRARY_PATH=path, CUDA_INJECTION64_PATH=collector)
