#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 500
"""dlbpf record --keep: a recording that keeps its last part only has what came before a death, tells of
processes that were born before that part, and survives the death of its recorder. Names on the command
line select."""

import glob
import os
import random
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal  # noqa: E402
from test_record import children, program, started, train  # noqa: E402

# A tree whose root lives on while its children die, each of a line on stdin: "segv", "exit" or "term".
NURSERY = """
import os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        time.sleep(0.3)
        if line.strip() == "exit":
            os._exit(3)
        os.kill(os.getpid(), {"segv": 11, "term": 15}[line.strip()])
        time.sleep(9)
    os.waitpid(pid, 0)
    print(pid, flush=True)
"""


KILLS = int(os.environ.get("DLBPF_KILLS", "6"))
SEED = int(os.environ.get("DLBPF_SEED", str(random.SystemRandom().randrange(1 << 30))))


class Keeper:
    """dlbpf record --keep that goes on while the test does something to its target."""

    def __init__(self, where, pid, *options, keep="3s"):
        self.trace = os.path.join(where, "run.dlbpf")
        self.folder = self.trace + ".keep"
        self.err = open(os.path.join(where, "stderr"), "w+")
        self.p = subprocess.Popen([dlbpf.DLBPF, "record", "--keep", keep, "-o", self.trace, "--no-report", *options, "-p",
                                   str(pid)], stdin=subprocess.DEVNULL, stderr=self.err)
        dlbpf.wait_until(lambda: "recording process" in self.stderr(), 20, f"start of the recording: {self.stderr()}")

    def stderr(self):
        with open(self.err.name) as f:
            return f.read()

    def saved(self, trigger):
        return sorted(glob.glob(f"{self.trace[:-6]}-*-{trigger}*.dlbpf"))

    def end(self, sig=signal.SIGINT):
        self.p.send_signal(sig)
        rc = self.p.wait(30)
        equal(rc, 0, f"the exit code of the recorder ({self.stderr()[-400:]})")

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        self.err.close()


def marks(trace, what):
    return [m for m in dlbpf.dump(trace, "mark") if m["names"]["what"] == what]


def length_s(trace):
    return dlbpf.info(trace)["trace"]["duration_ns"] / 1e9


def is_bounded(trace, seconds, behind=0):
    """behind: how long the job took to end after a death. All of that is kept: PyTorch waits for its workers, up to 5 s
    for each."""
    got = length_s(trace)
    check(seconds - 1 <= got <= seconds + behind + 2.5, f"the trace has {got:.1f} s, not about {seconds} and {behind:.1f}")


def worker_killed(where):
    """After 8 s of which 3 are kept: whoever died was born long before."""
    with program(train("--workers", "2", "--seconds", "60")) as p:
        pid = started(p)
        dlbpf.wait_until(lambda: len(children(pid)) >= 2, 20, "workers")
        k = Keeper(where, pid)
        try:
            time.sleep(8)
            alive = children(pid)
            victim = alive[0]
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            equal(k.p.wait(30), 0, "the exit code of the recorder")
            behind = time.monotonic() - killed
        finally:
            k.close()
    is_bounded(k.trace, 3, behind)
    check(not os.path.exists(k.folder), "the folder of segments was left behind")
    r = dlbpf.report(k.trace)
    crash = r["crash"]
    check(crash, "no crash in the report")
    equal((crash["pid"], crash["signal"], crash["role"]), (victim, signal.SIGKILL, "worker"), f"who died ({crash})")
    check(str(os.getpid()) in crash["text"], f"the sender {os.getpid()} is not named: {crash['text']}")
    roles = {q["pid"]: q["role"] for q in r["processes"]}
    equal({roles.get(w) for w in alive}, {"worker"}, "the roles of the workers")
    equal(roles.get(pid), "trainer", "the role of the trainer")
    old = {t["pid"] for t in dlbpf.dump(k.trace, "task") if t.get("restated")}
    check({pid, *alive} <= old, f"of {({pid, *alive})} only {old} are told of again")
    named = {n["tid"] for n in dlbpf.dump(k.trace, "name")}
    check({pid, *alive} <= named, f"no names of {({pid, *alive}) - named}")
    check(any("train.py" in c["text"] for c in dlbpf.dump(k.trace, "cmdline") if c["pid"] == pid), "no command line")
    fired = marks(k.trace, "trigger")
    check(fired and str(victim) in fired[0]["text"] and "worker" in fired[0]["text"], f"no mark names the victim: {fired}")
    notes = "\n".join(r["notes"])
    check("last part of a recording" in notes and f"worker {victim}" in notes, f"the report does not say what it is of: {notes}")
    equal(len(marks(k.trace, "state")), 1, "the number of states")
    equal(len(marks(k.trace, "start")), 1, "the number of starts")
    check(dlbpf.dump(k.trace, "symbol") and dlbpf.dump(k.trace, "mmap"), "no names of functions")


