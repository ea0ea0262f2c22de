#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""What cupti/cupti_abi.h, cupti/calls.def and the libcupti double say, against real libraries and
headers of CUPTI: those of an installed toolkit, and the cuda-cupti wheels of PyPI, which are
fetched once into BUILD/cupti-wheels (DLBPF_OFFLINE=1 does not fetch)."""

import glob
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

from gputest import BUILD, ROOT, SIM, TOOLS, Skip, _tests, check, equal, main

WHEELS = [
    ("11.8", "nvidia-cuda-cupti-cu11==11.8.87"),
    ("12.1", "nvidia-cuda-cupti-cu12==12.1.105"),
    ("12.4", "nvidia-cuda-cupti-cu12==12.4.127"),
    ("12.6", "nvidia-cuda-cupti-cu12==12.6.80"),
    ("12.8", "nvidia-cuda-cupti-cu12==12.8.90"),
    ("12.9", "nvidia-cuda-cupti-cu12==12.9.79"),
    ("13.0", "nvidia-cuda-cupti==13.0.85"),
]

# Its library answers nothing without a driver; its headers can be compared.
HEADERS_ONLY = [("13.4", "nvidia-cuda-cupti==13.4.92")]

# our struct, CUPTI's (its versions differ by a number), the oldest of them, our field: theirs
LAYOUTS = [
    ("cupti_memcpy", "CUpti_ActivityMemcpy", {1, 3, 4, 5, 6, 7}, dict(
        kind="kind", copy_kind="copyKind", src_kind="srcKind", dst_kind="dstKind", flags="flags", bytes="bytes",
        start="start", end="end", device="deviceId", context="contextId", stream="streamId", corr="correlationId")),
    ("cupti_memcpy_p2p", "CUpti_ActivityMemcpyPtoP", None, dict(
        kind="kind", copy_kind="copyKind", src_kind="srcKind", dst_kind="dstKind", flags="flags", bytes="bytes",
        start="start", end="end", device="deviceId", context="contextId", stream="streamId",
        src_device="srcDeviceId", dst_device="dstDeviceId", corr="correlationId")),
    ("cupti_memset", "CUpti_ActivityMemset", None, dict(
        kind="kind", value="value", bytes="bytes", start="start", end="end", device="deviceId", context="contextId",
        stream="streamId", corr="correlationId", flags="flags", memory_kind="memoryKind")),
    ("cupti_kernel", "CUpti_ActivityKernel", set(range(5, 20)), dict(
        kind="kind", start="start", end="end", completed="completed", device="deviceId", context="contextId",
        stream="streamId", grid="gridX", block="blockX", corr="correlationId", grid_id="gridId", name="name",
        queued="queued", submitted="submitted", graph_node="graphNodeId", graph="graphId")),
    ("cupti_sync", "CUpti_ActivitySynchronization", None, dict(
        kind="kind", type="type", start="start", end="end", corr="correlationId", context="contextId",
        stream="streamId", event="cudaEventId")),
    ("cupti_api", "CUpti_ActivityAPI", None, dict(
        kind="kind", cbid="cbid", start="start", end="end", pid="processId", tid="threadId", corr="correlationId",
        ret="returnValue")),
    ("cupti_overhead", "CUpti_ActivityOverhead", None, dict(
        kind="kind", overhead_kind="overheadKind", object_kind="objectKind", start="start", end="end")),
    ("cupti_graph_trace", "CUpti_ActivityGraphTrace", None, dict(
        kind="kind", corr="correlationId", start="start", end="end", device="deviceId", graph="graphId",
        context="contextId", stream="streamId")),
]

ENUMS = """
SAME(CUPTI_ABI_OK, CUPTI_SUCCESS) SAME(CUPTI_ABI_ERR_PARAM, CUPTI_ERROR_INVALID_PARAMETER)
SAME(CUPTI_ABI_ERR_LIMIT, CUPTI_ERROR_MAX_LIMIT_REACHED)
SAME(CUPTI_ABI_ERR_NOT_INIT, CUPTI_ERROR_NOT_INITIALIZED) SAME(CUPTI_ABI_ERR_KIND, CUPTI_ERROR_INVALID_KIND)
SAME(CUPTI_ABI_ERR_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
SAME(CUPTI_ABI_ERR_UNKNOWN, CUPTI_ERROR_UNKNOWN)
SAME(CUPTI_ABI_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY) SAME(CUPTI_ABI_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET)
SAME(CUPTI_ABI_KIND_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL) SAME(CUPTI_ABI_KIND_DRIVER, CUPTI_ACTIVITY_KIND_DRIVER)
SAME(CUPTI_ABI_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_RUNTIME)
SAME(CUPTI_ABI_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
SAME(CUPTI_ABI_KIND_OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD)
SAME(CUPTI_ABI_KIND_MEMCPY_P2P, CUPTI_ACTIVITY_KIND_MEMCPY2)
SAME(CUPTI_ABI_KIND_SYNC, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)
SAME(CUPTI_ABI_KIND_GRAPH_TRACE, CUPTI_ACTIVITY_KIND_GRAPH_TRACE)
SAME(CUPTI_ABI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API) SAME(CUPTI_ABI_DOMAIN_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API)
SAME(CUPTI_ABI_THREAD_ID_SYSTEM, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM)
SAME(CUPTI_ABI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)
SAME(DL_GPU_HTOD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD) SAME(DL_GPU_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH)
SAME(DL_GPU_DTOD, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD) SAME(DL_GPU_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH)
SAME(DL_GPU_PTOP, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP)
SAME(DL_GPU_MEM_PAGEABLE, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE)
SAME(DL_GPU_MEM_PINNED, CUPTI_ACTIVITY_MEMORY_KIND_PINNED)
SAME(DL_GPU_MEM_DEVICE, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE)
SAME(DL_GPU_MEM_ARRAY, CUPTI_ACTIVITY_MEMORY_KIND_ARRAY)
SAME(DL_GPU_MEM_MANAGED, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED)
SAME(DL_GPU_SYNC_EVENT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE)
SAME(DL_GPU_SYNC_STREAM_WAIT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT)
SAME(DL_GPU_SYNC_STREAM, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE)
SAME(DL_GPU_SYNC_CONTEXT, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE)
"""


class Real:
    def __init__(self, release, lib, include):
        self.release, self.lib, self.include = release, lib, include


def toolkit():
    for base in ["/usr/local/cuda"] + sorted(glob.glob("/usr/local/cuda-*"), reverse=True):
        libs = sorted(glob.glob(base + "/lib64/libcupti.so.1[123]*")) + sorted(
            glob.glob(base + "/lib/libcupti.so.1[123]*")) + sorted(
            glob.glob(base + "/extras/CUPTI/lib64/libcupti.so.1[123]*"))
        for include in (base + "/include", base + "/extras/CUPTI/include"):
            if libs and os.path.exists(include + "/cupti_activity.h"):
                return libs[0], include
    raise Skip("no CUDA toolkit under /usr/local")


def release_of(lib):
    out = run_walker(lib, "about")
    version = int(re.search(r"version (\d+)", out).group(1))
    known = {18: "11.8" if ".so.11" in lib else "12.1", 22: "12.4", 24: "12.6", 26: "12.8", 28: "12.9",
             130000: "13.0", 130001: "13.0"}
    return known.get(version)


def wheel(release, requirement):
    if platform.machine() != "x86_64":
        raise Skip("the wheels that are compared are x86-64")
    cache = os.path.join(BUILD, "cupti-wheels")
    where = os.path.join(cache, release)
    if not os.path.isdir(where):
        if os.environ.get("DLBPF_OFFLINE") == "1":
            raise Skip("DLBPF_OFFLINE=1 and %s was not fetched before" % requirement)
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as tmp:
            cmd = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
                   "--disable-pip-version-check", "--retries", "0", "--timeout", "15",
                   "--python-version", "3.11", "--platform", "manylinux_2_25_x86_64",
                   "--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64", "-d", tmp, requirement]
            try:
                p = subprocess.run(cmd, capture_output=True, text=True, timeout=90)
            except subprocess.TimeoutExpired:
                raise Skip("%s: no download within 90 s" % requirement)
            found = glob.glob(tmp + "/*.whl")
            if p.returncode or not found:
                raise Skip("%s could not be had: %s" % (requirement, (p.stderr.strip().splitlines() or ["?"])[-1]))
            with zipfile.ZipFile(found[0]) as z:
                z.extractall(tmp + "/x")
            os.rename(tmp + "/x", where)
    libs = glob.glob(where + "/nvidia/*/lib/libcupti.so.*")
    return Real(release, libs[0], glob.glob(where + "/nvidia/*/include/cupti_activity.h")[0].rsplit("/", 1)[0])


def run_walker(lib, *args, release=None):
    env = dict(os.environ)
    if release:
        env["GPUSIM_CUPTI_RELEASE"] = release
    p = subprocess.run([os.path.join(TOOLS, "walker"), lib] + list(args), capture_output=True, text=True, env=env)
    check(p.returncode == 0, "walker %s %s: %s%s" % (lib, args[0], p.stdout[:100], p.stderr[:200]))
    return p.stdout


def double_for(release):
    folder = os.path.join(SIM, "cupti-" + release)
    name = "libcupti.so." + (release if release.startswith("11.") else release.split(".")[0])
    return os.path.join(folder if os.path.isdir(folder) else SIM, name)


def sizes(lib, release=None):
    return {int(a): int(b) for a, b in (x.split() for x in run_walker(lib, "sizes", release=release).splitlines())}


# --- what is compared -------------------------------------------------------------------------------

def same_sizes(real):
    want, got = sizes(real.lib), sizes(double_for(real.release), real.release)
    check(len(got) > 15, "the double knows only %d kinds" % len(got))
    wrong = {k: (v, want.get(k)) for k, v in got.items() if want.get(k) != v}
    check(not wrong, "kind: (double, real): %s" % wrong)


def same_identity(real):
    want, got = run_walker(real.lib, "about"), run_walker(double_for(real.release), "about", release=real.release)
    equal(got, want, "what the double says of itself")
    check("clock error 0 realtime 1" in want, "CUPTI's clock is not CLOCK_REALTIME")


def same_layouts(real):
    text = ""
    for name in ("cupti_activity.h", "cupti_activity_deprecated.h"):
        path = os.path.join(real.include, name)
        if os.path.exists(path):
            with open(path, errors="replace") as f:
                text += f.read()
    code = '#include <cupti_activity.h>\n#include <dlbpf/event.h>\n#include "cupti_abi.h"\n'
    code += "#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a);\n" + ENUMS
    compared = 0
    for own, theirs, versions, fields in LAYOUTS:
        for n in sorted(set(re.findall(r"\}\s*%s(\d*)\s*;" % theirs, text))):
            if versions is not None and int(n or 1) not in versions:
                continue
            compared += 1
            for a, b in fields.items():
                code += ("_Static_assert(offsetof(%s%s, %s) == offsetof(struct %s, %s), \"%s%s.%s\");\n"
                         % (theirs, n, b, own, a, theirs, n, b))
    check(compared >= 8, "only %d structs were found in %s" % (compared, real.include))
    compile_against(real, code)


def same_call_numbers(real):
    """Each call of calls.def has the name that this release gives to its number, or is newer."""
    calls = []
    with open(os.path.join(ROOT, "cupti", "calls.def")) as f:
        for line in f:
            m = re.match(r'CALL\((\w+), (\d+), \w+, \d, "(\w+)"\)', line)
            if m:
                calls.append((1 if m.group(1) == "DRIVER" else 2, int(m.group(2)), m.group(3)))
    check(len(calls) > 100, "calls.def was not read")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("".join("%d %d\n" % c[:2] for c in calls))
        f.flush()
        out = run_walker(real.lib, "names", f.name).splitlines()
    known, wrong = 0, []
    for (domain, cbid, name), line in zip(calls, out):
        got = line.split()[2]
        # The runtime's names for calls that were not public yet are numbers: cuda470_v12060.
        if got == "-" or re.match(r"cuda\d+_v", got):
            continue
        known += 1
        plain = re.sub(r"_v\d{4,}$", "", name)      # ours may carry it to tell two apart
        if re.sub(r"_v\d{4,}$", "", got) != plain:
            wrong.append((domain, cbid, name, got))
    check(not wrong, "%s" % wrong[:5])
    check(known > 90, "the release knows only %d of %d calls" % (known, len(calls)))


def same_second_interface(real):
    """Signatures, attributes and the subscriber's parameters, as the compiler sees them."""
    code = ('#include <cupti_activity.h>\n#include <cupti_callbacks.h>\n#include "cupti_abi.h"\n'
            "#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a);\n"
            "SAME(CUPTI_ABI_ATTR_MULTIPLE_SUBSCRIBERS, CUPTI_ACTIVITY_ATTR_MULTIPLE_SUBSCRIBER_STATE)\n"
            "SAME(CUPTI_ABI_ATTR_ALL_SYNC, CUPTI_ACTIVITY_ATTR_ENABLE_ALL_SYNC_RECORDS)\n"
            "SAME(CUPTI_ABI_ATTR_THREAD_ID_TYPE, CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE)\n"
            "SAME(sizeof(CUpti_ActivityThreadIdType), 4) SAME(sizeof(CUpti_ActivityKind), 4)\n"
            "SAME(CUPTI_ABI_OLD_NAME_SZ, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN)\n"
            "SAME(sizeof(struct cupti_subscribe), sizeof(CUpti_SubscriberParams))\n")
    for own, theirs in (("size", "structSize"), ("name", "subscriberName"), ("old_name", "oldSubscriberName"),
                        ("old_name_sz", "oldSubscriberSize"), ("allow_several", "allowMultipleSubscribers")):
        code += "SAME(offsetof(struct cupti_subscribe, %s), offsetof(CUpti_SubscriberParams, %s))\n" % (own, theirs)
    # Every function takes as many arguments, each as large, as the header says.
    with open(os.path.join(ROOT, "cupti", "cupti_abi.h")) as f:
        functions = re.findall(r'CUPTI_FN\(0, \w+, "(cupti\w+_v2|cuptiActivityGetEnabledKinds)",\s*\\?\s*\(([^)]*)\)',
                               f.read())
    check(len(functions) >= 12, "only %d functions were found" % len(functions))
    for name, params in functions:
        args = [" ".join(a.replace("\\", " ").split()) for a in params.split(",")]
        values = ", ".join("(void *)0" if "*" in a or a.startswith("cupti_") else "0" for a in args)
        code += "void call_%s(void) { (void)%s(%s); }\n" % (name, name, values)
    compile_against(real, code)
    print("# %s: %d functions" % (real.release, len(functions)))


def compile_against(real, code):
    with tempfile.NamedTemporaryFile("w", suffix=".c") as f:
        f.write(code)
        f.flush()
        p = subprocess.run(["gcc", "-std=gnu17", "-fsyntax-only", "-I" + os.path.join(ROOT, "tests", "gpu", "stub"),
                            "-I" + real.include, "-I" + os.path.join(ROOT, "cupti"),
                            "-I" + os.path.join(ROOT, "include"), f.name], capture_output=True, text=True)
    errors = [x for x in p.stderr.splitlines() if "error" in x]
    check(p.returncode == 0, "; ".join(errors[:3]))


def same_walk(real):
    """A real library steps through the double's buffers as the double itself does."""
    lib = double_for(real.release)
    with tempfile.TemporaryDirectory() as d:
        env = dict(os.environ, GPUSIM_CUPTI_RELEASE=real.release)
        subprocess.run([os.path.join(TOOLS, "rawdump"), SIM, lib, d], env=env, check=True, stdout=subprocess.DEVNULL)
        bufs = sorted(glob.glob(d + "/buf.*"))
        check(bufs, "the double completed no buffer")
        records = 0
        for b in bufs:
            want, got = run_walker(lib, "walk", b, release=real.release), run_walker(real.lib, "walk", b)
            equal(got, want, "the walk of " + os.path.basename(b))
            check(want.endswith("end 12\n"), "the walk ends with " + want[-20:])
            records += want.count("record ")
    check(records > 3000, "only %d records" % records)


def add(name, get, what):
    def run():
        what(get())
    run.__name__ = name
    _tests.append(run)


def toolkit_real():
    lib, include = toolkit()
    release = release_of(lib)
    if not release:
        raise Skip("the toolkit's CUPTI is none of the releases that the double has")
    return Real(release, lib, include)


CHECKS = [same_sizes, same_identity, same_layouts, same_call_numbers, same_walk]
for what_ in CHECKS:
    add("toolkit_%s" % what_.__name__, toolkit_real, what_)
for release_, requirement_ in WHEELS:
    for what_ in CHECKS:
        add("cupti_%s_%s" % (release_.replace(".", "_"), what_.__name__),
            lambda r=release_, q=requirement_: wheel(r, q), what_)


for release_, requirement_ in HEADERS_ONLY:
    for what_ in (same_layouts, same_second_interface):
        add("cupti_%s_%s" % (release_.replace(".", "_"), what_.__name__),
            lambda r=release_, q=requirement_: wheel(r, q), what_)


def the_collector_needs_an_old_libc_only():
    p = subprocess.run(["objdump", "-T", os.path.join(BUILD, "libdlbpf_cupti.so")], capture_output=True, text=True)
    if p.returncode:
        raise Skip("objdump is not there")
    versions = {tuple(int(n) for n in v.split(".")) for v in re.findall(r"GLIBC_([\d.]+)", p.stdout)}
    check(versions, "no version was found")
    check(max(versions) <= (2, 17), "GLIBC_%s is needed" % ".".join(map(str, max(versions))))
    exported = re.findall(r"\.text\s+\S+\s+\S+\s+(\S+)$", p.stdout, re.M)
    equal(exported, ["InitializeInjection"], "what it exports")


_tests.append(the_collector_needs_an_old_libc_only)

if __name__ == "__main__":
    sys.exit(main())
