#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The critical path is the evidence: recorded runs with a known fault (chains/NAME.dlbpf), and the chain of
their longest gap as a person has read and agreed with it (chains/NAME.txt; lines with # say what was
planted and how the chain is to be read). The chain also has to agree with the raw events: its steps
follow each other without a hole, and who woke whom is in the trace.

    test_chains.py --update NAME...     writes what the report says now; read it before it goes in

Traces come from `make lab` runs, cut and made anonymous by build/tests/lab/scrub.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal  # noqa: E402

CHAINS = os.path.join(HERE, "chains")
WAKE_LATE_NS = 200_000  # a thread can run on for a moment behind its wake


def names():
    return sorted(n[:-6] for n in os.listdir(CHAINS) if n.endswith(".dlbpf"))


def path(name, end):
    return os.path.join(CHAINS, name + end)


def output(*args):
    env = dict(os.environ, COLUMNS="100", NO_COLOR="1")
    p = subprocess.run([dlbpf.DLBPF, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    check(p.returncode == 0, f"dlbpf {' '.join(args)}: {p.stderr.strip()[-300:]}")
    return p.stdout


def chain_text(name):
    """The verdict's first line, and the longest gap."""
    lines = output("report", "--worst", "1", path(name, ".dlbpf")).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("LONGEST "))
    end = next((i for i in range(start + 1, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines))
    return "\n".join([lines[0], *lines[start:end]]).rstrip() + "\n"


def comments(name):
    try:
        with open(path(name, ".txt")) as f:
            return "".join(line for line in f if line.startswith("#"))
    except FileNotFoundError:
        return "# planted:\n"


def as_agreed(name):
    check(os.path.exists(path(name, ".txt")), f"{name}.txt is missing")
    with open(path(name, ".txt")) as f:
        lines = f.readlines()
    check(sum(line.startswith("#") for line in lines) >= 2, f"{name}.txt does not say how the chain is to be read")
    agreed = "".join(line for line in lines if not line.startswith("#"))
    now = chain_text(name)
    for want, got in zip(agreed.splitlines(), now.splitlines()):
        equal(got, want, f"{name}: a line of the chain")
    equal(len(now.splitlines()), len(agreed.splitlines()), f"{name}: the number of lines")


def agrees_with_events(name):
    trace = path(name, ".dlbpf")
    r = json.loads(output("report", "--json", "--worst", "1", trace))
    dlbpf.adds_up(r)
    gap = r["worst"][0]
    at = gap["start_ns"]
    for step in gap["steps"]:
        if step["via_lock"]:
            continue  # walked beside the waiter, over the time of its wait
        check(step["start_ns"] >= at - WAKE_LATE_NS or step["start_ns"] == at, f"{name}: a step before {at}")
        at = step["end_ns"]
    equal(sum(s["end_ns"] - s["start_ns"] for s in gap["steps"]), gap["end_ns"] - gap["start_ns"],
          f"{name}: the length of all steps")
    woken(name, gap["steps"], [json.loads(line) for line in output("dump", "--json", trace).splitlines()])


def woken(name, steps, events):
    start, seen = json.loads(output("info", "--json", path(name, ".dlbpf")))["meta"]["start_ts"], {}
    for w in events:
        if w["kind"] == "wake":
            seen.setdefault((w["tid"], w["fields"]["wakee_tid"]), []).append(w["ts"] - start)
    for step, following in zip(steps, steps[1:]):
        if not step["woke_next"] or step["tid"] == following["tid"]:
            continue
        times = seen.get((step["tid"], following["tid"]), [])
        check(any(abs(t - step["end_ns"]) <= WAKE_LATE_NS for t in times),
              f"{name}: no wake of {following['tid']} by {step['tid']} at {step['end_ns']}: {times[:3]}")


def main():
    if sys.argv[1:2] == ["--update"]:
        for name in sys.argv[2:] or names():
            kept = comments(name)
            with open(path(name, ".txt"), "w") as f:
                f.write(kept + chain_text(name))
        return
    tests = dlbpf.Tests("chain: ")
    for name in names():
        tests.run(name, as_agreed, name)
        tests.run(name + ", by the raw events", agrees_with_events, name)
    if not names():
        print("FAIL chain: there are none")
        sys.exit(1)
    tests.exit()


if __name__ == "__main__":
    main()
