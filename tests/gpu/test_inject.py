#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""The collector, loaded into processes that run: what they do is not disturbed, whatever the injector
meets, and those that must not be touched are not. DLBPF_INJECT_ROUNDS=100 makes the busy ones many."""

import glob
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gputest
from gputest import (BUILD, COLLECTOR, PYTHON, ROOT, SIM, TOOLS, WORK, Recorder, Session, Skip, Target, check, compare,
                     equal, test)

INJECTOR = os.environ.get("DLBPF_INJECTOR", os.path.join(TOOLS, "injector"))
CUDA = os.path.join(SIM, "libcuda.so.1")
BUSY = os.path.join(ROOT, "tests", "gpu", "inject_busy.py")
ROUNDS = int(os.environ.get("DLBPF_INJECT_ROUNDS", "1"))
TMP = tempfile.TemporaryDirectory()
OK = re.compile(r"ok tid (\d+) tries \d+ away_us \S+ load_us \S+$")


def need_root():
    if os.geteuid():
        raise Skip("needs root")


def inject(pid):
    return subprocess.run([INJECTOR, str(pid), COLLECTOR], stdout=subprocess.PIPE, text=True, timeout=60).stdout.strip()


def must_inject(pid):
    out = inject(pid)
    m = OK.match(out)
    check(m, out)
    return int(m.group(1))


def has_collector(pid):
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            if os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("/memfd:dlbpf-gpu"):
                return True
        except OSError:
            pass
    return False


def state(pid):
    """'t' and 'T' are stopped."""
    with open("/proc/%d/stat" % pid) as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def untouched(pid):
    check(state(pid) not in "tTZX", "the target is in state " + state(pid))
    with open("/proc/%d/status" % pid) as f:
        check("TracerPid:\t0\n" in f.read(), "the target is traced")


def c_program(name, code, *flags):
    path = os.path.join(TMP.name, name)
    src = path + ".c"
    with open(src, "w") as f:
        f.write(code)
    p = subprocess.run(["gcc", "-O1", *flags, src, "-o", path], capture_output=True, text=True)
    return path if p.returncode == 0 else None


class Program:
    """Says "up" when it is ready; killed at the end."""

    def __init__(self, command, wait=True, **kw):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **kw)
        self.pid = self.p.pid
        if wait:
            equal(self.line(), "up", "the target's first line")

    def line(self, seconds=60):
        ready, _, _ = select.select([self.p.stdout], [], [], seconds)
        check(ready, "the target said nothing for %d s; it is in state %s" % (seconds, state(self.pid)))
        return self.p.stdout.readline().strip()

    def say(self, word):
        self.p.stdin.write(word + "\n")
        self.p.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        self.p.stdout.close()


# --- one thread, in each kind of wait ------------------------------------------------------------------

WAITER = """
import ctypes, errno, os, select, signal, sys, threading, time
sys.path.insert(0, %r)
ctypes.CDLL(%r)
libc = ctypes.CDLL(None, use_errno=True)
class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]
def wait(fn, least=0.999):
    print("up", flush=True)
    ctypes.set_errno(0)
    begin = time.monotonic()
    got = fn()
    took = time.monotonic() - begin
    print(got, errno.errorcode.get(ctypes.get_errno(), 0), took >= least, took < 30, flush=True)
def told(seconds=1):
    "A pipe into which another process writes after a second."
    r, w = os.pipe()
    if not os.fork():
        time.sleep(seconds)
        os.write(w, b"x")
        os._exit(4)
    return r
