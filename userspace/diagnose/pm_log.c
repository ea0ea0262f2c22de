/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Output of a training as it is pasted or saved: with colours, progress bars, prefixes of launchers, in UTF-16, with
 * binary junk, of any size. It is read once, in the memory of a few hundred lines: of each known text the first two
 * and the last two are kept, since a job that was started again has died more than once.
 */
#include "diagnose/pm_log.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum {
	LINE_SZ = 8192,		/* longer lines are looked at in parts */
	OVERLAP = 1024,		/* which share so much: as long as a text may be */
	BEFORE = 80,		/* characters kept before a text */
	KEPT_SZ = 640,		/* and in all */
	KEPT_EACH = 4,
};

struct kept {
	uint64_t seq;
	char *line, *raised;
	struct dl_log_hit hit;
};

struct kept_rule {
	struct kept k[KEPT_EACH];
	uint64_t cnt;		/* met, but for repetitions */
};

enum escape { PLAIN = 0, AFTER_ESC, IN_CSI, IN_OSC, OSC_AFTER_ESC };

struct log_reader {
	struct dl_log_finder *finder;
	struct kept_rule *rules;
	struct kept *pending;	/* an exception whose text is still to come */
	struct dl_log_hit traceback;	/* the last one, until its exception came; rule NULL none */
	uint64_t seq;
	int err;
	enum escape escape;
	bool whole;		/* the line began at buf[0] */
	size_t len, from;	/* up to from it was looked at */
	char buf[LINE_SZ];
};

