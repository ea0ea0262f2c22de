#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Replays the corpora of fuzz_core and fuzz_unwind, and mutations of them, under the sanitizers.

    test_core.py --seeds         writes the seeds anew (gcc, strip, zstd)
    test_core.py --libfuzzer     builds the targets with clang's libFuzzer (package libclang-rt-*-dev)
"""

import glob
import os
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
CORPUS = os.path.join(ROOT, "tests", "fuzz", "corpus")
MUTATIONS = {"core": 1500, "unwind": 1500}
CAPTURE = ("cfi", "elf", "env_shm", "maps", "proc", "proc_parse", "sink", "symfile", "unwind")


def build(name, libfuzzer=False):
    out = os.path.join(BUILD, "tests", "fuzz", "libfuzzer" if libfuzzer else "", name)
    sources = [f"tests/fuzz/{name}.c"] + [f"userspace/capture/{part}.c" for part in CAPTURE]
    sources += ["userspace/diagnose/postmortem.c", "userspace/timeline/syscalls.c"]
    sources += sorted(glob.glob("userspace/forensic/core*.c", root_dir=ROOT))
    sources += sorted(glob.glob("userspace/base/*.c", root_dir=ROOT))
    headers = glob.glob("userspace/*/*.h", root_dir=ROOT) + glob.glob("tests/fuzz/*.h", root_dir=ROOT)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    newest = max(os.path.getmtime(os.path.join(ROOT, s)) for s in sources + headers)
    if os.path.exists(out) and os.path.getmtime(out) > newest:
        return out
    cmd = [os.environ.get("CC", "gcc"), "-fsanitize=address,undefined"]
    if libfuzzer:
        cmd = [os.environ.get("CLANG", "clang"), "-fsanitize=fuzzer,address,undefined", "-DDLBPF_LIBFUZZER"]
    cmd += ["-std=gnu17", "-O1", "-g", "-fno-sanitize-recover=undefined", "-D_GNU_SOURCE", "-Iinclude", "-Iuserspace", "-Itests"]
    subprocess.run(cmd + sources + ["-lzstd", "-o", out], cwd=ROOT, check=True)
    return out


# --- seeds: cores of a few KB, whose stacks hold a signal's frame -------------------------------

EM_X86_64, EM_AARCH64 = 62, 183
STACK, TEXT, SHM = 0x7FFD00000000, 0x400000, 0x7F0000000000
SIGBUS, SI_TKILL = 7, -6


def note(owner, kind, desc):
    name = owner.encode() + b"\0"
    pad = b"\0" * (-len(name) % 4)
    return struct.pack("<III", len(name), len(desc), kind) + name + pad + desc + b"\0" * (-len(desc) % 4)


def siginfo(sig, code, addr):
    return struct.pack("<iiiiQ", sig, 0, code, 0, addr).ljust(128, b"\0")


def prstatus(machine, tid, pc, sp):
    if machine == EM_X86_64:
        regs = [0] * 27
        regs[15], regs[16], regs[19] = 234, pc, sp
    else:
        regs = [0] * 34
        regs[31], regs[32] = sp, pc
    return (struct.pack("<iiiHxxQQiiii", SIGBUS, 0, 0, SIGBUS, 0, 0, tid, 1, tid, tid).ljust(112, b"\0")
            + struct.pack(f"<{len(regs)}Q", *regs) + b"\0" * 8)


def signal_frame(machine, sp):
    """What the kernel pushes for a handler: here of a write to shared memory that has no page."""
    if machine == EM_X86_64:
        words = [0] * 23
        words[15], words[16], words[18], words[19], words[20] = sp + 1024, TEXT + 0x20, 0x33, 6, 14
        return struct.pack("<5Q", 0, 0, 0, 0, 0) + struct.pack("<23Q", *words).ljust(264, b"\0") + siginfo(SIGBUS, 2, SHM + 4096)
    regs = [0] * 34
    regs[31], regs[32] = sp + 1024, TEXT + 0x20
    return siginfo(SIGBUS, 2, SHM + 4096) + b"\0" * 184 + struct.pack("<34Q", *regs)


def files(entries):
    table = struct.pack("<QQ", len(entries), 4096) + b"".join(struct.pack("<QQQ", s, e, o) for s, e, o, _ in entries)
    return table + b"".join(path.encode() + b"\0" for *_, path in entries)


def core(machine):
    sp = STACK + 256
    psinfo = (struct.pack("<cccbQIIiiii", b"R", b"R", b"\0", 0, 0, 0, 0, 77, 1, 77, 77) + b"pt_data_worker\0\0"
              + b"python train.py".ljust(80, b" "))
    notes = b"".join([
        note("CORE", 1, prstatus(machine, 77, TEXT + 0x10, sp)), note("CORE", 3, psinfo),
        note("CORE", 0x53494749, siginfo(SIGBUS, SI_TKILL, 77)),
        note("CORE", 6, struct.pack("<6Q", 31, STACK + 3000, 6, 4096, 0, 0)),
        note("CORE", 0x46494C45, files([(TEXT, TEXT + 8192, 0, "/usr/bin/true"),
                                        (SHM, SHM + 16384, 0, "/dev/shm/torch_77_1_0 (deleted)")])),
        note("CORE", 1, prstatus(machine, 78, TEXT + 0x18, sp + 2048))])
    memory = (b"\0" * 320 + signal_frame(machine, sp)).ljust(3000, b"\0") + b"/usr/bin/true\0"
    memory = memory.ljust(4096, b"\0")
    head = 64 + 4 * 56
    load = [(STACK, memory, 4096, 6), (TEXT, b"", 8192, 5), (SHM, b"", 16384, 6)]
    out = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 4, machine, 1, 0, 64, 0, 0, 64, 56, 4, 0, 0, 0)
    out += struct.pack("<IIQQQQQQ", 4, 0, head, 0, 0, len(notes), 0, 4)
    at = head + len(notes)
    for addr, data, size, flags in load:
        out += struct.pack("<IIQQQQQQ", 1, flags, at, addr, 0, len(data), size, 1)
        at += len(data)
    return out + notes + b"".join(data for _, data, _, _ in load)


PROGRAM = """
__asm__(".globl trampoline\\n.type trampoline,%function\\ntrampoline:\\n.cfi_startproc\\n.cfi_signal_frame\\n nop\\n nop\\n"
        ".cfi_escape 0x0f,3,0x77,0x80,1\\n.cfi_escape 0x10,6,3,0x77,0x10,6\\n nop\\n.cfi_endproc\\n.size trampoline,.-trampoline");
