/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Manual pages from the option tables: docs/man/ is made of this, and a test compares the two. */
#include "cli/man.h"

#include <ctype.h>
#include <string.h>

#include "base/version.h"

/* Text as roff: no line begins with a control character, hyphens can be copied. */
static void put_text(FILE *out, const char *text, size_t len)
{
	bool line_start = true;

	for (size_t i = 0; i < len; i++) {
		if (line_start && (text[i] == '.' || text[i] == '\''))
			fputs("\\&", out);
		line_start = text[i] == '\n';
		if (text[i] == '-')
			fputs("\\-", out);
		else if (text[i] == '\\')
			fputs("\\e", out);
		else
			putc(text[i], out);
	}
}

static void put_paragraphs(FILE *out, const char *text)
{
	for (const char *p = text; *p;) {
		const size_t len = strcspn(p, "\n");

		put_text(out, p, len);
		putc('\n', out);
		p += len;
		if (*p == '\n') {
			p++;
			fputs(".PP\n", out);
		}
	}
}

static void put_section(FILE *out, const char *name)
{
	fprintf(out, ".SH %s\n", name);
}

static void put_title(FILE *out, const char *page)
{
	fputs(".\\\" SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)\n"
	      ".\\\" Made by `make docs` from the option tables of userspace/cli/.\n.TH ", out);
	for (const char *p = page; *p; p++)
		putc(toupper((unsigned char)*p), out);
	fputs(" 1 \"\" \"dlbpf " DLBPF_VERSION "\" \"dlbpf manual\"\n", out);
}

static void put_option(FILE *out, char short_name, const char *name, const char *metavar, const char *help)
{
	fputs(".TP\n", out);
	if (short_name)
		fprintf(out, ".BR \\-%c ,\\~ ", short_name);
	else
		fputs(".BR ", out);
	fputs("\\-\\-", out);
	put_text(out, name, strlen(name));
	if (metavar) {
		fputs(" \\~\\fI", out);
		put_text(out, metavar, strlen(metavar));
		fputs("\\fR", out);
	}
	putc('\n', out);
	put_text(out, help, strlen(help));
	putc('\n', out);
}

static void put_options(FILE *out, const struct dl_cmd *cmd)
{
	put_section(out, "OPTIONS");
	for (const struct dl_opt *o = cmd->opts; o && o->name; o++) {
		if (o->group)
			fprintf(out, ".SS %s\n", o->group);
		put_option(out, o->short_name, o->name, o->metavar, o->help);
	}
	put_option(out, 'h', "help", NULL, "print a summary of these options");
}

static void put_examples(FILE *out, const char *examples)
{
	put_section(out, "EXAMPLES");
	for (const char *p = examples; *p;) {
		const size_t len = strcspn(p, "\n"), cmd = strcspn(p, "\t\n");

		fputs(".TP\n.B ", out);
		put_text(out, p, cmd);
		putc('\n', out);
		if (cmd < len)
			put_text(out, p + cmd + 1, len - cmd - 1);
		putc('\n', out);
		p += len + (p[len] == '\n');
	}
}

static void put_exit_status(FILE *out, const struct dl_cmd *cmd)
{
	put_section(out, "EXIT STATUS");
	if (cmd && cmd->opts_first)	/* it runs another command, and returns what that returns */
		fputs("With a CMD see DESCRIPTION. Without one:\n", out);
	fputs(".TP\n.B 0\nThe command did what it was asked for.\n"
	      ".TP\n.B 1\nIt failed; why stands on standard error.\n"
	      ".TP\n.B 2\nThe command line is wrong.\n", out);
}

void dl_man_command(const struct dl_cmd *cmd, FILE *out)
{
	char page[64];

	snprintf(page, sizeof(page), "dlbpf-%s", cmd->name);
	put_title(out, page);
	put_section(out, "NAME");
	fprintf(out, "dlbpf\\-%s \\- %c", cmd->name, tolower((unsigned char)cmd->summary[0]));
	put_text(out, cmd->summary + 1, strlen(cmd->summary + 1));
	putc('\n', out);
	put_section(out, "SYNOPSIS");
	fprintf(out, ".B dlbpf %s\n.RI [ OPTION ]...\n", cmd->name);
	if (cmd->args[0]) {
		put_text(out, cmd->args, strlen(cmd->args));
		putc('\n', out);
	}
	put_section(out, "DESCRIPTION");
	put_paragraphs(out, cmd->about ? cmd->about : cmd->summary);
	put_options(out, cmd);
	if (cmd->examples)
		put_examples(out, cmd->examples);
	put_exit_status(out, cmd);
	put_section(out, "SEE ALSO");
	fputs(".BR dlbpf (1)\n", out);
}

void dl_man_main(const struct dl_cmd *const *cmds, size_t cnt, FILE *out)
{
	put_title(out, "dlbpf");
	put_section(out, "NAME");
	fputs("dlbpf \\- say why the GPU of a PyTorch training run waits\n", out);
	put_section(out, "SYNOPSIS");
	fputs(".B dlbpf\n.I COMMAND\n.RI [ OPTION ]...\n.br\n.B dlbpf help\n.I COMMAND\n.br\n"
	      ".B dlbpf \\-\\-version\n", out);
	put_section(out, "DESCRIPTION");
	fputs("dlbpf records what the Linux kernel did to a training process and its DataLoader workers, and "
	      "what the GPU did, and charges every nanosecond in which the GPU was idle to one cause. "
	      "The training code is not changed and not restarted.\n.PP\n"
	      "Recording needs root; everything else works as any user, on any machine.\n", out);
	put_section(out, "COMMANDS");
	for (size_t i = 0; i < cnt; i++) {
		fprintf(out, ".TP\n.BR dlbpf\\-%s (1)\n", cmds[i]->name);
		put_text(out, cmds[i]->summary, strlen(cmds[i]->summary));
		putc('\n', out);
	}
	put_section(out, "OPTIONS");
	put_option(out, 'h', "help", NULL, "print a summary of the commands");
	put_option(out, 'V', "version", NULL, "print the version");
	put_section(out, "ENVIRONMENT");
	fputs(".TP\n.B NO_COLOR\nWhen set and not empty, text has no colours, unless \\-\\-color=always.\n"
	      ".TP\n.B CUDA_INJECTION64_PATH\nSet for the training process to the path of "
	      "libdlbpf_cupti.so, it makes GPU data available; see dlbpf\\-record(1).\n", out);
	put_exit_status(out, NULL);
	put_section(out, "SEE ALSO");
	for (size_t i = 0; i < cnt; i++)
		fprintf(out, ".BR dlbpf\\-%s (1)%s\n", cmds[i]->name, i + 1 < cnt ? "," : "");
}
