/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * x86-64: registers, and the code that runs in the target. It lies in our read-only data, is copied,
 * and addresses the page of data behind it relative to itself. Returns are matched by calls and all
 * else are jumps, so that shadow stacks see nothing unusual.
 */
#ifdef __x86_64__

#include "capture/inject_priv.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

/* include/linux/errno.h of the kernel: never seen by a program that is not traced */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

#define SYSCALL_SZ 2

const unsigned int inject_machine = EM_X86_64;
const bool inject_can_restart = true;

/* A word of struct inject_data. */
#define D(off) "dlbpf_inject_code+4096+" #off "(%rip)"

__asm__(
	".pushsection .rodata.dlbpf_inject, \"a\"\n"
	".balign 64\n"
	".globl dlbpf_inject_code, dlbpf_inject_enter, dlbpf_inject_code_end\n"
	".hidden dlbpf_inject_code, dlbpf_inject_enter, dlbpf_inject_code_end\n"
	"dlbpf_inject_code:\n"

	/* What fork() of any thread calls first, while the loader is at work here: wait a second at
	 * most, since a child that inherits half-changed lists of libraries dies at its next dlopen(). */
	"dlbpf_inject_prepare:\n"
	"	push	%rbx\n"
	"	mov	$100, %ebx\n"
	"1:	cmpl	$0, " D(204) "\n"
	"	jne	2f\n"
	"	lea	" D(204) ", %rdi\n"
	"	mov	$128, %esi\n"			/* FUTEX_WAIT | FUTEX_PRIVATE_FLAG */
	"	xor	%edx, %edx\n"
	"	lea	" D(144) ", %r10\n"
	"	mov	$202, %eax\n"			/* futex */
	"	syscall\n"
	"	dec	%ebx\n"
	"	jne	1b\n"
	"	movl	$1, " D(204) "\n"
	"2:	pop	%rbx\n"
	"	ret\n"

	/* The borrowed thread. All its registers are in saved[], the vector registers not yet. */
	"dlbpf_inject_enter:\n"
	"	mov	" D(80) ", %rsp\n"
	"	add	" D(88) ", %rsp\n"
	"	cld\n"
	"	mov	$2, %edi\n"			/* SIG_SETMASK: all; the new thread inherits it */
	"	lea	" D(120) ", %rsi\n"
	"	xor	%edx, %edx\n"
	"	mov	$8, %r10d\n"
	"	mov	$14, %eax\n"			/* rt_sigprocmask */
	"	syscall\n"
	"	mov	" D(80) ", %rbx\n"
	"	xor	%ecx, %ecx\n"
	"	xgetbv\n"
	"	mov	%eax, %r12d\n"
	"	mov	%edx, %r13d\n"
	"	xsave64	(%rbx)\n"
	"	call	*" D(8) "\n"			/* __errno_location */
	"	mov	%rax, %r14\n"
	"	mov	(%rax), %r15d\n"
	"	lea	" D(96) ", %rdi\n"
	"	xor	%esi, %esi\n"
	"	lea	dlbpf_inject_worker(%rip), %rdx\n"
	"	xor	%ecx, %ecx\n"
	"	call	*" D(0) "\n"			/* pthread_create */
	"	mov	%r15d, (%r14)\n"
	"	mov	%eax, %ebp\n"
	"	mov	%r12d, %eax\n"
	"	mov	%r13d, %edx\n"
	"	xrstor64 (%rbx)\n"
	"	mov	$1, %eax\n"
	"	neg	%ebp\n"
	"	cmovz	%eax, %ebp\n"
	"	mov	%ebp, " D(192) "\n"
	/* Waits to be put back, with a call that leaves no trace in the task: the interrupted one may
	 * have state there by which it is continued. Goes back by itself when nobody comes. */
	"	xor	%edi, %edi\n"
	"	xor	%esi, %esi\n"
	"	xor	%edx, %edx\n"
	"	xor	%r10d, %r10d\n"
	"	lea	" D(128) ", %r8\n"
	"	xor	%r9d, %r9d\n"
	"	mov	$270, %eax\n"			/* pselect6 */
	"	syscall\n"
	"	mov	$2, %edi\n"
	"	lea	" D(104) ", %rsi\n"
	"	xor	%edx, %edx\n"
	"	mov	$8, %r10d\n"
	"	mov	$14, %eax\n"
	"	syscall\n"
	"	pushq	" D(360) "\n"			/* saved[17]: flags */
	"	popfq\n"
	"	mov	" D(224) ", %rax\n"
	"	mov	" D(232) ", %rbx\n"
	"	mov	" D(240) ", %rcx\n"
	"	mov	" D(248) ", %rdx\n"
	"	mov	" D(256) ", %rsi\n"
	"	mov	" D(264) ", %rdi\n"
	"	mov	" D(272) ", %rbp\n"
	"	mov	" D(280) ", %rsp\n"
	"	mov	" D(288) ", %r8\n"
	"	mov	" D(296) ", %r9\n"
	"	mov	" D(304) ", %r10\n"
	"	mov	" D(312) ", %r11\n"
	"	mov	" D(320) ", %r12\n"
	"	mov	" D(328) ", %r13\n"
	"	mov	" D(336) ", %r14\n"
	"	mov	" D(344) ", %r15\n"
	"	movl	$1, " D(212) "\n"
	"	jmp	*" D(352) "\n"

	/* The new thread. */
	"dlbpf_inject_worker:\n"
	"	push	%rbx\n"
	"	push	%rbp\n"
	"	push	%r12\n"
	"	mov	$2, %edi\n"
	"	lea	" D(112) ", %rsi\n"
	"	xor	%edx, %edx\n"
	"	mov	$8, %r10d\n"
	"	mov	$14, %eax\n"
	"	syscall\n"
	"	call	*" D(56) "\n"			/* pthread_self */
	"	mov	%rax, %rdi\n"
	"	call	*" D(64) "\n"			/* pthread_detach */
	"	movl	$1, " D(208) "\n"
	"	mov	$9, %esi\n"			/* MFD_CLOEXEC | MFD_NOEXEC_SEAL */
	"1:	lea	" D(512) ", %rdi\n"
	"	mov	$319, %eax\n"			/* memfd_create */
	"	syscall\n"
	"	mov	%rax, %rbp\n"
	"	test	%eax, %eax\n"
	"	jns	2f\n"
	"	cmp	$1, %esi\n"
	"	mov	$1, %esi\n"			/* without MFD_NOEXEC_SEAL, before 6.3 */
	"	jne	1b\n"
	"	mov	%ebp, " D(216) "\n"
	"	movl	$-1, " D(208) "\n"
	"	jmp	90f\n"
	"2:	lea	1(%rbp), %eax\n"
	"	mov	%eax, " D(196) "\n"
	"	mov	$500, %r12d\n"			/* ticks until it is filled */
	"3:	mov	" D(200) ", %eax\n"
	"	test	%eax, %eax\n"
	"	jne	4f\n"
	"	lea	" D(200) ", %rdi\n"
	"	mov	$128, %esi\n"
	"	xor	%edx, %edx\n"
	"	lea	" D(144) ", %r10\n"
	"	mov	$202, %eax\n"
	"	syscall\n"
	"	dec	%r12d\n"
	"	jne	3b\n"
	"4:	cmp	$1, %eax\n"
	"	je	5f\n"
	"	mov	%ebp, %edi\n"
	"	mov	$3, %eax\n"			/* close */
	"	syscall\n"
	"	movl	$-2, " D(208) "\n"
	"	jmp	90f\n"
	"5:	movl	$2, " D(208) "\n"
	"	lea	dlbpf_inject_prepare(%rip), %rdi\n"
	"	xor	%esi, %esi\n"
	"	xor	%edx, %edx\n"
	"	mov	" D(72) ", %rcx\n"
	"	call	*" D(16) "\n"			/* __register_atfork */
	/* A fork that was past the handlers by now holds malloc's locks soon, which dlopen() needs
	 * before it changes anything. */
	"	lea	" D(160) ", %rdi\n"
	"	xor	%esi, %esi\n"
	"	mov	$35, %eax\n"			/* nanosleep */
	"	syscall\n"
	"	lea	" D(576) ", %rdi\n"
	"	mov	$2, %esi\n"			/* RTLD_NOW | RTLD_LOCAL */
	"	call	*" D(32) "\n"			/* dlopen */
	"	mov	%rax, %rbx\n"
	"	xor	%r12d, %r12d\n"
	"	test	%rax, %rax\n"
	"	jne	6f\n"
	"	call	*" D(48) "\n"			/* dlerror */
	"	mov	%rax, %r12\n"
	"6:	movl	$1, " D(204) "\n"
	"	lea	" D(204) ", %rdi\n"
	"	mov	$129, %esi\n"			/* FUTEX_WAKE | FUTEX_PRIVATE_FLAG */
	"	mov	$0x7fffffff, %edx\n"
	"	mov	$202, %eax\n"
	"	syscall\n"
	"	mov	" D(72) ", %rdi\n"
	"	call	*" D(24) "\n"			/* __cxa_finalize: takes the handler away */
	"	mov	%ebp, %edi\n"
	"	mov	$3, %eax\n"
	"	syscall\n"
	"	test	%rbx, %rbx\n"
	"	je	80f\n"
	"	mov	%rbx, %rdi\n"
	"	lea	" D(640) ", %rsi\n"
	"	call	*" D(40) "\n"			/* dlsym */
	"	test	%rax, %rax\n"
	"	je	70f\n"
	"	call	*%rax\n"
	"	mov	%eax, " D(216) "\n"
	"	movl	$3, " D(208) "\n"
	"	jmp	90f\n"
	"70:	movl	$-4, " D(208) "\n"
	"	jmp	90f\n"
	"80:	test	%r12, %r12\n"
	"	je	83f\n"
	"	mov	%r12, %rsi\n"
	"	lea	" D(672) ", %rdi\n"
	"	mov	$255, %ecx\n"
	"81:	mov	(%rsi), %al\n"
	"	mov	%al, (%rdi)\n"
	"	test	%al, %al\n"
	"	je	83f\n"
	"	inc	%rsi\n"
	"	inc	%rdi\n"
	"	dec	%ecx\n"
	"	jne	81b\n"
	"83:	movl	$-3, " D(208) "\n"
	/* Until the borrowed thread has left its stack, but not for ever. */
	"90:	mov	$500, %r12d\n"
	"91:	cmpl	$0, " D(212) "\n"
	"	jne	92f\n"
	"	lea	" D(212) ", %rdi\n"
	"	mov	$128, %esi\n"
	"	xor	%edx, %edx\n"
	"	lea	" D(144) ", %r10\n"
	"	mov	$202, %eax\n"
	"	syscall\n"
	"	dec	%r12d\n"
	"	jne	91b\n"
	"	jmp	93f\n"
	"92:	mov	" D(80) ", %rdi\n"
	"	mov	" D(88) ", %rsi\n"
	"	mov	$11, %eax\n"			/* munmap */
	"	syscall\n"
	"93:	pop	%r12\n"
	"	pop	%rbp\n"
	"	pop	%rbx\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"dlbpf_inject_code_end:\n"

	/* One system call, and everything back as it was: whenever the tracer dies, the thread goes
	 * on. Numbers behind it: the signal mask, rax, rdi, rsi, rdx, r10, r8, r9, rcx, r11, rip. */
	".globl dlbpf_inject_call, dlbpf_inject_call_end\n"
	".hidden dlbpf_inject_call, dlbpf_inject_call_end\n"
	".balign 16\n"
	"dlbpf_inject_call:\n"
	"	syscall\n"
	"	mov	$2, %edi\n"
	"	lea	dlbpf_inject_call+128(%rip), %rsi\n"
	"	mov	$0, %edx\n"			/* not xor: flags stay */
	"	mov	$8, %r10d\n"
	"	mov	$14, %eax\n"
	"	syscall\n"
	"	mov	dlbpf_inject_call+136(%rip), %rax\n"
	"	mov	dlbpf_inject_call+144(%rip), %rdi\n"
	"	mov	dlbpf_inject_call+152(%rip), %rsi\n"
	"	mov	dlbpf_inject_call+160(%rip), %rdx\n"
	"	mov	dlbpf_inject_call+168(%rip), %r10\n"
	"	mov	dlbpf_inject_call+176(%rip), %r8\n"
	"	mov	dlbpf_inject_call+184(%rip), %r9\n"
	"	mov	dlbpf_inject_call+192(%rip), %rcx\n"
	"	mov	dlbpf_inject_call+200(%rip), %r11\n"
	"	jmp	*dlbpf_inject_call+208(%rip)\n"
	".org dlbpf_inject_call+128\n"
	"dlbpf_inject_call_end:\n"
	".popsection\n");

