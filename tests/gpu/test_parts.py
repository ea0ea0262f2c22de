#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The parts of the collector that need no CUPTI, under the sanitizers (partstest.c)."""

import os
import subprocess
import sys

from gputest import TOOLS, build

build()
sys.exit(subprocess.run([os.path.join(TOOLS, "partstest")] + sys.argv[1:]).returncode)
