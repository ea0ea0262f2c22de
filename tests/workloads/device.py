# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What a training step asks of a GPU: none at all, or the software one of tests/gpusim."""

import os
import sys


class NoDevice:
    """No GPU: the step costs the trainer nothing but its own Python."""

    def pin_loader(self):
        sys.exit("--pin needs a GPU")

    def copy(self, tensor, pinned):
        pass

    def launch(self, ms, kernels):
        pass

    def synchronize(self):
        pass


class CudaDevice:
    """A real GPU: kernels that spin for a while."""

    def __init__(self):
        import torch

        self.cuda = torch.cuda
        self.cuda.init()
        clock_khz = getattr(self.cuda.get_device_properties(0), "clock_rate", 0) or 1_500_000
        self.cycles_per_ms = clock_khz

    def pin_loader(self):
        pass

    def copy(self, tensor, pinned):
        tensor.to("cuda", non_blocking=pinned)

    def launch(self, ms, kernels):
        for _ in range(kernels):
            self.cuda._sleep(int(ms / kernels * self.cycles_per_ms))

    def synchronize(self):
        self.cuda.synchronize()


class SimDevice:
    """The GPU made of software."""

    def __init__(self):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpusim"))
        import gpusim

        self.device = gpusim.Device()
        self.stream = self.device.stream()

    def pin_loader(self):
        """DataLoader(pin_memory=True) then runs its thread in a PyTorch without CUDA."""
        self.device.install_torch()

    def copy(self, tensor, pinned):
        self.stream.h2d(tensor, non_blocking=pinned)

    def launch(self, ms, kernels):
        self.stream.kernels(kernels, ms=ms, name="train_step")

    def synchronize(self):
        self.stream.synchronize()


def make(args):
    if args.gpu == "cuda":
        return CudaDevice()
    if args.gpu == "sim":
        return SimDevice()
    return NoDevice()


def copy_ms(size, pinned):
    """What the simulated link takes; its model says the same of pageable memory."""
    if pinned:
        rate = float(os.environ.get("GPUSIM_PINNED_GBPS", 12.3))
    else:
        rate = float(os.environ.get("GPUSIM_PAGEABLE_GBPS", 9.94))
    return size / rate / 1e6
