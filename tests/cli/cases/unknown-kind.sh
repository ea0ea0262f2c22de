# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf dump --kind swich sample.dlbpf; echo $?
dlbpf dump --kind switch,zzz sample.dlbpf 2>&1 | head -1
