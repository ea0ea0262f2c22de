# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Slow places for files: a disk with a limited read rate, and a file system whose server is slow."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import dlbpf
import throttle

HERE = os.path.dirname(os.path.abspath(__file__))


def end_members(group):
    """Ends what is left in a cgroup of the lab: a training whose recorder was killed."""
    for _ in range(100):
        try:
            with open(os.path.join(group, "cgroup.procs")) as f:
                pids = [int(line) for line in f]
        except OSError:
            return
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


class ColdFile(throttle.SlowDisk):
    """One file on a slow disk, of which nothing is in memory when a run begins: params["path"]."""

    def __init__(self, mib_s, mib):
        super().__init__(int(mib_s * (1 << 20)), mib + 32)
        self.file_mib, self.params = mib, {}

    def __enter__(self):
        super().__enter__()
        try:
            path = os.path.join(self.mount, "data")
            block = os.urandom(1 << 20)
            with open(path, "wb") as f:
                for _ in range(self.file_mib):
                    f.write(block)
        except BaseException:
            self.tear_down()
            raise
        self.params = {"path": path}
        return self

    def command(self, argv, dose):
        fd = os.open(self.params["path"], os.O_RDWR)
        os.fsync(fd)  # what is dirty stays
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        return self.enter(argv)

    def tear_down(self):
        if self.made:
            end_members(self.group)
        super().tear_down()


class SlowServer:
    """A FUSE file system. Reading from the file params["folder"]/MS takes so many milliseconds, whatever
    is read. Its server is no part of what is recorded."""

    PREFIX = "dlbpf-lab-fuse-"

    def __init__(self, direct):
        self.direct, self.server, self.params = direct, None, {}

    def __enter__(self):
        dlbpf.need(os.path.exists("/dev/fuse"), "no /dev/fuse here")
        p = subprocess.run([dlbpf.PYTHON, "-c", "import fusepy"], capture_output=True)
        dlbpf.need(p.returncode == 0, "no Python module fusepy (Debian: python3-fusepy)")
        self.unmount_all()
        self.folder = tempfile.mkdtemp(prefix=self.PREFIX)
        try:
            self.server = subprocess.Popen([dlbpf.PYTHON, "-B", os.path.join(HERE, "slow_fuse.py"), self.folder,
                                            "direct" if self.direct else "cached"], stdin=subprocess.DEVNULL,
                                           stderr=subprocess.PIPE, text=True)
            for _ in range(500):
                if os.path.ismount(self.folder):
                    break
                dlbpf.need(self.server.poll() is None, "the FUSE server ended at once")
                time.sleep(0.01)
            else:
                raise dlbpf.Skip("the FUSE server does not mount")
        except BaseException:
            self.tear_down()
            raise
        self.params = {"folder": self.folder}
        return self

    def command(self, argv, dose):
        return argv

    @classmethod
    def unmount_all(cls):
        """Those of labs that were killed, too: only one lab has its places set up at a time."""
        with open("/proc/self/mounts") as f:
            for line in f:
                path = line.split()[1]
                if os.path.basename(path).startswith(cls.PREFIX):
                    subprocess.run(["umount", "-l", path], check=False)
                    try:
                        os.rmdir(path)
                    except OSError:
                        pass

    def tear_down(self):
        self.unmount_all()
        if self.server:
            dlbpf.stop(self.server, 2)
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)

    def __exit__(self, *_):
        self.tear_down()
