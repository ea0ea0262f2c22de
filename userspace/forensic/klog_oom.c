/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reports of the out-of-memory killer, which are of many lines (mm/oom_kill.c, mm/memcontrol.c and mm/show_mem.c of the
 * kernel). The lines, of which older kernels have fewer:
 *
 *	python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
 *	memory: usage 1048576kB, limit 1048576kB, failcnt 812
 *	Memory cgroup stats for /job: cache:0KB rss:1040000KB ...	(to 5.1; later one statistic a line)
 *	[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
 *	oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/job,task_memcg=/job/a,task=python3,pid=812,uid=0	(from 4.20)
 *	Task in /job/a killed as a result of limit of /job		(before)
 *	Memory cgroup out of memory: Killed process 812 (python3) total-vm:...kB, anon-rss:...kB, ...
 *
 * The last of them makes the event. A report whose end is missing makes none: nobody is known to have died.
 */
#include "forensic/klog_int.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum {
	TASKS_MAX = 4096,
	PAGE = 4096,	/* of the table; the log does not say what a page is, and 4 KiB it is nearly everywhere */
};

static void reset_oom(struct dl_klog_oom *o)
{
	uint64_t *const unknown[] = {
		&o->anon, &o->file, &o->shmem, &o->pgtables, &o->total_vm, &o->usage, &o->limit, &o->failcnt, &o->swap_usage,
		&o->swap_limit, &o->group_anon, &o->group_file, &o->group_shmem, &o->group_pgtables, &o->group_swap,
		&o->host_total, &o->host_free, &o->host_shmem, &o->host_swap_total, &o->host_swap_free,
	};

	*o = (struct dl_klog_oom){};
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
		*unknown[i] = DL_KLOG_UNKNOWN;
}

static struct dl_klog_oom *begin_report(struct dl_klog *k, const struct dl_klog_prefix *p)
{
	struct dl_klog_parser *ps = k->parser;

	dl_klog_event_fini(&ps->report);
	ps->report = (struct dl_klog_event){
		.kind = DL_KLOG_OOM, .sig = SIGKILL, .boot_ns = p->boot_ns, .wall_ns = p->wall_ns,
	};
	reset_oom(&ps->report.oom);
	memset(ps->col, -1, sizeof(ps->col));
	ps->open = true;
	ps->stats = false;
	return &ps->report.oom;
}

/* "anon-rss:123kB" in bytes. */
static void kb(const char *msg, const char *key, uint64_t *to)
{
	uint64_t nr;

	if (dl_klog_num(msg, key, 10, &nr) && nr < UINT64_MAX / 1024)
		*to = nr * 1024;
}

static int set_text(char **to, const char *msg, const char *key)
{
	char buf[1024];

	if (!dl_klog_word(msg, key, buf, sizeof(buf)))
		return 0;
	free(*to);
	*to = strdup(buf);
	return *to ? 0 : -ENOMEM;
}

/* --- the group ---------------------------------------------------------------------------------- */

static const struct { const char *name; size_t off; } stat_names[] = {
#define S(name, member) { name, offsetof(struct dl_klog_oom, member) }
	S("anon", group_anon), S("file", group_file), S("shmem", group_shmem), S("pagetables", group_pgtables),
	/* version 1: of the group alone, and with those below it, which come later and count */
	S("rss", group_anon), S("cache", group_file), S("swap", group_swap), S("total_rss", group_anon),
	S("total_cache", group_file), S("total_shmem", group_shmem), S("total_swap", group_swap),
#undef S
};

static uint64_t *stat_by_name(struct dl_klog_oom *o, const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(stat_names); i++)
		if (strlen(stat_names[i].name) == len && !strncmp(stat_names[i].name, name, len))
			return (uint64_t *)((char *)o + stat_names[i].off);
	return NULL;
}

/* "cache:12KB rss:34KB ..." in one line for each group from that of the limit down, each for itself. */
static void old_stats(const char *s, struct dl_klog_oom *o)
{
	while (*s) {
		const size_t len = strcspn(s, ": ");

		if (s[len] == ':' && isdigit((unsigned char)s[len + 1])) {
			uint64_t *to = stat_by_name(o, s, len);
			const uint64_t nr = strtoull(s + len + 1, NULL, 10);

			if (to && nr < UINT64_MAX / 2048)
				*to = (*to == DL_KLOG_UNKNOWN ? 0 : *to) + nr * 1024;
		}
		s += strcspn(s, " ");
		s += strspn(s, " ");
	}
}

