# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf report --jsn sample.dlbpf; echo $?
dlbpf report -x sample.dlbpf; echo $?
dlbpf dump --limt=3 sample.dlbpf; echo $?
