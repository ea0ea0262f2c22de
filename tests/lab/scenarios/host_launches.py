# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""An eager model of very many small operations: for each the trainer's Python runs 25 us, then launches a
kernel of 2 us. What is left of the time is the latency of each launch, which is the GPU's."""

from loop import Samples, burn
from scenario import Scenario


def train(run):
    def operations(run, batch):
        for _ in range(run.dose):
            burn(0.025)
            run.stream.kernel(us=2, name="elementwise")

    run.loop(run.loader(Samples(), 4), step=operations)


SCENARIO = Scenario(
    kind="host", cause="host", also=("gpu",), doses=(0, 400, 600, 800), unit="operations a step",
    gpus=("sim",), forms={"1 worker": {}}, batches=40,
)
