#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""libdlbpf_cupti.so in real processes on the simulated GPU, with the recorder's GPU part at the
other end, against what the device's model decided."""

import glob
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from gputest import (BUILD, COLLECTOR, PYTHON, ROOT, SIM, TOOLS, Recorder, Skip, Target, check, equal, main, read_truth,
                     sim_env, test)

# A second or so of mixed work, between "go" and "done".
WORK = """
dev = gpusim.Device()
s, c = dev.stream(), dev.stream()
s.kernel(us=1)
dev.synchronize()
say("up")
wait("go")
for i in range(%d):
    s.h2d(2000000)
    c.h2d(500000, pinned=True, non_blocking=True)
    s.wait(c.record())
    s.memset(4096)
    s.kernels(20, ms=4, name="forward_%%d" %% (i %% 3))
    s.kernel(ms=2, name="backward")
    s.synchronize()
say("done")
wait("end")
"""

CORR, DEV, STREAM, START, END, BYTES, DIR, MEM, SYNC, NAME = range(10)
GPU_KINDS = {"kernel": "gpu_kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


class Session:
    """A target with its truth, recorded from "up" until its work is done."""

    def __init__(self, rounds=40, mode=2, code=WORK, **env):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "truth")
        self.t = Target(code % rounds if "%d" in code else code, GPUSIM_TRUTH=self.path, **env)
        self.t.expect("up")
        self.r = Recorder(self.t.pid, mode=mode)

    def run(self):
        self.r.wait_on()
        self.t.say("go")
        self.t.expect("done")
        self.r.stop()
        self.truth = read_truth(self.path)
        self.events = self.r.events()
        return self

    def of(self, kind):
        return [e for e in self.events if e.kind == kind]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.r.__exit__()
        self.t.__exit__()
        self.dir.cleanup()


def work_only(truth, kind):
    """Without what ran before the recorder came."""
    begin = [c for c in truth["call"] if c[3] == 165][0][5]
    return [x for x in truth[kind] if x[START] > begin]


def compare(s, tolerance_ns=2000, kinds=GPU_KINDS, unsure=False):
    for kind, event in kinds.items():
        want = {x[CORR]: x for x in work_only(s.truth, kind)}
        got = {e.corr: e for e in s.of(event)}
        check(want, "the truth has no " + kind)
        equal(len(got), len(s.of(event)), event + " with a correlation id of their own")
        missing = set(want) - set(got)
        check(not missing, "%d of %d %s are missing" % (len(missing), len(want), event))
        for corr, x in want.items():
            e = got[corr]
            off = max(abs(e.ts - x[START]), abs(e.end - x[END]))
            if not (unsure and e.unsure):
                check(off <= tolerance_ns, "%s is off by %d ns" % (event, off))
            check(e.end >= e.ts, event + " ends before it starts")
            equal((e.stream, e.device), (x[STREAM], x[DEV]), "stream and device of " + event)
            if kind == "memcpy":
                equal((e.bytes, e.dir, e.src), (x[BYTES], x[DIR], x[MEM]), "a copy")


# --- asleep -----------------------------------------------------------------------------------------

@test
def dormant_it_does_nothing():
    with Target("""
dev = gpusim.Device()
s = dev.stream()
def state():
    for tid in os.listdir("/proc/self/task"):
        if open("/proc/self/task/%s/comm" % tid).read() == "dlbpf-gpu\\n":
            text = open("/proc/self/task/%s/status" % tid).read()
            return text.split("voluntary_ctxt_switches:")[1].split()[0]
    return "no-thread"
for _ in range(500):
    before = state()
    if before != "no-thread":
        break
    time.sleep(0.01)
time.sleep(0.1)
before = state()
for _ in range(300):
    s.kernel(us=10)
    s.h2d(1000)
time.sleep(0.5)
say(before, state(), gpusim.cupti_calls(), len(os.listdir("/proc/self/task")))
""") as t:
        before, after, calls, threads = t.line().split()
        t.end()
    check(before != "no-thread", "the collector's thread is not there")
    equal(calls, "0", "calls into CUPTI")
    equal(after, before, "wake-ups of the sleeping thread")
    equal(threads, "2", "threads")


