/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The post-mortem as data: names, building, freeing. What goes in is found elsewhere. */
#include "diagnose/postmortem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static const struct { const char *id, *doc; } deaths[DL_DEATH_CNT] = {
#define DEATH(ID, id, doc) [DL_DEATH_##ID] = { id, doc },
#include "diagnose/death.def"
#undef DEATH
};

const char *dl_death_id(enum dl_death death)
{
	return death < DL_DEATH_CNT ? deaths[death].id : "unexplained";
}

const char *dl_death_doc(enum dl_death death)
{
	return death < DL_DEATH_CNT ? deaths[death].doc : "";
}

const char *dl_pm_source_id(enum dl_pm_source source)
{
	static const char *const ids[DL_PM_SOURCE_CNT] = { "trace", "kernel-log", "core", "cgroup", "proc", "shm", "log" };

	return source < DL_PM_SOURCE_CNT ? ids[source] : "trace";
}

const char *dl_pm_confidence_id(enum dl_pm_confidence confidence)
{
	static const char *const ids[] = { "unknown", "possible", "likely", "certain" };

	return confidence <= DL_PM_CERTAIN ? ids[confidence] : "unknown";
}

struct dl_postmortem *dl_pm_new(void)
{
	struct dl_postmortem *pm = calloc(1, sizeof(*pm));

	if (!pm)
		return NULL;
	pm->death = DL_DEATH_UNEXPLAINED;
	pm->victim.index = -1;
	return pm;
}

/* Appends a copy of the element; false with no memory. */
#define append(vec, element) ({ \
	__typeof__((vec)->v) slot_ = vec_push(vec); \
	if (slot_) \
		*slot_ = (element); \
	slot_ != NULL; \
})

static char *vformat(const char *fmt, va_list ap)
{
	char *text;

	return vasprintf(&text, fmt, ap) < 0 ? NULL : text;
}

int dl_pm_set(char **text, const char *fmt, ...)
{
	va_list ap;
	char *made;

	va_start(ap, fmt);
	made = vformat(fmt, ap);
	va_end(ap);
	if (!made)
		return -ENOMEM;
	free(*text);
	*text = made;
	return 0;
}

