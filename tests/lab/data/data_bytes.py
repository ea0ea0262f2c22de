# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Batches of a given size, for scenarios about copies: one tensor of bytes, small in the control."""

from loop import Samples

BATCH = 4
MIB = 1 << 20


class Bytes(Samples):
    def __init__(self, mib):
        super().__init__()
        self.size = max(64, int(mib * MIB / BATCH))

    def value(self, index):
        import torch

        return torch.ones(self.size, dtype=torch.uint8)


def said_of_copies(report, word):
    """What is wrong if the verdict does not say it; the verdict itself is judged elsewhere."""
    verdict = report["verdict"]
    if verdict["cause"] != "pcie" or word in " ".join([verdict["text"], *verdict["actions"]]):
        return None
    return f"{word!r} is not named: {verdict['text']} {verdict['actions']}"
