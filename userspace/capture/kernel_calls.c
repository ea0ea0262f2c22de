/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What it costs to watch the exit of every system call, and when that is too much. Whoever asks for
 * raw_syscalls makes all threads of the machine leave the kernel the slow way, strangers to the recording, too:
 * nothing in most machines, but one that makes millions of calls a second would lose a tenth of its CPUs. What
 * a call costs is measured on the spot, how many there are is counted by the program itself.
 */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/kernel_priv.h"

#define ROUNDS 24
#define CALLS 256
#define DEAR_SHARE 0.02		/* of all CPUs */
#define DEAR_LOOKS 5		/* so many seconds in a row: an epoch's begin may read many small files */

/* Nanoseconds of a short system call. Others, and interrupts, only make a round longer: the shortest one counts. */
static double short_call_ns(void)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = dl_kernel_now(), took;

		for (int c = 0; c < CALLS; c++)
			syscall(SYS_getppid);
		took = dl_kernel_now() - start;
		best = took < best ? took : best;
	}
	return (double)best / CALLS;
}

static uint64_t count_calls(const struct dl_kernel *k)
{
	uint64_t cnt = 0;

	for (int i = 0; i < DL_CALL_SLOTS; i++)
		cnt += __atomic_load_n(&k->skel->bss->dl_calls[i].cnt, __ATOMIC_RELAXED);
	return cnt;
}

int dl_kernel_attach_calls(struct dl_kernel *k, struct bpf_program *prog)
{
	double before = short_call_ns(), with;

	k->calls.link = bpf_program__attach(prog);
	if (!k->calls.link)
		return -errno;
	with = short_call_ns();
	k->calls.call_ns = with > before ? with - before : 0;
	k->calls.cnt = count_calls(k);
	k->calls.ts = dl_kernel_now();
	return 0;
}

void dl_kernel_detach_calls(struct dl_kernel *k)
{
	bpf_link__destroy(k->calls.link);
	k->calls.link = NULL;
}

int dl_kernel_weigh_calls(struct dl_kernel *k, uint64_t now_ts, char *why, size_t sz)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	double rate, share;
	uint64_t cnt;
	int err;

	if (!k->calls.link || k->opts.all_syscalls || now_ts <= k->calls.ts)
		return 0;
	cnt = count_calls(k);
	rate = (double)(cnt - k->calls.cnt) * 1e9 / (double)(now_ts - k->calls.ts);
	share = rate * k->calls.call_ns / 1e9 / (double)(cpus > 0 ? cpus : 1);
	k->calls.cnt = cnt;
	k->calls.ts = now_ts;
	k->calls.dear = share > DEAR_SHARE ? k->calls.dear + 1 : 0;
	if (k->calls.dear < DEAR_LOOKS)
		return 0;
	dl_kernel_detach_calls(k);
	snprintf(why, sz, "failed system calls are not watched any more: this machine makes %.1f million calls a second, and at "
		 "%.0f ns each that took %.1f %% of its CPUs (--syscalls watches them all the same)", rate / 1e6,
		 k->calls.call_ns, 100 * share);
	err = dl_kernel_absent(k, DL_SRC_SYSCALLS, why);
	return err ? err : 1;
}
