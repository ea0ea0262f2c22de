#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Holds the JSON of report, info and postmortem against docs/*.schema.json: reports filled in by hand, and those
of real traces. Every member of a schema must be described."""

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


def schema(name):
    with open(os.path.join(ROOT, "docs", f"{name}.schema.json")) as f:
        return json.load(f)


def read(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


def validate(name, document, what):
    try:
        import jsonschema
    except ImportError:
        need(False, "python3-jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(schema(name))
    for error in validator.iter_errors(document):
        raise AssertionError(f"{what}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}")


def members(node, path=""):
    """(path, sub-schema) of every member that a document may have."""
    if not isinstance(node, dict):
        return
    for key, sub in node.get("properties", {}).items():
        yield f"{path}/{key}", sub
        yield from members(sub, f"{path}/{key}")
    for key in ("items", "additionalProperties"):
        yield from members(node.get(key), f"{path}/*")
    for sub in node.get("anyOf", []):
        yield from members(sub, path)
    for key, sub in node.get("$defs", {}).items():
        yield from members(sub, f"{key}:")


def is_valid_schema(name):
    try:
        import jsonschema
    except ImportError:
        need(False, "python3-jsonschema is not installed")
    jsonschema.Draft202012Validator.check_schema(schema(name))


def everything_is_described(name):
    found = 0
    for path, sub in members(schema(name)):
        found += 1
        check(len(sub.get("description", "")) > 5, f"{path} is not described")
        unit = {"_ns": "ns", "_bytes": "bytes"}
        for suffix, word in unit.items():
            if path.endswith(suffix) and sub.get("type") == "integer":
                check(re.search(rf"\b{word}\b|\bOf ns\b|Bytes", sub["description"]), f"{path} does not name its unit")
    check(found > 40, f"only {found} members")


def lists_are_those_of_the_program():
    defs = schema("report")["$defs"]
    causes = re.findall(r'^CAUSE\(\w+, "([^"]+)"', read("userspace", "diagnose", "cause.def"), re.M)
    equal(sorted(defs["cause"]["enum"]), sorted(causes), "the list of causes")
    roles = re.findall(r'\[DL_ROLE_\w+\] = "([^"]+)"', read("userspace", "diagnose", "report.c"))
    equal(sorted(defs["role"]["enum"]), sorted(roles), "the list of roles")
    defs = schema("postmortem")["$defs"]
    deaths = re.findall(r'^DEATH\(\w+, "([^"]+)"', read("userspace", "diagnose", "death.def"), re.M)
    equal(defs["death"]["enum"], deaths, "the list of deaths")
    equal(sorted(defs["role"]["enum"]), sorted(roles), "the list of roles of a post-mortem")


def samples_are_valid(folder):
    subprocess.run([os.path.join(dlbpf.BUILD, "tests", "unit", "t_render_json"), "every_sample"], cwd=ROOT, check=True,
                   env={**os.environ, "DLBPF_SAMPLES_DIR": folder}, capture_output=True)
    names = sorted(n for n in os.listdir(folder) if n.endswith(".json"))
    check(len(names) >= 6, f"only {names} were written")
    for name in names:
        with open(os.path.join(folder, name)) as f:
            validate("report", json.load(f), name)


def postmortems_are_valid(folder):
    subprocess.run([os.path.join(dlbpf.BUILD, "tests", "unit", "t_render_postmortem"), "samples_are_valid_json"], cwd=ROOT,
                   check=True, env={**os.environ, "DLBPF_SAMPLES_DIR": folder}, capture_output=True)
    for name in ("shm", "leftovers", "none"):
        with open(os.path.join(folder, f"{name}.json")) as f:
            validate("postmortem", json.load(f), name)


def traces_are_valid(folder):
    subprocess.run([os.path.join(dlbpf.BUILD, "tests", "unit", "t_render_trace")], cwd=ROOT, check=True,
                   env={**os.environ, "DLBPF_SAMPLES_DIR": folder}, capture_output=True)
    for name in ("sample.dlbpf", "cut.dlbpf"):
        path = os.path.join(folder, name)
        validate("info", dlbpf.info(path), f"info {name}")
        for options in ([], ["--no-gpu"], ["--from", "0.01"], ["--worst", "1"]):
            validate("report", dlbpf.report(path, *options), f"report {name} {' '.join(options)}")


def wrong_documents_are_refused():
    """The schema is not one that takes anything."""
    good = {"schema": "dlbpf.report/1"}
    try:
        validate("report", good, "x")
    except AssertionError:
        return
    raise AssertionError("an empty report is valid")


def main():
    tests = dlbpf.Tests()
    with tempfile.TemporaryDirectory(prefix="dlbpf-schema-") as folder:
        for name in ("report", "info", "postmortem"):
            tests.run(f"{name}.schema.json is a schema", is_valid_schema, name)
            tests.run(f"every member of {name}.schema.json is described", everything_is_described, name)
        tests.run("lists are those of the program", lists_are_those_of_the_program)
        tests.run("an incomplete report is refused", wrong_documents_are_refused)
        tests.run("reports filled in by hand are valid", samples_are_valid, folder)
        tests.run("post-mortems filled in by hand are valid", postmortems_are_valid, folder)
        tests.run("info and report of traces are valid", traces_are_valid, folder)
    tests.exit()


if __name__ == "__main__":
    main()
