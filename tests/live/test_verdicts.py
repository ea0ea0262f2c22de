#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 900
"""Real DataLoader runs with one planted bottleneck each: the report has to name it, with less than
3 % unexplained and causes that add up. Names on the command line select."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402
from throttle import SlowDisk  # noqa: E402

SECONDS = "6"


def train(*options, python=dlbpf.PYTHON):
    return [python, "-B", dlbpf.TRAIN, "--seconds", SECONDS, *options]


def run(where, command, env=None, name="trace"):
    """Records the command; returns its last words and the report."""
    trace = os.path.join(where, f"{name}.dlbpf")
    rec = dlbpf.record(command, trace, env=env)
    r = dlbpf.report(trace)
    check(r["trace"]["complete"], "the trace is not complete")
    return rec.done(), r


def has_gpu(r):
    check(len(r["devices"]) == 1, f"there is data of {len(r['devices'])} devices")
    check("simulated" in r["trace"]["gpu_source"], f"the source does not say that it is simulated: "
          f"{r['trace']['gpu_source']}")
    check(r["devices"][0]["busy_ns"] > 0, "the device was never busy")


def roles(r, said, workers):
    found = [p["role"] for p in r["processes"]]
    trainer = [p for p in r["processes"] if p["pid"] == said["done"]]
    check(trainer and trainer[0]["role"] == "trainer", f"the trainer {said['done']} is not one: {found}")
    check(found.count("worker") >= workers, f"{found.count('worker')} workers of {workers}: {found}")


# --- with the simulated GPU -------------------------------------------------------------------


def gpu_decode(where):
    """JPEG decode with 2 workers; kernels shorter than the decode."""
    said, r = run(where, train("--data", "jpeg", "--gpu", "sim", "--kernel-ms", "3"), dlbpf.gpu_env())
    has_gpu(r)
    roles(r, said, 2)
    dlbpf.verdict_is(r, "decode", 0.3)


def gpu_storage(where):
    """Workers read through a loop device limited to 20 MB/s."""
    with SlowDisk(20 << 20) as disk:
        command = train("--data", "storage", "--data-dir", disk.mount, "--batch", "4", "--gpu", "sim",
                        "--kernel-ms", "3", "--storage-bps", str(disk.bps))
        said, r = run(where, disk.enter(command), dlbpf.gpu_env())
    has_gpu(r)
    roles(r, said, 2)
    dlbpf.verdict_is(r, "storage", 0.5)


def gpu_pcie(where):
    """No pinned memory, and copies that take far longer than the batch."""
    said, r = run(where, train("--data", "small", "--gpu", "sim", "--kernel-ms", "3", "--copy-mib", "256"),
                  dlbpf.gpu_env())
    has_gpu(r)
    dlbpf.verdict_is(r, "pcie", 0.5)
    copies = [c for c in r.get("copies", []) if c.get("memory") == "pageable" or c.get("mem") == "pageable"]
    check(copies, f"no pageable copies in {r.get('copies')}")


def gpu_host(where):
    """The trainer computes 30 ms in Python between the steps."""
    said, r = run(where, train("--data", "small", "--gpu", "sim", "--kernel-ms", "3", "--host-ms", "30"),
                  dlbpf.gpu_env())
    has_gpu(r)
    dlbpf.verdict_is(r, "host", 0.5)


def gpu_busy(where):
    """Kernels longer than everything else: the device is the limit, and nothing is to blame."""
    said, r = run(where, train("--data", "small", "--gpu", "sim", "--kernel-ms", "40", "--sync-every", "1"),
                  dlbpf.gpu_env())
    has_gpu(r)
    device = r["devices"][0]
    span = device["busy_ns"] + device["collective_ns"] + device["idle_ns"]
    expected = device["kernels"] * 10_000_000
    check(abs(device["busy_ns"] - expected) < 0.01 * expected + 10_000_000,
          f"busy {device['busy_ns'] / 1e9:.3f} s, {device['kernels']} kernels of 10 ms are {expected / 1e9:.3f} s")
    check(device["kernels"] > 0.5 * 4 * said["batches"], f"{device['kernels']} kernels of {4 * said['batches']}")
    check(device["busy_ns"] > 0.4 * span, f"busy {device['busy_ns'] / span:.0%} of the time only")


# --- without GPU data: the trainer's waits ------------------------------------------------------


def decode(where):
    said, r = run(where, train("--data", "jpeg"))
    roles(r, said, 2)
    dlbpf.verdict_is(r, "decode", 0.3)


def decode_python(where):
    """Decoding in pure Python: the hand-over waits for the worker's interpreter, yet decode is it."""
    said, r = run(where, train("--data", "python", "--workers", "1", "--sample-ms", "2.5"))
    roles(r, said, 1)
    dlbpf.verdict_is(r, "decode", 0.5)


def slow_sample(where):
    said, r = run(where, train("--data", "sleep", "--sample-ms", "5"))
    roles(r, said, 2)
    dlbpf.verdict_is(r, "sleep", 0.5)


def storage(where):
    with SlowDisk(20 << 20) as disk:
        command = train("--data", "storage", "--data-dir", disk.mount, "--batch", "4")
        said, r = run(where, disk.enter(command))
    roles(r, said, 2)
    dlbpf.verdict_is(r, "storage", 0.5)


