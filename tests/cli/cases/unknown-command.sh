# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf reprot; echo $?
dlbpf xyz; echo $?
dlbpf help reprot; echo $?
dlbpf --json report; echo $?