/* Length of the UTF-8 sequence at s, or 0: continuation bytes are looked at, over-long forms let pass. */
static size_t utf8_len(const char *s, size_t left)
{
	const unsigned char c = (unsigned char)*s;
	const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;

	if (!n || n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* A part of a line as valid UTF-8. */
static char *copy_line(const char *line, size_t len)
{
	struct dl_str s = {};

	while (len && (*line == ' ' || ((unsigned char)*line & 0xc0) == 0x80)) {
		line++;
		len--;
	}
	for (size_t i = 0; i < len;) {
		const size_t n = utf8_len(line + i, len - i);

		if (n)
			dl_str_addn(&s, line + i, n);
		else if (len - i > 3)	/* else cut through by us */
			dl_str_add(&s, "?");
		i += n ? n : 1;
	}
	while (s.len && s.s[s.len - 1] == ' ')
		s.s[--s.len] = '\0';
	return dl_str_take(&s);
}

/* The line, NULL without memory, is taken over. */
static struct kept *keep(struct log_reader *r, const struct dl_log_hit *hit, char *copy)
{
	struct kept_rule *kr = &r->rules[hit->rule - dl_log_rules];
	struct kept *k = &kr->k[kr->cnt < 2 ? kr->cnt : 2 + kr->cnt % 2];

	if (!copy) {
		r->err = -ENOMEM;
		return NULL;
	}
	if (r->pending == k)
		r->pending = NULL;
	free(k->line);
	free(k->raised);
	*k = (struct kept){ .seq = ++r->seq, .line = copy, .hit = *hit };
	kr->cnt++;
	if (hit->rule->kind == DL_LOG_RAISED)
		r->pending = k;
	return k;
}

static void keep_hit(struct log_reader *r, const struct dl_log_hit *hit, const char *line, size_t len, size_t floor)
{
	const struct kept_rule *kr = &r->rules[hit->rule - dl_log_rules];
	const struct kept *last = kr->cnt ? &kr->k[kr->cnt <= 2 ? kr->cnt - 1 : 2 + (kr->cnt - 1) % 2] : NULL;
	const size_t start = hit->start - floor > BEFORE ? hit->start : floor;

	if (hit->rule->kind == DL_LOG_TRACEBACK) {
		r->traceback = *hit;
		return;
	}
	r->traceback.rule = NULL;	/* this is its exception, or came before it */
	if (last && last->hit.pid == hit->pid && last->hit.num == hit->num && !strcmp(last->hit.word, hit->word))
		return;
	keep(r, hit, copy_line(line + start, len - start < KEPT_SZ ? len - start : KEPT_SZ));
}

/* Where a line begins behind "[rank0]:" and the like, and a space. */
static size_t behind_prefix(const char *line, size_t len)
{
	const char *end = len && *line == '[' ? memmem(line, len, "]:", 2) : NULL;
	const size_t at = end ? (size_t)(end - line) + 2 : 0;

	return at < len && at && line[at] == ' ' ? at + 1 : at;
}

/*
 * "ValueError: x", the first line behind a traceback that is not indented. Kept with the traceback's first line, by
 * which its rule is found again.
 */
static void end_traceback(struct log_reader *r)
{
	const size_t at = behind_prefix(r->buf, r->len);
	size_t end = at;
	char *line, *copy;
	struct kept *k;

	while (end < r->len && (isalnum((unsigned char)r->buf[end]) || strchr("_.", r->buf[end])))
		end++;
	if (end == at || !isalpha((unsigned char)r->buf[at]) || (end < r->len && r->buf[end] != ':')) {
		if (at < r->len && r->buf[at] != ' ')
			r->traceback.rule = NULL;
		return;
	}
	copy = copy_line(r->buf + at, r->len - at < KEPT_SZ ? r->len - at : KEPT_SZ);
	if (!copy || asprintf(&line, "Traceback (most recent call last): ... %s", copy) < 0)
		line = NULL;
	k = line ? keep(r, &r->traceback, line) : NULL;
	if (k)
		k->raised = copy;
	else
		free(copy);
	if (!line)
		r->err = -ENOMEM;
	r->traceback.rule = NULL;
}

/* "KeyError: 'x'", after the traceback that a worker sent. */
static void look_for_raised(struct log_reader *r)
{
	const char *dot = strrchr(r->pending->hit.word, '.'), *name = dot ? dot + 1 : r->pending->hit.word;
	const size_t len = strlen(name);
	const char *at = len && len <= r->len ? memmem(r->buf, r->len, name, len) : NULL;
	const size_t pos = at ? (size_t)(at - r->buf) : 0, end = pos + len;

	if (!at || (end < r->len && r->buf[end] != ':') || (pos && !strchr(" .:]>|)", r->buf[pos - 1])))
		return;
	if (memmem(at, r->len - pos, "Caught ", 7))
		return;		/* another one of them */
	r->pending->raised = copy_line(at, r->len - pos < KEPT_SZ ? r->len - pos : KEPT_SZ);
	if (!r->pending->raised)
		r->err = -ENOMEM;
	r->pending = NULL;
}

/* Texts that begin before limit. */
static void look_at_line(struct log_reader *r, size_t limit)
{
	const bool in_traceback = r->traceback.rule && r->whole;
	struct dl_log_hit hit;

	if (r->pending && r->whole)
		look_for_raised(r);
	while (!r->err && dl_log_find(r->finder, r->buf, r->len, r->from, r->whole, &hit) && hit.start < limit) {
		keep_hit(r, &hit, r->buf, r->len, r->from);
		r->from = hit.end;
	}
	if (!r->err && in_traceback && r->traceback.rule)
		end_traceback(r);
}

static void end_line(struct log_reader *r)
{
	if (r->len)
		look_at_line(r, r->len);
	r->len = r->from = 0;
	r->whole = true;
}

static void add_char(struct log_reader *r, char c)
{
	r->buf[r->len++] = c;
	if (r->len < LINE_SZ)
		return;
	look_at_line(r, LINE_SZ - OVERLAP);
	memmove(r->buf, r->buf + LINE_SZ - OVERLAP, OVERLAP);
	r->len = OVERLAP;
	r->from = r->from > LINE_SZ - OVERLAP ? r->from - (LINE_SZ - OVERLAP) : 0;
	r->whole = false;
}

/* Escape sequences of terminals, ECMA-48: "ESC [ parameters letter", "ESC ] text BEL or ESC \", "ESC letter". */
static enum escape next_escape(enum escape state, unsigned char c)
{
	switch (state) {
	case AFTER_ESC:
		return c == '[' ? IN_CSI : c == ']' ? IN_OSC : PLAIN;
	case IN_CSI:
		return c >= 0x40 && c <= 0x7e ? PLAIN : IN_CSI;
	case IN_OSC:
		return c == '\a' ? PLAIN : c == '\033' ? OSC_AFTER_ESC : IN_OSC;
	case OSC_AFTER_ESC:
	case PLAIN:
		break;
	}
	return PLAIN;
}

static void read_byte(struct log_reader *r, unsigned char c)
{
	if (c >= ' ' && c != 0x7f && r->escape == PLAIN) {
		add_char(r, (char)c);
	} else if (c == '\n' || c == '\r') {
		r->escape = PLAIN;
		end_line(r);	/* a progress bar is drawn over itself, what comes behind is a line */
	} else if (!c) {
		return;		/* of UTF-16, or at the end of what a worker's handler writes */
	} else if (r->escape != PLAIN) {
		r->escape = next_escape(r->escape, c);
	} else if (c == '\033') {
		r->escape = AFTER_ESC;
	} else if (c == '\t') {
		add_char(r, ' ');
	}
}

static int by_seq(const void *a, const void *b)
{
	const uint64_t x = (*(const struct kept *const *)a)->seq, y = (*(const struct kept *const *)b)->seq;

	return x < y ? -1 : x > y;
}

static int add_claim(struct dl_postmortem *pm, const struct kept *k)
{
	_cleanup_free_ char *tells = NULL, *not_tells = NULL, *more = NULL;
	struct dl_pm_claim claim = { .line = k->line, .suggests = k->hit.suggests, .pid = k->hit.pid };
	int err = dl_log_explain(&k->hit, &tells, &not_tells);
	const char *raised = NULL;

	if (k->hit.rule->kind == DL_LOG_RAISED)
		raised = k->raised ? k->raised : k->hit.word;
	else if (k->hit.rule->kind == DL_LOG_TRACEBACK)
		raised = k->raised;
	if (!err && raised && asprintf(&more, "%s: %s", tells, raised) < 0) {
		more = NULL;
		err = -ENOMEM;
	}
	if (err)
		return err;
	claim.tells = more ? more : tells;
	claim.not_tells = not_tells;
	return dl_pm_claim(pm, &claim);
}

static int add_claims(struct dl_postmortem *pm, struct log_reader *r)
{
	_cleanup_free_ const struct kept **all = calloc(dl_log_rules_cnt * KEPT_EACH, sizeof(*all));
	size_t cnt = 0;
	int err = all ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < dl_log_rules_cnt; i++)
		for (size_t j = 0; j < KEPT_EACH; j++)
			if (r->rules[i].k[j].line)
				all[cnt++] = &r->rules[i].k[j];
	if (!err && cnt)
		qsort(all, cnt, sizeof(*all), by_seq);
	for (size_t i = 0; !err && i < cnt; i++)
		err = add_claim(pm, all[i]);
	return err;
}

static void reader_free(struct log_reader *r)
{
	for (size_t i = 0; r->rules && i < dl_log_rules_cnt; i++)
		for (size_t j = 0; j < KEPT_EACH; j++) {
			free(r->rules[i].k[j].line);
			free(r->rules[i].k[j].raised);
		}
	free(r->rules);
	dl_log_finder_free(r->finder);
	free(r);
}

int dl_pm_read_log(struct dl_postmortem *pm, const char *text, size_t len)
{
	struct log_reader *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->whole = true;
	r->finder = dl_log_finder_new();
	r->rules = calloc(dl_log_rules_cnt, sizeof(*r->rules));
	if (!r->finder || !r->rules)
		r->err = -ENOMEM;
	for (size_t i = 0; i < len && !r->err; i++)
		read_byte(r, (unsigned char)text[i]);
	if (!r->err)
		end_line(r);
	err = r->err ? r->err : add_claims(pm, r);
	reader_free(r);
	return err;
}

/* --- what claims amount to ------------------------------------------------------------------- */

/* The text that a claim was made of: the first in its line. */
static bool hit_of(const struct dl_log_finder *f, const struct dl_pm_claim *c, struct dl_log_hit *ret)
{
	return c->line && dl_log_find(f, c->line, strlen(c->line), 0, true, ret);
}

struct fit {
	uint64_t fits;
	int sig;
	const struct dl_pm_claim *first;
	enum dl_death likely;
	bool by_raised;		/* likely was taken from an exception in general */
	bool open;		/* an error is known that several causes have: that there was an exception tells less */
};

static void fit_claim(struct fit *fit, const struct dl_pm_claim *c, const struct dl_log_hit *hit)
{
	const int sig = hit->signal ? hit->signal->sig : 0;

	if (!fit->first) {
		fit->first = c;
		fit->fits = hit->fits;
	} else if ((sig && fit->sig && sig != fit->sig) || !(fit->fits & hit->fits) ||
		   (sig && c->pid && fit->first->pid && c->pid != fit->first->pid)) {
		return;		/* another death, most often one that followed */
	}
	fit->fits &= hit->fits;
	if (!fit->sig)
		fit->sig = sig;
	if (hit->suggests == DL_DEATH_UNEXPLAINED && hit->rule->kind != DL_LOG_TRACEBACK && !sig) {
		fit->open = true;
		if (fit->by_raised)
			fit->likely = DL_DEATH_UNEXPLAINED;
	}
	if (hit->suggests == DL_DEATH_UNEXPLAINED || hit->rule->wrong_for || (fit->open && hit->rule->kind == DL_LOG_RAISED))
		return;
	if (fit->likely == DL_DEATH_UNEXPLAINED || (fit->by_raised && hit->rule->kind != DL_LOG_RAISED)) {
		fit->likely = hit->suggests;
		fit->by_raised = hit->rule->kind == DL_LOG_RAISED;
	}
}

int dl_pm_claims_fit(const struct dl_postmortem *pm, uint64_t *ret_fits, enum dl_death *ret_likely,
		     const struct dl_pm_claim **ret_first, int *ret_sig)
{
	struct dl_log_finder *f = dl_log_finder_new();
	struct fit fit = { .likely = DL_DEATH_UNEXPLAINED };

	if (!f)
		return -ENOMEM;
	vec_for_each(&pm->claims, c) {
		struct dl_log_hit hit;

		if (hit_of(f, c, &hit) && hit.fits && hit.rule->kind != DL_LOG_TRACEBACK)
			fit_claim(&fit, c, &hit);
	}
	/* Programs print exceptions that they live on with: one counts where nothing else does. */
	for (size_t i = pm->claims.cnt; i-- > 0 && !fit.first;) {
		struct dl_log_hit hit;

		if (hit_of(f, &pm->claims.v[i], &hit) && hit.fits)
			fit_claim(&fit, &pm->claims.v[i], &hit);
	}
	dl_log_finder_free(f);
	if (fit.fits && !(fit.fits & (fit.fits - 1)))
		fit.likely = (enum dl_death)__builtin_ctzll(fit.fits);
	else if (!(fit.fits >> fit.likely & 1))
		fit.likely = DL_DEATH_UNEXPLAINED;
	*ret_fits = fit.fits;
	*ret_likely = fit.likely;
	*ret_first = fit.first;
	*ret_sig = fit.sig;
	return 0;
}

/* Deaths that say how a run ended and leave open which call failed: no text of an error contradicts them. */
#define ENDS (DL_DEATH_BIT(WORKER_EXCEPTION) | DL_DEATH_BIT(WORKER_EXIT) | DL_DEATH_BIT(TRAINER_EXIT) | \
	      DL_DEATH_BIT(BATCH_LOST) | DL_DEATH_BIT(HANG) | DL_DEATH_BIT(TIMEOUT) | DL_DEATH_BIT(ORPHANED))

