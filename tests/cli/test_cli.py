#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Command lines and what must come of them: cases/NAME.sh is run by bash in a scratch folder that
holds sample.dlbpf and cut.dlbpf (made by tests/unit/t_render_trace.c); its standard output must be
NAME.out, its standard error NAME.err, its exit code that in NAME.exit (0 without the file).

A line `...` in an expected file stands for any lines. `test_cli.py --update [NAME...]` stores what
came out; read the difference before you commit it.
"""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
DLBPF = os.environ.get("DLBPF", os.path.join(BUILD, "dlbpf"))
CASES = os.path.join(HERE, "cases")


def read(path, default=""):
    try:
        with open(path, errors="surrogateescape") as f:
            return f.read()
    except FileNotFoundError:
        return default


def matches(got, want):
    pattern = "".join(r"(?:.*\n)*?" if line == "...\n" else re.escape(line)
                      for line in want.splitlines(keepends=True))
    return re.fullmatch(pattern, got) is not None


def first_difference(got, want):
    for n, (g, w) in enumerate(zip(got.splitlines() + ["(end)"], want.splitlines() + ["(end)"]), 1):
        if w == "...":
            break
        if g != w:
            return f"line {n} is {g!r}, not {w!r}"
    return f"{len(got.splitlines())} lines do not match {len(want.splitlines())}"


def run(case, folder):
    env = {"PATH": f"{os.path.dirname(DLBPF)}:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
           "HOME": folder, "ROOT": ROOT, "TERM": "dumb"}
    env.update({k: v for k, v in os.environ.items() if k.startswith(("ASAN_", "UBSAN_"))})
    p = subprocess.run(["bash", os.path.join(CASES, case + ".sh")], cwd=folder, env=env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=60)
    return p.returncode, *(o.decode(errors="surrogateescape") for o in (p.stdout, p.stderr))


def store(path, text):
    if text:
        with open(path, "w", errors="surrogateescape") as f:
            f.write(text)
    elif os.path.exists(path):
        os.unlink(path)


def check(case, folder, update):
    code, out, err = run(case, folder)
    path = os.path.join(CASES, case)
    if update:
        store(path + ".out", out)
        store(path + ".err", err)
        store(path + ".exit", f"{code}\n" if code else "")
        return None
    want_code = int(read(path + ".exit", "0"))
    if code != want_code:
        return f"exit code {code}, not {want_code}: {err.strip()[-300:]}"
    for got, suffix in ((out, ".out"), (err, ".err")):
        want = read(path + suffix)
        if not matches(got, want):
            return f"{suffix[1:]}: {first_difference(got, want)}"
    return None


def main():
    update = "--update" in sys.argv
    chosen = [a for a in sys.argv[1:] if a != "--update"]
    maker = os.path.join(BUILD, "tests", "unit", "t_render_trace")
    for path in (DLBPF, maker):
        if not os.path.exists(path):
            print(f"FAIL cli: {path} has not been built")
            return 1
    failed = 0
    for name in sorted(os.listdir(CASES)):
        case, ext = os.path.splitext(name)
        if ext != ".sh" or (chosen and case not in chosen):
            continue
        with tempfile.TemporaryDirectory(prefix="dlbpf-cli-") as folder:
            made = subprocess.run([maker], env={**os.environ, "DLBPF_SAMPLES_DIR": folder}, cwd=ROOT,
                                  capture_output=True, text=True)
            why = check(case, folder, update) if made.returncode == 0 else "the traces could not be made"
        failed += why is not None
        print(f"FAIL {case}: {why}" if why else f"ok {case}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
