#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Prints the system calls of an architecture as SYSCALL(nr, name) lines, from the kernel's
user-space headers of this machine (linux-libc-dev): gen-syscalls.py x86_64|arm64"""

import re
import subprocess
import sys

# What arch/arm64/include/uapi/asm/unistd.h defines before it includes the generic table.
ARM64 = ["__ARCH_WANT_RENAMEAT", "__ARCH_WANT_NEW_STAT", "__ARCH_WANT_SET_GET_RLIMIT",
         "__ARCH_WANT_TIME32_SYSCALLS", "__ARCH_WANT_SYS_CLONE3", "__ARCH_WANT_MEMFD_SECRET"]
HEADERS = {"x86_64": ("asm/unistd_64.h", []), "arm64": ("asm-generic/unistd.h", ARM64)}


def syscalls(arch):
    """Returns [(nr, name)], or None where the header is not installed."""
    header, defines = HEADERS[arch]
    source = "".join(f"#define {d}\n" for d in defines)
    source += f"#define __BITS_PER_LONG 64\n#include <{header}>\n"
    names = re.findall(r"__NR3264_(\w+)|__NR_(\w+)", run(source, ["-dM"]) or "")
    names = sorted({n for pair in names for n in pair if n})
    probe = "".join(f'@{n} __NR_{n}\n' for n in names)
    out = run(source + probe, ["-P"])
    if out is None:
        return None
    found = {}
    for name, expr in re.findall(r"^@(\w+) (.*)$", out, re.M):
        if re.fullmatch(r"[0-9()+ ]+", expr):
            found[name] = eval(expr)  # digits, sums and brackets only
    for name in ("syscalls", "arch_specific_syscall"):
        found.pop(name, None)
    return sorted((nr, name) for name, nr in found.items())


def run(source, flags):
    p = subprocess.run(["cc", "-E", "-x", "c", *flags, "-"], input=source, capture_output=True,
                       text=True)
    return p.stdout if p.returncode == 0 else None


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in HEADERS:
        sys.exit(__doc__)
    table = syscalls(sys.argv[1])
    if not table:
        sys.exit("no such header here")
    print("/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */")
    print(f"/* Made by gen-syscalls.py {sys.argv[1]}: the numbers are the kernel's ABI. No include guard. */")
    for nr, name in table:
        print(f"SYSCALL({nr}, {name})")
