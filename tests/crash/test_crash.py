#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 900
"""The quick crash scenarios: the runner's lines are the tests."""

import os
import sys

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")

os.execv(sys.executable, [sys.executable, "-B", RUN, "--quick", *sys.argv[1:]])
