#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""dlbpf record as a command: what it records of real loaders, how it ends, what it leaves behind, and
what it says when it cannot. Names on the command line select."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

WORKER_SIGNALS = 0x44C0  # SIGBUS, SIGFPE, SIGSEGV, SIGTERM


def train(*options):
    return [dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--data", "python", "--batch", "4", *options]


def run(args, **kw):
    kw.setdefault("timeout", 60)
    return subprocess.run([dlbpf.DLBPF, "record", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", **kw)


@contextlib.contextmanager
def program(command, **kw):
    """A program of the test's own, ended with it."""
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **kw)
    try:
        yield p
    finally:
        dlbpf.stop(p)
        p.stdout.close()


def started(p):
    for line in p.stdout:
        if line.startswith('{"started"'):
            return json.loads(line)["started"]
    raise AssertionError("the training did not start")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(x) for x in f.read().split()]


def readable(trace):
    found = dlbpf.info(trace)["trace"]
    check(found["events"] > 0, f"no events in {trace}")
    return found


def workers(trace):
    return {t["pid"] for t in dlbpf.dump(trace, "task")
            if t["sig_caught"] & WORKER_SIGNALS == WORKER_SIGNALS and t["pid"] == t["tid"]}


def mark_values(trace):
    """name -> value of the trace's marks."""
    return {m["names"]["what"]: m["value"] for m in dlbpf.dump(trace, "mark")}


# --- what is recorded ----------------------------------------------------------------------------


def command_and_workers(where):
    trace = os.path.join(where, "t.dlbpf")
    rec = dlbpf.record(train("--workers", "3", "--seconds", "3"), trace)
    done = rec.done()
    check(done, "the training did not finish")
    equal(len(workers(trace)), 3, "the number of processes with PyTorch's handlers")
    check("(3 workers)" in rec.stderr, f"the summary counts other workers: {rec.stderr}")
    root = {t["pid"] for t in dlbpf.dump(trace, "task") if t["flags"] & 1}
    equal(len(root), 1, "the number of processes marked as the target")
    lines = [c for c in dlbpf.dump(trace, "cmdline") if c["pid"] in root]
    check(lines and all("dlbpf" not in os.path.basename(c["text"].split()[0]) for c in lines),
          f"the target's command line is not the command's: {lines}")
    check(any("train.py" in c["text"] for c in lines), f"no command line of the target: {lines}")


def running_process(where):
    trace = os.path.join(where, "t.dlbpf")
    with program(train("--workers", "2", "--seconds", "60")) as p:
        pid = started(p)
        dlbpf.wait_until(lambda: len(children(pid)) >= 2, 20, "workers")
        time.sleep(1)
        threads = {int(t) for c in [pid, *children(pid)] for t in os.listdir(f"/proc/{c}/task")}
        dlbpf.record_pid(pid, trace, 4)
        check(p.poll() is None, "the target did not survive its recording")
        equal(sorted(workers(trace)), sorted(children(pid)), "the workers")
        tasks = dlbpf.dump(trace, "task")
        check(threads <= {t["tid"] for t in tasks}, f"threads without a TASK: {threads - {t['tid'] for t in tasks}}")
        for t in tasks:
            age = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - t["start"]
            check(t["tid"] not in threads or 0 < age < 60e9, f"thread {t['tid']} is {age / 1e9} s old")
        names = {n["tid"] for n in dlbpf.dump(trace, "name")}
        check(threads <= names, f"threads without a NAME: {threads - names}")
        build_ids(pid, trace)
        symbols(pid, trace)
        environment(pid, trace)


def build_ids(pid, trace):
    """Mappings of the target are those of /proc, with the build-id that readelf finds."""
    found = {(m["start"], m["end"]): m for m in dlbpf.dump(trace, "mmap") if m["pid"] == pid}
    compared = 0
    with open(f"/proc/{pid}/maps") as f:
        lines = [line.split(maxsplit=5) for line in f]
    for line in lines:
        if "x" not in line[1] or len(line) < 6 or not line[5].startswith("/"):
            continue
        start, end = (int(x, 16) for x in line[0].split("-"))
        m = found.get((start, end))
        check(m, f"no MMAP for {line}")
        equal(m["file_ino"], int(line[4]), "the inode")
        equal(m["text"], line[5].rstrip("\n"), "the path")
        if compared < 8:
            notes = subprocess.run(["readelf", "-n", m["text"]], capture_output=True, text=True).stdout
            want = re.search(r"Build ID: ([0-9a-f]+)", notes)
            equal(m["build_id"], want.group(1) if want else "", f"the build-id of {m['text']}")
            compared += 1
    check(compared == 8, f"only {compared} files to compare")


def symbols(pid, trace):
    """Names of user code are those that nm gives for the file, at the same place in a page."""
    pids = (pid, *children(pid))
    maps = [m for m in dlbpf.dump(trace, "mmap") if m["pid"] in pids]
    named, tables = 0, {}
    for s in dlbpf.dump(trace, "symbol"):
        m = next((m for m in maps if m["pid"] == s["pid"] and m["start"] <= s["addr"] < m["end"]), None)
        if not m or not m["text"].startswith("/") or named == 100:
            continue
        equal(s["file_off"], s["addr"] - m["start"] + m["file_off"], "the offset in the file")
        if m["text"] not in tables:
            tables[m["text"]] = nm(m["text"])
        start = (s["file_off"] - s["off"]) & 0xFFF
        check(start in tables[m["text"]].get(s["text"], ()), f"nm knows no {s['text']} at ...{start:03x} in {m['text']}")
        named += 1
    check(named > 10, f"only {named} names of user code")
    check(any(s["pid"] == 0 for s in dlbpf.dump(trace, "symbol")) or not kernel_addresses(), "no name of kernel code")


def nm(path):
    """name -> offsets in its page, of a file's symbols"""
    found = {}
    for options in (["-D"], []):
        out = subprocess.run(["nm", "-C", "--defined-only", *options, path], capture_output=True, text=True).stdout
        for line in out.splitlines():
            m = re.match(r"([0-9a-f]+) [TtWwiIuVv] (.*?)(@.*)?$", line)
            if m:
                found.setdefault(m.group(2), set()).add(int(m.group(1), 16) & 0xFFF)
    return found


def kernel_addresses():
    with open("/proc/kallsyms") as f:
        return int(f.readline().split()[0], 16) != 0


def environment(pid, trace):
    proc = [e for e in dlbpf.dump(trace, "env_proc") if e["pid"] == pid]
    check(len(proc) >= 3, f"{len(proc)} samples of the target in 4 s")
    equal(proc[-1]["threads"], len(os.listdir(f"/proc/{pid}/task")), "the number of threads")
    equal(proc[-1]["cpus_allowed"], len(os.sched_getaffinity(pid)), "the number of CPUs")
    with open(f"/proc/{pid}/limits") as f:
        limit = int(re.search(r"Max open files +(\d+)", f.read()).group(1))
    equal(proc[-1]["fds_limit"], limit, "the limit of descriptors")
    with open(f"/proc/{pid}/maps") as f:
        maps = len(f.readlines())
    check(abs(proc[-1]["maps"] - maps) < 200, f"{proc[-1]['maps']} mappings, /proc says {maps}")
    shm = dlbpf.dump(trace, "env_shm")
    fs = os.statvfs("/dev/shm")
    equal(shm[-1]["total"], fs.f_blocks * fs.f_frsize, "the size of /dev/shm")
    host = dlbpf.dump(trace, "env_host")
    equal(host[-1]["cpus"], os.cpu_count(), "the number of CPUs of the machine")
    with open("/proc/meminfo") as f:
        equal(host[-1]["mem_total"], int(f.readline().split()[1]) * 1024, "the machine's memory")


# --- how it ends ---------------------------------------------------------------------------------


def exit_codes(where):
    trace = os.path.join(where, "t.dlbpf")
    for script, want in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)):
        p = run(["-o", trace, "--", "sh", "-c", script])
        equal(p.returncode, want, f"the exit code for {script!r} ({p.stderr.strip()})")
        status = mark_values(trace).get("target_exit")
        equal(status, want - 128 if want > 128 else want << 8, f"the recorded status for {script!r}")