/* NULL stays NULL; false with no memory. */
static bool copy_text(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

int dl_pm_who_copy(struct dl_pm_who *to, const struct dl_pm_who *from)
{
	char *name;

	if (!copy_text(&name, from->name))
		return -ENOMEM;
	free(to->name);
	*to = *from;
	to->name = name;
	return 0;
}

int dl_pm_fact(struct dl_postmortem *pm, const struct dl_pm_who *who, uint64_t ts, enum dl_pm_source source,
	       bool decides, const char *fmt, ...)
{
	struct dl_pm_fact f = { .ts = ts, .source = source, .decides = decides, .who.index = -1 };
	va_list ap;

	va_start(ap, fmt);
	f.text = vformat(fmt, ap);
	va_end(ap);
	if (!f.text || (who && dl_pm_who_copy(&f.who, who) < 0) || !append(&pm->facts, f)) {
		free(f.who.name);
		free(f.text);
		return -ENOMEM;
	}
	return 0;
}

static int add_number(struct dl_postmortem *pm, struct dl_pm_number *n, const char *id, const char *label)
{
	if (!copy_text(&n->id, id) || !copy_text(&n->label, label) || !append(&pm->numbers, *n)) {
		free(n->id);
		free(n->label);
		free(n->how);
		return -ENOMEM;
	}
	return 0;
}

int dl_pm_number(struct dl_postmortem *pm, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit,
		 enum dl_pm_source source)
{
	struct dl_pm_number n = { .value = value, .unit = unit, .source = source };

	return add_number(pm, &n, id, label);
}

int dl_pm_estimate(struct dl_postmortem *pm, const char *id, const char *label, uint64_t value, enum dl_pm_unit unit,
		   enum dl_pm_source source, const char *how_fmt, ...)
{
	struct dl_pm_number n = { .value = value, .unit = unit, .source = source, .estimated = true };
	va_list ap;

	va_start(ap, how_fmt);
	n.how = vformat(how_fmt, ap);
	va_end(ap);
	return n.how ? add_number(pm, &n, id, label) : -ENOMEM;
}

int dl_pm_alternative(struct dl_postmortem *pm, enum dl_death death, const char *decides, const char *why_fmt, ...)
{
	struct dl_pm_alternative a = { .death = death };
	va_list ap;

	va_start(ap, why_fmt);
	a.why = vformat(why_fmt, ap);
	va_end(ap);
	if (!a.why || !copy_text(&a.decides, decides) || !append(&pm->alternatives, a)) {
		free(a.why);
		free(a.decides);
		return -ENOMEM;
	}
	return 0;
}

int dl_pm_action(struct dl_postmortem *pm, const char *command, const char *fmt, ...)
{
	struct dl_pm_action a = {};
	va_list ap;

	va_start(ap, fmt);
	a.text = vformat(fmt, ap);
	va_end(ap);
	if (!a.text || !copy_text(&a.command, command) || !append(&pm->actions, a)) {
		free(a.text);
		free(a.command);
		return -ENOMEM;
	}
	return 0;
}

int dl_pm_note(struct dl_postmortem *pm, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = vformat(fmt, ap);
	va_end(ap);
	if (!text || !append(&pm->notes, text)) {
		free(text);
		return -ENOMEM;
	}
	return 0;
}

static void free_claim(struct dl_pm_claim *c)
{
	free(c->line);
	free(c->tells);
	free(c->not_tells);
}

int dl_pm_claim(struct dl_postmortem *pm, const struct dl_pm_claim *claim)
{
	struct dl_pm_claim c = *claim;

	c.line = c.tells = c.not_tells = NULL;
	if (!copy_text(&c.line, claim->line) || !copy_text(&c.tells, claim->tells) ||
	    !copy_text(&c.not_tells, claim->not_tells) || !append(&pm->claims, c)) {
		free_claim(&c);
		return -ENOMEM;
	}
	return 0;
}

/* Facts of one instant, and those without, stay as they were added. */
void dl_pm_sort_facts(struct dl_postmortem *pm)
{
	struct dl_pm_fact *v = pm->facts.v;

	for (size_t i = 1; i < pm->facts.cnt; i++) {
		struct dl_pm_fact f = v[i];
		size_t at = i;

		for (; at > 0 && f.ts && (!v[at - 1].ts || v[at - 1].ts > f.ts); at--)
			v[at] = v[at - 1];
		v[at] = f;
	}
}

bool dl_pm_get(const struct dl_postmortem *pm, const char *id, uint64_t *ret)
{
	vec_for_each(&pm->numbers, n)
		if (!strcmp(n->id, id)) {
			*ret = n->value;
			return true;
		}
	return false;
}

static void free_threads(struct dl_postmortem *pm)
{
	vec_for_each(&pm->threads, t) {
		free(t->who.name);
		free(t->state);
		free(t->holder.name);
		free(t->holder_text);
		vec_for_each(&t->stack, frame)
			free(*frame);
		vec_free(&t->stack);
	}
	vec_free(&pm->threads);
}

static void free_parts(struct dl_postmortem *pm)
{
	vec_for_each(&pm->facts, f) {
		free(f->who.name);
		free(f->text);
	}
	vec_for_each(&pm->numbers, n) {
		free(n->id);
		free(n->label);
		free(n->how);
	}
	vec_for_each(&pm->procs, p) {
		free(p->who.name);
		free(p->state);
	}
	vec_for_each(&pm->alternatives, a) {
		free(a->why);
		free(a->decides);
	}
	vec_for_each(&pm->actions, a) {
		free(a->text);
		free(a->command);
	}
	vec_for_each(&pm->claims, c)
		free_claim(c);
	vec_for_each(&pm->notes, n)
		free(*n);
}

void dl_postmortem_free(struct dl_postmortem *pm)
{
	if (!pm)
		return;
	free_parts(pm);
	free_threads(pm);
	vec_free(&pm->facts);
	vec_free(&pm->numbers);
	vec_free(&pm->procs);
	vec_free(&pm->alternatives);
	vec_free(&pm->actions);
	vec_free(&pm->claims);
	vec_free(&pm->notes);
	free(pm->path);
	free(pm->host);
	free(pm->kernel);
	free(pm->cmdline);
	free(pm->text);
	free(pm->wrong_text);
	free(pm->victim.name);
	free(pm->gpu);
	free(pm);
}
