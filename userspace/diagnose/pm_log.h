/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the output of a training says about its death: a table of known texts (pm_log_rules.c), and
 * how a line is compared with it (pm_log.c). A text is matched without regard to case, anywhere in a
 * line, in this notation:
 *
 *	^	the line begins here, or what stands before is a prefix: "[rank0]: ", "0: ", "trainer-1 | "
 *	$	the line ends here, but for dots and spaces
 *	*	anything, also nothing
 *	~	spaces, one or more
 *	%p	a process id, the first of a list
 *	%n	a number, with sign
 *	%s	a signal: its number, name, or the text of strsignal(3)
 *	%w	a word, up to a space or one of ,;<>"'
 *
 * Behind a ^ the first four characters of a pattern are plain ones: they are what a text is searched for.
 */
#ifndef DLBPF_DIAGNOSE_PM_LOG_H
#define DLBPF_DIAGNOSE_PM_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnose/postmortem.h"

/* A set of deaths. */
#define DL_DEATH_BIT(ID) (UINT64_C(1) << DL_DEATH_##ID)

enum dl_log_kind {
	DL_LOG_PLAIN = 0,
	DL_LOG_SIGNAL,	/* tells what its %s tells, or the rule's sig */
	DL_LOG_EXIT,	/* its last %n is an exit code, or minus a signal */
	DL_LOG_MAPPING,	/* its last %n counts the shared memory objects of a process */
	DL_LOG_TRACEBACK,	/* an exception that no other text knows follows */
	DL_LOG_RAISED,	/* the exception itself, %w, follows on a line of its own */
};

struct dl_log_rule {
	const char *id, *pattern;
	enum dl_log_kind kind;
	int sig;		/* that the text stands for; 0 none, or in %s */
	uint64_t fits;		/* deaths that can print this; 0: it comes after a death, whichever */
	enum dl_death suggests;	/* what the text makes its reader believe; UNEXPLAINED nothing */
	uint64_t wrong_for;	/* deaths of which the text is wrong or misleading, and: */
	const char *wrong;	/* how */
	const char *tells;	/* %p %n %s %w are filled in */
	const char *not_tells;
};

extern const struct dl_log_rule dl_log_rules[];
extern const size_t dl_log_rules_cnt;

/* Signals that end runs. */
struct dl_log_signal {
	int sig;
	const char *name, *text;	/* "SIGBUS", "Bus error" */
	uint64_t fits;
	enum dl_death suggests;
	const char *tells, *not_tells;	/* behind "process N" */
};

const struct dl_log_signal *dl_log_signal(int sig);	/* NULL: none of them */

struct dl_log_hit {
	const struct dl_log_rule *rule;
	const struct dl_log_signal *signal;	/* NULL none */
	size_t start, end;			/* in the line */
	uint32_t pid;
	int64_t first, num;			/* the first and the last %n */
	bool has_num;
	char word[96];				/* the last %w */
	uint64_t fits;				/* of the rule, or its signal */
	enum dl_death suggests;
};

/* Finds texts in lines. NULL with no memory. */
struct dl_log_finder *dl_log_finder_new(void);
void dl_log_finder_free(struct dl_log_finder *f);

/*
 * The first text at or after from, of several at one place the first of the table. whole: the line begins at
 * line[0], and is not the rest of a longer one.
 */
bool dl_log_find(const struct dl_log_finder *f, const char *line, size_t len, size_t from, bool whole,
		 struct dl_log_hit *ret);

/* What a hit tells and does not tell. The texts are the caller's; *ret_not_tells may be NULL. 0 or -ENOMEM. */
int dl_log_explain(const struct dl_log_hit *hit, char **ret_tells, char **ret_not_tells);

/*
 * What the claims of dl_pm_read_log() allow together: the set of deaths that fit the first one and those that speak
 * of the same death; 0 when none decides anything. *ret_likely is the one that they name and that can be believed,
 * else UNEXPLAINED; *ret_first the claim that came first, NULL none; *ret_sig the signal, 0 none. 0 or -ENOMEM.
 */
int dl_pm_claims_fit(const struct dl_postmortem *pm, uint64_t *ret_fits, enum dl_death *ret_likely,
		     const struct dl_pm_claim **ret_first, int *ret_sig);

#endif
