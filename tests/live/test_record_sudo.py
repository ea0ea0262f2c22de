#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# timeout: 240
"""dlbpf record under sudo, called by an ordinary user from a virtual environment: the command must
run as that user with all that it would have had without sudo, and the trace must be theirs, whatever
they put in its place. A user is made for the test and removed afterwards."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

import dlbpf  # noqa: E402
import test_record  # noqa: E402
from dlbpf import check, equal, need  # noqa: E402

USER, GROUP = "dlbpftest", "dlbpftestgrp"
SUDOERS = f"/etc/sudoers.d/{USER}"

# What a program is given, as JSON in the file named first.
PROBE = r"""
import json, os, resource, sys
with open("/proc/self/status") as f:
    status = dict(line.split(":", 1) for line in f)
found = {
    "args": sys.argv[2:], "env": dict(os.environ), "uid": os.getresuid(), "gid": os.getresgid(),
    "groups": sorted(os.getgroups()), "cwd": os.getcwd(), "nice": os.nice(0), "python": sys.executable,
    "prefix": sys.prefix,
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
    "fds": sorted(os.listdir("/proc/self/fd")),
    **{k: status[k].strip() for k in ("Umask", "SigBlk", "SigIgn", "SigCgt", "CapEff", "CapPrm", "CapBnd", "CapInh",
                                      "NoNewPrivs", "Seccomp")},
}
with open(sys.argv[1], "w") as f:
    json.dump(found, f)
"""

# Names that each process has of its own, or that sudo is allowed to differ in.
OWN_ENV = {"_", "SHLVL"}


@contextlib.contextmanager
def user():
    """A throw-away user with a group more than their own, who may call sudo; yields their folder."""
    need(shutil.which("sudo"), "no sudo")
    need(subprocess.run(["id", USER], capture_output=True).returncode != 0, f"there is a user {USER} already")
    try:
        subprocess.run(["groupadd", "-f", GROUP], check=True)
        subprocess.run(["useradd", "-m", "-s", "/bin/bash", "-G", GROUP, USER], check=True)
        with open(SUDOERS, "w") as f:
            f.write(f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n")
        os.chmod(SUDOERS, 0o440)
        yield os.path.expanduser(f"~{USER}")
    finally:
        if os.path.exists(SUDOERS):
            os.unlink(SUDOERS)
        subprocess.run(["userdel", "-r", USER], capture_output=True)
        subprocess.run(["groupdel", GROUP], capture_output=True)


def as_user(home, script, rc=0):
    """A login shell of the user; the binary and the probe are $DLBPF and $PROBE."""
    head = f"cd {home}; DLBPF={home}/bin/dlbpf PROBE={home}/probe.py\n"
    p = subprocess.run(["su", "-", USER, "-s", "/bin/bash", "-c", head + script], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60)
    check(rc is None or p.returncode == rc, f"exit code {p.returncode}, not {rc}: {p.stderr.strip()} {p.stdout.strip()}")
    return p


def prepare(home):
    """The binary where the user can read it, and a virtual environment."""
    os.makedirs(f"{home}/bin")
    for name in ("dlbpf", "libdlbpf_cupti.so"):
        path = os.path.join(dlbpf.BUILD, name)
        if os.path.exists(path):
            shutil.copy(path, f"{home}/bin/{name}")
    with open(f"{home}/probe.py", "w") as f:
        f.write(PROBE)
    subprocess.run([dlbpf.PYTHON, "-m", "venv", "--without-pip", f"{home}/venv"], check=True)
    subprocess.run(["chown", "-R", f"{USER}:", home], check=True)


def load(path):
    with open(path) as f:
        return json.load(f)


def may_raise_limits():
    with open("/proc/self/status") as f:
        caps = int(next(line for line in f if line.startswith("CapEff")).split()[1], 16)
    return caps >> 24 & 1  # CAP_SYS_RESOURCE


def from_venv(home):
    """Environment, groups, limits, umask, working directory, priority, signals, descriptors."""
    setup = """. venv/bin/activate
