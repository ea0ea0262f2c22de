/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Steps from frame to frame. */
#include "capture/unwind.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/elf.h"
#include "capture/proc.h"

enum {
	X86_RAX = 0, X86_RDX, X86_RCX, X86_RBX, X86_RSI, X86_RDI, X86_RBP, X86_RSP, X86_R8, X86_R15 = 15, X86_RA = 16,
	ARM_FP = 29, ARM_LR = 30, ARM_SP = 31,
};

enum {
	EXPR_STEPS_MAX = 512,
	EXPR_STACK_MAX = 16,
	/* struct ucontext, and in it the first register of struct sigcontext */
	X86_UC_REGS = 40, X86_UC_WORDS = 23, X86_UC_SZ = 304,
	ARM_SIGINFO_SZ = 128, ARM_UC_REGS = 176 + 8, ARM_UC_WORDS = 34,
	X86_USER_CS = 0x33, X86_PAGE_FAULT = 14,
};

/* User addresses of arm64 have 48 bits here; what lies above them is a signature or a tag. */
#define ARM_ADDR_MASK ((UINT64_C(1) << 48) - 1)

struct dl_unwinder {
	struct dl_cfi_row row;
};

struct dl_unwinder *dl_unwinder_new(void)
{
	return calloc(1, sizeof(struct dl_unwinder));
}

void dl_unwinder_free(struct dl_unwinder *u)
{
	free(u);
}

/* --- registers --------------------------------------------------------------------------------- */

/* DWARF's numbers of the words of struct pt_regs; -1: none */
static const int8_t x86_numbers[DL_UNWIND_X86_WORDS] = {
	15, 14, 13, 12, X86_RBP, X86_RBX, 11, 10, 9, 8, X86_RAX, X86_RCX, X86_RDX, X86_RSI, X86_RDI,
	-1 /* orig_ax */, X86_RA, -1 /* cs */, -1 /* flags */, X86_RSP, -1 /* ss */,
};

/* ... and of struct sigcontext: r8 to r15, then di, si, bp, bx, dx, ax, cx, sp, ip */
static const int8_t x86_context[] = {
	8, 9, 10, 11, 12, 13, 14, 15, X86_RDI, X86_RSI, X86_RBP, X86_RBX, X86_RDX, X86_RAX, X86_RCX, X86_RSP, X86_RA,
};

static void set(struct dl_unwind_regs *regs, int number, uint64_t val)
{
	regs->r[number] = val;
	regs->valid |= UINT64_C(1) << number;
}

static bool known(const struct dl_unwind_regs *regs, int number)
{
	return number < DL_CFI_REGS && (regs->valid >> number & 1);
}

static void take_words(struct dl_unwind_regs *regs, const int8_t *numbers, const uint64_t *words, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		if (numbers[i] >= 0)
			set(regs, numbers[i], words[i]);
	regs->pc = regs->r[X86_RA];
}

bool dl_unwind_regs(struct dl_unwind_regs *ret, uint16_t machine, const void *words, size_t cnt)
{
	const size_t want = machine == EM_X86_64 ? DL_UNWIND_X86_WORDS : DL_UNWIND_ARM64_WORDS;
	uint64_t w[DL_UNWIND_ARM64_WORDS];

	*ret = (struct dl_unwind_regs){ .machine = machine };
	if ((machine != EM_X86_64 && machine != EM_AARCH64) || cnt < want)
		return false;
	memcpy(w, words, want * sizeof(*w));
	if (machine == EM_X86_64) {
		take_words(ret, x86_numbers, w, DL_UNWIND_X86_WORDS);
		return true;
	}
	for (int i = 0; i <= ARM_SP; i++)
		set(ret, i, w[i]);
	ret->pc = w[ARM_SP + 1];
	return true;
}

static int sp_number(const struct dl_unwind_regs *regs)
{
	return regs->machine == EM_X86_64 ? X86_RSP : ARM_SP;
}

uint64_t dl_unwind_sp(const struct dl_unwind_regs *regs)
{
	return regs->r[sp_number(regs)];
}

static uint64_t code_addr(const struct dl_unwind_regs *regs, uint64_t addr)
{
	return regs->machine == EM_AARCH64 ? addr & ARM_ADDR_MASK : addr;
}

static bool read_word(const struct dl_unwind_ops *ops, uint64_t addr, uint64_t *ret)
{
	return ops->read(ops->arg, addr, ret, sizeof(*ret));
}

