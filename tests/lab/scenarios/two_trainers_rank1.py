# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two trainers run on one machine, as under torchrun. The samples of rank 0 sleep, those of rank 1 decode.
Judged here is rank 1."""

from data_two import one_of, verdicts
from scenario import Scenario


def place(_form):
    from places_launch import Launcher

    return Launcher(2)


def check(report):
    """The first to be seen is rank 0."""
    return verdicts(sorted(report["trainers"], key=lambda t: t["rank"]))


def train(run):
    import os

    run.loop(one_of(run, int(os.environ["RANK"])))


SCENARIO = Scenario(
    kind="trainers", cause="decode", part="rank 1", doses=(0, 16, 24, 32), unit="ms a batch", place=place, check=check,
    env={"PYTHONDONTWRITEBYTECODE": "1"}, twins=("two_trainers_rank0",),
)
