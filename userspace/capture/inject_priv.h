/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of the injection: inject.c (the sequence), inject_target.c (what is refused, and what
 * has to be known of the process), inject_symbols.c (addresses of functions), inject_thread.c (whom
 * to borrow), inject_ptrace.c (borrowing), inject_x86_64.c and inject_arm64.c (registers and the
 * code that runs in the target).
 */
#ifndef DLBPF_CAPTURE_INJECT_PRIV_H
#define DLBPF_CAPTURE_INJECT_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>
#include <time.h>

#include "base/diag.h"
#include "base/vec.h"

enum {
#ifdef __x86_64__
	INJECT_PAGE = 4096,		/* of code, and as much of data behind it */
#else
	INJECT_PAGE = 65536,		/* the largest page of arm64 */
#endif
	INJECT_SCRATCH = 65536,		/* vector registers, and the borrowed thread's stack */
	INJECT_CAVE_MAX = 256,
	INJECT_SAVED = 36,		/* registers, in the order of the architecture's code */
};

/* --- what the injector and the code in the target share; the code knows the offsets ------------- */

enum inject_state {
	INJECT_STARTED = 1,
	INJECT_LOADING,
	INJECT_DONE,
	INJECT_NO_MEMFD = -1,	/* result: -errno */
	INJECT_GIVEN_UP = -2,	/* nobody filled the file */
	INJECT_NO_DLOPEN = -3,	/* text: dlerror() */
	INJECT_NO_SYMBOL = -4,
};

struct inject_data {
	uint64_t pthread_create, errno_location, register_atfork, cxa_finalize;		/* 0 */
	uint64_t dlopen, dlsym, dlerror, pthread_self, pthread_detach;			/* 32 */
	uint64_t base;					/* 72: of the code; names the fork handler */
	uint64_t scratch, scratch_sz;			/* 80 */
	uint64_t thread;				/* 96: pthread_t of the new one */
	uint64_t mask, worker_mask, all_mask;		/* 104: the borrowed thread's own first */
	struct timespec let_go, tick, settle, unused;	/* 128 */
	int32_t created;	/* 192: 0 not yet, 1, or minus pthread_create's error */
	int32_t fd1;		/* 196: the file's descriptor + 1 */
	int32_t filled;		/* 200: 1 by the injector: go on; 2: give up */
	int32_t forkable;	/* 204: the loader is not at work */
	int32_t state;		/* 208: enum inject_state */
	int32_t left;		/* 212: the borrowed thread is back in its own code */
	int32_t result;		/* 216 */
	int32_t pad;
	uint64_t saved[INJECT_SAVED];	/* 224: what the thread's registers are to be */
	char name[64];		/* 512: of the memfd */
	char path[64];		/* 576: by which dlopen finds it */
	char symbol[32];	/* 640 */
	char text[256];		/* 672 */
};

_Static_assert(offsetof(struct inject_data, base) == 72 && offsetof(struct inject_data, let_go) == 128 &&
	       offsetof(struct inject_data, created) == 192 && offsetof(struct inject_data, saved) == 224 &&
	       offsetof(struct inject_data, name) == 512 && offsetof(struct inject_data, path) == 576 &&
	       offsetof(struct inject_data, symbol) == 640 && offsetof(struct inject_data, text) == 672,
	       "the code in the target knows these");

/* --- inject_symbols.c --------------------------------------------------------------------------- */

/* Values of global functions in the file's symbol table; 0 where it has none. */
int inject_symbols(int elf_fd, const char *const *names, uint64_t *ret, size_t cnt);

/* --- inject_target.c ---------------------------------------------------------------------------- */

struct inject_range {
	uint64_t start, end;
	bool exec, loader;	/* loader: code of ld.so or of an allocator */
};

struct inject_target {
	uint32_t pid;
	int proc_fd;
	DL_VEC(struct inject_range) ranges;
	DL_VEC(uint64_t) caves;	/* INJECT_CAVE_MAX unused bytes of executable pages */
	struct inject_data data;	/* with the functions' addresses */
};

/* Everything that can be known, and refused, without stopping anybody. */
int inject_target_open(struct inject_target *t, uint32_t pid, struct dl_diag *d);
void inject_target_close(struct inject_target *t);
const struct inject_range *inject_range_of(const struct inject_target *t, uint64_t addr);

/* --- inject_thread.c ---------------------------------------------------------------------------- */

/* A thread that waits in a system call. */
struct inject_wait {
	int64_t nr;
	uint64_t args[6], sp, pc;
};

/* May a thread in this wait be borrowed? Not when it might hold a lock of malloc or the loader. */
bool inject_wait_ok(const struct inject_target *t, const struct inject_wait *w);
/* Would the kernel make this wait fail with EINTR when the thread is merely stopped? */
bool inject_wait_needs_restart(int64_t nr);
/* From /proc; false when it does not wait. */
bool inject_thread_look(const struct inject_target *t, uint32_t tid, struct inject_wait *ret);

struct inject_tids {
	uint32_t *v;
	size_t cnt, cap;
};

/* Threads that may be borrowed just now, the first thread last: signals for the process go to it. */
int inject_threads(const struct inject_target *t, struct inject_tids *ret);

/* --- inject_ptrace.c ----------------------------------------------------------------------------- */

/* What one attempt gave; written by a process of its own, which may be killed at any time. */
struct inject_try {
	int err;		/* -EAGAIN: nothing was done, ask another thread; 1: still at it */
	uint64_t base;		/* of the code in the target */
	uint64_t away_ns;
	char msg[512];
};

/* Borrows the thread. The caller is a process for this alone, and ends with it: whatever state
 * the thread is in then, the kernel lets it go, and it finds its way back. */
void inject_borrow(const struct inject_target *t, uint32_t tid, struct inject_try *ret);

/* --- the architecture ---------------------------------------------------------------------------- */

/* A stopped thread. */
struct inject_stop {
	struct user_regs_struct regs;	/* as they were */
	uint32_t code[2];		/* in memory before and at its program counter */
	struct inject_wait wait;
	struct user_regs_struct home;	/* set by ptrace: the kernel restarts the call or ends it */
	struct user_regs_struct self;	/* the same by the thread itself: it restarts the call */
	uint64_t mask;
};

extern const unsigned int inject_machine;	/* EM_ */
extern const bool inject_can_restart;		/* calls that were made to fail with EINTR */

/* What is put in the new page; the borrowed thread begins at enter. */
extern const uint8_t dlbpf_inject_code[], dlbpf_inject_enter[], dlbpf_inject_code_end[];

/* False when the thread is not in a system call. */
bool inject_stop_read(struct inject_stop *s);
/* The code for a system call that puts everything back behind it; its size. */
size_t inject_cave(const struct inject_stop *s, uint64_t addr, uint8_t buf[INJECT_CAVE_MAX]);
bool inject_cave_reaches(uint64_t cave, const struct inject_stop *s);
void inject_set_call(struct user_regs_struct *regs, uint64_t cave, int64_t nr, const uint64_t args[6]);
int64_t inject_call_result(const struct user_regs_struct *regs);
/* cave: of the same thread, still in place. */
void inject_set_enter(const struct inject_stop *s, struct user_regs_struct *regs, struct inject_data *data,
		      uint64_t base, uint64_t cave);
uint64_t inject_pc(const struct user_regs_struct *regs);

#endif
