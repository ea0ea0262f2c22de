# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What the runs of one row of the lab say about dlbpf."""

import dataclasses
import typing

import slope

SLOPE = (0.9, 1.1)
UNEXPLAINED = 0.02
SHARES = 0.10  # of two faults at once
HEALTHY = 0.05  # less idle time, or waiting, than this share of the time: docs/REPORT.md
STRANGERS = 0.10  # of the CPUs: with more, other programs plant a fault of their own


@dataclasses.dataclass
class Judgement:
    row: object
    verdicts: dict  # dose -> the verdicts of its runs
    share: float  # of the planted cause, at the highest dose
    charged_ns: float  # at the highest dose, less the control's; means over the rounds
    lost_ns: float
    slope: typing.Optional[slope.Slope]
    unexplained: float  # share over all runs
    lost_events: int
    strangers: float
    leaders: str  # causes at the highest dose, largest first
    wrong: list  # what is, in words


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def grown(results, top, causes):
    """(charged, lost) at the highest dose less the control's, ns."""
    control = [r for r in results if r.dose == 0]
    most = [r for r in results if r.dose == top]
    return (mean(r.charged(causes) for r in most) - mean(r.charged(causes) for r in control),
            mean(r.lost_ns for r in most) - mean(r.lost_ns for r in control))


def leaders(results):
    total = {}
    for r in results:
        for cause, ns in r.causes.items():
            total[cause] = total.get(cause, 0) + ns
    everything = sum(total.values()) or 1
    top = sorted(total.items(), key=lambda kv: -kv[1])[:4]
    return ", ".join(f"{cause} {100 * ns / everything:.0f}" for cause, ns in top if ns > 0.005 * everything)


def slope_of(results, causes, wrong):
    try:
        found = slope.fit([r.dose for r in results], [r.lost_ns / 1e6 for r in results],
                          [r.charged(causes) / 1e6 for r in results])
    except ValueError as e:
        wrong.append(f"no slope: {e}")
        return None
    if not found.meets(*SLOPE):
        wrong.append(f"slope {found} is not 1 within {SLOPE[1] - 1:.1f}")
    return found


def besides_strangers(s, r):
    """A machine that is busy with other programs plants contention. Where that is the verdict, what leads
    besides it is judged; the share of the strangers is in the table."""
    if r.verdict != "cpu-contention" or r.strangers < STRANGERS or s.kind in ("cpu-contention", "cpu-quota"):
        return r.verdict
    rest = {c: ns for c, ns in r.causes.items() if c != "cpu-contention"}
    if sum(rest.values()) < HEALTHY * r.span_ns:
        return "healthy"
    return max(rest, key=rest.get) if rest else r.verdict


def verdicts_wrong(row, results, top, wrong):
    s = row.scenario
    for r in results:
        if s.cause is None:
            if r.verdict != "healthy":
                wrong.append(f"dose {r.dose}: verdict {r.verdict}, the GPU is the limit ({leaders([r])})")
        elif r.dose == 0 and r.verdict == s.cause:
            wrong.append(f"the control is given {s.cause} ({leaders([r])})")
        elif r.dose == top and r.verdict != s.cause:
            wrong.append(f"verdict {r.verdict}, planted {s.cause} ({leaders([r])})")


def shares_wrong(row, results, top, wrong):
    """Two faults at once: what each one's time grew by, as a share of both."""
    gained = {c: grown(results, top, (c,))[0] for c in row.scenario.shares}
    total = sum(gained.values())
    for cause, true in row.scenario.shares.items():
        found = gained[cause] / total if total > 0 else 0.0
        if abs(found - true) > SHARES:
            wrong.append(f"{cause} has {found:.0%} of what the two faults cost, {true:.0%} were planted")


def judge(row, results):
    s, wrong = row.scenario, []
    results = [dataclasses.replace(r, verdict=besides_strangers(s, r)) for r in results]
    top = s.doses[-1]
    most = [r for r in results if r.dose == top]
    verdicts_wrong(row, results, top, wrong)
    fitted = slope_of(results, s.causes(), wrong) if s.cause else None
    if s.shares:
        shares_wrong(row, results, top, wrong)
    unexplained = sum(r.causes.get("unexplained", 0) for r in results) / max(1, sum(r.idle_ns for r in results))
    if unexplained >= UNEXPLAINED:
        wrong.append(f"{unexplained:.1%} unexplained")
    if s.check:
        wrong += sorted({w for w in (s.check(r.report) for r in most) if w})
    charged, lost = grown(results, top, s.causes())
    return Judgement(row, {d: [r.verdict for r in results if r.dose == d] for d in s.doses},
                     mean(r.share(s.cause) for r in most) if s.cause else 0.0, charged, lost, fitted, unexplained,
                     sum(r.lost_events for r in results), mean(r.strangers for r in results), leaders(most),
                     sorted(set(wrong)))