""" % (os.path.join(ROOT, "tests", "gpusim"), CUDA)

WAITS = {
    "nanosleep": ("wait(lambda: libc.nanosleep(ctypes.byref(Timespec(1, 0)), None))", 0),
    "time_sleep": ("wait(lambda: time.sleep(1))", None),
    "poll": ("wait(lambda: libc.poll(None, ctypes.c_ulong(0), 1000))", 0),
    "select": ("wait(lambda: libc.select(0, None, None, None, ctypes.byref(Timespec(1, 0))))", 0),
    "read": ("r = told(); b = ctypes.create_string_buffer(8)\nwait(lambda: libc.read(r, b, ctypes.c_size_t(8)), 0)", 1),
    "waitpid": ("told(); wait(lambda: libc.waitpid(-1, None, 0) > 0, 0)", True),
    "epoll": ("r = told(); e = select.epoll(); e.register(r, 1); b = ctypes.create_string_buffer(12)\n"
              "wait(lambda: libc.epoll_wait(e.fileno(), b, 1, -1), 0)", 1),
    "lock": ("l = threading.Lock(); l.acquire(); wait(lambda: l.acquire(timeout=1))", False),
    "sigtimedwait": ("s = (ctypes.c_ulong * 16)(1 << 9); signal.pthread_sigmask(signal.SIG_BLOCK, [10]); p = os.getpid()\n"
                     "if not os.fork():\n    time.sleep(1); os.kill(p, 10); os._exit(0)\n"
                     "wait(lambda: libc.sigwaitinfo(s, None), 0)", 10),
}


@test
def each_wait_of_the_only_thread():
    need_root()
    for name, (code, want) in WAITS.items():
        for _ in range(2 * ROUNDS):
            with Program([PYTHON, "-c", WAITER + code]) as p:
                time.sleep(0.1 + random.random() * 0.3)
                equal(must_inject(p.pid), p.pid, "the borrowed thread")
                check(has_collector(p.pid), "no collector")
                equal(p.line(), "%s 0 True True" % want, "the wait in " + name)
                p.p.stdin.close()
                equal(p.p.wait(timeout=20), 0, "exit code after " + name)


@test
def signals_meanwhile():
    """One signal at a time to a process that only waits for them: a lost one, or one that came
    without ending the wait, is a hang."""
    need_root()
    code = WAITER + ("n = [0]\ndef h(*a): n[0] += 1\nsignal.signal(signal.SIGUSR1, h)\nprint('up', flush=True)\n"
                     "while True:\n    c = n[0]\n"
                     "    s = select.select([0], [], [], 0)[0]\n    if s: break\n"
                     "    try: libc.pause()\n    finally: pass\n"
                     "    if n[0] != c: print(n[0], flush=True)\n")
    for _ in range(3 * ROUNDS):
        with Program([PYTHON, "-c", code]) as p:
            done = []
            t = threading.Thread(target=lambda p=p, done=done: done.append(inject(p.pid)))
            sent = 0
            time.sleep(0.1)
            t.start()
            while t.is_alive() or sent < 20:
                os.kill(p.pid, signal.SIGUSR1)
                sent += 1
                equal(p.line(10), str(sent), "signals seen")
                time.sleep(0.001)       # it must be back in its wait, which is the test's own race
                while state(p.pid) == "R":
                    time.sleep(0.0005)
            t.join()
            check(OK.match(done[0]) or done[0].startswith("error 11 "), done[0])
            untouched(p.pid)


# --- many threads ---------------------------------------------------------------------------------------

def pythons():
    found = ["/usr/bin/python3"] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")))
    return [p for p in found if os.access(p, os.X_OK)]


def library():
    path = c_program("libtwice.so", "int twice(int x);\nint twice(int x) { return 2 * x; }\n", "-shared", "-fPIC")
    if not path:
        raise Skip("no C compiler")
    return path


FORKING = "alloc fork thread sleep poll queue float".split()
LOADING = "alloc load thread select read epoll child float queue".split()


def busy(python, parts):
    return Program([python, "-W", "ignore", BUSY, CUDA, library(), *parts])


def end_busy(p, what):
    p.say("stop")
    line = p.line()
    check(line.startswith("fine "), "%s: %s" % (what, line))
    equal(p.p.wait(timeout=30), 7, "exit code of " + what)


@test
def busy_processes():
    need_root()
    for _ in range(ROUNDS):
        for python in pythons():
            for parts in (FORKING, LOADING):
                with busy(python, parts) as p:
                    time.sleep(random.random() * 0.1)
                    must_inject(p.pid)
                    check(has_collector(p.pid), "no collector")
                    time.sleep(0.05 + random.random() * 0.1)
                    end_busy(p, "%s with %s" % (python, parts))


def slow_library():
    """Loading it takes long, since it needs many others."""
    names = []
    for i in range(60):
        names.append("libpart%d.so" % i)
        check(c_program(names[-1], "int part%d(void);\nint part%d(void) { return %d; }\n" % (i, i, i), "-shared",
                        "-fPIC", "-Wl,-soname," + names[-1]), "no part")
    calls = "".join("int part%d(void);\n" % i for i in range(60))
    body = " + ".join("part%d()" % i for i in range(60))
    return c_program("libslow.so", calls + "int InitializeInjection(void);\n"
                     "int InitializeInjection(void) { return %s; }\n" % body, "-shared", "-fPIC", "-Wl,--no-as-needed", "-L" + TMP.name,
                     "-Wl,-rpath," + TMP.name, *["-l:" + n for n in names])


@test
def children_of_that_moment():
    """Forked while the loader is at work, a child could not load anything itself."""
    need_root()
    library()
    slow = slow_library()
    for _ in range(8 * ROUNDS):
        with busy("/usr/bin/python3", ["fork"]) as p:
            time.sleep(random.random() * 0.05)
            out = subprocess.run([INJECTOR, str(p.pid), slow],
                                 stdout=subprocess.PIPE, text=True, timeout=60).stdout.strip()
            check(OK.match(out), out)
            end_busy(p, "a process that forks")


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


@test
def injector_killed_at_any_time():
    need_root()
    killed = 0
    for i in range(12 * ROUNDS):
        with busy(PYTHON, FORKING if i % 2 else LOADING) as p:
            q = subprocess.Popen([INJECTOR, str(p.pid), COLLECTOR], stdout=subprocess.PIPE, text=True)
            time.sleep(random.random() * 0.03)
            # The process that traces first, which is the worse.
            for pid in children(q.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
            q.kill()
            q.communicate(timeout=30)
            time.sleep(0.1)
            untouched(p.pid)
            again = inject(p.pid)
            check(OK.match(again) or again.startswith(("error 17 ", "error 11 ")), again)
            end_busy(p, "the target of a killed injector")
    check(killed or ROUNDS < 2, "the tracing process was never met")


@test
def tracer_killed_step_by_step():
    """The only thread of a process, and a tracer that is killed soon after it began."""
    need_root()
    for i in range(10 * ROUNDS):
        with Program([PYTHON, "-c", WAITER + WAITS["nanosleep"][0]]) as p:
            q = subprocess.Popen([INJECTOR, str(p.pid), COLLECTOR], stdout=subprocess.PIPE, text=True)
            end = time.monotonic() + 5
            while time.monotonic() < end and q.poll() is None:
                found = children(q.pid)
                if found:
                    time.sleep(i % 20 * 0.0001)
                    try:
                        os.kill(found[0], signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                    break
            q.kill()
            q.communicate(timeout=30)
            equal(p.line(), "0 0 True True", "the wait")
            p.p.stdin.close()
            equal(p.p.wait(timeout=30), 0, "exit code")


# --- refusals ---------------------------------------------------------------------------------------------

def refused(pid, code, *words):
    out = inject(pid)
    check(out.startswith("error %d " % code), out)
    for word in words:
        check(word in out, "%r is not in %r" % (word, out))
    untouched(pid)


SLEEPER = "print('up', flush=True)\nsys.stdin.readline()\n"
LOADED = WAITER + SLEEPER
UP = "#include <stdio.h>\n#include <unistd.h>\n"
UP_MAIN = "int main(void) { puts(\"up\"); fflush(stdout); %s pause(); return 0; }\n"


@test
def refuses_without_cuda():
    need_root()
    with Program([PYTHON, "-c", "import sys\n" + SLEEPER]) as p:
        refused(p.pid, 2, "does not use CUDA")
        check(not has_collector(p.pid), "a collector")


@test
def refuses_a_second():
    need_root()
    with Program([PYTHON, "-c", LOADED]) as p:
        must_inject(p.pid)
        refused(p.pid, 17, "has a collector already")


@test
def refuses_static_programs():
    need_root()
    path = c_program("static", UP + UP_MAIN % "", "-static")
    if not path:
        raise Skip("no static C library")
    with Program([path]) as p:
        refused(p.pid, 95, "statically")


@test
def refuses_other_classes():
    need_root()
    path = c_program("small", UP + UP_MAIN % "", "-m32")
    if not path:
        raise Skip("no 32-bit toolchain")
    with Program([path]) as p:
        refused(p.pid, 95, "32-bit")


@test
def refuses_filtered_processes():
    need_root()
    code = LOADED.replace("print('up'", "import ctypes\nP = ctypes.c_ulong\n"
                          "class F(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('p', ctypes.c_char_p)]\n"
                          "allow = (0x06).to_bytes(8, 'little')[:4] + (0x7fff0000).to_bytes(4, 'little')\n"
                          "f = F(1, allow)\n"
                          "assert libc.prctl(38, P(1), P(0), P(0), P(0)) == 0\n"
                          "assert libc.prctl(22, P(2), ctypes.byref(f), P(0), P(0)) == 0\nprint('up'")
    with Program([PYTHON, "-c", code]) as p:
        refused(p.pid, 95, "seccomp")


@test
def refuses_traced_processes():
    need_root()
    with Program([PYTHON, "-c", LOADED]) as p:
        tracer = subprocess.Popen([PYTHON, "-c", (
            "import ctypes, sys\nlibc = ctypes.CDLL(None)\n"
            "assert libc.ptrace(0x4206, %d, None, None) == 0\nprint('up', flush=True)\nsys.stdin.readline()" % p.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            equal(tracer.stdout.readline(), "up\n", "the tracer")
            out = inject(p.pid)
            check(out.startswith("error 95 ") and "process %d traces it" % tracer.pid in out, out)
        finally:
            tracer.communicate("end\n")
        must_inject(p.pid)      # free again


@test
def refuses_stopped_processes():
    need_root()
    with Program([PYTHON, "-c", LOADED]) as p:
        os.kill(p.pid, signal.SIGSTOP)
        while state(p.pid) != "T":
            time.sleep(0.01)
        out = inject(p.pid)
        check(out.startswith("error 11 ") and "stopped" in out, out)
        equal(state(p.pid), "T", "its state")
        os.kill(p.pid, signal.SIGCONT)
        must_inject(p.pid)


@test
def refuses_what_was_switched_off_or_taken():
    need_root()
    other = c_program("libother.so", "int InitializeInjection(void);\nint InitializeInjection(void) { return 1; }\n",
                      "-shared", "-fPIC")
    if not other:
        raise Skip("no C compiler")
    with Program([PYTHON, "-c", LOADED], env=dict(os.environ, DLBPF_GPU_DISABLE="1")) as p:
        refused(p.pid, 95, "DLBPF_GPU_DISABLE")
    with Program([PYTHON, "-c", LOADED.replace("libc =", "ctypes.CDLL(%r)\nlibc =" % other)],
                 env=dict(os.environ, CUDA_INJECTION64_PATH=other)) as p:
        refused(p.pid, 95, other)
    with Program([PYTHON, "-c", LOADED], env=dict(os.environ, CUDA_INJECTION64_PATH=other)) as p:
        must_inject(p.pid)      # named, but never loaded


@test
def refuses_what_is_not_there():
    out = inject(2 ** 22 + 5)
    check(out.startswith("error ") and "cannot inject into" in out, out)
    p = subprocess.Popen([PYTHON, "-c", ""])
    while state(p.pid) != "Z":
        time.sleep(0.01)
    out = inject(p.pid)
    p.wait()
    check(out.startswith("error ") and "cannot inject into" in out, out)


@test
def says_why_loading_failed():
    need_root()
    bad = os.path.join(TMP.name, "bad.so")
    with open(bad, "wb") as f:
        f.write(b"no library at all" * 100)
    with Program([PYTHON, "-c", LOADED]) as p:
        out = subprocess.run([INJECTOR, str(p.pid), bad], stdout=subprocess.PIPE, text=True, timeout=60).stdout
        check("dlopen() failed" in out and "ELF" in out, out)
        untouched(p.pid)
        must_inject(p.pid)


@test
def others_cannot_be_traced():
    need_root()
    with Program([PYTHON, "-c", LOADED]) as p:
        exe = os.path.join(TMP.name, "injector")
        shutil.copy(INJECTOR, exe)
        lib = os.path.join(TMP.name, "collector.so")
        shutil.copy(COLLECTOR, lib)
        os.chmod(TMP.name, 0o755)
        out = subprocess.run([exe, str(p.pid), lib], stdout=subprocess.PIPE, text=True, timeout=60,
                             user=65534, group=65534, extra_groups=[]).stdout
        check(out.startswith("error ") and "cannot inject into" in out, out)
        untouched(p.pid)


OWN_MALLOC = """
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(16) char heap[64 << 20];
static size_t used;

