#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 600
"""CUDA without the collector, on the simulated GPU: the calls that uprobes see are those that the
doubles say they got; reports name the source and charge what was planted. Names on the command line
select."""

import collections
import contextlib
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

SIM = os.path.join(dlbpf.BUILD, "gpusim")
GPUSIM = os.path.join(dlbpf.ROOT, "tests", "gpusim")
SECONDS = "5"
RUNTIME = 1  # enum dl_gpu_domain
SIM_RUNTIME = 2  # enum sim_domain
LAUNCHES = {211, 13, 269, 430}
WATCHED = {20, 22, 26, 27, 41, 131, 137, 165, 211, 311, 418}  # of the runtime, as tests/gpusim numbers them

# Two threads that do different things, once it is probed.
WORK = """
import os, sys, threading, time
sys.path.insert(0, %r)
import gpusim
dev = gpusim.Device()
def one():
    s = dev.stream()
    for i in range(40):
        s.h2d(3000000)
        s.kernels(25, ms=1)
        s.synchronize()
        s.d2h(4)
def two():
    s = dev.stream()
    for i in range(30):
        dev.free(dev.alloc(1 << 20))
        s.h2d(100000, pinned=True, non_blocking=True)
        s.memset(4096)
        dev.graph(ms=1).launch(s)
        s.record().synchronize()
dev.stream().kernel(us=1)
dev.synchronize()
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
threads = [threading.Thread(target=f) for f in (one, two)]
[t.start() for t in threads]
[t.join() for t in threads]
dev.synchronize()
time.sleep(0.5)
""" % GPUSIM


def sim_env(**more):
    need(os.path.isdir(SIM), f"no simulated GPU in {SIM}")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "GPUSIM_"))}
    return dict(env, GPUSIM_LIB=SIM, GPUSIM_QUIET="1", DLBPF_PYTHON=dlbpf.PYTHON, **more)


@contextlib.contextmanager
def target(command, env):
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env)
    try:
        equal(p.stdout.readline().strip(), "up", "the target's first line")
        yield p
    finally:
        p.kill()
        p.wait()
        p.stdout.close()


def sources(trace):
    """What was said of GPU data so far; the trace can be read while it is written."""
    p = subprocess.run([dlbpf.DLBPF, "dump", "--json", "--kind", "gpu_source", trace], capture_output=True, text=True)
    return [line for line in p.stdout.splitlines() if line]


