# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf dump -k exit,signal --kind mark sample.dlbpf
