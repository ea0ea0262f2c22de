#!/usr/bin/env python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Prints docs/EVENTS.md from include/dlbpf/events.def and event.h.

    docs/mkevents.py > docs/EVENTS.md     write it
    docs/mkevents.py --check              exit 1 unless it is up to date
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

INTRO = """# Events

<!-- Made by docs/mkevents.py from include/dlbpf/events.def and event.h. Do not edit. -->

What a trace holds, kind by kind. Each kind is defined once, in `include/dlbpf/events.def`; the structs of the kernel side, the collector and the program, the schema block of every trace file, and this page follow from there. How events are stored is in [FORMAT.md](FORMAT.md).

Kinds and fields are only ever added. A reader that lacks a field of the file leaves it out; a field that the file lacks is 0.

Every event has a header:

| field | |
|---|---|
| `kind` | what it is; the number in the titles below |
| `ts` | when it happened, `CLOCK_MONOTONIC` nanoseconds |
| `tid`, `pid` | thread and process it happened to, as the host numbers them, unless the meaning says otherwise; 0 is the idle task, or nobody |
| `cpu` | CPU it happened on; 65535 where it has none |
| `flags` | bit 0: the thread is foreign, outside of the recorded tree; bit 2: said again for those who have only what comes behind it (`record --keep`), it happened before |

Units:

| unit | |
|---|---|
"""

GROUPS = {
    "SCHED": "scheduling", "LIFE": "threads and processes", "FAULT": "page faults", "MEM": "memory",
    "CRASH": "crashes", "IO": "storage", "SAMPLE": "on-CPU samples", "ENV": "environment",
    "GPU": "GPU", "META": "the recording itself",
}
TAILS = {"NONE": None, "STR": "text", "ADDRS": "code addresses (u64)"}
STRING = r'"((?:[^"\\]|\\.)*)"'


def read(name):
    with open(os.path.join(ROOT, "include", "dlbpf", name), encoding="utf-8") as f:
        return f.read()


def unquote(text):
    return text.replace('\\"', '"').replace("|", "\\|")


def units(text):
    """The list in the head comment: two columns of NAME  meaning."""
    head = text[text.index("UNIT:"):text.index("The header (struct")]
    found = re.findall(r"\b([A-Z]{2,5})\s+((?:(?!\s{2,}|\n).)+)", head.replace("UNIT:", ""))
    names = {n: m.strip() for n, m in found}
    tail = re.search(r"TOTAL (.+)", head)
    names["TOTAL"] = tail.group(1).strip()
    return names


def events(text):
    pattern = (r"EVENT\((\w+), (\w+), (\d+), (\w+), (\w+), " + STRING + r"\)|FIELD\(\w+, (\w+), (\w+), (\w+), "
               + STRING + r"\)")
    found = []
    for m in re.finditer(pattern, re.sub(r"/\*.*?\*/", "", text, flags=re.S)):
        if m.group(1):
            found.append({"name": m.group(2), "id": int(m.group(3)), "group": m.group(4),
                          "tail": m.group(5), "doc": unquote(m.group(6)), "fields": []})
        else:
            found[-1]["fields"].append((m.group(8), m.group(7), m.group(9), unquote(m.group(10))))
    return found


def enums(text):
    for m in re.finditer(r"(?:/\* ([^\n]*) \*/\n)?enum (\w+) \{\n(.*?)\n\};", text, re.S):
        if m.group(2) in ("dl_kind", "dl_hdr_flag"):
            continue
        rows, value = [], -1
        for line in m.group(3).splitlines():
            one = re.match(r"\s*(\w+)(?: = ([^,]+))?,?\s*(?:/\* (.*) \*/)?", line)
            if not one:
                continue
            value = eval(one.group(2)) if one.group(2) else value + 1  # "1 << 3" and the like
            if not one.group(1).endswith("_MAX") or one.group(1) == "DL_RING_SCHED_MAX":
                rows.append((one.group(1), value, unquote(one.group(3) or "")))
        yield m.group(2), m.group(1) or "", rows


def page():
    table = read("events.def")
    out = [INTRO.rstrip()]
    names = units(table)
    for unit, meaning in names.items():
        out.append(f"| {unit} | {meaning} |")
    kinds = events(table)
    for ev in kinds:
        for field in ev["fields"]:
            if field[2] not in names:
                raise SystemExit(f"mkevents: {ev['name']}.{field[0]}: unit {field[2]} has no meaning")
    group = None
    for ev in kinds:
        if ev["group"] != group:
            group = ev["group"]
        out += ["", f"## {ev['name']} ({ev['id']})", "",
                f"{ev['doc']} *Group: {GROUPS[group]}.*"]
        if TAILS[ev["tail"]]:
            out[-1] += f" *Tail: {TAILS[ev['tail']]}.*"
        out += ["", "| field | type | unit | |", "|---|---|---|---|"]
        out += [f"| `{n}` | {t} | {u} | {d} |" for n, t, u, d in ev["fields"]]
    out += ["", "# Enumerations and bits"]
    for name, doc, rows in enums(read("event.h")):
        out += ["", f"## enum {name}", ""]
        if doc:
            out += [doc, ""]
        out += ["| name | value | |", "|---|---|---|"]
        out += [f"| `{n}` | {v} | {d} |" for n, v, d in rows]
    return "\n".join(out) + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        path = os.path.join(ROOT, "docs", "EVENTS.md")
        with open(path, encoding="utf-8") as f:
            if f.read() != page():
                sys.exit("docs/EVENTS.md is out of date: docs/mkevents.py > docs/EVENTS.md")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
