# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# Only a message of PyTorch, and a kernel log that tells nothing: that is never certain.
cat > train.log <<LOG
Epoch 3:  41%|████      | 120/290 [00:31<00:44,  3.8it/s]
RuntimeError: DataLoader worker (pid 711) is killed by signal: Killed.
LOG
dlbpf postmortem --log train.log --kernel-log /dev/null --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
print(d["verdict"]["confidence"] != "certain")
print([(c["pid"], c["line"]) for c in d["claims"]])'
