# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The training of a scenario, in the process that is recorded: train.py SCENARIO JSON. Its last line
of output says how long it waited for batches by its own clock."""

import json
import os
import sys
import time

import loop
import scenario


def main():
    name, given = sys.argv[1], json.loads(sys.argv[2])
    s = scenario.load(name)
    run = loop.Run(s, given["form"], given["dose"], given["gpu"], given["place"], given["batches"])
    started = time.monotonic_ns()
    scenario.module(name).train(run)
    print(json.dumps({"done": os.getpid(), "batches": run.done, "waited_ns": run.waited_ns,
                      "seconds": (time.monotonic_ns() - started) / 1e9}), flush=True)


if __name__ == "__main__":
    main()
