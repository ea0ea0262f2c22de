# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# Whoever reads may go away early; nobody hears of it.
dlbpf dump sample.dlbpf | head -1 > /dev/null
(trap '' PIPE; dlbpf info --schema; echo "exit $?" >&2) | true
