#!/bin/bash
# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# The kernel side by itself: the test programs of t_kernel_*.c, which "make check" has built.
build=${DLBPF_BUILD:-$(dirname "$0")/../../build}
rc=0
for name in sched wait life mem fail unlink fault shed; do
	program=$build/tests/live/t_kernel_$name
	if [ ! -x "$program" ]; then
		echo "FAIL kernel_$name: $program is missing (make test-tools)"
		rc=1
		continue
	fi
	"$program" || rc=1
done
exit $rc