/* --- expressions (DWARF 5, section 2.5) -------------------------------------------------------- */

struct expr {
	const uint8_t *p, *start, *end;
	const struct dl_unwind_regs *regs;
	const struct dl_unwind_ops *ops;
	uint64_t stack[EXPR_STACK_MAX];
	int depth;
	bool bad;
};

static uint64_t take(struct expr *e, size_t sz)
{
	uint64_t v = 0;

	if (e->bad || (size_t)(e->end - e->p) < sz) {
		e->bad = true;
		return 0;
	}
	for (size_t i = 0; i < sz; i++)
		v |= (uint64_t)*e->p++ << (8 * i);
	return v;
}

static uint64_t take_leb(struct expr *e, bool is_signed)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		const uint64_t b = take(e, 1);

		v |= (b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		if (is_signed && (b & 0x40) && shift + 7 < 64)
			v |= ~UINT64_C(0) << (shift + 7);
		return v;
	}
	e->bad = true;
	return 0;
}

static void push(struct expr *e, uint64_t v)
{
	if (e->depth < EXPR_STACK_MAX)
		e->stack[e->depth++] = v;
	else
		e->bad = true;
}

static uint64_t pop(struct expr *e)
{
	if (e->depth)
		return e->stack[--e->depth];
	e->bad = true;
	return 0;
}

static void push_reg(struct expr *e, uint64_t number)
{
	const uint64_t off = take_leb(e, true);

	if (number >= DL_CFI_REGS || !known(e->regs, (int)number))
		e->bad = true;
	else
		push(e, e->regs->r[number] + off);
}

static void jump(struct expr *e, bool taken)
{
	const int64_t by = (int16_t)take(e, 2);

	if (e->bad || by < e->start - e->p || by > e->end - e->p)
		e->bad = true;
	else if (taken)
		e->p += by;
}

/* Constants: DW_OP_const1u and those after it, which change between unsigned and signed. */
static uint64_t constant(struct expr *e, uint8_t op)
{
	static const uint8_t sizes[] = { 1, 2, 4, 8 };
	const unsigned int bits = 8u * sizes[(op - 0x08) / 2];
	const uint64_t v = take(e, bits / 8);

	return op & 1 && bits < 64 ? (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits)) : v;
}

static uint64_t compute(struct expr *e, uint8_t op)
{
	const uint64_t b = pop(e), a = pop(e);

	switch (op) {
	case 0x1a: return a & b;
	case 0x1c: return a - b;
	case 0x1e: return a * b;
	case 0x21: return a | b;
	case 0x22: return a + b;
	case 0x24: return b < 64 ? a << b : 0;
	case 0x25: return b < 64 ? a >> b : 0;
	case 0x26: return (uint64_t)((int64_t)a >> (b < 64 ? b : 63));
	case 0x27: return a ^ b;
	case 0x29: return a == b;
	case 0x2a: return (int64_t)a >= (int64_t)b;
	case 0x2b: return (int64_t)a > (int64_t)b;
	case 0x2c: return (int64_t)a <= (int64_t)b;
	case 0x2d: return (int64_t)a < (int64_t)b;
	case 0x2e: return a != b;
	}
	e->bad = true;
	return 0;
}

static void deref(struct expr *e)
{
	uint64_t v = 0;

	if (!read_word(e->ops, pop(e), &v))
		e->bad = true;
	push(e, v);
}

static void swap(struct expr *e)
{
	const uint64_t b = pop(e), a = pop(e);

	push(e, b);
	push(e, a);
}

static void step_expr(struct expr *e, uint8_t op)
{
	uint64_t v;

	if (op >= 0x30 && op <= 0x4f) {		/* DW_OP_lit0 */
		push(e, op - 0x30);
	} else if (op >= 0x70 && op <= 0x8f) {	/* DW_OP_breg0 */
		push_reg(e, op - 0x70);
	} else if (op >= 0x08 && op <= 0x0f) {
		push(e, constant(e, op));
	} else if (op == 0x03) {		/* DW_OP_addr */
		push(e, take(e, 8));
	} else if (op == 0x06) {
		deref(e);
	} else if (op == 0x10 || op == 0x11) {	/* DW_OP_constu, DW_OP_consts */
		push(e, take_leb(e, op == 0x11));
	} else if (op == 0x12) {		/* DW_OP_dup */
		v = pop(e);
		push(e, v);
		push(e, v);
	} else if (op == 0x13) {		/* DW_OP_drop */
		pop(e);
	} else if (op == 0x14) {		/* DW_OP_over */
		v = e->depth > 1 ? e->stack[e->depth - 2] : pop(e) + pop(e);
		push(e, v);
	} else if (op == 0x16) {
		swap(e);
	} else if (op == 0x23) {		/* DW_OP_plus_uconst */
		v = take_leb(e, false);
		push(e, pop(e) + v);
	} else if (op == 0x28) {		/* DW_OP_bra */
		jump(e, pop(e));
	} else if (op == 0x2f) {		/* DW_OP_skip */
		jump(e, true);
	} else if (op == 0x92) {		/* DW_OP_bregx */
		push_reg(e, take_leb(e, false));
	} else if (op != 0x96) {		/* DW_OP_nop */
		push(e, compute(e, op));
	}
}

