/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Unwinds the stack that the kernel side copied when a thread got a fatal signal. */
#ifndef DLBPF_CAPTURE_FAULTSTACK_H
#define DLBPF_CAPTURE_FAULTSTACK_H

#include <stddef.h>
#include <stdint.h>

#include <dlbpf/bpf_shared.h>

#include "capture/sink.h"
#include "capture/symspace.h"
#include "capture/unwind.h"

enum { DL_FAULT_FRAMES_MAX = 64 };

/*
 * Is what the kernel saw mapped at the instruction also what is known? 1: yes; -1: no; 0: it cannot be told. On
 * an overlay file system the kernel's inode is another one than /proc's, where its layers lie on several.
 */
int dl_fault_mapping(const struct dl_fault_stack *fs, const struct dl_space *sp, const struct dl_symfiles *files);

/*
 * Innermost first; how many, 0 when the registers are of no use. sp: what the process has mapped, may be NULL;
 * what belies the kernel is not used, and the innermost frame is then the only one. Bounded in time. -ENOMEM.
 */
int64_t dl_fault_unwind(const struct dl_fault_stack *fs, const struct dl_space *sp, const struct dl_symfiles *files,
			struct dl_frame frames[DL_FAULT_FRAMES_MAX], enum dl_stack_end *ret_end);

/* Emits STACK, unless there are no frames, and CRASH_STACK. */
int dl_fault_emit(struct dl_sink *sink, const struct dl_fault_stack *fs, uint32_t stack_id, const struct dl_frame *frames,
		  size_t cnt, enum dl_stack_end end);

#endif
