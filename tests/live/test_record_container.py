#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 200
"""dlbpf record of a target in namespaces of its own (PID, mount, user, cgroup, IPC) with its own
/dev/shm and limits, as containers are: processes carry both ids, and what is reported is the
target's, not the recorder's."""

import contextlib
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

SHM_MIB, FDS = 24, 789
UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc", "--cgroup", "--ipc",
           "--kill-child"]
INNER = (f"mount -t tmpfs -o size={SHM_MIB}m tmpfs /dev/shm && ulimit -Sn {FDS} && : > /dev/shm/torch_left && "
         "truncate -s 5000 /dev/shm/torch_left && exec \"$@\"")


def container(command):
    return [*UNSHARE, "sh", "-c", INNER, "-", *command]


def train(seconds):
    return [dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--data", "python", "--batch", "4", "--workers", "2", "--seconds", str(seconds)]


def need_namespaces():
    p = subprocess.run([*UNSHARE, "sh", "-c", "mount -t tmpfs tmpfs /dev/shm"], capture_output=True, text=True)
    need(p.returncode == 0, f"no namespaces here: {p.stderr.strip()}")


def judge(trace, trainer, launcher):
    """trainer, launcher: host ids, None when not known."""
    tasks = [t for t in dlbpf.dump(trace, "task") if t["pid"] == t["tid"]]
    inner = {t["pid"]: t["nspid"] for t in tasks}
    trainers = [pid for pid, nspid in inner.items() if nspid == 1 and pid != launcher]
    equal(len(trainers), 1, f"processes with the inner id 1 ({inner})")
    check(trainer in (None, trainers[0]), f"the trainer is {trainers[0]}, not {trainer}")
    trainer = trainers[0]
    workers = {t["pid"] for t in tasks if t["sig_caught"] & 0x44C0 == 0x44C0}
    equal(len(workers), 2, "the number of workers")
    for pid in workers:
        check(1 < inner[pid] < 1000 and inner[pid] != pid, f"worker {pid} has the inner id {inner[pid]}")
    threads = [t for t in dlbpf.dump(trace, "task") if t["pid"] in workers and t["tid"] != t["pid"]]
    check(threads and all(t["nstid"] < 1000 and t["nspid"] == inner[t["pid"]] for t in threads),
          "threads of workers without their inner ids")
    shm = [s for s in dlbpf.dump(trace, "env_shm") if s["pid"] == trainer]
    check(shm, "no sample of the trainer's /dev/shm")
    equal(shm[-1]["total"], SHM_MIB << 20, "the size of the container's /dev/shm")
    equal((shm[-1]["torch_cnt"] >= 1, shm[-1]["torch_bytes"] >= 5000), (True, True), "the file torch_left")
    for pid in (trainer, *workers):
        proc = [e for e in dlbpf.dump(trace, "env_proc") if e["pid"] == pid]
        check(proc and proc[-1]["fds_limit"] == FDS, f"the limit of descriptors of {pid}: {proc[-1:]}")
    maps = [m for m in dlbpf.dump(trace, "mmap") if m["pid"] == trainer and "libtorch" in m["text"]]
    check(maps and all(m["build_id_sz"] for m in maps), f"no build-id of libtorch: {maps[:1]}")
    names = [s for s in dlbpf.dump(trace, "symbol") if s["pid"] in (trainer, *workers)]
    check(names, "no names of the container's code")
    return trainer


def command(where):
    need_namespaces()
    trace = os.path.join(where, "t.dlbpf")
    rec = dlbpf.record(container(train(5)), trace)
    done = rec.done()
    check(done, "the training did not finish")
    judge(trace, None, None)


def of_process(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def running(where):
    """-p with the host's id of the process that is 1 inside."""
    need_namespaces()
    trace = os.path.join(where, "t.dlbpf")
    p = subprocess.Popen(container(train(60)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        line = next((x for x in p.stdout if x.startswith('{"started"')), None)
        check(line, "the training did not start")
        equal(json.loads(line)["started"], 1, "the trainer's own idea of its id")
        trainer = of_process(p.pid)[0]
        dlbpf.wait_until(lambda: len(of_process(trainer)) >= 2, 20, "workers")
        dlbpf.record_pid(trainer, trace, 5)
        judge(trace, trainer, None)
    finally:
        dlbpf.stop(p)
        p.stdout.close()


def dies(where):
    """What the container's /dev/shm held is known after its last process is gone."""
    need_namespaces()
    trace = os.path.join(where, "t.dlbpf")
    script = "head -c 3000000 /dev/zero > /dev/shm/torch_full; sleep 1.5; kill -9 $$; :"
    dlbpf.record(container(["sh", "-c", 'sh -c "$1"; :', "-", script]), trace, rc=None)
    shm = [s for s in dlbpf.dump(trace, "env_shm") if s["total"] == SHM_MIB << 20]
    check(shm, "no sample of the container's /dev/shm")
    last = max(s["ts"] for s in shm)
    exits = [e["ts"] for e in dlbpf.dump(trace, "exit") if e["code"] & 0x7F == 9]
    check(exits and last > min(exits), "no sample behind the death of the container")
    check(max(s["used"] for s in shm if s["ts"] == last) >= 3000000, f"the last sample is {shm[-1]}")


# --- control groups ------------------------------------------------------------------------------


def mounts():
    """controller -> (mount point, version)"""
    found = {}
    with open("/proc/self/mounts") as f:
        for _, folder, kind, options, *_ in (line.split() for line in f):
            if kind == "cgroup":
                for name in {"memory", "cpu"} & set(options.split(",")):
                    found[name] = (folder, 1)
            elif kind == "cgroup2":
                with open(os.path.join(folder, "cgroup.controllers")) as c:
                    for name in {"memory", "cpu"} & set(c.read().split()):
                        found.setdefault(name, (folder, 2))
    return found


def own_group(folder, version, pid="self"):
    with open(f"/proc/{pid}/cgroup") as f:
        for line in f:
            _, names, path = line.strip().split(":", 2)
            if (version == 2 and not names) or (version == 1 and os.path.basename(folder) in names.split(",")):
                return path
    return "/"


def put(path, value):
    with open(path, "w") as f:
        f.write(str(value))


@contextlib.contextmanager
def limited(memory, quota_us):
    """Groups with limits; yields (what to write a pid to, name -> path in the hierarchy)."""
    where = mounts()
    need("memory" in where and "cpu" in where, "no memory and cpu controllers")
    name, made, paths, versions = f"dlbpf-test-{os.getpid()}", [], {}, {}
    try:
        for ctl in ("memory", "cpu"):
            folder, version = where[ctl]
            outer, inner = os.path.join(folder, name), os.path.join(folder, name, "in")
            for path in (outer, inner):
                if not os.path.isdir(path):
                    if version == 2:
                        put(os.path.join(os.path.dirname(path), "cgroup.subtree_control"), "+memory +cpu")
                    os.mkdir(path)
                    made.append(path)
            paths[ctl], versions[ctl] = f"/{name}/in", version
        mem, cpu = (os.path.join(where[c][0], name) for c in ("memory", "cpu"))
        if versions["memory"] == 1:
            put(f"{mem}/memory.limit_in_bytes", memory)
        else:
            put(f"{mem}/memory.max", memory)
        if versions["cpu"] == 1:
            put(f"{cpu}/cpu.cfs_period_us", 50000)
            put(f"{cpu}/cpu.cfs_quota_us", quota_us)
        else:
            put(f"{cpu}/cpu.max", f"{quota_us} 50000")
        yield [os.path.join(where[c][0], name, "in", "cgroup.procs") for c in ("memory", "cpu")], name, versions
    except OSError as e:
        raise dlbpf.Skip(f"cannot make control groups: {e}")
    finally:
        for path in reversed(made):
            for _ in range(50):
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.1)


def groups(where):
    """Limits stand one level above the target's own group, and the target has a cgroup namespace."""
    need_namespaces()
    trace = os.path.join(where, "t.dlbpf")
    with limited(700 << 20, 10000) as (procs, name, versions):
        enter = "".join(f"echo $$ > {p}; " for p in procs) + 'exec "$@"'
        inner = container([dlbpf.PYTHON, "-c", "import time\ne = time.time() + 2.5\nwhile time.time() < e: pass"])
        dlbpf.record(["sh", "-c", enter, "-", *inner], trace)
    rows = dlbpf.dump(trace, "env_cgroup")
    last = {}
    for r in rows:
        if name in r["text"]:
            last[r["text"]] = r
    equal(sorted(last), [f"/{name}", f"/{name}/in"], "the levels of the target's groups")
    own, above = last[f"/{name}/in"], last[f"/{name}"]
    equal((above["mem_limit"], own["mem_limit"]), (700 << 20, 0), "the memory limits, outer and inner")
    equal((above["cpu_quota_ns"], above["cpu_period_ns"]), (10_000_000, 50_000_000), "quota and period")
    equal(own["cpu_quota_ns"], 0, "the inner quota")
    equal((own["level"], above["level"]), (0, 1), "the levels' numbers")
    check(0 < own["mem_usage"] <= above["mem_usage"] <= 700 << 20, f"usage: {own['mem_usage']}, {above['mem_usage']}")
    # One busy thread with a fifth of a CPU is throttled four fifths of the time.
    samples = [r for r in rows if r["text"] == f"/{name}"]
    first = samples[0]
    check(above["throttled_cnt"] - first["throttled_cnt"] > 5, f"throttled {above['throttled_cnt']} times")
    check(above["throttled_ns"] > 500_000_000, f"throttled for {above['throttled_ns']} ns")
    equal(above["version"], versions["memory"], "the version")


CASES = [command, running, dies, groups]


def main():
    tests = dlbpf.Tests("record_container_")
    for fn in CASES:
        if len(sys.argv) > 1 and fn.__name__ not in sys.argv[1:]:
            continue
        with dlbpf.scratch() as where:
            tests.run(fn.__name__, fn, where)
    tests.exit()


if __name__ == "__main__":
    main()
