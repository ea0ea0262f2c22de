/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Comparing lines with the table of known texts, and saying what they tell. The notation is in pm_log.h. */
#include "diagnose/pm_log.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum {
	ANCHOR_SZ = 4,
	HASH_BITS = 12,
	TRIES_MAX = 64,		/* comparisons in one line: a line made to be slow is looked at in part */
	MAPPINGS_MANY = 60000,	/* of vm.max_map_count, by default 65530 */
};

#define NO_RULE UINT16_MAX

/* Rules by a hash of their first four characters, those of one hash in the order of the table. */
struct dl_log_finder {
	uint16_t head[1 << HASH_BITS];
	uint16_t *next;
};

static inline uint32_t anchor_hash(const char *s)
{
	uint32_t x;

	memcpy(&x, s, sizeof(x));
	x |= 0x20202020;	/* no difference between A and a; others that fall together are told apart later */
	return x * UINT32_C(2654435761) >> (32 - HASH_BITS);
}

static const char *anchor(const struct dl_log_rule *rule)
{
	return rule->pattern + (*rule->pattern == '^');
}

struct dl_log_finder *dl_log_finder_new(void)
{
	struct dl_log_finder *f = malloc(sizeof(*f));

	if (!f)
		return NULL;
	f->next = calloc(dl_log_rules_cnt, sizeof(*f->next));
	if (!f->next) {
		free(f);
		return NULL;
	}
	memset(f->head, 0xff, sizeof(f->head));
	for (size_t i = dl_log_rules_cnt; i-- > 0;) {
		uint16_t *head = &f->head[anchor_hash(anchor(&dl_log_rules[i]))];

		f->next[i] = *head;
		*head = (uint16_t)i;
	}
	return f;
}

void dl_log_finder_free(struct dl_log_finder *f)
{
	if (f)
		free(f->next);
	free(f);
}

/* --- one pattern ----------------------------------------------------------------------------- */

static size_t digits(const char *s, const char *end)
{
	size_t n = 0;

	while (s + n < end && isdigit((unsigned char)s[n]))
		n++;
	return n;
}

/* The text is not ended by a NUL where the line ends. */
static int64_t to_number(const char *s, size_t len)
{
	int64_t nr = 0;

	for (size_t i = 0; i < len; i++)
		if (__builtin_mul_overflow(nr, 10, &nr) || __builtin_add_overflow(nr, s[i] - '0', &nr))
			return INT64_MAX;
	return nr;
}

static size_t take_number(const char *s, const char *end, struct dl_log_hit *hit)
{
	const size_t sign = s < end && (*s == '-' || *s == '+');
	const size_t n = digits(s + sign, end);
	int64_t nr;

	if (!n)
		return 0;
	nr = to_number(s + sign, n);
	hit->num = *s == '-' ? -nr : nr;
	if (!hit->has_num)
		hit->first = hit->num;
	hit->has_num = true;
	return sign + n;
}

static size_t take_pid(const char *s, const char *end, struct dl_log_hit *hit)
{
	const size_t n = digits(s, end);
	const int64_t nr = to_number(s, n);

	if (!n || !nr || nr > INT32_MAX)
		return 0;
	hit->pid = (uint32_t)nr;
	return n;
}

static size_t take_word(const char *s, const char *end, struct dl_log_hit *hit)
{
	size_t n = 0, kept;

	while (s + n < end && !strchr(" ,;<>\"'", s[n]))
		n++;
	kept = n < sizeof(hit->word) ? n : sizeof(hit->word) - 1;
	memcpy(hit->word, s, kept);
	hit->word[kept] = '\0';
	return n;
}

static bool has_prefix(const char *s, const char *end, const char *prefix, size_t len)
{
	return (size_t)(end - s) >= len && !strncasecmp(s, prefix, len);
}

