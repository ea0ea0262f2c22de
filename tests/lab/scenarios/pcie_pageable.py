# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""The batch lies in pageable memory and is copied as tensor.to("cuda") does: the driver stages it, the
trainer waits. The link is slow, so that few megabytes take long: their page faults stay small."""

from data_bytes import BATCH, Bytes, said_of_copies
from scenario import Scenario


def train(run):
    run.loop(run.loader(Bytes(run.dose), BATCH))


SCENARIO = Scenario(
    kind="pcie", cause="pcie", doses=(0, 6, 10, 14), unit="MiB a batch",
    gpus=("sim",), env={"GPUSIM_PAGEABLE_GBPS": "0.5"},
    forms={"1 worker": {}, "2 workers, file_system": {"workers": 2, "sharing": "file_system"}},
    twins=("host_python",), quick=True, torch2=True, check=lambda report: said_of_copies(report, "pageable"),
)