def cannot_run(where):
    trace = os.path.join(where, "t.dlbpf")
    plain = os.path.join(where, "plain")
    open(plain, "w").close()
    for command, want in (("/no/such/program", 127), (plain, 126)):
        p = run(["-o", trace, "--", command])
        equal(p.returncode, want, f"the exit code for {command}")
        check(f"cannot run {command}" in p.stderr, f"the message: {p.stderr}")
        check(not os.path.exists(trace), "a trace of nothing was left behind")


def target_ends(where):
    trace = os.path.join(where, "t.dlbpf")
    with program(["sh", "-c", "sleep 1.5; exit 5"]) as p:
        rec = run(["-o", trace, "-p", str(p.pid)])
        equal(rec.returncode, 0, f"the exit code ({rec.stderr})")
        equal(p.wait(5), 5, "the target's exit code")
    equal(mark_values(trace).get("target_exit"), 5 << 8, "the recorded status")


def left_over(where):
    trace = os.path.join(where, "t.dlbpf")
    rec = run(["-o", trace, "--", "sh", "-c", "sleep 3 & exit 0"])
    equal(rec.returncode, 0, f"the exit code ({rec.stderr})")
    check("left 1 process" in rec.stderr, f"nothing is said of the process left over: {rec.stderr}")


def duration(where):
    """The recording ends, the command goes on and is waited for."""
    trace, proof = os.path.join(where, "t.dlbpf"), os.path.join(where, "proof")
    rec = run(["-o", trace, "-d", "700ms", "--", "sh", "-c", f"sleep 2; echo here > {proof}; exit 3"])
    equal(rec.returncode, 3, f"the exit code ({rec.stderr})")
    check(os.path.exists(proof), "the command was cut short")
    check(readable(trace)["complete"], "the trace has no end")
    check("target_exit" not in mark_values(trace), "an end that was not recorded")