static bool evaluate(const struct dl_cfi_rule *rule, const struct dl_unwind_regs *regs, const struct dl_unwind_ops *ops,
		     const uint64_t *cfa, uint64_t *ret)
{
	struct expr e = { .p = rule->expr, .start = rule->expr, .end = rule->expr + rule->expr_sz, .regs = regs,
			  .ops = ops };

	if (!rule->expr)
		return false;
	if (cfa)
		push(&e, *cfa);
	for (int steps = 0; e.p < e.end && !e.bad; steps++) {
		if (steps == EXPR_STEPS_MAX)
			return false;
		step_expr(&e, (uint8_t)take(&e, 1));
	}
	*ret = pop(&e);
	return !e.bad;
}

/* --- signal frames ----------------------------------------------------------------------------- */

static bool read_x86(struct dl_sigframe *ret, const struct dl_unwind_ops *ops, uint64_t sp, uint8_t info[ARM_SIGINFO_SZ])
{
	uint64_t words[X86_UC_WORDS];
	const uint64_t *after = words + ARRAY_SIZE(x86_context);	/* flags, selectors, err, trapno, mask, cr2 */

	if (!ops->read(ops->arg, sp + X86_UC_REGS, words, sizeof(words)) ||
	    !ops->read(ops->arg, sp + X86_UC_SZ, info, ARM_SIGINFO_SZ) || (after[1] & 0xffff) != X86_USER_CS)
		return false;
	take_words(&ret->regs, x86_context, words, ARRAY_SIZE(x86_context));
	ret->has_error = after[3] == X86_PAGE_FAULT;
	ret->error = ret->has_error ? after[2] : 0;
	return true;
}

static bool read_arm64(struct dl_sigframe *ret, const struct dl_unwind_ops *ops, uint64_t sp, uint8_t info[ARM_SIGINFO_SZ])
{
	uint64_t words[ARM_UC_WORDS];

	return ops->read(ops->arg, sp, info, ARM_SIGINFO_SZ) &&
	       ops->read(ops->arg, sp + ARM_SIGINFO_SZ + ARM_UC_REGS, words, sizeof(words)) &&
	       dl_unwind_regs(&ret->regs, EM_AARCH64, words, ARM_UC_WORDS);
}

bool dl_sigframe_read(struct dl_sigframe *ret, uint16_t machine, const struct dl_unwind_ops *ops, uint64_t sp)
{
	uint8_t info[ARM_SIGINFO_SZ];
	int32_t sig, code;

	*ret = (struct dl_sigframe){ .regs.machine = machine };
	if (sp & 7 || !(machine == EM_X86_64 ? read_x86(ret, ops, sp, info) : read_arm64(ret, ops, sp, info)))
		return false;
	memcpy(&sig, info, sizeof(sig));
	memcpy(&code, info + 8, sizeof(code));
	memcpy(&ret->addr, info + 16, sizeof(ret->addr));
	if (sig < 1 || sig > 64 || code < -64 || code > 255 || !ret->regs.valid)
		return false;
	ret->sig = sig;
	ret->code = code;
	return true;
}

/* What a handler returns to, of a C library that says nothing about it: the system call rt_sigreturn. */
static bool is_sigreturn(uint16_t machine, const struct dl_elf *e, uint64_t vaddr)
{
	static const uint8_t x86[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };	/* mov $15,%rax; syscall */
	static const uint8_t arm[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4 };	/* mov x8, #139; svc #0 */
	const uint8_t *want = machine == EM_X86_64 ? x86 : arm;
	const size_t sz = machine == EM_X86_64 ? sizeof(x86) : sizeof(arm);
	uint8_t have[sizeof(x86)];

	for (uint32_t i = 0; i < e->load_cnt; i++) {
		const uint64_t into = vaddr - e->load[i].vaddr;

		if (vaddr >= e->load[i].vaddr && into < e->load[i].sz && e->load[i].sz - into >= sz)
			return pread(e->fd, have, sz, (off_t)(e->load[i].off + into)) == (ssize_t)sz &&
			       !memcmp(have, want, sz);
	}
	return false;
}

