# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The recorders that are compared: each is started on a running training and stopped again."""

import os
import shutil
import signal
import subprocess
import time

import dlbpf


class Tool:
    """name, what it is, seconds from its start until it surely records."""

    name, what, settle = "nothing", "no recorder: the noise of the method", 0.0

    def why_not(self):
        return None

    def command(self, workload, out):
        return None

    def start(self, workload, folder):
        out = os.path.join(folder, self.name + ".out")
        command = self.command(workload, out)
        self.p = None
        if command:
            self.log = open(os.path.join(folder, self.name + ".log"), "w")
            self.p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        workload.rest(self.settle)
        if self.p and self.p.poll() is not None:
            self.log.close()
            with open(self.log.name) as f:
                raise RuntimeError(f"{self.name} ended at once: {f.read()[-300:]}")

    def stop(self):
        if self.p and self.p.poll() is None:
            self.p.send_signal(signal.SIGINT)
            try:
                self.p.wait(30)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
            self.log.close()


class Dlbpf(Tool):
    name, what, settle = "dlbpf", "dlbpf record -p PID, as it comes", 2.0

    def command(self, workload, out):
        return [dlbpf.DLBPF, "record", "-o", out, "-p", str(workload.p.pid)]


class PerfSwitch(Tool):
    name, what, settle = "perf record", "perf record -e sched:sched_switch -g, on the same processes", 0.7

    def why_not(self):
        return None if shutil.which("perf") else "no perf here"

    def command(self, workload, out):
        return ["perf", "record", "-q", "-e", "sched:sched_switch", "-g", "-o", out,
                "-p", ",".join(map(str, workload.pids()))]


class PerfTrace(Tool):
    name, what, settle = "perf trace", "perf trace -s, on the same processes", 1.0

    def why_not(self):
        return None if shutil.which("perf") else "no perf here"

    def command(self, workload, out):
        return ["perf", "trace", "-s", "-o", out, "-p", ",".join(map(str, workload.pids()))]


class Bpftrace(Tool):
    name, what, settle = "bpftrace", "bpftrace, counting sched_switch by thread", 2.5

    def why_not(self):
        return None if shutil.which("bpftrace") else "no bpftrace here"

    def command(self, workload, out):
        return ["bpftrace", "-e", "tracepoint:sched:sched_switch { @[tid] = count(); }", "-o", out]


ALL = [Tool, Dlbpf, PerfSwitch, PerfTrace, Bpftrace]


def compare(workload, tools, rounds, seconds, folder, say):
    """off, on, off, on ...: each segment with a tool against the mean of the two without beside it.
    Returns tool name -> list of (throughput ratio, CPU per batch ratio), and the untraced segments."""
    ratios = {t.name: [] for t in tools}
    off = [workload.segment(seconds)]
    for n in range(rounds):
        for tool in tools[n % len(tools):] + tools[:n % len(tools)]:
            tool.start(workload, folder)
            on = workload.segment(seconds)
            tool.stop()
            workload.rest(0.4)
            off.append(workload.segment(seconds))
            speed = (off[-2][0] + off[-1][0]) / 2
            cpu = (off[-2][1] + off[-1][1]) / 2
            ratios[tool.name].append((on[0] / speed, on[1] / cpu))
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
        say(f"round {n + 1} of {rounds}")
    return ratios, off


def cpu_ns(pid):
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            total += int(f.read().split()[0])
    return total


def recorder_cost(workload, seconds, folder):
    """One longer recording by dlbpf: what the recorder itself used, and what came out. Its start
    (loading BPF programs, reading symbols) is counted apart."""
    trace = os.path.join(folder, "cost.dlbpf")
    p = subprocess.Popen([dlbpf.DLBPF, "record", "-q", "-o", trace, "-p", str(workload.p.pid)],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        workload.rest(3.0)
        start_ns, c0, t0 = cpu_ns(p.pid), cpu_ns(p.pid), time.monotonic()
        workload.rest(seconds)
        c1, t1 = cpu_ns(p.pid), time.monotonic()
        with open(f"/proc/{p.pid}/status") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    finally:
        p.send_signal(signal.SIGINT)
        text = p.stderr.read()
        p.wait(30)
        p.stderr.close()
    if p.returncode:
        raise RuntimeError(f"dlbpf record ended with {p.returncode}: {text[-300:]}")
    began = time.monotonic()
    r = dlbpf.report(trace)
    took = time.monotonic() - began
    events = r["trace"]["events"]
    rate = events / (r["trace"]["duration_ns"] / 1e9)
    return {
        "events": events,
        "lost": r["trace"]["lost"],
        "rate": rate,
        "core": (c1 - c0) / 1e9 / (t1 - t0),
        "event_ns": (c1 - c0) / (t1 - t0) / rate,
        "start_ms": start_ns / 1e6,
        "rss_mib": peak / 1024,
        "bytes": os.path.getsize(trace),
        "report_seconds": took,
    }