/* "anon 123", bytes. */
static bool new_stat(const char *msg, struct dl_klog_oom *o)
{
	const size_t len = strspn(msg, "abcdefghijklmnopqrstuvwxyz_0123456789");
	const char *nr = msg + len + (msg[len] == ' ');
	const size_t digits = strspn(nr, "0123456789");
	uint64_t *to;

	if (!len || nr == msg + len || !digits || nr[digits])
		return false;
	to = stat_by_name(o, msg, len);
	if (to)
		*to = strtoull(nr, NULL, 10);
	return true;
}

static bool usage_line(const char *msg, struct dl_klog_oom *o)
{
	const bool mem = !strncmp(msg, "memory: usage ", 14), swap = !strncmp(msg, "swap: usage ", 12);

	if (!mem && !swap && strncmp(msg, "memory+swap: usage ", 19))
		return false;
	kb(msg, "usage ", mem ? &o->usage : swap ? &o->group_swap : &o->swap_usage);
	kb(msg, "limit ", mem ? &o->limit : &o->swap_limit);
	if (mem)
		dl_klog_num(msg, "failcnt ", 10, &o->failcnt);
	return true;
}

/* --- the machine -------------------------------------------------------------------------------- */

static void pages(const char *msg, const char *key, uint64_t *to)
{
	uint64_t nr;

	if (dl_klog_num(msg, key, 10, &nr) && nr < UINT64_MAX / PAGE)
		*to = nr * PAGE;
}

static bool host_line(const char *msg, struct dl_klog_oom *o)
{
	uint64_t nr;

	if (!strncmp(msg, "Free swap  = ", 13)) {
		kb(msg, "= ", &o->host_swap_free);
	} else if (!strncmp(msg, "Total swap = ", 13)) {
		kb(msg, "= ", &o->host_swap_total);
	} else if (isdigit((unsigned char)*msg) && strstr(msg, " pages RAM")) {
		nr = strtoull(msg, NULL, 10);
		o->host_total = nr < UINT64_MAX / PAGE ? nr * PAGE : DL_KLOG_UNKNOWN;
	} else if (!strncmp(msg, "mapped:", 7) || !strncmp(msg, "active_anon:", 12) || !strncmp(msg, "free:", 5)) {
		pages(msg, " shmem:", &o->host_shmem);
		if (!strncmp(msg, "free:", 5))
			pages(msg, "free:", &o->host_free);
	} else {
		return false;
	}
	return true;
}

/* --- the table of tasks -------------------------------------------------------------------------- */

static const char *const column_names[DL_COL_CNT] = {
	[DL_COL_PID] = "pid", [DL_COL_TGID] = "tgid", [DL_COL_RSS] = "rss", [DL_COL_ANON] = "rss_anon",
	[DL_COL_FILE] = "rss_file", [DL_COL_SHMEM] = "rss_shmem", [DL_COL_PGTABLES] = "pgtables_bytes",
	[DL_COL_NR_PTES] = "nr_ptes", [DL_COL_SWAP] = "swapents", [DL_COL_ADJ] = "oom_score_adj",
};

/* The next word of a line, brackets and spaces left out; NULL at its end. */
static const char *next_column(const char *s, size_t *ret_len)
{
	s += strspn(s, "[] ");
	*ret_len = strcspn(s, "[] ");
	return *ret_len ? s : NULL;
}

static bool table_header(const char *msg, int8_t *col)
{
	const char *s = msg;
	size_t len;

	if (*msg != '[' || strncmp(msg + 1 + strspn(msg + 1, " "), "pid", 3) || !strstr(msg, "oom_score_adj"))
		return false;
	memset(col, -1, DL_COL_CNT);
	for (int8_t n = 0; (s = next_column(s, &len)); s += len, n++)
		for (int i = 0; i < DL_COL_CNT; i++)
			if (strlen(column_names[i]) == len && !strncmp(s, column_names[i], len))
				col[i] = n;
	return true;
}

