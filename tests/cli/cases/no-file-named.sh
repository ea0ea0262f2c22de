# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
for cmd in report info dump; do dlbpf $cmd; echo $?; done
