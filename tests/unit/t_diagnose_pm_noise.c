/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Events of deaths in any order, of anybody, with any numbers: a verdict that holds together, and the same twice. */
#include "unit/pm_util.h"

enum { ROUNDS = 400, EVENTS = 60 };

static uint64_t state;

static uint32_t roll(uint32_t below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(state >> 33) % below;
}

static uint32_t anybody(void)
{
	static const uint32_t ids[] = { TRAINER, PIN, WORKER, FEEDER, SHARER, WORKER2, STRANGER, 4711, 1, 0 };

	return ids[roll(sizeof(ids) / sizeof(ids[0]))];
}

static uint64_t any_number(void)
{
	static const uint64_t numbers[] = { 0, 1, 64, 4096, 10 * MIB, 64 * MIB, 1ULL << 40, UINT64_MAX };

	return numbers[roll(sizeof(numbers) / sizeof(numbers[0]))];
}

static void any_signal(struct synth *s, double t)
{
	static const int codes[] = { 0, -6, 1, 2, 4, 128 };
	struct dl_ev_signal ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGNAL, .ts = AT(t), .flags = roll(2) ? DL_HDR_FOREIGN : 0 } };

	ev.h.tid = ev.h.pid = anybody();
	ev.target_tid = ev.target_pid = anybody();
	ev.sig = 1 + (int)roll(34);
	ev.code = codes[roll(6)];
	ev.result = roll(5);
	ev.group = roll(2);
	ev.sender_ppid = anybody();
	synth_event(s, &ev.h);
}

static void any_map(struct synth *s, double t)
{
	static const uint32_t magics[] = { TMPFS, EXT4, 0x65735546, 0 };
	struct dl_ev_sigbus_map ev = { .h = { .size = sizeof(ev), .kind = DL_EV_SIGBUS_MAP, .ts = AT(t) } };

	ev.h.tid = ev.h.pid = anybody();
	ev.file_off = any_number();
	ev.file_sz = any_number();
	ev.fs_total = any_number();
	ev.fs_used = any_number();
	ev.file_magic = magics[roll(4)];
	ev.fault_flags = roll(64);
	synth_event_text(s, &ev.h, roll(2) ? "torch_1_2" : "x");
}

static void any_oom(struct synth *s, double t)
{
	struct dl_ev_oom_kill ev = { .h = { .size = sizeof(ev), .kind = DL_EV_OOM_KILL, .ts = AT(t) } };

	ev.h.tid = ev.h.pid = anybody();
	ev.target_tid = ev.target_pid = anybody();
	ev.anon = any_number();
	ev.limit = any_number();
	ev.flags = roll(4);
	synth_event_text(s, &ev.h, roll(2) ? "/job" : "");
}

static void any_fail(struct synth *s, double t)
{
	static const int errors[] = { ENOSPC, EMFILE, ENFILE, ENOMEM, EAGAIN, ENOENT, EDQUOT, EIO, 0 };
	static const char *const paths[] = { "", "/dev/shm/torch_1_2", "torch_1_2", "/", "x" };
	static const int calls[] = { 0, 1, 9, 56, 257, 285, 47, -1, 100000 };
	struct dl_ev_syscall_fail ev = { .bytes = any_number(), .used = any_number(), .limit = any_number(), .of = (uint16_t)roll(14),
					 .flags = roll(64), .file_magic = roll(2) ? TMPFS : EXT4 };

	fails(s, t, anybody(), anybody(), calls[roll(9)], errors[roll(9)], &ev, paths[roll(5)]);
}

static void any_env(struct synth *s, double t)
{
	switch (roll(4)) {
	case 0:
		env_shm(s, t, any_number(), any_number(), any_number(), any_number());
		break;
	case 1:
		env_proc(s, t, anybody(), any_number(), any_number(), any_number(), any_number());
		break;
	case 2:
		env_cgroup(s, t, roll(2) ? "/job" : "/", any_number(), any_number(), roll(3));
		break;
	default:
		mem(s, t, anybody(), any_number(), any_number(), any_number());
	}
}

static void any_event(struct synth *s, double t)
{
	struct dl_ev_crash_stack stack = { .h = { .size = sizeof(stack), .kind = DL_EV_CRASH_STACK, .ts = AT(t) }, .stack = roll(3) };
	struct dl_ev_shm_unlink unlink = { .h = { .size = sizeof(unlink), .kind = DL_EV_SHM_UNLINK, .ts = AT(t) } };

	switch (roll(9)) {
	case 0:
	case 1:
		any_signal(s, t);
		break;
	case 2:
		any_map(s, t);
		break;
	case 3:
		any_oom(s, t);
		break;
	case 4:
		any_fail(s, t);
		break;
	case 5:
		stack.h.tid = stack.h.pid = anybody();
		synth_event(s, &stack.h);
		break;
	case 6:
		unlink.h.tid = unlink.h.pid = anybody();
		synth_event_text(s, &unlink.h, "torch_1_2");
		break;
	case 7:
		synth_exit(s, AT(t), anybody(), anybody(), roll(2) ? (int)roll(16) : (int)(roll(3) << 8), roll(2) ? DL_EX_LAST : 0);
		break;
	default:
		any_env(s, t);
	}
}

static struct dl_postmortem *any(uint64_t seed)
{
	struct synth *s;

	state = seed * 977 + 11;
	s = roll(2) ? job_running() : job_new();
	for (int i = 0; i < EVENTS; i++)
		any_event(s, roll(4) ? 25 + roll(100) : 25 + roll(20000));
	if (roll(2))
		synth_mark(s, AT(21000), DL_MARK_STOP, 0, "");
	return explain(s, NULL);
}

TEST(noise)
{
	size_t seen[DL_DEATH_CNT] = {}, kinds = 0;

	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		struct dl_postmortem *pm = any(seed);

		CHECK(pm->death < DL_DEATH_CNT);
		kinds += !seen[pm->death]++;
		if (seed % 10 == 0) {
			struct dl_postmortem *again = any(seed);

			CHECK_EQ(again->death, pm->death);
			CHECK_STR(again->text, pm->text);
			CHECK_EQ(again->facts.cnt, pm->facts.cnt);
			dl_postmortem_free(again);
		}
		dl_postmortem_free(pm);
	}
	/* It is no noise if it always says the same. */
	CHECK_MSG(kinds >= 8, "%zu kinds", kinds);
}
