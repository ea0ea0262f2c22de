# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Where a crash scenario runs: mount namespaces with small file systems, cgroups, limits, a FUSE server.
Each is a context manager; params go to the training, command(argv) wraps its command line."""

import glob
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
for folder in (os.path.join(ROOT, "tests", "support"), os.path.join(ROOT, "tests", "lab", "places")):
    if folder not in sys.path:
        sys.path.insert(0, folder)

import dlbpf  # noqa: E402
from places_disk import end_members  # noqa: E402

PREFIX = "dlbpf-crash-"


def unmount_stale():
    """FUSE mounts of a runner that was killed."""
    with open("/proc/self/mounts") as f:
        mounts = [line.split()[1] for line in f]
    for path in mounts:
        if os.path.basename(path).startswith(PREFIX):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
            try:
                os.rmdir(path)
            except OSError:
                pass


class Place:
    params = {}

    def __enter__(self):
        return self

    def command(self, argv):
        return argv

    def __exit__(self, *_):
        pass


class Chain(Place):
    """Several: the first is the outermost."""

    def __init__(self, *places):
        self.places, self.entered = places, []

    def __enter__(self):
        try:
            for p in self.places:
                p.__enter__()
                self.entered.append(p)
        except BaseException:
            self.__exit__()
            raise
        self.params = {k: v for p in self.places for k, v in p.params.items()}
        return self

    def command(self, argv):
        for p in reversed(self.places):
            argv = p.command(argv)
        return argv

    def __exit__(self, *_):
        for p in reversed(self.entered):
            p.__exit__()


class Mounts(Place):
    """A mount namespace in which `mount` has been called so: its arguments."""

    def __init__(self, *mounts):
        self.mounts = mounts

    def command(self, argv):
        script = "".join(f"mount {m} && " for m in self.mounts) + 'exec "$@"'
        return ["unshare", "-m", "sh", "-c", script, "-", *argv]


def shm(mib):
    """A /dev/shm of so many MiB, as a container has it."""
    return Mounts(f"-t tmpfs -o size={mib}m,mode=1777 shm /dev/shm")


class SmallDisk(Place):
    """A file system of so many MiB that only the training sees: params["folder"]."""

    def __init__(self, kind, mib):
        self.kind, self.mib = kind, mib

    def __enter__(self):
        self.top = tempfile.mkdtemp(prefix=PREFIX)
        self.folder, self.image = os.path.join(self.top, "disk"), os.path.join(self.top, "image")
        os.mkdir(self.folder)
        if self.kind == "ext4":
            with open(self.image, "wb") as f:
                f.truncate(self.mib * (1 << 20))
            p = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self.image], capture_output=True, text=True)
            dlbpf.need(p.returncode == 0, f"mkfs.ext4: {p.stderr[-200:]}")
        self.params = {"folder": self.folder}
        return self

    def command(self, argv):
        how = f"-o loop {self.image}" if self.kind == "ext4" else f"-t tmpfs -o size={self.mib}m disk"
        return Mounts(f"{how} {self.folder}").command(argv)

    def __exit__(self, *_):
        for _ in range(50):  # the last process in the namespace is still going
            try:
                os.rmdir(self.folder)
                break
            except OSError:
                time.sleep(0.1)
        if os.path.exists(self.image):
            os.unlink(self.image)
        os.rmdir(self.top)


def cgroup_top(controller, file):
    """Where groups of a controller are made, of cgroup v1 or v2, if they have such a file."""
    v1 = os.path.join("/sys/fs/cgroup", controller)
    if os.path.isdir(v1):
        return v1
    v2 = "/sys/fs/cgroup"
    dlbpf.need(os.path.exists(os.path.join(v2, "cgroup.controllers")), "no cgroups here")
    try:
        with open(os.path.join(v2, "cgroup.subtree_control"), "w") as f:
            f.write("+" + controller)
    except OSError as e:
        raise dlbpf.Skip(f"no {controller} controller: {e.strerror}")
    return v2


class Group(Place):
    """A cgroup with one file written. Nested: the limit is the parent's, and the training is in a child."""

    def __init__(self, controller, files, value, nested=False):
        self.controller, self.files, self.value, self.nested = controller, files, value, nested
        self.made = []

    def __enter__(self):
        top = cgroup_top(self.controller, self.files)
        for old in glob.glob(os.path.join(top, PREFIX + "*")):
            if not os.path.exists("/proc/" + old.rsplit("-", 1)[1]):
                self.remove(old)
        try:
            self.make(os.path.join(top, f"{PREFIX}{os.getpid()}"))
            if self.nested:
                if "cgroup.controllers" in os.listdir(self.made[0]):
                    self.write(self.made[0], "cgroup.subtree_control", "+" + self.controller)
                self.make(os.path.join(self.made[0], "job"))
            for name in self.files:
                if os.path.exists(os.path.join(self.made[0], name)):
                    self.write(self.made[0], name, str(self.value))
                    break
            else:
                raise dlbpf.Skip(f"cgroups have none of {self.files} here")
        except BaseException:
            self.__exit__()
            raise
        self.params = {"limited": self.made[0], "limited_name": os.path.basename(self.made[0]), "group": self.made[-1]}
        return self

    def make(self, path):
        try:
            os.mkdir(path)
        except OSError as e:
            raise dlbpf.Skip(f"{path}: {e.strerror}")
        self.made.append(path)

    @staticmethod
    def write(group, name, text):
        try:
            with open(os.path.join(group, name), "w") as f:
                f.write(text)
        except OSError as e:
            raise dlbpf.Skip(f"{group}/{name}: {e.strerror}")

    def command(self, argv):
        return ["sh", "-c", f'echo $$ >{self.made[-1]}/cgroup.procs && exec "$@"', "-", *argv]

    @staticmethod
    def remove(group):
        for path in [*glob.glob(os.path.join(group, "*/")), group]:
            end_members(path)
            for _ in range(100):
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)

    def __exit__(self, *_):
        for path in self.made[:1]:
            self.remove(path)
        self.made = []


