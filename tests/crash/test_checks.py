#!/usr/bin/python3
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The checks of crash scenarios themselves: they accept the right post-mortem and refuse each wrong one.
And the tables of scenarios: every death is there, every text too."""

import copy
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(os.path.dirname(HERE), "support")):
    sys.path.insert(0, folder)

import crash  # noqa: E402
import dlbpf  # noqa: E402
import verdict  # noqa: E402
from dlbpf import check, equal  # noqa: E402

MIB = crash.MIB
# Not to be had without harm to the machine (all of its memory, bad memory), and what nothing is known of.
NOT_PLANTED = {"oom-host", "memory-failure", "unexplained"}  # the first two: tests/vm


def who(pid, role):
    return {"pid": pid, "nspid": pid, "tid": pid, "role": role, "worker": None, "name": "python3"}


def memory(leaks, each=None):
    return {"leaks": leaks, "growth_bytes_per_batch": each, "anon_bytes": 1}


def right():
    """What a post-mortem of oom_worker has to be like, flat as verdict.postmortem() has it, and its truth."""
    numbers = {"cgroup.limit": 512 * MIB, "cgroup.anon": 500 * MIB, "cgroup.shmem": 0}
    pm = {"schema": "dlbpf.postmortem/1", "source": {"trace": "t", "complete": True},
          "verdict": {"death": "oom-cgroup", "confidence": "certain", "text": "worker 0 was killed",
                      "wrong_message": None, "signal": 9, "status": 9, "at_ns": 5},
          "victim": who(11, "worker"),
          "facts": [{**who(11, "worker"), "at_ns": 4, "text": "chosen", "decides": True},
                    {**who(11, "worker"), "at_ns": 5, "text": "killed", "decides": False}],
          "numbers": {k: {"value": v, "unit": "bytes"} for k, v in numbers.items()},
          "processes": [{**who(10, "trainer"), **memory(False)}, {**who(11, "worker"), **memory(True, 8 * MIB)}],
          "threads": [], "alternatives": [], "actions": [{"text": "more", "command": None}], "claims": [], "notes": []}
    meta = {"trainer": 10, "workers": {"0": [11], "1": [12]}, "victim": 11, "victim_nspid": 11, "place": {},
            "planted": [{"pid": 11, "bytes_per_batch": 8 * MIB}]}
    return crash.load("oom_worker"), meta, pm


def accepts():
    s, meta, pm = right()
    equal(list(verdict.from_trace(s, meta, pm)), [], "what is wrong with the right post-mortem")


WRONG = {
    "another death": lambda pm: pm["verdict"].update(death="killed-by"),
    "no confidence": lambda pm: pm["verdict"].update(confidence="possible"),
    "another worker": lambda pm: pm["victim"].update(pid=12),
    "another role": lambda pm: pm["victim"].update(role="trainer"),
    "another inner PID": lambda pm: pm["victim"].update(nspid=3),
    "another signal": lambda pm: pm["verdict"].update(signal=15),
    "no number": lambda pm: pm["numbers"].pop("cgroup.limit"),
    "a limit of another level": lambda pm: pm["numbers"]["cgroup.limit"].update(value=1 << 40),
    "nothing decides": lambda pm: pm["facts"][0].update(decides=False),
    "facts out of order": lambda pm: pm["facts"].reverse(),
    "no action": lambda pm: pm["actions"].clear(),
    "a trace that was cut": lambda pm: pm["source"].update(complete=False),
    "a leak of the trainer": lambda pm: pm["processes"][0].update(leaks=True),
    "no leak": lambda pm: pm["processes"][1].update(leaks=False),
    "a leak of another size": lambda pm: pm["processes"][1].update(growth_bytes_per_batch=MIB),
}


def refuses(change):
    s, meta, pm = right()
    change(pm)
    check(verdict.from_trace(s, meta, pm), "it is accepted")


def follows_log():
    """A verdict that changes with the pasted output is found, whatever changes."""
    s, meta, pm = right()
    for change in (lambda x: x["verdict"].update(death="shm-full"), lambda x: x["victim"].update(pid=4711),
                   lambda x: x["numbers"].update({"shm.total": {"value": 1}})):
        other = copy.deepcopy(pm)
        change(other)
        check(verdict.beside_log(s, meta, pm, other, "x"), "the change is not found")
    equal(list(verdict.beside_log(s, meta, pm, copy.deepcopy(pm), "x")), [], "what is wrong with an equal one")


def leftovers():
    """Undecided is right only where nothing decides; another death never is."""
    s, _, pm = right()
    pm["verdict"].update(death="unexplained", confidence="unknown")
    check(verdict.from_leftovers(s, pm, crash.FITS, "x"), "the death is not among the alternatives")
    pm["alternatives"] = [{"death": "oom-cgroup"}, {"death": "killed-by"}]
    equal(list(verdict.from_leftovers(s, pm, crash.FITS, "x")), [], "what is wrong with both alternatives")
    check(verdict.from_leftovers(s, pm, crash.DECIDES, "x"), "undecided where it is decided")
    pm["verdict"].update(death="killed-by", confidence="certain")
    check(verdict.from_leftovers(s, pm, crash.FITS, "x"), "another death is accepted")
    pm["verdict"].update(death="none")
    check(verdict.from_leftovers(s, pm, crash.FITS, "x"), "no death is accepted")


def every_death():
    with open(os.path.join(dlbpf.ROOT, "userspace", "diagnose", "death.def")) as f:
        deaths = set(re.findall(r'^DEATH\(\w+, "([\w-]+)"', f.read(), re.M))
    found = crash.load_all()
    planted = {s.death for s in found}
    equal(planted - deaths, set(), "verdicts that dlbpf does not have")
    equal(deaths - planted - NOT_PLANTED, set(), "verdicts that no scenario plants")
    equal({d for s in found for d in s.also} - deaths, set(), "other verdicts that dlbpf does not have")
    quick = {s.death for s in found if s.quick}
    check(len(quick) > 10, f"the quick ones have only {sorted(quick)}")
    for s in found:
        check(s.text and "|" not in s.text, f"{s.name}: its text does not fit into a table")
        check(s.ends == "exit" or s.seconds, f"{s.name}: nothing says how long it is watched")


def main():
    tests = dlbpf.Tests("crash checks: ")
    tests.run("the right post-mortem", accepts)
    for name, change in WRONG.items():
        tests.run(f"wrong: {name}", refuses, change)
    for case in (follows_log, leftovers, every_death):
        tests.run(case.__name__, case)
    tests.exit()


if __name__ == "__main__":
    main()
