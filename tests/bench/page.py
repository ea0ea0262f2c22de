# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The page: targets, one table of all loads and recorders, BPF programs, reading. Only text is made
here, nothing is judged but whether a difference shows."""

import math

import figures
import targets
from tools import TOOLS

LEAST_CORE = 0.0001  # of a BPF program that has a row

# What stands below this line is written by hand; a new page keeps it.
NOTES = "<!-- Below this line: notes, kept by `make bench`. -->"


def fmt(fig, digits=2, scale=1.0):
    """Median (quartiles)."""
    if not fig.count or math.isnan(fig.median):
        return "-"
    if fig.count == 1:
        return f"{fig.median * scale:,.{digits}f}"
    return f"{fig.median * scale:,.{digits}f} ({fig.q1 * scale:,.{digits}f} .. {fig.q3 * scale:,.{digits}f})"


def per_unit(ms):
    """A time of a unit of work with a unit that suits it."""
    for limit, scale, name, digits in ((1.0, 1, "ms", 2), (1e-3, 1e3, "us", 2), (0, 1e6, "ns", 0)):
        if ms.median >= limit:
            return f"{fmt(ms, digits, scale)} {name}"
    return "-"


def mark(fig, nothing, many=6):
    """~ behind a figure that the rounds cannot tell from that of no recorder."""
    return " ~" if fig.count >= many and figures.same(fig, nothing) else ""


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def seen(compared):
    """What the rounds with dlbpf can show, by the noise of those without a recorder."""
    noise = compared.rows.get("none", [])
    count = len(compared.rows.get("dlbpf") or noise)
    can = {name: figures.visible([getattr(r, name) for r in noise], count) if noise else figures.INF
           for name in ("speed", "cpu", "caused")}
    if math.isinf(max(can.values())):
        return f"Too few rounds ({count}) to show any difference."
    return (f"{count} rounds show a difference of {can['speed']:.1%} in speed, {can['cpu']:.1%} in CPU and "
            f"{can['caused'] * 100:.1f} % of a core in all CPU caused.")


def load_text(load, found):
    """What the load is, how it runs without a recorder, and what its rounds can show."""
    compared = found["compared"]
    rate = figures.figure(s.rate for s in compared.off)
    lines = [f"* **{load.name}**: {load.what}. Without a recorder {fmt(rate, 0 if rate.median > 1000 else 1)} "
             f"{load.unit} a second, {per_unit(figures.figure(s.cpu_ms_unit for s in compared.off))} of CPU each."]
    lines.append("  " + seen(compared))
    kept = found.get("kept", {}).get("dlbpf")
    if kept:
        lines.append(f"  To begin, dlbpf took {kept.start_ms:.0f} ms of CPU.")
    if kept and kept.kernels:
        lines.append(f"  It saw {kept.kernels:,.0f} GPU kernels a second.")
    faults = figures.figure(s.faults_s for s in compared.off).median
    if faults > 10000:
        lines.append(f"  {faults:,.0f} page faults a second.")
    own = compared.rows.get("dlbpf")
    if load.neighbour and own:
        more = figures.figure(r.unit_ns for r in own)
        lines.append(f"  With dlbpf each of them takes {fmt(more, 0)} ns of CPU more{mark(more, 0)}.")
    lines += [f"  {TOOLS[name].what}: not measured, it {why}." for name, why in compared.failed.items()]
    return lines


def tool_row(load, tool, found):
    rounds = found["compared"].rows.get(tool.name, [])
    if not rounds:
        return None
    column = {name: figures.figure(getattr(r, name) for r in rounds) for name in rounds[0]._fields}
    kept = found.get("kept", {}).get(tool.name)
    cells = [load.name, tool.what]
    cells.append(fmt(column["speed"], 3) + mark(column["speed"], 1))
    cells.append(fmt(column["cpu"], 3) + mark(column["cpu"], 1))
    cells.append(fmt(column["caused"], 1, 100) + mark(column["caused"], 0))
    cells.append(fmt(column["recorder"], 1, 100) if tool.command else "-")
    cells.append(f"{figures.figure(kept.cores).median / kept.rate * 1e9:,.0f}" if kept and kept.rate else "-")
    peak = max([column["peak_mib"].median] + ([kept.peak_mib] if kept else []))
    cells.append(f"{peak:.0f}" if tool.command else "-")
    cells.append(f"{kept.rate:,.0f}" if kept else "-")
    cells.append(f"{kept.bytes / kept.events:.1f}" if kept and kept.events else "-")
    file_s = kept.bytes * kept.rate / kept.events if kept and kept.events else column["file_s"].median
    cells.append(f"{file_s / 1e3:,.0f}" if file_s else "-")
    cells.append(f"{kept.losses:,}{' times' if tool.perf_file and kept.losses else ''}" if kept else "-")
    return cells + [str(len(rounds))]


def recorders(results, loads):
    head = ["load", "recorder", "speed, x", "its CPU, x", "all CPU caused, % of a core", "recorder, % of a core",
            "ns an event", "MiB", "events a second", "bytes an event", "KB a second", "lost", "rounds"]
    rows, texts = [], []
    for name, found in results.loads.items():
        if "compared" not in found:
            continue
        texts += load_text(loads[name], found)
        rows += filter(None, (tool_row(loads[name], tool, found) for tool in TOOLS.values()))
    return texts + [""] + table(head, rows) if rows else []


def programs(results):
    head = ["load", "BPF program", "runs a second", "ns a run", "of an empty program", "above it", "an event", "% of a core"]
    rows = []
    for name, found in results.loads.items():
        for r in found.get("programs", []):
            if r.core.median >= LEAST_CORE:
                rows.append([name, f"`{r.program}` ({r.point})", f"{r.rate.median:,.0f}", fmt(r.own, 0), fmt(r.empty, 0),
                             fmt(r.above, 0), fmt(r.event, 0), f"{r.core.median:.2%}"[:-1]])
        if found.get("points"):
            total = sum(r.core.median for r in found["programs"])
            rows.append([name, "all together", "", "", "", "", "", f"{total:.2%}"[:-1]])
    return table(head, rows) if rows else []


def reading(results):
    head = ["reader", "events", "events a CPU second", "CPU", "wall-clock", "peak memory", "file"]
    rows = []
    for r in results.analysis:
        rows.append([r.what, f"{r.events:,}", f"{r.events / r.cpu_s.median:,.0f}" if r.share == 1 and r.cpu_s.median else "-",
                     fmt(r.cpu_s, 2) + " s", f"{r.seconds:.2f} s", f"{r.peak_mib:.0f} MiB", f"{r.bytes / 1e6:,.1f} MB"])
    return table(head, rows) if rows else []


def wanted(results):
    return table(["target", "wanted", "measured", ""],
                 [[t.what, t.wanted, text, verdict] for t, text, verdict in targets.judge_all(results)])


def page(results, loads, machine, versions, absent, failed, quick):
    lengths = "0.5" if quick else " or ".join(f"{s:g}" for s in sorted({load.seconds for load in loads.values()}))
    lines = ["# What recording and reporting cost", "", "Written by `make bench`; run it on your own machine.", "",
             f"Machine: {machine}. {'; '.join(versions)}.", ""]
    if quick:
        lines += ["**A quick run: too short to mean anything.**", ""]
    lines += ["## Targets", "",
              "Behind a median stands the interval that holds the true one with 95 %. *Cannot be seen*: the limit lies in "
              "that interval, or a loss of 1 % would not show.", "", *wanted(results)]
    lines += ["## Recorders", "",
              "One load runs all the time and recorders come and go; each segment of 1.5 or 3 s with a recorder is set "
              "against the two without one beside it. Medians with quartiles. The rows without a recorder are the noise of "
              "the method; ~ marks what the rounds cannot tell from it.", "",
              "*All CPU caused* is what the whole machine used more than without, for as much work as it did without in a "
              "second: programs in the kernel, the recorder, its interrupts, its kernel threads. *MiB* is the recorder's "
              "peak. Events, its CPU time for one, bytes and losses are of one longer recording; perf tells how often it "
              "lost some, not how many.",
              "", *recorders(results, loads)]
    lines += ["## BPF programs", "",
              "Nanoseconds a run are the kernel's own statistics, which add their cost to both columns. An empty program "
              "on the same tracepoint takes its turn between dlbpf's; *above it* is the median difference of neighbouring "
              "rounds, *an event* the same for each event that was written: runs for strangers write none. "
              f"Programs that took less than {LEAST_CORE * 100:g} % of a core are left out.", "", *programs(results)]
    lines += ["## Reading", "",
              "perf's file is of the same seconds of the same run as the first trace. Longer traces are made of that one by "
              "repeating a stretch of it (tests/bench/repeat.c).", "", *reading(results)]
    if absent:
        lines += ["Not compared here: " + "; ".join(absent) + ".", ""]
    if failed:
        lines += ["Not measured: " + "; ".join(failed) + ".", ""]
    return "\n".join(lines)


def with_notes(text, old):
    """The new page with the notes of the old one."""
    notes = old[old.index(NOTES):] if NOTES in old else NOTES + "\n"
    return text.rstrip("\n") + "\n\n" + notes
