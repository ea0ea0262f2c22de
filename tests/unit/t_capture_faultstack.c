/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A copied stack of this very thread, as the kernel side makes it, becomes events with names. */
#include "unit/test.h"

#include <fcntl.h>
#include <ucontext.h>
#include <unwind.h>

#include <dlbpf/bpf_shared.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "capture/faultstack.h"
#include "capture/proc.h"
#include "capture/symbols.h"

static struct dl_fault_stack copy;
static uint64_t truth[DL_FAULT_FRAMES_MAX];
static int truth_cnt;

/* What libgcc finds, from the caller of this on. backtrace() is the sanitizer's where there is one. */
static _Unwind_Reason_Code add_truth(struct _Unwind_Context *ctx, void *arg)
{
	(void)arg;
	if (truth_cnt == DL_FAULT_FRAMES_MAX || !_Unwind_GetIP(ctx))
		return _URC_END_OF_STACK;
	truth[truth_cnt++] = _Unwind_GetIP(ctx);
	return _URC_NO_REASON;
}

#define FIND_TRUTH() (truth_cnt = 0, _Unwind_Backtrace(add_truth, NULL))

static void fill_regs(const ucontext_t *uc)
{
#if defined(__x86_64__)
	static const int order[] = { REG_R15, REG_R14, REG_R13, REG_R12, REG_RBP, REG_RBX, REG_R11, REG_R10, REG_R9, REG_R8,
				     REG_RAX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, -1, REG_RIP, -1, -1, REG_RSP, -1 };

	copy.words = ARRAY_SIZE(order);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		copy.regs[i] = order[i] < 0 ? 0 : (uint64_t)uc->uc_mcontext.gregs[order[i]];
#else
	copy.words = 34;
	memcpy(copy.regs, uc->uc_mcontext.regs, 31 * 8);
	copy.regs[31] = uc->uc_mcontext.sp;
	copy.regs[32] = uc->uc_mcontext.pc;
#endif
}

static uint64_t sp_of_copy(void)
{
#if defined(__x86_64__)
	return copy.regs[19];
#else
	return copy.regs[31];
#endif
}

static uint64_t pc_of_copy(void)
{
#if defined(__x86_64__)
	return copy.regs[16];
#else
	return copy.regs[32];
#endif
}

/* The sanitizer would object to some bytes of a stack. */
__attribute__((no_sanitize_address))
static void copy_bytes(const volatile uint8_t *from)
{
	for (uint32_t i = 0; i < copy.stack_sz; i++)
		copy.stack[i] = from[i];
}

#define PLACE __attribute__((noinline, noclone, used))

PLACE static int t_bottom(int a)
{
	ucontext_t uc;
	uint64_t end = (uint64_t)(uintptr_t)__builtin_frame_address(0) + 8192;

	memset(&copy, 0, sizeof(copy));
	copy.h = (struct dl_hdr){ .size = sizeof(copy), .kind = DL_KIND_FAULT_STACK, .ts = dl_now_ns(),
				  .pid = (uint32_t)getpid(), .tid = (uint32_t)getpid() };
	copy.sig = SIGSEGV;
	copy.code = 1;
	copy.addr = 0x40;
	FIND_TRUTH();
	CHECK(!getcontext(&uc));
	fill_regs(&uc);
	copy.stack_sz = (uint32_t)(end - sp_of_copy()) / DL_FAULT_CHUNK * DL_FAULT_CHUNK;
	CHECK(copy.stack_sz <= DL_FAULT_STACK_SZ);
	copy_bytes((const volatile uint8_t *)(uintptr_t)sp_of_copy());
	return a + 1;
}

PLACE static int t_top(int a)
{
	volatile char room[64];

	room[0] = (char)a;
	return t_bottom(a) + room[0];
}

/* Keeps the copied part of the stack within the stack. */
PLACE static int with_room(int a)
{
	volatile char room[16384];

	room[0] = room[16383] = (char)a;
	return t_top(a) + room[0];
}

/* --- the kernel's view of the mappings --------------------------------------------------------- */

static void ignore(const struct dl_mapping *m, const struct dl_symfile *f, void *arg)
{
	(void)m, (void)f, (void)arg;
}

TEST(unwound_with_known_mappings)
{
	_cleanup_close_ int proc_fd = dl_proc_open((uint32_t)getpid());
	struct dl_frame frames[DL_FAULT_FRAMES_MAX];
	struct dl_symfiles files = {};
	struct dl_space *sp = dl_space_read(&files, proc_fd, NULL, ignore, NULL);
	const struct dl_seg *seg;
	enum dl_stack_end end;
	int64_t cnt;

	CHECK(sp);
	with_room(1);
	cnt = dl_fault_unwind(&copy, sp, &files, frames, &end);
	CHECK(cnt >= 3);
	CHECK_EQ(frames[0].pc, pc_of_copy());
	for (int64_t i = 1; i < cnt && i < truth_cnt; i++)
		CHECK_EQ(frames[i].pc, truth[i]);
	CHECK(end == DL_STACK_MEMORY || end == DL_STACK_BASE);
	/* The kernel saw the same: it is believed. */
	seg = dl_space_find(sp, pc_of_copy());
	CHECK(seg);
	CHECK_EQ(dl_fault_mapping(&copy, sp, &files), 0);
	copy.map_start = seg->start;
	copy.map_off = seg->off;
	copy.map_ino = files.v.v[seg->file]->ino;
	CHECK_EQ(dl_fault_mapping(&copy, sp, &files), 1);
	CHECK_EQ(dl_fault_unwind(&copy, sp, &files, frames, &end), cnt);
	copy.map_ino++;		/* an overlay: it cannot be told */
	CHECK_EQ(dl_fault_mapping(&copy, sp, &files), 0);
	CHECK_EQ(dl_fault_unwind(&copy, sp, &files, frames, &end), cnt);
	/* It saw something else: what is known is out of date, and names nothing. */
	copy.map_off += 4096;
	CHECK_EQ(dl_fault_mapping(&copy, sp, &files), -1);
	CHECK_EQ(dl_fault_unwind(&copy, sp, &files, frames, &end), 1);
	copy.map_ino = 0;
	CHECK_EQ(dl_fault_mapping(&copy, sp, &files), -1);
	CHECK_EQ(dl_fault_unwind(&copy, NULL, &files, frames, &end), 1);
	/* Malformed records are not believed. */
	copy.stack_sz = DL_FAULT_STACK_SZ + 1;
	CHECK_EQ(dl_fault_unwind(&copy, sp, &files, frames, &end), 0);
	copy.stack_sz = 0;
	copy.words = 3;
	CHECK_EQ(dl_fault_unwind(&copy, sp, &files, frames, &end), 0);
	dl_space_put(sp);
	dl_symfiles_fini(&files);
}

