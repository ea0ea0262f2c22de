# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# Three ways to the same help.
for cmd in record report info dump; do
	dlbpf help "$cmd" > a && dlbpf "$cmd" --help > b && dlbpf "$cmd" -h > c || exit 1
	cmp a b && cmp b c || exit 1
done