def on_terminal(command, keys, until, limit=40):
    """Runs dlbpf on a terminal of its own; sends keys when until appears. (exit code, output)"""
    pid, fd = pty.fork()
    if not pid:
        os.execv(command[0], command)
    out, sent, end = b"", False, time.monotonic() + limit
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                data = os.read(fd, 4096)
            except OSError:
                break
            if not data:
                break
            out += data
        if not sent and re.search(until, out):
            os.write(fd, keys)
            sent = True
    os.close(fd)
    if not sent:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.decode(errors="replace")


def ctrl_c(where):
    """The terminal's Ctrl-C reaches the command, and dlbpf ends with it."""
    trace, proof = os.path.join(where, "t.dlbpf"), os.path.join(where, "proof")
    script = ("import sys, time\n"
              "try:\n print('begun', flush=True); time.sleep(60)\n"
              f"except KeyboardInterrupt:\n open({proof!r}, 'w').close(); sys.exit(9)\n")
    code, out = on_terminal([dlbpf.DLBPF, "record", "--no-report", "-o", trace, "--", dlbpf.PYTHON, "-c", script],
                            b"\x03", rb"GPU: ")
    equal(code, 9, f"the exit code ({out})")
    check(os.path.exists(proof), "the command did not get Ctrl-C")
    check(re.search(r"events/s +lost 0 .*GPU: ", out), f"no status line: {out}")
    check(readable(trace)["complete"], "the trace has no end")


