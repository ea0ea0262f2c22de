/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of triggers and what each looks at. */
#include "capture/trigger.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/proc.h"
#include "trace/schema.h"

/* A thread that waits for a batch still wakes up every 5 s (MP_STATUS_CHECK_INTERVAL in PyTorch's
 * worker.py) to see whether its workers live, which takes it below a millisecond. */
#define MOVED_NS 10000000ULL	/* CPU time a second of one process that is more than that */
#define TREE_MOVED_NS 20000000ULL	/* of the whole tree */
#define TICK_NS (DL_NS_PER_S / 2)

struct dl_trigger_row {
	const char *name;
	enum dl_trigger what;
	bool by_option;		/* can be chosen by --trigger */
	uint64_t after_ns;	/* default; 0: it takes no time */
	bool (*event)(struct dl_kstate *s, const struct dl_hdr *ev, struct dl_fired *ret);
	uint16_t kind;		/* of the events */
	bool (*tick)(struct dl_triggers *t, struct dl_kstate *s, uint64_t now, struct dl_fired *ret);
};

__attribute__((format(printf, 2, 3)))
static bool fired(struct dl_fired *ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ret->text, sizeof(ret->text), fmt, ap);
	va_end(ap);
	return true;
}

/* "worker 4312 (python3)" */
static const char *who(const struct dl_kstate *s, uint32_t pid, char *buf, size_t sz)
{
	const struct dl_kstate_proc *p = dl_kstate_proc(s, pid);
	char name[17];

	dl_kstate_name(s, pid, name);
	snprintf(buf, sz, "%s %u%s%s%s", p && p->worker ? "worker" : p && p->trainer ? "the trainer" :
		 p && p->root ? "the target" : "process", pid, name[0] ? " (" : "", name, name[0] ? ")" : "");
	return buf;
}

/* --- events ------------------------------------------------------------------------------------- */

/* Signals that mean that something went wrong with whatever process they end. Others are how programs
 * end their helpers. */
static bool is_program_error(int sig)
{
	return sig == SIGBUS || sig == SIGSEGV || sig == SIGABRT || sig == SIGFPE || sig == SIGILL || sig == SIGSYS ||
	       sig == SIGKILL;
}

/* Helpers say "no" by their exit codes: only those of workers, trainers and the target count. */
static bool death(struct dl_kstate *s, const struct dl_hdr *ev, struct dl_fired *ret)
{
	const struct dl_ev_exit *ex = (const void *)ev;
	const int sig = ex->code & 0x7f;
	const struct dl_kstate_proc *p;
	char buf[64];

	if (!(ex->flags & DL_EX_LAST) || !ex->code)
		return false;
	dl_kstate_count_workers(s);
	p = dl_kstate_proc(s, ev->pid);
	if (!p || !(p->worker || p->trainer || p->root || is_program_error(sig)))
		return false;
	who(s, ev->pid, buf, sizeof(buf));
	if (sig)
		return fired(ret, "%s was killed by signal %d (%s)", buf, sig, strsignal(sig));
	return fired(ret, "%s ended with exit code %d", buf, WEXITSTATUS(ex->code));
}

static bool oom(struct dl_kstate *s, const struct dl_hdr *ev, struct dl_fired *ret)
{
	const struct dl_ev_oom_kill *kill = (const void *)ev;
	char buf[64], used[16];
	const char *group;
	size_t len;

	if (kill->flags & DL_OOM_FOREIGN)
		return false;
	who(s, kill->target_pid, buf, sizeof(buf));
	group = dl_event_tail(ev, &len);
	if (!(kill->flags & DL_OOM_MEMCG))
		return fired(ret, "the machine was out of memory and the kernel chose %s", buf);
	return fired(ret, "cgroup %.*s was at its memory limit (%s) and the kernel chose %s", (int)(len < 80 ? len : 80),
		     group, dl_fmt_bytes(used, sizeof(used), kill->limit), buf);
}

static bool sigbus(struct dl_kstate *s, const struct dl_hdr *ev, struct dl_fired *ret)
{
	const struct dl_ev_signal *sig = (const void *)ev;
	char buf[64];

	if (sig->sig != SIGBUS || !dl_kstate_proc(s, sig->target_pid))
		return false;
	return fired(ret, "%s got SIGBUS", who(s, sig->target_pid, buf, sizeof(buf)));
}

/* --- time --------------------------------------------------------------------------------------- */

struct gap {
	const struct dl_triggers *t;
	struct dl_kstate *s;
	uint64_t now;
	struct dl_fired *ret;
	bool fired;
};