void *malloc(size_t n)
{
	char *p;

	pthread_mutex_lock(&lock);
	p = heap + used;
	memcpy(p, &n, sizeof(n));
	used += (n + 31) & ~(size_t)15;
	pthread_mutex_unlock(&lock);
	return p + 16;
}

void *calloc(size_t n, size_t m) { return malloc(n * m); }
void free(void *p) { (void)p; }

void *realloc(void *p, size_t n)
{
	void *q = malloc(n);
	size_t had;

	if (p) {
		memcpy(&had, (char *)p - 16, sizeof(had));
		memcpy(q, p, had < n ? had : n);
	}
	return q;
}

int main(int argc, char **argv)
{
	double x = 1.5, y = argc;
	int n;

	if (!dlopen(argv[1], RTLD_NOW))
		return 1;
	printf("up\\n");
	fflush(stdout);
	pthread_mutex_lock(&lock);
	errno = 0;
	n = poll(NULL, 0, 6000);
	printf("%d %d %.1f\\n", n, errno, x * y);
	pthread_mutex_unlock(&lock);
	fflush(stdout);
	getchar();
	n = poll(NULL, 0, 500);
	printf("%d %d\\n", n, errno);
	return 7;
}
"""


@test
def puts_a_thread_back_that_holds_a_lock():
    """The only thread waits in poll() with the lock of a malloc of the program's own."""
    need_root()
    path = c_program("ownheap", OWN_MALLOC, "-ldl", "-lpthread", "-fno-builtin")
    if not path:
        raise Skip("no C compiler")
    with Program([path, CUDA]) as p:
        time.sleep(0.2)
        out = inject(p.pid)
        check(out.startswith("error 35 ") and "waited for a lock" in out, out)
        untouched(p.pid)
        check(not has_collector(p.pid), "a collector")
        equal(p.line(), "0 0 3.0", "its wait")
        p.say("")
        equal(p.line(), "0 0", "its next wait")
        equal(p.p.wait(timeout=20), 7, "exit code")


