# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The making of samples sleeps, in a thread of a torchdata.nodes graph."""

import data_nodes
from loop import Sleeps
from scenario import Scenario


def train(run):
    data_nodes.train(run, data_nodes.in_threads(data_nodes.Sample(Sleeps(run.dose / data_nodes.BATCH)), run.batches))


SCENARIO = Scenario(
    kind="sleep", cause="sleep", doses=(0, 16, 24, 32), unit="ms of sleep a batch", batches=40,
    twins=("decode_nodes_threads",), only_torch2=True, needs=("torchdata",),
)
