# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Ends without a signal: exceptions and exits; and runs that do not crash at all."""

import os
import signal
import sys
import time

from crash import DECIDES, QUIET, Crash
import training

AT = 480
PASSED = {"trainer-exit": "the trainer is who ends: the worker passed its exception on and went on",
          "worker-exception": "the exception is the worker's"}


class At(training.Samples):
    def __init__(self, action, at=AT):
        super().__init__()
        self.action, self.at = action, at

    def fault(self, index):
        if index == self.at:
            training.say(planted="exit")
            self.action()


class Stop(BaseException):
    """No Exception: PyTorch's worker does not catch it."""


def not_caught():
    raise Stop("the shard has ended")


def bad_sample():
    raise ValueError("sample 480 has 3 channels, not 4")


def leave():
    os._exit(3)


def sys_exit():
    sys.exit(4)


def run_with(action):
    def train(run):
        run.loop(run.loader(At(action)))

    return train


def trainer_raises(run):
    def step(run, batch):
        if run.done == 60:
            training.say(planted="exit")
            raise FloatingPointError("the loss is NaN at step 60")

    run.loop(run.loader(training.Samples()), step)


def trainer_exits(run):
    def step(run, batch):
        if run.done == 60:
            training.say(planted="exit")
            sys.exit(5)

    run.loop(run.loader(training.Samples()), step)


def trainer_leaves(run):
    def step(run, batch):
        if run.done == 60:
            training.say(planted="exit")
            os._exit(6)

    run.loop(run.loader(training.Samples()), step)


def in_order(run):
    run.loop(run.loader(training.Samples()), batches=80)


def slow():
    time.sleep(60)


def early(run):
    """The loop is left while a worker is far from done: the trainer ends it by SIGTERM after 5 s."""
    iterator = iter(run.loader(At(slow, 512)))
    for _ in range(62):
        run.step(next(iterator))
    del iterator


def plain(run):
    run.loop(run.loader(training.Samples()))


def ctrl_c(live):
    """As a terminal does: to every process of the group."""
    os.killpg(live.p.pid, signal.SIGINT)


def code_is(code):
    """People know the exit code, not the wait status."""
    def check(meta, pm):
        said = pm["verdict"]["text"]
        return None if str(code) in said else f"the exit code {code} is not in the verdict's text: {said}"

    return check


SCENARIOS = [
    Crash("exception_ends_worker", "a worker ends with an exception that PyTorch does not catch", "worker-exception",
          run_with(not_caught), status=1, log=DECIDES, said="the shard has ended", check=code_is(1),
          also={"worker-exit": "a trace shows the exit code, not that it was an exception"}, quick=True),
    Crash("exception_passed_on", "a data set raises ValueError; the worker passes it on and the trainer ends",
          "worker-exception", run_with(bad_sample), victim=None, also=PASSED, trainer=1, log=DECIDES,
          said="sample 480 has 3 channels", quick=True),
    Crash("exception_passed_on_new", "the same with a current PyTorch", "worker-exception", run_with(bad_sample),
          victim=None, also=PASSED, trainer=1, log=DECIDES, new=True, said="sample 480 has 3 channels"),
    Crash("worker_leaves", "a worker ends by os._exit(3)", "worker-exit", run_with(leave), status=3, check=code_is(3),
          log=DECIDES, log_if="exit code 3", quick=True),
    Crash("worker_sys_exit", "a data set calls sys.exit(4) in a worker", "worker-exit", run_with(sys_exit), status=4,
          check=code_is(4), log=DECIDES, log_if="exit code 4"),
    Crash("trainer_exception", "the trainer ends with an exception of its own", "trainer-exit", trainer_raises,
          victim="trainer", status=1, trainer=1, log=DECIDES, check=code_is(1), quick=True),
    Crash("trainer_sys_exit", "the trainer calls sys.exit(5)", "trainer-exit", trainer_exits, victim="trainer",
          status=5, trainer=5, log=QUIET, check=code_is(5)),
    Crash("trainer_leaves", "the trainer ends by os._exit(6); its workers find out later", "trainer-exit",
          trainer_leaves, victim="trainer", status=6, trainer=6, log=QUIET, check=code_is(6)),
    Crash("normal_end", "training ends in order", "none", in_order, victim=None, trainer=0, log=QUIET, quick=True),
    Crash("normal_end_new", "the same with a current PyTorch", "none", in_order, victim=None, trainer=0, log=QUIET,
          new=True),
    Crash("left_early", "the loop is left early: the trainer ends a slow worker by SIGTERM", "none", early,
          victim=None, trainer=0, log=QUIET, quick=True),
    Crash("ctrl_c", "the user presses Ctrl-C", "none", plain, victim=None, act=ctrl_c, log=QUIET,
          left={"killed-by": "the output does not tell a Ctrl-C from a SIGINT of somebody else"},
          said="KeyboardInterrupt", quick=True),
    Crash("goes_on", "the recording ends and training goes on", "none", plain, victim=None, ends="goes-on", seconds=2,
          log=QUIET),
]
