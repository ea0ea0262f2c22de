#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Workers of a real DataLoader that die in native code: the trace says in which function of which
library, at the first signal, not where PyTorch's handler raised it again. Names on the command line select."""

import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

SOURCE = r"""
#include <stdlib.h>
#include <string.h>

volatile unsigned long planted_nowhere = 0x48;
static volatile int planted_zero;

__attribute__((noinline)) int planted_write(int a)
{
	*(volatile int *)planted_nowhere = a;
	return a + 1;
}

/* Memory of the process that the recorder gets to see, and must not write. */
int planted_segfault(int a)
{
	volatile char secret[64];

	strcpy((char *)secret, "SECRET");
	return planted_write(a) + secret[a];
}

__attribute__((noinline, noreturn)) static void planted_end(void)
{
	abort();
}

int planted_abort(int a)
{
	if (a)
		planted_end();
	return a;
}

int planted_divide(int a)
{
	return a / planted_zero;
}
"""

SCRIPT = """
import ctypes, sys, torch, torch.utils.data as d
lib = ctypes.CDLL(sys.argv[1])
class D(d.Dataset):
    def __len__(self): return 4000
    def __getitem__(self, i):
        if i == 400: getattr(lib, "planted_" + sys.argv[2])(8)
        return torch.zeros(8)
for b in d.DataLoader(D(), 8, num_workers=2): pass
"""

LATE = """
import ctypes, sys, time
time.sleep(3)
lib = ctypes.CDLL(sys.argv[1])
time.sleep(2.5)
getattr(lib, "planted_" + sys.argv[2])(8)
"""

SECRET = "a secret of the training 9f1c"


def library(where):
    cc = shutil.which(os.environ.get("CC", "gcc").split()[0])
    need(cc, "no C compiler")
    path = os.path.join(where, "libplanted.so")
    with open(path[:-3] + ".c", "w") as f:
        f.write(SOURCE.replace("SECRET", SECRET))
    subprocess.run([cc, "-O2", "-w", "-shared", "-fPIC", "-fomit-frame-pointer", path[:-3] + ".c", "-o", path],
                   check=True)
    return path


def frames_of(trace, crash):
    """(function, file) of each frame, innermost first."""
    stack = [e for e in dlbpf.dump(trace, "stack") if e["id"] == crash["stack"]]
    equal(len(stack), 1, f"stacks of {crash}")
    names = {e["addr"]: e["text"] for e in dlbpf.dump(trace, "symbol") if e["pid"] == crash["pid"]}
    maps = [(e["start"], e["end"], e["text"]) for e in dlbpf.dump(trace, "mmap")]
    result = []
    for addr in stack[0]["addrs"]:
        path = next((p for start, end, p in maps if start <= addr < end), "")
        result.append((names.get(addr), os.path.basename(path)))
    return result


def die(where, how, sig, script_text=SCRIPT):
    lib = library(where)
    script = os.path.join(where, "train.py")
    with open(script, "w") as f:
        f.write(script_text)
    trace = os.path.join(where, "trace.dlbpf")
    rec = dlbpf.record([dlbpf.PYTHON, "-B", script, lib, how], trace, rc=None)
    check(rec.rc != 0, "the training went on")
    crashes = dlbpf.dump(trace, "crash_stack")
    equal(len(crashes), 1, f"crash stacks ({crashes})")
    crash = crashes[0]
    equal(crash["sig"], sig, f"the signal ({crash})")
    first = next(e for e in dlbpf.dump(trace, "signal") if e["sig"] == sig and e["target_tid"] == crash["tid"])
    equal(crash["ip"], first["ip"], f"the instruction, of the first signal {first}")
    check(abs(crash["ts"] - first["ts"]) < 50_000_000, f"the time, {crash['ts']}, against {first['ts']}")
    return crash, frames_of(trace, crash)


def is_in(frames, function):
    at = [i for i, (name, _) in enumerate(frames) if name == function]
    check(at, f"no {function} in {frames}")
    equal(frames[at[0]][1], "libplanted.so", f"the file of {function}")
    return at[0]


def goes_on_to_python(frames):
    check(any(name and name.startswith(("_PyEval", "PyEval", "PyObject", "_PyObject")) for name, _ in frames[2:]),
          f"the interpreter is not among the callers: {frames}")


def segfault(where):
    crash, frames = die(where, "segfault", signal.SIGSEGV)
    equal((crash["code"], crash["addr"]), (1, 0x48), f"the fault ({crash})")
    equal(is_in(frames, "planted_write"), 0, f"the innermost frame ({frames})")
    equal(is_in(frames, "planted_segfault"), 1, f"its caller ({frames})")
    goes_on_to_python(frames)
    p = subprocess.run([dlbpf.DLBPF, "dump", "--json", os.path.join(where, "trace.dlbpf")], capture_output=True, text=True,
                       timeout=100)
    check(p.returncode == 0 and "crash_stack" in p.stdout, f"dump failed: {p.stderr[-300:]}")
    check(SECRET not in p.stdout, "memory of the process is in the file")


def trainer_loads_late(where):
    """A library that nobody saw run before the trainer, which has no handlers, dies in it at once."""
    _, frames = die(where, "segfault", signal.SIGSEGV, LATE)
    equal(is_in(frames, "planted_write"), 0, f"the innermost frame ({frames})")
    goes_on_to_python(frames)


def abort(where):
    _, frames = die(where, "abort", signal.SIGABRT)
    check(("abort", frames[0][1]) in frames and frames[0][1].startswith("libc"), f"abort() of the C library: {frames}")
    # The call is the last instruction of its function: the address behind it belongs to another one.
    is_in(frames, "planted_end")
    goes_on_to_python(frames)


def division(where):
    need(os.uname().machine == "x86_64", "this machine divides by zero without a signal")
    crash, frames = die(where, "divide", signal.SIGFPE)
    equal(crash["code"], 1, f"FPE_INTDIV ({crash})")
    equal(is_in(frames, "planted_divide"), 0, f"the innermost frame ({frames})")


CASES = [segfault, abort, division, trainer_loads_late]


def main():
    tests = dlbpf.Tests("crash stack: ")
    if not os.path.exists(dlbpf.DLBPF):
        sys.exit(f"{dlbpf.DLBPF} has not been built")
    wanted = sys.argv[1:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            with dlbpf.scratch() as where:
                os.environ["TMPDIR"] = where
                tests.run(case.__name__, case, where)
    tests.exit()


if __name__ == "__main__":
    main()
