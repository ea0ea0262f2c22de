# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# Every event, one object a line.
dlbpf dump sample.dlbpf | wc -l
dlbpf dump --json sample.dlbpf > lines
wc -l < lines
python3 -c 'import json, sys; [json.loads(line) for line in open("lines")]'
grep '"kind":"signal"' lines
