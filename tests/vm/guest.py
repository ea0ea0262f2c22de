#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Inside the guest: records a loader of known behaviour with the binary built outside, and compares
the report with what was planted. Also runs outside, on the machine's own kernel."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal  # noqa: E402

LOADER = [dlbpf.PYTHON, os.path.join(HERE, "loader.py")]
SECONDS = "3"


def planted(where, mode):
    """Records the loader; returns what it said and the report."""
    trace = os.path.join(where, f"{mode}.dlbpf")
    rec = dlbpf.record(LOADER + [mode, SECONDS], trace, timeout=90, rc=1 if mode == "killed" else 0)
    return rec.lines()[-1], dlbpf.report(trace)


def processes(said, r):
    roles = {p["pid"]: p["role"] for p in r["processes"]}
    equal(roles.get(said["pid"]), "trainer", "the role of the loader's main process")
    for pid in said["workers"]:
        equal(roles.get(pid), "worker", f"the role of worker {pid}")
    equal(r["trace"]["lost"], 0, "the number of lost events")
    check(r["trace"]["complete"], "the trace is not complete")


def compute(where):
    """40 ms of work a batch, two workers: nearly all of the trainer's time is waiting for them."""
    said, r = planted(where, "compute")
    processes(said, r)
    dlbpf.verdict_is(r, "decode", 0.5)
    waited = r["waits"]["total_ns"] / 1e9
    check(waited > 0.6 * said["seconds"], f"waited {waited:.2f} of {said['seconds']} s")
    # Each batch is 40 ms of a worker's CPU time by its own clock; the recorded totals must have it.
    cpu = sum(p["cpu_ns"] for p in r["processes"] if p["pid"] in said["workers"]) / 1e9
    planted_cpu = 0.040 * said["batches"]
    check(planted_cpu * 0.95 < cpu < planted_cpu * 1.5 + 0.5,
          f"the workers used {cpu:.2f} s of CPU, planted are {planted_cpu:.2f} s")


def sleep(where):
    """Two workers that sleep 40 ms a batch: the trainer waits for nothing else."""
    said, r = planted(where, "sleep")
    processes(said, r)
    dlbpf.verdict_is(r, "sleep", 0.5)
    slept = dlbpf.shares(r)["sleep"] * r["waits"]["total_ns"] / 1e9
    check(slept < 1.05 * said["seconds"] + 0.2, f"slept {slept:.2f} s of {said['seconds']} s")
    for p in r["processes"]:
        if p["pid"] in said["workers"]:
            equal(p["exit_status"], 0, f"the exit status of worker {p['pid']}")
            timer = p["blocked_ns"]["timer"] / 1e9
            check(timer > 0.7 * said["seconds"], f"worker {p['pid']} slept {timer:.2f} s of {said['seconds']}")


def host(where):
    """The trainer works 40 ms for each batch and its workers 2: it waits only while they begin."""
    said, r = planted(where, "host")
    processes(said, r)
    waited = r["waits"]["total_ns"] / 1e9
    check(waited < 0.5 * said["seconds"] or dlbpf.shares(r).get("host", 0) > 0.5,
          f"waited {waited:.2f} of {said['seconds']} s for {dlbpf.describe(r)}")


def killed(where):
    said, r = planted(where, "killed")
    crash = r["crash"]
    check(crash, "no crash in the report")
    equal(crash["pid"], said["victim"], "the process that died first")
    equal(crash["signal"], 9, "its signal")
    equal(crash["cause"], "killed-by", "the cause")
    check(str(said["killer"]) in crash["text"], f"the killer {said['killer']} is not named: {crash['text']}")


OOM_MIB = 96


def group_of(limits):
    """A cgroup of version 2 with these files; the command that enters it."""
    group = "/sys/fs/cgroup/dlbpf-test"
    dlbpf.need(os.path.exists("/sys/fs/cgroup/cgroup.controllers"), "no cgroup v2 here")
    with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
        f.write("+memory")
    os.makedirs(group, exist_ok=True)
    for name, value in limits.items():
        try:
            with open(os.path.join(group, name), "w") as f:
                f.write(value)
        except FileNotFoundError:  # no swap in this kernel
            pass
    return group, ["sh", "-c", f"echo $$ >{group}/cgroup.procs; exec \"$@\"", "-"]


