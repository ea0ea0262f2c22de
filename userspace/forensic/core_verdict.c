/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a core tells of a death, as a part of a post-mortem. */
#include "forensic/core_judge.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "timeline/syscalls.h"

enum {
	FRAME_TEXT = 512,
	THREADS_MAX = 256,	/* shown */
	CORE_DUMPED = 0x80,	/* in a wait status */
};

/* --- facts ------------------------------------------------------------------------------------- */

static void signal_name(char *buf, size_t sz, int32_t sig)
{
	const char *name = sigabbrev_np(sig);

	if (name)
		snprintf(buf, sz, "SIG%s", name);
	else
		snprintf(buf, sz, "signal %d", sig);
}

static const char *code_words(int32_t sig, int32_t code)
{
	static const struct { int32_t sig, code; const char *words; } known[] = {
		{ SIGSEGV, SEGV_MAPERR, "SEGV_MAPERR: nothing is mapped there" },
		{ SIGSEGV, SEGV_ACCERR, "SEGV_ACCERR: the mapping does not allow that access" },
		{ SIGSEGV, SI_KERNEL, "not an address that can exist" },
		{ SIGBUS, BUS_ADRALN, "BUS_ADRALN: wrong alignment" },
		{ SIGBUS, BUS_ADRERR, "BUS_ADRERR: nothing is behind the mapping there" },
		{ SIGBUS, BUS_MCEERR_AR, "BUS_MCEERR_AR: bad memory" },
		{ SIGBUS, BUS_MCEERR_AO, "BUS_MCEERR_AO: bad memory, not in use" },
		{ SIGFPE, FPE_INTDIV, "FPE_INTDIV: integer division by zero" },
		{ SIGFPE, FPE_INTOVF, "FPE_INTOVF: integer overflow" },
		{ SIGFPE, FPE_FLTDIV, "FPE_FLTDIV: division by zero" },
		{ SIGFPE, FPE_FLTOVF, "FPE_FLTOVF: overflow" },
		{ SIGFPE, FPE_FLTINV, "FPE_FLTINV: invalid operation" },
		{ SIGILL, ILL_ILLOPC, "ILL_ILLOPC: unknown instruction" },
		{ SIGILL, ILL_ILLOPN, "ILL_ILLOPN: unknown operand" },
		{ SIGILL, ILL_PRVOPC, "ILL_PRVOPC: privileged instruction" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].sig == sig && known[i].code == code)
			return known[i].words;
	return code == SI_TKILL ? "sent to a thread, as raise() and abort() do" : code == SI_USER ? "sent by kill()" :
		code == SI_KERNEL ? "sent by the kernel" : NULL;
}

__attribute__((format(printf, 3, 4)))
static void fact(struct dl_core_judging *j, bool decides, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	if (j->err)
		return;
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	j->err = text ? dl_pm_fact(j->pm, &j->who, 0, DL_PM_CORE, decides, "%s", text) : -ENOMEM;
	free(text);
	if (!j->err && decides)
		vec_last(&j->pm->facts)->wall_ns = j->core->wall_ns;
}

static void add_signal(struct dl_core_judging *j, const struct dl_core_signal *s, bool decides)
{
	const char *words = code_words(s->sig, s->code);
	char name[32];

	signal_name(name, sizeof(name), s->sig);
	if (s->code == INT32_MIN)
		fact(j, decides, "died of %s", name);
	else if (s->has_addr)
		fact(j, decides, "%s at address 0x%" PRIx64 ", code %d%s%s%s", name, s->addr, s->code, words ? " (" : "",
		     words ? words : "", words ? ")" : "");
	else if (s->code > 0)
		fact(j, decides, "%s from the kernel, code %d%s%s%s", name, s->code, words ? " (" : "", words ? words : "",
		     words ? ")" : "");
	else
		fact(j, decides, "%s from process %u, code %d%s%s%s", name, s->sender_pid, s->code, words ? " (" : "",
		     words ? words : "", words ? ")" : "");
}

static void add_mapping(struct dl_core_judging *j)
{
	const struct dl_core_map *m = j->map;
	char a[32], b[32];

	if (!m)
		return;
	fact(j, j->sig->sig == SIGBUS, "the address is in a mapping of '%s'%s, at offset %s of %s that are mapped", m->path,
	     m->deleted ? " (which had no name any more)" : "",
	     dl_fmt_bytes(a, sizeof(a), j->sig->addr - m->start + m->off), dl_fmt_bytes(b, sizeof(b), m->end - m->start));
}

static void add_top(struct dl_core_judging *j)
{
	const struct dl_core_frame *top = j->thread->frames.v, *own = dl_core_own_frame(j->thread);
	char buf[FRAME_TEXT];

	if (top)
		fact(j, false, "it was in %s", dl_core_frame_text(top, buf, sizeof(buf)));
	if (own && own != top)
		fact(j, false, "called from %s", dl_core_frame_text(own, buf, sizeof(buf)));
}

