# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The recorded side of a scenario: what it is given, and the training loop that they share."""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "gpusim"))


def burn(ms):
    """Python work by the thread's own CPU clock: being preempted does not shorten it."""
    end = time.thread_time_ns() + int(ms * 1e6)
    value = 1
    while time.thread_time_ns() < end:
        for _ in range(50):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


class Samples:
    """A map-style data set of `count` samples; a scenario's own derives from it. cost(index) is what
    a sample costs, value(index) what it is."""

    def __init__(self, count=1 << 20):
        self.count = count

    def __len__(self):
        return self.count

    def cost(self, index):
        pass

    def value(self, index):
        import torch

        return torch.zeros(16)

    def __getitem__(self, index):
        self.cost(index)
        return self.value(index)


class Timed(Samples):
    """Each sample costs so many ms."""

    def __init__(self, ms, count=1 << 20):
        super().__init__(count)
        self.ms = ms


class Decodes(Timed):
    """Of Python, which holds the interpreter."""

    def cost(self, index):
        burn(self.ms)


class Sleeps(Timed):
    def cost(self, index):
        if self.ms:
            time.sleep(self.ms / 1000)


class Run:
    """dose, form (parameters of the form), place (parameters of the place), scenario."""

    def __init__(self, scenario, form, dose, gpu, place, batches):
        import torch

        torch.set_num_threads(1)
        self.scenario, self.form, self.dose, self.place = scenario, form, dose, place
        self.gpu, self.batches = gpu, batches
        self.waited_ns = self.done = 0
        self.part, self.parts = None, {}  # what a scenario of several parts is at; part -> ns waited
        self.kernel_ms = scenario.kernel_ms
        self.device = self.stream = None
        if form.get("sharing"):
            torch.multiprocessing.set_sharing_strategy(form["sharing"])
        if gpu == "sim":
            import gpusim

            self.device = gpusim.Device()
            self.stream = self.device.stream()
            if form.get("pin"):
                self.device.install_torch()

    def loader(self, dataset, batch_size=8, **options):
        """A DataLoader in the form's way: workers, start, pin, prefetch, persistent."""
        from torch.utils.data import DataLoader

        if hasattr(dataset, "value"):  # what a first call alone costs is not the fault's
            from torch.utils.data import default_collate

            default_collate([dataset.value(0)] * 2)
        workers = options.pop("num_workers", self.form.get("workers", 1))
        if workers:
            if self.form.get("start"):
                options.setdefault("multiprocessing_context", self.form["start"])
            if self.form.get("prefetch"):
                options.setdefault("prefetch_factor", self.form["prefetch"])
        if self.form.get("pin") and self.gpu == "sim":
            options.setdefault("pin_memory", True)
        return DataLoader(dataset, batch_size, num_workers=workers, **options)

    def loop(self, source, step=None, batches=None):
        """Trains so many batches of the source (a loader or an iterator; anew when it ends). step(run,
        batch), if given, is called after the launch of each: what the trainer does besides."""
        batches = batches or self.batches
        iterator, previous = iter(source), None
        for _ in range(batches):
            started = time.monotonic_ns()
            batch = next(iterator, None)
            if batch is None:
                iterator = iter(source)
                batch = next(iterator)
            self.waited_ns += time.monotonic_ns() - started
            previous = self.step(batch, previous)
            if step:
                step(self, batch)
        self.finish()
        return iterator

    def step(self, batch, previous=None):
        """One training step. The trainer runs one step ahead of the GPU at most, as it does where
        something in the loop reads back the loss of the step before."""
        self.done += 1
        if self.gpu != "sim":
            time.sleep(self.kernel_ms / 1000)
            return None
        self.copy(batch)
        self.stream.kernels(4, ms=self.kernel_ms, name=self.part or "train_step")
        event = self.stream.record()
        if previous:
            previous.synchronize()
        return event

    def copy(self, batch):
        """Takes the batch to the GPU; a scenario about copies replaces it by its own way."""
        for tensor in tensors(batch):
            self.stream.h2d(tensor, non_blocking=bool(self.form.get("pin")))

    def finish(self):
        if self.gpu == "sim":
            self.stream.synchronize()


def tensors(batch):
    """The tensors of a batch, whatever it is made of; a batch of very many counts as one copy."""
    import torch

    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        found = [t for item in batch[:4] for t in tensors(item)]
        return found[:4]
    return []
