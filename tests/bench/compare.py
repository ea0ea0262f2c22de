# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A load while recorders come and go: off, on, off, on ... Each segment with a recorder is set against
the two without one beside it, so that what drifts slowly falls out. No recorder at all takes its turn
like the others: its rounds show the noise."""

import time
from collections import namedtuple

import procs
import tools
from workload import Segment

# Of one round. speed, cpu: ratios to the segments without; caused: CPU time of the machine, and own: that of
# the load's and the recorder's processes, more than without for the same work, in CPU seconds a second;
# unit_ns: CPU time a unit took more; recorder: its CPU seconds a second; peak_mib: its memory; file_s: bytes a second.
Round = namedtuple("Round", "speed cpu caused own unit_ns recorder peak_mib file_s")

# off: segments without; rows: tool name -> [Round]; failed: tool name -> why
Compared = namedtuple("Compared", "off rows failed")


def mean(a, b):
    return Segment(*((x + y) / 2 for x, y in zip(a, b)))


def judge(before, on, after, recorder=0.0, peak_mib=0.0, file_s=0.0):
    """What a segment with a recorder says, between two without."""
    off = mean(before, after)
    per_s = off.rate / 1e3  # from milliseconds a unit to CPU seconds a second at the speed without
    return Round(speed=on.rate / off.rate, cpu=on.cpu_ms_unit / off.cpu_ms_unit,
                 caused=(on.busy_ms_unit - off.busy_ms_unit) * per_s,
                 own=(on.cpu_ms_unit - off.cpu_ms_unit) * per_s + recorder,
                 unit_ns=(on.cpu_ms_unit - off.cpu_ms_unit) * 1e6, recorder=recorder, peak_mib=peak_mib, file_s=file_s)


def one(workload, tool, seconds, folder):
    """The segment and what the recorder used in it."""
    with tools.Running(tool, workload, folder) as running:
        u0 = running.usage()
        on = workload.segment(seconds)
        u1 = running.usage()
        peak = procs.peak_mib(running.pids())
        running.check_alive()
    took = u1.time - u0.time
    return on, (u1.cpu_ns - u0.cpu_ns) / 1e9 / took, peak, (u1.file_bytes - u0.file_bytes) / took


def turn(n, chosen):
    """Who takes part in round n, and in which order: everybody in the first one."""
    part = [t for i, t in enumerate(chosen) if n == 0 or (n + i) % t.every == 0]
    shift = n % len(part) if part else 0
    return part[shift:] + part[:shift]


def empty(chosen):
    return Compared([], {t.name: [] for t in chosen}, {})


def compare(found, workload, chosen, seconds, folder, say, rounds=None, minutes=None):
    """So many rounds, or as many as begin within the time and two at least, into found, which holds what there
    was when a load breaks down in between."""
    found.off.append(workload.segment(seconds))
    began, n = time.monotonic(), 0
    while n < rounds if rounds else n < 2 or time.monotonic() - began < minutes * 60:
        for tool in turn(n, chosen):
            if tool.name in found.failed:
                continue
            got = None
            try:
                got = one(workload, tool, seconds, folder)
            except tools.Failed as e:
                say(f"{tool.name}: {e}")
                if not found.rows[tool.name]:  # it never worked here: no more tries
                    found.failed[tool.name] = str(e)
            tools.clear(folder)
            workload.rest(0.4)
            found.off.append(workload.segment(seconds))
            if got:
                found.rows[tool.name].append(judge(found.off[-2], got[0], found.off[-1], *got[1:]))
        n += 1
        if n % 5 == 0 or n == rounds:
            say(f"{workload.load.name}: round {n}{f' of {rounds}' if rounds else ''}")
