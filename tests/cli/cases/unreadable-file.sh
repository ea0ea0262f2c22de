# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# root reads everything, so somebody else tries
chmod 755 .; cp sample.dlbpf secret.dlbpf; chmod 600 secret.dlbpf
if [ "$(id -u)" = 0 ]; then
	setpriv --reuid 65534 --clear-groups dlbpf info secret.dlbpf
else
	chmod 0 secret.dlbpf; dlbpf info secret.dlbpf
fi
