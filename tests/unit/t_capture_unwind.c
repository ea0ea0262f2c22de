/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Unwinding, with this program and its C library as the files: what elfutils and libgcc find is the truth. */
#include "unit/test.h"

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include "capture/elf.h"
#include "capture/proc.h"
#include "capture/unwind.h"

#define FRAMES 64
#define NEVER UINT64_MAX

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* --- this process as the target ---------------------------------------------------------------- */

enum { OBJECTS = 16 };

static struct object {
	uint64_t bias, start, end;	/* of its code */
	struct dl_elf elf;
	bool has_elf, hidden;
} objects[OBJECTS];
static int object_cnt;

/* Memory that may be read: as much of the stack as was copied. */
static uint64_t stack_start, stack_end;

static int add_object(struct dl_phdr_info *info, size_t sz, void *arg)
{
	struct object *o = &objects[object_cnt];
	int fd = -1;

	(void)sz, (void)arg;
	if (object_cnt == OBJECTS)
		return 0;
	*o = (struct object){ .bias = info->dlpi_addr };
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type == PT_LOAD && (ph->p_flags & PF_X)) {
			o->start = info->dlpi_addr + ph->p_vaddr;
			o->end = o->start + ph->p_memsz;
		}
	}
	if (!*info->dlpi_name)
		fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	else if (*info->dlpi_name == '/')
		fd = open(info->dlpi_name, O_RDONLY | O_CLOEXEC);
	o->has_elf = fd >= 0 && !dl_elf_read(&o->elf, fd);
	object_cnt++;
	return 0;
}

static void find_objects(void)
{
	if (!object_cnt)
		dl_iterate_phdr(add_object, NULL);
	for (int i = 0; i < object_cnt; i++)
		objects[i].hidden = false;
}

static struct object *object_of(uint64_t addr)
{
	for (int i = 0; i < object_cnt; i++)
		if (addr >= objects[i].start && addr < objects[i].end)
			return &objects[i];
	return NULL;
}

/* The sanitizer would object to some bytes of a stack. */
__attribute__((no_sanitize_address))
static bool read_own(void *arg, uint64_t addr, void *buf, size_t sz)
{
	const volatile uint8_t *from = (const volatile uint8_t *)(uintptr_t)addr;

	(void)arg;
	if (addr < stack_start || addr >= stack_end || sz > stack_end - addr)
		return false;
	for (size_t i = 0; i < sz; i++)
		((uint8_t *)buf)[i] = from[i];
	return true;
}

static bool code_own(void *arg, uint64_t addr, const struct dl_elf **ret_elf, uint64_t *ret_vaddr)
{
	struct object *o = object_of(addr);

	(void)arg;
	*ret_elf = o && o->has_elf && !o->hidden ? &o->elf : NULL;
	*ret_vaddr = o ? addr - o->bias : 0;
	return o != NULL;
}

static const struct dl_unwind_ops own = { .read = read_own, .code = code_own };

static void regs_of(struct dl_unwind_regs *ret, const ucontext_t *uc)
{
#if defined(__x86_64__)
	static const int order[] = { REG_R15, REG_R14, REG_R13, REG_R12, REG_RBP, REG_RBX, REG_R11, REG_R10, REG_R9, REG_R8,
				     REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, -1, REG_RIP, -1, -1, REG_RSP, -1 };
	uint64_t words[DL_UNWIND_X86_WORDS] = {};

	for (int i = 0; i < DL_UNWIND_X86_WORDS; i++)
		words[i] = order[i] < 0 ? 0 : (uint64_t)uc->uc_mcontext.gregs[order[i]];
#else
	uint64_t words[DL_UNWIND_ARM64_WORDS] = {};

	memcpy(words, uc->uc_mcontext.regs, sizeof(uc->uc_mcontext.regs));
	words[31] = uc->uc_mcontext.sp;
	words[32] = uc->uc_mcontext.pc;
#endif
	CHECK(dl_unwind_regs(ret, MACHINE, words, sizeof(words) / sizeof(*words)));
}

/* What was found by the innermost of the functions below. */
static struct dl_frame frames[FRAMES];
static size_t frame_cnt;
static enum dl_stack_end frame_end;
static uint64_t truth[FRAMES];
static int truth_cnt;
static uint64_t stack_base;	/* its end in memory */
static size_t stack_cut;	/* bytes of it that are there; 0 all */