static uint64_t of_column(const int8_t *col, int which, const uint64_t *nr, int cnt, uint64_t unit)
{
	const int n = col[which];

	return n < 0 || n >= cnt || nr[n] > UINT64_MAX / unit ? DL_KLOG_UNKNOWN : nr[n] * unit;
}

/* "[    812]     0   812   523456   262144  2162688        0             0 python3" */
static int table_row(const char *msg, const int8_t *col, struct dl_klog_oom *o)
{
	struct dl_klog_task t = {}, *to;
	uint64_t nr[16];
	const char *s = msg;
	int cnt = 0;
	size_t len;

	while (cnt < (int)ARRAY_SIZE(nr) && cnt <= col[DL_COL_ADJ] && (s = next_column(s, &len)) &&
	       strspn(s, "-0123456789") >= len) {
		nr[cnt++] = (uint64_t)strtoll(s, NULL, 10);
		s += len;
	}
	if (!s || cnt <= col[DL_COL_ADJ] || o->tasks.cnt >= TASKS_MAX || !next_column(s, &len))
		return 0;
	t.pid = (uint32_t)of_column(col, DL_COL_PID, nr, cnt, 1);
	t.tgid = (uint32_t)of_column(col, DL_COL_TGID, nr, cnt, 1);
	t.rss = of_column(col, DL_COL_RSS, nr, cnt, PAGE);
	t.anon = of_column(col, DL_COL_ANON, nr, cnt, PAGE);
	t.file = of_column(col, DL_COL_FILE, nr, cnt, PAGE);
	t.shmem = of_column(col, DL_COL_SHMEM, nr, cnt, PAGE);
	t.pgtables = col[DL_COL_PGTABLES] >= 0 ? of_column(col, DL_COL_PGTABLES, nr, cnt, 1) :
		of_column(col, DL_COL_NR_PTES, nr, cnt, PAGE);
	t.swap = of_column(col, DL_COL_SWAP, nr, cnt, PAGE);
	t.oom_score_adj = (int32_t)nr[col[DL_COL_ADJ]];
	snprintf(t.comm, sizeof(t.comm), "%s", next_column(s, &len));
	to = vec_push(&o->tasks);
	if (!to)
		return -ENOMEM;
	*to = t;
	return 0;
}

/* --- who was killed ------------------------------------------------------------------------------- */

/* "process 812 (python3)", also with a name that holds parentheses. */
static bool process_named(const char *msg, uint32_t *ret_pid, char *comm)
{
	const char *p = strstr(msg, "process "), *close;
	char *end;
	size_t len;

	if (!p)
		return false;
	*ret_pid = (uint32_t)strtoul(p + 8, &end, 10);
	if (end == p + 8)
		return false;
	comm[0] = '\0';
	if (end[0] == ' ' && end[1] == '(') {
		close = strstr(end, ") total-vm:");
		if (!close)
			close = strstr(end, "), UID ");
		if (!close)
			close = strrchr(end, ')');
		len = close ? (size_t)(close - end - 2) : 0;
		len = len < 15 ? len : 15;
		memcpy(comm, end + 2, len);
		comm[len] = '\0';
	}
	return true;
}

static bool is_kill(const char *msg)
{
	return !strncmp(msg, "Killed process ", 15) || strstr(msg, ": Killed process ") || strstr(msg, "): Killed process ");
}

static int end_report(struct dl_klog *k, const char *msg, const struct dl_klog_prefix *p)
{
	struct dl_klog_parser *ps = k->parser;
	struct dl_klog_event *ev = &ps->report;
	uint32_t pid;
	uint64_t uid;
	int err;

	if (!ps->open)
		begin_report(k, p);	/* its beginning was left out: rate limit, or a text that was cut */
	if (!process_named(msg, &pid, ev->oom.victim))
		return 0;
	ev->pid = pid;
	ev->boot_ns = p->boot_ns ? p->boot_ns : ev->boot_ns;
	ev->wall_ns = p->wall_ns ? p->wall_ns : ev->wall_ns;
	snprintf(ev->comm, sizeof(ev->comm), "%s", ev->oom.victim);
	if (!strncmp(msg, "Memory cgroup", 13))
		ev->oom.memcg = true;
	kb(msg, "total-vm:", &ev->oom.total_vm);
	kb(msg, "anon-rss:", &ev->oom.anon);
	kb(msg, "file-rss:", &ev->oom.file);
	kb(msg, "shmem-rss:", &ev->oom.shmem);
	kb(msg, "pgtables:", &ev->oom.pgtables);
	if (dl_klog_num(msg, "UID:", 10, &uid))
		ev->oom.uid = (uint32_t)uid;
	/* The kernel counts shared memory among the files. */
	if (ev->oom.group_shmem != DL_KLOG_UNKNOWN && ev->oom.group_file != DL_KLOG_UNKNOWN)
		ev->oom.group_file -= ev->oom.group_shmem < ev->oom.group_file ? ev->oom.group_shmem : ev->oom.group_file;
	ev->text = strdup(msg);
	err = ev->text ? dl_klog_keep(k, ev) : -ENOMEM;
	if (err)
		dl_klog_event_fini(ev);
	*ev = (struct dl_klog_event){};
	ps->open = false;
	return err;
}

