# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A sample is a list of many tiny tensors: a batch has as many storages, and each storage is handed
over by itself, with a connection to the worker's resource sharer and a descriptor of its own. One batch
is fetched ahead, so that the worker does not collate the next while this one is handed over. Trainer and
sharer wake each other for every tensor, on two CPUs, and each time the CPU may have something else to do
(the kernel's own threads, the recorder, the host of a virtual machine): these waits grow with the tensors,
so contention counts as the fault's."""

from loop import Samples
from scenario import Scenario


class Data(Samples):
    def __init__(self, tensors):
        super().__init__()
        self.tensors = tensors

    def value(self, index):
        import torch

        return [torch.zeros(4) for _ in range(1 + self.tensors)]


def release(run, batch):
    """Unmaps them while the GPU works, not while the trainer waits for the next ones."""
    batch.clear()


def train(run):
    run.loop(run.loader(Data(run.dose), batch_size=2), step=release)


SCENARIO = Scenario(
    kind="ipc", cause="ipc", also=("cpu-contention",), doses=(0, 60, 90, 120), unit="more tensors a batch",
    forms={"file_descriptor": {"sharing": "file_descriptor", "prefetch": 1},
           "spawn": {"start": "spawn", "prefetch": 1}},
    twins=("gil_worker_helper", "decode_python"), quick=True, torch2=True,
)
