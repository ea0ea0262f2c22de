#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 300
"""Other tools that use CUPTI in the recorded process: a profiler that comes before or during a
recording, subscribers by both versions of the interface, another injected library; and modes that
change while it runs."""

import os
import subprocess
import sys
import tempfile
import time

from gputest import (BUILD, COLLECTOR, CORR, END, START, PRELUDE, PYTHON, Recorder, Session, Target, check, equal, main,
                     read_truth, sim_env, test)

COLLECTING, BUSY = 1, 3

# Works until "end", and starts and stops a profiler of the same process when told to.
PROFILED = """
import threading
dev = gpusim.Device()
s = dev.stream()
prof = gpusim.Profiler(second=%r)
%s
dev.synchronize()
words = []
threading.Thread(target=lambda: [words.append(x.strip()) for x in sys.stdin], daemon=True).start()
say("up")
while True:
    s.h2d(100000)
    s.kernels(10, ms=1, name="k")
    s.synchronize()
    if not words:
        continue
    word = words.pop(0)
    if word == "start":
        prof.start()
        say("started")
    if word == "stop":
        say("stopped", *prof.stop())
    if word == "state":
        say(*gpusim.cupti_state())
    if word == "end":
        break
say("out")
"""


def sources(r, state):
    return [e for e in r.events("gpu_source") if e.state == state]


def work(r):
    return len(r.events("gpu_kernel"))


def gap_is_true(s, begin, end):
    """What ran outside the gap, with a second and a half for it to be noticed, was recorded."""
    truth = read_truth(s.path)
    got = {e.corr for e in s.r.events("gpu_kernel")}
    outside = [x for x in truth["kernel"] if x[START] > s.on and (x[END] < begin or x[START] > end) and x[END] < s.off]
    missing = [x for x in outside if x[CORR] not in got]
    check(len(outside) > 100 and not missing, "%d of %d kernels outside the gap are missing" % (
        len(missing), len(outside)))


def profiled(second=False, first="", **env):
    return Session(code=PROFILED % (second, first), **env)


@test
def a_profiler_that_takes_the_records_over_is_noticed_and_outlived():
    with profiled(GPUSIM_CUPTI="13.4", DLBPF_CUPTI_V2="0") as s:
        s.r.wait_on()
        s.r.wait_for("kernels", lambda: work(s.r) > 50)
        time.sleep(1.5)         # until the beat has been seen
        s.on = s.r.events("gpu_kernel")[0].ts
        begin = time.monotonic_ns()
        s.t.say("start")
        s.t.expect("started")
        s.r.wait_for("busy", lambda: sources(s.r, BUSY))
        busy = sources(s.r, BUSY)[0]
        check(busy.text.startswith("busy (") and "another tool gets CUPTI's records" in busy.text, busy.text)
        check("busy (" in s.r.ask("describe"), "describe: " + s.r.ask("describe"))
        s.t.say("stop")
        _, own, strange = s.t.line().split()
        stopped = time.monotonic_ns()
        check(int(own) > 100, "the profiler got only %s records" % own)
        s.r.wait_for("collecting again", lambda: len(sources(s.r, COLLECTING)) == 2)
        text = sources(s.r, COLLECTING)[1].text
        check("that another tool took" in text, text)
        again = time.monotonic_ns()
        n = work(s.r)
        s.r.wait_for("kernels again", lambda: work(s.r) > n + 50)
        s.r.stop()
        s.off = s.r.events("gpu_kernel")[-1].ts
        gap_is_true(s, begin - 50_000_000, again)
        check(stopped < again, "it took the records back before the profiler was done")
        s.t.say("state")
        equal(s.t.line(), "0 0", "what is switched on or held after the recording")
        s.t.say("end")


@test
def many_profiler_sessions_use_up_no_buffers():
    with profiled(GPUSIM_CUPTI="13.4", DLBPF_CUPTI_V2="0") as s:
        s.r.wait_on()
        for i in range(3):
            s.r.wait_for("the beat", lambda: len(sources(s.r, COLLECTING)) == i + 1)
            time.sleep(1.3)
            s.t.say("start")
            s.t.expect("started")
            s.r.wait_for("busy", lambda: len(sources(s.r, BUSY)) == i + 1)
            s.t.say("stop")
            s.t.line()
        s.r.wait_for("collecting again", lambda: len(sources(s.r, COLLECTING)) == 4)
        n = work(s.r)
        s.r.wait_for("kernels", lambda: work(s.r) > n + 50)
        s.r.stop()
        equal(s.r.events("gpu_drop")[-1].ring, 0, "records without a buffer")
        s.t.say("end")