@test
def it_can_be_switched_off_for_good():
    with Target("dev = gpusim.Device()\nsay(*[os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd')"
                " if os.path.exists('/proc/self/fd/' + f) and 'dlbpf' in os.readlink('/proc/self/fd/' + f)])",
                DLBPF_GPU_DISABLE="1") as t:
        equal(t.line(), "", "memory of the collector")
        t.end()


# --- awake ------------------------------------------------------------------------------------------

@test
def records_are_what_the_device_did():
    with Session(60) as s:
        s.run()
        compare(s)
        names = {e.id: e.text for e in s.of("string")}
        for e in s.of("gpu_kernel"):
            truth = [x for x in s.truth["kernel"] if x[CORR] == e.corr][0]
            equal(names.get(e.name), truth[NAME], "a kernel's name")
        launches = {e.corr: e for e in s.of("gpu_api")}
        for e in s.of("gpu_kernel"):
            check(e.corr in launches, "a kernel without the call that launched it")
            call = launches[e.corr]
            equal((call.tid, call.pid), (s.t.pid, s.t.pid), "the thread that launched")
            equal(names.get(getattr(call, "name")), "cudaLaunchKernel", "the call's name")
            check(call.ts <= e.ts, "a kernel ran before its launch")
        source = s.of("gpu_source")[0]
        equal((source.state, source.flags, source.version), (1, 1, 130001), "the source")
        check("simulated" in source.text, "nothing says that it is simulated")
        device = s.of("gpu_device")[0]
        check("Simulated" in device.text and device.flags == 1, "the device does not say that it is simulated")
        drop = s.of("gpu_drop")[-1]
        equal((drop.cupti, drop.ring, drop.unknown, drop.zero), (0, 0, 0, 0), "losses")
        check(not s.of("loss"), "records were not believed")
        check(all(e.type in (1, 2, 3, 4) and e.end >= e.ts for e in s.of("gpu_sync")), "a synchronisation is odd")
        check(len(s.of("gpu_sync")) >= 120, "only %d synchronisations" % len(s.of("gpu_sync")))


def releases():
    for lib, release in (("11.8", ""), ("12.1", ""), ("12.4", ""), ("12.6", ""), ("12", ""), ("13", ""),
                         ("11.8", "11.0"), ("11.8", "11.2"), ("11.8", "11.6"), ("12", "12.8"), ("13", "13.1"),
                         ("13", "13.2"), ("13", "13.4")):
        yield lib, release


@test
def every_release_of_cupti_is_understood():
    for lib, release in releases():
        env = dict(GPUSIM_CUPTI=lib)
        if release:
            env["GPUSIM_CUPTI_RELEASE"] = release
        with Session(6, **env) as s:
            try:
                s.run()
                compare(s)
                calls = {e.cbid for e in s.of("gpu_api")}
                # Before 12.5 all calls come, and the collector keeps those of its table.
                check({41, 211, 131, 51} <= calls, "calls %s" % calls)
                check(not calls & {135, 147, 198, 118}, "calls of no interest: %s" % calls)
                equal(s.of("gpu_drop")[-1].unknown, 0, "unknown records")
            except AssertionError as e:
                raise AssertionError("libcupti %s %s: %s" % (lib, release, e)) from None


@test
def modes_differ():
    with Session(5, mode=1) as s:
        s.run()
        equal(len(s.of("gpu_kernel")), 0, "kernels in light mode")
        check(not any(e.cbid == 211 for e in s.of("gpu_api")), "launches in light mode")
        compare(s, kinds={"memcpy": "gpu_memcpy"})
    with Session(5, mode=3) as s:
        s.run()
        compare(s)
        names = {e.id: e.text for e in s.of("string")}
        calls = {names.get(getattr(e, "name")) for e in s.of("gpu_api")}
        check({"cudaLaunchKernel", "cudaEventRecord_v3020"} <= calls, "calls in full mode: %s" % calls)


