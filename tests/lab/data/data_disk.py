# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A data set in one file on a slow disk, of which no part is read twice."""

import mmap
import os

from loop import Samples

PAGE = 4096


class File(Samples):
    """Opened by each process for itself; advice is one of posix_fadvise's, or None."""

    def __init__(self, path, advice=None):
        super().__init__()
        self.path, self.advice, self.file = path, advice, None

    def descriptor(self):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
            if self.advice is not None:
                os.posix_fadvise(self.file, 0, 0, self.advice)
        return self.file


class Records(File):
    """Reads samples of so many bytes one after the other, as from a shard."""

    def __init__(self, path, size):
        super().__init__(path)
        self.size = size

    def cost(self, index):
        if self.size:
            got = os.pread(self.descriptor(), self.size, index * self.size)
            assert len(got) == self.size, f"{self.path} ends before sample {index}"


class Pages(File):
    """Reads so many single pages for a sample, from all over the file."""

    STEP = 7919  # a prime, so that all pages come once before one comes again

    def __init__(self, path, pages):
        super().__init__(path, os.POSIX_FADV_RANDOM)
        self.pages, self.all = pages, os.stat(path).st_size // PAGE

    def cost(self, index):
        for n in range(index * self.pages, (index + 1) * self.pages):
            self.touch(n * self.STEP % self.all * PAGE)

    def touch(self, offset):
        os.pread(self.descriptor(), PAGE, offset)


class MappedPages(Pages):
    """The same from a mapping of the file: each page is a major fault."""

    def __init__(self, path, pages):
        super().__init__(path, pages)
        self.map = None

    def touch(self, offset):
        if self.map is None:
            self.map = mmap.mmap(self.descriptor(), 0, prot=mmap.PROT_READ)
            self.map.madvise(mmap.MADV_RANDOM)
        self.map[offset]  # noqa: B018