@test
def where_cupti_cannot_be_asked_the_profiler_keeps_the_records():
    for lib in ("13", "12", "12.4", "11.8"):
        with profiled(GPUSIM_CUPTI=lib) as s:
            s.r.wait_on()
            time.sleep(1.5)
            s.t.say("start")
            s.t.expect("started")
            s.r.wait_for("busy", lambda: sources(s.r, BUSY))
            check("over for this recording" in sources(s.r, BUSY)[0].text, sources(s.r, BUSY)[0].text)
            n = work(s.r)
            time.sleep(0.5)
            s.r.stop()
            equal(work(s.r), n, "kernels while the profiler has the records")
            s.t.say("stop")
            _, own, _ = s.t.line().split()
            check(int(own) > 50, "the profiler got only %s records with CUPTI %s" % (own, lib))
            # A new recording begins anew.
            with Recorder(s.t.pid) as r:
                r.wait_for("kernels", lambda: work(r) > 50)
                r.stop()
            s.t.say("state")
            equal(s.t.line(), "0 0", "what is switched on or held after the recordings")
            s.t.say("end")


@test
def records_are_taken_back_after_a_time_that_was_set():
    with profiled(GPUSIM_CUPTI="12", DLBPF_GPU_RETAKE_S="3") as s:
        s.r.wait_on()
        time.sleep(1.5)
        s.t.say("start")
        s.t.expect("started")
        s.r.wait_for("busy", lambda: sources(s.r, BUSY))
        s.t.say("stop")
        s.t.line()
        s.r.wait_for("collecting again", lambda: len(sources(s.r, COLLECTING)) == 2)
        n = work(s.r)
        s.r.wait_for("kernels", lambda: work(s.r) > n + 50)
        s.r.stop()
        s.t.say("end")


@test
def a_profiler_that_was_there_before_and_ends_switches_our_kinds_off():
    with profiled(first="prof.start()", GPUSIM_CUPTI="12") as s:
        s.r.wait_on()
        s.r.wait_for("kernels", lambda: work(s.r) > 50)
        time.sleep(1.5)
        s.t.say("stop")
        s.t.line()
        s.r.wait_for("collecting again", lambda: len(sources(s.r, COLLECTING)) == 2)
        check("that another tool took" in sources(s.r, COLLECTING)[1].text, sources(s.r, COLLECTING)[1].text)
        n = work(s.r)
        s.r.wait_for("kernels", lambda: work(s.r) > n + 50)
        s.r.stop()
        s.t.say("state")
        equal(s.t.line(), "0 0", "what is switched on or held after the recording")
        s.t.say("end")


@test
def a_profiler_that_was_there_before_is_left_alone_where_it_shows():
    with profiled(first="prof.start()", GPUSIM_CUPTI="13.4") as s:
        s.r.wait_for("busy", lambda: sources(s.r, BUSY))
        check(sources(s.r, BUSY)[0].text.startswith("busy (torch.profiler"), sources(s.r, BUSY)[0].text)
        time.sleep(0.5)
        s.t.say("stop")
        _, own, strange = s.t.line().split()
        check(int(own) > 200, "the profiler got only %s records" % own)
        equal(strange, "0", "buffers of ours that the profiler was given")
        s.r.wait_for("kernels once it is done", lambda: work(s.r) > 50)
        s.r.stop()
        s.t.say("end")


@test
def long_work_is_not_taken_for_another_tool():
    code = """
dev = gpusim.Device()
s = dev.stream()
say("up")
wait("go")
for _ in range(200):
    s.kernels(10, ms=1, name="k")
    s.synchronize()
    time.sleep(0.01)
s.kernel(ms=4000, name="long")
s.kernels(10, ms=1, name="k")
s.synchronize()
time.sleep(0.3)
say("done")
wait("end")
"""
    for lib in ("13", "12.4"):
        with Session(code=code, GPUSIM_CUPTI=lib, GPUSIM_CUPTI_RESERVE="1") as s:
            s.run()
            equal(sources(s.r, BUSY), [], "another tool that is not there")
            equal(len(sources(s.r, COLLECTING)), 1, "sources")
            names = {e.id for e in s.of("string") if e.text == "long"}
            check([e for e in s.of("gpu_kernel") if getattr(e, "name") in names], "the long kernel is missing")


# --- the second interface ---------------------------------------------------------------------------

@test
def several_subscribers_do_not_disturb_each_other():
    with profiled(second=True, GPUSIM_CUPTI="13.4") as s:
        s.r.wait_on()
        s.r.wait_for("kernels", lambda: work(s.r) > 50)
        s.on = s.r.events("gpu_kernel")[0].ts
        s.t.say("start")
        s.t.expect("started")
        time.sleep(2.5)
        s.t.say("stop")
        _, own, strange = s.t.line().split()
        check(int(own) > 500, "the profiler got only %s records" % own)
        equal(strange, "0", "buffers of ours that the profiler was given")
        n = work(s.r)
        s.r.wait_for("kernels", lambda: work(s.r) > n + 50)
        s.r.stop()
        s.off = s.r.events("gpu_kernel")[-1].ts
        gap_is_true(s, 0, 0)
        equal(sources(s.r, BUSY), [], "conflicts")
        equal({e.tid for e in s.r.events("gpu_api")}, {s.t.pid}, "system thread ids")
        s.t.say("state")
        equal(s.t.line(), "0 0", "what is switched on or held after the recording")
        s.t.say("end")


