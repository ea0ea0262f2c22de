#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Writes docs/man/ from the option tables of the program:

    docs/mkman.py DLBPF             write them
    docs/mkman.py --check DLBPF     say whether they are up to date
"""

import os
import re
import subprocess
import sys

MAN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "man")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pages(dlbpf):
    """name of the page -> its text"""
    listed = output(dlbpf, "--help").split("Commands:\n")[1].split("\n\n")[0]
    commands = [c for c in re.findall(r"^  (\w+)", listed, re.M) if c != "help"]
    found = {f"dlbpf-{c}.1": output(dlbpf, "help", "--man", c) for c in commands}
    found["dlbpf.1"] = output(dlbpf, "help", "--man")
    return found


def read(name):
    try:
        with open(os.path.join(MAN, name)) as f:
            return f.read()
    except FileNotFoundError:
        return None


def stale(dlbpf):
    """Pages that differ from what the program says, or that it does not know."""
    made = pages(dlbpf)
    there = os.listdir(MAN) if os.path.isdir(MAN) else []
    return sorted({n for n, text in made.items() if read(n) != text} | {n for n in there if n not in made})


def main():
    check = "--check" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--check"]
    if len(args) != 1:
        sys.exit(__doc__)
    if check:
        names = stale(args[0])
        sys.exit(f"out of date: {', '.join(names)}: make docs" if names else 0)
    os.makedirs(MAN, exist_ok=True)
    for name, text in pages(args[0]).items():
        with open(os.path.join(MAN, name), "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
