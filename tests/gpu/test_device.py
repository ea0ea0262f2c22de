#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The simulated GPU keeps its own rules: order, engines, rates, waiting, and what a script sees."""

import glob
import os
import subprocess
import sys
import tempfile

from gputest import PRELUDE, PYTHON, SIM, TOOLS, Skip, Target, check, equal, main, read_truth, sim_env, test

US = 1000


def run(code, **env):
    """Runs a script and returns (what the model decided, what it printed)."""
    with tempfile.TemporaryDirectory() as d:
        truth = os.path.join(d, "truth")
        with Target("dev = gpusim.Device()\n" + code, GPUSIM_TRUTH=truth, CUDA_INJECTION64_PATH="", **env) as t:
            out = t.p.stdout.read()
            t.end()
        return read_truth(truth), out.split()


# columns of a truth line
CORR, DEV, STREAM, START, END, BYTES, DIR, MEM, SYNC, NAME = range(10)
CALL_CORR, CALL_TID, CALL_DOMAIN, CALL_CBID, CALL_START, CALL_END = range(6)


def calls_by_corr(truth):
    return {c[CALL_CORR]: c for c in truth["call"]}


@test
def a_stream_is_in_order():
    truth, _ = run("s = dev.stream()\nfor i in range(200): s.kernel(us=50, name='k%d' % i)\ns.synchronize()")
    k = truth["kernel"]
    equal(len(k), 200, "kernels")
    for a, b in zip(k, k[1:]):
        check(b[START] >= a[END], "two kernels of a stream overlap")
    check(all(x[END] - x[START] == 50 * US for x in k), "a kernel has another duration than asked for")


@test
def work_starts_after_it_was_submitted_and_after_its_dependencies():
    truth, _ = run("""
a, b = dev.stream(), dev.stream()
for _ in range(20):
    a.kernel(ms=1, name="first")
    ev = a.record()
    b.wait(ev)
    b.kernel(us=10, name="second")
dev.synchronize()
""")
    calls = calls_by_corr(truth)
    first = [k for k in truth["kernel"] if k[NAME] == "first"]
    second = [k for k in truth["kernel"] if k[NAME] == "second"]
    equal((len(first), len(second)), (20, 20), "kernels")
    for k in truth["kernel"]:
        check(k[START] > calls[k[CORR]][CALL_START], "a kernel started before its launch")
    for x, y in zip(first, second):
        check(y[START] >= x[END], "a stream did not wait for an event")
    for s in truth["sync"]:
        if s[SYNC] == 4:
            check(s[END] >= max(k[END] for k in truth["kernel"]), "a device was idle too early")


@test
def one_copy_engine_a_direction():
    truth, _ = run("""
a, b, c = dev.stream(), dev.stream(), dev.stream()
for _ in range(30):
    a.h2d(4 << 20, pinned=True, non_blocking=True)
    b.h2d(4 << 20, pinned=True, non_blocking=True)
    c.d2h(4 << 20, pinned=True, non_blocking=True)
    b.kernel(us=400)
dev.synchronize()
""")
    both_ways = False
    for direction in (1, 2):
        m = sorted(x for x in truth["memcpy"] if x[DIR] == direction)
        m.sort(key=lambda x: x[START])
        for x, y in zip(m, m[1:]):
            check(y[START] >= x[END], "two copies of one direction overlap")
    for x in truth["memcpy"]:
        for y in truth["memcpy"]:
            both_ways |= x[DIR] == 1 and y[DIR] == 2 and x[START] < y[END] and y[START] < x[END]
    check(both_ways, "copies of both directions never overlap")
    equal({x[MEM] for x in truth["memcpy"] if x[DIR] == 1}, {2}, "memory kind of the source")


