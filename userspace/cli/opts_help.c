/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* --help from the option tables, and how errors look. */
#include <stdarg.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/opts.h"

enum {
	HELP_WIDTH = 79,
	HELP_COL = 28,		/* where explanations begin */
};

/* Text in lines of at most HELP_WIDTH, those behind the first indented; at is the column already
 * reached. A newline in the text ends a paragraph. */
static void print_wrapped(FILE *out, const char *text, int at, int indent)
{
	const char *p = text;

	while (*p) {
		const int len = (int)strcspn(p, " \n");

		if (at > indent && at + 1 + len > HELP_WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			at = indent;
		} else if (at > indent) {
			putc(' ', out);
			at++;
		}
		at += fprintf(out, "%.*s", len, p);
		p += len;
		if (*p == '\n') {
			fprintf(out, p[1] ? "\n\n%*s" : "", indent, "");
			at = indent;
		}
		p += strspn(p, " \n");
	}
	putc('\n', out);
}

static void print_opt(FILE *out, char short_name, const char *name, const char *metavar,
		      const char *help)
{
	int at;

	if (short_name)
		at = fprintf(out, "  -%c, --%s", short_name, name);
	else
		at = fprintf(out, "      --%s", name);
	if (metavar)
		at += fprintf(out, " %s", metavar);
	if (at + 2 > HELP_COL) {
		fprintf(out, "\n%*s", HELP_COL, "");
		at = HELP_COL;
	} else {
		at += fprintf(out, "%*s", HELP_COL - at, "");
	}
	print_wrapped(out, help, at, HELP_COL);
}

static void print_examples(FILE *out, const char *examples)
{
	fputs("\nExamples:\n", out);
	for (const char *p = examples; *p;) {
		const int len = (int)strcspn(p, "\n"), cmd = (int)strcspn(p, "\t\n");

		fprintf(out, "  %.*s\n", cmd, p);
		if (cmd < len)
			fprintf(out, "      %.*s\n", len - cmd - 1, p + cmd + 1);
		p += len + (p[len] == '\n');
	}
}

void dl_opts_help(const struct dl_cmd *cmd, FILE *out)
{
	fprintf(out, "Usage: dlbpf %s [OPTION]...%s%s\n\n", cmd->name, cmd->args[0] ? " " : "",
		cmd->args);
	print_wrapped(out, cmd->about ? cmd->about : cmd->summary, 0, 0);
	fputs("\nOptions:\n", out);
	for (const struct dl_opt *o = cmd->opts; o && o->name; o++) {
		if (o->group)
			fprintf(out, "\n %s:\n", o->group);
		print_opt(out, o->short_name, o->name, o->metavar, o->help);
	}
	print_opt(out, 'h', "help", NULL, "print this help");
	if (cmd->examples)
		print_examples(out, cmd->examples);
}

/* Every line of the message gets the prefix, so that it can be told from the target's output. */
static void print_message(const char *prefix, const char *fmt, va_list ap)
{
	char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	for (const char *p = text ? text : "out of memory"; *p;) {
		const int len = (int)strcspn(p, "\n");

		fprintf(stderr, "dlbpf: %s%.*s\n", prefix, len, p);
		p += len + (p[len] == '\n');
	}
	free(text);
}

int dl_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_message("", fmt, ap);
	va_end(ap);
	return DL_EXIT_FAILURE;
}

void dl_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_message("warning: ", fmt, ap);
	va_end(ap);
}

int dl_usage_error(const struct dl_cmd *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_message("", fmt, ap);
	va_end(ap);
	fprintf(stderr, "dlbpf: see: dlbpf %s%s--help\n", cmd ? cmd->name : "", cmd ? " " : "");
	return DL_EXIT_USAGE;
}
