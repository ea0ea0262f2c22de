/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The subcommands. Each lives in its cmd_NAME.c, describes itself in a struct dl_cmd (options,
 * help, function) and is listed once, in main.c. A command prints its results to stdout, its errors
 * with dl_error(), and returns an exit code; main() sees to it that stdout was written.
 */
#ifndef DLBPF_CLI_CMD_H
#define DLBPF_CLI_CMD_H

#include "cli/opts.h"

extern const struct dl_cmd dl_cmd_record;
extern const struct dl_cmd dl_cmd_report;
extern const struct dl_cmd dl_cmd_postmortem;
extern const struct dl_cmd dl_cmd_info;
extern const struct dl_cmd dl_cmd_dump;
extern const struct dl_cmd dl_cmd_import;
extern const struct dl_cmd dl_cmd_annotate;
extern const struct dl_cmd dl_cmd_check;

int cmd_record(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_postmortem(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_annotate(int argc, char **argv);
int cmd_check(int argc, char **argv);

#endif