export CUDA_VISIBLE_DEVICES=3 LD_LIBRARY_PATH=/opt/none LD_PRELOAD= PYTHONPATH=/opt/nothing "ODD=a b=c
second line" HOME=$HOME/elsewhere TERM=odd LANG=C.UTF-8
shout() { echo "$1"; }; export -f shout
ulimit -Sn 543; ulimit -Hn 1543; ulimit -Sc 0; ulimit -Ss 16384; ulimit -u 4321; ulimit -l 77; umask 0027
mkdir -p deep/er; cd deep/er; renice -n 3 $$ >/dev/null"""
    here = f"{home}/deep/er"
    as_user(home, f"{setup}\npython $PROBE {home}/plain.json a 'b c'\nexit $?")
    p = as_user(home, f"{setup}\nsudo $DLBPF record -q -o {home}/t.dlbpf -- python $PROBE {home}/sudo.json a 'b c'\nexit $?")
    want, got = load(f"{home}/plain.json"), load(f"{home}/sudo.json")
    equal(got["cwd"], here, "the working directory")
    equal(got["prefix"], f"{home}/venv", "Python's prefix")
    if not may_raise_limits():  # sudo lowers this one, and nobody can raise it again
        want["limits"]["RLIMIT_CORE"][1] = got["limits"]["RLIMIT_CORE"][1]
    for key in want:
        if key != "env":
            equal(got[key], want[key], key)
    differ = OWN_ENV | {"CUDA_INJECTION64_PATH"}
    for name in sorted((set(want["env"]) | set(got["env"])) - differ):
        equal(got["env"].get(name), want["env"].get(name), f"${name}")
    if os.path.exists(f"{home}/bin/libdlbpf_cupti.so"):
        equal(got["env"].get("CUDA_INJECTION64_PATH"), f"{home}/bin/libdlbpf_cupti.so", "$CUDA_INJECTION64_PATH")
    check(not any(n.startswith("SUDO_") for n in got["env"]), "sudo's own variables were given to the command")
    st = os.stat(f"{home}/t.dlbpf")
    equal((st.st_uid, st.st_gid), (want["uid"][0], want["gid"][0]), "the owner of the trace")
    check(not p.stderr.strip(), f"said something under --quiet: {p.stderr}")
    p = as_user(home, f"$DLBPF info --json {home}/t.dlbpf")  # without sudo
    check(json.loads(p.stdout)["trace"]["complete"], "the trace has no end")


def variables_on_the_way(home):
    """NAME=value given to sudo, to env(1) and by a script under sudo."""
    def value(call):
        as_user(home, f"export A=old\n{call}")
        return load(f"{home}/out.json")

    record = "$DLBPF record -q -o t.dlbpf --"
    probe = f"{dlbpf.PYTHON} $PROBE out.json"
    equal(value(f"sudo A=new {record} {probe}")["env"].get("A"), "new", "$A given to sudo")
    equal(value(f"sudo env A=new {record} {probe}")["env"].get("A"), "new", "$A given to env")
    got = value(f"sudo bash -c 'export B=2 A=mine; \"$@\"; :' - {record} {probe}")
    equal((got["env"].get("A"), got["env"].get("B")), ("mine", "2"), "$A and $B set by a script")
    equal(got["uid"][0], os.stat(home).st_uid, "the user under a script")
    got = value(f"sudo {record} {probe} A=argument")
    equal(got["env"].get("A"), "old", "$A, which is an argument of the command")
    got = value(f"export CUDA_INJECTION64_PATH=/opt/other.so; sudo {record} {probe}")
    equal(got["env"].get("CUDA_INJECTION64_PATH"), "/opt/other.so", "$CUDA_INJECTION64_PATH that was set")
    got = value(f"sudo $DLBPF record -q --as-root -o t.dlbpf -- {probe}")
    equal(got["uid"], [0, 0, 0], "the user with --as-root")
    os.unlink(f"{home}/out.json")
    os.unlink(f"{home}/t.dlbpf")


def said_of_injection(home):
    p = as_user(home, "export CUDA_INJECTION64_PATH=/opt/other.so; sudo $DLBPF record --no-report -o t.dlbpf -- true")
    check("/opt/other.so" in p.stderr and "CUDA_INJECTION64_PATH" in p.stderr, f"nothing is said of it: {p.stderr}")


def without_sudo(home):
    """sudo in the background has ended: still the user, and it is said that the environment is not theirs."""
    as_user(home, f"""export A=old