static void add_facts(struct dl_core_judging *j)
{
	const struct dl_core *core = j->core;

	add_signal(j, j->sig, true);
	add_mapping(j);
	add_top(j);
	if (core->abort_text)
		fact(j, j->sig->sig == SIGABRT, "glibc said: \"%s\"", core->abort_text);
	if (core->exception)
		fact(j, j->sig->sig == SIGABRT, "a C++ exception that nobody caught: %s%s%s%s", core->exception,
		     core->exception_text ? " \"" : "", core->exception_text ? core->exception_text : "",
		     core->exception_text ? "\"" : "");
	if (core->first.sig) {
		fact(j, false, "a signal handler took it and ended the process by a second signal");
		add_signal(j, &core->last, false);
	}
}

static void add_numbers(struct dl_core_judging *j)
{
	const struct dl_core *core = j->core;
	uint64_t sz = 0, cnt = 0, known;

	vec_for_each(&core->maps, m) {
		if (strncmp(m->path, "/dev/shm/torch_", 15))
			continue;
		sz += m->end - m->start;
		cnt++;
	}
	if (!j->err && !dl_pm_get(j->pm, "maps.count", &known))
		j->err = dl_pm_number(j->pm, "maps.count", "mappings of the process", core->map_cnt, DL_PM_CNT, DL_PM_CORE);
	if (!j->err && !dl_pm_get(j->pm, "threads", &known))
		j->err = dl_pm_number(j->pm, "threads", "threads of the process", core->thread_cnt, DL_PM_CNT, DL_PM_CORE);
	if (!j->err && cnt)
		j->err = dl_pm_number(j->pm, "shm.mapped", "PyTorch's shared memory that it had mapped", sz, DL_PM_BYTES, DL_PM_CORE);
	if (!j->err && cnt)
		j->err = dl_pm_number(j->pm, "shm.mapped-objects", "mappings of PyTorch's shared memory", cnt, DL_PM_CNT, DL_PM_CORE);
}

/* --- threads ----------------------------------------------------------------------------------- */

static const char *state_words(const struct dl_core *core, const struct dl_core_thread *t)
{
	static const char *const words[DL_SYS_CNT] = {
		[DL_SYS_READ] = "reading", [DL_SYS_WRITE] = "writing", [DL_SYS_POLL] = "waiting in poll for a descriptor",
		[DL_SYS_ACCEPT] = "waiting for a connection", [DL_SYS_CONNECT] = "connecting",
		[DL_SYS_FUTEX] = "waiting for a lock, or for another thread (futex)", [DL_SYS_SLEEP] = "sleeping",
		[DL_SYS_WAIT] = "waiting for a child process", [DL_SYS_FORK] = "starting a process",
		[DL_SYS_EXEC] = "starting a program", [DL_SYS_EXIT] = "ending", [DL_SYS_FILE] = "looking at a file",
		[DL_SYS_FSYNC] = "writing out a file", [DL_SYS_LOCK] = "locking a file", [DL_SYS_MMAP] = "mapping memory",
		[DL_SYS_KILL] = "sending a signal", [DL_SYS_CLOSE] = "closing a descriptor", [DL_SYS_OTHER] = "in the kernel",
	};
	const bool x86 = core->machine == EM_X86_64;
	const enum dl_sys sys = t->syscall < 0 ? DL_SYS_NONE :
		dl_sys_class(x86 ? DL_MACHINE_X86_64 : DL_MACHINE_ARM64, t->syscall);

	if (t->syscall == -2)
		return NULL;
	return sys == DL_SYS_NONE ? "running" : words[sys];
}

static struct dl_pm_thread *find_thread(struct dl_postmortem *pm, uint32_t tid)
{
	vec_for_each(&pm->threads, t)
		if (t->who.tid == tid)
			return t;
	return NULL;
}

static int add_stack(struct dl_pm_thread *to, const struct dl_core_thread *t)
{
	vec_for_each(&t->frames, f) {
		char buf[FRAME_TEXT], **slot = vec_push(&to->stack);

		if (!slot)
			return -ENOMEM;
		*slot = strdup(dl_core_frame_text(f, buf, sizeof(buf)));
		if (!*slot) {
			to->stack.cnt--;
			return -ENOMEM;
		}
	}
	return 0;
}

static int add_thread(struct dl_core_judging *j, const struct dl_core_thread *t, bool died)
{
	struct dl_pm_thread *to = find_thread(j->pm, t->tid);
	const char *state = died ? NULL : state_words(j->core, t);

	if (!to) {
		to = vec_push(&j->pm->threads);
		if (!to)
			return -ENOMEM;
		to->who = (struct dl_pm_who){ .pid = j->core->pid, .tid = t->tid, .nspid = j->core->pid, .index = -1 };
		to->holder.index = -1;
	} else if (to->stack.cnt) {
		return 0;	/* the trace has it */
	}
	to->died = died;
	if (!to->state && (died || state) && dl_pm_set(&to->state, "%s%s", died ? "took " : "", died ? j->name : state) < 0)
		return -ENOMEM;
	return add_stack(to, t);
}

