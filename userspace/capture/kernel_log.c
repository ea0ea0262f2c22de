/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * libbpf's messages. libbpf has one print callback for the whole process and gives it no context,
 * hence the only state here that is not in a struct.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "capture/kernel_priv.h"
#include "base/str.h"

#define LOG_MAX (4U << 20)

static struct dl_str log_text;
static bool log_verbose;

static int __attribute__((format(printf, 2, 0)))
on_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	va_list copy;
	char *line;
	int n;

	if (log_verbose) {
		va_copy(copy, ap);
		vfprintf(stderr, fmt, copy);
		va_end(copy);
	}
	if (level == LIBBPF_DEBUG || log_text.len > LOG_MAX)
		return 0;
	n = vasprintf(&line, fmt, ap);
	if (n < 0)
		return 0;
	dl_str_addn(&log_text, line, n);
	free(line);
	return 0;
}

void dl_log_begin(bool verbose)
{
	dl_log_end();
	log_verbose = verbose;
	libbpf_set_print(on_print);
}

const char *dl_log_text(void)
{
	return log_text.s ? log_text.s : "";
}

void dl_log_end(void)
{
	dl_str_fini(&log_text);
	log_text = (struct dl_str){};
}

const char *dl_log_save(char *path, size_t sz)
{
	const char *text = dl_log_text();
	size_t len = strlen(text);
	int fd;

	snprintf(path, sz, "%s/dlbpf-libbpf-XXXXXX", P_tmpdir);
	fd = mkstemp(path);
	if (fd < 0)
		return "";
	if (write(fd, text, len) != (ssize_t)len)
		path[0] = 0;
	close(fd);
	return path;
}
