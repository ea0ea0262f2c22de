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

void dl_pm_add_place(struct dl_str *s, const struct dl_pmx *x, uint32_t proc, uint64_t ip)
{
	const struct place at = place_of(x->tl, proc, ip);

	if (at.function)
		dl_str_add(s, at.function);
	else
		dl_str_addf(s, "code at 0x%llx", (unsigned long long)ip);
	if (at.lib)
		dl_str_addf(s, " (%s)", at.lib);
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

/* Frames that are the same in every abort: they say that it was one. */
static bool says_nothing(const char *function)
{
	static const char *const of_abort[] = { "raise", "gsignal", "abort", "__GI_", "__pthread_kill", "pthread_kill", "__assert_fail",
						"__libc_message", "malloc_printerr", "__restore_rt", "__gnu_cxx::", "std::terminate",
						"__cxxabiv1::", "__cxa_throw", "std::__throw" };

	for (size_t i = 0; i < sizeof(of_abort) / sizeof(of_abort[0]); i++) {
		if (!strncmp(function, of_abort[i], strlen(of_abort[i])))
			return true;
	}
	return false;
}

/* The first frame that says something, and the first one behind it of another library. */
bool dl_pm_add_caller(struct dl_str *s, const struct dl_pmx *x, uint32_t proc)
{
	const struct dl_stack *st = stack_of(x);
	const char *lib = NULL;
	bool any = false;

	for (uint32_t i = 0; st && i < st->user_cnt; i++) {
		const uint64_t ip = st->addrs[st->kernel_cnt + i];
		const struct place at = place_of(x->tl, proc, ip);

		if (!any && at.function && says_nothing(at.function) && i + 1u < st->user_cnt)
			continue;
		if (any && (!at.lib || !lib || !strcmp(at.lib, lib)))
			continue;
		dl_str_add(s, any ? ", called by " : " in ");
		dl_pm_add_place(s, x, proc, ip);
		if (any)
			return true;
		any = true;
		lib = at.lib;
	}
	return any;
}

int dl_pm_fill_stack(const struct dl_pmx *x, struct dl_pm_thread *out)
{
	const struct dl_stack *st = stack_of(x);

	for (uint32_t i = 0; st && i < st->user_cnt; i++) {
		struct dl_str s = {};
		char **frame = vec_push(&out->stack);

		if (!frame)
			return -ENOMEM;
		dl_pm_add_place(&s, x, x->proc, st->addrs[st->kernel_cnt + i]);
		*frame = dl_str_take(&s);
		if (!*frame)
			return -ENOMEM;
	}
	return 0;
}
