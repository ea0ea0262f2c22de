/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The end of a timeline. */
#include <stdlib.h>

#include "timeline/past.h"
#include "timeline/timeline.h"

static void kept_free(struct dl_kept_vec *kept)
{
	vec_for_each(kept, k)
		free(k->ev);
	vec_free(kept);
}

static void texts_free(struct dl_text_vec *texts)
{
	vec_for_each(texts, t)
		free(*t);
	vec_free(texts);
}

static void proc_fini(struct dl_proc *p)
{
	free(p->cmdline);
	free(p->gpu_text);
	free(p->gpu_busy);
	vec_free(&p->gpu_blind);
	vec_free(&p->mem);
	vec_for_each(&p->mappings, m)
		free(m->path);
	vec_free(&p->mappings);
	vec_free(&p->apis);
	vec_free(&p->kernels);
	vec_free(&p->copies);
	vec_free(&p->syncs);
	vec_free(&p->starting);
	vec_free(&p->loading);
	vec_free(&p->handover);
	vec_free(&p->threads);
	vec_free(&p->lives);
	dl_dense_fini(&p->api_by_corr);
	dl_dense_fini(&p->copy_by_corr);
	vec_free(&p->devices);
}

void dl_timeline_free(struct dl_timeline *tl)
{
	if (!tl)
		return;
	vec_for_each(&tl->threads, th) {
		vec_free(&th->segs);
		vec_free(&th->waits);
		vec_free(&th->rqs);
		vec_free(&th->woke);
		vec_free(&th->samples);
		vec_free(&th->own_samples);
		vec_free(&th->steps);
		vec_free(&th->reach);
		vec_free(&th->apis);
		vec_free(&th->in_data);
		vec_free(&th->in_calls);
		vec_free(&th->in_costly);
		dl_past_free(th->past);
	}
	vec_for_each(&tl->procs, p)
		proc_fini(p);
	vec_for_each(&tl->stacks, s)
		free(s->addrs);
	vec_for_each(&tl->gpu_names, n)
		free(n->name);
	vec_free(&tl->threads);
	vec_free(&tl->procs);
	vec_free(&tl->stacks);
	vec_free(&tl->gpu_names);
	vec_for_each(&tl->cpus, c)
		vec_free(&c->runs);
	vec_free(&tl->cpus);
	vec_free(&tl->loaders);
	vec_for_each(&tl->puts, it)
		dl_values_fini(&it->ns);
	vec_free(&tl->puts);
	vec_for_each(&tl->losses, l)
		vec_free(&l->times);
	vec_free(&tl->losses);
	vec_free(&tl->holes);
	texts_free(&tl->absent);
	texts_free(&tl->texts);
	kept_free(&tl->crash);
	kept_free(&tl->env);
	kept_free(&tl->clocks);
	kept_free(&tl->gpu_looks);
	dl_map_fini(&tl->tids);
	dl_map_fini(&tl->pids);
	dl_map_fini(&tl->strings);
	dl_map_fini(&tl->ksyms);
	dl_map_fini(&tl->usyms);
	free(tl->places);
	free(tl);
}
