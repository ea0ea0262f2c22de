#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""A recorder that cannot keep up: it is stopped, its disk does not answer, its target forks all the
time. What is left out is named with its time, what ended is all there, what is not known is called
unexplained, and nobody waits for the recorder. Names on the command line select."""

import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402
from test_record import children, program, started  # noqa: E402
from throttle import SlowDisk  # noqa: E402

STOP_S = 6
SLACK_NS = 1_500_000_000  # from the recorder's waking up to its first whole second
LAST = 1  # enum dl_exit_flag


def small(*options):
    """Batches of a few numbers, one after the other: the most switches that a loader makes."""
    return [dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--data", "small", "--batch", "8", "--workers", "2", *options]


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Recorder:
    """dlbpf record -p PID that is stopped and goes on when the test says so."""

    def __init__(self, pid, trace, *options):
        self.trace = trace
        self.p = subprocess.Popen([dlbpf.DLBPF, "record", "-o", trace, *options, "-p", str(pid)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def began(self):
        dlbpf.wait_until(lambda: os.path.exists(self.trace) and os.path.getsize(self.trace) > 20000, 20, "events in the file")

    def stop(self):
        self.p.send_signal(signal.SIGSTOP)
        self.stopped = now()

    def go_on(self):
        self.resumed = now()
        self.p.send_signal(signal.SIGCONT)

    def end(self, seconds=60):
        """Its output, when it has ended by itself."""
        try:
            out, _ = self.p.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the recorder does not end")
        equal(self.p.returncode, 0, f"the recorder's exit code ({out[-400:]})")
        return out

    def kill(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.communicate()


def lost_of(r, kind):
    return [x for x in r["losses"] if x["kind"] == kind and x["cause"] == "ring full"]


def stopped_and_goes_on(where):
    trace = os.path.join(where, "t.dlbpf")
    with program(small("--seconds", "60"), stderr=subprocess.DEVNULL) as p:
        pid = started(p)
        dlbpf.wait_until(lambda: len(children(pid)) >= 2, 20, "workers")
        rec = Recorder(pid, trace, "-d", f"{STOP_S + 6}s", "--sample-hz", "499", "--user-stacks")
        try:
            rec.began()
            time.sleep(1.5)
            rec.stop()
            time.sleep(STOP_S)
            rec.go_on()
            out = rec.end()
        finally:
            rec.kill()
        check(p.poll() is None, "the target did not survive")
    check("left out" in out, f"the recorder does not tell that it left something out: {out}")
    r = dlbpf.report(trace)  # adds up
    start = dlbpf.info(trace)["meta"]["start_ts"]
    stop, cont = rec.stopped - start, rec.resumed - start
    need(lost_of(r, "switch"), f"a machine this busy fills no ring in {STOP_S} s")
    which_and_when(r, stop, cont)
    switches(trace, rec)
    unexplained = sum(c["ns"] for c in dlbpf.charges(r) if c["cause"] == "unexplained")
    holes = [m for m in (re.match(r"\d+ holes? of ([\d.]+) s in all", note) for note in r["notes"]) if m]
    check(holes, f"no note tells of the hole: {r['notes']}")
    length = float(holes[0].group(1)) * 1e9
    check(unexplained < length + 500e6, f"{unexplained / 1e9:.2f} s are unexplained, of a hole of {length / 1e9:.2f} s")
    # The trainer may have been waiting when the hole began, or not: then nobody knows that it waited at all.
    blamed = sum(c["ns"] for c in dlbpf.charges(r)) - unexplained
    rest = r["trace"]["duration_ns"] - length
    check(blamed < rest + 200e6, f"{blamed / 1e9:.2f} s are charged to causes, {rest / 1e9:.2f} s lie outside of the hole")
    text = dlbpf.report_text(trace)
    check("left out" in text and "user stacks of samples" in text, f"the text does not say what was left out:\n{text}")
    check("hole" in text, "the text does not tell of the hole")
    outside(trace, stop, cont)


def which_and_when(r, stop, cont):
    left = {x["what"]: x for x in r["left_out"]}
    check("user stacks of samples" in left, f"no user stacks were left out: {list(left)}")
    for x in r["left_out"]:
        check(x["count"] > 0 and x["times"], f"no count or no time: {x}")
        # A busy machine leaves something out at other times, too.
        check(all(0 <= t["start_ns"] <= t["end_ns"] <= r["trace"]["duration_ns"] for t in x["times"]), f"{x['what']}: {x['times']}")
    check(any(t["start_ns"] < cont and t["end_ns"] > stop for t in left["user stacks of samples"]["times"]),
          f"{left['user stacks of samples']}, stopped from {stop} to {cont}")
    equal(r["trace"]["left_out"], sum(x["count"] for x in r["left_out"]), "the sum of what was left out")
    equal(r["trace"]["lost"], sum(x["count"] for x in r["losses"] if x["cause"] != "no stack"), "the sum of what was lost")
    rows = lost_of(r, "switch")
    check(any(x["first_ns"] < cont + SLACK_NS and x["last_ns"] > stop for x in rows), f"{rows}, stopped from {stop} to {cont}")
    first = min(x["first_ns"] for x in rows)
    check(left["user stacks of samples"]["times"][0]["start_ns"] <= first, "switches went before user stacks")
    check(not any(x["kind"] in ("fork", "exit", "exec") for x in r["losses"]), f"births or ends were lost: {r['losses']}")


def switches(trace, rec):
    """They are there up to the stop, a while into it, and behind it."""
    ts = sorted(e["ts"] for e in dlbpf.dump(trace, "switch"))
    check(any(rec.stopped < t < rec.resumed for t in ts), "the rings were not used while the recorder stood still")
    check(sum(t > rec.resumed + SLACK_NS for t in ts) > 1000, "hardly any switches behind the stop")


def outside(trace, stop, cont):
    """The report of what lies before the stop, and of what lies behind, knows what happened."""
    for option, value in (("--to", stop), ("--from", cont + SLACK_NS)):
        r = dlbpf.report(trace, option, f"{value / 1e9:.3f}")
        if lost_of(r, "switch"):
            continue  # the machine is busy: there are more holes
        total = sum(c["ns"] for c in dlbpf.charges(r))
        lost = sum(c["ns"] for c in dlbpf.charges(r) if c["cause"] == "unexplained")
        check(total > 0 and lost < total / 10, f"{option}: {lost / 1e6:.0f} ms of {total / 1e6:.0f} ms are unexplained")


def crash_while_stopped(where):
    """A worker dies by a signal and takes the training with it, while the recorder stands still."""
    trace = os.path.join(where, "t.dlbpf")
    with program(small("--seconds", "60"), stderr=subprocess.DEVNULL) as p:
        pid = started(p)
        dlbpf.wait_until(lambda: len(children(pid)) >= 2, 20, "workers")
        time.sleep(1)
        workers = children(pid)
        rec = Recorder(pid, trace)
        try:
            rec.began()
            rec.stop()
            time.sleep(2)
            os.kill(workers[0], signal.SIGSEGV)
            p.wait(30)
            time.sleep(1)
            rec.go_on()
            rec.end()
        finally:
            rec.kill()
    ended = {e["pid"]: e["code"] for e in dlbpf.dump(trace, "exit") if e["flags"] & LAST}
    check({pid, *workers} <= set(ended), f"ends are missing: {sorted(ended)} of {pid} and {workers}")
    equal(ended[workers[0]] & 0x7F, signal.SIGSEGV, "the signal that the worker died of")
    signals = [s for s in dlbpf.dump(trace, "signal") if s["sig"] == signal.SIGSEGV and s["target_pid"] == workers[0]]
    check(signals and signals[0]["pid"] == os.getpid(), f"who sent the signal is not known: {signals}")
    r = dlbpf.report(trace)
    check(r["crash"] and r["crash"]["pid"] == workers[0], f"the crash: {r['crash']}")


def forks_while_stopped(where):
    """A loader that forks helpers all the time: every birth and every end is there."""
    trace = os.path.join(where, "t.dlbpf")
    forks = 3000
    script = f"read x; i=0; while [ $i -lt {forks} ]; do (exit 3); i=$((i+1)); done; exit 5"
    p = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    rec = None
    try:
        rec = Recorder(p.pid, trace)
        dlbpf.wait_until(lambda: os.path.exists(trace) and os.path.getsize(trace) > 0, 20, "file")
        time.sleep(1.5)
        rec.stop()
        p.stdin.write(b"\n")
        p.stdin.close()
        p.wait(120)
        rec.go_on()
        rec.end()
    finally:
        dlbpf.stop(p)
        if rec:
            rec.kill()
    born = [e for e in dlbpf.dump(trace, "fork") if e["child_pid"] == e["child_tid"]]
    ended = [e for e in dlbpf.dump(trace, "exit") if e["flags"] & LAST]
    equal(len(born), forks, "births")
    equal(sum(e["code"] == 3 << 8 for e in ended), forks, "ends")
    equal([e["code"] for e in ended if e["pid"] == p.pid], [5 << 8], "the end of the shell")
    r = dlbpf.report(trace)
    check(not any(x["kind"] in ("fork", "exit") for x in r["losses"]), f"{r['losses']}")


def disk_that_does_not_answer(where):
    """The file's disk is frozen for a while: what is recorded then waits in memory."""
    need(subprocess.run(["sh", "-c", "command -v fsfreeze"], capture_output=True).returncode == 0, "no fsfreeze")
    with SlowDisk(1 << 30) as disk, program(small("--seconds", "60"), stderr=subprocess.DEVNULL) as p:
        trace = os.path.join(disk.mount, "t.dlbpf")
        pid = started(p)
        dlbpf.wait_until(lambda: len(children(pid)) >= 2, 20, "workers")
        rec = Recorder(pid, trace, "-d", "11s")
        try:
            rec.began()
            time.sleep(1)
            frozen = now()
            run("fsfreeze", "-f", disk.mount)
            try:
                time.sleep(STOP_S)
            finally:
                run("fsfreeze", "-u", disk.mount)
            thawed = now()
            rec.end()
        finally:
            rec.kill()
        r = dlbpf.report(trace)
        check(r["trace"]["complete"], "the file is not whole")
        check(not lost_of(r, "switch"), f"lost events ({r['losses']})")
        inside = sum(frozen < e["ts"] < thawed for e in dlbpf.dump(trace, "switch"))
        check(inside > 1000, f"{inside} switches while the disk did not answer")


def run(*command):
    p = subprocess.run(command, capture_output=True, text=True)
    need(p.returncode == 0, f"{command[0]}: {p.stderr.strip()[-200:]}")


TESTS = [stopped_and_goes_on, crash_while_stopped, forks_while_stopped, disk_that_does_not_answer]


def main():
    tests = dlbpf.Tests("overload_")
    names = sys.argv[1:]
    for fn in TESTS:
        if names and not any(n in fn.__name__ for n in names):
            continue
        with dlbpf.scratch() as where:
            tests.run(fn.__name__, fn, where)
    tests.exit()


if __name__ == "__main__":
    main()
