# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""What a scenario is. Every file of scenarios/ defines one, and the training that it is about:

    SCENARIO = Scenario(kind="decode", cause="decode", doses=(0, 5, 10, 15), unit="ms of Python a batch",
                        forms={"1 worker": {"workers": 1}, "2 workers, spawn": {"workers": 2, "start": "spawn"}})

    def train(run):                     # in the recorded process
        loader = run.loader(Data(run.dose), batch_size=8)
        run.loop(loader)

The first dose is no fault at all: the control. The same number of batches is trained at every dose, so
that what a run took longer than the control is the fault's.

What several scenarios share is in data/ (data sets and loops, in the training) and in places/ (disks,
cgroups, neighbours, servers, in the runner).

This file is read by the runner, which has no PyTorch, and by the training, which has.
"""

import dataclasses
import importlib
import os
import sys
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "scenarios")

GPUS = ("sim", "none")


@dataclasses.dataclass
class Scenario:
    kind: str  # the row of the confusion matrix; one scenario of each kind is "quick"
    cause: typing.Optional[str]  # the planted cause; None: a healthy run, the GPU is the limit
    doses: tuple  # the control first, then three, ascending
    unit: str  # of a dose
    forms: dict = dataclasses.field(default_factory=lambda: {"": {}})  # name -> parameters: run.form
    # Causes that the same fault has by its nature besides the leading one, with the reason in the
    # scenario's text: their time counts as its own for the slope.
    also: tuple = ()
    # Two faults at once: cause -> its true share of what the fault costs. cause is then the larger.
    shares: typing.Optional[dict] = None
    gpus: tuple = GPUS  # with the simulated GPU, and without GPU data; one that needs a GPU says so
    quick_gpu: str = "sim"
    batches: int = 50
    kernel_ms: float = 8.0  # GPU time of a batch; without a GPU the trainer sleeps so long
    # A context manager made once for all runs of a form, place(form) -> object with
    # params (a dict, to the training's run.place) and command(argv, dose) -> argv.
    place: typing.Optional[typing.Callable] = None
    twins: tuple = ()  # scenarios with the same waiting place and another cause
    quick: bool = False
    torch2: bool = False  # also with a current PyTorch
    only_torch2: bool = False
    # Which part of the run is judged, where it has several: "rank 1" or "loader 1". Its own verdict in
    # the report, its own idle time.
    part: typing.Optional[str] = None
    needs: tuple = ()  # modules that the training imports besides PyTorch
    # check(report) -> text of what is wrong with the report of a run at the highest dose, or None:
    # what else the report has to say, such as a name.
    check: typing.Optional[typing.Callable] = None
    env: dict = dataclasses.field(default_factory=dict)
    timeout: int = 60  # seconds a run may take
    name: str = ""
    text: str = ""

    def causes(self):
        """Whose time is the fault's."""
        if self.shares:
            return tuple(self.shares)
        return (self.cause, *self.also) if self.cause else ()


def names():
    return sorted(n[:-3] for n in os.listdir(FOLDER) if n.endswith(".py") and not n.startswith("_"))


def module(name):
    for folder in (HERE, FOLDER, os.path.join(HERE, "data"), os.path.join(HERE, "places")):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    return importlib.import_module(name)


def load(name):
    """A scenario, checked for mistakes that would make its figures mean nothing."""
    m = module(name)
    s = m.SCENARIO
    s.name, s.text = name, " ".join((m.__doc__ or "").split())
    if len(s.doses) != 4 or list(s.doses) != sorted(set(s.doses)):
        raise ValueError(f"{name}: doses are the control and three, ascending: {s.doses}")
    if not s.text:
        raise ValueError(f"{name}: no text says what is planted")
    if not set(s.gpus) <= set(GPUS):
        raise ValueError(f"{name}: gpus are of {GPUS}: {s.gpus}")
    if s.shares and (abs(sum(s.shares.values()) - 1) > 1e-6 or s.cause != max(s.shares, key=s.shares.get)):
        raise ValueError(f"{name}: shares add up to 1 and the cause has the largest: {s.shares}")
    return s


def load_all():
    found = [load(n) for n in names()]
    known = {s.name for s in found}
    for s in found:
        for t in s.twins:
            if t not in known:
                raise ValueError(f"{s.name}: no scenario {t}, its twin")
    return found


@dataclasses.dataclass
class Row:
    """One line of the table: a scenario in one form, on one GPU, with one PyTorch."""

    scenario: Scenario
    form_name: str
    gpu: str
    torch2: bool

    def __str__(self):
        parts = [self.scenario.name]
        if self.form_name:
            parts.append(self.form_name)
        if self.gpu == "none":
            parts.append("no GPU data")
        if self.torch2 and not self.scenario.only_torch2:
            parts.append("PyTorch 2")
        return " / ".join(parts)

    @property
    def form(self):
        return self.scenario.forms[self.form_name]


def rows(scenarios, quick=False):
    """Quick: the first form of the quick scenarios. Else every form, the first one also without GPU
    data and with a current PyTorch."""
    found = []
    for s in scenarios:
        for i, form in enumerate(s.forms):
            gpus = s.gpus if i == 0 else s.gpus[:1]
            for gpu in gpus:
                if quick and not (s.quick and i == 0 and gpu == (s.quick_gpu if s.quick_gpu in gpus else gpus[0])):
                    continue
                found.append(Row(s, form, gpu, s.only_torch2 or bool(s.forms[form].get("torch2"))))
            if s.torch2 and i == 0 and not quick and not s.only_torch2:
                found.append(Row(s, form, gpus[0], True))
    return found
