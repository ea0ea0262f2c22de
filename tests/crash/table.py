# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The crash scenarios' results in words: docs/CRASHES.md."""

import os


def amount(number):
    value, unit = number["value"], number["unit"]
    if unit == "bytes" and value >= 1 << 20:
        return f"{value / (1 << 20):.1f} MiB"
    return f"{value} bytes" if unit == "bytes" else str(value)


def numbers(j):
    want = j.s.numbers(j.meta) if callable(j.s.numbers) else j.s.numbers
    found = [(k, j.pm["numbers"].get(k)) for k in want]
    return ", ".join(f"{k} {amount(n)}" for k, n in found if n) or ""


def said(view):
    v = view["verdict"]
    if v["death"] != "unexplained":
        return v["death"]
    others = [a["death"] for a in view["alternatives"]]
    return "open: " + ", ".join(others) if others else "nothing"


def row(j):
    v = j.pm["verdict"]
    cells = [j.s.name, j.s.text, j.meta["torch"], f"{v['death']} ({v['confidence']})",
             (j.pm["victim"]["role"] or "") if v["death"] != "none" else "", numbers(j)]
    cells += [said(j.views[k]) if k in j.views else "" for k in ("log", "kernel", "core", "now")]
    cells.append("yes" if not j.wrong else "no")
    return "| " + " | ".join(cells) + " |"


HEAD = """# How often dlbpf knows what killed a run

Written by `make crash-lab` (tests/crash). Each row is a real PyTorch DataLoader run that died, hung or ended of one
known cause, planted by real means, while dlbpf recorded it. What was planted was written down by the training
itself and by whoever did it to it.

**From the trace, {verdicts} of {count} verdicts are right. {right} rows meet every condition.**

- *verdict*: from the trace alone. Its victim, its numbers (within bounds that come from what was planted) and its
  evidence (who sent the signal, which file) were compared as well.
- *output*, *kernel log*, *core*: what the training's output alone says without a trace; with the kernel's log of
  the time; a core file alone; *machine*: what it says without any of these, just after. "open" lists between what
  it does not decide; it must never be another death.
- Beside each trace, the output of {pasted} other faults was given as the user's: the verdict did not change, or the row
  is not right.

Measured on {cpus} CPUs, Linux {kernel}, with cgroups of version {cgroups}.

| scenario | planted | PyTorch | verdict | victim | numbers | output | kernel log | core | machine | right |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def page(found, skipped, broken, pasted):
    text = HEAD.format(verdicts=sum(j.pm["verdict"]["death"] in j.s.right for j in found),
                       right=sum(not j.wrong for j in found), count=len(found) + len(broken), pasted=pasted,
                       cpus=os.cpu_count(), kernel=os.uname().release.split("-")[0],
                       cgroups=2 if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else 1)
    text += "\n".join(row(j) for j in found) + "\n"
    for title, lines in (("Not right", [f"{j.s.name}: {'; '.join(j.wrong)}" for j in found if j.wrong] + broken),
                         ("Not run", skipped)):
        if lines:
            text += f"\n## {title}\n\n" + "\n".join("- " + " ".join(line.split())[:400] for line in lines) + "\n"
    return text
