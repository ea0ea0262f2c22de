# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A second stream waits for the step and moves memory on the device (no kernel does that), the next step
waits for the second stream. All of it was enqueued ahead."""

from loop import Samples
from scenario import Scenario

BYTES_A_MS = 400_000_000  # of the simulated V100's copies on the device


def train(run):
    side = run.device.stream()

    def depend(run, batch):
        if run.dose:
            side.wait(run.stream.record())
            side.d2d(run.dose * BYTES_A_MS)
            run.stream.wait(side.record())

    run.loop(run.loader(Samples(), 4), step=depend)


SCENARIO = Scenario(
    kind="gpu", cause="gpu", doses=(0, 8, 16, 24), unit="ms on the other stream a step",
    gpus=("sim",), forms={"1 worker": {}, "pin": {"pin": True}}, quick=True,
)
