# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What each BPF program costs, by the kernel's own statistics, beside a program that does nothing on
the same tracepoint, in turns on the same load."""

import ctypes
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections import namedtuple

import dlbpf
import figures
import procs
import tools

_NR_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_ENABLE_STATS = 32

# The events that programs at these tracepoints write.
EVENTS = {"sched_switch": "switch", "sched_waking": "wake"}

LEAST_EVENTS = 0.4  # a run: with fewer a program is busy with strangers

# Of a segment and a program: nanoseconds a run, runs a second, nanoseconds a second; events that it wrote a second.
Cost = namedtuple("Cost", "ns rate ns_s events", defaults=(0.0,))
# Of a program or of all at one tracepoint (program None): figures. above: nanoseconds a run above an empty program;
# event: the same for each event written, with what runs that wrote none took.
Row = namedtuple("Row", "program point rate own empty above event core")


def bpftool():
    for path in ["/usr/sbin/bpftool", *sorted(glob.glob("/usr/lib/linux-tools*/**/bpftool", recursive=True))]:
        if os.access(path, os.X_OK):
            return path
    return shutil.which("bpftool")


def tracepoints():
    """program name -> tracepoint, or perf_event, from the sources."""
    found = {}
    for path in glob.glob(os.path.join(dlbpf.ROOT, "bpf", "*.bpf.c")):
        with open(path) as f:
            text = f.read()
        for section, name in re.findall(r'SEC\("\??([\w/]+)"\)\s*int\s+(?:BPF_PROG\()?(\w+)', text):
            found[name] = section.split("/")[-1]
    return found


class Stats:
    """with Stats(): the kernel measures BPF programs. It ends with a descriptor, so also when the
    benchmark is killed; the sysctl is not touched."""

    def __enter__(self):
        if not bpftool():
            raise RuntimeError("no bpftool here")
        nr = _NR_BPF.get(platform.machine())
        if not nr:
            raise RuntimeError(f"the number of bpf(2) on {platform.machine()} is not known here")
        attr = (ctypes.c_uint32 * 32)()  # type 0: BPF_STATS_RUN_TIME
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.syscall(nr, _BPF_ENABLE_STATS, ctypes.byref(attr), ctypes.sizeof(attr))
        if self.fd < 0:
            raise RuntimeError(f"BPF statistics: {os.strerror(ctypes.get_errno())}")
        os.set_inheritable(self.fd, False)
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    @staticmethod
    def snapshot():
        """id -> (name, run time in ns, runs)"""
        p = subprocess.run([bpftool(), "--json", "prog", "show"], capture_output=True, text=True, check=True)
        return {q["id"]: (q.get("name", "?"), q.get("run_time_ns", 0), q.get("run_cnt", 0))
                for q in json.loads(p.stdout)}


def segment(workload, seconds, others):
    """name -> Cost over the next seconds, of the programs that are not among the others."""
    a, t0 = Stats.snapshot(), time.monotonic()
    workload.rest(seconds)
    b, wall = Stats.snapshot(), time.monotonic() - t0
    found = {}
    for i, (name, ns, runs) in b.items():
        if i in a and i not in others and runs > a[i][2]:
            ns, runs = ns - a[i][1], runs - a[i][2]
            found[name] = Cost(ns / runs, runs / wall, ns / wall)
    return found


def own_segment(workload, seconds, folder, points):
    others = set(Stats.snapshot())
    with tools.Running(tools.TOOLS["dlbpf"], workload, folder) as running:
        found = segment(workload, seconds, others)
    info = dlbpf.info(running.out)
    tools.clear(folder)
    lasted = info["trace"]["duration_ns"] / 1e9
    return {name: cost._replace(events=info["kinds"].get(EVENTS.get(points.get(name)), 0) / lasted)
            for name, cost in found.items()}


def empty_segment(workload, seconds, points):
    """tracepoint -> Cost of an empty program there."""
    tool = os.path.join(dlbpf.BUILD, "tests", "bench", "empty")
    others = set(Stats.snapshot())
    p = procs.start([tool, tool + ".bpf.o", *points], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with procs.until_end(p):
        if not p.stdout.readline().startswith("ready"):
            return {}
        workload.rest(0.3)
        found = segment(workload, seconds, others)
        p.stdin.close()
        p.wait(20)
        p.stdout.close()
    return found


def at_point(costs, points, point):
    """All programs at a tracepoint together, for each time that it was met; None without one."""
    here = [c for name, c in costs.items() if points.get(name) == point]
    met = max((c.rate for c in here), default=0)
    ns_s = sum(c.ns_s for c in here)
    return Cost(ns_s / met, met, ns_s, max(c.events for c in here)) if met else None


def differences(own, empty):
    """Of rounds that took turns (empty, own, empty ...): [(nanoseconds a run above an empty program, the own
    cost)]. Rounds in which one of them did not run are left out, with what they would have been set against."""
    return [(o.ns - (a.ns + b.ns) / 2, o) for o, a, b in zip(own, empty, empty[1:]) if o and a and b]


def row(program, point, own, empty):
    have, above = [c for c in own if c], differences(own, empty)
    return Row(program, point, figures.figure(c.rate for c in have), figures.figure(c.ns for c in have),
               figures.figure(c.ns for c in empty if c), figures.figure(ns for ns, _ in above),
               figures.figure(ns * c.rate / c.events for ns, c in above if c.events > c.rate * LEAST_EVENTS),
               figures.figure(c.ns_s / 1e9 for c in have))


def measure(workload, rounds, seconds, folder, say):
    """(rows by program, rows by tracepoint), the dearest first."""
    points, own, empty = tracepoints(), [], []
    with Stats():
        # The first one only says which tracepoints are met under this load.
        met = own_segment(workload, min(1.0, seconds), folder, points)
        wanted = sorted({points[name] for name in met if name in points})
        empty.append(empty_segment(workload, seconds, wanted))
        for n in range(rounds):
            own.append(own_segment(workload, seconds, folder, points))
            empty.append(empty_segment(workload, seconds, wanted))
        say(f"{workload.load.name}: BPF statistics, {rounds} rounds")
    names = sorted({name for costs in own for name in costs})
    programs = [row(name, points.get(name, "?"), [costs.get(name) for costs in own],
                    [costs.get(points.get(name)) for costs in empty]) for name in names]
    met = sorted({points[name] for name in names if name in points})
    together = [row(None, point, [at_point(costs, points, point) for costs in own],
                    [costs.get(point) for costs in empty]) for point in met]
    return (sorted(programs, key=lambda r: -r.core.median), sorted(together, key=lambda r: -r.core.median))
