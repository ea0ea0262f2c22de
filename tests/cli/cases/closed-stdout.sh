# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# A report that went nowhere is a failure, and no file is written in its place.
sum=$(md5sum < sample.dlbpf)
for cmd in "info sample.dlbpf" "dump sample.dlbpf" "--version" "--help"; do
	dlbpf $cmd >&-; echo $?
done
dlbpf info sample.dlbpf <&- > /dev/null; echo $?
[ "$sum" = "$(md5sum < sample.dlbpf)" ]
