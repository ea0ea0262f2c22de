# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
for arg in "--worst 0" "--worst x" "--worst" "--color blue" "--from soon" "--json=1"; do
	dlbpf report sample.dlbpf $arg; echo $?
done
dlbpf dump --pid 0 sample.dlbpf; echo $?
dlbpf dump --tid 4294967296 sample.dlbpf; echo $?
