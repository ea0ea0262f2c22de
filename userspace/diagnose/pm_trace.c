/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From a trace to a post-mortem: the verdict first, then what it rests on, then what to do. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/pm_int.h"
#include "trace/trace.h"

static int take_text(char **to, const char *from)
{
	if (!from || !*from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -ENOMEM;
}

static void take_meta(struct dl_pmx *x, const struct dl_trace_info *info)
{
	struct dl_postmortem *pm = x->pm;

	pm->complete = info->complete && x->tl->stopped;
	pm->start = info->meta.start_ts ? info->meta.start_ts : x->tl->start;
	pm->end = x->tl->end;
	pm->wall_ns = (int64_t)info->meta.start_realtime_ns;
	DL_PM_DO(x, take_text(&pm->host, info->meta.host));
	DL_PM_DO(x, take_text(&pm->kernel, info->meta.kernel));
	DL_PM_DO(x, take_text(&pm->cmdline, info->meta.target_cmdline));
}

/* As the kernel numbers it, or as it is in its container, which is what PyTorch prints: the first that died of
 * several of one number, else the last. */
static uint32_t find_proc(const struct dl_timeline *tl, uint32_t pid)
{
	uint32_t host = DL_NONE, inner = DL_NONE;

	for (uint32_t i = 0; i < tl->procs.cnt; i++) {
		const struct dl_proc *p = &tl->procs.v[i];

		if (p->pid == pid && (host == DL_NONE || !tl->procs.v[host].exited || !tl->procs.v[host].exit_status))
			host = i;
		if (p->nspid == pid && (inner == DL_NONE || !tl->procs.v[inner].exited || !tl->procs.v[inner].exit_status))
			inner = i;
	}
	return host != DL_NONE ? host : inner;
}

static void set_walls(struct dl_postmortem *pm)
{
	if (!pm->wall_ns)
		return;
	vec_for_each(&pm->facts, f) {
		if (f->ts)
			f->wall_ns = pm->wall_ns + (int64_t)(f->ts - pm->start);
	}
}

static int explain(struct dl_pmx *x, uint32_t asked, const struct dl_trace_info *info, const struct dl_pm_opts *opts)
{
	take_meta(x, info);
	DL_PM_DO(x, dl_pm_judge(x, asked));
	if (x->err)
		return x->err;
	dl_pm_numbers(x);
	dl_pm_facts(x);
	dl_pm_procs(x);
	dl_pm_add_threads(x);
	dl_pm_gpu(x);
	dl_pm_notes(x, x->pm->complete);
	set_walls(x->pm);
	if (opts && opts->log) {
		DL_PM_DO(x, dl_pm_read_log(x->pm, opts->log, opts->log_len));
		DL_PM_DO(x, dl_pm_judge_claims(x->pm));
	}
	DL_PM_DO(x, dl_pm_remedies(x->pm));
	return x->err;
}

int dl_postmortem_trace(struct dl_postmortem **ret, struct dl_trace *t, const struct dl_pm_opts *opts, struct dl_diag *d)
{
	const struct dl_trace_info *info = dl_trace_info(t);
	struct dl_timeline *tl = NULL;
	struct dl_pmx x = {};
	uint32_t asked = DL_NONE;
	int err = dl_timeline_build(&tl, t, d);

	if (err)
		return err;
	if (opts && opts->pid) {
		asked = find_proc(tl, opts->pid);
		if (asked == DL_NONE)
			err = dl_fail(d, -ESRCH, "no process %" PRIu32 " is in this trace, neither by the machine's number nor by a container's",
				      opts->pid);
	}
	if (!err) {
		x = (struct dl_pmx){ .tl = tl, .meta = &info->meta, .pm = dl_pm_new() };
		err = x.pm ? explain(&x, asked, info, opts) : -ENOMEM;
		vec_free(&x.fails);
		if (err) {
			dl_postmortem_free(x.pm);
			err = err == -ENOMEM ? dl_oom(d) : err;
		}
	}
	dl_timeline_free(tl);
	if (!err)
		*ret = x.pm;
	return err;
}