extern const uint8_t dlbpf_inject_call[], dlbpf_inject_call_end[];

bool inject_stop_read(struct inject_stop *s)
{
	struct user_regs_struct *r = &s->regs;
	const int64_t rax = (int64_t)r->rax;

	if (r->cs != 0x33 || (int64_t)r->orig_rax < 0)
		return false;
	s->wait = (struct inject_wait){ .nr = (int64_t)r->orig_rax, .sp = r->rsp, .pc = r->rip,
					.args = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 } };
	s->home = s->self = *r;
	if (rax == -EINTR && inject_wait_needs_restart(s->wait.nr))
		s->home.rax = (unsigned long long)-ERESTARTNOHAND;
	switch (-(int64_t)s->home.rax) {
	case ERESTARTSYS:
	case ERESTARTNOINTR:
	case ERESTARTNOHAND:
		s->self.rax = r->orig_rax;
		s->self.rip -= SYSCALL_SZ;
		break;
	case ERESTART_RESTARTBLOCK:
		s->self.rax = SYS_restart_syscall;
		s->self.rip -= SYSCALL_SZ;
		break;
	}
	s->self.orig_rax = (unsigned long long)-1;
	return true;
}

size_t inject_cave(const struct inject_stop *s, uint64_t addr, uint8_t buf[INJECT_CAVE_MAX])
{
	const struct user_regs_struct *r = &s->self;
	const uint64_t words[] = { s->mask, r->rax, r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9, r->rcx,
				   r->r11, r->rip };
	const size_t sz = (size_t)(dlbpf_inject_call_end - dlbpf_inject_call);

	_Static_assert(128 + sizeof(words) <= INJECT_CAVE_MAX, "a cave is large enough");
	(void)addr;
	memcpy(buf, dlbpf_inject_call, sz);
	memcpy(buf + sz, words, sizeof(words));
	return sz + sizeof(words);
}