@test
def rates_are_those_of_the_traces():
    """README.md: 19,267,584 pageable bytes in 1.94 ms, begun 160 us after the call and ended 80 us
    after its return; pinned memory on an H100 at 27.67 GB/s."""
    truth, _ = run("s = dev.stream()\nfor _ in range(5):\n    s.h2d(19267584)\n")
    calls = calls_by_corr(truth)
    for m in truth["memcpy"]:
        check(abs((m[END] - m[START]) - 1938388) < 1000, "%d ns" % (m[END] - m[START]))
        check(m[START] - calls[m[CORR]][CALL_START] >= 160 * US, "begun too early")
        check(calls[m[CORR]][CALL_END] >= m[END] - 80 * US, "the host was let go too early")
    truth, _ = run("s = dev.stream()\ns.h2d(201326592, pinned=True)\ns.h2d(8192, pinned=True)", GPUSIM_PRESET="h100")
    big, small = truth["memcpy"]
    check(abs((big[END] - big[START]) - 7274706) < 20000, "%d ns" % (big[END] - big[START]))
    check(abs((small[END] - small[START]) - 3056) < 30, "%d ns" % (small[END] - small[START]))


@test
def pageable_copies_hold_the_host_and_pinned_ones_do_not():
    truth, _ = run("""
s = dev.stream()
s.h2d(64 << 20, pinned=True, non_blocking=True)
s.synchronize()
s.h2d(64 << 20, non_blocking=True)
s.synchronize()
s.kernel(ms=30)
s.h2d(1024, non_blocking=True)
s.synchronize()
""")
    calls = calls_by_corr(truth)
    pinned, pageable, small = truth["memcpy"]
    check(calls[pinned[CORR]][CALL_END] < pinned[END], "a pinned copy held the host")
    check(calls[pageable[CORR]][CALL_END] > pageable[START] + (pageable[END] - pageable[START]) // 2,
          "a large pageable copy did not hold the host")
    check(calls[small[CORR]][CALL_END] < small[START], "a small pageable copy waited for the stream")


@test
def a_busy_host_does_not_bend_the_devices_times():
    """Twice as many burning threads as CPUs, and still work that is queued runs without holes."""
    burners = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        truth, _ = run("""
s = dev.stream()
s.kernel(ms=500, name="lead")
s.kernels(200, ms=20, name="k")
s.h2d(8 << 20, pinned=True, non_blocking=True)
s.kernel(ms=1, name="last")
s.synchronize()
""")
    finally:
        for b in burners:
            b.kill()
            b.wait()
    k = sorted(truth["kernel"] + truth["memcpy"], key=lambda x: x[START])
    # Everything was submitted in the first kernel's half second, or this host is too slow to tell.
    if max(c[CALL_END] for c in truth["call"] if c[CALL_CBID] in (211, 41)) > k[0][END]:
        raise Skip("it took longer than half a second to launch 200 kernels")
    gaps = {y[START] - x[END] for x, y in zip(k, k[1:])}
    equal(gaps, {1000}, "gaps between queued pieces of work")
    check(all(x[END] - x[START] == 100 * US for x in k if x[NAME] == "k"), "a duration is off")


WAIT = """
import resource
s = dev.stream()
def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
n = switches()
for _ in range(20):
    s.kernel(ms=5)
    s.synchronize()
say(switches() - n)
"""


@test
def synchronise_spins_unless_told_to_block():
    _, out = run(WAIT)
    check(int(out[0]) < 10, "%s waits of a thread that should spin" % out[0])
    _, out = run(WAIT, GPUSIM_WAIT="block")
    check(int(out[0]) >= 20, "only %s waits of a thread that should block" % out[0])


@test
def calls_have_unique_correlation_ids_and_their_thread():
    truth, out = run("""
import threading
tids = []
def work():
    tids.append(threading.get_native_id())
    s = dev.stream()
    for _ in range(50):
        s.kernel(us=10)
ts = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in ts]
[t.join() for t in ts]
dev.synchronize()
say(*tids)
""")
    corrs = [c[CALL_CORR] for c in truth["call"]]
    equal(len(corrs), len(set(corrs)), "correlation ids")
    launches = [c for c in truth["call"] if c[CALL_CBID] == 211]
    equal({c[CALL_TID] for c in launches}, {int(x) for x in out}, "threads that launched")
    equal({k[CORR] for k in truth["kernel"]}, {c[CALL_CORR] for c in launches}, "correlation of kernels")


@test
def allocation_and_errors():
    _, out = run("""
p = dev.alloc(1 << 20)
dev.free(p)
try:
    dev.alloc(1 << 50)
except gpusim.GpuError as e:
    say(*str(e).split())
g = dev.graph(ms=1)
s = dev.stream()
g.launch(s)
assert not s.query()
ev = s.record()
ev.synchronize()
assert ev.query() and s.query()
""")
    equal(out, ["cudaMalloc:", "out", "of", "memory"], "the error")