@test
def a_subscriber_by_the_second_interface_was_there_first():
    with profiled(second=True, first="prof.start()", GPUSIM_CUPTI="13.4") as s:
        s.r.wait_on()
        s.r.wait_for("kernels", lambda: work(s.r) > 200)
        s.r.stop()
        s.t.say("stop")
        check(int(s.t.line().split()[1]) > 100, "the profiler lost its records")
        s.t.say("end")


@test
def an_old_driver_or_a_wish_leads_to_the_first_interface():
    for env in (dict(GPUSIM_CUPTI_SEVERAL="0"), dict(DLBPF_CUPTI_V2="0")):
        with profiled(GPUSIM_CUPTI="13.4", **env) as s:
            s.r.wait_on()
            s.r.wait_for("kernels", lambda: work(s.r) > 50)
            time.sleep(1.3)
            s.t.say("start")    # which the second interface would refuse
            s.t.expect("started")
            s.r.wait_for("busy", lambda: sources(s.r, BUSY))
            s.r.stop()
            s.t.say("stop")
            s.t.line()
            s.t.say("end")


@test
def who_holds_cupti_is_named():
    for lib in ("13", "13.4"):
        with Session(3, GPUSIM_CUPTI=lib, GPUSIM_CUPTI_BUSY="1", GPUSIM_CUPTI_HOLDER="Nsight Systems") as s:
            s.r.wait_for("busy", lambda: sources(s.r, BUSY))
            check(sources(s.r, BUSY)[0].text.startswith("busy (CUPTI for Nsight Systems)"), sources(s.r, BUSY)[0].text)
            s.t.say("go")
            s.t.expect("done")
            s.r.stop()


# --- another injected library -----------------------------------------------------------------------

INJECTED = """
#include <stdio.h>
#include <stdlib.h>
int InitializeInjection(void);
int InitializeInjection(void)
{
	setenv("INJECTED_TOO", "yes", 1);
	return 1;
}
"""


@test
def another_injection_library_is_chained():
    with tempfile.TemporaryDirectory() as d:
        lib = os.path.join(d, "other.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", lib], input=INJECTED, text=True, check=True)
        look = ("import ctypes\nlibc = ctypes.CDLL(None)\nlibc.getenv.restype = ctypes.c_char_p\n"
                "say(libc.getenv(b'INJECTED_TOO'))\nsay('up')\n")
        code = "dev = gpusim.Device()\n" + look + "s = dev.stream()\nwait('go')\nfor _ in range(50):\n" \
               "    s.kernels(5, ms=1)\n    s.synchronize()\nsay('done')\nwait('end')\n"
        with Target(code, DLBPF_CHAIN_INJECTION=lib) as t:
            t.expect("b'yes'")
            t.expect("up")
            with Recorder(t.pid) as r:
                r.wait_on()
                t.say("go")
                t.expect("done")
                r.stop()
                equal(work(r), 250, "kernels")
            t.say("end")
            t.end()
        # One that is not there, is no injection library, or is ourselves: nothing happens.
        for bad in (d + "/none.so", "libm.so.6", COLLECTOR):
            with Target(code, DLBPF_CHAIN_INJECTION=bad) as t:
                t.expect("None")
                t.expect("up")
                t.say("go")
                t.expect("done")
                t.say("end")
                t.end()
        # With the collector switched off the other one comes all the same.
        with Target(code, DLBPF_CHAIN_INJECTION=lib, DLBPF_GPU_DISABLE="1") as t:
            t.expect("b'yes'")
        # The hint for a process that has only the other one is a command that has both.
        env = dict(sim_env(CUDA_INJECTION64_PATH=lib), DLBPF_CUPTI_LIB=COLLECTOR)
        p = subprocess.Popen([PYTHON, "-c", PRELUDE + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=env)
        try:
            equal(p.stdout.readline().strip(), "b'yes'", "the other library alone")
            os.environ["DLBPF_CUPTI_LIB"] = COLLECTOR
            with Recorder(p.pid) as r:
                hint = r.ask("hint %d" % p.pid)
                r.stop()
        finally:
            os.environ.pop("DLBPF_CUPTI_LIB", None)
            p.kill()
            p.communicate()
        check("DLBPF_CHAIN_INJECTION=%s CUDA_INJECTION64_PATH=%s " % (lib, COLLECTOR) in hint, hint)


if __name__ == "__main__":
    sys.exit(main())