def recorded(where, p, *options, until=lambda trace: sources(trace), go=None):
    """Records a running target until it ends; go: is made when `until` holds."""
    trace = os.path.join(where, "t.dlbpf")
    rec = subprocess.Popen([dlbpf.DLBPF, "record", "--no-report", "-o", trace, *options, "-p", str(p.pid)],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        dlbpf.wait_until(lambda: os.path.exists(trace) and until(trace), 20, "word on the source of GPU data")
        if go:
            open(go, "w").close()
        stderr = rec.communicate(timeout=60)[1]
    finally:
        dlbpf.stop(rec)
    equal(rec.returncode, 0, f"the exit code ({stderr[-400:]})")
    return trace


class Truth:
    """What the doubles got: calls in order of their end, of each thread in order."""

    def __init__(self, path):
        self.calls = collections.defaultdict(list)
        with open(path) as f:
            for line in f:
                kind, *rest = line.split()
                if kind != "call":
                    continue
                _, tid, domain, cbid, start, end = map(int, rest)
                if domain == SIM_RUNTIME and cbid in WATCHED:
                    self.calls[tid].append((cbid, start, end))

    def since(self, ts):
        return {tid: [c for c in calls if c[1] >= ts] for tid, calls in self.calls.items()
                if any(c[1] >= ts for c in calls)}


def by_thread(events):
    found = collections.defaultdict(list)
    for e in sorted(events, key=lambda e: e["ts"]):
        check(e["domain"] == RUNTIME, f"a call of the driver is not inside one of the runtime: {e}")
        found[e["tid"]].append(e)
    return found


def compare(truth, events, with_launches):
    """The same calls in the same threads in the same order, and each within its probes."""
    for tid, calls in truth.items():
        want = [c for c in calls if with_launches or c[0] not in LAUNCHES]
        got = [e for e in events.get(tid, []) if with_launches or e["cbid"] not in LAUNCHES]
        equal([e["cbid"] for e in got], [c[0] for c in want], f"the calls of thread {tid}")
        for e, (cbid, start, end) in zip(got, want):
            check(e["ts"] <= start and end <= e["end"],
                  f"call {cbid} ran from {start} to {end}, its probes from {e['ts']} to {e['end']}")
    equal(sorted(events), sorted(truth), "threads with calls")


def run_work(where, options, env=None, command=None):
    path, go = os.path.join(where, "truth"), os.path.join(where, "go")
    command = command or [dlbpf.PYTHON, "-c", WORK, go]
    with target(command, env or sim_env(GPUSIM_TRUTH=path)) as p:
        trace = recorded(where, p, *options, go=go)
    return trace, p.pid, Truth(path)


def source_of(trace):
    found = dlbpf.dump(trace, "gpu_source")
    check(found, "no word on the source of GPU data")
    return found[0]


# --- the calls ------------------------------------------------------------------------------------


def every_call(where):
    """--gpu full: each call of the runtime, and nothing of the driver inside it."""
    trace, pid, truth = run_work(where, ["--gpu", "full"])
    source = source_of(trace)
    equal((source["names"]["state"], source["pid"]), ("uprobes", pid), "the source")
    check("libcuda.so.1" in source["text"] and "libcudart.so.12" in source["text"], source["text"])
    check(source["flags"] & 1, "it does not say that the GPU is simulated")
    want = truth.since(source["ts"])
    equal(len(want), 3, "the number of threads that called")
    events = by_thread(e for e in dlbpf.dump(trace, "gpu_api") if e["cbid"] in WATCHED)
    compare(want, events, True)
    copies = [e for e in events[min(want, key=lambda t: -len(want[t]))] if e["cbid"] == 41]
    equal({(e["bytes"], e["names"]["dir"]) for e in copies}, {(3000000, "host-to-device"), (4, "device-to-host")},
          "size and direction of copies")


def sparse_launches(where):
    """As it is by default: launches are counted, and kept now and then; all others are kept."""
    trace, _, truth = run_work(where, ["--gpu", "uprobes"])
    want = truth.since(source_of(trace)["ts"])
    all_events = dlbpf.dump(trace, "gpu_api")
    events = by_thread(e for e in all_events if e["cbid"] in WATCHED)
    compare(want, events, False)
    for tid, calls in want.items():
        launches = [e for e in events[tid] if e["cbid"] in LAUNCHES]
        told = len(launches) + sum(e["skipped"] for e in all_events if e["tid"] == tid)
        equal(told, sum(c[0] in LAUNCHES for c in calls), f"launches of thread {tid}, kept and left out")
        check(all(e["ts"] == e["end"] for e in launches), "a launch has a length")


def light(where):
    trace, _, truth = run_work(where, ["--gpu", "light"])
    events = dlbpf.dump(trace, "gpu_api")
    check(events, "no calls")
    check(not [e for e in events if e["cbid"] in LAUNCHES], "launches are probed")


def off(where):
    """Neither asked for: nothing is probed, and nothing said."""
    for options in (["--gpu", "off"], ["--no-uprobes"]):
        go = os.path.join(where, "go")
        with target([dlbpf.PYTHON, "-c", WORK, go], sim_env()) as p:
            open(go, "w").close()
            trace = os.path.join(where, "t.dlbpf")
            dlbpf.record_pid(p.pid, trace, 2, ["--no-report", *options])
        equal(dlbpf.dump(trace, "gpu_api"), [], f"calls with {options}")
        equal(dlbpf.dump(trace, "gpu_source"), [], f"sources with {options}")
        os.unlink(go)


def own_mounts(where):
    """The libraries lie where only the target sees them."""
    path, go = os.path.join(where, "truth"), os.path.join(where, "go")
    inside = os.path.join(where, "private")
    os.mkdir(inside)
    script = f'mount -t tmpfs none {inside} && cp -L {SIM}/lib*.so* {inside}/ && exec "$@"'
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", dlbpf.PYTHON, "-c", WORK, go]
    trace, _, truth = run_work(where, ["--gpu", "full"], sim_env(GPUSIM_TRUTH=path) | {"GPUSIM_LIB": inside}, command)
    check(not os.listdir(inside), "the libraries are not private to the target")
    events = by_thread(e for e in dlbpf.dump(trace, "gpu_api") if e["cbid"] in WATCHED)
    compare(truth.since(source_of(trace)["ts"]), events, True)


# A program that has the runtime linked in.
STATIC = r"""
#include <stdio.h>
#include <unistd.h>
int cudaDeviceSynchronize(void);
int main(int argc, char **argv)
{
	cudaDeviceSynchronize();
	puts("up");
	fflush(stdout);
	while (argc > 1 && access(argv[1], F_OK))
		usleep(20000);
	for (int i = 0; i < 50; i++)
		cudaDeviceSynchronize();
	usleep(500000);
	return 0;
}
"""


def build_static(where, *flags):
    source, program = os.path.join(where, "main.c"), os.path.join(where, "main")
    with open(source, "w") as f:
        f.write(STATIC)
    p = subprocess.run([os.environ.get("CC", "gcc"), "-std=gnu17", "-O1", "-D_GNU_SOURCE", "-fvisibility=hidden",
                        "-I" + os.path.join(dlbpf.ROOT, "include"), *flags, source, os.path.join(GPUSIM, "runtime.c"),
                        os.path.join(SIM, "libcuda.so.1"), "-Wl,-rpath," + SIM, "-o", program],
                       capture_output=True, text=True)
    equal(p.returncode, 0, f"gcc ({p.stderr[-400:]})")
    return program


def static_runtime(where):
    path, go = os.path.join(where, "truth"), os.path.join(where, "go")
    program = build_static(where)
    trace, _, truth = run_work(where, [], sim_env(GPUSIM_TRUTH=path), [program, go])
    check("calls of main" in source_of(trace)["text"], source_of(trace)["text"])
    events = by_thread(e for e in dlbpf.dump(trace, "gpu_api"))
    compare(truth.since(source_of(trace)["ts"]), events, True)
    equal(len(dlbpf.dump(trace, "gpu_api")), 50, "calls")


def stripped_program(where):
    """No symbols of the runtime are left: the driver's calls are what there is."""
    go = os.path.join(where, "go")
    program = build_static(where, "-s")
    trace, _, _ = run_work(where, [], sim_env(GPUSIM_TRUTH=os.path.join(where, "truth")), [program, go])
    events = dlbpf.dump(trace, "gpu_api")
    equal([(e["names"]["domain"], e["names"]["class"]) for e in events], [("driver", "sync")] * 50, "the calls")


def no_symbols(where):
    """A libcuda.so.1 that exports none of the calls: said, and the recording goes on."""
    lib = os.path.join(where, "libcuda.so.1")
    p = subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-x", "c", "-", "-o", lib],
                       input="int nothing(void) { return 0; }", capture_output=True, text=True)
    equal(p.returncode, 0, f"gcc ({p.stderr[-400:]})")
    code = "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); print('up', flush=True); time.sleep(60)"
    with target([dlbpf.PYTHON, "-c", code, lib], sim_env()) as p:
        trace = os.path.join(where, "t.dlbpf")
        dlbpf.record_pid(p.pid, trace, 2)
    said = [a["text"] for a in dlbpf.dump(trace, "absent") if "no symbols" in a["text"]]
    equal(len(said), 1, f"reasons ({dlbpf.dump(trace, 'absent')})")
    check(str(p.pid) in said[0], said[0])
    check(dlbpf.report(trace)["trace"]["complete"], "the trace is not complete")