def oom(where):
    """A memory cgroup of 96 MiB, and a worker that keeps 2 MiB of each batch: from the trace, and from what
    the kernel logged alone."""
    with open("/dev/kmsg", "w") as f:
        f.write("dlbpf-test: begin\n")
    group, enter = group_of({"memory.max": str(OOM_MIB << 20), "memory.swap.max": "0"})
    trace = os.path.join(where, "oom.dlbpf")
    try:
        rec = dlbpf.record(enter + LOADER + ["leak", "60", "2", "5"], trace, timeout=150, rc=1)
    finally:
        try:
            os.rmdir(group)
        except OSError:
            pass
    said = rec.lines()[-1]
    equal(said["status"] & 0x7F, 9, "the signal that the worker died of")
    pm = dlbpf.postmortem(trace)
    killed_for_memory(said, pm, "the trace")
    for name, least in (("cgroup.limit", OOM_MIB << 20), ("cgroup.usage", OOM_MIB * 9 // 10 << 20),
                        ("cgroup.anon", OOM_MIB // 2 << 20)):
        check(name in pm["numbers"], f"no number {name}: {sorted(pm['numbers'])}")
        value = pm["numbers"][name]["value"]
        check(least <= value <= OOM_MIB << 20, f"{name} is {value}")
    log = os.path.join(where, "kernel.log")
    text = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace").stdout
    with open(log, "w") as f:
        f.write(text.rpartition("dlbpf-test: begin\n")[2])
    killed_for_memory(said, dlbpf.postmortem("--kernel-log", log), "the kernel's log")


def oom_host(where):
    """The same without a cgroup: all of the machine's memory. Only where the machine is a test's."""
    dlbpf.need(os.environ.get("VM_RUN"), "this machine may not run out of memory")
    trace = os.path.join(where, "oom-host.dlbpf")
    rec = dlbpf.record(LOADER + ["leak", "300", "2", "2"], trace, timeout=200, rc=1)
    said = rec.lines()[-1]
    equal(said["status"] & 0x7F, 9, "the signal that the worker died of")
    pm = dlbpf.postmortem(trace)
    equal(pm["verdict"]["death"], "oom-host", f"the verdict ({pm['verdict']['text']})")
    equal(pm["victim"]["pid"], said["victim"], "the victim")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    value = pm["numbers"].get("host.total", {}).get("value")
    check(value and abs(value - total) < total // 20, f"host.total is {value}, not {total}")


def poison(where):
    """A page of a worker is bad memory."""
    dlbpf.need(os.environ.get("VM_RUN"), "this machine's memory is to stay good")
    trace = os.path.join(where, "poison.dlbpf")
    rec = dlbpf.record(LOADER + ["poison", "60", "2", "5"], trace, timeout=100, rc=1)
    said = rec.lines()[-1]
    dlbpf.need(said["status"] != 77 << 8, "this kernel has no memory failure (MADV_HWPOISON)")
    equal(said["status"] & 0x7F, 7, "the signal that the worker died of")
    pm = dlbpf.postmortem(trace)
    equal(pm["verdict"]["death"], "memory-failure", f"the verdict ({pm['verdict']['text']})")
    equal(pm["victim"]["pid"], said["victim"], "the victim")


def killed_for_memory(said, pm, what):
    equal(pm["verdict"]["death"], "oom-cgroup", f"the verdict from {what} ({pm['verdict']['text']})")
    check(pm["verdict"]["confidence"] in ("certain", "likely"), f"it is only {pm['verdict']['confidence']}")
    equal(pm["victim"]["pid"], said["victim"], f"the victim from {what}")


def postmortem(where):
    """The killed worker of the test before, explained again with the output of a full /dev/shm beside it."""
    trace, log = os.path.join(where, "killed.dlbpf"), os.path.join(where, "pasted.log")
    dlbpf.need(os.path.exists(trace), "no recording of a killed worker")
    with open(log, "w") as f:
        f.write("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
                "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n")
    first = dlbpf.postmortem(trace)
    equal(first["verdict"]["death"], "killed-by", f"the verdict ({first['verdict']['text']})")
    equal(first["verdict"]["signal"], 9, "the signal")
    beside = dlbpf.postmortem(trace, "--log", log)
    equal(beside["verdict"]["death"], "killed-by", "the verdict with another fault's output beside it")
    equal(beside["victim"], first["victim"], "the victim with another fault's output beside it")


def quota(where):
    """A cgroup that gives both workers a fifth of a CPU."""
    group = "/sys/fs/cgroup/dlbpf-test"
    dlbpf.need(os.path.exists("/sys/fs/cgroup/cgroup.controllers"), "no cgroup v2 here")
    with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
        f.write("+cpu")
    os.makedirs(group, exist_ok=True)
    try:
        with open(os.path.join(group, "cpu.max"), "w") as f:
            f.write("20000 100000")
        trace = os.path.join(where, "quota.dlbpf")
        enter = f"echo $$ >{group}/cgroup.procs; exec \"$@\""
        dlbpf.record(["sh", "-c", enter, "-"] + LOADER + ["compute", SECONDS], trace, timeout=120)
        r = dlbpf.report(trace)
        dlbpf.verdict_is(r, "cpu-quota", 0.5)
    finally:
        try:
            os.rmdir(group)
        except OSError:
            pass


def attach(where):
    """A recorder that comes later finds the tree as it is."""
    p = subprocess.Popen(LOADER + ["compute", "8"], stdout=subprocess.PIPE, text=True)
    try:
        trace = os.path.join(where, "attach.dlbpf")
        dlbpf.wait_until(lambda: len(children(p.pid)) >= 2, 20, "worker")
        dlbpf.record_pid(p.pid, trace, 2)
        r = dlbpf.report(trace)
    finally:
        dlbpf.stop(p)
        p.stdout.close()
    dlbpf.verdict_is(r, "decode", 0.5, unexplained=0.1)
    roles = [q["role"] for q in r["processes"]]
    check(roles.count("worker") == 2 and "trainer" in roles, f"roles are {roles}")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return f.read().split()
    except OSError:
        return []


def main():
    release = os.uname().release
    tests = dlbpf.Tests(f"{release}: " if os.environ.get("VM_RUN") else "")
    which = sys.argv[1:] or ["compute", "sleep", "host", "killed", "postmortem", "oom", "poison", "attach", "quota",
                             "oom_host"]
    with tempfile.TemporaryDirectory(prefix="dlbpf-vm-") as where:
        for name in which:
            tests.run(f"{name}", globals()[name], where)
        if tests.failed:
            for name in sorted(os.listdir(where)):
                if not name.endswith(".dlbpf"):
                    continue
                p = subprocess.run([dlbpf.DLBPF, "report", os.path.join(where, name)], capture_output=True, text=True)
                print(f"--- {name}\n{p.stdout[:2500]}{p.stderr[:500]}")
    tests.exit()


if __name__ == "__main__":
    main()