/* --- events ------------------------------------------------------------------------------------ */

struct kept {
	struct dl_sink sink;
	struct dl_ev_crash_stack crash;
	struct { struct dl_ev_stack ev; uint64_t addr[DL_FAULT_FRAMES_MAX]; } stack;
	char names[DL_FAULT_FRAMES_MAX][64];
	int crashes, stacks, private;
};

static int keep(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct kept *k = (struct kept *)sink;

	if (ev->kind == DL_EV_CRASH_STACK) {
		k->crash = *(const struct dl_ev_crash_stack *)ev;
		k->crashes++;
	} else if (ev->kind == DL_EV_STACK) {
		CHECK(ev->size <= sizeof(k->stack));
		memcpy(&k->stack, ev, ev->size);
		k->stacks++;
	} else if (ev->kind == DL_EV_SYMBOL) {
		const struct dl_ev_symbol *s = (const void *)ev;

		for (int i = 0; i < k->stack.ev.user_cnt; i++)
			if (s->addr == k->stack.addr[i])
				snprintf(k->names[i], sizeof(k->names[i]), "%.*s", (int)(ev->size - sizeof(*s)),
					 (const char *)(s + 1));
	} else if (ev->kind == DL_KIND_FAULT_STACK) {
		k->private++;
	}
	return 0;
}

TEST(events_of_a_crash)
{
	_cleanup_close_ int proc_fd = dl_proc_open((uint32_t)getpid());
	struct kept k = { .sink.emit = keep };
	struct dl_symbols *s;
	struct dl_diag d;

	CHECK_OK(dl_symbols_open(&s, &d));
	with_room(1);
	CHECK_OK(dl_symbols_crash(s, &copy, 77, proc_fd));
	CHECK_OK(dl_symbols_finish(s, &k.sink, 20 * DL_NS_PER_S));
	CHECK_EQ(k.crashes, 1);
	CHECK_EQ(k.stacks, 1);
	CHECK_EQ(k.private, 0);
	CHECK_EQ(k.crash.h.tid, getpid());
	CHECK_EQ(k.crash.h.ts, copy.h.ts);
	CHECK_EQ(k.crash.sig, SIGSEGV);
	CHECK_EQ(k.crash.addr, 0x40);
	CHECK_EQ(k.crash.ip, pc_of_copy());
	CHECK_EQ(k.crash.stack, 77);
	CHECK_EQ(k.stack.ev.id, 77);
	CHECK_EQ(k.stack.ev.kernel_cnt, 0);
	CHECK(k.stack.ev.user_cnt >= 3);
	CHECK_STR(k.names[0], "t_bottom");
	CHECK_STR(k.names[1], "t_top");
	CHECK_STR(k.names[2], "with_room");
	dl_symbols_close(s);
}

/* Of a process that was gone before anything was known of it. */
TEST(crash_of_a_stranger)
{
	struct kept k = { .sink.emit = keep };
	struct dl_symbols *s;
	struct dl_diag d;

	CHECK_OK(dl_symbols_open(&s, &d));
	with_room(1);
	CHECK_OK(dl_symbols_crash(s, &copy, 78, -1));
	CHECK_OK(dl_symbols_finish(s, &k.sink, 20 * DL_NS_PER_S));
	CHECK_EQ(k.crashes, 1);
	CHECK_EQ(k.crash.ip, pc_of_copy());
	CHECK_EQ(k.stack.ev.user_cnt, 1);
	CHECK_STR(k.names[0], "");
	/* One that nobody waits for is forgotten in order. */
	CHECK_OK(dl_symbols_crash(s, &copy, 79, open("/dev/null", O_RDONLY | O_CLOEXEC)));
	dl_symbols_close(s);
}

/* A process that ends while its mappings are read tells only the first of them. */
TEST(mappings_that_were_read_in_part)
{
	struct dl_space part = { .refs = 1 }, old = { .refs = 1 };

	*vec_push(&part.segs) = (struct dl_seg){ 0x1000, 0x2000, 0, 7 };
	*vec_push(&old.segs) = (struct dl_seg){ 0x1000, 0x1800, 0, 1 };
	*vec_push(&old.segs) = (struct dl_seg){ 0x1800, 0x2800, 0, 2 };
	*vec_push(&old.segs) = (struct dl_seg){ 0x3000, 0x4000, 0, 3 };
	CHECK_OK(dl_space_extend(&part, &old));
	CHECK_EQ(part.segs.cnt, 2);
	CHECK_EQ(dl_space_find(&part, 0x1900)->file, 7);
	CHECK(!dl_space_find(&part, 0x2400));
	CHECK_EQ(dl_space_find(&part, 0x3000)->file, 3);
	vec_free(&part.segs);
	vec_free(&old.segs);
}
