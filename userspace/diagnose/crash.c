/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The crash of a report: the verdict of the post-mortem in short. There is one judge of deaths. */
#include "diagnose/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/pm_int.h"

/* What is only possible, or was only wanted by its user, is no crash. */
static bool is_crash(const struct dl_postmortem *pm)
{
	if (pm->death == DL_DEATH_NONE || !pm->victim.pid)
		return false;
	return pm->death == DL_DEATH_UNEXPLAINED || pm->confidence >= DL_PM_LIKELY;
}

static int take_crash(struct dl_report *r, struct dl_postmortem *pm)
{
	struct dl_crash_report *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	r->crash = c;
	c->pid = pm->victim.pid;
	c->nspid = pm->victim.nspid;
	c->role = pm->victim.role;
	c->index = pm->victim.index;
	c->sig = pm->sig;
	c->ts = pm->ts;
	c->text = pm->text;
	pm->text = NULL;
	if (pm->death == DL_DEATH_UNEXPLAINED)
		return 0;
	c->cause = strdup(dl_death_id(pm->death));
	return c->cause ? 0 : -ENOMEM;
}

int dl_find_crash(struct dl_report *r, const struct dl_timeline *tl, struct dl_diag *d)
{
	struct dl_pmx x = { .tl = tl, .pm = dl_pm_new(), .brief = true };
	int err = x.pm ? dl_pm_judge(&x, DL_NONE) : -ENOMEM;

	if (!err && is_crash(x.pm))
		err = take_crash(r, x.pm);
	vec_free(&x.fails);
	dl_postmortem_free(x.pm);
	return err ? dl_oom(d) : 0;
}
