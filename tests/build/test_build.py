#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A build from nothing, in another folder, without a warning; an installation that works where it was
put, and that goes away again."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal  # noqa: E402


def make(*args, **env):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    p = subprocess.run(["make", "-C", dlbpf.ROOT, "--no-print-directory", *args], env=dict(variables, **env),
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(p.returncode == 0, f"make {' '.join(args)}: {p.stdout[-1500:]}")
    return p.stdout


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder)
                  for name in names)


def from_nothing(where):
    out = make(f"O={where}/b", f"VMLINUX_H={dlbpf.BUILD}/vmlinux.h", "EXTRA_CFLAGS=-Werror", "-j2", "all")
    check("warning" not in out, f"a warning: {out[out.find('warning') - 300:][:600]}")
    equal(make(f"O={where}/b", f"VMLINUX_H={dlbpf.BUILD}/vmlinux.h", "EXTRA_CFLAGS=-Werror", "all").strip(),
          "make: Nothing to be done for 'all'.", "what a second make says")


def install(where):
    image = os.path.join(where, "image")
    variables = [f"O={where}/b", f"VMLINUX_H={dlbpf.BUILD}/vmlinux.h", "EXTRA_CFLAGS=-Werror",
                 f"DESTDIR={image}", "PREFIX=/opt/dl"]
    make("install", *variables)
    found = files_below(image)
    for name in ("bin/dlbpf", "lib/dlbpf/libdlbpf_cupti.so", "share/man/man1/dlbpf.1", "share/doc/dlbpf/README.md",
                 "share/doc/dlbpf/LICENSE", "share/doc/dlbpf/report.schema.json"):
        check(f"opt/dl/{name}" in found, f"{name} is not installed: {found}")
    program = os.path.join(image, "opt/dl/bin/dlbpf")
    p = subprocess.run([program, "--version"], capture_output=True, text=True, cwd="/")
    check(p.returncode == 0 and p.stdout.startswith("dlbpf "), f"the installed program: {p.stdout}{p.stderr}")
    if os.geteuid() == 0:
        # Moved as a whole, it finds its own collector.
        trace = os.path.join(where, "t.dlbpf")
        p = subprocess.run([program, "record", "-q", "-o", trace, "--", "sh", "-c", "echo $CUDA_INJECTION64_PATH"],
                           capture_output=True, text=True, cwd="/")
        equal(os.path.realpath(p.stdout.strip() or "none"),
              os.path.realpath(os.path.join(image, "opt/dl/lib/dlbpf/libdlbpf_cupti.so")), "the collector it sets")
    make("uninstall", *variables)
    equal(files_below(image), [], "what is left after make uninstall")


def missing_tool(where):
    """The package is named."""
    p = subprocess.run(["make", "-C", dlbpf.ROOT, f"O={where}/c", "CLANG=no-such-clang", "all"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    check(p.returncode != 0, "a build without clang went well")
    check("no-such-clang (package clang)" in p.stdout, f"the package is not named: {p.stdout[-400:]}")


def main():
    tests = dlbpf.Tests("build: ")
    with tempfile.TemporaryDirectory(prefix="dlbpf-build-") as where:
        tests.run("from nothing, without a warning", from_nothing, where)
        tests.run("install and uninstall", install, where)
        tests.run("a missing tool", missing_tool, where)
    tests.exit()


if __name__ == "__main__":
    main()
