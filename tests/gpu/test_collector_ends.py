#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 300
"""How recordings end, well and badly: exits, kills, forks, execs, full rings, a CUPTI that is taken,
lost or without a driver."""

import glob
import os
import signal
import sys
import time

from gputest import (BUILD, CORR, END, GPU_KINDS, ROOT, START, Recorder, Session, Skip, Target, UP, check,
                     compare, equal, main, read_truth, test, work_only)


# --- ends -------------------------------------------------------------------------------------------

@test
def killed_in_the_middle_what_was_flushed_survives():
    code = UP + """
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
        # It says how much may be missing: from the last pair to when the end was seen.
        said = int(stopped.text.split("up to ")[1].split()[0])
        check(said * 1_000_000 <= stopped.ts - clocks[-1].ts < (said + 1) * 1_000_000, stopped.text)


@test
def every_hard_end_leaves_what_was_flushed_and_says_so():
    code = """
import ctypes, signal
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("go")
for _ in range(200):
    s.kernels(10, ms=1, name="k")
    s.synchronize()
say("done")
%s
"""
    for end, rc in (("os._exit(3)", 3), ("os.abort()", -signal.SIGABRT),
                    ("signal.signal(signal.SIGSEGV, signal.SIG_DFL); ctypes.string_at(8)", -signal.SIGSEGV)):
        with Session(code=code % end) as s:
            s.r.wait_on()
            s.t.say("go")
            s.t.expect("done")
            s.t.end(rc)
            s.r.wait_for("the end", lambda: [e for e in s.r.events("gpu_source") if e.state == 5])
            s.r.stop()
            clock = s.r.events("gpu_clock")[-1].ts
            got = {e.corr for e in s.r.events("gpu_kernel")}
            want = {x[CORR] for x in read_truth(s.path)["kernel"] if x[END] < clock - 50_000_000}
            check(want and not want - got, "%s: %d of %d kernels are missing" % (end, len(want - got), len(want)))
            stopped = [e for e in s.r.events("gpu_source") if e.state == 5][0]
            check("without a last flush: GPU records of up to " in stopped.text, stopped.text)


@test
def a_spawned_child_has_nothing_of_the_parents():
    code = """
import subprocess
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("go")
look = "import os; print([x for x in (os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') "
look += "if os.path.exists('/proc/self/fd/' + f)) if 'dlbpf' in x], 'dlbpf-gpu' in open('/proc/self/maps').read())"
for close in (True, False):
    s.kernels(20, ms=2, name="k")
    say(subprocess.run([sys.executable, "-c", look], close_fds=close, stdout=subprocess.PIPE, text=True).stdout.strip())
    s.synchronize()
say("done")
wait("end")
"""
    with Session(code=code) as s:
        s.r.wait_on()
        s.t.say("go")
        s.t.expect("[] False")
        s.t.expect("[] False")
        s.t.expect("done")
        s.r.stop()
        s.truth, s.events = read_truth(s.path), s.r.events()
        compare(s, kinds={"kernel": "gpu_kernel"})


@test
def a_clean_end_flushes_all():
    code = UP + """
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
    code = UP + """
for i in range(10):
    s.kernels(20, ms=2, name="k")
    pid = os.fork()
    if not pid:
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
"""
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
def the_applications_own_cupti_comes_first():
    """glibc takes a library of the same name that is loaded already: a collector that loaded one before PyTorch loads
    its own would give PyTorch the wrong one (pytorch #157381)."""
    code = """
import ctypes
dev = gpusim.Device()
s = dev.stream()
dev.synchronize()
say("up")
wait("load")
assert "libcupti" not in open("/proc/self/maps").read(), "the collector loaded one"
lib = ctypes.CDLL(os.path.join(gpusim.lib_dir(), "libcupti.so.12"))
say("loaded")
wait("go")
for i in range(20):
    s.kernels(10, ms=1, name="k")
    s.synchronize()
say("done")
wait("end")
"""
    with Session(code=code, GPUSIM_CUPTI="none") as s:
        s.r.wait_for("the wait for PyTorch", lambda: "waiting for PyTorch" in s.r.ask("describe"))
        s.t.say("load")
        s.t.expect("loaded")
        s.r.wait_on()
        check("gpusim/libcupti.so.12" in s.r.events("gpu_source")[-1].text, s.r.events("gpu_source")[-1].text)
        s.t.say("go")
        s.t.expect("done")
        s.r.stop()
        equal(len(s.r.events("gpu_kernel")), 200, "kernels")


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


if __name__ == "__main__":
    sys.exit(main())
