# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf dump --limit 3 sample.dlbpf | wc -l
dlbpf dump --json -n 2 --kind fork sample.dlbpf
