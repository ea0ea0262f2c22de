# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf dump --from 10 --to 5 sample.dlbpf; echo $?
dlbpf dump --from 1h sample.dlbpf; echo $?
dlbpf report --from 10 --to 5 sample.dlbpf; echo $?
dlbpf dump --from 0.015 --to 20ms sample.dlbpf; echo $?
dlbpf dump --from -10ms sample.dlbpf; echo $?