def ctrl_c_pid(where):
    """With -p the target does not notice."""
    trace = os.path.join(where, "t.dlbpf")
    with program(["sleep", "60"]) as p:
        code, out = on_terminal([dlbpf.DLBPF, "record", "--no-report", "-o", trace, "-p", str(p.pid)], b"\x03", rb"GPU: ")
        equal(code, 0, f"the exit code ({out})")
        check(p.poll() is None, "the target was ended")
    check(readable(trace)["complete"], "the trace has no end")


def terminated(where):
    """A signal to dlbpf alone is handed on to its command."""
    trace, ready = os.path.join(where, "t.dlbpf"), os.path.join(where, "ready")
    script = f"trap 'exit 4' TERM; : > {ready}; while :; do sleep 0.1; done"
    p = subprocess.Popen([dlbpf.DLBPF, "record", "-q", "-o", trace, "--", "sh", "-c", script], stdin=subprocess.DEVNULL)
    try:
        dlbpf.wait_until(lambda: os.path.exists(ready), 20, "command")
        p.send_signal(signal.SIGTERM)
        equal(p.wait(20), 4, "the exit code")
    finally:
        dlbpf.stop(p)
    check(readable(trace)["complete"], "the trace has no end")


def nohup(where):
    """An ignored SIGHUP stays ignored; SIGTERM ends the recording."""
    trace = os.path.join(where, "t.dlbpf")
    with program(["sleep", "60"]) as target:
        p = subprocess.Popen(["sh", "-c", 'trap "" HUP; exec "$@"', "-", dlbpf.DLBPF, "record", "-q", "-o", trace, "-p",
                              str(target.pid)], stdin=subprocess.DEVNULL)
        try:
            dlbpf.wait_until(lambda: os.path.exists(trace) and os.path.getsize(trace), 20, "trace")
            time.sleep(0.5)
            p.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            check(p.poll() is None, "SIGHUP ended it")
            p.send_signal(signal.SIGTERM)
            equal(p.wait(20), 0, "the exit code")
        finally:
            dlbpf.stop(p)
    check(readable(trace)["complete"], "the trace has no end")


