/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * arm64: registers, and the code that runs in the target; step by step what inject_x86_64.c has
 * and explains. A branch that changes no register reaches 128 MiB, so that the cave has to be near the
 * interrupted call. It compiles; it has never run.
 */
#ifdef __aarch64__

#include "capture/inject_priv.h"

#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define SVC 0xd4000001U
#define SVC_SZ 4
#define BRANCH 0x14000000U
#define BRANCH_REACH (INT64_C(1) << 27)
#define CALL_BRANCH 56		/* offsets in the cave */
#define TAIL 60
#define TAIL_BRANCH 72

const unsigned int inject_machine = EM_AARCH64;
const bool inject_can_restart = false;	/* their first argument is gone */

__asm__(
	".pushsection .rodata.dlbpf_inject, \"a\"\n"
	".balign 64\n"
	".globl dlbpf_inject_code, dlbpf_inject_enter, dlbpf_inject_code_end\n"
	".hidden dlbpf_inject_code, dlbpf_inject_enter, dlbpf_inject_code_end\n"
	"dlbpf_inject_code:\n"

	/* What fork() calls first: see x86-64's. */
	"dlbpf_inject_prepare:\n"
	"	stp	x29, x30, [sp, #-32]!\n"
	"	stp	x19, x20, [sp, #16]\n"
	"	adr	x19, dlbpf_inject_code+65536\n"
	"	mov	x20, #100\n"
	"1:\n"
	"	ldr	w0, [x19, #204]\n"
	"	cbnz	w0, 2f\n"
	"	add	x0, x19, #204\n"
	"	mov	x1, #128\n"
	"	mov	x2, #0\n"
	"	add	x3, x19, #144\n"
	"	mov	x8, #98\n"
	"	svc	#0\n"
	"	subs	x20, x20, #1\n"
	"	b.ne	1b\n"
	"	mov	w0, #1\n"
	"	str	w0, [x19, #204]\n"
	"2:\n"
	"	ldp	x19, x20, [sp, #16]\n"
	"	ldp	x29, x30, [sp], #32\n"
	"	ret\n"

	/* The borrowed thread. */
	"dlbpf_inject_enter:\n"
	"	adr	x19, dlbpf_inject_code+65536\n"
	"	ldr	x0, [x19, #80]\n"
	"	ldr	x1, [x19, #88]\n"
	"	add	x0, x0, x1\n"
	"	mov	sp, x0\n"
	"	mov	x0, #2\n"
	"	add	x1, x19, #120\n"
	"	mov	x2, #0\n"
	"	mov	x3, #8\n"
	"	mov	x8, #135\n"
	"	svc	#0\n"
	"	ldr	x20, [x19, #80]\n"
	"	stp	q0, q1, [x20, #0]\n"
	"	stp	q2, q3, [x20, #32]\n"
	"	stp	q4, q5, [x20, #64]\n"
	"	stp	q6, q7, [x20, #96]\n"
	"	stp	q8, q9, [x20, #128]\n"
	"	stp	q10, q11, [x20, #160]\n"
	"	stp	q12, q13, [x20, #192]\n"
	"	stp	q14, q15, [x20, #224]\n"
	"	stp	q16, q17, [x20, #256]\n"
	"	stp	q18, q19, [x20, #288]\n"
	"	stp	q20, q21, [x20, #320]\n"
	"	stp	q22, q23, [x20, #352]\n"
	"	stp	q24, q25, [x20, #384]\n"
	"	stp	q26, q27, [x20, #416]\n"
	"	stp	q28, q29, [x20, #448]\n"
	"	stp	q30, q31, [x20, #480]\n"
	"	mrs	x21, fpcr\n"
	"	mrs	x22, fpsr\n"
	"	ldr	x9, [x19, #8]\n"
	"	blr	x9\n"
	"	mov	x23, x0\n"
	"	ldr	w24, [x0]\n"
	"	add	x0, x19, #96\n"
	"	mov	x1, #0\n"
	"	adr	x2, dlbpf_inject_worker\n"
	"	mov	x3, #0\n"
	"	ldr	x9, [x19, #0]\n"
	"	blr	x9\n"
	"	str	w24, [x23]\n"
	"	mov	w25, w0\n"
	"	ldp	q0, q1, [x20, #0]\n"
	"	ldp	q2, q3, [x20, #32]\n"
	"	ldp	q4, q5, [x20, #64]\n"
	"	ldp	q6, q7, [x20, #96]\n"
	"	ldp	q8, q9, [x20, #128]\n"
	"	ldp	q10, q11, [x20, #160]\n"
	"	ldp	q12, q13, [x20, #192]\n"
	"	ldp	q14, q15, [x20, #224]\n"
	"	ldp	q16, q17, [x20, #256]\n"
	"	ldp	q18, q19, [x20, #288]\n"
	"	ldp	q20, q21, [x20, #320]\n"
	"	ldp	q22, q23, [x20, #352]\n"
	"	ldp	q24, q25, [x20, #384]\n"
	"	ldp	q26, q27, [x20, #416]\n"
	"	ldp	q28, q29, [x20, #448]\n"
	"	ldp	q30, q31, [x20, #480]\n"
	"	msr	fpcr, x21\n"
	"	msr	fpsr, x22\n"
	"	neg	w25, w25\n"
	"	cmp	w25, #0\n"
	"	csinc	w25, w25, wzr, ne\n"
	"	str	w25, [x19, #192]\n"
	"	mov	x0, #0\n"
	"	mov	x1, #0\n"
	"	mov	x2, #0\n"
	"	mov	x3, #0\n"
	"	mov	x5, #0\n"
	"	add	x4, x19, #128\n"
	"	mov	x8, #72\n"
	"	svc	#0\n"
	"	mov	x0, #2\n"
	"	add	x1, x19, #104\n"
	"	mov	x2, #0\n"
	"	mov	x3, #8\n"
	"	mov	x8, #135\n"
	"	svc	#0\n"
	"	ldr	x0, [x19, #480]\n"
	"	msr	nzcv, x0\n"
	"	ldr	x0, [x19, #472]\n"
	"	mov	sp, x0\n"
	"	ldr	x17, [x19, #488]\n"
	"	mov	w0, #1\n"
	"	str	w0, [x19, #212]\n"
	"	mov	x16, x19\n"
	"	ldp	x0, x1, [x16, #224]\n"
	"	ldp	x2, x3, [x16, #240]\n"
	"	ldp	x4, x5, [x16, #256]\n"
	"	ldp	x6, x7, [x16, #272]\n"
	"	ldp	x8, x9, [x16, #288]\n"
	"	ldp	x10, x11, [x16, #304]\n"
	"	ldp	x12, x13, [x16, #320]\n"
	"	ldp	x14, x15, [x16, #336]\n"
	"	ldp	x18, x19, [x16, #368]\n"
	"	ldp	x20, x21, [x16, #384]\n"
	"	ldp	x22, x23, [x16, #400]\n"
	"	ldp	x24, x25, [x16, #416]\n"
	"	ldp	x26, x27, [x16, #432]\n"
	"	ldp	x28, x29, [x16, #448]\n"
	"	ldr	x30, [x16, #464]\n"
	"	br	x17\n"

	/* The new thread. */
	"dlbpf_inject_worker:\n"
	"	stp	x29, x30, [sp, #-64]!\n"
	"	stp	x19, x20, [sp, #16]\n"
	"	stp	x21, x22, [sp, #32]\n"
	"	str	x23, [sp, #48]\n"
	"	adr	x19, dlbpf_inject_code+65536\n"
	"	mov	x0, #2\n"
	"	add	x1, x19, #112\n"
	"	mov	x2, #0\n"
	"	mov	x3, #8\n"
	"	mov	x8, #135\n"
	"	svc	#0\n"
	"	ldr	x9, [x19, #56]\n"
	"	blr	x9\n"
	"	ldr	x9, [x19, #64]\n"
	"	blr	x9\n"
	"	mov	w0, #1\n"
	"	str	w0, [x19, #208]\n"
	"	mov	x20, #9\n"
	"1:\n"
	"	add	x0, x19, #512\n"
	"	mov	x1, x20\n"
	"	mov	x8, #279\n"
	"	svc	#0\n"
	"	mov	x21, x0\n"
	"	tbz	w0, #31, 2f\n"
	"	cmp	x20, #1\n"
	"	mov	x20, #1\n"
	"	b.ne	1b\n"
	"	str	w21, [x19, #216]\n"
	"	mov	w0, #-1\n"
	"	str	w0, [x19, #208]\n"
	"	b	90f\n"
	"2:\n"
	"	add	w0, w21, #1\n"
	"	str	w0, [x19, #196]\n"
	"	mov	x20, #500\n"
	"3:\n"
	"	ldr	w23, [x19, #200]\n"
	"	cbnz	w23, 4f\n"
	"	add	x0, x19, #200\n"
	"	mov	x1, #128\n"
	"	mov	x2, #0\n"
	"	add	x3, x19, #144\n"
	"	mov	x8, #98\n"
	"	svc	#0\n"
	"	subs	x20, x20, #1\n"
	"	b.ne	3b\n"
	"4:\n"
	"	cmp	w23, #1\n"
	"	b.eq	5f\n"
	"	mov	x0, x21\n"
	"	mov	x8, #57\n"
	"	svc	#0\n"
	"	mov	w0, #-2\n"
	"	str	w0, [x19, #208]\n"
	"	b	90f\n"
	"5:\n"
	"	dmb	ish\n"
	"	mov	w0, #2\n"
	"	str	w0, [x19, #208]\n"
	"	adr	x0, dlbpf_inject_prepare\n"
	"	mov	x1, #0\n"
	"	mov	x2, #0\n"
	"	ldr	x3, [x19, #72]\n"
	"	ldr	x9, [x19, #16]\n"
	"	blr	x9\n"
	"	add	x0, x19, #160\n"
	"	mov	x1, #0\n"
	"	mov	x8, #101\n"
	"	svc	#0\n"
	"	add	x0, x19, #576\n"
	"	mov	x1, #2\n"
	"	ldr	x9, [x19, #32]\n"
	"	blr	x9\n"
	"	mov	x22, x0\n"
	"	mov	x23, #0\n"
	"	cbnz	x0, 6f\n"
	"	ldr	x9, [x19, #48]\n"
	"	blr	x9\n"
	"	mov	x23, x0\n"
	"6:\n"
	"	dmb	ish\n"
	"	mov	w0, #1\n"
	"	str	w0, [x19, #204]\n"
	"	add	x0, x19, #204\n"
	"	mov	x1, #129\n"
	"	mov	x2, #0x7fffffff\n"
	"	mov	x8, #98\n"
	"	svc	#0\n"
	"	ldr	x0, [x19, #72]\n"
	"	ldr	x9, [x19, #24]\n"
	"	blr	x9\n"
	"	mov	x0, x21\n"
	"	mov	x8, #57\n"
	"	svc	#0\n"
	"	cbz	x22, 80f\n"
	"	mov	x0, x22\n"
	"	add	x1, x19, #640\n"
	"	ldr	x9, [x19, #40]\n"
	"	blr	x9\n"
	"	cbz	x0, 70f\n"
	"	blr	x0\n"
	"	str	w0, [x19, #216]\n"
	"	dmb	ish\n"
	"	mov	w0, #3\n"
	"	str	w0, [x19, #208]\n"
	"	b	90f\n"
	"70:\n"
	"	mov	w0, #-4\n"
	"	str	w0, [x19, #208]\n"
	"	b	90f\n"
	"80:\n"
	"	cbz	x23, 83f\n"
	"	add	x1, x19, #672\n"
	"	mov	x2, #255\n"
	"81:\n"
	"	ldrb	w0, [x23], #1\n"
	"	strb	w0, [x1], #1\n"
	"	cbz	w0, 83f\n"
	"	subs	x2, x2, #1\n"
	"	b.ne	81b\n"
	"83:\n"
	"	dmb	ish\n"
	"	mov	w0, #-3\n"
	"	str	w0, [x19, #208]\n"
	"90:\n"
	"	mov	x20, #500\n"
	"91:\n"
	"	ldr	w0, [x19, #212]\n"
	"	cbnz	w0, 92f\n"
	"	add	x0, x19, #212\n"
	"	mov	x1, #128\n"
	"	mov	x2, #0\n"
	"	add	x3, x19, #144\n"
	"	mov	x8, #98\n"
	"	svc	#0\n"
	"	subs	x20, x20, #1\n"
	"	b.ne	91b\n"
	"	b	93f\n"
	"92:\n"
	"	ldr	x0, [x19, #80]\n"
	"	ldr	x1, [x19, #88]\n"
	"	mov	x8, #215\n"
	"	svc	#0\n"
	"93:\n"
	"	ldr	x23, [sp, #48]\n"
	"	ldp	x21, x22, [sp, #32]\n"
	"	ldp	x19, x20, [sp, #16]\n"
	"	ldp	x29, x30, [sp], #64\n"
	"	mov	x0, #0\n"
	"	ret\n"
	"dlbpf_inject_code_end:\n"

	/* One system call, and all back; then the end of the way back from the page, which needs x16 and
	 * x17. The two branches are filled in, and the numbers: mask, x0-x5, x8, x16, x17. */
	".globl dlbpf_inject_call, dlbpf_inject_call_end\n"
	".hidden dlbpf_inject_call, dlbpf_inject_call_end\n"
	".balign 16\n"
	"dlbpf_inject_call:\n"
	"	svc	#0\n"
	"	mov	x0, #2\n"
	"	adr	x1, dlbpf_inject_call+128\n"
	"	mov	x2, #0\n"
	"	mov	x3, #8\n"
	"	mov	x8, #135\n"
	"	svc	#0\n"
	"	ldr	x0, dlbpf_inject_call+136\n"
	"	ldr	x1, dlbpf_inject_call+144\n"
	"	ldr	x2, dlbpf_inject_call+152\n"
	"	ldr	x3, dlbpf_inject_call+160\n"
	"	ldr	x4, dlbpf_inject_call+168\n"
	"	ldr	x5, dlbpf_inject_call+176\n"
	"	ldr	x8, dlbpf_inject_call+184\n"
	"	.inst	0x14000000\n"
	"	hint	#38\n"
	"	ldr	x16, dlbpf_inject_call+192\n"
	"	ldr	x17, dlbpf_inject_call+200\n"
	"	.inst	0x14000000\n"
	".org dlbpf_inject_call+128\n"
	"dlbpf_inject_call_end:\n"
	".popsection\n");

