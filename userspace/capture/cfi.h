/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Call frame information: how to get from a frame to its caller at one address of a file, from its
 * .eh_frame (DWARF 5, section 6.4; Linux Standard Base, "Exception Frames").
 *
 * Read here and not by elfutils: the files are those of the target, which may be hostile or cut short
 * meanwhile, and the reader may be a recorder that runs as root. Everything is read by pread, memory
 * and steps are bounded, and a table of a library of 500 MB costs twenty reads of eight bytes. Rows
 * are those that elfutils finds: tests/unit/t_capture_unwind.c compares them.
 */
#ifndef DLBPF_CAPTURE_CFI_H
#define DLBPF_CAPTURE_CFI_H

#include <stdbool.h>
#include <stdint.h>

struct dl_elf;

enum { DL_CFI_REGS = 33 };	/* DWARF's numbers: x86-64 0 to 16, arm64 0 to 31; others are not kept */

enum dl_cfi_how {
	DL_CFI_SAME = 0,
	DL_CFI_UNDEFINED,
	DL_CFI_OFFSET,		/* saved at CFA + off */
	DL_CFI_VAL_OFFSET,	/* is CFA + off */
	DL_CFI_REG,		/* is in register reg; of the CFA: is reg + off */
	DL_CFI_EXPR,		/* saved at the address that expr works out from the CFA */
	DL_CFI_VAL_EXPR,	/* is what expr works out */
};

struct dl_cfi_rule {
	uint8_t how;		/* enum dl_cfi_how */
	uint8_t reg;
	uint16_t expr_sz;
	int64_t off;
	const uint8_t *expr;	/* into the row's own buffers */
};

struct dl_cfi_rules {
	struct dl_cfi_rule cfa;
	struct dl_cfi_rule reg[DL_CFI_REGS];
};

enum { DL_CFI_CIE_MAX = 1024, DL_CFI_FDE_MAX = 32 << 10 };

/* A row and all that it takes to find it: too large for a small stack, and not to be copied. */
struct dl_cfi_row {
	struct dl_cfi_rules rules;
	uint64_t start, end;	/* of its function, as virtual addresses of the file */
	uint8_t ra;		/* the register that stands for the return address */
	bool signal;		/* the frame of a signal handler's caller: its caller was interrupted, not calling */
	bool ra_signed;		/* arm64: the return address is signed */
	uint8_t cie[DL_CFI_CIE_MAX];
	uint8_t fde[DL_CFI_FDE_MAX];
};

/* The row at a virtual address of the file. -ENOENT: the file has none there; -ENOEXEC: malformed; or -errno. */
int dl_cfi_find(struct dl_cfi_row *ret, const struct dl_elf *e, uint64_t vaddr);

#endif
