# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A data set in an Arrow file that is mapped into memory, as those of Hugging Face datasets are."""

import os

import loop

ROWS, ROW_BYTES = 160, 512 << 10
ITEMS = 2000  # in the list of a row


def make(path):
    import pyarrow as pa

    schema = pa.schema([("data", pa.binary(ROW_BYTES)), ("items", pa.list_(pa.int64()))])
    block = os.urandom(ROW_BYTES)
    with pa.OSFile(path + ".new", "wb") as f, pa.ipc.new_file(f, schema) as writer:
        for i in range(ROWS):
            row = [pa.array([block], schema.field(0).type), pa.array([list(range(i, i + ITEMS))], schema.field(1).type)]
            writer.write_batch(pa.record_batch(row, schema=schema))
    os.rename(path + ".new", path)


def drop_cache(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Rows(loop.Samples):
    """cost(index) reads a row; the file is opened where it is read."""

    def __init__(self, path):
        super().__init__(1 << 20)
        self.path, self.reader = path, None

    def row(self, index):
        import pyarrow as pa

        if not self.reader:
            self.reader = pa.ipc.open_file(pa.memory_map(self.path))
        return self.reader.get_batch(index % ROWS)