@test
def a_forked_child_cannot_use_it():
    _, out = run("""
pid = os.fork()
if not pid:
    try:
        dev.stream()
        os._exit(1)
    except gpusim.GpuError:
        os._exit(7)
say(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
dev.stream().kernel(us=1)
""")
    equal(out, ["7"], "exit code of the child")


@test
def every_release_is_emitted_in_its_sizes():
    releases = "11.0 11.1 11.2 11.6 11.8 12.1 12.4 12.6 12.8 12.9 13.0 13.1 13.2 13.4".split()
    kernel = {}
    for release in releases:
        env = dict(os.environ, GPUSIM_CUPTI_RELEASE=release)
        lib = os.path.join(SIM, "libcupti.so.13")
        with tempfile.TemporaryDirectory() as d:
            # 13.4 refuses to step without a driver, so it walks in the process that has one.
            subprocess.run([os.path.join(TOOLS, "rawdump"), SIM, lib, d], env=env, check=True,
                           stdout=subprocess.DEVNULL)
            kinds = {}
            if release != "13.4":
                for b in glob.glob(d + "/buf.*"):
                    out = subprocess.run([os.path.join(TOOLS, "walker"), lib, "walk", b], env=env, check=True,
                                         capture_output=True, text=True).stdout
                    for line in out.splitlines():
                        if line.startswith("record"):
                            kinds[line.split()[1]] = kinds.get(line.split()[1], 0) + 1
                equal(kinds.get("10"), 1000, release + ": kernels")
                equal(kinds.get("1"), 300, release + ": copies")
                equal(kinds.get("51"), 100, release + ": graphs")
            kernel[release] = sum(os.path.getsize(b) for b in glob.glob(d + "/buf.*"))
    check(kernel["11.0"] < kernel["11.8"] < kernel["13.0"] < kernel["13.4"], "sizes do not grow: %s" % kernel)


TORCH = """
try:
    import torch
except ImportError:
    say("no-torch")
    sys.exit(0)
import threading
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((256, 64), float(i)), i
def main():
    dev = gpusim.Device()
    dev.install_torch()
    s = dev.stream()
    seen = 0
    for x, y in DataLoader(Data(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=%r):
        assert x.is_pinned() and y.is_pinned()
        assert x[3, 0, 0].item() == y[3].item(), "pinning changed the data"
        names = [t.name for t in threading.enumerate()]
        assert threading.active_count() >= 2, names
        s.h2d(x, non_blocking=True)
        s.kernel(ms=1)
        seen += x.shape[0]
    s.synchronize()
    plain = torch.zeros(100000)
    assert not plain.is_pinned()
    s.h2d(plain)
    say(torch.__version__.split(".")[0], seen)
if __name__ == "__main__":
    main()
"""


def loader(method):
    with tempfile.TemporaryDirectory() as d:
        truth, script = os.path.join(d, "truth"), os.path.join(d, "script.py")
        with open(script, "w") as f:
            f.write(PRELUDE + TORCH % method)
        p = subprocess.run([PYTHON, script], env=sim_env(GPUSIM_TRUTH=truth, CUDA_INJECTION64_PATH=""),
                           capture_output=True, text=True, timeout=120)
        out = p.stdout.split()
        if out == ["no-torch"]:
            raise Skip("no PyTorch for " + PYTHON)
        check(p.returncode == 0, p.stderr[-400:])
        equal(out[1:], ["64"], "samples")
        t = read_truth(truth)
        equal([m[MEM] for m in t["memcpy"]], [2] * 8 + [1], "memory kinds of the copies")
        alloc = [c for c in t["call"] if c[CALL_CBID] == 27]
        main_tid = [c for c in t["call"] if c[CALL_CBID] == 211][0][CALL_TID]
        check(alloc and all(c[CALL_TID] != main_tid for c in alloc), "pinned memory was not the pin thread's")
        check(len(alloc) < 16, "pinned memory is not reused: %d allocations" % len(alloc))


@test
def a_real_loader_runs_its_pin_thread():
    loader("fork")


@test
def and_with_spawned_workers():
    loader("spawn")


if __name__ == "__main__":
    sys.exit(main())
