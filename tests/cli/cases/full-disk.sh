# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
for cmd in "report sample.dlbpf" "report --json sample.dlbpf" "info sample.dlbpf" "info --json sample.dlbpf" \
	"dump sample.dlbpf" "dump --json sample.dlbpf" "info --schema" "--help" "--version" "help --man report"; do
	dlbpf $cmd > /dev/full; echo $?
done