/* What libgcc finds, from the caller of this on. backtrace() is the sanitizer's where there is one. */
static _Unwind_Reason_Code add_truth(struct _Unwind_Context *ctx, void *arg)
{
	(void)arg;
	if (truth_cnt == FRAMES || !_Unwind_GetIP(ctx))
		return _URC_END_OF_STACK;
	truth[truth_cnt++] = _Unwind_GetIP(ctx);
	return _URC_NO_REASON;
}

#define FIND_TRUTH() (truth_cnt = 0, _Unwind_Backtrace(add_truth, NULL))

static void unwind_from(const ucontext_t *uc)
{
	struct dl_unwinder *u = dl_unwinder_new();
	struct dl_unwind_regs regs;

	CHECK(u);
	regs_of(&regs, uc);
	stack_start = dl_unwind_sp(&regs);
	stack_end = stack_cut ? stack_start + stack_cut : stack_base;
	frame_cnt = dl_unwind(u, &regs, &own, NEVER, frames, FRAMES, &frame_end);
	dl_unwinder_free(u);
}

/* The end of the main thread's stack, behind which nothing may be read. */
static void limit_stack(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint64_t start, end, here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
	char line[512];

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && here >= start && here < end)
			stack_base = end;
	fclose(f);
	stack_cut = 0;
}

static __attribute__((noinline)) int probe(int depth)
{
	ucontext_t uc;

	FIND_TRUTH();
	CHECK(!getcontext(&uc));
	unwind_from(&uc);
	return depth;
}

static __attribute__((noinline)) int down(int depth)
{
	volatile char room[300];

	room[0] = (char)depth;
	return (depth ? down(depth - 1) : probe(depth)) + room[0];
}

static __attribute__((noinline, optimize("no-omit-frame-pointer"))) int down_fp(int depth)
{
	volatile char room[300];

	room[0] = (char)depth;
	return (depth ? down_fp(depth - 1) : probe(depth)) + room[0];
}

static int compare(const void *a, const void *b)
{
	(void)b;
	return down(*(const int *)a);
}

static void same_as_libgcc(int least)
{
	CHECK(truth_cnt > least);
	CHECK_EQ(frame_cnt, truth_cnt);
	/* Both began in probe(), at different instructions. */
	for (int i = 1; i < truth_cnt; i++)
		CHECK_EQ(frames[i].pc, truth[i]);
	CHECK_EQ(frame_end, DL_STACK_BASE);
	CHECK_EQ(frames[0].how, DL_FRAME_REGS);
	CHECK_EQ(frames[1].how, DL_FRAME_CFI);
}

TEST(own_stack)
{
	find_objects();
	limit_stack();
	down(10);
	same_as_libgcc(12);
	down_fp(10);
	same_as_libgcc(12);
}

TEST(through_the_c_library)
{
	int three[] = { 3, 2, 1 };

	find_objects();
	limit_stack();
	qsort(three, 3, sizeof(three[0]), compare);
	same_as_libgcc(7);
}

/* Of a copied stack only so much is there. */
TEST(stack_that_is_cut)
{
	find_objects();
	limit_stack();
	stack_cut = 4096;
	down(40);
	CHECK_EQ(frame_end, DL_STACK_MEMORY);
	CHECK(frame_cnt > 3 && (int)frame_cnt < truth_cnt);
	for (size_t i = 1; i < frame_cnt; i++)
		CHECK_EQ(frames[i].pc, truth[i]);
}

TEST(more_frames_than_asked_for)
{
	find_objects();
	limit_stack();
	down(100);
	CHECK_EQ(frame_cnt, FRAMES);
	CHECK_EQ(frame_end, DL_STACK_FULL);
}

TEST(time_is_over)
{
	struct dl_unwinder *u = dl_unwinder_new();
	struct dl_unwind_regs regs;
	ucontext_t uc;

	find_objects();
	CHECK(u && !getcontext(&uc));
	regs_of(&regs, &uc);
	CHECK_EQ(dl_unwind(u, &regs, &own, 0, frames, FRAMES, &frame_end), 1);
	CHECK_EQ(frame_end, DL_STACK_TIME);
	dl_unwinder_free(u);
}

/* Without any file: the chain of frame pointers, and nothing where there is none. */
TEST(frame_pointers)
{
	int found = 0;

	find_objects();
	limit_stack();
	for (int i = 0; i < object_cnt; i++)
		objects[i].hidden = true;
	down_fp(5);
	/* probe() has no frame pointer of its own, so the first step may leave out one caller. */
	for (size_t i = 1; i < frame_cnt; i++) {
		CHECK_EQ(frames[i].how, DL_FRAME_POINTER);
		for (int j = 1; j < truth_cnt; j++)
			found += frames[i].pc == truth[j];
	}
	CHECK_MSG(found >= 4, "%d of %zu frames are true", found, frame_cnt);
}