static bool contradicts(const struct dl_log_hit *hit, enum dl_death death)
{
	const uint64_t bit = UINT64_C(1) << death;

	if (!hit->fits)
		return false;
	if (death == DL_DEATH_NONE)
		return true;
	if (hit->rule->wrong_for & bit)
		return hit->suggests != DL_DEATH_UNEXPLAINED;
	return !(hit->fits & bit) && (!(bit & ENDS) || hit->signal);
}

int dl_pm_judge_claims(struct dl_postmortem *pm)
{
	const char *wrong = NULL, *tail = NULL;
	const struct dl_pm_claim *other = NULL;
	struct dl_log_finder *f;
	int err = 0;

	if (pm->death == DL_DEATH_UNEXPLAINED || !pm->claims.cnt)
		return 0;
	f = dl_log_finder_new();
	if (!f)
		return -ENOMEM;
	vec_for_each(&pm->claims, c) {
		struct dl_log_hit hit;

		if (!hit_of(f, c, &hit))
			continue;
		c->contradicts = contradicts(&hit, pm->death);
		if (!(hit.rule->wrong_for >> pm->death & 1))
			other = c->contradicts && !other ? c : other;
		else if (hit.fits && !wrong)
			wrong = hit.rule->wrong;
		else if (!hit.fits && !tail)
			tail = hit.rule->wrong;
	}
	dl_log_finder_free(f);
	if (wrong || (tail && !other))
		err = dl_pm_set(&pm->wrong_text, "%s", wrong ? wrong : tail);
	else if (other)
		err = dl_pm_set(&pm->wrong_text, "The output says that %s. That does not fit what was found here: the output "
				"may be of another run, or of a process that died later.", other->tells);
	return err;
}
