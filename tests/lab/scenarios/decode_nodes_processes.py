# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Samples are decoded in pure Python in a process that belongs to a torchdata.nodes graph."""

import data_nodes
from loop import Decodes
from scenario import Scenario


def train(run):
    data_nodes.train(run, data_nodes.in_processes(data_nodes.Sample(Decodes(run.dose / data_nodes.BATCH)), run.batches))


SCENARIO = Scenario(
    kind="decode", cause="decode", doses=(0, 16, 24, 32), unit="ms of Python a batch", batches=40,
    twins=("sleep_nodes_processes",), only_torch2=True, needs=("torchdata",),
)
