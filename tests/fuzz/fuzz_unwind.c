/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The unwinder, with any bytes as the program that a stack goes through: it has to end, and within bounds. */
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/elf.h"
#include "capture/unwind.h"
#include "fuzz/driver.h"

enum { WORDS = 512, FRAMES = 32, PLACES = 64 };

#define BASE UINT64_C(0x10000000)
#define STACK UINT64_C(0x7000000000)

static struct dl_elf elf;
static uint64_t stack[WORDS];

static bool read_stack(void *arg, uint64_t addr, void *buf, size_t sz)
{
	(void)arg;
	if (addr < STACK || addr - STACK > sizeof(stack) || sz > sizeof(stack) - (addr - STACK))
		return false;
	memcpy(buf, (const char *)stack + (addr - STACK), sz);
	return true;
}

static bool code_at(void *arg, uint64_t addr, const struct dl_elf **ret_elf, uint64_t *ret_vaddr)
{
	(void)arg;
	*ret_elf = NULL;
	if (addr < BASE || addr - BASE > elf.size)
		return false;
	if (dl_elf_vaddr(&elf, addr - BASE, ret_vaddr))
		*ret_elf = &elf;
	return true;
}

static void unwind_at(uint16_t machine, uint64_t off)
{
	const struct dl_unwind_ops ops = { .read = read_stack, .code = code_at };
	struct dl_unwinder *u = dl_unwinder_new();
	struct dl_frame frames[FRAMES];
	struct dl_unwind_regs regs;
	uint64_t words[DL_UNWIND_ARM64_WORDS];
	enum dl_stack_end end;
	size_t cnt;

	MUST(u);
	for (size_t i = 0; i < DL_UNWIND_ARM64_WORDS; i++)
		words[i] = STACK + i * 8;
	words[machine == EM_X86_64 ? 16 : 32] = BASE + off;
	words[machine == EM_X86_64 ? 19 : 31] = STACK;
	MUST(dl_unwind_regs(&regs, machine, words, DL_UNWIND_ARM64_WORDS));
	cnt = dl_unwind(u, &regs, &ops, UINT64_MAX, frames, FRAMES, &end);
	MUST(cnt >= 1 && cnt <= FRAMES && end <= DL_STACK_FULL);
	dl_unwinder_free(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	MUST(fd >= 0 && write(fd, in, sz) == (ssize_t)sz);
	if (!dl_elf_read(&elf, fd)) {
		for (size_t i = 0; i < WORDS; i++)	/* addresses of code and of the stack */
			stack[i] = i % 3 ? BASE + (i * 37) % (elf.size ? elf.size : 1) : STACK + i * 8 + 64;
		for (uint64_t i = 0; i < PLACES; i++)
			unwind_at(i % 2 ? EM_X86_64 : EM_AARCH64, elf.size * i / PLACES);
	}
	close(fd);
	return 0;
}
