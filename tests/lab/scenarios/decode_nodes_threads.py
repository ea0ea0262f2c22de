# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Samples are decoded in pure Python in a thread of a torchdata.nodes graph."""

import data_nodes
from loop import Decodes
from scenario import Scenario


def train(run):
    data_nodes.train(run, data_nodes.in_threads(data_nodes.Sample(Decodes(run.dose / data_nodes.BATCH)), run.batches))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch", batches=40,
    # Without GPU data see decode_threads: the trainer waits for the interpreter in its step, too.
    twins=("sleep_nodes_threads",), gpus=("sim",), only_torch2=True, needs=("torchdata",),
)
