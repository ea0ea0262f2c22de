#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A recording and a profiler's trace of one run, on one clock: a process that writes its own Kineto trace
sleeps before each launch, and the gaps between its kernels have to be charged to that."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from dlbpf import DLBPF, PYTHON, Tests, check, need  # noqa: E402

LOOP = """
import json, os, sys, threading, time
base = time.time_ns() // 10**15 * 10**15
events = []

def now():
    return time.time_ns() - base

def add(cat, name, pid, tid, start, end, **args):
    events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start / 1000,
                   "dur": (end - start) / 1000, "args": args})

for i in range(1, 21):
    time.sleep(0.05)
    start = now()
    end = now()
    add("cuda_runtime", "cudaLaunchKernel", os.getpid(), threading.get_native_id(), start, end, correlation=i)
    add("kernel", "k", 0, 7, end, end + 10_000_000, device=0, stream=7, correlation=i)
    time.sleep(0.01)
json.dump({"baseTimeNanoseconds": base, "traceEvents": events}, open(sys.argv[1], "w"))
"""


def planted_sleep(folder):
    need(os.geteuid() == 0, "needs root")
    loop, gpu, run, out = (os.path.join(folder, n) for n in ("loop.py", "gpu.json", "run.dlbpf", "why.json"))
    with open(loop, "w") as f:
        f.write(LOOP)
    p = subprocess.run([DLBPF, "record", "-o", run, "--", PYTHON, loop, gpu], capture_output=True, text=True, timeout=120)
    check(p.returncode == 0, p.stderr)
    p = subprocess.run([DLBPF, "report", "--json", "--gpu-trace", gpu, run], capture_output=True, text=True, timeout=60)
    check(p.returncode == 0, p.stderr)
    r = json.loads(p.stdout)
    dev = r["devices"][0]
    ns = {c["cause"]: c["ns"] for c in dev["causes"]}
    check(dev["kernels"] == 20, f"{dev['kernels']} kernels")
    check(sum(ns.values()) == dev["idle_ns"], "causes do not add up")
    check(r["verdict"]["cause"] == "sleep", r["verdict"])
    # 19 sleeps of at least 50 ms lie in gaps, of which 10 ms at most each pass while a kernel runs
    check(ns["sleep"] > 19 * 40_000_000, f"{ns}")
    p = subprocess.run([DLBPF, "annotate", gpu, run, "-o", out], capture_output=True, text=True, timeout=60)
    check(p.returncode == 0, p.stderr)
    with open(out) as f:
        gaps = [e for e in json.load(f)["traceEvents"] if e.get("cat") == "dlbpf" and e["tid"] == 1]
    check(len(gaps) == dev["gaps"] and sum(e["name"] == "sleep" for e in gaps) > 15, f"{len(gaps)} gaps")


def main():
    t = Tests("gpu trace ")
    with tempfile.TemporaryDirectory(prefix="dlbpf-gputrace-") as folder:
        t.run("planted sleep", planted_sleep, folder)
    t.exit()


if __name__ == "__main__":
    main()