extern const uint8_t dlbpf_inject_call[], dlbpf_inject_call_end[];

/* Begun anew, these would wait their whole time once more; the kernel knows what is left. */
static bool is_relative(const struct inject_wait *w)
{
	switch (w->nr) {
	case SYS_nanosleep:
		return true;
	case SYS_clock_nanosleep:
		return !(w->args[1] & TIMER_ABSTIME);
	case SYS_futex:
		return ((int)w->args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && w->args[3];
	}
	return false;
}

/* The kernel has set the registers back to before the call by now, when it is to be restarted. */
bool inject_stop_read(struct inject_stop *s)
{
	const struct user_regs_struct *r = &s->regs;

	if (s->code[1] != SVC)
		return false;
	s->wait = (struct inject_wait){ .nr = (int64_t)r->regs[8], .sp = r->sp, .pc = r->pc + SVC_SZ };
	memcpy(s->wait.args, r->regs, sizeof(s->wait.args));
	s->home = *r;
	if (is_relative(&s->wait))
		s->home.regs[8] = SYS_restart_syscall;
	s->self = s->home;
	return true;
}

static void put_branch(uint8_t *buf, uint64_t off, uint64_t addr, uint64_t to)
{
	const uint32_t insn = BRANCH | ((uint32_t)((int64_t)(to - (addr + off)) >> 2) & 0x3ffffff);

	memcpy(buf + off, &insn, sizeof(insn));
}

size_t inject_cave(const struct inject_stop *s, uint64_t addr, uint8_t buf[INJECT_CAVE_MAX])
{
	const unsigned long long *r = s->self.regs;
	const uint64_t words[] = { s->mask, r[0], r[1], r[2], r[3], r[4], r[5], r[8], r[16], r[17] };
	const size_t sz = (size_t)(dlbpf_inject_call_end - dlbpf_inject_call);

	_Static_assert(128 + sizeof(words) <= INJECT_CAVE_MAX, "a cave is large enough");
	memcpy(buf, dlbpf_inject_call, sz);
	memcpy(buf + sz, words, sizeof(words));
	put_branch(buf, CALL_BRANCH, addr, s->self.pc);
	put_branch(buf, TAIL_BRANCH, addr, s->self.pc);
	return sz + sizeof(words);
}

bool inject_cave_reaches(uint64_t cave, const struct inject_stop *s)
{
	const int64_t way = (int64_t)(s->self.pc - cave);

	return way > -BRANCH_REACH + INJECT_CAVE_MAX && way < BRANCH_REACH - INJECT_CAVE_MAX;
}

void inject_set_call(struct user_regs_struct *regs, uint64_t cave, int64_t nr, const uint64_t args[6])
{
	memcpy(regs->regs, args, 6 * sizeof(*args));
	regs->regs[8] = (unsigned long long)nr;
	regs->pc = cave;
}

int64_t inject_call_result(const struct user_regs_struct *regs)
{
	return (int64_t)regs->regs[0];
}

void inject_set_enter(const struct inject_stop *s, struct user_regs_struct *regs, struct inject_data *data,
		      uint64_t base, uint64_t cave)
{

	memcpy(data->saved, s->self.regs, sizeof(s->self.regs));
	data->saved[31] = s->self.sp;
	data->saved[32] = s->self.pstate & 0xf0000000;
	data->saved[33] = cave + TAIL;
	*regs = s->regs;
	regs->pc = base + (uint64_t)(dlbpf_inject_enter - dlbpf_inject_code);
}

uint64_t inject_pc(const struct user_regs_struct *regs)
{
	return regs->pc;
}

#endif
