#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Replays the corpus of fuzz_gpu_ring, and mutations of it, and lets hostile processes scribble over
their rings while they are drained, all under the sanitizers."""

import glob
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
MUTATIONS = 400


SEEDS = 200


def build(name):
    out = os.path.join(BUILD, "tests", "fuzz", name)
    sources = ["tests/fuzz/%s.c" % name]
    sources += ["userspace/capture/%s.c" % part for part in ("proc", "proc_parse", "sink")]
    sources += sorted(glob.glob("userspace/capture/gpu*.c", root_dir=ROOT))
    sources += sorted(glob.glob("userspace/base/*.c", root_dir=ROOT))
    os.makedirs(os.path.dirname(out), exist_ok=True)
    newest = max(os.path.getmtime(os.path.join(ROOT, s)) for s in sources)
    if os.path.exists(out) and os.path.getmtime(out) > newest:
        return out
    cmd = [os.environ.get("CC", "gcc"), "-std=gnu17", "-O1", "-g", "-fsanitize=address,undefined",
           "-fno-sanitize-recover=undefined", "-D_GNU_SOURCE", "-Iinclude", "-Iuserspace"]
    subprocess.run(cmd + sources + ["-o", out], cwd=ROOT, check=True)
    return out


def main():
    corpus = sorted(glob.glob(os.path.join(ROOT, "tests", "fuzz", "corpus", "gpu_ring", "*")))
    if not corpus:
        print("FAIL corpus: tests/fuzz/corpus/gpu_ring is empty")
        return 1
    replay, scribble = build("fuzz_gpu_ring"), build("gpu_scribble")
    failed = 0
    for name, program, args in (("corpus", replay, corpus),
                                (f"{MUTATIONS} mutations of each", replay, ["-n", str(MUTATIONS)] + corpus),
                                (f"{SEEDS} hostile processes", scribble, ["1", str(SEEDS)])):
        p = subprocess.run([program] + args, capture_output=True, text=True, timeout=100)
        if p.returncode:
            failed = 1
            print(p.stderr[-2000:])
            print(f"FAIL gpu ring, {name}: exit code {p.returncode}")
        else:
            print(f"ok gpu ring, {name}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
