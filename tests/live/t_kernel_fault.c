/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the kernel side copies of a thread that gets a fatal signal by its own doing. */
#include <elf.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include <dlbpf/bpf_shared.h>

#include "capture/unwind.h"
#include "kernel_test.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

static void segv(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	*(volatile int *)0x1234 = 1;
}

/* The instruction of the fault, as SIGNAL has it. */
static uint64_t signal_ip(void)
{
	EACH(&h, SIGNAL, signal, e)
		if (e->sig == SIGSEGV && e->code > 0)
			return e->ip;
	FAIL("no SIGSEGV of a fault");
}

enum { MARKS = 64 };

static void raise_again(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
}

static void marked_segv(struct truth *t, void *arg)
{
	volatile uint64_t marks[MARKS];

	for (uint64_t i = 0; i < MARKS; i++)
		marks[i] = 0x6d61726b00000000 + i;
	t->v[0] = (intptr_t)marks;
	signal(SIGSEGV, raise_again);
	segv(t, arg);
	t->v[1] = (int64_t)marks[3];
}

/* Of the first signal, not of the one that its handler raises again. */
TEST(registers_and_stack_of_a_fault)
{
	const struct dl_fault_stack *fs;
	struct dl_unwind_regs regs;
	uint64_t marks[MARKS];
	size_t pos = 0, into;

	need_kernel();
	CHECK_EQ(harness_run(&h, marked_segv, NULL) & 0x7f, SIGSEGV);
	CHECK_EQ(harness_count(&h, DL_KIND_FAULT_STACK), 1);
	fs = harness_next(&h, DL_KIND_FAULT_STACK, &pos);
	CHECK_EQ(fs->sig, SIGSEGV);
	CHECK_EQ(fs->code, 1);
	CHECK_EQ(fs->addr, 0x1234);
	CHECK(dl_unwind_regs(&regs, MACHINE, fs->regs, fs->words));
	CHECK_EQ(regs.pc, signal_ip());
	into = (size_t)h.truth->v[0] - dl_unwind_sp(&regs);
	CHECK_MSG(into + sizeof(marks) <= fs->stack_sz, "%zu of %u", into, fs->stack_sz);
	memcpy(marks, fs->stack + into, sizeof(marks));
	for (uint64_t i = 0; i < MARKS; i++)
		CHECK_EQ(marks[i], 0x6d61726b00000000 + i);
	if (!fs->map_start)
		SKIP("this kernel cannot look up a mapping in BPF");
	CHECK(fs->map_start <= regs.pc && fs->map_ino);
}

static sigjmp_buf after_fault;

static void go_on(int sig)
{
	siglongjmp(after_fault, sig);
}

static void many_segv(struct truth *t, void *arg)
{
	signal(SIGSEGV, go_on);
	for (t->v[0] = 0; t->v[0] < 300; t->v[0]++)
		if (!sigsetjmp(after_fault, 1))
			segv(t, arg);
}

/* A program that mends its faults does not fill the ring. */
TEST(few_stacks_of_many_faults)
{
	uint64_t start = mono_ns();
	size_t signals = 0;

	need_kernel();
	CHECK_EQ(harness_run(&h, many_segv, NULL), 0);
	EACH(&h, SIGNAL, signal, e)
		signals += e->sig == SIGSEGV;
	CHECK_EQ(signals, 300);
	CHECK(harness_count(&h, DL_KIND_FAULT_STACK) >= 1);
	CHECK(harness_count(&h, DL_KIND_FAULT_STACK) <= 2 + (mono_ns() - start) / 1000000000);
}

static void give_up(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	abort();
}

static void raise_usr1(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	raise(SIGUSR1);
}

static void wait_for_ever(struct truth *t, void *arg)
{
	(void)t, (void)arg;
	pause();
}

/* abort() sends its signal by a system call: the registers are those of the call. */
TEST(abort_too)
{
	const struct dl_fault_stack *fs;
	struct dl_unwind_regs regs;
	size_t pos = 0;

	need_kernel();
	CHECK_EQ(harness_run(&h, give_up, NULL) & 0x7f, SIGABRT);
	CHECK_EQ(harness_count(&h, DL_KIND_FAULT_STACK), 1);
	fs = harness_next(&h, DL_KIND_FAULT_STACK, &pos);
	CHECK_EQ(fs->sig, SIGABRT);
	CHECK_EQ(fs->code, SI_TKILL);
	CHECK_EQ(fs->addr, 0);
	CHECK(dl_unwind_regs(&regs, MACHINE, fs->regs, fs->words) && regs.pc);
	CHECK(fs->stack_sz >= DL_FAULT_CHUNK);
}

/* Signals of others, and those that are no program error, are not copied. */
TEST(no_stack_of_other_signals)
{
	pid_t pid;
	int go;

	need_kernel();
	CHECK_EQ(harness_run(&h, raise_usr1, NULL) & 0x7f, SIGUSR1);
	CHECK_EQ(harness_count(&h, DL_KIND_FAULT_STACK), 0);
	harness_reset(&h);
	pid = harness_start(&h, wait_for_ever, NULL, &go);
	CHECK(pid > 0 && !harness_go(&h, pid, go));
	usleep(100000);
	CHECK(!kill(pid, SIGSEGV));
	CHECK_EQ(harness_finish(&h, pid, true) & 0x7f, SIGSEGV);
	CHECK_EQ(harness_count(&h, DL_KIND_FAULT_STACK), 0);
}