/* --- signals ----------------------------------------------------------------------------------- */

static sigjmp_buf back;
static struct dl_sigframe met;
static uint64_t fault_pc;
static size_t handler_depth;

static void handler(int sig, siginfo_t *info, void *arg)
{
	const ucontext_t *interrupted = arg;
	ucontext_t uc;

	(void)info;
	memset(&met, 0, sizeof(met));
	if (!getcontext(&uc))
		unwind_from(&uc);
#if defined(__x86_64__)
	fault_pc = (uint64_t)interrupted->uc_mcontext.gregs[REG_RIP];
#else
	fault_pc = interrupted->uc_mcontext.pc;
#endif
	for (size_t i = 0; i < frame_cnt; i++) {
		if (!frames[i].trampoline)
			continue;
		handler_depth = i;
		dl_sigframe_read(&met, MACHINE, &own, frames[i].sp);
	}
	siglongjmp(back, sig);
}

static __attribute__((noinline)) int write_to(volatile int *p)
{
	*p = 1;
	return 2;
}

static __attribute__((noinline)) int jump_to(int (*fn)(void))
{
	return fn() + 1;
}

static void fault(int sig, int (*fn)(int), int arg)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO }, old;

	CHECK(!sigaction(sig, &sa, &old));
	if (!sigsetjmp(back, 1))
		fn(arg);
	CHECK(!sigaction(sig, &old, NULL));
}

static volatile uintptr_t nowhere = 64;

static int segv(int depth)
{
	return (depth ? segv(depth - 1) : write_to((volatile int *)nowhere)) + 1;
}

static int null_call(int depth)
{
	return (depth ? null_call(depth - 1) : jump_to((int (*)(void))nowhere)) + 1;
}

TEST(out_of_a_handler)
{
	uint64_t vaddr;
	const struct dl_elf *e;
	size_t behind;

	find_objects();
	limit_stack();
	fault(SIGSEGV, segv, 3);
	CHECK_EQ(met.sig, SIGSEGV);
	CHECK_EQ(met.code, SEGV_MAPERR);
	CHECK_EQ(met.addr, 64);
	CHECK_EQ(met.regs.pc, fault_pc);
#if defined(__x86_64__)
	CHECK(met.has_error && (met.error & 2));	/* a write */
#endif
	behind = handler_depth + 1;
	CHECK(frame_cnt > behind + 4);
	CHECK_EQ(frames[behind].pc, fault_pc);
	CHECK_EQ(frames[behind].how, DL_FRAME_SIGNAL);
	CHECK(frames[behind].exact);
	CHECK(code_own(NULL, frames[behind].pc, &e, &vaddr));
	CHECK_EQ(frame_end, DL_STACK_BASE);
}

TEST(call_to_nowhere)
{
	size_t at;

	find_objects();
	limit_stack();
	fault(SIGSEGV, null_call, 3);
	CHECK_EQ(met.addr, 64);
	at = handler_depth + 1;
	CHECK(frame_cnt > at + 5);
	CHECK_EQ(frames[at].pc, 64);
	CHECK_EQ(frames[at + 1].how, DL_FRAME_CALL);
	CHECK(frames[at + 1].pc >= (uintptr_t)jump_to && frames[at + 1].pc < (uintptr_t)jump_to + 64);
	CHECK_EQ(frame_end, DL_STACK_BASE);
}

/* What is no frame of a signal is not taken for one. */
TEST(no_signal_frame)
{
	static uint64_t junk[128];
	struct dl_sigframe sf;

	stack_start = (uintptr_t)junk;
	stack_end = stack_start + sizeof(junk);
	CHECK(!dl_sigframe_read(&sf, MACHINE, &own, (uintptr_t)junk));
	memset(junk, 0xff, sizeof(junk));
	CHECK(!dl_sigframe_read(&sf, MACHINE, &own, (uintptr_t)junk));
	CHECK(!dl_sigframe_read(&sf, MACHINE, &own, (uintptr_t)junk + 4));
	CHECK(!dl_sigframe_read(&sf, MACHINE, &own, (uintptr_t)&junk[120]));
}

