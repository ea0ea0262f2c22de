# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A data set that is what a command prints, as with the pipe: of webdataset: each worker starts the
command and reads so many bytes of it for a batch, a few at a time."""

import subprocess

import data_stream

PIECE = 32 << 10


def pipe(command, batch_bytes):
    """Endless batches of so many bytes from a shell's command."""
    return data_stream.stream(read, command, batch_bytes)


def read(command, batch_bytes):
    import torch

    child = subprocess.Popen(command, shell=True, stdout=subprocess.PIPE)
    try:
        while True:
            left, data = batch_bytes, b""
            while left:
                data = child.stdout.read(min(left, PIECE))
                left -= len(data)
            yield torch.full((16,), data[-1])
    finally:
        child.stdout.close()
        child.wait()