sudo -b sh -c 'sleep 0.5; "$@" 2> err.txt; touch over' - $DLBPF record --no-report -o t.dlbpf -- {dlbpf.PYTHON} $PROBE out.json
for i in $(seq 100); do [ -e over ] && break; sleep 0.1; done""")
    equal(load(f"{home}/out.json")["uid"][0], os.stat(home).st_uid, "the user")
    with open(f"{home}/err.txt") as f:
        err = f.read()
    if load(f"{home}/out.json")["env"].get("A") != "old":
        check("the sudo process has ended" in err, f"the message: {err}")


def exit_codes(home):
    for command, want in (("sh -c 'exit 7'", 7), ("sh -c 'kill -9 $$'", 137), ("no-such-program", 127), ("./probe.py", 126)):
        as_user(home, f"sudo $DLBPF record -q -o t.dlbpf -- {command}", want)


def links(home):
    """Links that lead where the user may not write, in the last place and before it."""
    secret = "/root/dlbpf-test-secret"
    with open(secret, "w") as f:
        f.write("secret")
    os.chmod(secret, 0o600)
    shared = f"{home}/shared"
    try:
        os.makedirs(f"{home}/trap", exist_ok=True)
        for name, to in (("last", secret), ("dir", "/root"), ("dangling", "/root/dlbpf-test-new")):
            os.symlink(to, f"{home}/trap/{name}")
        subprocess.run(["chown", "-hR", f"{USER}:", f"{home}/trap"], check=True)
        for path in ("trap/last", "trap/dir/dlbpf-test-secret", "trap/dir/dlbpf-test-new", "trap/dangling", "/root/dlbpf-test-new",
                     "/etc/dlbpf-test-new"):
            p = as_user(home, f"sudo $DLBPF record -o {path} -- touch ran", 125)
            check("cannot write" in p.stderr, f"the message for {path}: {p.stderr}")
            check(not os.path.exists(f"{home}/ran"), f"the command was run for {path}")
        for path in ("/root/dlbpf-test-new", "/etc/dlbpf-test-new"):
            check(not os.path.lexists(path), f"{path} was made")
        with open(secret) as f:
            equal(f.read(), "secret", "root's file")
        # What the user may write as a member of a group, they may write here too.
        os.makedirs(shared)
        shutil.chown(shared, 0, GROUP)
        os.chmod(shared, 0o770)
        as_user(home, "sudo $DLBPF record -q -o shared/t.dlbpf -- true")
        equal(stat.S_IMODE(os.stat(shared).st_mode), 0o770, "the folder's mode")
        # A hard link to a root's file that happens to be a trace.
        os.link(f"{shared}/t.dlbpf", f"{shared}/other")
        as_user(home, "sudo $DLBPF record -q -o shared/other -- true", 125)
    finally:
        os.unlink(secret)
        for path in ("/root/dlbpf-test-new", "/etc/dlbpf-test-new"):
            if os.path.lexists(path):
                os.unlink(path)


def swapped_link(home):
    """A link that changes places with a folder while dlbpf opens the file."""
    target = "/root/dlbpf-test-race"
    os.makedirs(target, exist_ok=True)
    try:
        as_user(home, f"""mkdir -p real; ln -sfn {target} to_root; ln -sfn real swap
(while :; do ln -sfn {target} swap; ln -sfn real swap; done) & L=$!
for i in 1 2 3 4 5 6 7 8; do sudo $DLBPF record -q -o swap/t.dlbpf -- true; done
kill $L; :""")
        equal(os.listdir(target), [], "files in root's folder")
    finally:
        shutil.rmtree(target)


def terminal(home):
    """On a terminal, where sudo makes another one (use_pty): Ctrl-C reaches the command."""
    st = os.stat(home)
    script = ("import sys, time\n"
              "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(9)\n")
    with open(f"{home}/wait.py", "w") as f:
        f.write(script)
    call = (f"cd {home}; umask 0077; export MARK=1; sudo {home}/bin/dlbpf record --no-report -o tty.dlbpf -- "
            f"{dlbpf.PYTHON} wait.py; exit $?")
    code, out = test_record.on_terminal(["/usr/bin/setpriv", f"--reuid={st.st_uid}", f"--regid={st.st_gid}", "--init-groups",
                                         "/bin/bash", "-c", call], b"\x03", rb"GPU: ")
    equal(code, 9, f"the exit code ({out})")
    equal(stat.S_IMODE(os.stat(f"{home}/tty.dlbpf").st_mode), 0o600, "the mode of the trace")
    equal(os.stat(f"{home}/tty.dlbpf").st_uid, st.st_uid, "the owner of the trace")


def flight_recorder(home):
    """Segments, what a trigger saves, and the end: all are the user's."""
    uid = os.stat(home).st_uid
    as_user(home, """sudo $DLBPF record -q --keep 2s -o flight.dlbpf -- sh -c "sh -c 'sleep 1; kill -11 \\$\\$'; sleep 7
stat -c %u flight.dlbpf.keep flight.dlbpf.keep/* > owners" """)
    with open(f"{home}/owners") as f:
        owners = f.read().split()
    check(len(owners) >= 3 and set(owners) == {str(uid)}, f"the owners of folder and segments are {owners}, not {uid}")
    saved = [n for n in os.listdir(home) if n.startswith("flight")]
    equal(len(saved), 2, f"the number of traces ({saved})")
    for name in saved:
        equal(os.stat(f"{home}/{name}").st_uid, uid, f"the owner of {name}")
        as_user(home, f"$DLBPF info {name}")  # without sudo


CASES = [from_venv, variables_on_the_way, said_of_injection, without_sudo, exit_codes, links, swapped_link, terminal,
         flight_recorder]


def main():
    tests = dlbpf.Tests("record_sudo_")
    try:
        with user() as home:
            prepare(home)
            for fn in CASES:
                if len(sys.argv) < 2 or fn.__name__ in sys.argv[1:]:
                    tests.run(fn.__name__, fn, home)
    except dlbpf.Skip as e:
        print(f"skip record_sudo: {e}")
    tests.exit()


if __name__ == "__main__":
    main()