# --- beside the collector ---------------------------------------------------------------------------


def with_collector(where, **env):
    return dict(sim_env(GPUSIM_TRUTH=os.path.join(where, "truth"), **env),
                CUDA_INJECTION64_PATH=dlbpf.gpu_env()["CUDA_INJECTION64_PATH"])


def collector_first(where):
    """A collector that gives records: no probes."""
    trace, _, _ = run_work(where, [], with_collector(where))
    equal({s["names"]["state"] for s in dlbpf.dump(trace, "gpu_source")} - {"stopped"}, {"collector"}, "the sources")
    check(dlbpf.dump(trace, "gpu_kernel"), "no kernels")


def busy_collector(where):
    """Another tool holds CUPTI: probes instead, and the report says why."""
    def probed(trace):
        return any('"uprobes"' in line for line in sources(trace))

    go = os.path.join(where, "go")
    with target([dlbpf.PYTHON, "-c", WORK, go], with_collector(where, GPUSIM_CUPTI_BUSY="1")) as p:
        trace = recorded(where, p, until=probed, go=go)
    check(dlbpf.dump(trace, "gpu_api"), "no calls")
    source = dlbpf.report(trace)["trace"]["gpu_source"]
    check(source.startswith("uprobes") and "libcupti" in source or "CUPTI" in source, source)


