#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What only a machine with an NVIDIA GPU and PyTorch can show, in less than five minutes: `make check-gpu`.

    real.py [--sim] [NAME]

Real training loops (tests/workloads/train.py) are recorded and judged, and what recording costs is printed
beside torch.profiler. --sim runs the same on the GPU made of software, to try this script itself.
$DLBPF_PYTHON, else $VIRTUAL_ENV, else python3 is the Python whose PyTorch is used.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "support")]

import dlbpf  # noqa: E402
from dlbpf import check, need  # noqa: E402

COLLECTOR = os.path.join(dlbpf.BUILD, "libdlbpf_cupti.so")
SIM = "--sim" in sys.argv
FLUSH_NS = 100_000_000
QUICK = ["--data", "python", "--sample-ms", "0.2", "--batch", "4", "--workers", "2"]

PROBE = """
import torch
print(torch.cuda.is_available() and torch.cuda.get_device_name(0) or "", torch.__version__, torch.version.cuda, sep="|")
"""

# A training loop under torch.profiler for its last half: steps a second with and without.
PROFILED = """
import sys, time, torch
x = torch.randn(512, 512, device="cuda")
def steps(seconds):
    n, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            y = x @ x
        torch.cuda.synchronize()
        n += 20
    return n / seconds
steps(1)
if sys.argv[1] == "profile":
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA,
                                            torch.profiler.ProfilerActivity.CPU]):
        print(steps(4))
else:
    print(steps(4), flush=True)
"""


def python():
    named = os.environ.get("DLBPF_PYTHON")
    venv = os.environ.get("VIRTUAL_ENV")
    return named or (os.path.join(venv, "bin", "python") if venv else shutil.which("python3"))


def machine():
    """Skips all without a GPU; prints what there is."""
    if SIM:
        return "simulated GPU"
    need(shutil.which("nvidia-smi") or os.path.exists("/dev/nvidia0"), "no NVIDIA GPU on this machine")
    p = subprocess.run([python(), "-c", PROBE], capture_output=True, text=True, timeout=120)
    need(p.returncode == 0, f"{python()} has no PyTorch: {p.stderr.strip()[-200:]}")
    name, torch, cuda = p.stdout.strip().split("|")
    need(name, f"PyTorch {torch} sees no GPU")
    return f"{name}, PyTorch {torch}, CUDA {cuda}"


def environment(collector=True):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("CUDA_INJECTION64_PATH", None)
    if collector:
        env["CUDA_INJECTION64_PATH"] = COLLECTOR
    if SIM:
        env.update(GPUSIM_LIB=os.path.join(dlbpf.BUILD, "gpusim"), GPUSIM_QUIET="1")
    return env


def train(*options):
    return [python(), dlbpf.TRAIN, "--gpu", "sim" if SIM else "cuda", *QUICK, *options]


def recorded(trace, *options, record=(), collector=True):
    rec = dlbpf.record(train(*options), trace, options=record, env=environment(collector), timeout=120)
    return rec.done(), dlbpf.report(trace)


# --- what is recorded -------------------------------------------------------------------------------------

def contract():
    """The tests of CUPTI's layouts and numbers, with the libraries of this machine."""
    p = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "gpu", "test_contract.py")], capture_output=True,
                       text=True, timeout=120, env={**os.environ, "DLBPF_BUILD": dlbpf.BUILD})
    check(p.returncode == 0, p.stdout[-600:])


def every_kernel_and_copy(folder, pin):
    trace = os.path.join(folder, "t.dlbpf")
    done, r = recorded(trace, "--batches", "200", "--kernels", "5", *(["--pin"] if pin else []))
    source = r["trace"]["gpu_source"]
    check(source.startswith("CUPTI"), source)
    check(SIM or "simulated" not in source, source)
    kernels, copies = dlbpf.dump(trace, "gpu_kernel"), dlbpf.dump(trace, "gpu_memcpy")
    check(len(kernels) >= 5 * done["batches"], f"{len(kernels)} kernels of {done['batches']} batches of 5")
    kind = 2 if pin else 1
    to_device = [c for c in copies if c["dir"] in (1, "htod")]
    check(len(to_device) >= done["batches"], f"{len(to_device)} copies of {done['batches']} batches")
    host = [c for c in to_device if c["src"] in (kind, "pinned" if pin else "pageable")]
    check(len(host) >= 0.9 * done["batches"], f"{len(host)} of {len(to_device)} copies are of that memory: "
          f"{sorted({str(c['src']) for c in to_device})}")
    calls = {c["corr"]: c for c in dlbpf.dump(trace, "gpu_api")}
    asked = [(k, calls[k["corr"]]) for k in kernels if k["corr"] in calls]
    check(len(asked) >= 0.9 * len(kernels), f"{len(asked)} of {len(kernels)} kernels have their call")
    check(all(c["tid"] for _, c in asked), "a call without its thread")
    early = [(c["ts"] - k["ts"]) / 1e3 for k, c in asked if k["ts"] < c["ts"]]
    check(len(early) <= 0.01 * len(asked), f"{len(early)} of {len(asked)} kernels start before their call, by up to "
          f"{max(early, default=0):.0f} us: the clocks do not agree")
    check(r["trace"]["lost"] == 0, f"{r['trace']['lost']} events were lost")


def verdict(folder, want, *options):
    done, r = recorded(os.path.join(folder, "t.dlbpf"), "--seconds", "6", *options)
    check(r["verdict"]["cause"] == want, f"{r['verdict']['cause']}, not {want}: {dlbpf.describe(r)}")


