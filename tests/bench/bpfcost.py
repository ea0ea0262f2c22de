# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What each BPF program costs, by the kernel's own statistics (kernel.bpf_stats_enabled), beside a
program that does nothing on the same tracepoint, in turns on the same load."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

import dlbpf
from workload import spread

STATS = "/proc/sys/kernel/bpf_stats_enabled"


def bpftool():
    for path in ["/usr/sbin/bpftool", *sorted(glob.glob("/usr/lib/linux-tools*/**/bpftool", recursive=True))]:
        if os.access(path, os.X_OK):
            return path
    return shutil.which("bpftool")


def tracepoints():
    """program name -> tracepoint, from the sources."""
    found = {}
    for path in glob.glob(os.path.join(dlbpf.ROOT, "bpf", "*.bpf.c")):
        with open(path) as f:
            text = f.read()
        for section, name in re.findall(r'SEC\("\??(?:tp_btf|raw_tp|tp|perf_event)?/?([\w/]*)"\)\s*int\s+(?:BPF_PROG\()?(\w+)',
                                        text):
            found[name] = section.split("/")[-1]
    return found


class Stats:
    """Statistics on while it lives; snapshots of all programs."""

    def __enter__(self):
        with open(STATS) as f:
            self.before = f.read().strip()
        self.set("1")
        return self

    def set(self, value):
        with open(STATS, "w") as f:
            f.write(value)

    def __exit__(self, *_):
        self.set(self.before)

    def snapshot(self):
        """id -> (name, run time in ns, runs)"""
        p = subprocess.run([bpftool(), "--json", "prog", "show"], capture_output=True, text=True, check=True)
        return {q["id"]: (q.get("name", "?"), q.get("run_time_ns", 0), q.get("run_cnt", 0))
                for q in json.loads(p.stdout)}


def segment(stats, workload, seconds, ours):
    """name -> (ns a run, runs, ns) over the next seconds, of the programs that ours() accepts."""
    a, t0 = stats.snapshot(), time.monotonic()
    workload.rest(seconds)
    b, wall = stats.snapshot(), time.monotonic() - t0
    found = {}
    for i, (name, ns, runs) in b.items():
        if i in a and ours(i):
            d_ns, d_runs = ns - a[i][1], runs - a[i][2]
            if d_runs:
                found[name] = (d_ns / d_runs, d_runs / wall, d_ns / wall)
    return found


def empty_segment(stats, workload, seconds, points):
    before = set(stats.snapshot())
    tool = os.path.join(dlbpf.BUILD, "tests", "bench", "empty")
    p = subprocess.Popen([tool, tool + ".bpf.o", *points], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        ready = p.stdout.readline()
        if not ready.startswith("ready"):
            return {}
        return segment(stats, workload, seconds, lambda i: i not in before)
    finally:
        p.stdin.close()
        p.wait()
        p.stdout.close()


def own_segment(stats, workload, seconds, folder):
    before = set(stats.snapshot())
    trace = os.path.join(folder, "bpf.dlbpf")
    p = subprocess.Popen([dlbpf.DLBPF, "record", "-o", trace, "-p", str(workload.p.pid)], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        workload.rest(2.0)
        return segment(stats, workload, seconds, lambda i: i not in before)
    finally:
        p.send_signal(signal.SIGINT)
        p.wait(30)


def measure(workload, rounds, seconds, folder, say):
    """Rows (program, tracepoint, runs a second, own (median, q1, q3), empty (..), share of a core)."""
    points = tracepoints()
    own, empty = {}, {}
    with Stats() as stats:
        for n in range(rounds):
            found = own_segment(stats, workload, seconds, folder)
            for name, row in found.items():
                own.setdefault(name, []).append(row)
            wanted = sorted({points[name] for name in found if name in points})
            for name, row in empty_segment(stats, workload, seconds, wanted).items():
                empty.setdefault(name, []).append(row)
            say(f"BPF statistics, round {n + 1} of {rounds}")
    rows = []
    for name, values in sorted(own.items()):
        point = points.get(name, "?")
        rows.append({
            "program": name,
            "point": point,
            "rate": spread([v[1] for v in values])[0],
            "own": spread([v[0] for v in values]),
            "empty": spread([v[0] for v in empty[point]]) if point in empty else None,
            "core": spread([v[2] / 1e9 for v in values])[0],
        })
    return sorted(rows, key=lambda r: -r["core"])
