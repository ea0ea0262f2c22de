#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""GPU traces of other tools: what `dlbpf report --gpu-trace` says of them against an independent
computation here, on small files made in both layouts and on public samples where they are; damage;
annotated traces."""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from dlbpf import DLBPF, ROOT, Tests, check, need  # noqa: E402

SAMPLES = os.environ.get("DLBPF_SAMPLES", os.path.join(os.path.dirname(ROOT), "shared", "samples"))
# ms: span, busy (collectives included), idle, measured with another tool (a union of kernels)
KNOWN = {
    "kineto-resnet50-workers0": (994.100, 591.532, 402.568),
    "kineto-resnet50-workers4": (797.311, 594.868, 202.443),
    "kineto-pinned-pageable": (1222.818, 547.303, 675.515),
    "kineto-event-sync": (0.263, 0.049, 0.214),
}
T = tempfile.TemporaryDirectory(prefix="dlbpf-import-")


def path_of(name):
    return os.path.join(T.name, name)


def dlbpf(*args, ok=True):
    p = subprocess.run([DLBPF] + list(args), capture_output=True, text=True, timeout=100, cwd=T.name)
    if ok:
        check(p.returncode == 0, f"dlbpf {' '.join(args)}: {p.stderr}")
    return p


def report(*args):
    return json.loads(dlbpf("report", "--json", *args).stdout)


# --- the independent computation: (pid or None, device) -> [(start, end)] in ns -----------------

def ns_of(number):
    """Microseconds as text, exactly."""
    whole, _, part = str(number).partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def kineto_kernels(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as f:
        events = json.load(f, parse_float=str, parse_int=str)["traceEvents"]
    found = {}
    for e in events:
        if e.get("ph") == "X" and str(e.get("cat")).lower() == "kernel":
            start = ns_of(e["ts"])
            found.setdefault(int(e["args"]["device"]), []).append((start, start + ns_of(e["dur"])))
    return found


def nsys_kernels(path):
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    found = {}
    for start, end, device in db.execute('SELECT start, "end", deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL'):
        found.setdefault(device, []).append((start, end))
    return found


def union(spans):
    """span, busy, idle"""
    busy, last = 0, 0
    for start, end in sorted(spans):
        busy += max(end, last) - max(start, last)
        last = max(end, last)
    span = last - min(spans)[0]
    return span, busy, span - busy


def check_devices(r, kernels, what):
    check({d["id"] for d in r["devices"]} == set(kernels), f"{what}: devices {[d['id'] for d in r['devices']]}")
    for d in r["devices"]:
        span, busy, idle = union(kernels[d["id"]])
        got = (d["end_ns"] - d["start_ns"], d["busy_ns"] + d["collective_ns"], d["idle_ns"])
        check(got == (span, busy, idle), f"{what}, GPU {d['id']}: {got}, not {(span, busy, idle)}")
        check(sum(c["ns"] for c in d["causes"]) == idle, f"{what}: causes do not add up")
        check(d["kernels"] == len(kernels[d["id"]]), f"{what}: {d['kernels']} kernels")


def causes(r, device=0):
    return {c["cause"]: c["ns"] for d in r["devices"] if d["id"] == device for c in d["causes"] if c["ns"]}


# --- small files ---------------------------------------------------------------------------------

BASE = 1712275200000000000


def x(cat, name, pid, tid, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kineto_events():
    """us: kernel 100-200; __next__ 210-310; copy call 320-420; op 430-450 with a launch; nothing 450-500;
    synchronise 500-530; launch 540-545; kernel 550-600, overlapped by one on another stream to 640."""
    return [
        x("cuda_runtime", "cudaLaunchKernel", 77, 77, 90, 5, correlation=1, cbid=211),
        x("kernel", "first", 0, 7, 100, 100, device=0, stream=7, correlation=1),
        x("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 77, 77, 210, 100),
        x("cuda_runtime", "cudaMemcpyAsync", 77, 77, 320, 100, correlation=2, cbid=41),
        x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 7, 325, 90, device=0, stream=7, correlation=2, bytes=4096),
        x("cpu_op", "aten::add", 77, 77, 430, 20),
        x("cpu_op", "aten::empty", 77, 77, 435, 5),
        x("cuda_runtime", "cudaStreamSynchronize", 77, 77, 500, 30, correlation=3),
        x("cuda_runtime", "cudaLaunchKernel", 77, 77, 540, 5, correlation=4, cbid=211),
        x("kernel", "second", 0, 7, 550, 50, device=0, stream=7, correlation=4),
        x("kernel", "third", 0, 8, 580, 60, device=0, stream=8, correlation=5),
    ]


def write_kineto(name, events, **top):
    top = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Made up", "totalGlobalMem": 1 << 30}],
           "baseTimeNanoseconds": BASE, "traceEvents": events, **top}
    path = path_of(name)
    with (gzip.open if name.endswith(".gz") else open)(path, "wt") as f:
        json.dump(top, f)
    return path


def write_nsys(name, enums=True, graph=False):
    path = path_of(name)
    if os.path.exists(path):
        os.unlink(path)
    db = sqlite3.connect(path)
    pid = 77 << 24 | 1 << 48
    db.executescript("""
        CREATE TABLE StringIds (id INTEGER, value TEXT);
        INSERT INTO StringIds VALUES (1, 'k'), (2, 'cudaMemcpyAsync_v3020'), (3, 'cudaLaunchKernel_v7000');
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1712275200000000000);
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.24.0');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
            correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
    """)
    db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100000, 200000, 1, 7, 1, {pid}, 1), (500000, 600000, 1, 7, 3, {pid}, 1)")
    db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (310000, 390000, 1, 7, 2, {pid}, 1048576, 1, 1, 2)")
    db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (300000, 400000, 0, {pid | 77}, 2, 2, 0), (490000, 495000, 0, {pid | 77}, 3, 3, 0)")
    if enums:
        db.executescript("""
            CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
            INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', ''),
                (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', ''), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', '');""")
    if graph:
        db.executescript(f"""
            CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (700000, 800000, 1, 5, 7, 9, {pid});""")
    db.commit()
    db.close()
    return path


# --- tests ---------------------------------------------------------------------------------------

def kineto_small():
    for name in ("small.json", "small.json.gz"):
        path = write_kineto(name, kineto_events())
        r = report("--gpu-trace", path)
        check_devices(r, kineto_kernels(path), name)
        got = causes(r)
        want = {"data": 100000, "pcie": 100000, "sync": 30000, "host": 20000, "gpu": 10000, "unexplained": 90000}
        check(got == want, f"{name}: {got}")
        check(r["trace"]["gpu_source"] == "Kineto trace", r["trace"]["gpu_source"])
        check(r["copies"][0]["memory"] == "pageable" and r["copies"][0]["bytes"] == 4096, r["copies"])


def kineto_of_2021():
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime", "cpu_op": "Operator",
           "user_annotation": "Operator"}
    events = kineto_events()
    for e in events:
        e["cat"] = old[e["cat"]]
        e["ts"] += 1623142623460111
        e["tid"] = f"stream {e['tid']}" if e["cat"] in ("Kernel", "Memcpy") else str(e["tid"])
    path = path_of("old.json")
    with open(path, "w") as f:
        json.dump({"traceEvents": events}, f)
    r = report("--gpu-trace", path)
    check_devices(r, kineto_kernels(path), "2021")
    check(causes(r)["data"] == 100000, causes(r))


def order_does_not_matter():
    want = causes(report("--gpu-trace", write_kineto("order.json", kineto_events())))
    got = causes(report("--gpu-trace", write_kineto("order.json", list(reversed(kineto_events())))))
    # the operator inside another is met first: it changes nothing
    check(got == want, f"{got}, not {want}")


def imported_file_is_a_recording():
    path = write_kineto("rec.json", kineto_events())
    dlbpf("import", path, "-o", path_of("rec.dlbpf"))
    check(causes(report(path_of("rec.dlbpf"))) == causes(report("--gpu-trace", path)), "import and --gpu-trace differ")
    lines = [json.loads(line) for line in dlbpf("dump", "--json", path_of("rec.dlbpf")).stdout.splitlines()]
    kernels = [e for e in lines if e.get("kind", e.get("event")) == "gpu_kernel"]
    check(len(kernels) == 3, f"{len(kernels)} kernels in the dump")


def bad_records_are_counted():
    events = kineto_events() + [x("kernel", "bad", 0, 7, 1000, -5, device=0),
                                x("kernel", "bad", 0, 7, float("nan"), 5, device=0)]
    r = report("--gpu-trace", write_kineto("bad.json", events))
    lost = [row for row in r["losses"] if row["ring"] == "gpu"]
    check(len(lost) == 1 and lost[0]["count"] == 2, f"losses: {r['losses']}")
    check(r["devices"][0]["kernels"] == 3, "a kernel without a time was taken")


def damage():
    path = write_kineto("whole.json", kineto_events())
    with open(path) as f:
        text = f.read()
    cut = path_of("cut.json")
    with open(cut, "w") as f:
        f.write(text[:text.index('"third"')])
    r = report("--gpu-trace", cut)
    check(r["devices"][0]["kernels"] == 2, "what lay before the cut was not kept")
    check(any("ends here" in a for a in r["absent"]), f"the cut is not said: {r['absent']}")
    broken = path_of("broken.json")
    at = text.index('"third"')
    with open(broken, "w") as f:
        f.write(text[:at] + "}" + text[at:])
    p = dlbpf("import", broken, "-o", path_of("never.dlbpf"), ok=False)
    check(p.returncode == 1 and f"byte {at}:" in p.stderr, p.stderr)
    check(not os.path.exists(path_of("never.dlbpf")), "half a file was left")
    packed = path_of("cut.json.gz")
    with open(packed, "wb") as f:
        f.write(gzip.compress(text.encode(), 0)[:-300])  # stored, not deflated: the cut is where it is
    r = report("--gpu-trace", packed)
    check(any("cut off" in a for a in r["absent"]), f"{r['absent']}")
    for bad, say in (("[]", "no GPU records"), ("{}", "no traceEvents"), ("", "empty"), ("\x7fELF", "byte 0")):
        with open(broken, "w") as f:
            f.write(bad)
        p = dlbpf("report", "--gpu-trace", broken, ok=False)
        check(p.returncode == 1 and say in p.stderr, f"{bad!r}: {p.stderr}")


def nsys_small():
    for enums in (True, False):
        path = write_nsys("small.sqlite", enums)
        r = report("--gpu-trace", path)
        check_devices(r, nsys_kernels(path), "nsys")
        check(causes(r, 1)["pcie"] == 100000, causes(r, 1))
        check(r["copies"][0]["memory"] == "pinned", f"memory kinds (with tables: {enums}): {r['copies']}")
        check("Nsight Systems" in r["trace"]["gpu_source"], r["trace"]["gpu_source"])
    r = report("--gpu-trace", write_nsys("graph.sqlite", graph=True))
    check(r["devices"][0]["busy_ns"] == 300000, "a graph is not busy")


def nsys_damage():
    path = write_nsys("typed.sqlite")
    db = sqlite3.connect(path)
    db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start='soon' WHERE rowid=2")
    db.commit()
    db.close()
    p = dlbpf("report", "--gpu-trace", path, ok=False)
    check(p.returncode == 1 and "CUPTI_ACTIVITY_KIND_KERNEL, row 2: column start" in p.stderr, p.stderr)
    path = write_nsys("torn.sqlite")
    os.truncate(path, os.path.getsize(path) // 2)
    p = dlbpf("report", "--gpu-trace", path, ok=False)
    check(p.returncode == 1 and "torn.sqlite" in p.stderr, p.stderr)


def annotate():
    events = kineto_events()
    for name in ("a.json", "a.json.gz"):
        path = write_kineto(name, events)
        out = path_of("out-" + name)
        dlbpf("annotate", path, "-o", out)
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "rb") as f:
            before = f.read()
        with opener(out, "rb") as f:
            after = f.read()
        doc = json.loads(after)
        ours = [e for e in doc["traceEvents"] if e["pid"] == 900000000]
        check([e for e in doc["traceEvents"] if e["pid"] != 900000000] == events, "the user's events have changed")
        at = after.index(b',\n{"ph": "M", "ts": 0, "name": "process_name", "pid": 900000000')
        check(before.startswith(after[:at]), "bytes before the new events have changed")
        check(after.endswith(before[at:]), "bytes behind the new events have changed")
        gaps = [e for e in ours if e["ph"] == "X" and e["tid"] == 1]
        check([(e["ts"], e["dur"]) for e in gaps] == [(200, 350)], f"gaps: {gaps}")
        check(abs(sum(v for k, v in gaps[0]["args"].items() if k.endswith(" us")) - 350) < 0.001, gaps)
        steps = [e for e in ours if e["ph"] == "X" and e["tid"] == 2]
        check(sum(e["dur"] for e in steps) == 350, f"steps: {steps}")
    p = dlbpf("annotate", path, "-o", out, ok=False)
    check(p.returncode == 1 and "exists" in p.stderr, p.stderr)
    p = dlbpf("annotate", write_nsys("a.sqlite"), "-o", path_of("no.json"), ok=False)
    check(p.returncode == 1 and not os.path.exists(path_of("no.json")), p.stderr)


def merge_with_itself():
    path = write_kineto("m.json", kineto_events())
    dlbpf("import", path, "-o", path_of("m.dlbpf"))
    check(causes(report("--gpu-trace", path, path_of("m.dlbpf"))) == causes(report("--gpu-trace", path)), "differs")
    later = write_kineto("later.json", kineto_events(), baseTimeNanoseconds=BASE + 10**12)
    p = dlbpf("report", "--gpu-trace", later, path_of("m.dlbpf"), ok=False)
    check(p.returncode == 1 and "do not overlap" in p.stderr, p.stderr)


def sample(name, ext):
    path = os.path.join(SAMPLES, name + ext)
    need(os.path.exists(path), f"no {path}")
    r = report("--gpu-trace", path)
    if ext == ".sqlite":
        check_devices(r, nsys_kernels(path), name)
        return
    check_devices(r, kineto_kernels(path), name)
    d = r["devices"][0]
    got = tuple(round(ns / 1e6, 3) for ns in (d["end_ns"] - d["start_ns"], d["busy_ns"] + d["collective_ns"], d["idle_ns"]))
    check(got == KNOWN[name], f"{got}, not {KNOWN[name]}")


def main():
    t = Tests("import ")
    for fn in (kineto_small, kineto_of_2021, order_does_not_matter, imported_file_is_a_recording,
               bad_records_are_counted, damage, nsys_small, nsys_damage, annotate, merge_with_itself):
        t.run(fn.__name__.replace("_", " "), fn)
    for name in KNOWN:
        t.run(name, sample, name, ".json.gz")
    for name in ("nsys-cloverleaf-osrt", "nsys-h100-2gpu"):
        t.run(name, sample, name, ".sqlite")
    t.exit()


if __name__ == "__main__":
    main()