@test
def records_reserved_at_submission_come_too():
    with Session(30, GPUSIM_CUPTI_RESERVE="1") as s:
        s.run()
        compare(s)


@test
def nested_driver_calls_are_recorded_with_the_same_correlation():
    with Session(5, GPUSIM_DRIVER_CALLS="1") as s:
        s.run()
        by_corr = {}
        for e in s.of("gpu_api"):
            by_corr.setdefault(e.corr, set()).add((e.domain, e.cbid))
        check({(1, 211), (2, 307)} in by_corr.values(), "no launch with both: %s" % list(by_corr.values())[:3])


@test
def a_drifting_and_a_jumping_clock_are_converted():
    for ppm, step in (("300", None), ("-300", None), ("20", "-2000000"), ("20", "5000000"), ("0", "-300")):
        env = dict(GPUSIM_CUPTI_PPM=ppm)
        if step:
            env.update(GPUSIM_CUPTI_STEP_US=step, GPUSIM_CUPTI_STEP_MS="700")
        with Session(100, **env) as s:
            s.run()
            try:
                compare(s, tolerance_ns=5000, unsure=True)
                kernels = s.of("gpu_kernel")
                unsure = sum(1 for e in kernels if e.unsure)
                check(unsure < len(kernels) // 3, "%d of %d kernels are unsure" % (unsure, len(kernels)))
                if not step:
                    equal(unsure, 0, "kernels that are unsure without a jump")
            except AssertionError as e:
                raise AssertionError("%s ppm, jump %s us: %s" % (ppm, step, e)) from None


@test
def threads_that_launch_at_once():
    code = """
import threading
dev = gpusim.Device()
dev.synchronize()
say("up")
wait("go")
tids = []
def work():
    s = dev.stream()
    tids.append(threading.get_native_id())
    for _ in range(20):
        s.kernels(30, us=300, name="t")
        s.synchronize()
ts = [threading.Thread(target=work) for _ in range(6)]
[t.start() for t in ts]
[t.join() for t in ts]
say("done")
say(*tids)
wait("end")
"""
    with Session(code=code) as s:
        s.run()
        compare(s, kinds={"kernel": "gpu_kernel"})
        equal({e.tid for e in s.of("gpu_api") if e.cbid == 211}, {int(x) for x in s.t.line().split()}, "threads")


# --- on and off -------------------------------------------------------------------------------------

@test
def it_starts_and_stops_fifty_times():
    with Target("""
import threading
dev = gpusim.Device()
s = dev.stream()
say("up")
end = []
threading.Thread(target=lambda: end.append(sys.stdin.readline()), daemon=True).start()
while not end:
    s.kernels(10, us=500, name="again")
    s.h2d(300000)
    s.synchronize()
say("out")
""") as t:
        t.expect("up")

        def size():
            with open("/proc/%d/status" % t.pid) as f:
                text = f.read()
            maps = len(open("/proc/%d/maps" % t.pid).readlines())
            return (int(re.search(r"Threads:\s+(\d+)", text).group(1)), len(os.listdir("/proc/%d/fd" % t.pid)), maps,
                    int(re.search(r"VmRSS:\s+(\d+)", text).group(1)))

        first = None
        for i in range(50):
            with Recorder(t.pid, mode=1 + i % 3) as r:
                r.wait_for("GPU records", lambda: any(e.kind == "gpu_memcpy" for e in r.events()))
                r.stop()
                if i % 3:
                    names = {e.id: e.text for e in r.events("string")}
                    kernels = r.events("gpu_kernel")
                    check(kernels, "no kernels in recording %d" % i)
                    check(all(names.get(getattr(e, "name")) == "again" for e in kernels),
                          "names were not shipped anew in recording %d" % i)
            if i == 5:
                first = size()
        last = size()
        equal(last[:2], first[:2], "threads and descriptors")
        check(last[2] <= first[2] + 8, "mappings grow: %s, %s" % (first, last))
        check(last[3] <= first[3] + 8192, "memory grows: %s, %s" % (first, last))
        t.say("end")
        t.expect("out")
        t.end()


@test
def a_recorder_that_stands_still_is_taken_for_dead():
    with Target("""
import threading
dev = gpusim.Device()
s = dev.stream()
say("up")
end = []
threading.Thread(target=lambda: [end.append(x) for x in sys.stdin], daemon=True).start()
asked = 0
while True:
    s.kernels(5, ms=1, name="k")
    s.synchronize()
    if len(end) > asked:
        asked += 1
        a = gpusim.cupti_calls()
        time.sleep(0.5)
        say(gpusim.cupti_calls() - a)
""") as t:
        t.expect("up")
        with Recorder(t.pid) as r:
            r.wait_for("kernels", lambda: r.events("gpu_kernel"))
            t.say("?")
            check(int(t.line()) > 0, "CUPTI is not called while recording")
            r.p.send_signal(signal.SIGSTOP)
            time.sleep(6.5)
            t.say("?")
            equal(t.line(), "0", "calls into CUPTI with a recorder that stands still")
            n = len(r.events("gpu_kernel"))
            r.p.send_signal(signal.SIGCONT)
            r.wait_for("kernels after it woke", lambda: len(r.events("gpu_kernel")) > n + 10)
            r.p.kill()      # and one that dies: the next one begins anew, with names
            r.p.wait()
        with Recorder(t.pid) as r:
            r.wait_for("kernels", lambda: r.events("gpu_kernel"))
            r.wait_for("the name", lambda: [e for e in r.events("string") if e.text == "k"])
            r.stop()


# --- ends -------------------------------------------------------------------------------------------

@test
def killed_in_the_middle_what_was_flushed_survives():
    code = """
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("go")
say("done")
while True:
    s.kernels(10, ms=1, name="k")
    s.synchronize()
"""
    with Session(code=code) as s:
        s.r.wait_on()
        s.t.say("go")
        s.t.expect("done")
        time.sleep(1.2)
        s.r.ask("quiet 400")        # the last records are read after the death only
        time.sleep(0.1)
        s.t.p.send_signal(signal.SIGKILL)
        s.t.p.wait()
        s.r.wait_for("the end", lambda: [e for e in s.r.events("gpu_source") if e.state == 5])
        s.r.stop()
        truth = read_truth(s.path)
        clocks = s.r.events("gpu_clock")
        got = {e.corr for e in s.r.events("gpu_kernel")}
        # Flushes come every 20 ms: what ended 50 ms before the last pair was flushed with it.
        want = {x[CORR] for x in truth["kernel"] if x[END] < clocks[-1].ts - 50_000_000}
        missing = want - got
        ends = [x[END] for x in truth["kernel"] if x[CORR] in missing]
        check(len(want) > 500 and not missing, "%d of %d flushed kernels are missing, ended %s ms before the last pair"
              % (len(missing), len(want), [(clocks[-1].ts - f(ends)) // 1000000 for f in (min, max) if ends]))
        stopped = [e for e in s.r.events("gpu_source") if e.state == 5][0]
        check("without a last flush" in stopped.text, stopped.text)


@test
def a_clean_end_flushes_all():
    code = """
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("go")
for _ in range(50):
    s.kernels(10, ms=1, name="k")
    s.synchronize()
"""
    with Session(code=code) as s:
        s.r.wait_on()
        s.t.say("go")
        s.t.end()
        s.r.wait_for("the end", lambda: [e for e in s.r.events("gpu_source") if e.state == 5])
        s.r.stop()
        truth = read_truth(s.path)
        got = {e.corr for e in s.r.events("gpu_kernel")}
        want = {x[CORR] for x in truth["kernel"]}
        check(len(want) == 500 and not want - got, "%d of %d kernels are missing" % (len(want - got), len(want)))
        stopped = [e for e in s.r.events("gpu_source") if e.state == 5][0]
        check("ended with the process" in stopped.text, stopped.text)


@test
def a_fork_leaves_the_parents_collector_alone():
    code = """
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("go")
for i in range(10):
    s.kernels(20, ms=2, name="k")
    pid = os.fork()
    if not pid:
        fds = [f for f in os.listdir("/proc/self/fd") if "dlbpf" in os.readlink("/proc/self/fd/" + f)
               ] if False else []
        for f in os.listdir("/proc/self/fd"):
            try:
                if "dlbpf" in os.readlink("/proc/self/fd/" + f):
                    os._exit(3)
            except OSError:
                pass
        if "dlbpf-gpu" in open("/proc/self/maps").read():
            os._exit(4)
        sys.exit(0)         # the whole exit path, atexit handlers too
    assert os.waitpid(pid, 0)[1] == 0
    s.synchronize()
say("done")
wait("end")
""".replace("""        fds = [f for f in os.listdir("/proc/self/fd") if "dlbpf" in os.readlink("/proc/self/fd/" + f)
               ] if False else []
""", "")
    with Session(code=code) as s:
        s.run()
        compare(s, kinds={"kernel": "gpu_kernel"})


@test
def an_exec_brings_a_new_collector():
    code = """
dev = gpusim.Device()
dev.stream().kernel(us=5, name="before")
dev.synchronize()
say("up")
wait("go")
os.execv(sys.executable, [sys.executable, "-c", '''
import sys, time
sys.path.insert(0, %r)
import gpusim
dev = gpusim.Device()
s = dev.stream()
for _ in range(200):
    s.kernels(5, ms=10, name="after")
    s.synchronize()
'''])
""" % os.path.join(ROOT, "tests", "gpusim")
    with Session(code=code) as s:
        s.r.wait_on()
        s.t.say("go")
        s.r.wait_for("kernels of the new program",
                     lambda: [e for e in s.r.events("string") if e.text == "after"] and s.r.events("gpu_kernel"))
        s.r.stop()


@test
def two_processes_are_kept_apart():
    code = """
dev = gpusim.Device()
s = dev.stream()
say("up")
wait("go")
for _ in range(30):
    s.kernel(ms=2, name=%r)
    s.synchronize()
say("done")
wait("end")
"""
    with Target(code % "one") as a, Target(code % "two") as b:
        a.expect("up")
        b.expect("up")
        with Recorder(a.pid, b.pid) as r:
            r.wait_for("both", lambda: len({e.pid for e in r.events("gpu_source")}) == 2)
            a.say("go")
            b.say("go")
            a.expect("done")
            b.expect("done")
            r.stop()
            for pid, name in ((a.pid, "one"), (b.pid, "two")):
                ids = {e.id for e in r.events("string") if e.pid == pid and e.text == name}
                kernels = [e for e in r.events("gpu_kernel") if e.pid == pid]
                equal(len(ids), 1, "names " + name)
                equal(len(kernels), 30, "kernels of " + name)
                equal({getattr(e, "name") for e in kernels}, ids, "names of the kernels")


# --- losses and refusals ----------------------------------------------------------------------------

@test
def a_full_ring_drops_and_counts():
    with Session(150, DLBPF_GPU_RING_KB="64") as s:
        s.r.wait_on()
        s.r.p.send_signal(signal.SIGSTOP)
        s.t.say("go")
        s.t.expect("done")
        s.r.p.send_signal(signal.SIGCONT)
        s.r.stop()
        truth = read_truth(s.path)
        kinds = dict(GPU_KINDS)
        want = sum(len(work_only(truth, k)) for k in kinds)
        got = sum(len(s.r.events(e)) for e in kinds.values())
        lost = s.r.events("gpu_drop")[-1].ring
        check(got < want, "nothing was dropped: %d of %d" % (got, want))
        check(lost >= want - got, "%d lost, but %d said" % (want - got, lost))
        check(not s.r.events("loss"), "the ring was not believed")
        # Every record that could be: the same again with the calls and synchronisations.
        calls = [c for c in truth["call"] if c[2] == 2 and c[3] in (41, 51, 131, 211) and
                 c[4] > [x for x in truth["call"] if x[3] == 165][0][5]]
        all_ = want + len(calls) + len(work_only_sync(truth))
        seen = got + len(s.r.events("gpu_api")) + len(s.r.events("gpu_sync"))
        names = 8
        check(all_ - seen <= lost <= all_ - seen + names * 1000, "%d made, %d seen, %d lost" % (all_, seen, lost))


def work_only_sync(truth):
    begin = [c for c in truth["call"] if c[3] == 165][0][5]
    return [x for x in truth["sync"] if x[START] > begin]


@test
def losses_of_cupti_itself_are_counted():
    with Session(40, GPUSIM_CUPTI_DROP_EVERY="10") as s:
        s.run()
        n = sum(len(work_only(s.truth, k)) for k in GPU_KINDS) + len(work_only_sync(s.truth))
        drop = s.of("gpu_drop")[-1]
        check(abs(drop.cupti - n // 10) <= 2, "%d dropped of %d" % (drop.cupti, n))
    with Session(40, GPUSIM_CUPTI_ZERO_EVERY="10") as s:
        s.run()
        n = sum(len(work_only(s.truth, k)) for k in GPU_KINDS) + len(work_only_sync(s.truth))
        drop = s.of("gpu_drop")[-1]
        check(abs(drop.zero - n // 10) <= 2, "%d without times of %d" % (drop.zero, n))
        check(all(e.ts for e in s.events), "an event without a time")
    with Session(40, GPUSIM_CUPTI_UNKNOWN_EVERY="500") as s:
        s.run()
        check(s.of("gpu_drop")[-1].unknown > 0, "unknown records are not counted")
        check(s.of("gpu_kernel"), "nothing else came through")


@test
def a_cupti_that_is_taken_is_left_alone():
    with Session(3, GPUSIM_CUPTI_BUSY="1") as s:
        s.r.wait_for("busy", lambda: [e for e in s.r.events("gpu_source") if e.state == 3])
        source = s.r.events("gpu_source")[0]
        check("another tool" in source.text, source.text)
        check("another tool" in s.r.ask("describe"), "describe does not say it")
        s.t.say("go")
        s.t.expect("done")
        equal(s.r.events("gpu_memcpy"), [], "records")
        s.r.stop()


@test
def without_a_usable_cupti_it_says_why():
    with Session(3, GPUSIM_CUPTI="none", DLBPF_LIBCUPTI="/nonexistent/libcupti.so.12") as s:
        s.r.wait_for("failed", lambda: [e for e in s.r.events("gpu_source") if e.state == 4])
        check("no libcupti" in s.r.events("gpu_source")[0].text, s.r.events("gpu_source")[0].text)
        s.t.say("go")
        s.t.expect("done")
        s.r.stop()


@test
def a_real_cupti_without_its_driver_does_no_harm():
    libs = sorted(glob.glob("/usr/local/cuda/lib64/libcupti.so.1?") + glob.glob("/usr/local/cuda/lib/libcupti.so.1?") +
                  glob.glob(BUILD + "/cupti-wheels/12.*/nvidia/*/lib/libcupti.so.*") +
                  glob.glob(BUILD + "/cupti-wheels/11.8/nvidia/*/lib/libcupti.so.*"))
    if not libs:
        raise Skip("no real libcupti: neither a toolkit nor wheels in " + BUILD)
    for lib in libs:
        with Session(3, GPUSIM_CUPTI="none", DLBPF_LIBCUPTI=lib) as s:
            try:
                s.r.wait_for("failed", lambda: [e for e in s.r.events("gpu_source") if e.state == 4])
                s.t.say("go")
                s.t.expect("done")
                s.r.stop()
                s.t.say("end")
                s.t.end()
            except AssertionError as e:
                raise AssertionError("%s: %s" % (lib, e)) from None


# --- ids, hints ---------------------------------------------------------------------------------------

@test
def thread_ids_of_a_pid_namespace_are_translated():
    ns = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid():
        ns[1:1] = ["--user", "--map-root-user"]
    if subprocess.run(ns + ["true"], capture_output=True).returncode:
        raise Skip("no PID namespace can be made here")
    code = """
import threading
dev = gpusim.Device()
say(os.getpid())
wait("go")
def work():
    s = dev.stream()
    for _ in range(50):
        s.kernel(ms=1, name="k")
        s.synchronize()
    say("done")
    wait("end")
t = threading.Thread(target=work)
t.start()
work_tid = t.native_id
t.join()
"""
    from gputest import PRELUDE
    p = subprocess.Popen(ns + [PYTHON, "-c", PRELUDE + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         bufsize=1, env=sim_env())
    try:
        inner = int(p.stdout.readline())
        host = int(open("/proc/%d/task/%d/children" % (p.pid, p.pid)).read().split()[0])
        check(inner != host, "the namespace is not one")
        with Recorder(host) as r:
            r.wait_on()
            p.stdin.write("go\n")
            equal(p.stdout.readline().strip(), "done", "the target")
            r.stop()
            tids = {e.tid for e in r.events("gpu_api")}
            threads = {int(t) for t in os.listdir("/proc/%d/task" % host)}
            equal(len(tids), 1, "threads that called CUDA")
            check(tids <= threads and host not in tids, "%s are not among %s" % (tids, threads))
            equal({e.pid for e in r.events("gpu_kernel")}, {host}, "the process")
    finally:
        p.kill()
        p.wait()


@test
def the_hint_is_a_command_that_works():
    with tempfile.TemporaryDirectory() as d:
        script = os.path.join(d, "it's a script.py")
        from gputest import PRELUDE
        with open(script, "w") as f:
            f.write(PRELUDE + "dev = gpusim.Device()\nsay('up')\nwait('end')\n")
        env = sim_env()
        del env["CUDA_INJECTION64_PATH"]
        env["DLBPF_CUPTI_LIB"] = COLLECTOR
        p = subprocess.Popen([PYTHON, script, "--flag=a b"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=env)
        equal(p.stdout.readline().strip(), "up", "the target")
        os.environ["DLBPF_CUPTI_LIB"] = COLLECTOR
        try:
            with Recorder(p.pid) as r, Recorder(os.getpid()) as other:
                hint = r.ask("hint %d" % p.pid)
                equal(other.ask("hint %d" % os.getpid()), "", "the hint for a process without CUDA")
                r.stop()
                other.stop()
        finally:
            del os.environ["DLBPF_CUPTI_LIB"]
            p.communicate("end\n")
        check(hint.startswith("start it as: CUDA_INJECTION64_PATH=" + COLLECTOR), hint)
        command = hint[len("start it as: "):]
        equal(shlex.split(command)[1:], [PYTHON, script, "--flag=a b"], "the command line")
        p = subprocess.Popen(["sh", "-c", "exec env " + command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, env=env)
        equal(p.stdout.readline().strip(), "up", "the target, started as the hint says")
        try:
            with Recorder(p.pid) as r:
                r.wait_on()
                equal(r.ask("hint %d" % p.pid), "", "the hint with a collector")
                check("simulated" in r.ask("describe"), "describe")
                r.stop()
        finally:
            p.communicate("end\n")


if __name__ == "__main__":
    sys.exit(main())