/* "Killed", "SIGKILL", "Signals.SIGKILL" or "9". */
static size_t take_signal(const char *s, const char *end, struct dl_log_hit *hit)
{
	const size_t skip = has_prefix(s, end, "Signals.", 8) ? 8 : 0, n = digits(s + skip, end);

	s += skip;
	if (n && n <= 2) {
		hit->signal = dl_log_signal((int)to_number(s, n));
		return hit->signal ? skip + n : 0;
	}
	for (int sig = 1; sig < 64; sig++) {
		const struct dl_log_signal *it = dl_log_signal(sig);
		const size_t name_len = it ? strlen(it->name) : 0, text_len = it ? strlen(it->text) : 0;

		if (!it)
			continue;
		hit->signal = it;
		if (has_prefix(s, end, it->name, name_len))
			return skip + name_len;
		if (has_prefix(s, end, it->text, text_len))
			return skip + text_len;
	}
	hit->signal = NULL;
	return 0;
}

/* Length of the text that a token of two characters, or ~, takes; 0 when it does not fit. */
static size_t take_token(const char *pat, const char *s, const char *end, struct dl_log_hit *hit)
{
	size_t n = 0;

	if (*pat == '~') {
		while (s + n < end && s[n] == ' ')
			n++;
		return n;
	}
	switch (pat[1]) {
	case 'p':
		return take_pid(s, end, hit);
	case 'n':
		return take_number(s, end, hit);
	case 's':
		return take_signal(s, end, hit);
	case 'w':
		return take_word(s, end, hit);
	}
	return 0;
}

/* Length of the text at s that the next element of the pattern takes, and of the element; 0 no match. */
static size_t take_element(const char *pat, const char *s, const char *end, struct dl_log_hit *hit, size_t *ret_len)
{
	if (*pat == '~' || (*pat == '%' && pat[1] && strchr("pnsw", pat[1]))) {
		*ret_len = *pat == '~' ? 1 : 2;
		return take_token(pat, s, end, hit);
	}
	*ret_len = 1;
	return s < end && tolower((unsigned char)*s) == tolower((unsigned char)*pat);
}

static bool only_rest(const char *s, const char *end)
{
	while (s < end && (*s == ' ' || *s == '.'))
		s++;
	return s == end;
}

/* The usual matching of wildcards: after a mismatch the last * takes one character more. */
static bool match_pattern(const char *pat, const char *line, size_t len, size_t pos, struct dl_log_hit *hit)
{
	const char *s = line + pos, *end = line + len, *star_pat = NULL, *star_s = NULL;
	size_t n, pat_len;

	while (*pat) {
		if (*pat == '*') {
			star_pat = ++pat;
			star_s = s;
			if (!*pat)
				s = end;
			continue;
		}
		if (*pat == '$' && !pat[1]) {
			n = only_rest(s, end);
			if (n)
				break;
		} else {
			n = take_element(pat, s, end, hit, &pat_len);
			if (n) {
				s += n;
				pat += pat_len;
				continue;
			}
		}
		if (!star_pat || star_s >= end)
			return false;
		s = ++star_s;
		pat = star_pat;
	}
	hit->start = pos;
	hit->end = (size_t)(s - line);
	return true;
}

/* Nothing but a prefix stands before: one that ends as prefixes do. */
static bool begins_here(const char *line, size_t pos, bool whole)
{
	while (pos && line[pos - 1] == ' ')
		pos--;
	return pos ? strchr(":]>|)", line[pos - 1]) != NULL : whole;
}

/* What the captured number and signal make of the rule; false: the text tells of no death after all. */
static bool settle(struct dl_log_hit *hit)
{
	const struct dl_log_rule *rule = hit->rule;

	hit->fits = rule->fits;
	hit->suggests = rule->suggests;
	if (rule->sig)
		hit->signal = dl_log_signal(rule->sig);
	if (rule->kind == DL_LOG_EXIT) {
		const int64_t sig = hit->num < 0 ? -hit->num : hit->num > 128 ? hit->num - 128 : 0;

		if (!hit->num)
			return false;
		hit->signal = sig < 64 ? dl_log_signal((int)sig) : NULL;
	}
	if (hit->signal && rule->kind != DL_LOG_PLAIN) {
		hit->fits = hit->signal->fits;
		hit->suggests = hit->signal->suggests;
	}
	if (rule->kind == DL_LOG_MAPPING && hit->num >= MAPPINGS_MANY) {
		hit->fits = DL_DEATH_BIT(MAP_COUNT_LIMIT);
		hit->suggests = DL_DEATH_MAP_COUNT_LIMIT;
	}
	return true;
}