/* --- rows -------------------------------------------------------------------------------------- */

static bool same_cfa(const struct dl_cfi_rules *rules, Dwarf_Frame *f)
{
	Dwarf_Op *ops;
	size_t cnt;

	if (dwarf_frame_cfa(f, &ops, &cnt))
		return false;
	if (rules->cfa.how == DL_CFI_VAL_EXPR)
		return cnt > 1;
	if (rules->cfa.how != DL_CFI_REG || cnt != 1)
		return false;
	if (ops[0].atom == DW_OP_bregx)
		return ops[0].number == rules->cfa.reg && (int64_t)ops[0].number2 == rules->cfa.off;
	return ops[0].atom == DW_OP_breg0 + rules->cfa.reg && (int64_t)ops[0].number == rules->cfa.off;
}

/* What is saved, and where; elfutils adds the ABI's own rules to what the file says. */
static bool same_reg(const struct dl_cfi_rule *rule, Dwarf_Frame *f, int reg)
{
	Dwarf_Op mem[3], *ops;
	size_t cnt;

	if (rule->how == DL_CFI_SAME)
		return true;
	if (dwarf_frame_register(f, reg, mem, &ops, &cnt))
		return false;
	if (rule->how == DL_CFI_UNDEFINED)
		return !cnt && ops == mem;
	if (rule->how != DL_CFI_OFFSET)
		return cnt > 0;
	return cnt >= 1 && ops[0].atom == DW_OP_call_frame_cfa &&
	       (cnt == 1 ? !rule->off : ops[1].atom == DW_OP_plus_uconst && (int64_t)ops[1].number == rule->off);
}

static void same_rows(const struct dl_elf *mine, unsigned int least)
{
	struct dl_cfi_row *row = malloc(sizeof(*row));
	unsigned int rows = 0, none = 0;
	Dwarf_CFI *cfi;
	uint64_t end = 0;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(mine->fd, ELF_C_READ, NULL);
	cfi = elf ? dwarf_getcfi_elf(elf) : NULL;
	CHECK(row && cfi);
	for (uint32_t i = 0; i < mine->load_cnt; i++)
		if (mine->load[i].vaddr + mine->load[i].sz > end)
			end = mine->load[i].vaddr + mine->load[i].sz;
	for (uint64_t vaddr = 0; vaddr < end; vaddr += 61) {
		Dwarf_Frame *f = NULL;
		const int theirs = dwarf_cfi_addrframe(cfi, vaddr, &f), ours = dl_cfi_find(row, mine, vaddr);
		Dwarf_Addr start, stop;
		bool signal;

		CHECK_MSG(!ours == !theirs, "at 0x%" PRIx64 ": %d, %d", vaddr, ours, theirs);
		if (ours) {
			none++;
			continue;
		}
		CHECK(dwarf_frame_info(f, &start, &stop, &signal) >= 0);
		CHECK_EQ(row->signal, signal);
		CHECK_MSG(same_cfa(&row->rules, f), "at 0x%" PRIx64, vaddr);
		for (int reg = 0; reg < (MACHINE == EM_X86_64 ? 17 : 31); reg++)
			CHECK_MSG(same_reg(&row->rules.reg[reg], f, reg), "at 0x%" PRIx64 ", register %d", vaddr, reg);
		free(f);
		rows++;
	}
	CHECK_MSG(rows > least && none, "%u rows, %u places without", rows, none);
	dwarf_cfi_end(cfi);
	elf_end(elf);
	free(row);
}

TEST(rows_as_elfutils_finds_them)
{
	int files = 0;

	find_objects();
	for (int i = 0; i < object_cnt; i++) {
		if (!objects[i].has_elf)
			continue;
		same_rows(&objects[i].elf, 100);
		files++;
	}
	CHECK(files >= 3);	/* this program, the C library, the loader */
}

/* The vDSO: made by the kernel, and without sections that could be missed. */
TEST(vdso)
{
	const char *image = (const char *)getauxval(AT_SYSINFO_EHDR);
	int fd = memfd_create("vdso", MFD_CLOEXEC);
	struct dl_elf e;

	if (!image)
		SKIP("this kernel gives no vDSO");
	CHECK(fd >= 0 && write(fd, image, 4096) == 4096);
	if (write(fd, image + 4096, 4096) != 4096)
		errno = 0;	/* a smaller one */
	CHECK_OK(dl_elf_read(&e, fd));
	same_rows(&e, 10);
	close(fd);
}
