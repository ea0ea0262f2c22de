#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Copies with a planted fault on the simulated GPU, recorded: the report must name the kind. And what the
double of NVML says of that GPU must be in the report, number for number."""
# timeout: 240

import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import dlbpf  # noqa: E402

from dlbpf import check, equal  # noqa: E402

LAB = os.path.join(ROOT, "tests", "lab")
PLANTED = (  # scenario of the lab, dose, form, environment, kind, a word of the action
    ("pcie_pageable", 10, {}, {"GPUSIM_PAGEABLE_GBPS": "0.5"}, "pageable", "pin_memory=True"),
    ("pcie_small_copies", 700, {}, {"GPUSIM_WAIT": "spin"}, "too-small", "pack tensors"),
    ("pcie_not_overlapped", 10, {"pin": True}, {"GPUSIM_PINNED_GBPS": "0.5"}, "not-overlapped", "second stream"),
    ("pcie_slow_link", 12, {"pin": True}, {"GPUSIM_PINNED_GBPS": "0.5"}, "link-limited", "Send less"),
)


def run(where, name, dose, form, env, batches=40):
    given = {"form": form, "dose": dose, "gpu": "sim", "place": {}, "batches": batches}
    command = [dlbpf.PYTHON, "-B", os.path.join(LAB, "train.py"), name, json.dumps(given)]
    trace = os.path.join(where, f"{name}.dlbpf")
    # The recorder, which loads NVML's double, has the same environment.
    dlbpf.record(command, trace, env={**dlbpf.gpu_env(), "DLBPF_LIBNVML": os.path.join(dlbpf.BUILD, "gpusim",
                                                                                      "libnvidia-ml.so.1"), **env})
    return dlbpf.report(trace)


def planted(where, name, dose, form, env, kind, word):
    r = run(where, name, dose, form, env)
    device, = r["copy_devices"]
    equal(device["problem"], kind, f"the kind, of {device}")
    equal(device["direction"], "host-to-device", "the direction")
    check(device["overlap_ns"] <= device["ns"], "more overlap than copies")
    v = r["verdict"]
    # What Python does between small copies is the host's, and on a busy machine may lead.
    if kind != "too-small" or v["cause"] not in ("host", "sync"):
        dlbpf.verdict_is(r, "pcie")
    if v["cause"] != "pcie":  # busy with other programs
        equal(v["copies"], None, "the kind of a verdict that is not about copies")
        return
    equal(v["copies"], kind, f"the verdict's kind ({v['text']})")
    check(any(word in a for a in v["actions"]), f"{word!r} is not in {v['actions']}")


def nvml_in_the_report(where):
    """The double: 16 GiB, 1 GiB used and 64 MiB more each second, gen 3 x16 of 4.0 x16, 512 MiB a process."""
    r = run(where, "pcie_pageable", 10, {}, {"GPUSIM_PAGEABLE_GBPS": "0.5"}, batches=90)
    gpu, = r["gpus"]
    equal((gpu["nvml_index"], gpu["device"], gpu["pci"], gpu["simulated"]), (0, 0, "0000:01:00.0", True), "the device")
    link = gpu["link"]
    equal((link["generation"], link["width"], link["max_generation"], link["max_width"]), (3, 16, 4, 16), "the link")
    equal(r["copy_devices"][0]["link"], link, "the link of the copies")
    memory, samples = gpu["memory"], gpu["samples"]
    check(samples >= 2, f"only {samples} samples")
    equal(memory["total_bytes"], 16 << 30, "memory")
    equal(memory["first_bytes"] % (64 << 20), 0, "memory used at first, modulo the double's step")
    equal(memory["peak_bytes"], memory["first_bytes"] + (samples - 1) * (64 << 20), "the most used")
    check(memory["recorded_peak_bytes"] and memory["recorded_peak_bytes"] % (512 << 20) == 0, f"of the process: {memory}")
    check(0.1 <= gpu["utilisation"]["mean"] <= gpu["utilisation"]["max"] <= 0.9, f"utilisation {gpu['utilisation']}")
    check(1e9 <= gpu["pcie"]["to_device_max_bytes_per_s"] < 1.001e9, f"traffic {gpu['pcie']}")


def nvml_that_hangs(where):
    """A call into a broken driver that never returns holds up neither recording nor its end."""
    r = run(where, "pcie_pageable", 10, {}, {"GPUSIM_PAGEABLE_GBPS": "0.5", "GPUSIM_NVML_FAIL": "hang"})
    check(r["trace"]["complete"], "the trace is not complete")
    check(all(not g["samples"] for g in r["gpus"]), "samples from a library that hangs")
    equal(r["copy_devices"][0]["problem"], "pageable", "the kind")


def nvml_that_fails(where):
    r = run(where, "pcie_pageable", 10, {}, {"GPUSIM_PAGEABLE_GBPS": "0.5", "GPUSIM_NVML_FAIL": "init"})
    check(any("NVML" in a for a in r["absent"]), f"nothing says that NVML failed: {r['absent']}")


def main():
    tests = dlbpf.Tests()
    with tempfile.TemporaryDirectory(prefix="dlbpf-copies-") as where:
        for name, *rest in PLANTED:
            tests.run(name, planted, where, name, *rest)
        tests.run("NVML's numbers are in the report", nvml_in_the_report, where)
        tests.run("NVML hangs", nvml_that_hangs, where)
        tests.run("NVML fails", nvml_that_fails, where)
    tests.exit()


if __name__ == "__main__":
    main()
