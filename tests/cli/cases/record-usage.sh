# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
# What is refused before anything is looked at, as anybody.
try() { dlbpf record "$@" < /dev/null; echo "exit $?"; }
try
try -p 1 true
try -p 0
try -p 99999999999
try -p abc
try --duration x true
try --max-size 10 true
try --sample-hz 20000 true
try --gpu some true
try --no-reprot true
try -o
