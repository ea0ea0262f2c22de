#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 400
"""The pre-flight of real DataLoader runs: what it estimates has to be enough, and it must leave no
trace of itself. Names on the command line select."""

import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

WORKERS, BATCH = 2, 8
BATCH_BYTES = BATCH * 3 * 224 * 224 * 4 + 4096  # images in float32, and labels in a page
MIB = 1 << 20


def train(*options):
    return [dlbpf.PYTHON, "-B", dlbpf.TRAIN, "--workers", str(WORKERS), "--batch", str(BATCH), *options]


def with_shm(size, command):
    """The command with a /dev/shm of its own."""
    inner = f"mount -t tmpfs -o size={size} shm /dev/shm && exec \"$@\""
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", inner, "-", *command]


def check_json(*options, rc=None, timeout=90, **popen):
    p = subprocess.run([dlbpf.DLBPF, "check", "--json", *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout, **popen)
    try:
        r = json.loads(p.stdout)
    except ValueError as e:
        raise AssertionError(f"no JSON: {e}: {p.stdout[:200]} {p.stderr[-600:]}")
    if rc is not None:
        equal(p.returncode, rc, f"the exit code ({problems(r)})")
    r["stderr"] = p.stderr
    equal(len([c for c in r["checks"] if c["state"] == "problem"]), r["summary"]["problems"], "the number of problems")
    return r


def problems(r):
    return "; ".join(f"{c['id']}: {c['text']}" for c in r["checks"] if c["state"] == "problem")


def line(r, name):
    for c in r["checks"]:
        if c["id"] == name:
            return c
    raise AssertionError(f"no line {name} among {[c['id'] for c in r['checks']]}")


def torch_files():
    return {n for n in os.listdir("/dev/shm") if n.startswith("torch_")}


def tree_of(pid):
    """pid and all below it."""
    found = [pid]
    for p in found:
        try:
            with open(f"/proc/{p}/task/{p}/children") as f:
                found += [int(c) for c in f.read().split()]
        except OSError:
            pass
    return found


class Running:
    """A training that goes on while it is looked at."""

    def __init__(self, command, **popen):
        self.p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True, **popen)
        for text in self.p.stdout:
            if text.startswith('{"started"'):
                self.pid = json.loads(text)["started"]
                return
        raise AssertionError("the training did not start")

    def __enter__(self):
        dlbpf.wait_until(lambda: len(tree_of(self.pid)) > WORKERS, 20, "worker")
        return self

    def __exit__(self, *_):
        for pid in reversed(tree_of(self.p.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.p.wait()
        self.p.stdout.close()


def needed_is_enough(where):
    """16 MiB are too little: the check says so, and how much is enough. In flight are 2 batches of each
    worker and one that the trainer holds; while it takes the next it may hold two for a moment, and the
    check then counts these (6/5); so the number lies between 1 and 1.5 times what arithmetic says."""
    truth = (WORKERS * 2 + 1) * BATCH_BYTES
    options = ["--data", "jpeg", "--data-dir", os.path.join(where, "jpegs"), "--host-ms", "150"]
    r = check_json("--", *with_shm("16m", train(*options, "--seconds", "60")), rc=1)
    shm = line(r, "shm-size")
    equal(shm["state"], "problem", f"the state of shm-size ({shm['text']})")
    equal(shm["numbers"]["total_bytes"], 16 * MIB, "the size")
    equal(r["target"]["workers"], WORKERS, f"the workers ({shm['text']})")
    wanted = shm["numbers"]["needed_bytes"]
    check(truth * 0.99 <= wanted <= truth * 1.5, f"needed are {wanted}, by arithmetic {truth}: {shm['text']}")
    check(shm["commands"], "nothing to type")
    data = line(r, "data-file-system")
    check("/jpegs" in data["text"] and data["state"] != "unknown", f"the data were not found: {data['text']}")
    p = subprocess.run(with_shm(str(wanted), train(*options, "--batches", "12")), stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=90)
    equal(p.returncode, 0, f"the exit code with the size that was asked for ({p.stderr[-300:]})")


def running_job(where):
    """With -p nothing happens to the job. 24 MiB just hold the 23 that it needs."""
    truth = (WORKERS * 2 + 1) * BATCH_BYTES
    with Running(with_shm("24m", train("--data", "tensor", "--host-ms", "100", "--seconds", "120"))) as job:
        before = sorted(tree_of(job.pid))
        r = check_json("-p", str(job.pid))
        equal(sorted(tree_of(job.pid)), before, "the processes of the job")
        equal(r["target"]["workers"], WORKERS, "the workers")
        equal(r["target"]["start_method"], "fork", "the start method")
        equal(r["target"]["batch_bytes"], BATCH_BYTES, "bytes of a batch")
        equal(r["target"]["batch_tensors"], 2, "tensors of a batch")
        shm = line(r, "shm-size")
        equal(shm["numbers"]["total_bytes"], 24 * MIB, "the size: that of the job, not ours")
        check(shm["state"] in ("warning", "problem"), f"the state of shm-size: {shm['text']}")
        wanted = shm["numbers"]["needed_bytes"]
        check(truth * 0.99 <= wanted <= truth * 1.5, f"needed are {wanted}, by arithmetic {truth}: {shm['text']}")
        equal(line(r, "sharing")["text"].split(":")[0], "file_descriptor", "the strategy")
        check(line(r, "descriptors")["numbers"]["open"] > 5, "no descriptors were counted")


def nothing_is_left(where, method="spawn"):
    """A command that would go on for ever, whose workers are spawned: all of it is gone afterwards."""
    files = torch_files()
    mark = f"dlbpf-check-test-{os.getpid()}"
    r = check_json("--", *train("--data", "tensor", "--start-method", method, "--seconds", "300", "--data-dir", where),
                   env={**os.environ, "DLBPF_MARK": mark})
    equal(r["target"]["start_method"], method, f"the start method ({r['stderr'][-300:]})")
    equal(r["target"]["workers"], WORKERS, "the workers")
    check('"started"' in r["stderr"], "what the command printed is not on standard error")
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark.encode() in f.read() and int(pid) != os.getpid():
                    left.append(pid)
        except OSError:
            pass
    equal(left, [], "the list of processes that are left")
    equal(torch_files() - files, set(), "the files that are left in /dev/shm")


def nothing_is_left_of_a_forkserver(where):
    nothing_is_left(where, "forkserver")


def worker_for_trainer(where):
    """PyTorch's messages name workers, so that is what one may type."""
    with Running(train("--data", "small", "--seconds", "60")) as job:
        r = check_json("-p", str(tree_of(job.pid)[-1]), "--seconds", "1")
        check(f"-p {job.pid}" in " ".join(line(r, "run")["commands"]), f"the trainer is not named: {line(r, 'run')['text']}")


FILE_SYSTEM = """
import sys, time, torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self): return 1 << 30
    def __getitem__(self, i): return torch.zeros(3, 64, 64), i % 10
if __name__ == '__main__':
    mp.set_sharing_strategy('file_system')
    for batch in DataLoader(D(), 16, num_workers=2, prefetch_factor=3):
        time.sleep(0.1)
"""


def shared_by_name(where):
    script = os.path.join(where, "named.py")
    with open(script, "w") as f:
        f.write(FILE_SYSTEM)
    files = torch_files()
    r = check_json("--", dlbpf.PYTHON, "-B", script)
    equal(line(r, "sharing")["text"].split(":")[0], "file_system", f"the strategy ({r['stderr'][-300:]})")
    image = 16 * 3 * 64 * 64 * 4
    check(image <= r["target"]["batch_bytes"] <= image + 2 * 4096, f"a batch of {r['target']['batch_bytes']} bytes")
    time.sleep(0.2)
    equal(torch_files() - files, set(), "the files that are left in /dev/shm")


def interrupted(where):
    """Ctrl-C ends the command, and what was seen until then is printed."""
    p = subprocess.Popen([dlbpf.DLBPF, "check", "--json", "--seconds", "60", "--", "sh", "-c", "sleep 77 & sleep 77"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    dlbpf.wait_until(lambda: len(tree_of(p.pid)) >= 3, 10, "command")
    tree = tree_of(p.pid)
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=60)
    r = json.loads(out)
    equal(r["target"]["kind"], "command", "the kind of target")
    dlbpf.wait_until(lambda: all(dlbpf.ended(pid) for pid in tree), 5, "end of the command")


def others_are_left_alone(where):
    """A child that dlbpf had before: a shell's job in the background, and what that starts. It is not ended."""
    script = "sh -c 'sleep 3; sleep 77; true' > /dev/null & echo $!; exec \"$@\""
    p = subprocess.Popen(["sh", "-c", script, "-", dlbpf.DLBPF, "check", "--json", "--seconds", "5", "--", "sleep", "88"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    other = int(p.stdout.readline())
    out, _ = p.communicate(timeout=60)
    try:
        check(not dlbpf.ended(other), "a process that dlbpf did not start was ended")
        check(len(tree_of(other)) == 2, f"its child was ended: {tree_of(other)}")
    finally:
        for pid in reversed(tree_of(other)):
            os.kill(pid, signal.SIGKILL)
    json.loads(out)


def as_anybody(where):
    """Without root: what cannot be seen is unknown, and nothing fails."""
    need(os.geteuid() == 0, "needs root to become somebody else")
    p = subprocess.run([dlbpf.DLBPF, "check", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60, user=65534, group=65534, extra_groups=[])
    r = json.loads(p.stdout)
    equal(line(r, "trace")["state"], "unknown", "whether dlbpf can record")
    check("root" in line(r, "trace")["text"], line(r, "trace")["text"])
    os.chmod(where, 0o777)
    r = check_json("--", *train("--data", "tensor", "--seconds", "100", "--data-dir", where), user=65534, group=65534,
                   extra_groups=[])
    equal(r["target"]["workers"], WORKERS, f"the workers of one's own command ({r['stderr'][-300:]})")
    equal(r["target"]["batch_bytes"], BATCH_BYTES, "bytes of a batch")
    with Running(train("--data", "small", "--seconds", "60")) as job:
        p = subprocess.run([dlbpf.DLBPF, "check", "--json", "-p", str(job.pid)], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=60, user=65534, group=65534, extra_groups=[])
        r = json.loads(p.stdout)
        equal(line(r, "run")["state"], "unknown", "what was seen of another user's job")
        equal(line(r, "variables")["state"], "unknown", "its variables")


def quota(where):
    """Half a CPU, by the parent of the job's control group."""
    root = "/sys/fs/cgroup/cpu"
    need(os.path.exists(os.path.join(root, "cpu.cfs_quota_us")), "no control groups of version 1 with the CPU controller")
    parent = os.path.join(root, f"dlbpf-check-{os.getpid()}")
    child = os.path.join(parent, "job")
    os.makedirs(child)
    try:
        with open(os.path.join(parent, "cpu.cfs_quota_us"), "w") as f:
            f.write("50000")
        p = subprocess.run(["sh", "-c", f"echo $$ > {child}/cgroup.procs && exec \"$@\"", "-", dlbpf.DLBPF, "check", "--json",
                            "--workers", "4"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        r = json.loads(p.stdout)
        equal(line(r, "cpus")["numbers"]["cpus"], 0.5, "the CPUs")
        check(os.path.basename(parent) in line(r, "cpus")["text"], f"the level is not named: {line(r, 'cpus')['text']}")
        equal(line(r, "worker-cpus")["state"], "problem", "4 workers for half a CPU")
        equal(p.returncode, 1, "the exit code")
    finally:
        os.rmdir(child)
        os.rmdir(parent)


def refused(where):
    p = subprocess.run([dlbpf.DLBPF, "check", "--", "/nowhere/at-all"], capture_output=True, text=True, timeout=60)
    equal(p.returncode, 1, "the exit code of a command that is not there")
    check("/nowhere/at-all" in p.stderr, p.stderr)
    equal(p.stdout, "", "standard output")


TESTS = [needed_is_enough, running_job, nothing_is_left, nothing_is_left_of_a_forkserver, worker_for_trainer,
         shared_by_name, interrupted, others_are_left_alone, as_anybody, quota, refused]


def main():
    need_torch = subprocess.run([dlbpf.PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
    tests = dlbpf.Tests()
    chosen = sys.argv[1:]
    for fn in TESTS:
        if chosen and fn.__name__ not in chosen:
            continue
        if not need_torch:
            print(f"skip {fn.__name__}: no PyTorch")
            continue
        with dlbpf.scratch() as where:
            tests.run(fn.__name__, fn, where)
    tests.exit()


if __name__ == "__main__":
    main()
