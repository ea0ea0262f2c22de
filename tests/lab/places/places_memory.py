# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Scarce memory: a memory cgroup, and swap space in compressed memory (zram). cgroup v1 and v2."""

import glob
import os
import subprocess

import dlbpf
import throttle
from places_disk import end_members

V1 = "/sys/fs/cgroup/memory"
V2 = "/sys/fs/cgroup"


def write(path, text):
    try:
        with open(path, "w") as f:
            f.write(text)
    except OSError as e:
        raise dlbpf.Skip(f"{path}: {e.strerror}")


class MemoryGroup:
    """A cgroup that may have so much memory. A process of the training enters by writing 0 to the
    cgroup.procs of each of params["groups"]."""

    PREFIX = "dlbpf-lab-"

    def __init__(self, mib):
        self.mib, self.params = mib, {}

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.tear_down()
            raise
        return self

    def set_up(self):
        self.remove_all()
        if os.path.exists(os.path.join(V1, "memory.limit_in_bytes")):
            top, limit = V1, "memory.limit_in_bytes"
        else:
            dlbpf.need(os.path.exists(os.path.join(V2, "cgroup.controllers")), "no memory cgroup here")
            write(os.path.join(V2, "cgroup.subtree_control"), "+memory")
            top, limit = V2, "memory.max"
        group = os.path.join(top, f"{self.PREFIX}{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError as e:
            raise dlbpf.Skip(f"{group}: {e.strerror}")
        write(os.path.join(group, limit), str(self.mib << 20))
        self.params = {"groups": [group]}

    def command(self, argv, dose):
        return argv

    def remove_all(self):
        """Those of labs that were killed, too: only one lab has its places set up at a time."""
        for top in (V1, V2):
            for group in glob.glob(os.path.join(top, self.PREFIX + "*")):
                end_members(group)
                try:
                    os.rmdir(group)
                except OSError:
                    pass

    def tear_down(self):
        self.remove_all()

    def __exit__(self, *_):
        self.tear_down()


class Zram(MemoryGroup):
    """A memory cgroup that pushes what is too much out to a zram device."""

    LABEL = "dlbpf-lab"
    LABEL_AT = 1052  # in the header that mkswap writes
    CONTROL = "/sys/class/zram-control"

    def set_up(self):
        dlbpf.need(os.path.exists(os.path.join(self.CONTROL, "hot_add")), "no zram here")
        super().set_up()
        try:
            with open(os.path.join(self.CONTROL, "hot_add")) as f:
                number = int(f.read())
        except OSError as e:
            raise dlbpf.Skip(f"zram: {e.strerror}")
        write(f"/sys/block/zram{number}/disksize", str(512 << 20))
        throttle.run("mkswap", "-L", self.LABEL, f"/dev/zram{number}")
        throttle.run("swapon", "-p", "32767", f"/dev/zram{number}")

    def remove_all(self):
        super().remove_all()  # first: the pages of ended processes need not be brought back
        for folder in glob.glob("/sys/block/zram*"):
            name = os.path.basename(folder)
            with open(os.path.join(folder, "disksize")) as f:
                if int(f.read()) == 0:
                    continue
            try:
                with open(f"/dev/{name}", "rb") as f:
                    f.seek(self.LABEL_AT)
                    ours = f.read(len(self.LABEL)) == self.LABEL.encode()
            except OSError:
                continue
            if ours:
                subprocess.run(["swapoff", f"/dev/{name}"], check=False, capture_output=True)
                write(os.path.join(self.CONTROL, "hot_remove"), name[4:])


class SlowWrites(MemoryGroup):
    """A memory cgroup, and a file on a disk that writes so many MiB a second: params["path"]. Only with
    cgroup v1, where reclaim itself waits for dirty pages; v2 makes the writer wait for the disk before."""

    LIMIT = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"  # of all: the kernel's flusher writes

    def __init__(self, mib, mib_s):
        super().__init__(mib)
        self.mib_s, self.disk, self.device = mib_s, None, None

    def set_up(self):
        dlbpf.need(os.path.exists(self.LIMIT) and os.path.exists(V1 + "/memory.limit_in_bytes"),
                   "reclaim waits for written pages only with cgroup v1")
        super().set_up()
        # While every page waits for the disk there is nothing to reclaim: then wait, do not kill.
        write(os.path.join(self.params["groups"][0], "memory.oom_control"), "1")
        disk = throttle.SlowDisk(1 << 40, 160)
        disk.__enter__()
        self.disk = disk
        rdev = os.stat(disk.device).st_rdev
        self.device = f"{os.major(rdev)}:{os.minor(rdev)}"
        write(self.LIMIT, f"{self.device} {self.mib_s << 20}")
        self.params["path"] = os.path.join(disk.mount, "cache")
        with open(self.params["path"], "wb"):
            pass

    def tear_down(self):
        super().tear_down()
        if self.device:
            write(self.LIMIT, f"{self.device} 0")
            self.device = None
        if self.disk:
            self.disk.tear_down()
            self.disk = None


class SwapFile(MemoryGroup):
    """A memory cgroup that pushes what is too much out to a file on a slow disk. Its members belong into the
    disk's cgroup as well, so only with cgroup v1."""

    def __init__(self, mib, mib_s):
        super().__init__(mib)
        self.mib_s, self.disk = mib_s, None

    def set_up(self):
        dlbpf.need(os.path.exists(V1 + "/memory.limit_in_bytes"), "one process in two cgroups needs cgroup v1")
        super().set_up()
        disk = throttle.SlowDisk(self.mib_s << 20, 192)
        disk.__enter__()
        self.disk = disk
        path = os.path.join(disk.mount, "swap")
        with open(path, "wb") as f:
            for _ in range(128):
                f.write(bytes(1 << 20))
        os.chmod(path, 0o600)
        throttle.run("mkswap", path)
        throttle.run("swapon", "-p", "32767", path)
        self.params["groups"].append(disk.group)

    def remove_all(self):
        super().remove_all()
        with open("/proc/swaps") as f:
            for line in f:
                if line.split()[0].endswith("/mnt/swap") and "/dlbpf-disk-" in line:
                    subprocess.run(["swapoff", line.split()[0]], check=False, capture_output=True)

    def tear_down(self):
        super().tear_down()
        if self.disk:
            end_members(self.disk.group)
            self.disk.tear_down()
            self.disk = None
