# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The machine: what it is, and how busy it was."""

import os
import platform
import subprocess
import time
from collections import namedtuple

Clock = namedtuple("Clock", "time idle")  # seconds; of all CPUs together not used


def clock():
    """Idle time is the kernel's own, exact on a tickless kernel but told in hundredths of a second;
    what the hypervisor took away (steal) was not used either."""
    tick = os.sysconf("SC_CLK_TCK")
    with open("/proc/stat") as f:
        _, _, _, idle, iowait, _, _, steal = map(int, f.readline().split()[1:9])
    return Clock(time.monotonic(), (idle + iowait + steal) / tick)


def busy(a, b):
    """CPU seconds that were used between two clocks, by everything: interrupts and recorders as well."""
    return max(0.0, (b.time - a.time) * os.cpu_count() - (b.idle - a.idle))


def cpu_name():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def facts():
    """One line; nothing that names the machine."""
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) / (1 << 20)
    system = "Linux"
    with open("/etc/os-release") as f:
        for line in f:
            if line.startswith("PRETTY_NAME="):
                system = line.split("=", 1)[1].strip().strip('"')
    kernel = os.uname().release.split("-")[0]
    virtual = ""
    with open("/proc/cpuinfo") as f:
        if " hypervisor" in f.read():
            virtual = "a virtual machine with "
    return f"{virtual}{os.cpu_count()} CPUs ({cpu_name()}), {memory:.0f} GiB of memory, {system}, Linux {kernel}"


def version(command):
    """The first line of what a tool says about its version."""
    try:
        p = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (p.stdout or p.stderr).strip().splitlines()
    return lines[0].strip() if lines else None