def late_attach(folder, inject=False):
    """The collector sleeps until a recorder comes, seconds after the first kernel; or there is none yet."""
    p = subprocess.Popen(train("--seconds", "14"), env=environment(not inject), stdout=subprocess.DEVNULL)
    try:
        time.sleep(6 if not SIM else 3)
        trace = os.path.join(folder, "t.dlbpf")
        dlbpf.record_pid(p.pid, trace, 4, options=["--inject"] if inject else [])
        r = dlbpf.report(trace)
        check(r["trace"]["gpu_source"].startswith("CUPTI"), r["trace"]["gpu_source"])
        check(r["devices"] and r["devices"][0]["kernels"] > 100, "no kernels")
    finally:
        p.kill()
        p.wait()


def killed(folder):
    """How much of the end is missing when the process is killed."""
    trace = os.path.join(folder, "t.dlbpf")
    p = subprocess.Popen([dlbpf.DLBPF, "record", "-o", trace, "--", *train("--seconds", "60")], env=environment(),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(12 if not SIM else 5)
        kids = open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()
        check(kids, "the training did not start")
        when = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.kill(int(kids[0]), signal.SIGKILL)
        p.wait(timeout=30)
    finally:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
    last = max((k["end"] for k in dlbpf.dump(trace, "gpu_kernel")), default=0)
    check(last, "no kernels")
    missing = when - last
    print(f"#   killed: the last {missing / 1e6:.0f} ms of kernels are missing", flush=True)
    check(missing < 5 * FLUSH_NS, f"the last {missing / 1e6:.0f} ms are missing")


def uprobes(folder):
    """Without the collector: do probes on the driver's exported functions fire?"""
    done, r = recorded(os.path.join(folder, "t.dlbpf"), "--seconds", "6", record=["--gpu", "uprobes"], collector=False)
    check(r["trace"]["gpu_source"].startswith("uprobes"), r["trace"]["gpu_source"])
    calls = dlbpf.dump(os.path.join(folder, "t.dlbpf"), "gpu_api")
    # Probes go on within a second of the first use of CUDA.
    check(len(calls) >= done["batches"] / 2, f"{len(calls)} calls of {done['batches']} batches")


def taken_over(folder):
    """torch.profiler, started during a recording, is noticed."""
    need(not SIM, "torch.profiler needs a real CUPTI")
    trace = os.path.join(folder, "t.dlbpf")
    rec = dlbpf.record([python(), "-c", PROFILED.replace("steps(4)", "steps(8)"), "profile"], trace,
                       env=environment(), timeout=120)
    check(rec.rc == 0, rec.stderr[-300:])
    source = dlbpf.report(trace)["trace"]["gpu_source"]
    # From CUPTI 13.3 on it is known when the other tool is done, and the records are taken up again.
    check("busy" in source or "another tool" in source, f"gpu_source is {source}")


# --- what it costs ----------------------------------------------------------------------------------------

def rate(folder, how):
    """Steps a second of a launch-bound loop."""
    command = [python(), "-c", PROFILED, "profile" if how == "torch.profiler" else "plain"]
    env = environment(how not in ("nothing", "torch.profiler"))
    if how in ("light", "std", "full"):
        rec = dlbpf.record(command, os.path.join(folder, "t.dlbpf"), options=["--gpu", how], env=env, timeout=120)
        return float(rec.stdout.split()[-1])
    return float(subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True).stdout)


def overhead(folder):
    need(not SIM, "costs of a simulated GPU mean nothing")
    modes = ["nothing", "dormant", "light", "std", "full", "torch.profiler"]
    found = {m: [] for m in modes}
    for n in range(2):
        for m in (modes if n % 2 == 0 else modes[::-1]):
            found[m].append(rate(folder, m))
    base = statistics.mean(found["nothing"])
    for m in modes:
        print(f"#   {m:15} {statistics.mean(found[m]):9.0f} kernels/s  x{statistics.mean(found[m]) / base:.3f}  "
              f"({', '.join(f'{v / base:.3f}' for v in found[m])})", flush=True)
    dormant = statistics.mean(found["dormant"]) / base
    check(dormant > 0.9, f"a collector that sleeps costs {1 - dormant:.0%}")


TESTS = {
    "contract": lambda d: contract(),
    "every_kernel_and_copy_pageable": lambda d: every_kernel_and_copy(d, False),
    "every_kernel_and_copy_pinned": lambda d: every_kernel_and_copy(d, True),
    "a_slow_loader_is_decode": lambda d: verdict(d, "decode", "--data", "python", "--sample-ms", "10"),
    "a_sleeping_loader_is_sleep": lambda d: verdict(d, "sleep", "--data", "sleep", "--sample-ms", "10"),
    "late_attach": late_attach,
    "injected": lambda d: late_attach(d, inject=True),
    "killed": killed,
    "uprobes": uprobes,
    "torch_profiler_is_noticed": taken_over,
    "overhead": overhead,
}


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    tests = dlbpf.Tests()
    try:
        need(os.geteuid() == 0, "recording needs root")
        print(f"# {machine()}", flush=True)
    except dlbpf.Skip as e:
        print(f"skip all {len(TESTS)} checks of a real GPU: {e}")
        return 0
    for name, fn in TESTS.items():
        if names and not any(n in name for n in names):
            continue
        with dlbpf.scratch() as folder:
            started = time.monotonic()
            tests.run(name, fn, folder)
            print(f"#   {time.monotonic() - started:.0f} s", flush=True)
    return 1 if tests.failed else 0


if __name__ == "__main__":
    sys.exit(main())
