#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 1500
"""Boots Debian kernels in qemu and runs guest.py in each, with the binary built here.

    test_kernels.py [5.10] [6.1] [6.12]

Kernels are downloaded by apt into DLBPF_KERNELS (~/.cache/dlbpf/kernels) and kept there.
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import dlbpf  # noqa: E402

# series -> (suite or None for the machine's own, package)
KERNELS = {
    "5.10": ("bullseye", "linux-image-cloud-amd64"),
    "6.1": ("bookworm", "linux-image-cloud-amd64"),
    "6.12": ("trixie", "linux-image-cloud-amd64"),
}
CACHE = os.environ.get("DLBPF_KERNELS", os.path.expanduser("~/.cache/dlbpf/kernels"))


def why_not():
    if os.geteuid() != 0:
        return "needs root"
    if os.uname().machine != "x86_64":
        return "the kernels are x86-64 ones"
    for tool in ("qemu-system-x86_64", "busybox", "cpio", "depmod", "xz", "apt-get"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"no {tool} here (deploy/deps vm)"
    if not os.path.exists(dlbpf.DLBPF):
        return f"{dlbpf.DLBPF} has not been built"
    return None


def kernel_deb(series):
    """The kernel's package: from the cache, else downloaded. Returns (path, why not)."""
    folder = os.path.join(CACHE, series)
    os.makedirs(folder, exist_ok=True)
    have = sorted(f for f in os.listdir(folder) if f.endswith(".deb"))
    if have:
        return os.path.join(folder, have[-1]), None
    suite, package = KERNELS[series]
    try:
        p = subprocess.run([os.path.join(HERE, "kernel-deb"), "--suite", suite, package, folder],
                           capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return None, "the download took more than 300 s"
    if p.returncode:
        return None, (p.stderr.strip().splitlines() or ["kernel-deb failed"])[-1]
    return p.stdout.strip(), None


def boot(series):
    deb, why = kernel_deb(series)
    if not deb:
        print(f"skip kernel {series}: {why}", flush=True)
        return True
    command = [os.path.join(HERE, "vm-run"), "--kernel", deb, "--cache", CACHE, "--timeout", "400", "--mem", "1G",
               "--dir", ROOT, "--", "/usr/bin/env", f"DLBPF_BUILD={dlbpf.BUILD}", f"DLBPF={dlbpf.DLBPF}",
               "/usr/bin/python3", "-B", os.path.join(HERE, "guest.py")]
    p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       errors="replace")
    sys.stdout.write(p.stdout)
    reported = any(line.startswith(("ok ", "FAIL ", "skip ")) for line in p.stdout.splitlines())
    if p.returncode and not (reported and p.returncode == 1):
        print(f"FAIL kernel {series}: the machine ended with {p.returncode}", flush=True)
    sys.stdout.flush()
    return p.returncode == 0


def main():
    wanted = sys.argv[1:] or os.environ.get("DLBPF_VM_KERNELS", "").split() or list(KERNELS)
    why = why_not()
    good = True
    for series in wanted:
        if why:
            print(f"skip kernel {series}: {why}")
        else:
            good = boot(series) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
