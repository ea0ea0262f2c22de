# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What a crash scenario is. The files of kinds/ hold tables of them:

    SCENARIOS = [Crash("kill_worker", "another process sends SIGKILL to a worker", "killed-by", train, ...)]

    def train(run):                     # in the recorded process
        run.loop(run.loader(Data()))

The fault is planted by real means: by the training itself (train), by where it runs (place) or by another
process (act). What the training and the actor did is written down by themselves, not found by dlbpf.

This file is read by the runner, which has no PyTorch, and by the training, which has.
"""

import dataclasses
import importlib
import os
import sys
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = os.path.join(HERE, "kinds")

# What the leftovers without a trace may say, each of pasted output, kernel log and core:
DECIDES = "decides"  # they tell the death
FITS = "fits"  # they do not decide, and the death is among the alternatives
QUIET = "quiet"  # they tell nothing of it

MIB = 1 << 20


@dataclasses.dataclass
class Crash:
    name: str
    text: str  # what is planted
    death: str  # the id of the verdict, from the trace
    train: typing.Callable
    victim: typing.Optional[str] = "worker"  # role of the process that died or failed first; None: nobody, or anybody
    signal: int = 0  # that it died of
    status: typing.Optional[int] = None  # its exit code
    also: dict = dataclasses.field(default_factory=dict)  # verdict -> why it is as right
    left: dict = dataclasses.field(default_factory=dict)  # the same of what is said without a trace
    sure: bool = True  # the trace decides: certain or likely
    # id of a number -> (least, most) of its value; or a function of what was written down that gives that.
    numbers: typing.Any = dataclasses.field(default_factory=dict)
    # Texts that the verdict or a deciding fact has to have: "{killer}" is from what was written down.
    names: tuple = ()
    wrong: bool = False  # PyTorch's own message is wrong, and the post-mortem contradicts it
    check: typing.Optional[typing.Callable] = None  # check(meta, postmortem) -> what is wrong, or None
    log: str = FITS  # what the training's output alone says
    log_if: str = ""  # that is so where the output has this text: not all of PyTorch's messages come every time
    kernel: str = QUIET  # and with the kernel's log of the time
    core: str = ""  # and with a core file; "": none is asked for
    # What the machine says at once, without a trace and without output: "pid": asked for the trainer, which hangs;
    # "machine": asked for nothing in particular, while the cgroup is still there; "place": the same in the training's
    # mount namespace, as in a container that goes on. And how much that says.
    now: str = ""
    now_says: str = QUIET
    place: typing.Optional[typing.Callable] = None  # place() -> context manager with params and command(argv)
    act: typing.Optional[typing.Callable] = None  # act(live), once training goes on; returns what it did
    ends: str = "exit"  # "exit": the trainer ends by itself; "hang", "goes-on": the recording ends first
    # Recorded only when it has happened, as of a run that somebody finds so: late(live) waits for that and gives
    # the pid to record.
    late: typing.Optional[typing.Callable] = None
    seconds: float = 0  # that the recording goes on after the act, of a hang
    trainer: typing.Optional[int] = None  # exit status of the trainer, as the shell has it; None: any
    said: str = ""  # a text that the training's output must have, or the fault was not planted
    new: bool = False  # with a current PyTorch
    old: bool = False  # only with one that does not reserve shared memory
    form: dict = dataclasses.field(default_factory=dict)  # workers, start, sharing, pin, ... (tests/lab/loop.py)
    gpu: str = "none"
    kernel_ms: float = 8.0
    batches: int = 100000
    needs: tuple = ()  # modules that the training imports besides PyTorch
    quick: bool = False
    timeout: int = 60

    @property
    def right(self):
        return (self.death, *self.also)


def load_all():
    for folder in (HERE, KINDS):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    found = []
    for name in sorted(os.listdir(KINDS)):
        if name.endswith(".py"):
            found += importlib.import_module(name[:-3]).SCENARIOS
    names = [s.name for s in found]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError(f"scenarios of one name: {twice}")
    return found


def load(name):
    return next(s for s in load_all() if s.name == name)
