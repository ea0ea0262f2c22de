# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The loads: what runs while recorders come and go. A new one is a row."""

from dataclasses import dataclass, field

RIVALS = ("perf-sched", "perf", "perf-g", "perf-trace", "bpftrace", "strace")


@dataclass(frozen=True)
class Load:
    name: str
    what: str
    options: list  # of tests/workloads/train.py
    unit: str = "batches"  # what its speed is counted in
    gpu: bool = False  # on the simulated one, the collector loaded
    env: dict = field(default_factory=dict)
    neighbour: str = None  # a process beside the training, whose speed is the measure (neighbour.c)
    tools: tuple = ("dlbpf",) + RIVALS  # beside none; in tools.py
    minutes: float = 2  # of comparing
    seconds: float = 1.5  # of a segment: longer where units are few
    programs: bool = True  # its BPF programs are looked at
    keeps: tuple = ("dlbpf",)  # those of which one longer recording is looked at
    settle: float = 1.5  # seconds until it runs evenly


LOADS = {load.name: load for load in (
    Load("small", "batches of 8 x 4 floats, no GPU: nothing but hand-overs, the worst case",
         ["--data", "small", "--persistent", "--batch", "8"], minutes=5.5, keeps=("dlbpf", "perf-sched", "perf", "perf-g")),
    Load("jpeg", "what `make demo` runs: batches of 16 JPEG files of 500x375, decoded and cropped to 224, 4 kernels a "
         "batch on the simulated GPU",
         ["--data", "jpeg", "--persistent", "--batch", "16", "--kernel-ms", "4"], gpu=True, minutes=5, seconds=3, keeps=("dlbpf", "perf-sched")),
    Load("tensor", "batches of 64 tensors of 588 KiB, handed over in new shared memory: some 10,000 page faults a batch",
         ["--data", "tensor", "--persistent", "--batch", "64"], minutes=3.5, seconds=3,
         tools=("dlbpf", "perf-sched", "perf", "perf-trace", "strace")),
    Load("threads", "1,000 threads of the training process that load, each sleeping for half a second a sample",
         ["--data", "sleep", "--sample-ms", "500", "--batch", "1", "--threads", "--workers", "1000"],
         minutes=1.5, tools=("dlbpf", "perf-sched"), settle=5, programs=False),
    Load("switches", "a training that sleeps, and two strangers that hand a byte to and fro as fast as they can: over "
         "100,000 context switches a second that are none of dlbpf's business; their speed is the measure",
         ["--data", "sleep", "--persistent", "--sample-ms", "20", "--batch", "8"], unit="switches", neighbour="switches",
         minutes=2, tools=("dlbpf", "perf-sched", "perf", "bpftrace")),
    Load("calls", "a training that sleeps, and a stranger that makes system calls that do nothing (getppid) as fast as "
         "it can; its speed is the measure",
         ["--data", "sleep", "--persistent", "--sample-ms", "20", "--batch", "8"], unit="calls", neighbour="calls",
         minutes=2, tools=("dlbpf", "dlbpf-no-syscalls", "perf-sched", "perf-trace")),
    Load("gpu", "batches of 8 x 4 floats, 200 kernels each on the simulated GPU: some 50,000 kernels a second",
         ["--data", "small", "--persistent", "--batch", "8", "--kernels", "200", "--kernel-ms", "3.75"], gpu=True,
         env={"GPUSIM_PRESET": "h100"}, minutes=1.5, tools=("dlbpf", "perf-sched")),
)}