# --- end to end ---------------------------------------------------------------------------------------------

@test
def records_after_injection():
    """A process that has used the device for a while: all later work is in the recording."""
    need_root()
    with Session(rounds=20, CUDA_INJECTION64_PATH="") as s:
        check(not has_collector(s.t.pid), "a collector before")
        must_inject(s.t.pid)
        s.r.__exit__()
        s.r = Recorder(s.t.pid)
        s.run()
        compare(s)
        s.t.say("end")
        s.t.end()


@test
def record_with_inject():
    need_root()
    dlbpf = os.path.join(BUILD, "dlbpf")
    if not os.path.exists(dlbpf):
        raise Skip("dlbpf is not built")
    trace = os.path.join(TMP.name, "t.dlbpf")
    code = WORK % 60
    with Target(code, CUDA_INJECTION64_PATH="") as t:
        t.expect("up")
        r = subprocess.Popen([dlbpf, "record", "-p", str(t.pid), "--inject", "--no-report", "-o", trace],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env=dict(os.environ, DLBPF_CUPTI_LIB=COLLECTOR))
        try:
            said = ""
            while "loaded the collector into process %d" % t.pid not in said:
                line = r.stderr.readline()
                check(line, "dlbpf record ended: " + said)
                said += line
            time.sleep(0.5)
            t.say("go")
            t.expect("done")
            r.send_signal(signal.SIGINT)
            said += r.communicate(timeout=60)[1]
            equal(r.returncode, 0, "exit code of dlbpf record: " + said)
        finally:
            if r.poll() is None:
                r.kill()
                r.wait()
        t.say("end")
        t.end()
    out = subprocess.run([dlbpf, "report", "--json", trace], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    source = json.loads(out.stdout)["trace"]["gpu_source"]
    check("CUPTI" in source and "simulated" in source, "gpu_source is " + source)
    dump = subprocess.run([dlbpf, "dump", "--kind", "gpu_kernel", trace], stdout=subprocess.PIPE, text=True, timeout=60)
    equal(dump.stdout.count(" gpu_kernel "), 60 * 21, "kernels in the trace")


if __name__ == "__main__":
    sys.exit(gputest.main())
