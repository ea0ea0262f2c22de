# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One longer recording of a load: what the recorder used, and what came out of it."""

import os
import re
from collections import namedtuple

import dlbpf
import procs
import tools

# rate: events a second; cores: CPU seconds of the recorder in each second; start_ms: its CPU until then; losses:
# how often events were lost (perf) or how many (dlbpf); kernels: GPU kernels a second.
Kept = namedtuple("Kept", "events rate cores start_ms peak_mib bytes losses kernels")


def perf_stats(text):
    """(samples, records that say that some were lost) of perf report --stats; the totals come first."""
    found = {}
    for name, count in re.findall(r"^ *(\w+) events: +(\d+)", text, re.M):
        found.setdefault(name, int(count))
    return found.get("SAMPLE", 0), found.get("LOST", 0) + found.get("LOST_SAMPLES", 0)


def perf_events(path):
    return perf_stats(procs.measure(["perf", "report", "--stats", "-i", path], keep_output=True).output)


def keep(workload, tool, seconds, folder):
    """Records for so long; the file stays in the folder."""
    with tools.Running(tool, workload, folder) as running:
        workload.rest(1.0)
        used = [running.usage()]
        for _ in range(seconds):
            workload.rest(1.0)
            used.append(running.usage())
        peak = procs.peak_mib(running.pids())
        running.check_alive()
    kernels, size = 0.0, os.path.getsize(running.out)
    if tool.perf_file:
        events, losses = perf_events(running.out)
        rate = events / (used[-1].time - used[0].time + 1.0 + tool.settle)  # perf began a little before
    else:
        info = dlbpf.info(running.out)
        trace, lasted = info["trace"], info["trace"]["duration_ns"] / 1e9
        events, losses, rate = trace["events"], trace["lost"], trace["events"] / lasted
        kernels = info["kinds"].get("gpu_kernel", 0) / lasted
    cores = [(b.cpu_ns - a.cpu_ns) / 1e9 / (b.time - a.time) for a, b in zip(used, used[1:])]
    return Kept(events, rate, cores, used[0].cpu_ns / 1e6, peak, size, losses, kernels)
