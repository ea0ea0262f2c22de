/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where a thread was in native code when it got a fatal signal: function and library, not an address. */
#include "diagnose/pm_int.h"

#include <errno.h>
#include <string.h>

#define STACK_NS DL_PM_MS	/* the stack's event has the signal's own time, from another program */

struct place { const char *function, *lib; };

/* A forked child has its parent's mappings and symbols, which were read from the parent. */
static struct place place_of(const struct dl_timeline *tl, uint32_t proc, uint64_t ip)
{
	struct place at = {};

	for (int depth = 0; ip && proc != DL_NONE && depth < 8; depth++) {
		const struct dl_proc *p = &tl->procs.v[proc];

		at.function = at.function ? at.function : dl_user_symbol(tl, p->pid, ip);
		vec_for_each(&p->mappings, m) {
			if (!at.lib && ip >= m->start && ip < m->end)
				at.lib = strrchr(m->path, '/') ? strrchr(m->path, '/') + 1 : m->path;
		}
		if ((at.lib && at.function) || p->execed)
			break;
		proc = p->parent;
	}
	return at;
}

/* A library without a function's name is more to a person than an address. */
static void add_place(struct dl_str *s, const struct place *at, uint64_t ip, bool with_address)
{
	if (at->function)
		dl_str_addf(s, at->lib ? "%s (%s)" : "%s", at->function, at->lib);
	else if (at->lib && !with_address)
		dl_str_add(s, at->lib);
	else
		dl_str_addf(s, at->lib ? "0x%llx (%s)" : "0x%llx", (unsigned long long)ip, at->lib);
}

void dl_pm_add_place(struct dl_str *s, const struct dl_pmx *x, uint32_t proc, uint64_t ip)
{
	const struct place at = place_of(x->tl, proc, ip);

	add_place(s, &at, ip, false);
}

static const struct dl_ev_crash_stack *event_of(const struct dl_pmx *x)
{
	vec_for_each(&x->tl->crash, k) {
		const struct dl_ev_crash_stack *ev = (const void *)k->ev;

		if (x->sig && k->ev->kind == DL_EV_CRASH_STACK && ev->h.tid == x->sig->target_tid && ev->sig == x->sig->sig &&
		    ev->h.ts + STACK_NS >= x->sig->h.ts && ev->h.ts <= x->sig->h.ts + STACK_NS)
			return ev;
	}
	return NULL;
}

static const struct dl_stack *stack_of(const struct dl_pmx *x)
{
	const struct dl_ev_crash_stack *ev = event_of(x);

	return ev && ev->stack && ev->stack < x->tl->stacks.cnt && x->tl->stacks.v[ev->stack].user_cnt ?
		&x->tl->stacks.v[ev->stack] : NULL;
}

/* Frames that are the same in every abort: they say that it was one. Names are as the symbol tables have them. */
static bool says_nothing(const char *function)
{
	static const char *const of_abort[] = { "raise", "gsignal", "abort", "__GI_", "__pthread_kill", "pthread_kill", "__assert",
						"__libc_message", "malloc_printerr", "__restore_rt", "__gnu_cxx::", "std::terminate",
						"__cxxabiv1::", "__cxa_throw", "std::__throw", "_ZN9__gnu_cxx", "_ZSt9terminate",
						"_ZN10__cxxabiv1", "_ZSt", "__cxa_" };

	for (size_t i = 0; function && i < sizeof(of_abort) / sizeof(of_abort[0]); i++) {
		if (!strncmp(function, of_abort[i], strlen(of_abort[i])))
			return true;
	}
	return false;
}

#define TOP_CNT 16u	/* frames in which an abort's own end */

/* The frame that something is wrong with: behind those of the abort, and of nameless code of their library. */
static uint32_t first_frame(const struct dl_pmx *x, uint32_t proc, const struct dl_stack *st)
{
	const uint64_t *ips = st->addrs + st->kernel_cnt;
	uint32_t first = 0;
	struct place last = {};

	for (uint32_t i = 0; i < st->user_cnt && i < TOP_CNT; i++) {
		const struct place at = place_of(x->tl, proc, ips[i]);

		if (says_nothing(at.function)) {
			first = i + 1;
			last = at;
		}
	}
	for (uint32_t i = first; first && i < st->user_cnt && i < TOP_CNT; i++) {
		const struct place at = place_of(x->tl, proc, ips[i]);

		if (at.function || !at.lib || !last.lib || strcmp(at.lib, last.lib))
			return i;
	}
	return first < st->user_cnt ? first : 0;
}

/* The first frame behind `from` of another library, one that has a name before one that has none. */
static uint32_t caller_frame(const struct dl_pmx *x, uint32_t proc, const struct dl_stack *st, uint32_t from)
{
	const uint64_t *ips = st->addrs + st->kernel_cnt;
	const struct place of = place_of(x->tl, proc, ips[from]);
	uint32_t nameless = DL_NONE;

	for (uint32_t i = from + 1; i < st->user_cnt; i++) {
		const struct place at = place_of(x->tl, proc, ips[i]);

		if (!at.lib || !of.lib || !strcmp(at.lib, of.lib))
			continue;
		if (at.function)
			return i;
		nameless = nameless == DL_NONE ? i : nameless;
	}
	return nameless;
}

bool dl_pm_add_caller(struct dl_str *s, const struct dl_pmx *x, uint32_t proc)
{
	const struct dl_stack *st = stack_of(x);
	uint32_t first, caller;

	if (!st)
		return false;
	first = first_frame(x, proc, st);
	caller = caller_frame(x, proc, st, first);
	dl_str_add(s, " in ");
	dl_pm_add_place(s, x, proc, st->addrs[st->kernel_cnt + first]);
	if (caller != DL_NONE) {
		dl_str_add(s, ", called by ");
		dl_pm_add_place(s, x, proc, st->addrs[st->kernel_cnt + caller]);
	}
	return true;
}

int dl_pm_fill_stack(const struct dl_pmx *x, struct dl_pm_thread *out)
{
	const struct dl_stack *st = stack_of(x);

	for (uint32_t i = 0; st && i < st->user_cnt; i++) {
		const uint64_t ip = st->addrs[st->kernel_cnt + i];
		const struct place at = place_of(x->tl, x->proc, ip);
		char **frame = vec_push(&out->stack);
		struct dl_str s = {};

		if (!frame)
			return -ENOMEM;
		add_place(&s, &at, ip, true);
		*frame = dl_str_take(&s);
		if (!*frame)
			return -ENOMEM;
	}
	return 0;
}
