#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Holds the tree to its rules: which folder may include which, headers that compile alone, sizes,
licence lines, white space, and pages that are generated."""

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DLBPF_BUILD", os.path.join(ROOT, "build"))
SKIPPED_DIRS = {".git", "__pycache__", "corpus", "golden", "node_modules", "shared"}

# folder of userspace/ -> the folders it may include from, besides itself and include/dlbpf
MAY_INCLUDE = {
    "base": set(),
    "trace": {"base"},
    "timeline": {"base", "trace"},
    "diagnose": {"base", "trace", "timeline"},
    "render": {"base", "trace", "timeline", "diagnose"},
    "capture": {"base", "trace"},
    "import": {"base", "trace"},
    "forensic": {"base", "trace", "timeline", "diagnose", "capture"},
    "check": {"base", "trace", "timeline", "diagnose", "render", "capture"},
    "cli": {"base", "trace", "timeline", "diagnose", "render", "capture", "import", "forensic", "check"},
}
# Headers of libbpf, of the kernel's BPF and of the embedded objects, and who may see them.
BPF_HEADER = re.compile(r'^(bpf/|linux/bpf|linux/btf|dlbpf\.skel\.h|vmlinux\.h)')
BPF_FILES = re.compile(r"^userspace/capture/(kernel|bpf|feature|prog|attach|btf)[^/]*$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)

FILE_LINES, FUNCTION_LINES = 600, 60  # longer is told
FILE_HARD, TEST_HARD, FUNCTION_HARD = 700, 900, 100  # longer fails
ALLOWED = os.path.join(ROOT, "tests", "lint", "sizes.txt")

failed = False


def report(name, problems):
    global failed
    if problems:
        failed = True
        for text in problems[:40]:
            print(f"  {text}")
        print(f"FAIL {name}: {len(problems)} found, the first: {problems[0]}")
    else:
        print(f"ok {name}")


def tree():
    """Paths of the project's own files, relative to its root."""
    for folder, dirs, files in os.walk(ROOT):
        dirs[:] = sorted(d for d in dirs if d not in SKIPPED_DIRS and not d.startswith("build"))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and not name.endswith((".o", ".pyc", ".dlbpf")):
                yield os.path.relpath(path, ROOT)


def read(path):
    """The text of a file, None when it is no text."""
    with open(os.path.join(ROOT, path), "rb") as f:
        data = f.read()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def is_c(path):
    return path.endswith((".c", ".h", ".def"))


def include_direction(files):
    problems = []
    for path, text in files.items():
        if not is_c(path):
            continue
        parts = path.split("/")
        for bracket, header in INCLUDE.findall(text):
            if parts[0] == "userspace":
                problems += userspace_include(path, parts[1], bracket, header)
            elif parts[0] == "cupti" and bracket == '"':
                own = os.path.exists(os.path.join(ROOT, "cupti", header))
                if not own:
                    problems.append(f"{path}: includes \"{header}\"; cupti/ stands on include/ alone")
            elif parts[0] == "bpf" and re.match(r"(base|trace|timeline|diagnose|render|capture|cli)/", header):
                problems.append(f"{path}: includes {header}; bpf/ stands on include/ alone")
            elif parts[0] == "include" and not header.startswith(("dlbpf/", "linux/", "events.def")):
                problems.append(f"{path}: the contract includes {header}")
    return problems


def userspace_include(path, folder, bracket, header):
    if BPF_HEADER.match(header):
        return [] if BPF_FILES.match(path) else [f"{path}: includes {header}; only the kernel side of capture/ may"]
    if bracket == "<":
        return []
    target = header.split("/")[0] if "/" in header else folder
    if target == folder or target == "dlbpf" or header == "events.def":
        return []
    if target in MAY_INCLUDE.get(folder, set()):
        return []
    return [f"{path}: {folder}/ must not include {header}"]


def compile_alone(path, flags):
    with tempfile.NamedTemporaryFile("w", suffix=".c") as f:
        f.write(f'#include "{os.path.join(ROOT, path)}"\n')
        f.flush()
        p = subprocess.run(flags + ["-fsyntax-only", f.name], cwd=ROOT, capture_output=True, text=True)
    if p.returncode or p.stderr:
        lines = [line for line in p.stderr.splitlines() if "error:" in line or "warning:" in line]
        return [f"{path}: {(lines or ['fails'])[0].replace(ROOT + '/', '')}"]
    return []


def headers_compile_alone(files):
    problems = []
    cc = shlex.split(os.environ.get("CC", "gcc"))
    user = cc + ["-std=gnu17", "-Wall", "-Wextra", "-Wno-unused", "-D_GNU_SOURCE", "-Iinclude", "-Iuserspace",
                 "-Icupti", f"-I{BUILD}"]
    bpf = ["clang", "-target", "bpf", "-D__TARGET_ARCH_x86", "-Ibpf", "-Iinclude", f"-I{BUILD}",
           "-Wno-unused-function", "-Wno-missing-declarations"]
    for path in files:
        if not path.endswith(".h"):
            continue
        top = path.split("/")[0]
        if top in ("userspace", "include", "cupti"):
            problems += compile_alone(path, user)
        elif top == "bpf" and os.path.exists(os.path.join(BUILD, "vmlinux.h")):
            problems += compile_alone(path, bpf)
    return problems