bool dl_log_find(const struct dl_log_finder *f, const char *line, size_t len, size_t from, bool whole,
		 struct dl_log_hit *ret)
{
	int tries = 0;

	for (size_t pos = from; pos + ANCHOR_SZ <= len; pos++) {
		for (uint16_t i = f->head[anchor_hash(line + pos)]; i != NO_RULE; i = f->next[i]) {
			const struct dl_log_rule *rule = &dl_log_rules[i];

			if (strncasecmp(anchor(rule), line + pos, ANCHOR_SZ))
				continue;
			if (*rule->pattern == '^' && !begins_here(line, pos, whole))
				continue;
			if (++tries > TRIES_MAX)
				return false;
			*ret = (struct dl_log_hit){ .rule = rule };
			if (match_pattern(anchor(rule), line, len, pos, ret) && settle(ret))
				return true;
		}
	}
	return false;
}

/* --- what it tells ----------------------------------------------------------------------------- */

/* %p %n %w in a text of the table. */
static void fill_in(struct dl_str *s, const char *text, const struct dl_log_hit *hit)
{
	for (; *text; text++) {
		if (*text != '%' || !text[1] || !strchr("pnw", text[1])) {
			dl_str_addn(s, text, 1);
			continue;
		}
		text++;
		if (*text == 'p')
			dl_str_addf(s, "%" PRIu32, hit->pid);
		else if (*text == 'n')
			dl_str_addf(s, "%" PRId64, hit->num);
		else
			dl_str_add(s, hit->word);
	}
}

static void tell_end(struct dl_str *s, const struct dl_log_hit *hit)
{
	const char *who = hit->rule->tells ? hit->rule->tells : "process";

	if (hit->pid)
		dl_str_addf(s, "%s %" PRIu32 " ", who, hit->pid);
	else
		dl_str_addf(s, "a %s ", who);
	dl_str_add(s, hit->signal ? hit->signal->tells : "");
	if (hit->rule->kind != DL_LOG_EXIT)
		return;
	if (!hit->signal)
		dl_str_addf(s, "ended by itself, with exit code %" PRId64, hit->num);
	else if (hit->num > 0)
		dl_str_addf(s, ": an exit code of %" PRId64 " is 128 and the number of the signal, %d", hit->num,
			    hit->signal->sig);
}

static const char *end_not_tells(const struct dl_log_hit *hit)
{
	if (hit->signal)
		return hit->signal->not_tells;
	return hit->num == 1 ? "why: 1 is what Python returns after an exception, whose text stands before" :
		"why: a program may return any number";
}

int dl_log_explain(const struct dl_log_hit *hit, char **ret_tells, char **ret_not_tells)
{
	const struct dl_log_rule *rule = hit->rule;
	const char *not_tells = rule->not_tells;
	struct dl_str s = {};
	char *tells, *not_told = NULL;

	if (rule->kind == DL_LOG_SIGNAL || rule->kind == DL_LOG_EXIT) {
		tell_end(&s, hit);
		not_tells = end_not_tells(hit);
	} else if (rule->kind == DL_LOG_MAPPING) {
		dl_str_addf(&s, "a mapping of %" PRId64 " bytes was refused", hit->first);
		if (hit->fits == DL_DEATH_BIT(MAP_COUNT_LIMIT)) {
			dl_str_addf(&s, " to a process that had made %" PRId64 " shared memory objects: by default it may "
				    "have 65530 mappings (vm.max_map_count)", hit->num);
			not_tells = NULL;
		}
	} else {
		fill_in(&s, rule->tells, hit);
	}
	tells = dl_str_take(&s);
	if (tells && not_tells)
		not_told = strdup(not_tells);
	if (!tells || (not_tells && !not_told)) {
		free(tells);
		return -ENOMEM;
	}
	*ret_tells = tells;
	*ret_not_tells = not_told;
	return 0;
}
