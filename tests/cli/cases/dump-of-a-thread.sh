# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf dump --tid 4310 sample.dlbpf
dlbpf dump --pid 4301 --kind switch sample.dlbpf
