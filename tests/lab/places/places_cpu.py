# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Too little CPU: neighbours that only compute, and a cgroup with a limit."""

import glob
import json
import os
import signal
import subprocess
import sys

import dlbpf
from places_disk import end_members

HERE = os.path.dirname(os.path.abspath(__file__))


class Hogs:
    """So many processes for each CPU, outside the recorded job and stopped: params["pids"]. The training
    lets a dose of them go when its workers have started (data_cpu.neighbours), else start-up would take minutes."""

    def __init__(self, each):
        self.each, self.child, self.params = each, None, {}

    def __enter__(self):
        cpus = len(os.sched_getaffinity(0))
        self.child = subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "hog.py"), str(cpus * self.each)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.params = {"pids": json.loads(self.child.stdout.readline()), "cpus": cpus}
        except BaseException:
            self.__exit__()
            raise
        return self

    def command(self, argv, dose):
        for pid in self.params["pids"]:  # a training that was killed left them running
            os.kill(pid, signal.SIGSTOP)
        return argv

    def __exit__(self, *_):
        self.child.kill()  # the hogs end with it
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


class Quota:
    """A cgroup for the job whose CPU time can be limited: params["group"] and ["version"]. The training sets
    the limit when its workers have started (data_cpu.limited)."""

    def __init__(self):
        self.params = {}

    def __enter__(self):
        root, version = self.find()
        for old in glob.glob(os.path.join(root, "dlbpf-cpu-*")):
            if not os.path.exists("/proc/" + old.rsplit("-", 1)[1]):
                self.remove(old)
        group = os.path.join(root, f"dlbpf-cpu-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError as e:
            raise dlbpf.Skip(f"no cgroup can be made: {e}")
        self.params = {"group": group, "version": version}
        name = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
        if not os.path.exists(os.path.join(group, name)):
            self.remove(group)
            raise dlbpf.Skip(f"cgroups have no {name} here")
        return self

    @staticmethod
    def find():
        """(where groups are made, version of cgroups)."""
        with open("/proc/mounts") as f:
            mounts = [line.split() for line in f]
        for _, where, kind, flags, *_ in mounts:
            if kind == "cgroup" and "cpu" in flags.split(","):
                return where, 1
        for _, where, kind, *_ in mounts:
            if kind != "cgroup2":
                continue
            try:
                with open(os.path.join(where, "cgroup.subtree_control"), "w") as f:
                    f.write("+cpu")
            except OSError as e:
                raise dlbpf.Skip(f"no CPU controller in cgroup v2: {e}")
            return where, 2
        raise dlbpf.Skip("no cgroups are mounted")

    def command(self, argv, dose):
        group = self.params["group"]
        end_members(group)
        return ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "-", *argv]

    @staticmethod
    def remove(group):
        end_members(group)
        try:
            os.rmdir(group)
        except OSError:
            pass

    def __exit__(self, *_):
        self.remove(self.params["group"])
