#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The benchmark's arithmetic and tables: true values are planted in noise and have to be found, and
what cannot be seen has to be called so."""

import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "support")]

import bpfcost  # noqa: E402
import compare  # noqa: E402
import dlbpf  # noqa: E402
import figures  # noqa: E402
import kept  # noqa: E402
import page  # noqa: E402
import targets  # noqa: E402
from analysis import Row as Reading  # noqa: E402
from dlbpf import check, equal  # noqa: E402
from loads import LOADS  # noqa: E402
from tools import TOOLS  # noqa: E402
from workload import Segment  # noqa: E402


def noisy(rng, middle, noise, count):
    """With the outliers that a shared machine has."""
    return [middle * (1 + rng.gauss(0, noise) + (rng.expovariate(5) if rng.random() < 0.1 else 0)) for _ in range(count)]


def interval_holds():
    rng, held = random.Random(2), 0
    for _ in range(600):
        values = [rng.gauss(3, 1) ** 3 for _ in range(15)]  # skewed; its median is known
        low, high = figures.interval(values)
        held += low <= 27 <= high
    check(0.93 <= held / 600 <= 1, f"the interval held the true median {held} times of 600")
    equal(figures.interval([1, 2, 3, 4, 5]), (-figures.INF, figures.INF), "the interval of five values")
    equal(figures.interval([6, 1, 5, 2, 4, 3]), (1, 6), "the interval of six values")


def few_rounds_show_less():
    rng = random.Random(3)
    noise = [rng.gauss(1, 0.04) for _ in range(100)]
    all_of_them, few = figures.visible(noise), figures.visible(noise, 25)
    check(0.005 < all_of_them < 0.02, f"100 rounds with 4 % noise show {all_of_them:.3%}")
    check(abs(few - 2 * all_of_them) < 1e-9, f"a quarter of the rounds shows {few:.3%}, all {all_of_them:.3%}")
    equal(figures.visible(noise[:5]), figures.INF, "what five rounds show")


def segment(rate, cpu, busy):
    return Segment(1.0, rate, cpu / rate * 1e3, busy / rate * 1e3, 0.0)


def drift_falls_out():
    """A machine that gets slower by half while a recorder that costs 3 % comes and goes."""
    def speed(t):
        return 1000 * (1 - t / 200)

    rounds = []
    for t in range(0, 100, 2):
        before, on, after = (segment(speed(t + i) * (0.97 if i == 1 else 1), 1.2, 1.3) for i in range(3))
        rounds.append(compare.judge(before, on, after))
    fig = figures.figure(r.speed for r in rounds)
    check(abs(fig.median - 0.97) < 0.0005, f"the planted ratio of 0.97 was measured as {fig.median:.4f}")


def caused_is_found():
    """100 units a second; a recorder takes 0.05 of a core itself, the load 0.2 more, the machine 0.3 more."""
    off = segment(100, 0.5, 0.6)
    got = compare.judge(off, segment(80, 0.8 * 0.7, 0.8 * 0.9), off, recorder=0.05)
    for name, want in (("speed", 0.8), ("cpu", 1.4), ("caused", 0.3), ("own", 0.25), ("unit_ns", 2e6)):
        check(abs(getattr(got, name) - want) < 1e-6, f"{name} is {getattr(got, name)}, not {want}")


def ratios():
    rng = random.Random(4)
    own, other = noisy(rng, 0.07, 0.2, 30), noisy(rng, 0.20, 0.2, 15)
    fig = figures.ratio(own, other)
    check(fig.low < 0.35 < fig.high, f"0.35 is not in {fig.low:.3f} .. {fig.high:.3f}")
    check(fig.high - fig.low < 0.2, f"the interval is {fig.low:.3f} .. {fig.high:.3f}")
    equal(figures.ratio(own, other), fig, "the same ratio again")
    equal(figures.ratio(own, [-0.1, 0.1, -0.05, 0.05, 0.01]).high, figures.INF, "what bounds a ratio to noise")


def verdicts():
    sure, unsure = figures.figure([100 + i / 10 for i in range(12)]), figures.figure([10 * i for i in range(12)])
    equal(figures.below(sure, 120), figures.MET, "100 against 120")
    equal(figures.below(sure, 90), figures.NOT_MET, "100 against 90")
    equal(figures.below(unsure, 60), figures.UNSEEN, "0 .. 110 against 60")
    equal(figures.below(figures.figure([1, 1, 1]), 60), figures.UNSEEN, "three values")
    equal(figures.above(sure, 90), figures.MET, "100 is above 90")
    slow, even = figures.figure([0.95 + i / 1000 for i in range(12)]), figures.figure([0.98 + i / 300 for i in range(12)])
    equal(figures.no_loss(slow, 0.002), figures.NOT_MET, "a loss of 4 %")
    equal(figures.no_loss(even, 0.008), figures.MET, "no loss where 0.8 % would show")
    equal(figures.no_loss(even, 0.02), figures.UNSEEN, "no loss where only 2 % would show")


def bpf_differences():
    """Programs and empty ones take turns; one runs in only some rounds."""
    empty = [bpfcost.Cost(70 + 10 * i, 1e5, 0) for i in range(9)]  # drifts
    own = [bpfcost.Cost(75 + 10 * i + 400, 1e5, 0) for i in range(8)]
    equal({ns for ns, _ in bpfcost.differences(own, empty)}, {400.0}, "a planted cost of 400 ns above a drifting floor")
    own[3] = empty[6] = None
    equal(len(bpfcost.differences(own, empty)), 5, "rounds left when a program or an empty one did not run")
    points = {"a": "sched_switch", "b": "sched_switch", "c": "sched_waking"}
    both = bpfcost.at_point({"a": bpfcost.Cost(300, 1e5, 3e7), "b": bpfcost.Cost(100, 5e4, 5e6)}, points, "sched_switch")
    equal((both.ns, both.rate), (350.0, 1e5), "two programs on one tracepoint")
    equal(bpfcost.at_point({}, points, "sched_switch"), None, "a tracepoint without a program")
    half = bpfcost.row("a", "sched_switch", [bpfcost.Cost(260, 1e5, 0, 5e4)] * 3, [bpfcost.Cost(60, 1e5, 0)] * 4)
    equal((half.above.median, half.event.median), (200, 400), "above an empty program: a run, an event of every other run")


def sources_name_their_tracepoints():
    points = bpfcost.tracepoints()
    for point in ("sched_switch", "sched_waking", "sys_exit"):
        check(point in points.values(), f"no program on {point} was found in bpf/")


def perf_totals():
    text = ("\nAggregated stats:\n           TOTAL events:      31240\n            MMAP events:         10  ( 0.0%)\n"
            "            LOST events:          2  ( 0.0%)\n          SAMPLE events:      31000  (99.2%)\n"
            "sched:sched_switch stats:\n          SAMPLE events:      20000\n")
    equal(kept.perf_stats(text), (31000, 2), "samples and losses")


def everybody_takes_turns():
    chosen = list(TOOLS.values())
    equal({t.name for t in compare.turn(0, chosen)}, set(TOOLS), "the tools of the first round")
    for t in chosen:
        rounds = sum(t in compare.turn(n, chosen) for n in range(1, 25))
        equal(rounds, 24 // t.every, f"rounds of 24 with {t.name}")


def tables_name_what_exists():
    for load in LOADS.values():
        for name in (*load.tools, *load.keeps):
            check(name in TOOLS, f"{load.name} names {name}")


def planted_results(cheap):
    """All loads, with a recorder that is cheap or dear."""
    rng, results, dear = random.Random(5), targets.Results(), 1 if cheap else 20
    for name, load in LOADS.items():
        off = [segment(noise, 1.0, 1.0) for noise in noisy(rng, 1000, 0.002, 40)]
        rows = {tool: [compare.Round(0.9 if tool != "none" and not cheap else x, x, share * dear, share, 1, 0.005 * dear, 20, 1e5)
                       for x, share in zip(noisy(rng, 1, 0.002, 30), noisy(rng, 0.01 if tool == "dlbpf" else 0.05, 0.1, 30))]
                for tool in ("none", *load.tools)}
        rows["perf-sched"] = [r._replace(caused=0.05) for r in rows.get("perf-sched", [])]
        own = figures.figure([100.0 * dear + i for i in range(9)])
        point = [bpfcost.Row(None, p, own, own, own, *[figures.figure([30.0 * dear + i / 10 for i in range(9)])] * 2, own)
                 for p in ("sched_switch", "sched_waking")]
        results.loads[name] = {
            "compared": compare.Compared([s._replace(faults_s=2e4) for s in off], rows, {"strace": "ended at once"}),
            "programs": [r._replace(program="dl_" + r.point) for r in point], "points": point,
            "kept": {"dlbpf": kept.Kept(600_000, 60_000, [0.005 * dear + i / 1e5 for i in range(8)], 200, 30 * dear, 3_000_000 * dear, dear - 1, 0)},
        }
    for size in (1e6, 1e7, 1e8):
        results.analysis.append(Reading("dlbpf report", int(size), figures.exact(size / (8e6 / dear)), 1, 40 + (not cheap) * size / 1e5,
                                        1.0, int(size * 5)))
    results.analysis.append(Reading("one second of it", int(1e8), figures.exact(0.05 if cheap else 90), 1, 40, 0.001, 5))
    return results


def targets_are_judged():
    for cheap, verdict in ((True, figures.MET), (False, figures.NOT_MET)):
        for target, text, got in targets.judge_all(planted_results(cheap)):
            if target.judge is targets.minor_faults or target.judge is targets.report_time:
                continue  # planted the same in both
            equal(got, verdict, f"{target.what} of a {'cheap' if cheap else 'dear'} recorder ({text})")
    for _, text, got in targets.judge_all(targets.Results()):
        equal((text, got), ("not measured", "-"), "a target without a measurement")


def the_page_is_whole():
    text = page.page(planted_results(True), LOADS, "a machine", ["perf 1"], ["x: no x here"], ["y: broke"], False)
    columns = None
    for line in text.splitlines():
        if line.startswith("|"):
            columns = columns or line.count("|")
            equal(line.count("|"), columns, f"columns of {line!r}")
        else:
            columns = None
    for what in (*(f"**{name}**" for name in LOADS), "no x here", "y: broke", "ended at once", *(t.what for t in targets.TARGETS)):
        check(what in text, f"the page says nothing of {what}")
    check("nan" not in text and "inf" not in text.replace("info", ""), "the page holds a nan or inf")
    page.page(targets.Results(), LOADS, "a machine", [], [], [], True)


def notes_stay():
    first = page.with_notes("# Page\n", "")
    check(first.rstrip().endswith(page.NOTES), "the first page does not end with the place for notes")
    second = page.with_notes("# New page\n", first + "\nBy hand.\n")
    check(second.startswith("# New page\n") and second.endswith("\nBy hand.\n"), f"not kept: {second!r}")


if __name__ == "__main__":
    tests = dlbpf.Tests("bench figures: ")
    for name, test in list(globals().items()):
        if callable(test) and getattr(test, "__module__", "") == "__main__" and test.__code__.co_argcount == 0:
            tests.run(name.replace("_", " "), test)
    tests.exit()
