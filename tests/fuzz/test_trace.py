#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Replays the corpora of fuzz_trace, fuzz_frame and fuzz_kineto, and mutations of them, under the sanitizers.

    test_trace.py --seeds        writes the seeds anew
    test_trace.py --libfuzzer    builds the targets with clang's libFuzzer (package libclang-rt-*-dev)
"""

import glob
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
CORPUS = os.path.join(ROOT, "tests", "fuzz", "corpus")
MUTATIONS = {"trace": 600, "frame": 4000, "kineto": 3000}
MADE_BY_HAND = {"kineto"}


def build(name, libfuzzer=False):
    out = os.path.join(BUILD, "tests", "fuzz", "libfuzzer" if libfuzzer else "", name)
    sources = [f"tests/fuzz/{name}.c"]
    imports = name == "fuzz_kineto"
    for folder in ("import", "trace", "base") if imports else ("trace", "base"):
        sources += sorted(glob.glob(f"userspace/{folder}/*.c", root_dir=ROOT))
    headers = glob.glob("userspace/*/*.h", root_dir=ROOT) + glob.glob("tests/fuzz/*.h", root_dir=ROOT)
    headers += glob.glob("include/dlbpf/*", root_dir=ROOT)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    newest = max(os.path.getmtime(os.path.join(ROOT, s)) for s in sources + headers)
    if os.path.exists(out) and os.path.getmtime(out) > newest:
        return out
    cmd = [os.environ.get("CC", "gcc"), "-fsanitize=address,undefined"]
    if libfuzzer:
        cmd = [os.environ.get("CLANG", "clang"), "-fsanitize=fuzzer,address,undefined", "-DDLBPF_LIBFUZZER"]
    cmd += ["-std=gnu17", "-O1", "-g", "-fno-sanitize-recover=undefined", "-D_GNU_SOURCE", "-Iinclude", "-Iuserspace", "-Itests"]
    subprocess.run(cmd + sources + ["-lzstd", "-lz"] + ["-lsqlite3"] * imports + ["-o", out], cwd=ROOT, check=True)
    return out


def replay(kind):
    corpus = sorted(glob.glob(os.path.join(CORPUS, kind, "*")))
    if not corpus:
        print(f"FAIL {kind} corpus: tests/fuzz/corpus/{kind} is empty")
        return 1
    program = build(f"fuzz_{kind}")
    failed = 0
    for name, args in (("corpus", []), (f"{MUTATIONS[kind]} mutations of each", ["-n", str(MUTATIONS[kind])])):
        p = subprocess.run([program] + args + corpus, capture_output=True, text=True, timeout=100)
        if p.returncode:
            failed = 1
            print(p.stderr[-2000:])
            print(f"FAIL {kind}, {name}: exit code {p.returncode}")
        else:
            print(f"ok {kind}, {name}")
    return failed


def main():
    if sys.argv[1:] == ["--seeds"]:
        for kind in MUTATIONS.keys() - MADE_BY_HAND:
            os.makedirs(os.path.join(CORPUS, kind), exist_ok=True)
        subprocess.run([build("trace_seeds"), CORPUS], check=True)
        return 0
    if sys.argv[1:] == ["--libfuzzer"]:
        for kind in MUTATIONS:
            print(build(f"fuzz_{kind}", libfuzzer=True))
        return 0
    return sum(replay(kind) for kind in MUTATIONS) and 1


if __name__ == "__main__":
    sys.exit(main())
