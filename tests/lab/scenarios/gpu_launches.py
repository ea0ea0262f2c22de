# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Kernels of 2 us are launched one behind the other by native code. A launch takes 20 us (a slow CPU), and
the GPU has done what was launched before that: it waits for launches that are under way."""

from loop import Samples
from scenario import Scenario


def train(run):
    def small(run, batch):
        if run.dose:
            run.stream.kernels(run.dose, us=2 * run.dose, name="elementwise")

    run.loop(run.loader(Samples(), 4), step=small)


SCENARIO = Scenario(
    kind="gpu", cause="gpu", doses=(0, 900, 1300, 1700), unit="launches a step",
    gpus=("sim",), env={"GPUSIM_LAUNCH_US": "20"}, forms={"1 worker": {}}, batches=30,
)
