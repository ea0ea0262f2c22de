# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Signals: sent by somebody, and errors of programs."""

import ctypes
import mmap

from crash import DECIDES, QUIET, Crash
import crash_places as places
import training

AT = 480  # the sample at which it happens


class At(training.Samples):
    """error() at one sample."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def fault(self, index):
        if index == AT:
            training.say(planted=self.error.__name__)
            self.error()


def plain(run):
    run.loop(run.loader(training.Samples()))


def null_pointer():
    ctypes.CDLL(None).strlen(None)


def double_free():
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    memory = ctypes.c_void_p(libc.malloc(4000))
    libc.malloc(64)  # the first one is not at the heap's end
    libc.free(memory)
    libc.free(memory)


def assertion():
    libc = ctypes.CDLL(None)
    getattr(libc, "__assert_fail")(b"width > 0", b"resize.c", 312, b"resize_row")


def divide_by_zero():
    ctypes.CDLL(None).div(1, 0)


def illegal_instruction():
    """What a library does that was built for a newer CPU; here as made at run time."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x0f\x0b\xc3")  # ud2
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ctypes.CFUNCTYPE(None)(address)()


def errs(error):
    def train(run):
        run.loop(run.loader(At(error)))

    return train


def trainer_errs(error):
    def train(run):
        def step(run, batch):
            if run.done == 60:
                training.say(planted=error.__name__)
                error()

        run.loop(run.loader(training.Samples()), step)

    return train


def kill_worker(name, sig):
    def act(live):
        victim = live.worker(1)
        return {"victim": victim, "killer": live.foreign(name, f"kill -{sig} $1", victim), "killer_name": name}

    return act


def kill_trainer(name, script="kill -9 $1"):
    def act(live):
        return {"victim": live.trainer, "killer": live.foreign(name, script, live.trainer), "killer_name": name}

    return act


def forked_killer(run):
    """The trainer ends a worker itself: a watchdog of somebody's own."""
    import os
    import signal

    def step(run, batch):
        if run.done == 60:
            victim = next(line for line in training_lines() if line.get("worker") == 1)["pid"]
            training.say(planted="kill", victim=victim)
            os.kill(victim, signal.SIGKILL)

    run.loop(run.loader(training.Samples()), step)


def launcher(run):
    """Two ranks. When one fails the launcher ends the other by SIGTERM, as torchrun does."""
    import os
    import subprocess
    import sys
    import time

    rank = os.environ.get("RANK")
    if rank:
        return trainer_errs(null_pointer)(run) if rank == "1" else plain(run)
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(n)}) for n in range(2)]
    while all(p.poll() is None for p in ranks):
        time.sleep(0.05)
    for p in ranks:
        p.terminate()
        p.wait()
    sys.exit(1)


def training_lines():
    import json
    import os

    with open(os.environ["DLBPF_CRASH_TRUTH"]) as f:
        return [json.loads(line) for line in f]


def victim_is_planted(meta, pm):
    want = meta["planted"][0].get("victim", meta["planted"][0]["pid"])
    return None if pm["victim"]["pid"] == want else f"the victim is {pm['victim']['pid']}, not {want}"


def gpu_told(meta, pm):
    return None if pm["gpu"] else "nothing is said of the GPU"


def stack_has(word):
    """The native stack of the thread that died names the library."""
    def check(meta, pm):
        died = [t for t in pm["threads"] if t.get("died")]
        if not died or not died[0].get("stack"):
            return "no native stack of the thread that died"
        if not any(word in frame for frame in died[0]["stack"][:8]):
            return f"{word} is not at the top of the stack: {died[0]['stack'][:8]}"
        return None

    return check


TOLD = "killed by signal"
SENDER = ("{killer}", "{killer_name}")

