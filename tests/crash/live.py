# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""One recorded run of a crash scenario, and what it leaves: the trace, the training's output, the kernel's
log of the time, a core file, and what was written down of it (meta.json)."""

import glob
import json
import os
import signal
import subprocess
import time

import crash_places
import dlbpf

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = os.path.join(HERE, "train.py")
MARK = "DLBPF_CRASH_TRUTH"  # environment variable; its value is the run's own file

# Waits for a line before it becomes the training: the recorder is there first.
WRAPPER = 'ulimit -c {core}; cd "$1"; echo waiting; read go; log=$2; shift 2; exec "$@" >"$log" 2>&1 </dev/null'


class KernelLog:
    """What the kernel logs from now on."""

    def __init__(self):
        try:
            self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.fd, 0, os.SEEK_END)
        except OSError:
            self.fd = -1

    def lines(self):
        """As dmesg prints them; [] where the log cannot be read."""
        found = []
        while self.fd >= 0:
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten meanwhile
                continue
            except OSError:
                break
            head, _, text = record.partition(";")
            usec = int(head.split(",")[2])
            found.append(f"[{usec // 1000000:5d}.{usec % 1000000:06d}] {text.splitlines()[0]}")
        return found

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)


class Live:
    """The training, started and recorded."""

    def __init__(self, s, place, folder, python):
        self.s, self.place, self.folder = s, place, folder
        self.trace, self.log = os.path.join(folder, "trace.dlbpf"), os.path.join(folder, "log")
        self.truth = os.path.join(folder, "truth")
        for path in (self.truth, self.log):
            open(path, "w").close()
            os.chmod(path, 0o666)
        self.rec_err = open(os.path.join(folder, "record.err"), "w")
        self.p = self.recorder = None
        self.kernel = KernelLog()
        env = dict(dlbpf.gpu_env() if s.gpu == "sim" else os.environ, OMP_NUM_THREADS="1", GPUSIM_QUIET="1",
                   GPUSIM_WAIT="block", TMPDIR=folder, PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="",
                   PYTHONUNBUFFERED="1")
        env[MARK] = self.truth
        given = json.dumps({"place": getattr(place, "params", {})})
        argv = [python, "-B", TRAIN, s.name, given]
        argv = ["sh", "-c", WRAPPER.format(core="unlimited" if s.core else "0"), "-", folder, self.log, *argv]
        if place:
            argv = place.command(argv)
        try:
            self.begin(argv, env)
        except BaseException:
            self.close()
            raise

    def begin(self, argv, env):
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env=env, start_new_session=True, text=True)
        line = self.p.stdout.readline()
        if line != "waiting\n":
            raise dlbpf.Skip(f"the place cannot be made: {line}{self.rest()}")
        if not self.s.late:
            self.record(self.p.pid)
        self.p.stdin.write("go\n")
        self.p.stdin.close()

    def record(self, pid):
        self.recorder = subprocess.Popen([dlbpf.DLBPF, "record", "--no-report", "-o", self.trace, "-p", str(pid)],
                                         stdin=subprocess.DEVNULL, stdout=self.rec_err, stderr=self.rec_err,
                                         start_new_session=True)
        dlbpf.wait_until(lambda: self.recording() or self.recorder.poll() is not None, 30, "recorder")
        dlbpf.check(self.recorder.poll() is None, f"the recorder ended at once: {self.said_by_recorder()}")

    def rest(self):
        self.p.stdin.close()
        return self.p.stdout.read()[-300:]

    def recording(self):
        return "recording" in self.said_by_recorder().lower()

    def said_by_recorder(self):
        with open(self.rec_err.name, errors="replace") as f:
            return f.read()

    def output(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def lines(self):
        """What training wrote down so far."""
        with open(self.truth) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def wait_for(self, key, seconds=40):
        """The first line with such a key."""
        found = []

        def there():
            found[:] = [line for line in self.lines() if key in line]
            return found or self.p.poll() is not None

        dlbpf.wait_until(there, seconds, f"{key!r} of the training; its output: {self.output()[-400:]}")
        dlbpf.check(found, f"the training ended before {key!r}: {self.output()[-600:]}")
        return found[0]

    @property
    def trainer(self):
        return self.wait_for("trainer")["pid"]

    def worker(self, number=0):
        """The pid of a worker."""
        found = []

        def there():
            found[:] = [line["pid"] for line in self.lines() if line.get("worker") == number]
            return found

        dlbpf.wait_until(there, 30, f"worker {number}")
        return found[-1]

    def foreign(self, name, script, *args):
        """Runs a shell script of that name, no part of the training; its pid."""
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + script + "\n")
        os.chmod(path, 0o755)
        env = {k: v for k, v in os.environ.items() if k != MARK}
        p = subprocess.Popen([path, *map(str, args)], stdin=subprocess.DEVNULL, env=env)
        dlbpf.check(p.wait(30) == 0, f"{name} ended with {p.returncode}")
        return p.pid

    def wait(self):
        """Until the run has ended, or has been seen long enough. The trainer's status as the shell has it,
        None of one that goes on."""
        status = None
        if self.s.ends == "exit":
            try:
                rc = self.p.wait(self.s.timeout)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"the training goes on; its output: {self.output()[-800:]}")
            status = 128 - rc if rc < 0 else rc
        else:
            time.sleep(self.s.seconds)
            dlbpf.check(self.p.poll() is None or self.s.late,
                        f"the training ended with {self.p.poll()}: {self.output()[-800:]}")
            self.recorder.send_signal(signal.SIGTERM)
        try:
            rc = self.recorder.wait(40)
        except subprocess.TimeoutExpired:
            raise AssertionError("the recorder does not end")
        dlbpf.check(rc == 0, f"the recorder ended with {rc}: {self.said_by_recorder()[-400:]}")
        return status

    def core(self):
        found = glob.glob(os.path.join(self.folder, "core*"))
        return max(found, key=os.path.getsize) if found else None

    def kernel_log(self):
        path = os.path.join(self.folder, "kernel.log")
        with open(path, "w") as f:
            f.writelines(line + "\n" for line in self.kernel.lines())

    def close(self):
        if self.recorder and self.recorder.poll() is None:
            self.recorder.kill()
            self.recorder.wait()
        if self.p:
            if self.p.poll() is None:
                self.p.kill()
            self.p.wait()
        end_marked(self.truth)
        if self.p:
            self.p.stdout.close()
            if not self.p.stdin.closed:
                self.p.stdin.close()
        self.kernel.close()
        self.rec_err.close()


def marked(truth):
    """Processes of a run, whoever their parent is by now."""
    found, mark = [], f"{MARK}={truth}\0".encode()
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if mark in f.read() + b"\0":
                    found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def end_stale():
    """What a runner left behind that was killed. Only one runs at a time."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if f"{MARK}=".encode() in f.read():
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
        except OSError:
            pass


