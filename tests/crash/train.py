# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The training of a crash scenario, in the process that is recorded: train.py NAME JSON."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import crash  # noqa: E402
import training  # noqa: E402


def main():
    s, given = crash.load(sys.argv[1]), json.loads(sys.argv[2])
    training.say(trainer=os.getpid())
    run = training.Run(s, s.form, 0, s.gpu, given["place"], s.batches)
    s.train(run)
    training.say(finished=run.done)


if __name__ == "__main__":
    main()
