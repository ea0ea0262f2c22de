# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# As anybody, on a file that cannot be written.
chmod 755 .; chmod 444 sample.dlbpf
if [ "$(id -u)" = 0 ]; then
	setpriv --reuid 65534 --clear-groups dlbpf report sample.dlbpf | grep -c "^THE RECORDING"
else
	dlbpf report sample.dlbpf | grep -c "^THE RECORDING"
fi
