#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""libdlbpf_cupti.so in real processes on the simulated GPU, with the recorder's GPU part at the
other end, against what the device's model decided."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from gputest import (COLLECTOR, CORR, NAME, PRELUDE, PYTHON, Recorder, Session, Skip, Target, UP, check,
                     compare, equal, main, read_truth, sim_env, test)


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
def modes_change_while_it_runs():
    code = UP + """
say("working")
end = time.time() + 3
while time.time() < end:
    s.h2d(100000)
    s.kernels(3, us=600, name="k")
    s.synchronize()
say("done")
wait("end")
"""
    for lib in ("13", "12.4", "11.8"):
        with Session(code=code, GPUSIM_CUPTI=lib) as s:
            s.r.wait_on()
            s.t.say("go")
            s.t.expect("working")
            spans = []
            for mode in (1, 2, 3, 1, 2):
                time.sleep(0.2)
                begin = time.monotonic_ns() + 150_000_000
                s.r.ask("mode %d" % mode)
                time.sleep(0.3)
                spans.append((mode, begin, time.monotonic_ns()))
            s.t.expect("done")
            s.r.stop()
            s.truth, s.events = read_truth(s.path), s.r.events()
            compare(s, kinds={"memcpy": "gpu_memcpy"})      # none is lost over all changes
            for mode, begin, end in spans:
                kernels = [e for e in s.of("gpu_kernel") if begin < e.ts < end]
                equal(bool(kernels), mode > 1, "kernels in mode %d with CUPTI %s" % (mode, lib))
            equal(len(s.of("gpu_source")), 1, "sources")
            equal(s.of("gpu_drop")[-1].zero, 0, "records without times")


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
say(*gpusim.cupti_state())
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
        t.expect("0 0")     # kinds and calls on; buffers held and subscriptions
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
        begin = "record it with --inject, or start it as: "
        check(hint.startswith(begin + "CUDA_INJECTION64_PATH=" + COLLECTOR), hint)
        command = hint[len(begin):]
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
