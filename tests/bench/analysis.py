# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What reading a recording costs: dlbpf report on traces of many sizes, made from a recorded one, and
perf's readers on perf's own recording of the same seconds of the same run."""

import json
import os
import shutil
from collections import namedtuple

import dlbpf
import figures
import kept
import procs
import tools
from workload import Workload

# events: in the file; cpu_s: figure of CPU seconds; seconds, peak_mib: medians; share: of the events that are asked for
Row = namedtuple("Row", "what events cpu_s seconds peak_mib share bytes")
LIMIT_S, LONG_S = 1800, 1.0


def timed(what, command, events, path, share=1.0):
    """Three times, unless it takes long."""
    got = []
    while len(got) < 3 and sum(g.cpu_s for g in got) < LONG_S:
        got.append(procs.measure(command, LIMIT_S))
    return Row(what, events, figures.figure(g.cpu_s for g in got), figures.figure(g.seconds for g in got).median,
               max(g.peak_mib for g in got), share, os.path.getsize(path))


def repeat(trace, out, events):
    """A trace of about so many events; what repeat (repeat.c) says of it."""
    tool = os.path.join(dlbpf.BUILD, "tests", "bench", "repeat")
    return json.loads(procs.measure([tool, trace, out, str(events)], LIMIT_S, keep_output=True).output)


def record_both(load, rival, seconds, folder):
    """The same seconds of one run: dlbpf's trace, and the rival's file or None."""
    with Workload(load) as workload, tools.Running(tools.TOOLS["dlbpf"], workload, folder) as own:
        if not rival:
            workload.rest(seconds)
            return own.out, None
        with tools.Running(rival, workload, folder) as other:
            workload.rest(seconds)
    return own.out, other.out


def middle(trace, seconds):
    """Options for so many seconds in the middle of a trace."""
    lasts = dlbpf.info(trace)["trace"]["duration_ns"] / 1e9
    return ["--from", f"{lasts / 2:.3f}s", "--to", f"{min(lasts, lasts / 2 + seconds):.3f}s"], min(1.0, seconds / lasts)


def report_rows(trace, sizes, folder, say):
    rows = []
    for size in sizes:
        path = os.path.join(folder, "long.dlbpf")
        made = repeat(trace, path, size)
        say(f"report on {made['events']:,} events")
        # --json leaves nothing out; the text is made from the same figures.
        command = [dlbpf.DLBPF, "report", "--json"]
        rows.append(timed("dlbpf report", [*command, path], made["events"], path))
        if size == sizes[-1]:
            options, share = middle(path, 1.0)
            rows.append(timed("dlbpf report --from --to, one second of it", [*command, *options, path], made["events"],
                              path, share))
        os.unlink(path)
    return rows


def measure(load, rival, seconds, sizes, folder, say):
    """The rows of the table; rival is a recorder that writes perf's file, or None. The folder needs room for
    the largest trace."""
    say(f"reading: recording {load.name}{' with two recorders at once' if rival else ''}")
    trace, perf_file = record_both(load, rival, seconds, folder)
    events = dlbpf.info(trace)["trace"]["events"]
    rows = [timed("dlbpf report, as recorded", [dlbpf.DLBPF, "report", "--json", trace], events, trace)]
    if perf_file:
        count, _ = kept.perf_events(perf_file)
        say(f"perf script and perf sched timehist on {count:,} events")
        rows.append(timed("perf script", ["perf", "script", "-i", perf_file], count, perf_file))
        rows.append(timed("perf sched timehist", ["perf", "sched", "timehist", "-i", perf_file], count, perf_file))
        os.unlink(perf_file)
    free = shutil.disk_usage(folder).free
    fit = [size for size in sizes if size * 12 < free]
    if len(fit) < len(sizes):
        say(f"no room for traces of more than {free / 12:,.0f} events in {folder}")
    return rows + report_rows(trace, fit, folder, say)
