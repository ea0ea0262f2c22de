/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Command-line options as data: one table per command, from which come the parser, --help and,
 * through tests, the promise that the manual pages know every option.
 *
 *	struct foo_opts { bool json; uint64_t limit; };
 *	static const struct dl_opt foo_opts[] = {
 *		{ "json", 'j', .kind = DL_OPT_FLAG, .off = offsetof(struct foo_opts, json),
 *		  .help = "print JSON" },
 *		{ "limit", .metavar = "N", .kind = DL_OPT_U64, .off = offsetof(struct foo_opts, limit),
 *		  .help = "stop after N events" },
 *		{ }
 *	};
 */
#ifndef DLBPF_CLI_OPTS_H
#define DLBPF_CLI_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h"
#include "base/vec.h"

/* What a command returns, and with that the exit codes of the program. */
enum {
	DL_EXIT_OK = 0,
	DL_EXIT_FAILURE = 1,
	DL_EXIT_USAGE = 2,
};

enum dl_opt_kind {
	DL_OPT_FLAG = 1,	/* no argument; a bool becomes true */
	DL_OPT_STR,		/* const char *, into argv */
	DL_OPT_STRS,		/* struct dl_opt_strs: may be given more than once */
	DL_OPT_U64,		/* uint64_t, within min .. max */
	DL_OPT_SIZE,		/* uint64_t bytes: 4096, 64K, 1.5G */
	DL_OPT_DURATION,	/* uint64_t nanoseconds: 30 (seconds), 500ms, 5m, 1.5h */
	DL_OPT_TIME,		/* struct dl_opt_time: as a duration, and -10s is 10 s before the end */
	DL_OPT_CHOICE,		/* int: index in choices */
};

struct dl_opt_strs {
	const char **v;
	size_t cnt, cap;
};

struct dl_opt_time {
	uint64_t ns;
	bool given, from_end;
};

struct dl_opt {
	const char *name;	/* long, without dashes; NULL ends the table */
	char short_name;	/* 0 none */
	const char *metavar;	/* "FILE"; NULL for a flag */
	enum dl_opt_kind kind;
	size_t off;		/* of the value in the command's options */
	const char *help;	/* what it does, and its default; no full stop */
	const char *group;	/* heading in --help, once for the options that follow; NULL none */
	const char *const *choices;	/* NULL at the end */
	uint64_t min, max;	/* of numbers; max 0: no limit */
};

struct dl_cmd {
	const char *name;
	const char *args;	/* behind the options in the usage line: "FILE" */
	const char *summary;	/* one line, for `dlbpf --help` */
	const char *about;	/* paragraphs for --help and the manual page; NULL none */
	const char *examples;	/* lines of "command\twhat it does"; NULL none */
	const struct dl_opt *opts;
	bool opts_first;	/* the first operand ends the options: for `record CMD --its-option` */
	int (*fn)(int argc, char **argv);
};

/*
 * Parses argv (argv[0] is the command's name) into the options struct, which holds the defaults.
 * Returns 0 and the index of the first operand, 1 when --help was asked for, or -EINVAL with a
 * message that names the option. Operands are moved behind the options.
 */
int dl_opts_parse(const struct dl_cmd *cmd, int argc, char **argv, void *into, int *ret_first,
		  struct dl_diag *d);

/*
 * The same for a command's first lines: prints help or the error itself. True: go on; false:
 * return *ret_exit.
 */
bool dl_opts_begin(const struct dl_cmd *cmd, int argc, char **argv, void *into, int *ret_first,
		   int *ret_exit);

void dl_opts_help(const struct dl_cmd *cmd, FILE *out);

/* "dlbpf: text" to stderr, every line of it; returns DL_EXIT_FAILURE and DL_EXIT_USAGE. */
int dl_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int dl_usage_error(const struct dl_cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A failure without an error: what the reader should know. */
void dl_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Values of options, also for other users. False on anything else than a whole such value. */
bool dl_parse_size(const char *text, uint64_t *ret_bytes);
bool dl_parse_duration(const char *text, uint64_t *ret_ns);

/* How far apart two words are: insertions, deletions, changes and swaps of neighbours. */
unsigned int dl_word_distance(const char *a, const char *b);

/* Keeps in *best the candidate nearest to word; *best_dist is UINT_MAX to begin with. A candidate
 * is only taken when it is near enough to be meant. */
void dl_word_nearest(const char *word, const char *candidate, const char **best,
		     unsigned int *best_dist);

#endif