bool inject_cave_reaches(uint64_t cave, const struct inject_stop *s)
{
	(void)cave;
	(void)s;
	return true;	/* by a jump through memory */
}

void inject_set_call(struct user_regs_struct *regs, uint64_t cave, int64_t nr, const uint64_t args[6])
{
	regs->rip = cave;
	regs->rax = (unsigned long long)nr;
	regs->orig_rax = (unsigned long long)-1;	/* nothing for the kernel to restart */
	regs->rdi = args[0];
	regs->rsi = args[1];
	regs->rdx = args[2];
	regs->r10 = args[3];
	regs->r8 = args[4];
	regs->r9 = args[5];
}

int64_t inject_call_result(const struct user_regs_struct *regs)
{
	return (int64_t)regs->rax;
}

void inject_set_enter(const struct inject_stop *s, struct user_regs_struct *regs, struct inject_data *data,
		      uint64_t base, uint64_t cave)
{
	const struct user_regs_struct *r = &s->self;
	const uint64_t saved[] = { r->rax, r->rbx, r->rcx, r->rdx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8, r->r9,
				   r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip, r->eflags };

	(void)cave;
	memcpy(data->saved, saved, sizeof(saved));
	*regs = s->regs;
	regs->rip = base + (uint64_t)(dlbpf_inject_enter - dlbpf_inject_code);
	regs->orig_rax = (unsigned long long)-1;
}

uint64_t inject_pc(const struct user_regs_struct *regs)
{
	return regs->rip;
}

#endif
