# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# What is refused before anything is looked at.
try() { dlbpf check "$@" < /dev/null; echo "exit $?"; }
try -p 1 true
try -p 0
try -p 99999999
try -p abc
try --workers 0
try --seconds x
try --batch-bytes many
try --strcit
try --data