/* --- steps ------------------------------------------------------------------------------------- */

struct step {
	struct dl_unwinder *u;
	const struct dl_unwind_ops *ops;
	struct dl_unwind_regs regs;
	struct dl_frame *frame;		/* that the registers are of */
};

enum { STEP_OK = -1 };	/* else enum dl_stack_end */

/* One register of the caller. */
static bool caller_reg(const struct step *s, const struct dl_cfi_rule *rule, int number, uint64_t cfa, uint64_t *ret)
{
	uint64_t addr;

	switch (rule->how) {
	case DL_CFI_SAME:
		*ret = s->regs.r[number];
		return known(&s->regs, number);
	case DL_CFI_OFFSET:
		return read_word(s->ops, cfa + (uint64_t)rule->off, ret);
	case DL_CFI_VAL_OFFSET:
		*ret = cfa + (uint64_t)rule->off;
		return true;
	case DL_CFI_REG:
		*ret = s->regs.r[rule->reg];
		return known(&s->regs, rule->reg);
	case DL_CFI_EXPR:
		return evaluate(rule, &s->regs, s->ops, &cfa, &addr) && read_word(s->ops, addr, ret);
	case DL_CFI_VAL_EXPR:
		return evaluate(rule, &s->regs, s->ops, &cfa, ret);
	}
	return false;
}

static bool find_cfa(const struct step *s, const struct dl_cfi_rule *rule, uint64_t *ret)
{
	if (rule->how == DL_CFI_VAL_EXPR)
		return evaluate(rule, &s->regs, s->ops, NULL, ret);
	if (rule->how != DL_CFI_REG || !known(&s->regs, rule->reg))
		return false;
	*ret = s->regs.r[rule->reg] + (uint64_t)rule->off;
	return true;
}

static int step_cfi(struct step *s, const struct dl_elf *e, uint64_t vaddr)
{
	struct dl_cfi_row *row = &s->u->row;
	struct dl_unwind_regs to = { .machine = s->regs.machine };
	const int sp = sp_number(&s->regs);
	uint64_t cfa;

	if (dl_cfi_find(row, e, vaddr))
		return DL_STACK_NO_INFO;
	if (row->signal) {
		s->frame->trampoline = true;
		return STEP_OK;
	}
	if (row->rules.reg[row->ra].how == DL_CFI_UNDEFINED)
		return DL_STACK_BASE;
	if (!find_cfa(s, &row->rules.cfa, &cfa))
		return DL_STACK_BROKEN;
	for (int i = 0; i < DL_CFI_REGS; i++) {
		const struct dl_cfi_rule *rule = &row->rules.reg[i];
		uint64_t val;

		if (i == sp && rule->how == DL_CFI_SAME)
			set(&to, i, cfa);
		else if (caller_reg(s, rule, i, cfa, &val))
			set(&to, i, val);
		else if (i == row->ra)
			return rule->how == DL_CFI_OFFSET ? DL_STACK_MEMORY : DL_STACK_BROKEN;
	}
	to.pc = code_addr(&to, to.r[row->ra]);
	s->regs = to;
	return STEP_OK;
}

static bool is_code(const struct step *s, uint64_t pc)
{
	const struct dl_elf *e;
	uint64_t vaddr;

	return pc > 1 && s->ops->code(s->ops->arg, pc - 1, &e, &vaddr);
}

/* {frame pointer of the caller, return address} lie where the frame pointer points to, on both machines. */
static int step_pointer(struct step *s)
{
	const int fp = s->regs.machine == EM_X86_64 ? X86_RBP : ARM_FP;
	const uint64_t at = s->regs.r[fp];
	uint64_t pair[2];

	if (!known(&s->regs, fp) || at < dl_unwind_sp(&s->regs) || at & 7)
		return DL_STACK_NO_INFO;
	if (!s->ops->read(s->ops->arg, at, pair, sizeof(pair)))
		return DL_STACK_NO_INFO;
	pair[1] = code_addr(&s->regs, pair[1]);
	if (!is_code(s, pair[1]))
		return DL_STACK_NO_INFO;
	s->regs.valid = 0;
	set(&s->regs, fp, pair[0]);
	set(&s->regs, sp_number(&s->regs), at + sizeof(pair));
	s->regs.pc = pair[1];
	return STEP_OK;
}