static void add_threads(struct dl_core_judging *j)
{
	for (size_t i = 0; i < j->core->threads.cnt && i < THREADS_MAX && !j->err; i++)
		j->err = add_thread(j, &j->core->threads.v[i], !i && j->sig->sig);
	if (!j->err && j->core->thread_cnt > THREADS_MAX)
		j->err = dl_pm_note(j->pm, "%d of the %" PRIu64 " threads in the core are shown", THREADS_MAX, j->core->thread_cnt);
}

/* --- notes ------------------------------------------------------------------------------------- */

static void add_notes(struct dl_core_judging *j)
{
	const struct dl_core *core = j->core;
	char a[32], b[32];

	if (!j->err && core->truncated)
		j->err = dl_pm_note(j->pm, "the core is cut off (%s of %s are there): stacks may end early (ulimit -c, or a full disk)",
				    dl_fmt_bytes(a, sizeof(a), core->sz), dl_fmt_bytes(b, sizeof(b), core->want_sz));
	if (!j->err && core->missing.cnt)
		j->err = dl_pm_note(j->pm, "%zu file(s) that the core's stacks go through cannot be read here (%s): their functions have "
				    "no names, and callers may be missing; look at the core where the program ran",
				    core->missing.cnt, core->missing.v[0]);
	if (!j->err && core->changed.cnt)
		j->err = dl_pm_note(j->pm, "%zu file(s) are other builds than those that the core had mapped (%s), and were not used",
				    core->changed.cnt, core->changed.v[0]);
	if (!j->err && !core->maps.cnt)
		j->err = dl_pm_note(j->pm, "the core does not say which files were mapped");
	if (!j->err)
		j->err = dl_pm_note(j->pm, "a core has the numbers of processes and threads as they were inside their container, if there "
				    "was one");
}

/* --- all of it --------------------------------------------------------------------------------- */

/* False: a surer verdict is there already. */
static bool is_better(const struct dl_core_judging *j)
{
	if (j->pm->death != DL_DEATH_UNEXPLAINED && j->confidence <= j->pm->confidence)
		return false;
	return j->death != DL_DEATH_UNEXPLAINED || !j->pm->text;
}

static void apply(struct dl_core_judging *j, size_t alternatives)
{
	struct dl_postmortem *pm = j->pm;

	if (!is_better(j)) {
		while (pm->alternatives.cnt > alternatives) {
			const struct dl_pm_alternative *a = &pm->alternatives.v[--pm->alternatives.cnt];

			free(a->why);
			free(a->decides);
		}
		return;
	}
	pm->death = j->death;
	pm->confidence = j->confidence;
	pm->sig = j->core->last.sig;
	pm->status = j->core->last.sig | CORE_DUMPED;
	pm->has_status = true;
	free(pm->text);
	pm->text = take_ptr(j->text);
	pm->text[0] = pm->text[0] == 'p' ? 'P' : pm->text[0];
	j->err = dl_pm_who_copy(&pm->victim, &j->who);
}

int dl_pm_add_core(struct dl_postmortem *pm, const struct dl_core *core)
{
	struct dl_core_judging j = { .pm = pm, .core = core, .sig = dl_core_signal(core), .thread = core->threads.v };
	const size_t alternatives = pm->alternatives.cnt;
	char comm[sizeof(core->comm)];

	memcpy(comm, core->comm, sizeof(comm));
	j.who = (struct dl_pm_who){ .pid = core->pid, .tid = j.thread->tid, .nspid = core->pid, .index = -1,
				    .name = comm[0] ? comm : NULL };
	snprintf(j.subject, sizeof(j.subject), "process %u%s%s%s", core->pid, comm[0] ? " (" : "", comm, comm[0] ? ")" : "");
	signal_name(j.name, sizeof(j.name), j.sig->sig);
	if (j.sig->has_addr)
		j.map = dl_core_map_at(core, j.sig->addr);
	if (!pm->cmdline && core->cmdline && core->cmdline[0] && dl_pm_set(&pm->cmdline, "%s", core->cmdline) < 0)
		return -ENOMEM;
	if (j.sig->sig) {
		dl_core_judge(&j);
		add_facts(&j);
		if (!j.err)
			apply(&j, alternatives);
	} else {
		j.err = dl_pm_note(pm, "the core names no signal: it was taken of a process that was alive (gcore), and says where its "
				   "threads were, not of what it died");
	}
	free(j.text);
	add_numbers(&j);
	add_threads(&j);
	add_notes(&j);
	return j.err;
}
