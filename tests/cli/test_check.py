#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The pre-flight as scripts see it: JSON against docs/check.schema.json, ids against docs/CHECK.md, exit
codes, and a text that fits. As any user, without a job."""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import dlbpf  # noqa: E402

from dlbpf import check, equal, need  # noqa: E402


def read(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


def run(*options):
    p = subprocess.run([dlbpf.DLBPF, "check", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=100)
    check(p.returncode in (0, 1), f"exit code {p.returncode}: {p.stderr[-300:]}")
    return p


def as_json(*options):
    p = run("--json", *options)
    return json.loads(p.stdout), p.returncode


def line(r, name):
    return next((c for c in r["checks"] if c["id"] == name), None)


def json_is_valid(folder):
    try:
        import jsonschema
    except ImportError:
        need(False, "python3-jsonschema is not installed")
    schema = json.loads(read("docs", "check.schema.json"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for options in ([], ["--workers", "8", "--batch-bytes", "20M", "--data", folder], ["--", "true"]):
        r, _ = as_json(*options)
        for error in validator.iter_errors(r):
            raise AssertionError(f"{options}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")
    check(list(validator.iter_errors({"schema": "dlbpf.check/1"})), "an empty document is valid")


def ids_are_explained(folder):
    ids = re.findall(r'^\t\{ "([a-z-]+)", "[^"]+", "[^"]+", ck_judge', read("userspace", "check", "check.c"), re.M)
    check(len(ids) > 30, f"only {ids}")
    equal(len(ids), len(set(ids)), "the number of different ids")
    table = read("docs", "CHECK.md").split("## What is checked")[1]
    named = [i for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for i in re.findall(r"`([a-z-]+)`", row)]
    equal(sorted(named), sorted(ids), "the ids in docs/CHECK.md")
    r, _ = as_json()
    check({c["id"] for c in r["checks"]} <= set(ids), "an id that is not in the table")


def exit_codes(folder):
    r, code = as_json("--workers", "1", "--batch-bytes", "4096")
    equal(code, 1 if r["summary"]["problems"] else 0, "the exit code")
    _, strict = as_json("--strict", "--workers", "1", "--batch-bytes", "4096")
    equal(strict, 1 if r["summary"]["problems"] + r["summary"]["warnings"] else 0, "the exit code with --strict")
    r, code = as_json("--workers", "100", "--batch-bytes", "1000G")
    equal(line(r, "shm-size")["state"], "problem", "200 TB of shared memory")
    equal(code, 1, "the exit code of a problem")


def needs_by_hand(folder):
    r, _ = as_json("--workers", "3", "--prefetch", "4", "--batch-bytes", "10M")
    numbers = line(r, "shm-size")["numbers"]
    equal(numbers["needed_bytes"], (3 * 4 + 1) * (10 << 20) + 4 * 65536, "what is needed")
    equal(numbers["batch_bytes"], 10 << 20, "a batch")


def data_is_read(folder):
    os.mkdir(os.path.join(folder, "set"))
    for i in range(8):
        with open(os.path.join(folder, "set", f"{i}.bin"), "wb") as f:
            f.write(os.urandom(300000))
    r, _ = as_json("--data", os.path.join(folder, "set"))
    check(line(r, "data-file-system")["state"] in ("ok", "warning"), line(r, "data-file-system")["text"])
    equal(line(r, "data-rate")["numbers"]["read_bytes"], 2400000, "the bytes that were read")
    equal(line(r, "data-rate")["numbers"]["files"], 8, "the files")
    r, code = as_json("--data", os.path.join(folder, "nowhere"))
    equal(line(r, "data-file-system")["state"], "problem", "data that are not there")
    equal(code, 1, "the exit code")
    check(not line(as_json()[0], "data-file-system"), "data were looked at though nobody asked")


def text_fits(folder):
    p = run("--color", "never", "--workers", "4", "--batch-bytes", "1000G")
    lines = p.stdout.splitlines()
    command = re.compile(r"^ {14}\S")
    for text in lines:
        check(len(text) <= 100 or command.match(text), f"too long: {text}")
    check(re.fullmatch(r"\d+ problems?, \d+ warnings?, \d+ ok, \d+ unknown", lines[-1]), f"the last line is {lines[-1]!r}")
    marks = [m.group(1) for m in (re.match(r"^  (ok|warning|PROBLEM|unknown)  ", t) for t in lines) if m]
    equal(lines[-1], "{} problem{}, {} warning{}, {} ok, {} unknown".format(
        marks.count("PROBLEM"), "" if marks.count("PROBLEM") == 1 else "s", marks.count("warning"),
        "" if marks.count("warning") == 1 else "s", marks.count("ok"), marks.count("unknown")), "the sum")
    quiet = run("--color", "never", "-q", "--workers", "4", "--batch-bytes", "1000G").stdout
    check(not re.search(r"^  (ok|unknown) ", quiet, re.M), "--quiet prints what is fine")
    check("PROBLEM  size of /dev/shm" in quiet, quiet)


def commands(folder):
    r, code = as_json("--seconds", "5", "--", "sh", "-c", "echo printed; exit 3")
    equal(line(r, "run")["state"], "problem", "a command that failed")
    check("exit code 3" in line(r, "run")["text"], line(r, "run")["text"])
    equal(code, 1, "the exit code")
    p = subprocess.run([dlbpf.DLBPF, "check", "--json", "--seconds", "0.5", "--", "sleep", "100"], capture_output=True,
                       text=True, timeout=60, stdin=subprocess.DEVNULL)
    r = json.loads(p.stdout)
    check(line(r, "run"), "a command that goes on has no line")
    check(r["target"]["watched_ns"] > 400_000_000, "it was not watched for half a second")
    equal(line(r, "worker-cpus")["state"], "warning", "no workers")


def main():
    tests = dlbpf.Tests()
    for fn in (json_is_valid, ids_are_explained, exit_codes, needs_by_hand, data_is_read, text_fits, commands):
        with tempfile.TemporaryDirectory(prefix="dlbpf-check-") as folder:
            tests.run(fn.__name__, fn, folder)
    tests.exit()


if __name__ == "__main__":
    main()
