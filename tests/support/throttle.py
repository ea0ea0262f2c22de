# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A slow disk made of a file: a loop device with a file system, and a cgroup whose reads from it are
limited to so many bytes a second. cgroup v1 and v2."""

import os
import subprocess
import tempfile

import dlbpf


def run(*command):
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        raise dlbpf.Skip(f"{command[0]}: {(p.stderr.strip() or p.stdout.strip())[-200:]}")
    return p.stdout.strip()


class SlowDisk:
    """with SlowDisk(bps) as disk: files go to disk.mount, programs start with disk.enter()."""

    def __init__(self, bps, mib=160):
        self.bps, self.mib = bps, mib
        self.device = self.mounted = self.group = self.made = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="dlbpf-disk-")
        self.mount = os.path.join(self.folder, "mnt")
        try:
            self.set_up()
        except BaseException:
            self.tear_down()
            raise
        return self

    def set_up(self):
        image = os.path.join(self.folder, "image")
        with open(image, "wb") as f:
            f.truncate(self.mib << 20)
        run("mkfs.ext4", "-q", "-F", image)
        self.device = run("losetup", "-f", "--show", image)
        os.mkdir(self.mount)
        run("mount", self.device, self.mount)
        self.mounted = True
        os.chmod(self.mount, 0o777)
        rdev = os.stat(self.device).st_rdev
        self.limit(f"{os.major(rdev)}:{os.minor(rdev)}")

    def limit(self, numbers):
        v1 = "/sys/fs/cgroup/blkio"
        v2 = "/sys/fs/cgroup"
        if os.path.exists(os.path.join(v1, "blkio.throttle.read_bps_device")):
            self.group, name, value = os.path.join(v1, f"dlbpf-{os.getpid()}"), "blkio.throttle.read_bps_device", \
                f"{numbers} {self.bps}"
        elif os.path.exists(os.path.join(v2, "cgroup.controllers")):
            try:
                with open(os.path.join(v2, "cgroup.subtree_control"), "w") as f:
                    f.write("+io")
            except OSError as e:
                raise dlbpf.Skip(f"no io controller in cgroup v2: {e}")
            self.group, name, value = os.path.join(v2, f"dlbpf-{os.getpid()}"), "io.max", f"{numbers} rbps={self.bps}"
        else:
            raise dlbpf.Skip("no cgroup with I/O throttling here")
        try:
            os.mkdir(self.group)
            self.made = True
            with open(os.path.join(self.group, name), "w") as f:
                f.write(value)
        except OSError as e:
            raise dlbpf.Skip(f"{name}: {e}")

    def enter(self, command):
        """The command line that runs command inside the cgroup."""
        return ["sh", "-c", f'echo $$ >{self.group}/cgroup.procs && exec "$@"', "-", *command]

    def tear_down(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.mount], check=False)
        if self.device:
            subprocess.run(["losetup", "-d", self.device], check=False)
        if self.made:
            try:
                os.rmdir(self.group)
            except OSError:
                pass
        for path, remove in ((self.mount, os.rmdir), (os.path.join(self.folder, "image"), os.unlink),
                             (self.folder, os.rmdir)):
            try:
                remove(path)
            except OSError:
                pass

    def __exit__(self, *_):
        self.tear_down()
