# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# Whoever reads may go away early; nobody hears of it.
dlbpf dump sample.dlbpf | head -1 > /dev/null
# A pipe whose reader has gone for sure.
mkfifo gone
exec 3<>gone 4>gone 3<&-
(trap '' PIPE; dlbpf info --schema >&4; echo "exit $?" >&2)
rm gone
