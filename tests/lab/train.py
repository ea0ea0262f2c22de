# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The training of a scenario, in the process that is recorded: train.py SCENARIO JSON. Its last line
of output says how long it waited for batches by its own clock, and for those of each part of it."""

import json
import os
import sys
import time

import loop
import scenario


def main():
    name, given = sys.argv[1], json.loads(sys.argv[2])
    s, rank = scenario.load(name), os.environ.get("RANK")
    if rank and os.environ.get("GPUSIM_TRUTH"):
        os.environ["GPUSIM_TRUTH"] += "." + rank  # measure.trace_of_rank
    run = loop.Run(s, given["form"], given["dose"], given["gpu"], given["place"], given["batches"])
    started = time.monotonic_ns()
    scenario.module(name).train(run)
    said = json.dumps({"done": os.getpid(), "batches": run.done, "waited_ns": run.waited_ns, "parts": run.parts,
                       "rank": rank, "seconds": (time.monotonic_ns() - started) / 1e9})
    os.write(sys.stdout.fileno(), f"\n{said}\n".encode())  # at once: other ranks write to the same pipe


if __name__ == "__main__":
    main()
