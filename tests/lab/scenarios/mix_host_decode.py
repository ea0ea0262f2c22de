# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""In the first half of the run the samples are dear to decode, in the second half the trainer itself works
for long after each step (the batches have been made meanwhile). Of the idle time 60 % are the trainer's."""

from loop import Samples, burn
from scenario import Scenario

BATCH = 4
HOST = 0.6


class Data(Samples):
    def __init__(self, ms, until):
        super().__init__()
        self.ms, self.until = ms, until

    def cost(self, index):
        if index // BATCH < self.until:
            burn(self.ms / BATCH)


def train(run):
    """What a batch takes longer than the GPU's part of it, it costs."""
    half = run.batches // 2
    decode, host = (run.kernel_ms + 2 * share * run.dose if run.dose else 0 for share in (1 - HOST, HOST))

    def step(run, _batch):
        if run.done > half:
            burn(host)

    run.loop(run.loader(Data(decode, half), BATCH), step)


SCENARIO = Scenario(
    kind="mix", cause="host", shares={"host": HOST, "decode": 1 - HOST}, doses=(0, 8, 16, 24),
    unit="ms of idle time a batch", forms={"1 worker": {}, "pin": {"pin": True}}, gpus=("sim",),
)