# --- the report -----------------------------------------------------------------------------------------


def train(where, *options):
    trace = os.path.join(where, "t.dlbpf")
    command = [dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--seconds", SECONDS, "--gpu", "sim", *options]
    rec = dlbpf.record(command, trace, ["--gpu", "uprobes"], env=sim_env())
    r = dlbpf.report(trace)
    check(r["trace"]["gpu_source"].startswith("uprobes ("), r["trace"]["gpu_source"])
    check(r["trace"]["simulated"] and not r["trace"]["has_gpu"], "the report claims to know what the GPU ran")
    check("calls" in r["waits"], "no calls")
    said = rec.done()
    callers = {e["pid"] for e in dlbpf.dump(trace, "gpu_api")}
    equal(callers, {said["done"]}, "processes whose calls were recorded")
    return said, r, trace


def slow_loader(where):
    _, r, trace = train(where, "--data", "python", "--sample-ms", "8", "--batch", "4", "--workers", "1",
                        "--kernel-ms", "3")
    dlbpf.verdict_is(r, "decode", 0.3)
    text = dlbpf.report_text(trace)
    check("What the GPU ran is not known" in text, "the report does not say what it lacks")
    check("WAITING FOR BATCHES AND CALLS" in text, text[:400])


def pageable_copies(where):
    """A step that copies 256 MiB from pageable memory, on an idle GPU."""
    _, r, _ = train(where, "--data", "small", "--kernel-ms", "1", "--copy-mib", "256", "--sync-every", "1")
    dlbpf.verdict_is(r, "pcie", 0.5)
    calls = r["waits"]["calls"]
    pcie = sum(c["ns"] for c in r["waits"]["causes"] if c["cause"] == "pcie")
    check(calls["copy_bytes"] >= 256 << 20, f"copies of {calls['copy_bytes']} bytes")
    check(0 < pcie <= calls["copy_ns"], f"{pcie} ns are charged, {calls['copy_ns']} ns were copies")


def item_loop(where):
    """Kernels longer than everything else and a synchronise behind each: the trainer waits for the GPU, which
    works, and nothing is to blame."""
    _, r, _ = train(where, "--data", "small", "--kernel-ms", "40", "--sync-every", "1")
    calls, waits = r["waits"]["calls"], r["waits"]
    check(calls["gpu_waits"] > 10, f"{calls['gpu_waits']} synchronising calls")
    check(calls["gpu_wait_ns"] > waits["total_ns"], f"waited {calls} for the GPU, {waits['total_ns']} for all else")
    check("sync" not in {c["cause"] for c in waits["causes"]}, "waiting for a GPU that works is charged")
    # Where importing took longer than training, it is not worth a word.
    said = "waited for the GPU, which was at work" in r["verdict"]["text"]
    equal(said, calls["gpu_wait_ns"] * 10 > waits["wall_ns"], f"said of {waits}: {r['verdict']['text']}")


CASES = [every_call, sparse_launches, light, off, own_mounts, static_runtime, stripped_program, no_symbols,
         collector_first, busy_collector, slow_loader, pageable_copies, item_loop]


def probes_are_off():
    """The kernel takes probes off one after the other, long after a recorder has ended, and puts none on meanwhile: a
    process named dlbpf is at it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                name, rest = f.read().rsplit(")", 1)
        except OSError:
            continue
        if name.endswith("(dlbpf") and rest.split()[0] != "Z":
            return False
    return True


def have_uprobes():
    need(os.path.exists("/sys/bus/event_source/devices/uprobe/type"),
         "this kernel has no uprobes (CONFIG_UPROBE_EVENTS)")


def main():
    tests = dlbpf.Tests("uprobes_")
    for fn in CASES:
        if len(sys.argv) > 1 and fn.__name__ not in sys.argv[1:]:
            continue
        dlbpf.wait_until(probes_are_off, 60, "end of the probes of the case before")
        with dlbpf.scratch() as where:
            tests.run(fn.__name__, lambda w, f=fn: (have_uprobes(), f(w)), where)
    tests.exit()


if __name__ == "__main__":
    main()
