# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Data sets with one known cost each, and what that cost is.

Every data set has `planted`: the cause that dlbpf should name when loading is the bottleneck, and
`sample_ms()`, an estimate of one sample's cost on an idle machine (None: not known beforehand).
"""

import io
import os
import time

import numpy
import torch
from torch.utils.data import Dataset


class Sized(Dataset):
    planted = None

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def sample_ms(self):
        """The median of some, after a few that warm up."""
        took = []
        for i in range(14):
            started = time.perf_counter()
            self[i % self.count]
            took.append(time.perf_counter() - started)
        return sorted(took[4:])[5] * 1000


def make_jpegs(folder, count=48, width=500, height=375):
    """Photographs in size and entropy: gradients with some noise. Reuses what is there."""
    from PIL import Image

    os.makedirs(folder, exist_ok=True)
    names = [os.path.join(folder, f"{i:04}.jpg") for i in range(count)]
    rng = numpy.random.default_rng(1)
    y, x = numpy.mgrid[0:height, 0:width]
    for i, name in enumerate(names):
        if os.path.exists(name):
            continue
        waves = [numpy.sin(x / (17 + i + 9 * c)) + numpy.cos(y / (23 + 5 * c)) for c in range(3)]
        image = numpy.stack(waves, -1) * 50 + 128 + rng.normal(0, 14, (height, width, 3))
        buf = io.BytesIO()
        Image.fromarray(image.clip(0, 255).astype("uint8")).save(buf, "jpeg", quality=88)
        with open(name + ".part", "wb") as f:
            f.write(buf.getvalue())
        os.rename(name + ".part", name)
    return names


class PilTransform:
    """RandomResizedCrop, flip and ToTensor where there is no torchvision."""

    def __init__(self):
        self.random = numpy.random.default_rng()

    def __call__(self, image):
        width, height = image.size
        scale = self.random.uniform(0.3, 1.0)
        w, h = int(width * scale), int(height * scale)
        x, y = self.random.integers(0, width - w + 1), self.random.integers(0, height - h + 1)
        image = image.resize((224, 224), 2, (x, y, x + w, y + h))
        pixels = numpy.asarray(image)
        if self.random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(pixels.transpose(2, 0, 1).astype("float32") / 255)


def transform():
    try:
        from torchvision import transforms
    except ImportError:
        return PilTransform()
    return transforms.Compose([
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ])


class Jpeg(Sized):
    """What an ImageNet training does: open, decode, crop and resize, flip, to tensor."""

    planted = "decode"

    def __init__(self, count, folder):
        super().__init__(count)
        self.names = make_jpegs(folder)
        self.transform = transform()

    def __getitem__(self, i):
        from PIL import Image

        with Image.open(self.names[i % len(self.names)]) as image:
            return self.transform(image.convert("RGB")), i % 10


class PythonWork(Sized):
    """Decoding in pure Python: holds the interpreter all the time."""

    planted = "decode"

    def __init__(self, count, ms):
        super().__init__(count)
        self.loops = 5000
        self.loops = max(1, round(self.loops * ms / self.sample_ms()))

    def __getitem__(self, i):
        value = i
        for _ in range(self.loops):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        return torch.tensor([float(value % 7), float(i)]), i % 10


class Sleep(Sized):
    planted = "sleep"

    def __init__(self, count, ms):
        super().__init__(count)
        self.ms = ms

    def __getitem__(self, i):
        time.sleep(self.ms / 1000)
        return torch.tensor([float(i), 0.0]), i % 10

    def sample_ms(self):
        return self.ms


class Storage(Sized):
    """Reads files whose pages were dropped from the page cache: every sample goes to the disk."""

    planted = "storage"

    def __init__(self, count, folder, kib, files=64, bps=0):
        super().__init__(count)
        self.bps = bps
        self.size = kib * 1024
        self.names = [os.path.join(folder, f"{i:04}.bin") for i in range(files)]
        for i, name in enumerate(self.names):
            if os.path.exists(name) and os.path.getsize(name) == self.size:
                continue
            with open(name, "wb") as f:
                f.write(numpy.random.default_rng(i).bytes(self.size))
                f.flush()
                os.fsync(f.fileno())
        for name in self.names:
            self.drop(name)

    @staticmethod
    def drop(name):
        fd = os.open(name, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def __getitem__(self, i):
        name = self.names[i % len(self.names)]
        with open(name, "rb") as f:
            data = f.read()
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return torch.tensor([float(data[0]), float(len(data))]), i % 10

    def sample_ms(self):
        return self.size * 1000 / self.bps if self.bps else None


class Tensor(Sized):
    """Samples that cost nothing but their size: `shape` floats, made once."""

    planted = "shm"

    def __init__(self, count, shape):
        super().__init__(count)
        self.sample = torch.zeros(shape)

    def __getitem__(self, i):
        return self.sample, i % 10


class Small(Tensor):
    """The worst case for a tracer: nothing but hand-overs."""

    planted = "ipc"

    def __init__(self, count):
        super().__init__(count, (4,))


def make(args):
    """The data set that the command line asks for."""
    count = 1 << 20
    if args.data == "jpeg":
        return Jpeg(count, args.data_dir)
    if args.data == "python":
        return PythonWork(count, args.sample_ms)
    if args.data == "sleep":
        return Sleep(count, args.sample_ms)
    if args.data == "storage":
        return Storage(count, args.data_dir, args.sample_kib, bps=args.storage_bps)
    if args.data == "tensor":
        return Tensor(count, (3, 224, 224))
    return Small(count)
