/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Core files: what a dead process leaves of itself (core(5), fs/binfmt_elf.c). Of 64-bit Linux programs
 * for x86-64 and arm64, on either machine; also packed by zstd, as systemd-coredump stores them.
 *
 * A core is written by a program that went wrong, and may come from anybody: every number in it is
 * checked, what it names is opened only when it is a regular file, and time and memory are bounded. A
 * core that was cut off is read as far as it goes.
 *
 * Numbers of processes and threads are those that the process itself saw: in a container, the inner
 * ones. Files are looked for at the paths that they had; one that is another build now is not used.
 */
#ifndef DLBPF_FORENSIC_CORE_H
#define DLBPF_FORENSIC_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/vec.h"
#include "capture/unwind.h"

struct dl_postmortem;

/* A mapped file. */
struct dl_core_map {
	uint64_t start, end, off;
	char *path;		/* without " (deleted)" */
	bool deleted;		/* had no name any more */
};

struct dl_core_frame {
	uint64_t pc;
	char *function;		/* NULL unknown */
	uint64_t into;		/* offset in it; without it, in the mapped file */
	char *path;		/* of the mapped file; NULL none */
	uint8_t how;		/* enum dl_frame_how */
	bool trampoline;	/* a signal handler returns to here: the next frame was interrupted */
};

struct dl_core_thread {
	uint32_t tid;
	int32_t syscall;	/* that it was in; -1 none, -2 unknown */
	uint64_t sp;
	struct dl_unwind_regs regs;
	DL_VEC(struct dl_core_frame) frames;	/* innermost first; of the dying thread from the first signal on */
	uint8_t end;		/* enum dl_stack_end */
};

struct dl_core_signal {
	int32_t sig;		/* 0 none */
	int32_t code;		/* si_code; above 0 the kernel made it; INT32_MIN unknown */
	bool has_addr;		/* it is a fault and says where */
	uint64_t addr;
	uint32_t sender_pid, sender_uid;	/* of one that was sent */
	bool has_access, wrote;	/* x86-64: whether the access was a write */
};

struct dl_core {
	char *path;
	int64_t wall_ns;	/* CLOCK_REALTIME of when it was written; 0 unknown */
	uint16_t machine;	/* EM_* */
	uint64_t sz, want_sz;	/* unpacked; smaller than wanted: it was cut off */
	bool truncated;
	uint32_t pid, ppid, uid;
	char comm[17];
	char *cmdline;		/* its first 80 bytes; NULL unknown */
	char *program;		/* NULL unknown */
	struct dl_core_signal last;	/* that it died of */
	struct dl_core_signal first;	/* that a handler was called for, which raised it again; sig 0: there is none */
	uint32_t handler_frames;	/* frames of that handler, which are left out */
	char *abort_text;	/* what glibc said when it gave up; NULL nothing */
	char *exception;	/* type of the C++ exception that nobody caught; NULL none, or not found */
	char *exception_text;	/* its message; NULL none found */
	uint64_t page_sz;
	uint64_t map_cnt;	/* mappings of memory, files or not */
	uint64_t thread_cnt;	/* threads it had; those read may be fewer */
	DL_VEC(struct dl_core_map) maps;	/* by address */
	DL_VEC(struct dl_core_thread) threads;	/* the dying one first */
	struct { char **v; size_t cnt, cap; } missing, changed;	/* files that stacks would need */
	uint64_t same_cnt;	/* files that are here as they were mapped, by their build-ids */
};

/*
 * Reads a core. -EINVAL and a message: not a core file, or one that nothing can be made of; -ENOTSUP:
 * of another kind of machine, or packed in a way that is not known; or -errno.
 */
int dl_core_read(struct dl_core **ret, const char *path, struct dl_diag *d);
void dl_core_free(struct dl_core *core);	/* NULL-safe */

/* The signal that decides: the first one. */
const struct dl_core_signal *dl_core_signal(const struct dl_core *core);

/* The mapped file at an address; NULL none. */
const struct dl_core_map *dl_core_map_at(const struct dl_core *core, uint64_t addr);

/* "name+0x12 (libfoo.so)"; buf is cut to sz. */
const char *dl_core_frame_text(const struct dl_core_frame *f, char *buf, size_t sz);

/*
 * Adds what the core tells: facts, numbers, threads with their stacks, and the verdict with its
 * confidence, where the core decides and no surer one is there. 0 or -ENOMEM.
 */
int dl_pm_add_core(struct dl_postmortem *pm, const struct dl_core *core);

#endif