def functions(text):
    """(name, lines) of each function: from a brace in the first column to its partner."""
    name, start = None, 0
    for n, line in enumerate(text.splitlines(), 1):
        if line and (line[0].isalpha() or line[0] == "_"):
            m = re.match(r"[^=;]*?(\w+)\(", line)
            name = m.group(1) if m else name
        elif line.startswith("{"):
            start = n
        elif line.startswith("}") and start:
            if name and line.rstrip() == "}":
                yield name, n - start - 1
            start = 0


def sizes(files):
    """Over the limits only what sizes.txt allows, and never more than it says there."""
    allowed = {}
    if os.path.exists(ALLOWED):
        with open(ALLOWED) as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    what, most = line.split()
                    allowed[what] = int(most)
    problems, seen = [], set()
    for path, text in files.items():
        if not path.endswith((".c", ".h", ".py")) and path != "tests/run":
            continue
        found = [(path, text.count("\n"), FILE_LINES, TEST_HARD if path.startswith("tests/") else FILE_HARD)]
        if path.endswith(".c"):
            found += [(f"{path}:{name}", n, FUNCTION_LINES, FUNCTION_HARD) for name, n in functions(text)]
        for what, n, soft, hard in found:
            if n > soft:
                print(f"  long: {what}, {n} lines")
            if n <= hard:
                continue
            seen.add(what)
            if n > allowed.get(what, hard):
                problems.append(f"{what} has {n} lines, allowed are {allowed.get(what, hard)}")
    for what in sorted(set(allowed) - seen):
        problems.append(f"{what} is within its limit now: take it off tests/lint/sizes.txt")
    return problems


def licence_lines(files):
    problems = []
    for path, text in files.items():
        base = os.path.basename(path)
        if not is_c(path) and not path.endswith((".py", ".sh")) and not text.startswith("#!") and base != "Makefile":
            continue
        lines = text.splitlines()[:2]
        if not any("SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)" in line for line in lines):
            problems.append(f"{path}: no SPDX line at its start")
    return problems


def white_space(files):
    problems = []
    for path, text in files.items():
        for n, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip() and not path.endswith(".md"):
                problems.append(f"{path}:{n}: trailing white space")
        if text and not text.endswith("\n"):
            problems.append(f"{path}: no newline at its end")
        if is_c(path) and re.search(r"^ {8}", text, re.M):
            n = text[:re.search(r"^ {8}", text, re.M).start()].count("\n") + 1
            problems.append(f"{path}:{n}: spaces where a tab belongs")
    return problems


def local_traces(files):
    """Nothing of the machine that the work was done on."""
    words = [r"(?<![\w.])/work/", r"(?<![\w.])/tmp/v\d", r"\bTODO\b", r"\bFIXME\b", r"\bXXX\b(?!X)"]
    host = socket.gethostname()
    if len(host) > 6 and host not in ("localhost", "debian", "ubuntu"):
        words.append(r"\b" + re.escape(host) + r"\b")
    pattern = re.compile("|".join(words))
    problems = []
    for path, text in files.items():
        if path == os.path.relpath(os.path.abspath(__file__), ROOT):
            continue
        for n, line in enumerate(text.splitlines(), 1):
            m = pattern.search(line)
            if m:
                problems.append(f"{path}:{n}: {m.group(0)}")
    return problems


def scripts_parse(files):
    """Every script in the tree at least parses."""
    problems = []
    for path, text in files.items():
        first = text.split("\n", 1)[0]
        if path.endswith(".py") or (first.startswith("#!") and "python" in first):
            try:
                compile(text, path, "exec")
            except SyntaxError as e:
                problems.append(f"{path}:{e.lineno}: {e.msg}")
        elif path.endswith(".sh") or re.match(r"#!.*\b(ba)?sh$", first):
            shell = "bash" if "bash" in first else "sh"
            p = subprocess.run([shell, "-n", os.path.join(ROOT, path)], capture_output=True, text=True)
            if p.returncode:
                problems.append(f"{path}: {p.stderr.strip().splitlines()[0]}")
    return problems


def main():
    files = {}
    for path in tree():
        text = read(path)
        if text is not None:
            files[path] = text
    report("include direction of the folders", include_direction(files))
    report("headers compile alone", headers_compile_alone(files))
    report("sizes of files and functions", sizes(files))
    report("licence lines", licence_lines(files))
    report("white space", white_space(files))
    report("nothing of the building machine", local_traces(files))
    report("scripts parse", scripts_parse(files))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