/* "oom-kill:constraint=...", all in one line. */
static int constraint_line(const char *msg, struct dl_klog_event *ev)
{
	struct dl_klog_oom *o = &ev->oom;
	uint64_t nr;
	int err;

	o->memcg = strstr(msg, "constraint=CONSTRAINT_MEMCG") != NULL;
	o->cpuset = strstr(msg, "constraint=CONSTRAINT_CPUSET") || strstr(msg, "constraint=CONSTRAINT_MEMORY_POLICY");
	err = set_text(&o->limit_cgroup, msg, ",oom_memcg=");
	if (!err)
		err = set_text(&o->cgroup, msg, ",task_memcg=");
	dl_klog_word(msg, ",task=", o->victim, sizeof(o->victim));
	if (dl_klog_num(msg, ",pid=", 10, &nr))
		ev->pid = (uint32_t)nr;
	if (dl_klog_num(msg, ",uid=", 10, &nr))
		o->uid = (uint32_t)nr;
	return err;
}

/* "Task in /job/a killed as a result of limit of /job" */
static int task_in_line(const char *msg, struct dl_klog_oom *o)
{
	int err = set_text(&o->cgroup, msg, "Task in ");

	o->memcg = true;
	return err ? err : set_text(&o->limit_cgroup, msg, "limit of ");
}

bool dl_klog_oom_line(struct dl_klog *k, const char *msg, const struct dl_klog_prefix *p, int *ret_err)
{
	struct dl_klog_parser *ps = k->parser;
	struct dl_klog_oom *o = &ps->report.oom;
	const char *at = strstr(msg, " invoked oom-killer: ");

	*ret_err = 0;
	if (at) {
		o = begin_report(k, p);
		snprintf(o->trigger, sizeof(o->trigger), "%.*s", (int)(at - msg), msg);
		return true;
	}
	if (is_kill(msg)) {
		*ret_err = end_report(k, msg, p);
		return true;
	}
	if (!strncmp(msg, "oom-kill:constraint=", 20) ||
	    (!strncmp(msg, "Task in ", 8) && strstr(msg, " killed as a result of"))) {
		if (!ps->open)
			o = begin_report(k, p);
		*ret_err = *msg == 'o' ? constraint_line(msg, &ps->report) : task_in_line(msg, o);
		return true;
	}
	if (!ps->open)
		return false;
	if (strstr(msg, "out of memory: Kill process ")) {	/* before 5.x; the line of the kill follows */
		o->memcg |= !strncmp(msg, "Memory cgroup", 13);
		return true;
	}
	if (!strncmp(msg, "Memory cgroup stats for ", 24)) {
		o->memcg = true;
		ps->stats = true;
		*ret_err = o->limit_cgroup ? 0 : set_text(&o->limit_cgroup, msg, "stats for ");
		if (o->limit_cgroup && o->limit_cgroup[0] && o->limit_cgroup[strlen(o->limit_cgroup) - 1] == ':')
			o->limit_cgroup[strlen(o->limit_cgroup) - 1] = '\0';
		old_stats(msg, o);
		return true;
	}
	if (table_header(msg, ps->col)) {
		ps->stats = false;
		return true;
	}
	if (*msg == '[' && ps->col[DL_COL_ADJ] >= 0) {
		*ret_err = table_row(msg, ps->col, o);
		return true;
	}
	return usage_line(msg, o) || host_line(msg, o) || (ps->stats && new_stat(msg, o));
}