/* What the recorder sees of "no batch": the process that trains does nothing, and gives the GPU nothing. */
static void look_at_trainer(struct dl_kstate_proc *p, void *arg)
{
	struct gap *g = arg;
	char buf[64], took[16];

	if (p->ended || !p->trainer || !p->workers || g->fired)
		return;
	if (!p->moved_ts || p->running || p->gpu_events != p->seen_gpu ||
	    p->cpu_ns - p->seen_cpu_ns >= MOVED_NS * (g->now - g->t->tick_ts) / DL_NS_PER_S) {
		p->moved_ts = g->now;
		p->told = false;
	}
	p->seen_cpu_ns = p->cpu_ns;
	p->seen_gpu = p->gpu_events;
	if (p->told || g->now - p->moved_ts < g->t->after_ns[DL_TRIGGER_GAP])
		return;
	p->told = true;
	g->fired = fired(g->ret, "%s has done nothing for %s while %u worker%s live%s",
			 who(g->s, p->pid, buf, sizeof(buf)), dl_fmt_ns(took, sizeof(took), g->now - p->moved_ts),
			 p->workers, p->workers == 1 ? "" : "s", p->workers == 1 ? "s" : "");
}

static bool gap(struct dl_triggers *t, struct dl_kstate *s, uint64_t now, struct dl_fired *ret)
{
	struct gap g = { .t = t, .s = s, .now = now, .ret = ret };

	dl_kstate_count_workers(s);
	dl_kstate_each_proc(s, look_at_trainer, &g);
	return g.fired;
}

static bool stall(struct dl_triggers *t, struct dl_kstate *s, uint64_t now, struct dl_fired *ret)
{
	struct dl_kstate_totals is;
	char took[16];

	dl_kstate_totals(s, &is);
	if (!t->moved_ts || is.running || is.io != t->seen.io || is.gpu_events != t->seen.gpu_events ||
	    is.cpu_ns - t->seen.cpu_ns >= TREE_MOVED_NS * (now - t->tick_ts) / DL_NS_PER_S) {
		t->moved_ts = now;
		t->told = false;
	}
	t->seen = is;
	if (t->told || !is.threads || now - t->moved_ts < t->after_ns[DL_TRIGGER_STALL])
		return false;
	t->told = true;
	return fired(ret, "no process of the run has done anything for %s", dl_fmt_ns(took, sizeof(took), now - t->moved_ts));
}

/* --- the table ---------------------------------------------------------------------------------- */

static const struct dl_trigger_row rows[] = {
	{ "death", DL_TRIGGER_DEATH, true, .event = death, .kind = DL_EV_EXIT },
	{ "oom", DL_TRIGGER_OOM, true, .event = oom, .kind = DL_EV_OOM_KILL },
	{ "sigbus", DL_TRIGGER_SIGBUS, true, .event = sigbus, .kind = DL_EV_SIGNAL },
	{ "gap", DL_TRIGGER_GAP, true, 60 * DL_NS_PER_S, .tick = gap },
	{ "stall", DL_TRIGGER_STALL, true, 60 * DL_NS_PER_S, .tick = stall },
	{ "signal", DL_TRIGGER_SIGNAL, true, .tick = NULL },		/* the recorder's loop sees it */
	{ "forecast", DL_TRIGGER_FORECAST, false, .tick = NULL },	/* forecast_lines.c */
};

const struct dl_trigger_row *dl_trigger_row(unsigned int i)
{
	return i < ARRAY_SIZE(rows) ? &rows[i] : NULL;
}

const char *dl_trigger_name(enum dl_trigger what)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].what == what)
			return rows[i].name;
	}
	return "unknown";
}

enum dl_trigger dl_trigger_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].by_option && !strcmp(rows[i].name, name))
			return rows[i].what;
	}
	return DL_TRIGGER_NONE;
}

bool dl_trigger_takes_time(enum dl_trigger what)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].what == what)
			return rows[i].after_ns != 0;
	}
	return false;
}

void dl_triggers_defaults(struct dl_triggers *t)
{
	*t = (struct dl_triggers){};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		t->on[rows[i].what] = rows[i].by_option;
		t->after_ns[rows[i].what] = rows[i].after_ns;
	}
}

bool dl_trigger_event(const struct dl_triggers *t, struct dl_kstate *s, const struct dl_hdr *ev, struct dl_fired *ret)
{
	if (ev->kind == DL_EV_SWITCH || ev->kind == DL_EV_WAKE || (ev->flags & DL_HDR_RESTATED) || t->ending)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ret->what = rows[i].what;
		if (rows[i].event && rows[i].kind == ev->kind && t->on[rows[i].what] && rows[i].event(s, ev, ret))
			return true;
	}
	return false;
}

int dl_trigger_tick(struct dl_triggers *t, struct dl_kstate *s, uint64_t now, struct dl_fired ret[DL_TRIGGER_MAX])
{
	int cnt = 0;

	if (t->ending || (t->tick_ts && now - t->tick_ts < TICK_NS))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (!rows[i].tick || !t->on[rows[i].what])
			continue;
		ret[cnt].what = rows[i].what;
		cnt += rows[i].tick(t, s, now, &ret[cnt]);
	}
	t->tick_ts = now;
	return cnt;
}
