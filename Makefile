# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
#
#   make                build/dlbpf and build/libdlbpf_cupti.so
#   make V=1            the same, showing every command
#   make O=DIR          the same, in another folder than build/
#   make VMLINUX_H=...  with a kernel's types from a file instead of the running kernel
#   make help           everything else
#
# Folders hold one library each; a folder may use only those to its left:
#   base  trace  timeline  diagnose  render  capture*  import*  forensic  check  cli
#   (* these use base and trace only; forensic not render, check not forensic)

ifeq ($(origin CC),default)
CC := gcc
endif
CLANG     ?= clang
LLVM_STRIP ?= llvm-strip
# Ubuntu's /usr/sbin/bpftool is a script that wants the running kernel's own package: any will do.
BPFTOOL   ?= $(firstword $(shell for b in /usr/sbin/bpftool /usr/local/sbin/bpftool /usr/lib/linux-tools*/bpftool \
	/usr/lib/linux-tools/*/bpftool; do $$b version >/dev/null 2>&1 && echo $$b && break; done) bpftool)
PKG_CONFIG ?= pkg-config
VMLINUX_BTF ?= /sys/kernel/btf/vmlinux
PREFIX    ?= /usr/local
DESTDIR   ?=
O         ?= build

ARCH := $(shell uname -m)
BPF_ARCH := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(ARCH)))

ifeq ($(V),1)
Q =
msg =
else
Q = @
msg = @printf '  %-8s %s\n' "$(1)" "$(patsubst $(abspath $(O))/%,%,$(2))"
endif

WARN := -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wformat=2 -Wvla
CFLAGS ?= -O2 -g
override CFLAGS += -std=gnu17 $(WARN) $(EXTRA_CFLAGS)
CPPFLAGS += -D_GNU_SOURCE -Iinclude -Iuserspace -I$(O)
LDLIBS := $(or $(shell $(PKG_CONFIG) --libs libbpf libelf libdw zlib libzstd json-c sqlite3 2>/dev/null),\
	-lbpf -lelf -ldw -lz -lzstd -ljson-c -lsqlite3) -lm -lpthread
LDFLAGS += -Wl,--as-needed

.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:
MAKEFLAGS += -r --no-print-directory

all: $(O)/dlbpf $(O)/libdlbpf_cupti.so

# Says which packages are missing, once for each build folder.
$(O)/.tools:
	$(Q)mkdir -p $(@D)
	$(Q)deploy/deps --verify "$(CC)" "$(CLANG)" "$(LLVM_STRIP)" "$(BPFTOOL)"
	$(Q)touch $@

# --- kernel side -------------------------------------------------------------------------------

# core.bpf.c, which defines the shared maps, goes first: libbpf 1.1's linker loses the place of a map
# whose declaration it meets before the definition.
BPF_SRCS := bpf/core.bpf.c $(filter-out bpf/core.bpf.c,$(sort $(wildcard bpf/*.bpf.c)))
BPF_OBJS := $(BPF_SRCS:%.c=$(O)/%.o)
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Wextra -Wno-unused-parameter \
	-Wno-missing-declarations -Ibpf -Iinclude -I$(O)

$(O)/vmlinux.h: $(VMLINUX_H) | $(O)/.tools
	$(call msg,BTF,$@)
	$(Q)mkdir -p $(@D)
ifneq ($(VMLINUX_H),)
	$(Q)cp $(VMLINUX_H) $@
else
	$(Q)test -r $(VMLINUX_BTF) || { echo "no kernel types: $(VMLINUX_BTF) is missing. Give a file: make VMLINUX_H=vmlinux.h" >&2; exit 1; }
	$(Q)$(BPFTOOL) btf dump file $(VMLINUX_BTF) format c > $@
endif

$(O)/bpf/%.bpf.o: bpf/%.bpf.c $(O)/vmlinux.h
	$(call msg,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -c $< -o $@
	$(Q)$(LLVM_STRIP) -g $@

$(O)/dlbpf.bpf.o: $(BPF_OBJS)
	$(call msg,BPF-LD,$@)
	$(Q)$(BPFTOOL) gen object $@ $^

$(O)/dlbpf.skel.h: $(O)/dlbpf.bpf.o
	$(call msg,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name dlbpf_bpf > $@

# --- userspace ---------------------------------------------------------------------------------

FOLDERS := base trace timeline diagnose render capture import forensic check cli
objs = $(patsubst %.c,$(O)/%.o,$(sort $(wildcard userspace/$(1)/*.c)))
$(foreach f,$(FOLDERS),$(eval OBJS_$(f) := $(call objs,$(f))))
LIBS := $(patsubst %,$(O)/lib/%.a,$(FOLDERS))

$(OBJS_capture): | $(O)/dlbpf.skel.h
$(O)/userspace/%.o: userspace/%.c | $(O)/.tools
	$(call msg,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

define folder_lib
$(O)/lib/$(1).a: $(OBJS_$(1))
	$$(call msg,AR,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(eval $(call folder_lib,$(f))))

LINK_ORDER := cli check forensic import capture render diagnose timeline trace base
LINK_LIBS := $(patsubst %,$(O)/lib/%.a,$(LINK_ORDER))

$(O)/dlbpf: $(OBJS_cli) $(LINK_LIBS)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(OBJS_cli) -Wl,--start-group $(LINK_LIBS) -Wl,--end-group $(LDLIBS) -o $@

# --- collector ---------------------------------------------------------------------------------

CUPTI_SRCS := $(sort $(wildcard cupti/*.c))
CUPTI_OBJS := $(CUPTI_SRCS:%.c=$(O)/%.o)

$(O)/cupti/%.o: cupti/%.c | $(O)/.tools
	$(call msg,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c $< -o $@

$(O)/libdlbpf_cupti.so: $(CUPTI_OBJS)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libdlbpf_cupti.so -Wl,-z,defs -Wl,-z,nodelete $^ -ldl -lpthread -o $@

# --- tests -------------------------------------------------------------------------------------
# tests/unit/t_FOLDER_what.c links the libraries of FOLDER and of what lies to its left.

UNIT_SRCS := $(sort $(wildcard tests/unit/t_*.c))
UNIT_BINS := $(UNIT_SRCS:tests/unit/%.c=$(O)/tests/unit/%)

upto_base := base
upto_trace := trace base
upto_timeline := timeline trace base
upto_diagnose := diagnose timeline trace base
upto_render := render diagnose timeline trace base
upto_capture := capture trace base
upto_import := import trace base
upto_forensic := forensic capture diagnose timeline trace base
upto_check := check capture render diagnose timeline trace base
upto_cli := cli check forensic import capture render diagnose timeline trace base

SYNTH_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/synth/*.c)))

$(O)/tests/%.o: tests/%.c | $(O)/.tools
	$(call msg,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -MMD -MP -c $< -o $@

unit_folder = $(word 2,$(subst _, ,$(notdir $(1))))
define unit_rule
$(O)/tests/unit/$(1): $(O)/tests/unit/$(1).o $(if $(filter timeline diagnose render,$(call unit_folder,$(1))),$(SYNTH_OBJS)) $(patsubst %,$(O)/lib/%.a,$(upto_$(call unit_folder,$(1))))
	$$(call msg,LINK,$$@)
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(LDLIBS) -o $$@
endef
$(foreach t,$(notdir $(UNIT_BINS)),$(eval $(call unit_rule,$(t))))

unit: $(UNIT_BINS)

# Doubles of libcuda, libcudart and libcupti, into $(O)/gpusim.
gpusim:
	$(Q)$(MAKE) -s -C tests/gpusim O=$(abspath $(O)) CC="$(CC)"

# Where a trace's bytes are.
$(O)/tests/bench/trace_account: $(O)/tests/bench/trace_account.o $(O)/lib/trace.a $(O)/lib/base.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

test-tools: $(O)/tests/bench/trace_account

# The benchmark's empty programs.
$(O)/tests/bench/empty.bpf.o: tests/bench/empty.bpf.c $(O)/vmlinux.h
	$(call msg,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -c $< -o $@

$(O)/tests/bench/empty: $(O)/tests/bench/empty.o | $(O)/tests/bench/empty.bpf.o
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< $(LDLIBS) -o $@

$(O)/tests/bench/trace_bench: $(O)/tests/bench/trace_bench.o $(O)/lib/trace.a $(O)/lib/base.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

# Makes long traces from recorded ones.
$(O)/tests/bench/repeat: $(O)/tests/bench/repeat.o $(O)/lib/trace.a $(O)/lib/base.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

# What a recording costs those that are not recorded.
$(O)/tests/bench/neighbour: $(O)/tests/bench/neighbour.o
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ -o $@

# Cuts recorded traces to size for tests/lab/chains.
$(O)/tests/lab/scrub: $(O)/tests/lab/scrub.o $(O)/lib/trace.a $(O)/lib/base.a
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

# Live tests of the kernel side (tests/live/test_kernel.sh runs them).
KERNEL_TESTS := $(patsubst tests/%.c,$(O)/tests/%,$(sort $(wildcard tests/live/t_kernel_*.c)))
$(KERNEL_TESTS): %: %.o $(O)/tests/live/harness.o $(foreach l,$(upto_capture),$(O)/lib/$(l).a)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

BENCH_TOOLS := $(addprefix $(O)/tests/bench/,empty trace_bench repeat neighbour)

test-tools: $(BENCH_TOOLS) $(O)/tests/lab/scrub $(KERNEL_TESTS)

# A second build of the libraries and their tests under the sanitizers, in a folder of its own.
ASAN_O := $(O)-asan
ASAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
asan: $(O)/vmlinux.h
	$(Q)$(MAKE) O=$(ASAN_O) VMLINUX_H=$(abspath $<) EXTRA_CFLAGS="$(ASAN_FLAGS)" unit

TESTS_RUN = tests/run --build $(O) --asan $(ASAN_O)

# No root, no network, no GPU; about a minute.
check-unit: all unit gpusim
	$(Q)$(TESTS_RUN) --unit

# Everything but other kernels (make check-vm: an emulated machine may hang). The packages come first, and then a new make, which sees them.
check:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) check-build
	$(Q)$(TESTS_RUN)

check-build: all unit asan test-tools gpusim

# Boots the Debian kernels 5.10, 6.1 and 6.12 (root, qemu; downloads what it lacks).
check-vm:
	$(Q)deploy/deps check
	$(Q)deploy/deps vm
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all
	$(Q)$(TESTS_RUN) --group vm --verbose

# What only a machine with an NVIDIA GPU and PyTorch can show (root; five minutes). DLBPF_PYTHON: whose PyTorch.
check-gpu:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all gpusim
	$(Q)$(TESTS_RUN) --group real --verbose

demo:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all gpusim
	$(Q)tests/workloads/demo $(O)

# What recording and reporting cost, beside other tools; writes docs/PERFORMANCE.md (root, half an hour).
# BENCH=... gives it options: make bench BENCH=--full
BENCH ?=
bench:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all test-tools gpusim
	$(Q)$(PYTHON) -B tests/bench/run --build $(O) --write docs/PERFORMANCE.md $(BENCH)

# How often dlbpf is right about planted faults; writes docs/ACCURACY.md (root, an hour).
lab:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all gpusim
	$(Q)DLBPF_BUILD=$(abspath $(O)) $(PYTHON) -B tests/lab/run --write docs/ACCURACY.md

# One scenario of each kind, as 'make check' does; ten minutes.
lab-quick:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all gpusim
	$(Q)$(TESTS_RUN) --group lab --verbose

# Every way to die that this machine can produce; writes docs/CRASHES.md (root, ten minutes).
crash-lab:
	$(Q)deploy/deps check
	$(Q)$(AS_USER) $(MAKE) $(MAKEOVERRIDES) $(JOBS) all gpusim
	$(Q)DLBPF_BUILD=$(abspath $(O)) $(PYTHON) -B tests/crash/run --write docs/CRASHES.md

# The pages that are made from sources: a test compares them.
docs: $(O)/dlbpf
	$(Q)$(PYTHON) docs/mkevents.py > $(O)/EVENTS.md
	$(Q)cp $(O)/EVENTS.md docs/EVENTS.md
	$(Q)$(PYTHON) docs/mkman.py $(O)/dlbpf

# Targets for long runs with libFuzzer (clang, package libclang-rt-*-dev); 'make check' replays the
# corpora and some mutations without it.
fuzz: $(O)/.tools
	$(Q)DLBPF_BUILD=$(abspath $(O)) CLANG="$(CLANG)" $(PYTHON) -B tests/fuzz/test_trace.py --libfuzzer

# --- packages, installation ---------------------------------------------------------------------

PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))
# Under sudo the build stays the invoking user's: 'make' without sudo works afterwards.
AS_USER := $(if $(filter-out root,$(SUDO_USER)),$(if $(filter 0,$(shell id -u)),sudo -u $(SUDO_USER) -H --))

deps:
	$(Q)deploy/deps check

BINDIR  ?= $(PREFIX)/bin
LIBDIR  ?= $(PREFIX)/lib/dlbpf
MANDIR  ?= $(PREFIX)/share/man
DOCDIR  ?= $(PREFIX)/share/doc/dlbpf
man_in = $(sort $(wildcard docs/*.$(1) docs/man/*.$(1)))
DOCS := README.md LICENSE $(sort $(wildcard docs/*.md docs/*.json))

install: all
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBDIR) $(DESTDIR)$(DOCDIR)
	install -m 755 $(O)/dlbpf $(DESTDIR)$(BINDIR)/dlbpf
	install -m 644 $(O)/libdlbpf_cupti.so $(DESTDIR)$(LIBDIR)/libdlbpf_cupti.so
	install -m 644 $(DOCS) $(DESTDIR)$(DOCDIR)
	$(foreach n,1 5 7 8,$(if $(call man_in,$(n)),install -d $(DESTDIR)$(MANDIR)/man$(n) && \
		install -m 644 $(call man_in,$(n)) $(DESTDIR)$(MANDIR)/man$(n) &&)) true

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/dlbpf $(DESTDIR)$(LIBDIR)/libdlbpf_cupti.so
	$(foreach n,1 5 7 8,$(foreach m,$(call man_in,$(n)),rm -f $(DESTDIR)$(MANDIR)/man$(n)/$(notdir $(m)) &&)) true
	rm -f $(addprefix $(DESTDIR)$(DOCDIR)/,$(notdir $(DOCS)))
	-rmdir $(DESTDIR)$(LIBDIR) $(DESTDIR)$(DOCDIR) 2>/dev/null

clean:
	rm -rf $(O) $(ASAN_O)

help:
	@echo "make              build $(O)/dlbpf and $(O)/libdlbpf_cupti.so"
	@echo "make deps         install the packages that building and testing need (root)"
	@echo "make demo         packages, build, record a PyTorch training run, print its report (root)"
	@echo "make check        packages, build, every test (root)"
	@echo "make check-unit   the tests that need no root; a minute"
	@echo "make check-gpu    check and measure on an NVIDIA GPU with PyTorch (root)"
	@echo "make check-vm     record and report on Debian's kernels 5.10, 6.1 and 6.12 (root, qemu)"
	@echo "make bench        what recording and reporting cost, beside perf, bpftrace and strace (root)"
	@echo "make lab          plant known faults, count how often dlbpf is right (root); lab-quick: one a kind"
	@echo "make crash-lab    let runs die of every cause that can be planted, and compare the verdicts (root)"
	@echo "make docs         write the generated pages of docs/ anew"
	@echo "make fuzz         build the fuzz targets (clang)"
	@echo "make install      DESTDIR= PREFIX=$(PREFIX);  make uninstall"
	@echo "make clean"
	@echo "V=1 shows commands, O=DIR builds elsewhere, VMLINUX_H=FILE gives kernel types"

-include $(shell find $(O) -name '*.d' 2>/dev/null)

.PHONY: all unit gpusim test-tools asan check check-unit check-build check-gpu check-vm demo bench lab lab-quick crash-lab docs deps install uninstall clean help
