# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Data sets that have no length and no indexes: each worker runs a generator."""


def stream(generate, *args):
    """An IterableDataset of what generate(*args) yields. Not for spawn: it cannot be pickled, since the
    runner, which reads this file too, has no PyTorch to derive a class from."""
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):
        def __iter__(self):
            return generate(*args)

    return Stream()
