# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One run of a scenario: recorded with dlbpf, and measured without it."""

import contextlib
import dataclasses
import fcntl
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import dlbpf  # noqa: E402

TRAIN = os.path.join(HERE, "train.py")
LOCK = "/run/lock/dlbpf-lab.lock" if os.access("/run/lock", os.W_OK) else "/tmp/dlbpf-lab.lock"


@contextlib.contextmanager
def machine_alone():
    """Two labs on one machine would plant faults into each other."""
    with open(LOCK, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


@dataclasses.dataclass
class Result:
    dose: float
    lost_ns: int  # idle time of the GPU or waiting of the trainer, not measured by dlbpf
    idle_ns: int  # the same as dlbpf has it
    causes: dict  # cause -> ns
    estimated: dict  # cause -> ns of it that are estimates
    verdict: str  # its cause; "healthy", or "none"
    lost_events: int
    strangers: float  # share of the CPUs that went to programs of others
    report: dict
    trace: str
    span_ns: int = 0  # observed

    def share(self, cause):
        return self.causes.get(cause, 0) / self.idle_ns if self.idle_ns else 0.0

    def charged(self, causes):
        return sum(self.causes.get(c, 0) for c in causes)


def truly_idle(path, part=None):
    """What the simulated GPUs' model decided: from each device's first kernel to its last, the time
    in which none ran. Of one part: of its process, or what ended with a kernel of its name."""
    spans = {}
    if part and part.startswith("rank"):
        path, part = trace_of_rank(path, part.split()[1]), None
    with open(path) as f:
        for line in f:
            words = line.split(None, 10)
            if words and words[0] in ("kernel", "graph"):
                spans.setdefault(words[2], []).append((int(words[4]), int(words[5]), words[-1].strip()))
    dlbpf.check(spans, "no kernel ran on the simulated GPU")
    return sum(idle_between(sorted(s), part) for s in spans.values())


def trace_of_rank(truth, rank):
    return f"{truth}.{rank}"


def idle_between(spans, part=None):
    """Of sorted (start, end, name), or only before those of a name."""
    idle, end = 0, spans[0][1]
    for start, stop, *name in spans[1:]:
        if start > end and part in (None, *name):
            idle += start - end
        end = max(end, stop)
    return idle


def part_of(report, said, part):
    """The trainer or the loader of the report that is judged."""
    kind, number = part.split()
    if kind == "rank":
        line = next(line for line in said if line["rank"] == number)
        found = [t for t in report["trainers"] if t["pid"] == line["done"]]
    else:
        found = [x for x in report["loaders"] if x["index"] == int(number)]
    dlbpf.check(found, f"the report has no {part}: {report['trainers']} {report['loaders']}")
    return found[0]


def observed(r):
    return sum(d["end_ns"] - d["start_ns"] for d in r["devices"]) or r["waits"]["wall_ns"]


def verdict_of(r):
    if r["verdict"]["healthy"]:
        return "healthy"
    return r["verdict"]["cause"] or "none"


def environment(row, truth):
    """CUDA simulated or absent. Waiting for the simulated GPU sleeps: there are few CPUs here, and a
    spinning trainer would be a second fault."""
    env = dict(dlbpf.gpu_env() if row.gpu == "sim" else os.environ, OMP_NUM_THREADS="1", GPUSIM_QUIET="1",
               **row.scenario.env)
    env.setdefault("GPUSIM_WAIT", "block")
    if row.gpu == "sim":
        env["GPUSIM_TRUTH"] = truth
    return env


def run(row, dose, place, folder, name, python):
    """Records one run; the trace stays in the folder."""
    s = row.scenario
    trace, truth = os.path.join(folder, name + ".dlbpf"), os.path.join(folder, name + ".truth")
    given = {"form": row.form, "dose": dose, "gpu": row.gpu, "place": getattr(place, "params", {}),
             "batches": row.form.get("batches", s.batches)}
    command = [python, "-B", TRAIN, s.name, json.dumps(given)]
    if place:
        command = place.command(command, dose)
    recording = dlbpf.record(command, trace, env=environment(row, truth), timeout=s.timeout)
    said = [line for line in recording.lines() if "done" in line]
    dlbpf.check(said, f"the training did not finish: {recording.stdout[-300:]} {recording.stderr[-700:]}")
    r = dlbpf.report(trace)
    known = {"dose": dose, "said": said, "lost_ns": truly_lost(row, said, truth),
             "strangers": dlbpf.Machine.last.strangers(r)}
    with open(trace[:-6] + ".json", "w") as f:
        json.dump(known, f)
    return result(row, known, r, trace)


def again(row, trace):
    """The result of a run that was kept, as dlbpf has it now."""
    with open(trace[:-6] + ".json") as f:
        return result(row, json.load(f), dlbpf.report(trace), trace)


def truly_lost(row, said, truth):
    part = row.scenario.part
    if row.gpu == "sim":
        return truly_idle(truth, part)
    if part and part.startswith("rank"):
        said = [line for line in said if line["rank"] == part.split()[1]]
    return sum(line["parts"].get(part, line["waited_ns"]) for line in said)


def result(row, known, r, trace):
    dlbpf.check(r["trace"]["complete"], "the trace is not complete")
    dlbpf.check(bool(r["devices"]) == (row.gpu == "sim"), f"{len(r['devices'])} devices with GPU data {row.gpu!r}")
    causes, estimated = {}, {}
    for c in dlbpf.charges(r):
        causes[c["cause"]] = causes.get(c["cause"], 0) + c["ns"]
        estimated[c["cause"]] = estimated.get(c["cause"], 0) + c["estimated_ns"]
    judged = r
    if row.scenario.part:
        judged = part_of(r, known["said"], row.scenario.part)
        causes = judged["causes"]
    return Result(known["dose"], known["lost_ns"], sum(causes.values()), causes, estimated, verdict_of(judged),
                  r["trace"]["lost"], known["strangers"], r, trace, observed(r))
