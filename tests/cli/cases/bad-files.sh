# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
for cmd in report info dump; do
	dlbpf $cmd missing.dlbpf; echo $?
	dlbpf $cmd .; echo $?
	echo "not a trace, though long enough to be one" > text.dlbpf
	dlbpf $cmd text.dlbpf; echo $?
	: > empty.dlbpf
	dlbpf $cmd empty.dlbpf; echo $?
	head -c 40 sample.dlbpf > head.dlbpf
	dlbpf $cmd head.dlbpf; echo $?
done
