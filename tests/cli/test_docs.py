#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What the program says of itself and what the pages say of it must agree: options, manual pages,
causes, roles, system calls."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import dlbpf  # noqa: E402

from dlbpf import check, equal, need  # noqa: E402


def load(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3].replace("-", "_"),
                                                  os.path.join(ROOT, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


def output(*args):
    return subprocess.run([dlbpf.DLBPF, *args], check=True, capture_output=True, text=True).stdout


def commands():
    listed = output("--help").split("Commands:\n")[1].split("\n\n")[0]
    return [c for c in re.findall(r"^  (\w+)", listed, re.M) if c != "help"]


def table_options(command):
    """The rows of the option table in cmd_NAME.c."""
    source = read("userspace", "cli", f"cmd_{command}.c")
    table = re.search(r"struct dl_opt options\[\] = \{(.*?)\n\};", source, re.S)
    check(table, f"cmd_{command}.c has no option table")
    return re.findall(r'\.name = "([^"]+)"', table.group(1))


def options_in_help(command):
    names = table_options(command)
    check(names, f"no options found for {command}")
    text = output(command, "--help")
    for name in names:
        check(re.search(rf"^ +(-\w, )?--{name}\b", text, re.M), f"--{name} of {command} is not in its --help")


def options_in_man(command):
    text = read("docs", "man", f"dlbpf-{command}.1").replace("\\-", "-")
    for name in [*table_options(command), "help"]:
        check(f"--{name}" in text, f"--{name} is not in dlbpf-{command}.1: make docs")


def man_pages_up_to_date():
    equal(load("docs/mkman.py").stale(dlbpf.DLBPF), [], "the list of outdated pages (make docs)")


def man_pages_render():
    need(shutil.which("man"), "man is not installed")
    for name in sorted(os.listdir(os.path.join(ROOT, "docs", "man"))):
        path = os.path.join(ROOT, "docs", "man", name)
        p = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", path], capture_output=True, text=True,
                           env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
        check(p.returncode == 0 and not p.stderr, f"{name}: {p.stderr.strip()}")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
            check(re.search(rf"^{section}$", p.stdout, re.M), f"{name} has no section {section}")


def every_cause_is_explained():
    page = read("docs", "CAUSES.md")
    for cause, meaning in re.findall(r'^CAUSE\(\w+, "([^"]+)", "([^"]+)"\)', read("userspace", "diagnose", "cause.def"),
                                     re.M):
        check(f"| `{cause}` |" in page, f"{cause} is not in docs/CAUSES.md")
        check(meaning in page, f"the meaning of {cause} in docs/CAUSES.md is not that of the program: {meaning}")


def every_crash_verdict_is_explained():
    explained = re.findall(r"^\| `([a-z-]+)` \|", read("docs", "POSTMORTEM.md"), re.M)
    given = re.findall(r'^DEATH\(\w+, "([^"]+)"', read("userspace", "diagnose", "death.def"), re.M)
    equal(explained, given, "the list of verdicts in docs/POSTMORTEM.md")


def pages_are_linked():
    """Links between the pages lead somewhere."""
    docs = os.path.join(ROOT, "docs")
    for name in [n for n in os.listdir(docs) if n.endswith(".md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", read("docs", name)):
            check(os.path.exists(os.path.join(docs, target)), f"{name} links to {target}, which is not there")


def system_call_tables():
    gen = load("userspace/render/gen-syscalls.py")
    for arch in ("x86_64", "arm64"):
        here = gen.syscalls(arch)
        need(here, f"the kernel headers of {arch} are not installed")
        table = dict((int(nr), name) for nr, name in
                     re.findall(r"^SYSCALL\((\d+), (\w+)\)", read("userspace", "render", f"syscalls_{arch}.def"), re.M))
        # A newer kernel has more; what both know must agree.
        wrong = [(nr, name, table[nr]) for nr, name in here if nr in table and table[nr] != name]
        equal(wrong, [], f"the list of differences for {arch}")


def every_enumerator_has_a_name():
    """Those of the enumerations that event fields hold, as dump prints them."""
    enums = dict(re.findall(r"^enum dl_(\w+) \{(.*?)^\};", read("include", "dlbpf", "event.h"), re.S | re.M))
    used = set(re.findall(r"enum dl_([a-z_]+)", read("include", "dlbpf", "events.def")))
    named = set(re.findall(r"\{ (DL_\w+), ", read("userspace", "render", "enums.c")))
    check(len(used) > 10, f"only {sorted(used)} are used")
    for name in sorted(used & set(enums)):
        for item in re.findall(r"^\t(DL_\w+)", enums[name], re.M):
            if not item.endswith("_MAX"):
                check(item in named, f"{item} of enum dl_{name} has no name in userspace/render/enums.c")


def main():
    tests = dlbpf.Tests()
    for command in commands():
        tests.run(f"options of {command} in its help", options_in_help, command)
        tests.run(f"options of {command} in its manual page", options_in_man, command)
    tests.run("manual pages are up to date", man_pages_up_to_date)
    tests.run("manual pages render", man_pages_render)
    tests.run("every cause is explained", every_cause_is_explained)
    tests.run("every crash verdict is explained", every_crash_verdict_is_explained)
    tests.run("pages are linked", pages_are_linked)
    tests.run("every enumerator has a name", every_enumerator_has_a_name)
    tests.run("system call tables", system_call_tables)
    tests.exit()


if __name__ == "__main__":
    main()
