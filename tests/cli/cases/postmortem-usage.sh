# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# A recording and what is read instead of one exclude each other; what cannot be read is named.
dlbpf postmortem --core core.1 sample.dlbpf; echo $?
dlbpf postmortem --log missing.log --kernel-log /dev/null; echo $?
dlbpf postmortem missing.dlbpf; echo $?
dlbpf postmortem --pid 0; echo $?
dlbpf postmortem --core /dev/null; echo $?
dlbpf postmortem a.dlbpf b.dlbpf; echo $?
