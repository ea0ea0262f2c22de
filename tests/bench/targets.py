# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What was wanted, beside what was measured. A target is a row; its function takes the results and
returns (measured as text, met / not met / cannot be seen), or None where nothing was measured."""

import math
from collections import namedtuple
from dataclasses import dataclass, field

import figures
from figures import MET, NOT_MET

Target = namedtuple("Target", "what wanted judge")

STRANGER_NS, WAKE_NS, SWITCH_NS = 50, 300, 500
RECORDER_CORE, RECORDER_RATE, RECORDER_MIB = 0.01, 50_000, 64
EVENT_BYTES, REPORT_RATE, CAUSED_RATIO, LOSS = 6, 5e6, 0.5, 0.01
SAME_SIZE = 1.5  # a peak that does not grow with the trace
WINDOW_FIXED = 0.05  # share of the CPU time for what a part needs of the whole: the index, names, symbols


@dataclass
class Results:
    """loads: name -> {"compared": compare.Compared, "programs" and "points": [bpfcost.Row], "kept": tool name ->
    kept.Kept}, each where it was measured; analysis: [analysis.Row]"""

    loads: dict = field(default_factory=dict)
    analysis: list = field(default_factory=list)


def show(fig, digits=0, scale=1.0, unit=""):
    """The median and the interval of the true one."""
    if fig.count == 1 or math.isinf(fig.low) or math.isinf(fig.high):
        return f"{fig.median * scale:,.{digits}f}{unit}"
    return f"{fig.median * scale:,.{digits}f}{unit} ({fig.low * scale:,.{digits}f} .. {fig.high * scale:,.{digits}f})"


def at_point(load, point, which, limit):
    """which: above, of each run, or event, of each event written."""
    def judge(results):
        for row in results.loads.get(load, {}).get("points", []):
            fig = getattr(row, which)
            if row.point == point and fig.count:
                return show(fig, unit=" ns"), figures.below(fig, limit)
        return None
    return judge


def minor_faults(results):
    """Whatever runs as often as there are faults would be at faults; these do so for other reasons."""
    found = results.loads.get("tensor", {})
    if not found.get("programs") or not found.get("compared"):
        return None
    faults = figures.figure(s.faults_s for s in found["compared"].off).median
    others = [r for r in found["programs"] if r.point not in ("sched_switch", "sched_waking", "sys_exit")]
    runs = sum(r.rate.median for r in others)
    return (f"{faults:,.0f} minor faults a second, and all programs but those at switches, wakes and system calls run "
            f"{runs:,.0f} times", MET if runs < faults / 20 else NOT_MET)


def kept_of(results, tool="dlbpf"):
    return [(name, found["kept"][tool]) for name, found in results.loads.items() if tool in found.get("kept", {})]


def recorder_cpu(results):
    kept = results.loads.get("small", {}).get("kept", {}).get("dlbpf")
    if not kept or not kept.rate:
        return None
    fig = figures.figure(core * RECORDER_RATE / kept.rate for core in kept.cores)
    return f"{show(fig, 2, 100, ' %')}, scaled from {kept.rate:,.0f} events a second", figures.below(fig, RECORDER_CORE)


def memory(results):
    peaks = [(k.peak_mib, name) for name, k in kept_of(results)]
    if not peaks:
        return None
    most, name = max(peaks)
    return f"{most:.0f} MiB at most ({name})", MET if most < RECORDER_MIB else NOT_MET


def disk(results):
    sizes = [(k.bytes / k.events, name) for name, k in kept_of(results) if k.events]
    if not sizes:
        return None
    most, name = max(sizes)
    return (", ".join(f"{name} {size:.1f}" for size, name in sizes), MET if most < EVENT_BYTES else NOT_MET)


def lost(results):
    losses = [(k.losses, name) for name, k in kept_of(results)]
    if not losses:
        return None
    some = [f"{name} {count:,}" for count, name in losses if count]
    return (", ".join(some) or f"none ({', '.join(name for _, name in losses)})", NOT_MET if some else MET)


def loss_of(load):
    def judge(results):
        compared = results.loads.get(load, {}).get("compared")
        if not compared or not compared.rows.get("dlbpf") or not compared.rows.get("none"):
            return None
        fig = figures.figure(r.speed for r in compared.rows["dlbpf"])
        can = figures.visible([r.speed for r in compared.rows["none"]], fig.count)
        see = "too few to show any loss" if math.isinf(can) else f"they show a loss of {can:.1%}"
        return f"x {show(fig, 3)} in {fig.count} rounds; {see}", figures.no_loss(fig, can, LOSS)
    return judge


def caused(results):
    compared = results.loads.get("small", {}).get("compared")
    if not compared or not compared.rows.get("dlbpf") or not compared.rows.get("perf-sched"):
        return None
    own, other = compared.rows["dlbpf"], compared.rows["perf-sched"]
    fig = figures.ratio([r.caused for r in own], [r.caused for r in other])
    alone = figures.ratio([r.own for r in own], [r.own for r in other])
    text = (f"x {show(fig, 2)}: {figures.figure(r.caused for r in own).median:.1%} of a core against "
            f"{figures.figure(r.caused for r in other).median:.1%}; by the processes' own clocks, without interrupts, "
            f"x {show(alone, 2)}")
    return text, figures.below(fig, CAUSED_RATIO)


def reports(results):
    """Those of traces that differ in nothing but their length."""
    return [r for r in results.analysis if r.what == "dlbpf report"]


def report_speed(results):
    rows = reports(results)
    if not rows:
        return None
    rates = [r.events / r.cpu_s.median for r in rows]
    return (", ".join(f"{rate / 1e6:.1f} M at {r.events / 1e6:.1f} M" for rate, r in zip(rates, rows)),
            MET if min(rates) >= REPORT_RATE else NOT_MET)


def grown(results):
    rows = sorted(reports(results), key=lambda r: r.events)
    return (rows[0], rows[-1]) if len(rows) > 1 else None


def report_time(results):
    pair = grown(results)
    if not pair:
        return None
    small, large = pair
    times = (large.cpu_s.median / small.cpu_s.median) / (large.events / small.events)
    return (f"x {times:.2f} an event, from {small.events / 1e6:.1f} to {large.events / 1e6:.1f} M",
            MET if times < 1.2 else NOT_MET)


def report_memory(results):
    pair = grown(results)
    if not pair:
        return None
    small, large = pair
    return (f"{small.peak_mib:.0f} MiB at {small.events / 1e6:.1f} M, {large.peak_mib:.0f} MiB at "
            f"{large.events / 1e6:.1f} M", MET if large.peak_mib < small.peak_mib * SAME_SIZE else NOT_MET)


def window(results):
    for r in results.analysis:
        if r.share < 1:
            whole = max(reports(results), key=lambda w: w.events)
            part = r.cpu_s.median / whole.cpu_s.median
            return (f"{part:.2%} of the CPU time for {r.share:.2%} of the trace",
                    MET if part < 1.5 * r.share + WINDOW_FIXED else NOT_MET)
    return None


TARGETS = [
    Target("a stranger's switch, in the kernel", f"under {STRANGER_NS} ns above an empty program",
           at_point("switches", "sched_switch", "above", STRANGER_NS)),
    Target("a stranger's wake, in the kernel", f"under {STRANGER_NS} ns above an empty program",
           at_point("switches", "sched_waking", "above", STRANGER_NS)),
    Target("a target's wake, in the kernel", f"under {WAKE_NS} ns above an empty program",
           at_point("small", "sched_waking", "event", WAKE_NS)),
    Target("a target's switch, in the kernel", f"under {SWITCH_NS} ns above an empty program",
           at_point("small", "sched_switch", "event", SWITCH_NS)),
    Target("minor faults", "nothing attached", minor_faults),
    Target("recorder, CPU", f"under {RECORDER_CORE:.0%} of a core at {RECORDER_RATE:,} events a second", recorder_cpu),
    Target("recorder, memory", f"under {RECORDER_MIB} MiB", memory),
    Target("disk", f"under {EVENT_BYTES} bytes an event", disk),
    Target("speed of the training, JPEG", "no loss that the rounds show", loss_of("jpeg")),
    Target("speed of the training, tensors", "no loss that the rounds show", loss_of("tensor")),
    Target("all CPU time caused, worst case", f"under x {CAUSED_RATIO} of perf sched record", caused),
    Target("lost events", "none under any load", lost),
    Target("report, speed", f"{REPORT_RATE / 1e6:.0f} M events a second on one core", report_speed),
    Target("report, time", "in proportion to the trace", report_time),
    Target("report, memory", "not with the trace", report_memory),
    Target("report --from --to", "reads only what it needs", window),
]


def judge_all(results):
    """[(target, measured, verdict)]"""
    found = []
    for target in TARGETS:
        got = target.judge(results)
        found.append((target, *(got or ("not measured", "-"))))
    return found