def signals_of_command(where):
    """The command starts with the signal mask and dispositions of its caller."""
    trace = os.path.join(where, "t.dlbpf")
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status"
    want = subprocess.run(["sh", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    rec = run(["-q", "-o", trace, "--", "sh", "-c", script])
    equal(rec.stdout, want, "the signals")


# --- the file ------------------------------------------------------------------------------------


def max_size(where):
    trace = os.path.join(where, "t.dlbpf")
    rec = run(["-o", trace, "--max-size", "100K", "--", *train("--workers", "2", "--seconds", "6")])
    equal(rec.returncode, 0, f"the exit code ({rec.stderr})")
    check('"done"' in rec.stdout, "the command was cut short")
    check("stopped at --max-size" in rec.stderr, f"nothing is said of the end: {rec.stderr}")
    check(os.path.getsize(trace) <= 110 << 10, f"the file has {os.path.getsize(trace)} bytes")
    readable(trace)


@contextlib.contextmanager
def mounted(where, options):
    folder = os.path.join(where, "mnt")
    os.makedirs(folder, exist_ok=True)
    p = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    need(p.returncode == 0, f"cannot mount a tmpfs: {p.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def full_disk(where):
    with mounted(where, "size=96k") as folder:
        trace = os.path.join(folder, "t.dlbpf")
        rec = run(["-o", trace, "--", *train("--workers", "2", "--seconds", "6")])
        equal(rec.returncode, 0, f"the exit code ({rec.stderr})")
        check('"done"' in rec.stdout, "the command was cut short")
        check("No space left" in rec.stderr, f"the message: {rec.stderr}")
        readable(trace)


def unwritable(where):
    proof = os.path.join(where, "proof")
    with mounted(where, "ro") as folder:
        for path in (os.path.join(folder, "t.dlbpf"), os.path.join(where, "no/such/folder/t.dlbpf"), where):
            rec = run(["-o", path, "--", "touch", proof])
            equal(rec.returncode, 125, f"the exit code for {path}")
            check(f"cannot write {path}" in rec.stderr, f"the message: {rec.stderr}")
            check(not os.path.exists(proof), "the command was run")


def foreign_files(where):
    """What is not a trace is not overwritten, and links are not followed."""
    text, link, trace = (os.path.join(where, n) for n in ("text", "link", "t.dlbpf"))
    with open(text, "w") as f:
        f.write("precious")
    os.symlink(text, link)
    for path, word in ((text, "is not a dlbpf trace"), (link, "symbolic link")):
        rec = run(["-o", path, "--", "true"])
        equal(rec.returncode, 125, f"the exit code for {path}")
        check(word in rec.stderr, f"the message: {rec.stderr}")
    with open(text) as f:
        equal(f.read(), "precious", "the file")
    for _ in range(2):  # an older trace is replaced
        equal(run(["-q", "-o", trace, "--", "true"]).returncode, 0, "the exit code")
    check(readable(trace)["complete"], "the trace has no end")


# --- what cannot be recorded ---------------------------------------------------------------------


def refused(pid, word):
    rec = run(["-o", "/dev/null", "-p", str(pid)])
    equal(rec.returncode, 1, f"the exit code for {pid}")
    check(word in rec.stderr, f"the message for {pid}: {rec.stderr}")


def bad_targets(_where):
    refused(4194303, "there is no process 4194303")
    refused(2, "a thread of the kernel")
    refused(os.getpid(), "started this dlbpf")
    with program(["sh", "-c", "sleep 0.05 & exec sleep 30"]) as p:
        dlbpf.wait_until(lambda: children(p.pid) and dlbpf.ended(children(p.pid)[0]), 10, "zombie")
        refused(children(p.pid)[0], "already ended")
    script = "import threading, time\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()\ntime.sleep(30)"
    with program([dlbpf.PYTHON, "-c", script]) as p:
        dlbpf.wait_until(lambda: len(os.listdir(f"/proc/{p.pid}/task")) == 2, 10, "thread")
        tid = max(int(t) for t in os.listdir(f"/proc/{p.pid}/task"))
        refused(tid, f"a thread of process {p.pid}")


def inside_a_container(_where):
    """With process ids of its own, dlbpf would mix up the kernel's and those of /proc."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", dlbpf.DLBPF, "record", "--", "true"]
    p = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    need("unshare" not in p.stderr, f"no namespaces here: {p.stderr.strip()}")
    equal(p.returncode, 125, f"the exit code ({p.stderr})")
    check("run it on the host" in p.stderr, f"the message: {p.stderr}")


def no_root(where):
    os.chmod(where, 0o755)
    p = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", dlbpf.DLBPF, "record", "-p", "1"],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    need("Permission denied" not in p.stderr, "the build folder is closed to other users")
    equal(p.returncode, 1, f"the exit code ({p.stderr})")
    check("needs root" in p.stderr and "sudo" in p.stderr, f"the message: {p.stderr}")


def usage(_where):
    for args in ([], ["-p", "1", "true"], ["-p", "0"], ["-p", "x"], ["--no-such-option"]):
        p = run(args)
        equal(p.returncode, 2, f"the exit code for {args}")
        check(p.stderr.startswith("dlbpf: "), f"the message for {args}: {p.stderr}")


CASES = [command_and_workers, running_process, exit_codes, cannot_run, target_ends, left_over, duration, ctrl_c,
         ctrl_c_pid, terminated, nohup, signals_of_command, max_size, full_disk, unwritable, foreign_files, bad_targets,
         inside_a_container, no_root, usage]


def main():
    tests = dlbpf.Tests("record_")
    for fn in CASES:
        if len(sys.argv) > 1 and fn.__name__ not in sys.argv[1:]:
            continue
        with dlbpf.scratch() as where:
            tests.run(fn.__name__, fn, where)
    tests.exit()


if __name__ == "__main__":
    main()
