# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
dlbpf info --schema | head -22
dlbpf info --schema --json | python3 -c 'import json, sys; print(sum(1 for e in json.load(sys.stdin)["events"] if e["meaning"] and e["fields"]))'
