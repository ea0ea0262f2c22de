#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 200
"""The benchmark runs and fills its tables. It measures nothing here: no number is judged but by
what it must be on any machine."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check  # noqa: E402


STATS = "/proc/sys/kernel/bpf_stats_enabled"


def stats_setting():
    with open(STATS) as f:
        return f.read().strip()


def quick():
    before = stats_setting()
    p = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run"), "--quick", "--load", "small", "--build",
                        os.path.relpath(dlbpf.BUILD, dlbpf.ROOT)], capture_output=True, text=True)
    check(p.returncode == 0, f"exit code {p.returncode}: {p.stderr[-600:]}")
    check("| dlbpf record" in p.stdout, "no row for dlbpf")
    m = re.search(r"\| events a second \| ([\d,]+) \|", p.stdout)
    check(m and int(m.group(1).replace(",", "")) > 0, "no events")
    m = re.search(r"\| `(dl_\w+)` \(sched_switch\) \| [\d,]+ \| (\d+) ", p.stdout)
    check(m and int(m.group(2)) > 0, "no cost of the switch program")
    dlbpf.equal(stats_setting(), before, f"{STATS} afterwards")


if __name__ == "__main__":
    tests = dlbpf.Tests("bench: ")
    tests.run("quick run", quick)
    tests.exit()
