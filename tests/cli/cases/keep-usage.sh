# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# What --keep and its companions may not be.
for args in "--keep soon" "--keep 1s" "--keep 64K" "--trigger death" "--on-forecast 10m" "--keep 60s --max-size 1G" \
	"--keep 60s --trigger deaths" "--keep 60s --trigger oom=5s" "--keep 60s --trigger gap=often"; do
	dlbpf record $args -- true || echo "exit $?"
done