class Memory(Group):
    """Without swap: what the machine has of it belongs to others."""

    def __enter__(self):
        super().__enter__()
        for name, value in (("memory.memsw.limit_in_bytes", self.value), ("memory.swap.max", 0)):
            if os.path.exists(os.path.join(self.made[0], name)):
                self.write(self.made[0], name, str(value))
        return self


def memory(mib, nested=False):
    return Memory("memory", ("memory.limit_in_bytes", "memory.max"), mib << 20, nested)


def processes(count):
    return Group("pids", ("pids.max",), count)


class Prefix(Place):
    """Started by another program: prlimit, setpriv, timeout."""

    def __init__(self, *argv):
        self.argv = argv

    def command(self, argv):
        return [*self.argv, *argv]


class Fuse(Place):
    """A FUSE file system, params["folder"], with one file "data" whose second half cannot be read
    (broken), or of a server that can be stopped: params["server"] is its pid."""

    def __init__(self, how):
        self.how, self.server, self.folder = how, None, None

    def __enter__(self):
        dlbpf.need(os.path.exists("/dev/fuse"), "no /dev/fuse here")
        p = subprocess.run([dlbpf.PYTHON, "-c", "import fusepy"], capture_output=True)
        dlbpf.need(p.returncode == 0, "no Python module fusepy (Debian: python3-fusepy)")
        self.folder = tempfile.mkdtemp(prefix=PREFIX)
        try:
            self.server = subprocess.Popen([dlbpf.PYTHON, "-B", os.path.join(HERE, "crash_fuse.py"), self.folder,
                                            self.how], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            dlbpf.wait_until(lambda: os.path.ismount(self.folder), 30, "FUSE mount")
        except BaseException:
            self.__exit__()
            raise
        self.params = {"folder": self.folder, "server": self.server.pid}
        return self

    def __exit__(self, *_):
        if self.server:
            self.server.kill()  # a stopped one, too; what waits for it gets an error
            self.server.wait()
        subprocess.run(["umount", "-l", self.folder], check=False, capture_output=True)
        os.rmdir(self.folder)
