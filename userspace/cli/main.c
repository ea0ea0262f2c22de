/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The table of subcommands, and what is true of them all: help, version, exit codes, stdout. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/version.h"
#include "cli/cmd.h"
#include "cli/man.h"

static const struct dl_cmd *const commands[] = {
	&dl_cmd_record,
	&dl_cmd_report,
	&dl_cmd_postmortem,
	&dl_cmd_info,
	&dl_cmd_dump,
	&dl_cmd_import,
	&dl_cmd_annotate,
	&dl_cmd_check,
};

static void print_usage(FILE *out)
{
	fputs("Usage: dlbpf COMMAND [OPTION]...\n\n"
	      "Says why the GPU of a PyTorch training run waits, and what killed it.\n\n"
	      "Commands:\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	fputs("  help       Explain a command: dlbpf help COMMAND\n\n"
	      "Options:\n"
	      "  -h, --help     print this help\n"
	      "  -V, --version  print the version\n\n"
	      "Examples:\n"
	      "  sudo dlbpf record -p PID          record a running job until Ctrl-C\n"
	      "  sudo dlbpf record -- python train.py\n"
	      "  dlbpf report                      say why its GPU waited\n"
	      "  dlbpf postmortem                  say what killed it\n", out);
}

static const struct dl_cmd *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	unsigned int dist = UINT_MAX;
	const char *best = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		dl_word_nearest(name, commands[i]->name, &best, &dist);
	dl_word_nearest(name, "help", &best, &dist);
	if (best)
		return dl_usage_error(NULL, "no such command: %s; did you mean %s?", name, best);
	return dl_usage_error(NULL, "no such command: %s", name);
}

/* help [--man] [COMMAND]; --man prints manual pages, for `make docs`. */
static int help_command(int argc, char **argv)
{
	const bool man = argc > 1 && !strcmp(argv[1], "--man");
	const char *name = argv[1 + man];
	const struct dl_cmd *cmd;

	if (!name) {
		if (man)
			dl_man_main(commands, ARRAY_SIZE(commands), stdout);
		else
			print_usage(stdout);
		return DL_EXIT_OK;
	}
	cmd = find_command(name);
	if (!cmd)
		return unknown_command(name);
	if (man)
		dl_man_command(cmd, stdout);
	else
		dl_opts_help(cmd, stdout);
	return DL_EXIT_OK;
}

static int run(int argc, char **argv)
{
	const struct dl_cmd *cmd;

	if (argc < 2) {
		print_usage(stderr);
		return DL_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		print_usage(stdout);
		return DL_EXIT_OK;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("dlbpf " DLBPF_VERSION);
		return DL_EXIT_OK;
	}
	if (!strcmp(argv[1], "help"))
		return help_command(argc - 1, argv + 1);
	if (argv[1][0] == '-')
		return dl_usage_error(NULL, "no such option: %s; options follow the command", argv[1]);
	cmd = find_command(argv[1]);
	return cmd ? cmd->fn(argc - 1, argv + 1) : unknown_command(argv[1]);
}

/*
 * Descriptors 0 to 2 must be something: the next open would get their number, and a trace file
 * would then be written to by a printf. Opened for reading, so that writing to them still fails.
 */
static int open_missing_stdio(void)
{
	int fd = 0;

	while (fd <= STDERR_FILENO && fcntl(fd, F_GETFD) >= 0)
		fd++;
	for (; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			return -errno;
	return 0;
}

/* A result that could not be written is a failure. The command may have said so already; and nobody
 * needs to hear of a closed pipe. */
static int finish_stdout(int code)
{
	const bool failed = ferror(stdout);

	errno = 0;
	if (!fclose(stdout) && !failed)
		return code;
	if (code)
		return code;
	if (errno != EPIPE)
		dl_error("cannot write to standard output%s%s", errno ? ": " : "",
			 errno ? strerror(errno) : "");
	return DL_EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	if (open_missing_stdio() < 0)
		return DL_EXIT_FAILURE;
	setlocale(LC_CTYPE, "");
	return finish_stdout(run(argc, argv));
}