/* A call to an address where no code is: nothing has been done there yet but the call. */
static int step_call(struct step *s)
{
	const uint64_t sp = dl_unwind_sp(&s->regs);
	uint64_t pc = s->regs.r[ARM_LR];

	if (s->regs.machine == EM_X86_64 && !read_word(s->ops, sp, &pc))
		return DL_STACK_MEMORY;
	pc = code_addr(&s->regs, pc);
	if (!is_code(s, pc))
		return DL_STACK_NO_INFO;
	if (s->regs.machine == EM_X86_64)
		set(&s->regs, X86_RSP, sp + sizeof(pc));
	s->regs.pc = pc;
	return STEP_OK;
}

static int step_signal(struct step *s)
{
	struct dl_sigframe sf;

	if (!dl_sigframe_read(&sf, s->regs.machine, s->ops, dl_unwind_sp(&s->regs)))
		return DL_STACK_BROKEN;
	s->regs = sf.regs;
	return STEP_OK;
}

/* To the caller; *ret_how: by what. */
static int step(struct step *s, enum dl_frame_how *ret_how)
{
	const struct dl_elf *e = NULL;
	const uint64_t pc = s->regs.pc;
	uint64_t vaddr = 0;
	int err = DL_STACK_NO_INFO;

	if (!s->ops->code(s->ops->arg, pc, &e, &vaddr) && !is_code(s, pc)) {
		*ret_how = DL_FRAME_CALL;
		return s->frame->exact ? step_call(s) : DL_STACK_NO_INFO;
	}
	*ret_how = DL_FRAME_CFI;
	/* The trampoline was not called: its first instruction is the return address, and that is what
	 * has to be looked for before the one in front of it. */
	if (e && !s->frame->exact && is_sigreturn(s->regs.machine, e, vaddr)) {
		s->frame->trampoline = true;
		err = STEP_OK;
	} else if (s->frame->exact) {
		err = e ? step_cfi(s, e, vaddr) : err;
	} else if (s->ops->code(s->ops->arg, pc - 1, &e, &vaddr)) {
		err = e ? step_cfi(s, e, vaddr) : err;
	}
	if (err == DL_STACK_NO_INFO) {
		*ret_how = DL_FRAME_POINTER;
		err = step_pointer(s);
	}
	if (err == STEP_OK && s->frame->trampoline) {
		*ret_how = DL_FRAME_SIGNAL;
		err = step_signal(s);
	}
	return err;
}

/* A step, and whether what it led to can be. */
static int next(struct step *s, enum dl_frame_how *ret_how)
{
	const struct dl_frame *f = s->frame;
	const int err = step(s, ret_how);
	uint64_t sp;

	if (err != STEP_OK || *ret_how == DL_FRAME_SIGNAL)
		return err;
	if (!s->regs.pc)
		return DL_STACK_BASE;
	/* Only the innermost function, or one that was interrupted, may have no frame of its own. */
	sp = dl_unwind_sp(&s->regs);
	if (sp < f->sp || (sp == f->sp && (!f->exact || s->regs.pc == f->pc)))
		return DL_STACK_BROKEN;
	return STEP_OK;
}

size_t dl_unwind(struct dl_unwinder *u, const struct dl_unwind_regs *regs, const struct dl_unwind_ops *ops,
		 uint64_t deadline, struct dl_frame *frames, size_t max, enum dl_stack_end *ret_end)
{
	struct step s = { .u = u, .ops = ops, .regs = *regs };
	enum dl_frame_how how = DL_FRAME_REGS;
	int end = STEP_OK;
	size_t cnt = 0;

	while (end == STEP_OK && cnt < max) {
		s.frame = &frames[cnt++];
		*s.frame = (struct dl_frame){ .pc = s.regs.pc, .sp = dl_unwind_sp(&s.regs), .how = (uint8_t)how,
					      .exact = how == DL_FRAME_REGS || how == DL_FRAME_SIGNAL };
		if (ops->visit)
			ops->visit(ops->arg, cnt - 1, &s.regs);
		end = dl_now_ns() >= deadline ? (int)DL_STACK_TIME : next(&s, &how);
	}
	if (ret_end)
		*ret_end = end == STEP_OK ? DL_STACK_FULL : (enum dl_stack_end)end;
	return cnt;
}