def no_workers(where):
    """num_workers=0, PyTorch's default: the data set runs in the trainer, which never waits."""
    said, r = run(where, train("--data", "python", "--workers", "0", "--gpu", "sim", "--kernel-ms", "3"),
                  dlbpf.gpu_env())
    has_gpu(r)
    check(r["verdict"]["cause"] in ("decode", "host"), f"the verdict is {r['verdict']['cause']}: {dlbpf.describe(r)}")
    text = " ".join([r["verdict"]["text"], *r["verdict"]["actions"]])
    check("num_workers" in text, f"no advice to use workers: {text}")


def no_workers_storage(where):
    with SlowDisk(20 << 20) as disk:
        command = train("--data", "storage", "--data-dir", disk.mount, "--batch", "4", "--workers", "0",
                        "--gpu", "sim", "--kernel-ms", "3")
        said, r = run(where, disk.enter(command), dlbpf.gpu_env())
    has_gpu(r)
    dlbpf.verdict_is(r, "storage", 0.5)


def thread_loader(where):
    """A loader made of threads: no processes, no pipes."""
    said, r = run(where, train("--data", "jpeg", "--threads"))
    dlbpf.verdict_is(r, "decode", 0.2, unexplained=0.05)


def two_loaders(where):
    """Training and validation loaders alive at once are told apart."""
    said, r = run(where, train("--data", "python", "--val-every", "3"))
    loaders = {p["loader"] for p in r["processes"] if p["role"] == "worker"}
    equal(len(loaders), 2, f"the number of loaders ({sorted(map(str, loaders))})")
    dlbpf.verdict_is(r, "decode", 0.2)


def two_trainers(where):
    """torchrun: two ranks with a worker each."""
    launch = os.path.join(dlbpf.ROOT, "tests", "workloads", "launch.py")
    command = train("--data", "python", "--workers", "1")
    command = [command[0], "-B", launch, "2", "-B", *command[2:]]
    said, r = run(where, command)
    trainers = sorted(p["pid"] for p in r["processes"] if p["role"] == "trainer")
    equal(len(trainers), 2, f"the number of trainers ({[p['role'] for p in r['processes']]})")
    ranks = sorted(p["rank"] for p in r["processes"] if p["role"] == "trainer")
    equal(ranks, [0, 1], "the ranks")
    dlbpf.verdict_is(r, "decode", 0.2)


def attach(where):
    """A recorder that comes in the middle of a run."""
    p = subprocess.Popen(train("--data", "jpeg", "--seconds", "60"), stdout=subprocess.PIPE, text=True)
    try:
        started = json.loads(p.stdout.readline())["started"]
        dlbpf.wait_until(lambda: len(dlbpf_children(started)) >= 2, 30, "worker")
        trace = os.path.join(where, "attach.dlbpf")
        dlbpf.record_pid(started, trace, 5)
        r = dlbpf.report(trace)
    finally:
        dlbpf.stop(p)
        p.stdout.close()
    found = [q["role"] for q in r["processes"]]
    check("trainer" in found and found.count("worker") == 2, f"roles are {found}")
    dlbpf.verdict_is(r, "decode", 0.3)


def dlbpf_children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return f.read().split()
    except OSError:
        return []


# --- a current PyTorch --------------------------------------------------------------------------


def torch2():
    python = os.environ.get("DLBPF_TORCH2_PYTHON")
    if not python:
        p = subprocess.run([os.path.join(dlbpf.ROOT, "tests", "support", "torch2")], capture_output=True, text=True)
        need(p.returncode == 0, (p.stderr.strip().splitlines() or ["no current PyTorch"])[-1])
        python = p.stdout.strip()
    need(os.access(python, os.X_OK), f"{python} cannot be run")
    return python


def torch2_decode(where):
    said, r = run(where, train("--data", "jpeg", "--gpu", "sim", "--kernel-ms", "3", python=torch2()),
                  dlbpf.gpu_env())
    has_gpu(r)
    roles(r, said, 2)
    dlbpf.verdict_is(r, "decode", 0.3)


def torch2_host(where):
    said, r = run(where, train("--data", "small", "--gpu", "sim", "--kernel-ms", "3", "--host-ms", "30",
                               python=torch2()), dlbpf.gpu_env())
    dlbpf.verdict_is(r, "host", 0.5)


def torch2_no_gpu(where):
    said, r = run(where, train("--data", "python", python=torch2()))
    roles(r, said, 2)
    dlbpf.verdict_is(r, "decode", 0.5)


CASES = [
    gpu_decode, gpu_storage, gpu_pcie, gpu_host, gpu_busy, decode, decode_python, slow_sample, storage, no_workers,
    no_workers_storage, thread_loader, two_loaders, two_trainers, attach, torch2_decode, torch2_host, torch2_no_gpu,
]


def main():
    tests = dlbpf.Tests("verdict: ")
    if not os.path.exists(dlbpf.DLBPF):
        sys.exit(f"{dlbpf.DLBPF} has not been built")
    wanted = sys.argv[1:]
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        with dlbpf.scratch() as where:
            os.environ["TMPDIR"] = where  # what a killed training leaves goes, too
            before = tests.failed
            tests.run(case.__name__, case, where)
            if tests.failed > before:
                for name in sorted(os.listdir(where)):
                    if name.endswith(".dlbpf"):
                        text = subprocess.run([dlbpf.DLBPF, "report", os.path.join(where, name)], capture_output=True,
                                              text=True)
                        print(f"--- report of {case.__name__}\n{text.stdout[:3000]}{text.stderr[:400]}", flush=True)
    tests.exit()


if __name__ == "__main__":
    main()
