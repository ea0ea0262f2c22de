#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The lab's own arithmetic: the slope and its interval, what counts as wrong, and that every scenario
is well formed."""

import dataclasses
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import judge  # noqa: E402
import measure  # noqa: E402
import page  # noqa: E402
import scenario  # noqa: E402
import slope  # noqa: E402
import dlbpf  # noqa: E402
from dlbpf import check, equal  # noqa: E402

DOSES = (0, 10, 20, 30)


def near(got, want, by, what):
    check(abs(got - want) <= by, f"{what} is {got}, not {want} within {by}")


def exact_line():
    """Without noise the slope is what it is, whatever the dose does to the lost time."""
    dose = list(DOSES) * 2
    lost = [{0: 5, 10: 5, 20: 90, 30: 700}[d] for d in dose]
    s = slope.fit(dose, lost, [0.8 * x + 3 for x in lost])
    near(s.value, 0.8, 1e-9, "the slope")
    near(s.low, 0.8, 1e-6, "its lower end")
    near(s.high, 0.8, 1e-6, "its upper end")
    check(not s.meets(0.9, 1.1), "0.8 meets 0.9 .. 1.1")


def by_hand():
    """Two doses, two runs each, worked out on paper: Wald's ratio of differences of means."""
    s = slope.fit([0, 0, 1, 1], [10, 12, 30, 32], [1, 3, 19, 21])
    near(s.value, (20 - 2) / (31 - 11), 1e-12, "the slope")


def noise_that_is_charged_elsewhere():
    """Lost time that another cause explains grows and shrinks at random: least squares is biased by it
    (0.7 here), the instrument is not, and the interval holds the truth about as often as it says."""
    rng = random.Random(7)
    held, values = 0, []
    for _ in range(400):
        dose = list(DOSES) * 3
        other = [rng.gauss(0, 12) for _ in dose]
        lost = [100 + d + o for d, o in zip(dose, other)]
        charged = [10 + d + rng.gauss(0, 1) for d in dose]
        s = slope.fit(dose, lost, charged)
        values.append(s.value)
        held += s.low <= 1 <= s.high
    values.sort()
    near(values[200], 1, 0.05, "the median slope")
    check(360 <= held <= 398, f"95 % intervals hold the truth {held} times of 400")


def what_cannot_be_fitted():
    for dose, lost in (([0, 0, 0, 0], [1, 2, 3, 4]), ([0, 1, 2, 3], [4, 3, 2, 1]), ([0, 1], [0, 1])):
        try:
            slope.fit(dose, lost, lost)
        except ValueError:
            continue
        raise AssertionError(f"a slope of {lost} over {dose}")


def idle_of_overlapping_kernels():
    equal(measure.idle_between([(0, 10), (2, 5), (12, 20), (19, 30), (31, 32)]), 2 + 1, "the idle time")


@dataclasses.dataclass
class FakeRow:
    scenario: scenario.Scenario

    def __str__(self):
        return "fake"


def result(dose, causes, verdict, lost=None):
    return measure.Result(dose, sum(causes.values()) if lost is None else lost, sum(causes.values()), causes, {},
                          verdict, 0, 0.0, {}, "")


def runs(charge, verdict, other="sleep"):
    return [result(d, {"decode": charge(d), other: 20_000_000}, verdict(d)) for _ in range(2) for d in DOSES]


def judged(results, **about):
    s = scenario.Scenario(**{"kind": "decode", "cause": "decode", "doses": DOSES, "unit": "ms", **about})
    return judge.judge(FakeRow(s), results).wrong


def right_runs_are_right():
    equal(judged(runs(lambda d: d * 1_000_000, lambda d: "decode" if d else "healthy")), [], "what is wrong")


def wrong_runs_are_wrong():
    named = runs(lambda d: d * 1_000_000, lambda d: "decode")
    check(any("control" in w for w in judged(named)), "a control that is given the cause passes")
    other = runs(lambda d: d * 1_000_000, lambda d: "host")
    check(any("verdict host" in w for w in judged(other)), "another verdict passes")
    half = [dataclasses.replace(r, lost_ns=2 * r.lost_ns) for r in runs(lambda d: d * 1_000_000,
                                                                        lambda d: "decode" if d else "healthy")]
    check(any("slope" in w for w in judged(half)), "half of the time charged passes")
    lost = runs(lambda d: d * 1_000_000, lambda d: "decode" if d else "healthy", other="unexplained")
    check(any("unexplained" in w for w in judged(lost)), "unexplained time passes")
    blamed = runs(lambda d: d * 1_000_000, lambda d: "decode")
    check(judged(blamed, cause=None, kind="healthy"), "a healthy run that is given a cause passes")


def two_faults():
    def mixed(decode, storage):
        return [result(d, {"decode": d * decode, "storage": d * storage, "ipc": 10_000_000},
                       "decode" if d else "healthy") for _ in range(2) for d in DOSES]

    shares = {"decode": 0.6, "storage": 0.4}
    equal(judged(mixed(660_000, 340_000), shares=shares), [], "what is wrong within ten points")
    check(any("storage has" in w for w in judged(mixed(800_000, 200_000), shares=shares)), "80 : 20 passes for 60 : 40")


def the_page():
    s = scenario.Scenario("decode", "decode", DOSES, "ms", name="one", text="Text.", twins=("two",))
    t = scenario.Scenario("sleep", "sleep", DOSES, "ms", name="two", text="Text.", twins=("one",))
    good = judge.judge(scenario.Row(s, "", "sim", False),
                       runs(lambda d: d * 1_000_000, lambda d: "decode" if d else "healthy"))
    bad = judge.judge(scenario.Row(t, "", "sim", False), runs(lambda d: d * 1_000_000, lambda d: "decode"))
    text = page.whole([good, bad], ["skip three: no disk"], 1)
    for part in ("| decode | **2** |", "| sleep | 2 |", "three: no disk",
                 "| one (decode) | two (sleep) | no |", "Of 4 runs without a fault, 0"):
        check(part in text, f"the page lacks {part!r}:\n{text}")


def scenarios_are_well_formed():
    found = scenario.load_all()
    check(len(found) > 1, "there are no scenarios")
    kinds = {s.kind for s in found}
    for kind in kinds:
        quick = [s.name for s in found if s.kind == kind and s.quick]
        check(len(quick) == 1, f"kind {kind} has {len(quick)} quick scenarios: {quick}")
    names = [str(r) for r in scenario.rows(found)]
    equal(len(names), len(set(names)), "the number of different rows")
    for s in found:
        for t in s.twins:
            check(scenario.load(t).cause != s.cause, f"{s.name} and its twin {t} have the same cause")


def main():
    tests = dlbpf.Tests("lab: ")
    for fn in (exact_line, by_hand, noise_that_is_charged_elsewhere, what_cannot_be_fitted,
               idle_of_overlapping_kernels, right_runs_are_right, wrong_runs_are_wrong, two_faults, the_page,
               scenarios_are_well_formed):
        tests.run(fn.__name__, fn)
    tests.exit()


if __name__ == "__main__":
    main()