unburied = set()  # killed, and perhaps not yet waited for by whoever adopted them


def end_marked(truth):
    """Ends what a run left behind."""
    for _ in range(50):
        pids = marked(truth)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                unburied.add(pid)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def wait_buried():
    """The post-mortem of a machine looks at its dead, those of earlier runs among them. An init may take seconds."""
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in unburied) and time.monotonic() < end:
        time.sleep(0.05)
    unburied.clear()


def ask_now(s, live, holder):
    """What dlbpf finds without a trace while what it is about is still there."""
    inside = ["nsenter", "-t", str(holder.pid), "-m"] if holder else []
    pid = ["--pid", str(live.trainer)] if s.now == "pid" else []
    with open(os.path.join(live.folder, "now.json"), "w") as f, open(os.path.join(live.folder, "now.err"), "w") as err:
        subprocess.run([*inside, dlbpf.DLBPF, "postmortem", "--json", *pid], stdin=subprocess.DEVNULL, stdout=f,
                       stderr=err, timeout=60)


def run(s, folder, python, torch, judge=True):
    """Records one run into the folder, and returns what was written down of it."""
    place = s.place() if s.place else crash_places.Place()
    if s.now and judge:
        wait_buried()
    with place:
        live, holder = Live(s, place, folder, python), None
        try:
            did = {}
            if s.now == "place":  # its namespace stays
                holder = subprocess.Popen(["nsenter", "-t", str(live.trainer), "-m", "sleep", "300"])
            if s.act:
                live.wait_for("ready")
                did = s.act(live) or {}
            elif s.ends != "exit":
                live.wait_for("planted" if s.ends == "hang" else "ready")
            if s.late:
                live.record(s.late(live))
            status = live.wait()
            if s.now and judge:
                ask_now(s, live, holder)
            live.kernel_log()
            lines = live.lines()
        finally:
            live.close()
            if holder:
                holder.kill()
                holder.wait()
        return written_down(s, live, place, status, did, lines, torch)


def written_down(s, live, place, status, did, lines, torch):
    trainers = [line for line in lines if "trainer" in line]
    workers = {}
    for line in lines:
        if "worker" in line:
            workers.setdefault(str(line["worker"]), []).append(line["pid"])
    planted = [line for line in lines if "planted" in line]
    meta = {"name": s.name, "text": s.text, "torch": torch, "trainer": trainers[0]["pid"] if trainers else None,
            "trainer_nspid": trainers[0]["nspid"] if trainers else None, "workers": workers, "status": status,
            "planted": planted, "place": place.params, "lines": lines[-50:], **did}
    of_role = {"trainer": [meta["trainer"]], "worker": [p for pids in workers.values() for p in pids]}.get(s.victim, [])
    if planted and planted[0]["pid"] in of_role:
        meta.setdefault("victim", planted[0]["pid"])
    if "victim" in meta:
        meta["victim_nspid"] = next((x["nspid"] for x in lines if x["pid"] == meta["victim"]), None)
    core = live.core()
    if core:
        os.rename(core, os.path.join(live.folder, "core"))
    with open(os.path.join(live.folder, "meta.json"), "w") as f:
        json.dump(meta, f, indent=1)
    dlbpf.check(not s.said or s.said in live.output(),
                f"{s.said!r} is not in the training's output: {live.output()[-800:]}")
    dlbpf.check(s.trainer is None or s.trainer == status,
                f"the trainer ended with {status}, not {s.trainer}: {live.output()[-600:]}")
    return meta