extern int other(int *);
int leaf(int a) { return a * 3; }
int frame(int n) { int v[64]; v[0] = n; return other(v) + other(v) + n; }
int variable(int n) { int v[n]; v[0] = n; return other(v) + leaf(n); }
int saved(int a, int b, int c) { return other(&a) * b + other(&b) * c + other(&c) * a; }
"""


def write_seeds():
    for kind in MUTATIONS:
        os.makedirs(os.path.join(CORPUS, kind), exist_ok=True)
    for name, data in (("x86_64", core(EM_X86_64)), ("arm64", core(EM_AARCH64))):
        with open(os.path.join(CORPUS, "core", name), "wb") as f:
            f.write(data)
    with open(os.path.join(CORPUS, "core", "x86_64.zst"), "wb") as f:
        f.write(subprocess.run(["zstd", "-c"], input=core(EM_X86_64), stdout=subprocess.PIPE, check=True).stdout)
    with tempfile.NamedTemporaryFile("w", suffix=".c") as f:
        f.write(PROGRAM)
        f.flush()
        for name, flags in (("plain", []), ("frame-pointers", ["-fno-omit-frame-pointer"])):
            out = os.path.join(CORPUS, "unwind", name)
            subprocess.run(["gcc", "-O2", "-w", "-shared", "-nostdlib", "-fPIC", *flags, "-Wl,-z,noseparate-code", "-s",
                            "-Wl,--build-id=sha1", f.name, "-o", out], check=True)
            os.chmod(out, 0o644)


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
        write_seeds()
        return 0
    if sys.argv[1:] == ["--libfuzzer"]:
        for kind in MUTATIONS:
            print(build(f"fuzz_{kind}", libfuzzer=True))
        return 0
    return sum(replay(kind) for kind in MUTATIONS) and 1


if __name__ == "__main__":
    sys.exit(main())
