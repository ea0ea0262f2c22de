#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 200
"""The benchmark runs, fills its tables and leaves nothing behind; its tools do what they say. It
measures nothing here: no number is judged but by what it must be on any machine."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

STATS = "/proc/sys/kernel/bpf_stats_enabled"
TOOLS = os.path.join(dlbpf.BUILD, "tests", "bench")
CHAINS = os.path.join(dlbpf.ROOT, "tests", "lab", "chains")


def stats_setting():
    with open(STATS) as f:
        return f.read().strip()


def command(*options):
    return [sys.executable, "-B", os.path.join(HERE, "run"), "--quick", "--load", "small", "--tool", "dlbpf", "--build",
            os.path.relpath(dlbpf.BUILD, dlbpf.ROOT), *options]


def left_over(folder):
    """Processes that were started in the folder or with a file of it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in line:
            found.append(f"{pid}: {line[:80]}")
    return found


def quick(folder):
    before = stats_setting()
    p = subprocess.run(command(), capture_output=True, text=True, env={**os.environ, "TMPDIR": folder})
    check(p.returncode == 0, f"exit code {p.returncode}: {p.stderr[-600:]}")
    for text in ("| small | no recorder", "| small | dlbpf record -p PID", "| dlbpf report |", "second of it"):
        check(text in p.stdout, f"no row {text!r}")
    m = re.search(r"\| small \| dlbpf record.*\| ([\d,]+) \| ([\d.]+) \| [\d,]+ \| \d+ \| 1 \|$", p.stdout, re.M)
    check(m and int(m.group(1).replace(",", "")) > 0 and float(m.group(2)) > 0, "no events, or no bytes")
    m = re.search(r"\| `(dl_\w+)` \(sched_switch\) \| [\d,]+ \| (\d+) ", p.stdout)
    check(m and int(m.group(2)) > 0, "no cost of the switch program")
    equal(stats_setting(), before, f"{STATS} afterwards")
    equal(left_over(folder), [], "what still runs")
    equal(os.listdir(folder), [], "files left in the temporary folder")


def interrupted(folder):
    """Ended in the middle, it ends all that it started."""
    p = subprocess.Popen(command("--rounds", "50"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "TMPDIR": folder})
    try:
        dlbpf.wait_until(lambda: any("record" in line for line in left_over(folder)), 40, "recorder")
    finally:
        p.send_signal(signal.SIGTERM)
        _, errors = p.communicate(timeout=60)
    equal(p.returncode, 143, f"the exit code ({errors[-300:]})")
    equal(left_over(folder), [], "what still runs")
    equal(os.listdir(folder), [], "files left in the temporary folder")


def neighbours(folder):
    """It counts, on the CPU that it was given, and leaves no second process behind."""
    cpu = max(os.sched_getaffinity(0))
    for kind in ("switches", "calls"):
        path = os.path.join(folder, kind)
        p = subprocess.Popen([os.path.join(TOOLS, "neighbour"), kind, path, str(cpu)])
        try:
            dlbpf.wait_until(lambda path=path: os.path.exists(path) and os.path.getsize(path) == 8, 10, "counter")
            counts = []
            for _ in range(2):
                time.sleep(0.1)
                with open(path, "rb") as f:
                    counts.append(int.from_bytes(f.read(), "little"))
            check(0 < counts[0] < counts[1], f"{kind}: {counts}")
            equal(os.sched_getaffinity(p.pid), {cpu}, "its CPU")
        finally:
            p.kill()
            p.wait()
        dlbpf.wait_until(lambda path=path: not left_over(path), 5, "end of the second process")
        os.unlink(path)


def repeated(folder, name, times=20):
    """A stretch of a recorded run again and again: the report finds nothing missing, and the same."""
    trace, out = os.path.join(CHAINS, name + ".dlbpf"), os.path.join(folder, "long.dlbpf")
    need(os.path.exists(trace), f"no {name}.dlbpf")
    one = dlbpf.report(trace)
    want = one["trace"]["events"] * times
    p = subprocess.run([os.path.join(TOOLS, "repeat"), trace, out, str(want)], capture_output=True, text=True)
    check(p.returncode == 0, f"repeat ended with {p.returncode}: {p.stderr}")
    made, many = json.loads(p.stdout), dlbpf.report(out)
    os.unlink(out)
    equal(many["trace"]["events"], made["events"], "events")
    check(want <= made["events"] < want + made["stretch_events"], f"{made['events']} events, {want} were wanted")
    grown = many["trace"]["duration_ns"] - one["trace"]["duration_ns"]
    equal(grown, (made["repetitions"] - 1) * made["stretch_ns"], "how much longer it lasts")
    equal(many["trace"]["lost"], one["trace"]["lost"], "lost events")
    equal(many["losses"], one["losses"], "losses")
    equal(many["verdict"]["cause"], one["verdict"]["cause"], "the verdict")
    check(dlbpf.shares(many).get("unexplained", 0) <= dlbpf.shares(one).get("unexplained", 0) + 0.001,
          f"what is unexplained: {dlbpf.describe(many)}")
    # CPU time grows as time does: the totals go on.
    for a, b in zip(one["processes"], many["processes"]):
        equal(b["pid"], a["pid"], "the order of the processes")
        check(b["cpu_ns"] >= a["cpu_ns"], f"process {a['pid']} has {b['cpu_ns']} ns, {a['cpu_ns']} in one")


def not_repeatable(folder):
    """Refused with a reason: a trace in which nothing happens."""
    trace = os.path.join(folder, "none.dlbpf")
    with open(trace, "wb") as f:
        f.write(b"DLBPF")
    p = subprocess.run([os.path.join(TOOLS, "repeat"), trace, trace + ".out", "1000"], capture_output=True, text=True)
    check(p.returncode == 1 and trace in p.stderr, f"{p.returncode}: {p.stderr}")
    os.unlink(trace)


if __name__ == "__main__":
    tests = dlbpf.Tests("bench: ")
    with tempfile.TemporaryDirectory(prefix="dlbpf-test-") as scratch:
        for chain in ("memory", "ipc", "shm"):
            tests.run(f"repeated: {chain}", repeated, scratch, chain)
        tests.run("not repeatable", not_repeatable, scratch)
        tests.run("neighbours", neighbours, scratch)
        tests.run("quick run", quick, scratch)
        tests.run("interrupted", interrupted, scratch)
    tests.exit()
