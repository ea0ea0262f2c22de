# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Two trainers run on one machine, as under torchrun. The samples of rank 0 sleep, those of rank 1 decode.
Judged here is rank 0."""

from data_two import check_ranks, train_rank as train, two_ranks  # noqa: F401
from scenario import Scenario

SCENARIO = Scenario(
    kind="trainers", cause="sleep", part="rank 0", doses=(0, 16, 24, 32), unit="ms a batch", place=two_ranks,
    check=check_ranks, env={"PYTHONDONTWRITEBYTECODE": "1"}, twins=("two_trainers_rank1",),
)