def stacks_have_names(where):
    """Each stack that a sample of the kept part refers to is in there, and what a recording of everything
    has names for has names."""
    whole = os.path.join(where, "whole.dlbpf")
    with program(train("--workers", "1", "--seconds", "60")) as p:
        pid = started(p)
        dlbpf.wait_until(lambda: children(pid), 20, "workers")
        dlbpf.record_pid(pid, whole, 3, ["--user-stacks"])
        k = Keeper(where, pid, "--user-stacks")
        try:
            time.sleep(8)
            k.end()
        finally:
            k.close()
    is_bounded(k.trace, 3)
    stacks = {s["id"]: s for s in dlbpf.dump(k.trace, "stack")}
    used = [s for s in dlbpf.dump(k.trace, "sample") if s["stack"]]
    check(len(used) > 50, f"only {len(used)} samples")
    check(all(s["stack"] in stacks for s in used), "samples without their stacks")
    want = {(s["pid"], s["addr"]): s["text"] for s in dlbpf.dump(whole, "symbol")}
    have = {(s["pid"], s["addr"]): s["text"] for s in dlbpf.dump(k.trace, "symbol")}
    asked = {(s["pid"], s["ip"]) for s in used} & want.keys()
    check(len(asked) >= 5, f"only {len(asked)} places to compare")
    for at in asked:
        equal(have.get(at), want[at], f"the name of {at}")


