# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Every step allocates and frees: memory of the device, as after torch.cuda.empty_cache(), where each free
waits for the GPU; or pinned memory, as tensor.pin_memory() does where no block is left to reuse."""

import ctypes

from loop import Samples
from scenario import Scenario

PINNED_BYTES = 64 * 4096


def device_memory(run, batch):
    for _ in range(run.dose):
        run.device.free(run.device.alloc(1 << 20))


def pinned_memory(run, batch):
    import gpusim

    rt, p = gpusim._load()[1], ctypes.c_void_p()
    for _ in range(run.dose):
        rt.cudaHostAlloc(ctypes.byref(p), PINNED_BYTES, 0)
        rt.cudaFreeHost(p)


def train(run):
    run.loop(run.loader(Samples(), 4), step=pinned_memory if run.form.get("pinned") else device_memory)


def names_the_call(report):
    details = [c["detail"] or "" for d in report["devices"] for c in d["causes"] if c["cause"] == "cuda-api"]
    if not any(call in d for d in details for call in ("cudaMalloc", "cudaFree", "cudaHostAlloc")):
        return f"the call is not named: {details}"
    return None


SCENARIO = Scenario(
    kind="cuda-api", cause="cuda-api", doses=(0, 30, 45, 60), unit="allocations a step",
    gpus=("sim",), env={"GPUSIM_MALLOC_US": "400", "GPUSIM_HOST_ALLOC_US": "400"},
    forms={"cudaMalloc": {}, "cudaHostAlloc": {"pinned": True}}, batches=40,
    quick=True, torch2=True, check=names_the_call,
)