SCENARIOS = [
    Crash("kill_worker", "somebody's shell sends SIGKILL to a worker", "killed-by", plain, signal=9,
          act=kill_worker("oncall.sh", 9), names=SENDER, quick=True, log_if=TOLD),
    Crash("kill_worker_new", "the same with a current PyTorch", "killed-by", plain, signal=9, new=True,
          act=kill_worker("oncall.sh", 9), names=SENDER, log_if=TOLD),
    Crash("kill_worker_gpu", "the same beside a (simulated) GPU: what it was doing is said", "killed-by", plain,
          signal=9, act=kill_worker("oncall.sh", 9), names=SENDER, gpu="sim", check=gpu_told, log_if=TOLD),
    Crash("kill_worker_container", "the same in a PID namespace: PyTorch prints the inner PID", "killed-by", plain,
          signal=9, act=kill_worker("oncall.sh", 9), names=SENDER, log_if=TOLD,
          place=lambda: places.Prefix("unshare", "--pid", "--fork", "--kill-child")),
    Crash("term_worker", "somebody's shell sends SIGTERM to a worker", "killed-by", plain, signal=15,
          act=kill_worker("janitor", 15), names=SENDER, log_if=TOLD),
    Crash("kill_trainer", "somebody's shell sends SIGKILL to the trainer", "killed-by", plain, victim="trainer",
          signal=9, trainer=137, act=kill_trainer("oncall.sh"), names=SENDER, log=QUIET, quick=True),
    Crash("scheduler", "a scheduler's step daemon sends SIGTERM to the trainer, and SIGKILL later", "killed-by", plain,
          victim="trainer", signal=15, trainer=143, act=kill_trainer(
              "slurmstepd", "kill -15 $1; sleep 1; kill -9 $1 2>/dev/null; exit 0"), names=SENDER, log=QUIET),
    Crash("time_limit", "timeout(1), the trainer's parent, sends SIGTERM to it", "killed-by", plain, victim="trainer",
          signal=15, names=("timeout",), place=lambda: places.Prefix("timeout", "12"), log=QUIET, timeout=80),
    Crash("own_watchdog", "the trainer itself sends SIGKILL to a worker", "killed-by", forked_killer, victim=None,
          signal=9, names=("{trainer}",), check=victim_is_planted, log_if=TOLD),
    Crash("segfault_worker", "a worker reads from address 0 in C (strlen)", "segfault", errs(null_pointer), signal=11,
          said="egmentation fault", log=DECIDES, quick=True),
    Crash("segfault_worker_new", "the same with a current PyTorch", "segfault", errs(null_pointer), signal=11,
          said="egmentation fault", log=DECIDES, new=True),
    Crash("segfault_core", "the same, and a core is written: the connection is lost before the signal is known",
          "segfault", errs(null_pointer), signal=11, said="egmentation fault", log=DECIDES, core=DECIDES,
          check=stack_has("libc")),
    Crash("segfault_trainer", "the trainer reads from address 0 in C", "segfault", trainer_errs(null_pointer),
          victim="trainer", signal=11, trainer=139, log=QUIET, kernel=DECIDES, core=DECIDES),
    Crash("rank_segfault", "one of two ranks reads from address 0; the launcher then sends SIGTERM to the other",
          "segfault", launcher, victim=None, signal=11, trainer=1, check=victim_is_planted, log=QUIET, kernel=DECIDES),
    Crash("abort_heap", "a worker frees memory twice", "abort", errs(double_free), signal=6, log=DECIDES, core=DECIDES,
          said="double free", quick=True),
    Crash("abort_assertion", "an assertion in C fails in a worker", "abort", errs(assertion), signal=6, log=DECIDES,
          said="width > 0"),
    Crash("division", "a worker divides by zero in C", "arithmetic-error", errs(divide_by_zero), signal=8,
          log=DECIDES, log_if=TOLD),
    Crash("illegal", "a worker runs an instruction that does not exist", "illegal-instruction",
          errs(illegal_instruction), signal=4, log=DECIDES, log_if=TOLD),
]