def nursery(where, *options):
    p = subprocess.Popen([sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    return p, Keeper(where, p.pid, *options)


def say(p, word):
    p.stdin.write(word + "\n")
    p.stdin.flush()
    return int(p.stdout.readline())


def fires_cools_and_goes_on(where):
    p, k = nursery(where, "--cooldown", "8s")
    try:
        time.sleep(1)
        say(p, "exit")
        say(p, "term")  # how helpers end, and are ended
        victim = say(p, "segv")
        dlbpf.wait_until(lambda: len(k.saved("death")) == 1 and "saved " in k.stderr(), 20, f"saved trace: {k.stderr()}")
        first = k.saved("death")[0]
        check(re.search(r"run-\d{8}-\d{6}-death\.dlbpf$", first), f"its name is {first}")
        fired = marks(first, "trigger")
        equal([m["value"] for m in fired], [1], f"the triggers ({fired})")
        check(str(victim) in fired[0]["text"], f"the victim {victim} is not named: {fired[0]['text']}")
        check(any(e["pid"] == victim for e in dlbpf.dump(first, "exit")), "its exit is missing")
        check(dlbpf.info(first)["trace"]["complete"], "it is not whole")
        check(str(victim) in marks(first, "stop")[0]["text"], f"its end does not say why it was saved: {marks(first, 'stop')}")
        after = max(s["ts"] for s in dlbpf.dump(first, "env_host")) - fired[0]["ts"]
        check(3e9 < after < 8e9, f"{after / 1e9:.1f} s of what followed")
        say(p, "segv")  # 5 s and a bit after the first
        time.sleep(1)
        check("--cooldown is not over" in k.stderr(), f"nothing is said of the second: {k.stderr()}")
        time.sleep(4)
        third = say(p, "segv")
        dlbpf.wait_until(lambda: len(k.saved("death")) == 2, 20, f"second trace: {k.stderr()}")
        time.sleep(1)
        check(any(str(third) in m["text"] for m in marks(k.saved("death")[1], "trigger")), "the third is not in the second")
        k.end()
        equal(len(k.saved("death")), 2, "the number of traces")
    finally:
        p.kill()
        p.wait()
        k.close()
    dlbpf.report(first)
    check(not os.path.exists(k.folder), "the folder of segments was left behind")


def asked_by_signal(where):
    p, k = nursery(where, "--trigger", "signal", "--bundles", "1")
    try:
        time.sleep(2)
        say(p, "segv")  # not asked for
        for n in range(2):
            k.p.send_signal(signal.SIGUSR1)
            dlbpf.wait_until(lambda: k.stderr().count("saved ") == n + 1, 20, f"saved trace: {k.stderr()}")
            equal(len(k.saved("signal")), 1, "the number of traces, of which --bundles 1 keeps one")
            time.sleep(1.1)
        check(not k.saved("death"), "a trigger that was not asked for has saved something")
        equal(marks(k.saved("signal")[0], "trigger")[-1]["value"], 6, "what fired last")
        k.end()
    finally:
        p.kill()
        p.wait()
        k.close()


def size_is_kept(where):
    with program(train("--workers", "2", "--seconds", "60")) as p:
        pid = started(p)
        k = Keeper(where, pid, "--sample-hz", "4000", keep="4M")
        try:
            most = 0
            for _ in range(40):
                time.sleep(0.2)
                files = glob.glob(k.folder + "/*")
                most = max(most, sum(os.path.getsize(f) for f in files if os.path.exists(f)))
            k.end()
        finally:
            k.close()
    check(most <= 5 << 20, f"there were {most} bytes of 4 MiB")
    check(os.path.getsize(k.trace) <= 5 << 20, f"{os.path.getsize(k.trace)} bytes were saved")
    dlbpf.report(k.trace)


def recorder_killed(where):
    """Its segments can be read, and the next recorder makes a trace of them."""
    with program(train("--workers", "2", "--seconds", "60")) as p:
        pid = started(p)
        dlbpf.wait_until(lambda: len(children(pid)) >= 2, 20, "workers")
        alive = children(pid)
        k = Keeper(where, pid)
        try:
            time.sleep(6.5)
            killed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            k.p.kill()
            k.p.wait()
        finally:
            k.close()
        check(p.poll() is None, "the target died with its recorder")
        segments = sorted(glob.glob(k.folder + "/*.dlbpf"))
        check(len(segments) >= 3, f"the segments are {segments}")
        seen = dlbpf.report(k.trace)  # nothing is in the file, so the folder beside it is read
        equal({q["pid"] for q in seen["processes"] if q["role"] == "worker"}, set(alive), "the workers in the folder")
        check(not seen["trace"]["complete"], "what a killed recorder left is called complete")
        late = killed - max(e["ts"] for e in dlbpf.dump(k.folder, "switch"))
        check(late < 2_500_000_000, f"the last {late / 1e6:.0f} ms are missing in the folder")
        for s in segments[-2:]:
            tasks = {t["pid"] for t in dlbpf.dump(s, "task")}
            check({pid, *alive} <= tasks, f"{s} knows {tasks}, not {({pid, *alive})}")
            dlbpf.report(s)
        k = Keeper(where, pid)
        try:
            time.sleep(1)
            k.end()
        finally:
            k.close()
    saved = k.saved("recovered")
    equal(len(saved), 1, f"the number of traces made of what was left ({k.stderr()})")
    check(os.path.basename(saved[0]) in k.stderr(), f"it is not told of: {k.stderr()}")
    late = killed - max(e["ts"] for e in dlbpf.dump(saved[0], "switch"))
    check(late < 2_500_000_000, f"the last {late / 1e6:.0f} ms are missing")
    is_bounded(saved[0], 3)
    roles = {q["pid"]: q["role"] for q in dlbpf.report(saved[0])["processes"]}
    equal({roles.get(w) for w in alive}, {"worker"}, "the roles of the workers")


def killed_at_random(where):
    """While segments come and go; the target is killed at the same instant. A failure names the seed."""
    rnd = random.Random(SEED)
    for n in range(KILLS):
        with dlbpf.scratch() as here, program(train("--workers", "1", "--seconds", "60")) as p:
            pid = started(p)
            k = Keeper(here, pid, keep="2s")
            try:
                time.sleep(rnd.uniform(2, 5))
                killed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                for victim in [k.p.pid, pid, *children(pid)]:
                    os.kill(victim, signal.SIGKILL)
                k.p.wait()
            finally:
                k.close()
            late = killed - max(e["ts"] for e in dlbpf.dump(k.trace, "switch"))
            check(late < 2_500_000_000, f"kill {n} of DLBPF_SEED={SEED}: the last {late / 1e6:.0f} ms are missing")
            roles = {q["role"] for q in dlbpf.report(k.trace)["processes"]}
            check("worker" in roles, f"kill {n} of DLBPF_SEED={SEED}: the roles are {roles}")


def gaps(where):
    """Each batch takes 8 s: the trainer stands still, its worker sleeps."""
    with program(train("--data", "sleep", "--sample-ms", "8000", "--batch", "1", "--workers", "1", "--seconds", "60")) as p:
        pid = started(p)
        k = Keeper(where, pid, "--trigger", "gap=4s")
        try:
            dlbpf.wait_until(lambda: k.saved("gap") and "saved " in k.stderr(), 40, f"saved trace: {k.stderr()}")
            k.end()
        finally:
            k.close()
    fired = marks(k.saved("gap")[0], "trigger")
    check(fired and fired[0]["value"] == 4, f"what fired: {fired}")
    check(f"the trainer {pid} " in fired[0]["text"] and "1 worker lives" in fired[0]["text"], f"its text is {fired[0]['text']}")


def stalls(where):
    """Nobody does anything: that is told once, until somebody does."""
    p, k = nursery(where, "--trigger", "stall=3s", "--cooldown", "1s")
    try:
        dlbpf.wait_until(lambda: len(k.saved("stall")) == 1 and "saved " in k.stderr(), 30, f"saved trace: {k.stderr()}")
        time.sleep(4)
        equal(len(k.saved("stall")), 1, "the number of traces")
        fired = marks(k.saved("stall")[0], "trigger")
        equal([m["value"] for m in fired], [5], f"what fired ({fired})")
        k.end()
    finally:
        p.kill()
        p.wait()
        k.close()


# Loses four descriptors a second until there are no more, and dies of it.
LEAK = """
import os, time
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(60)]
print("ready", flush=True)
while True:
    for _ in range(4):
        held.append(os.open("/dev/null", os.O_RDONLY))
    time.sleep(1)
"""


def saved_before_it_dies(where):
    """The forecast comes before the death, and at about the time that the leak was planted for."""
    p = subprocess.Popen(["prlimit", "--nofile=256", sys.executable, "-c", LEAK], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    k = None
    try:
        p.stdout.readline()
        k = Keeper(where, p.pid, "--trigger", "death", "--on-forecast", "40s", keep="20s")
        dlbpf.wait_until(lambda: len(k.saved("forecast")) == 1 and "saved " in k.stderr(), 60, f"saved trace: {k.stderr()}")
        check(p.poll() is None, "it was dead before it was saved")
        fired = marks(k.saved("forecast")[0], "trigger")
        equal([m["value"] for m in fired], [7], f"what fired ({fired})")
        text = fired[0]["text"]
        m = re.match(rf"the open files of process {p.pid} will meet its limit in about (\d+) s", text)
        check(m, f"its text is {text!r}")
        told = time.monotonic()
        dlbpf.report(k.saved("forecast")[0])
        p.wait(60)
        lived = time.monotonic() - told
        want = int(m.group(1))
        check(want / 2 - 5 < lived < want * 2 + 5, f"{text!r}; it lived {lived:.0f} s more")
        equal(k.p.wait(30), 0, "the exit code of the recorder")
    finally:
        p.kill()
        p.wait()
        p.stdout.close()
        if k:
            k.close()


def command_that_fails(where):
    """FILE is how it ended, and the exit code is the command's."""
    trace = os.path.join(where, "run.dlbpf")
    rec = dlbpf.record(["sh", "-c", "sleep 4; exit 5"], trace, ["--keep", "2s"], rc=5)
    is_bounded(trace, 2)
    equal([m["value"] for m in marks(trace, "trigger")], [1], "the trigger")
    check("death: " in rec.stderr and "exit code 5" in rec.stderr, f"nothing is said of it: {rec.stderr}")
    equal(glob.glob(os.path.join(where, "run*")), [trace], "what is left")


CASES = [worker_killed, stacks_have_names, fires_cools_and_goes_on, asked_by_signal, size_is_kept, recorder_killed,
         killed_at_random, gaps, stalls, saved_before_it_dies, command_that_fails]


def main():
    tests = dlbpf.Tests("keep: ")
    if not os.path.exists(dlbpf.DLBPF):
        sys.exit(f"{dlbpf.DLBPF} has not been built")
    wanted = sys.argv[1:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            with dlbpf.scratch() as where:
                tests.run(case.__name__, case, where)
    tests.exit()


if __name__ == "__main__":
    main()
