# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Several trainers on one machine, each told its rank, as torchrun starts them."""

import os

import dlbpf

LAUNCH = os.path.join(dlbpf.ROOT, "tests", "workloads", "launch.py")


class Launcher:
    params = {}

    def __init__(self, trainers):
        self.trainers = trainers

    def __enter__(self):
        return self

    def command(self, argv, dose):
        return [argv[0], "-B", LAUNCH, str(self.trainers), *argv[2:]]

    def __exit__(self, *_):
        pass
