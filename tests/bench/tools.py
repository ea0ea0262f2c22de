# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The recorders that are compared. A new one is a row."""

import os
import shutil
import signal
import subprocess
import time
from collections import namedtuple
from dataclasses import dataclass, field

import dlbpf
import machine
import procs

# The tracepoints at which dlbpf has programs and of which every load has some.
POINTS = ("sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_process_exec,"
          "sched:sched_process_exit,task:task_newtask,task:task_rename,signal:signal_generate,signal:signal_deliver")
READY_S = 30  # until a recorder says that it records


class Failed(RuntimeError):
    """A recorder that does not work here; the text says why."""


def joined(w):
    return ",".join(map(str, w.pids))


@dataclass(frozen=True)
class Tool:
    name: str
    what: str
    command: object = None  # function of (workload, output file) -> list; None: no recorder
    program: str = None  # what must be installed
    version: list = field(default_factory=list)
    ready: str = None  # it says this when it records
    settle: float = 0.0  # seconds from there, or from its start, until it runs evenly
    every: int = 1  # takes part in each so many-th round: slow or clear cases need few
    perf_file: bool = False  # its output is perf's

    def why_not(self):
        if self.program and not shutil.which(self.program):
            return f"no {os.path.basename(self.program)} here"
        return None


def dlbpf_record(*options):
    return lambda w, out: [dlbpf.DLBPF, "record", "--no-report", *options, "-o", out, "-p", str(w.p.pid)]


def strace(w, out):
    return ["strace", "-f", "-c", "-o", out, *(word for pid in w.pids for word in ("-p", str(pid)))]


TOOLS = {tool.name: tool for tool in (
    # As long from one segment to the next as with dlbpf: what drifts shows the same.
    Tool("none", "no recorder: the noise of the method", settle=1.0, every=2),
    Tool("dlbpf", "dlbpf record -p PID, as it comes", dlbpf_record(), dlbpf.DLBPF, [dlbpf.DLBPF, "--version"],
         ready="recording process", settle=0.8),
    Tool("dlbpf-no-syscalls", "dlbpf record --no-syscalls -p PID", dlbpf_record("--no-syscalls"), dlbpf.DLBPF,
         ready="recording process", settle=0.8),
    Tool("perf-sched", "perf sched record, of the whole machine",
         lambda w, out: ["perf", "sched", "record", "-o", out], "perf", ["perf", "--version"], settle=1.0, every=2,
         perf_file=True),
    Tool("perf", "perf record of dlbpf's tracepoints, on the same processes",
         lambda w, out: ["perf", "record", "-e", POINTS, "-o", out, "-p", joined(w)], "perf", settle=1.0, every=4,
         perf_file=True),
    Tool("perf-g", "the same with stacks (-g)",
         lambda w, out: ["perf", "record", "-g", "-e", POINTS, "-o", out, "-p", joined(w)], "perf", settle=1.0,
         every=4, perf_file=True),
    Tool("perf-trace", "perf trace -s, on the same processes",
         lambda w, out: ["perf", "trace", "-s", "-o", out, "-p", joined(w)], "perf", settle=1.0, every=6),
    Tool("bpftrace", "bpftrace, counting sched_switch by thread",
         lambda w, out: ["bpftrace", "-e", "tracepoint:sched:sched_switch { @[tid] = count(); }", "-o", out],
         "bpftrace", ["bpftrace", "--version"], settle=2.5, every=6),
    Tool("strace", "strace -f -c, on the same processes", strace, "strace", ["strace", "--version"], settle=1.0,
         every=6),
)}


def versions(tools):
    return [text for text in (machine.version(t.version) for t in tools if t.version) if text]


Usage = namedtuple("Usage", "time cpu_ns file_bytes")


class Running:
    """with Running(tool, workload, folder) as r: the recorder records. It is asked to end as by Ctrl-C."""

    def __init__(self, tool, workload, folder):
        self.tool, self.workload = tool, workload
        self.out = os.path.join(folder, tool.name + ".out")
        self.log = os.path.join(folder, tool.name + ".log")
        self.p = self.rc = None

    def __enter__(self):
        if self.tool.command:
            with open(self.log, "w") as log:
                self.p = procs.start(self.tool.command(self.workload, self.out), stdout=log, stderr=log)
        try:
            self.wait_ready()
            self.workload.rest(self.tool.settle)
            self.check_alive()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def said(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def check_alive(self):
        if self.p and self.p.poll() is not None:
            raise Failed(f"ended at once: {' '.join(self.said().split())[-200:] or self.p.returncode}")

    def wait_ready(self):
        end = time.monotonic() + READY_S
        while self.p and self.tool.ready and self.tool.ready not in self.said():
            self.check_alive()
            if time.monotonic() > end:
                raise Failed(f"did not begin within {READY_S} s: {self.said().strip()[-200:]}")
            self.workload.rest(0.02)

    def pids(self):
        return procs.tree(self.p.pid) if self.p else []

    def usage(self):
        size = os.path.getsize(self.out) if os.path.exists(self.out) else 0
        return Usage(time.monotonic(), procs.cpu_ns(self.pids()), size)

    def stop(self):
        if self.p:
            self.rc = procs.end(self.p, signal.SIGINT, 40)


def clear(folder):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            subprocess.run(["rm", "-rf", path], check=False)
        else:
            os.unlink(path)
