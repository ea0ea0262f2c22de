# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The lab's results in words: lines on the terminal, and docs/ACCURACY.md."""

import collections
import os

import judge


def most_frequent(verdicts):
    return collections.Counter(verdicts).most_common(1)[0][0] if verdicts else "-"


def planted(s):
    if s.shares:
        return " + ".join(f"{c} {100 * v:.0f}" for c, v in s.shares.items())
    return s.cause or "nothing: GPU bound"


def at_top(j):
    return j.verdicts[j.row.scenario.doses[-1]]


def one_line(j):
    control = most_frequent(j.verdicts[j.row.scenario.doses[0]])
    return (f"{j.row}: planted {planted(j.row.scenario)}; {j.leaders}; control {control}; "
            f"charged {j.charged_ns / 1e6:.0f} of {j.lost_ns / 1e6:.0f} ms; slope {j.slope or '-'}; "
            f"unexplained {100 * j.unexplained:.1f} %; lost {j.lost_events}; others {100 * j.strangers:.0f} %")


def sums(found, skipped, failed, seconds):
    right = sum(not j.wrong for j in found)
    return (f"{len(found) + failed_without(found, failed)} rows, {right} right, {failed} wrong, {len(skipped)} "
            f"skipped, in {seconds / 60:.0f} minutes")


def failed_without(found, failed):
    """Rows that gave no figures at all."""
    return failed - sum(bool(j.wrong) for j in found)


def table(found):
    lines = ["| scenario | planted | verdict | its share | charged / truly lost, ms | slope (95 %) | unexplained | "
             "lost events | right |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for j in found:
        verdicts = collections.Counter(at_top(j))
        verdict = ", ".join(v if n == len(at_top(j)) else f"{v} ({n} of {len(at_top(j))})"
                            for v, n in verdicts.most_common())
        lines.append(f"| {j.row} | {planted(j.row.scenario)} | {verdict} | {100 * j.share:.0f} % | "
                     f"{j.charged_ns / 1e6:.0f} / {j.lost_ns / 1e6:.0f} | {j.slope or ''} | "
                     f"{100 * j.unexplained:.1f} % | {j.lost_events} | {'yes' if not j.wrong else 'no'} |")
    return lines


def confusion(found):
    """Runs at the highest dose by what was planted and what was said; controls are a row of their own."""
    count = collections.Counter()
    for j in found:
        for v in at_top(j):
            count[j.row.scenario.cause or "nothing", v] += 1
        if j.row.scenario.cause:
            for v in j.verdicts[0]:
                given = "the planted cause" if v == j.row.scenario.cause else "another, or none"
                count["(control)", given] += 1
    planted_names = sorted({p for p, _ in count if p != "(control)"})
    said = sorted({v for p, v in count if p != "(control)"})
    lines = ["| planted \\ said | " + " | ".join(said) + " |", "| --- |" + " --- |" * len(said)]
    for p in planted_names:
        cells = [f"**{count[p, v]}**" if v == p or (p == "nothing" and v == "healthy") else str(count[p, v] or "")
                 for v in said]
        lines.append(f"| {p} | " + " | ".join(cells) + " |")
    controls = count["(control)", "the planted cause"], count["(control)", "another, or none"]
    lines += ["", f"Of {sum(controls)} runs without a fault, {controls[0]} were given the cause that the scenario "
              "plants."]
    return lines


def twins(found):
    by_name = collections.defaultdict(list)
    for j in found:
        by_name[j.row.scenario.name].append(j)
    seen, lines = set(), []
    for name, judgements in sorted(by_name.items()):
        for twin in judgements[0].row.scenario.twins:
            pair = tuple(sorted((name, twin)))
            if twin not in by_name or pair in seen:
                continue
            seen.add(pair)
            right = all(judge_cause(j) for n in pair for j in by_name[n])
            lines.append(f"| {pair[0]} ({planted(by_name[pair[0]][0].row.scenario)}) | {pair[1]} "
                         f"({planted(by_name[pair[1]][0].row.scenario)}) | {'yes' if right else 'no'} |")
    if not lines:
        return []
    return ["## Twins", "", "Two scenarios with the same waiting place and another cause.", "",
            "| one | other | both told apart |", "| --- | --- | --- |", *lines, ""]


def judge_cause(j):
    return all(v == (j.row.scenario.cause or "healthy") for v in at_top(j))


def descriptions(found):
    lines, seen = ["## The scenarios", ""], set()
    for j in found:
        s = j.row.scenario
        if s.name in seen:
            continue
        seen.add(s.name)
        also = f" Counts as its own: {', '.join(s.also)}." if s.also else ""
        lines.append(f"- **{s.name}** ({', '.join(f'{d:g}' for d in s.doses)} {s.unit}): {s.text}{also}")
    return lines + [""]


def slopes(found):
    """How many slopes lie in the range themselves, and how many only with their interval."""
    fitted = [j.slope for j in found if j.slope]
    inside = sum(judge.SLOPE[0] <= s.value <= judge.SLOPE[1] for s in fitted)
    return (f"Of {len(fitted)} slopes {inside} are {judge.SLOPE[0]} to {judge.SLOPE[1]} themselves, "
            f"{sum(s.meets(*judge.SLOPE) for s in fitted) - inside} more with their interval.")


def whole(found, skipped, failed, broken=()):
    """broken: the lines of rows that gave no figures."""
    runs = sum(len(at_top(j)) for j in found)
    right = sum(v == (j.row.scenario.cause or "healthy") for j in found for v in at_top(j))
    lines = [
        "# How often dlbpf is right", "",
        "Written by `make lab` (tests/lab). Each row is a real PyTorch DataLoader run, with real worker processes and "
        "real shared memory, into which one known fault was planted by real means. It ran without the fault (the "
        "control) and in three doses of it, interleaved.", "",
        f"**{right} of {runs} runs at the highest dose were given the planted cause; {sum(not j.wrong for j in found)} "
        f"of {len(found) + failed_without(found, failed)} rows meet every condition.** {slopes(found)}", "",
        "- *charged / truly lost*: at the highest dose, less the control's. Lost is the idle time of the simulated "
        "GPU, by its own model, or, without GPU data, the trainer's waiting by its own clock; not dlbpf's figure.",
        "- *slope*: by how much the time charged to the planted cause grew for each unit of time lost, over all doses, "
        "with the dose as the instrument, and its 95 % interval (Fieller). Right: the interval meets "
        f"{judge.SLOPE[0]} to {judge.SLOPE[1]}.",
        f"- *right*: verdict at the highest dose in every run, never in a control; slope; less than "
        f"{judge.UNEXPLAINED:.0%} unexplained. A row that is not right is measured for two more rounds, and judged "
        "on all of its runs.", "",
        f"Measured on {os.cpu_count()} CPUs, Linux {os.uname().release.split('-')[0]}, with the simulated GPU of "
        "tests/gpusim. dlbpf's rules have been mended on these scenarios until they were right: what others plant "
        "will find more.", "",
        *table(found), "", "## Confusion", "", "Runs at the highest dose: planted against said.", "", *confusion(found),
        "", *twins(found)]
    wrong = [f"- {j.row}: {'; '.join(j.wrong)}" for j in found if j.wrong]
    wrong += [f"- {line.splitlines()[0][5:]}" for line in broken]
    if wrong:
        lines += ["## What is wrong", "", *wrong, ""]
    if skipped:
        lines += ["## Skipped", "", *[f"- {line[5:]}" for line in skipped], ""]
    lines += descriptions(found)
    return "\n".join(lines).rstrip() + "\n"
