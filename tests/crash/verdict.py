# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""Compares what `dlbpf postmortem --json` says with what was planted: from the trace, from the leftovers
alone, and from the trace with the output of another fault beside it."""

import json
import os
import re
import subprocess

import crash
import dlbpf

# Output of other faults as people paste it, by what it claims; the PID is nobody's.
PASTED = {
    "shm-full": "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
                "(shm).\nRuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible "
                "that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n",
    "oom-cgroup": "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.\n"
                  "slurmstepd: error: Detected 1 oom_kill event in StepId=815.0. Some of the step tasks have been OOM "
                  "Killed.\n",
    "fd-limit": "OSError: [Errno 24] Too many open files\n"
                "RuntimeError: received 0 items of ancillary data\n",
    "segfault": "Unexpected segmentation fault encountered in worker.\n"
                "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Segmentation fault.\n",
    "worker-exception": "ValueError: Caught ValueError in DataLoader worker process 0.\n"
                        "Original Traceback (most recent call last):\n  File \"data.py\", line 7, in __getitem__\n"
                        "ValueError: bad label\n",
    "timeout": "RuntimeError: DataLoader timed out after 30 seconds\n",
}

NOBODY = {"pid": None, "nspid": None, "tid": None, "role": None, "worker": None, "name": None}
# The process is the victim; the thread that failed may be one of these.
THREADS = {"worker": ("worker", "feeder", "sharer", "worker-thread"),
           "trainer": ("trainer", "pin-memory", "index-feeder", "loader-thread", "trainer-thread")}


def postmortem(*arguments):
    return flat(dlbpf.postmortem(*arguments))


def flat(pm):
    """With who it is about flat in each of its parts."""
    for part in ("processes", "threads", "facts"):
        pm[part] = [{**(e["who"] or NOBODY), **e} for e in pm[part]]
    for process in pm["processes"]:
        process.update(process["memory"] or {})
    pm["victim"] = pm["victim"] or NOBODY
    return pm


def there():
    p = subprocess.run([dlbpf.DLBPF, "postmortem", "--help"], capture_output=True, text=True)
    return p.returncode == 0


class Wrong(list):
    """What is wrong, in words."""

    def equal(self, got, want, what):
        if got != want:
            self.append(f"{what} is {got!r}, not {want!r}")

    def check(self, condition, text):
        if not condition:
            self.append(text)


def shape(pm, wrong):
    """What every post-mortem has, whatever it says."""
    wrong.equal(pm.get("schema"), "dlbpf.postmortem/1", "the schema")
    at = [f["at_ns"] for f in pm["facts"] if f["at_ns"] is not None]
    wrong.check(at == sorted(at), "facts are not in the order of time")
    v = pm["verdict"]
    wrong.check(v["text"], "the verdict has no text")
    wrong.check(v["confidence"] in ("unknown", "possible", "likely", "certain"), f"confidence {v['confidence']!r}")
    if v["confidence"] == "certain" and v["death"] != "none":
        wrong.check(any(f["decides"] for f in pm["facts"]), "certain, and no fact decides")
    if v["death"] == "unexplained":
        wrong.check(v["confidence"] in ("unknown", "possible"), f"unexplained, and {v['confidence']}")
    else:
        wrong.check(v["death"] not in [a["death"] for a in pm["alternatives"]] or v["confidence"] != "certain",
                    "the verdict is among its own alternatives")


def victim(s, meta, pm, wrong):
    if not s.victim:
        return
    who = pm["victim"]
    wrong.check(who["role"] in THREADS[s.victim], f"the victim is a {who['role']}, not a {s.victim}")
    pids = [p for pids in meta["workers"].values() for p in pids] if s.victim == "worker" else [meta["trainer"]]
    if "victim" in meta:
        pids = [meta["victim"]]
    wrong.check(who["pid"] in pids, f"the victim is {who['pid']}, not of {pids}")
    if meta.get("victim_nspid"):
        wrong.equal(who["nspid"], meta["victim_nspid"], "the victim's inner PID")
    if s.signal:
        wrong.equal(pm["verdict"]["signal"], s.signal, "the victim's signal")
    if s.status is not None:
        wrong.equal(pm["verdict"]["status"], s.status << 8, "the victim's exit status")


def numbers(s, meta, pm, wrong):
    want = s.numbers(meta) if callable(s.numbers) else s.numbers
    for name, (least, most) in want.items():
        number = pm["numbers"].get(name)
        if number is None:
            wrong.append(f"there is no number {name}")
        elif not least <= number["value"] <= most:
            wrong.append(f"{name} is {number['value']}, not {least} to {most}")


def told(pm):
    """The verdict and its evidence as one text."""
    facts = [f"{f['name']} {f['pid']} {f['text']}" for f in pm["facts"]]
    return " ".join([pm["verdict"]["text"], *facts])


def names(s, meta, pm, wrong):
    text = told(pm)
    for pattern in s.names:
        flat = {**meta.get("place", {}), **{k: v for k, v in meta.items() if not isinstance(v, (list, dict))}}
        wanted = [re.escape(w.format(**flat)) for w in pattern.split("|")]
        wrong.check(re.search("|".join(wanted), text), f"{' or '.join(wanted)} is named nowhere: {text[:300]}")


def from_trace(s, meta, pm):
    """What is wrong with the verdict from the trace alone."""
    wrong = Wrong()
    shape(pm, wrong)
    v = pm["verdict"]
    wrong.check(v["death"] in s.right, f"the verdict is {v['death']} ({v['text'][:200]}), not {s.death}")
    if wrong:
        return wrong
    if s.death != "none" and s.sure:
        wrong.check(v["confidence"] in ("likely", "certain"), f"the verdict is only {v['confidence']}")
    wrong.check(pm["source"]["complete"], "the trace is not complete")
    victim(s, meta, pm, wrong)
    numbers(s, meta, pm, wrong)
    names(s, meta, pm, wrong)
    if s.death not in ("none", "killed-by", "unexplained"):
        wrong.check(pm["actions"], "nothing is said of what to do")
    if s.check:
        text = s.check(meta, pm)
        wrong.check(not text, text)
    return wrong


def beside_log(s, meta, first, pm, claims):
    """With a pasted log the verdict is what it was without."""
    wrong = Wrong()
    wrong.equal(pm["verdict"]["death"], first["verdict"]["death"], f"the verdict with the output of {claims}")
    wrong.equal(pm["victim"]["pid"], first["victim"]["pid"], f"the victim with the output of {claims}")
    wrong.equal({k: n["value"] for k, n in pm["numbers"].items()},
                {k: n["value"] for k, n in first["numbers"].items()}, f"the numbers with the output of {claims}")
    return wrong


def own_log(s, meta, pm):
    """With its own output the message that is wrong is called so."""
    wrong = Wrong()
    if s.wrong:
        wrong.check(pm["verdict"].get("wrong_message"), "PyTorch's message is wrong, and it is not said")
    return wrong


def from_leftovers(s, pm, says, what):
    """Without a trace: never another death; how much it has to say depends."""
    wrong = Wrong()
    shape(pm, wrong)
    v, right = pm["verdict"], {*s.right, *s.left}
    others = [a["death"] for a in pm["alternatives"]]
    if v["death"] == "unexplained":
        wrong.check(says != crash.DECIDES, f"{what} decides, and the verdict is unexplained ({v['text'][:160]})")
        if says == crash.FITS:
            wrong.check(right & set(others), f"{what}: {s.death} is not among the alternatives {others}")
    elif v["death"] == "none":
        wrong.check(s.death == "none" or says == crash.QUIET, f"{what}: nothing died, it says")
    else:
        wrong.check(v["death"] in right or (v["confidence"] == "possible" and right & set(others)),
                    f"{what}: the verdict is {v['death']} ({v['text'][:160]}), not {s.death}")
    return wrong


class Judged:
    """One run: what each of the views said, and what is wrong with it."""

    def __init__(self, s, folder):
        self.s, self.wrong, self.views = s, [], {}
        with open(os.path.join(folder, "meta.json")) as f:
            self.meta = json.load(f)
        self.trace, self.log, self.kernel, self.core, self.now = (
            os.path.join(folder, name) for name in ("trace.dlbpf", "log", "kernel.log", "core", "now.json"))
        self.pm = self.see("trace", self.trace)
        self.add("", from_trace(s, self.meta, self.pm))
        pm = self.see("own output", self.trace, "--log", self.log)
        self.add("own output", beside_log(s, self.meta, self.pm, pm, "its own") + own_log(s, self.meta, pm))
        self.pasted(folder)
        self.leftovers()

    def see(self, view, *arguments):
        self.views[view] = postmortem(*arguments)
        return self.views[view]

    def add(self, view, wrong):
        self.wrong += [f"{view}: {w}" if view else w for w in wrong]

    def pasted(self, folder):
        path = os.path.join(folder, "pasted")
        for claims, text in PASTED.items():
            if claims in self.s.right:
                continue
            with open(path, "w") as f:
                f.write(text)
            self.add("pasted", beside_log(self.s, self.meta, self.pm, postmortem(self.trace, "--log", path), claims))
        os.unlink(path)

    def leftovers(self):
        with open(self.log, errors="replace") as f:
            text = f.read()
        if text:
            pm = self.see("log", "--log", self.log, "--kernel-log", os.devnull)
            self.add("log", from_leftovers(self.s, pm, self.s.log if self.s.log_if in text else crash.QUIET,
                                           "the output"))
        if os.path.exists(self.kernel) and os.path.getsize(self.kernel) and self.s.kernel != crash.QUIET:
            pm = self.see("kernel", "--log", self.log, "--kernel-log", self.kernel)
            self.add("kernel", from_leftovers(self.s, pm, self.s.kernel, "the kernel's log"))
        if os.path.exists(self.now):
            with open(self.now) as f:
                self.views["now"] = flat(json.load(f))
            self.add("now", from_leftovers(self.s, self.views["now"], self.s.now_says, "the machine"))
        if os.path.exists(self.core) and self.s.core:
            self.add("core", from_leftovers(self.s, self.see("core", "--core", self.core, "--kernel-log", os.devnull),
                                            self.s.core, "the core"))
