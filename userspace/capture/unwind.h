/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Native stacks: from registers and memory to the chain of callers, by call frame information and,
 * where a file has none, by frame pointers. Of a core file or of a stack that was copied when a signal
 * was raised: nothing here touches a living process.
 *
 * Registers, memory and files come from an untrusted program. The work is bounded by the number of
 * frames and by an instant; a stack has to grow towards its base with every frame, but for the step out
 * of a signal handler, so there are no endless loops.
 */
#ifndef DLBPF_CAPTURE_UNWIND_H
#define DLBPF_CAPTURE_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/event.h>

#include "capture/cfi.h"

struct dl_elf;

/* Registers by DWARF's numbers (x86-64: 0 to 15; arm64: 0 to 31 with the stack pointer as 31). */
struct dl_unwind_regs {
	uint16_t machine;	/* EM_X86_64 or EM_AARCH64 */
	uint64_t r[DL_CFI_REGS];
	uint64_t valid;		/* bits of those that are known */
	uint64_t pc;
};

enum {
	DL_UNWIND_X86_WORDS = 21,	/* r15 to ss */
	DL_UNWIND_ARM64_WORDS = 34,	/* x0 to x30, sp, pc, pstate */
};

/*
 * From cnt words of 64 bits of the kernel's struct pt_regs, which begin as ptrace's user registers do (x86-64:
 * struct user_regs_struct, r15 first; arm64: struct user_pt_regs). False: another machine, or too few.
 */
bool dl_unwind_regs(struct dl_unwind_regs *ret, uint16_t machine, const void *words, size_t cnt);
uint64_t dl_unwind_sp(const struct dl_unwind_regs *regs);

/* Where a frame was found from. */
enum dl_frame_how {
	DL_FRAME_REGS = 0,	/* the registers themselves: the innermost one */
	DL_FRAME_CFI,
	DL_FRAME_POINTER,	/* by frame pointers: code without frames of its own may be left out */
	DL_FRAME_SIGNAL,	/* the registers that a signal handler's frame holds */
	DL_FRAME_CALL,		/* the word that a call to nowhere had pushed */
};

struct dl_frame {
	uint64_t pc;		/* the instruction, or the one behind a call */
	uint64_t sp;
	uint8_t how;		/* enum dl_frame_how */
	bool exact;		/* pc is the instruction that was executed, not where a call returns to */
	bool trampoline;	/* what a signal handler returns to; sp is that of its struct ucontext (x86-64)
				 * or struct siginfo (arm64) */
};

struct dl_unwind_ops {
	/* All of it, or false. */
	bool (*read)(void *arg, uint64_t addr, void *buf, size_t sz);
	/* What is mapped at a code address: false nothing executable; *ret_elf NULL no file, or none that can
	 * be read; *ret_vaddr the address as the file has it. */
	bool (*code)(void *arg, uint64_t addr, const struct dl_elf **ret_elf, uint64_t *ret_vaddr);
	/* Each frame as it is found, with what is known of its registers; NULL: not wanted. */
	void (*visit)(void *arg, size_t frame, const struct dl_unwind_regs *regs);
	void *arg;
};

struct dl_unwinder;

struct dl_unwinder *dl_unwinder_new(void);	/* NULL no memory */
void dl_unwinder_free(struct dl_unwinder *u);

/* Innermost first; how many, at least 1 when max is. Until deadline (CLOCK_MONOTONIC). ret_end may be NULL. */
size_t dl_unwind(struct dl_unwinder *u, const struct dl_unwind_regs *regs, const struct dl_unwind_ops *ops,
		 uint64_t deadline, struct dl_frame *frames, size_t max, enum dl_stack_end *ret_end);

/*
 * What a signal's frame on the stack holds: the siginfo that the kernel gave to the handler, and the
 * registers of the instant (arch/x86/kernel/signal_64.c, arch/arm64/kernel/signal.c).
 */
struct dl_sigframe {
	int32_t sig, code;
	uint64_t addr;		/* si_addr; for signals that were sent si_pid, then si_uid */
	struct dl_unwind_regs regs;
	uint64_t error;		/* x86-64: of the page fault; else 0 */
	bool has_error;
};

/* The frame at the sp of a trampoline; false: it cannot be one. */
bool dl_sigframe_read(struct dl_sigframe *ret, uint16_t machine, const struct dl_unwind_ops *ops, uint64_t sp);

#endif
