/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the user has to do for GPU data: the exact command line, ready to be pasted. */
#include "capture/gpu.h"
#include "capture/gpu_priv.h"
#include "capture/proc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define COLLECTOR DL_GPU_LIBRARY
#define VARIABLE DL_GPU_VARIABLE
#define CHAIN "DLBPF_CHAIN_INJECTION"
#define CMDLINE_MAX 4096
#define ENVIRON_MAX (1 << 20)

static bool usable(char *buf, size_t sz, const char *path)
{
	char full[PATH_MAX];

	if (!realpath(path, full) || access(full, R_OK) || strlen(full) >= sz)
		return false;
	strcpy(buf, full);
	return true;
}

bool dl_gpu_library(char *buf, size_t sz)
{
	const char *named = getenv("DLBPF_CUPTI_LIB");
	char exe[PATH_MAX], path[PATH_MAX + 64], *slash;
	ssize_t n;

	if (named && named[0])
		return usable(buf, sz, named);
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n <= 0)
		return false;
	exe[n] = '\0';
	slash = strrchr(exe, '/');
	if (!slash)
		return false;
	*slash = '\0';
	/* Beside the program in a build folder, in PREFIX/lib/dlbpf where it is installed. */
	snprintf(path, sizeof(path), "%s/" COLLECTOR, exe);
	if (usable(buf, sz, path))
		return true;
	snprintf(path, sizeof(path), "%s/../lib/dlbpf/" COLLECTOR, exe);
	return usable(buf, sz, path);
}

/* NUL-separated strings of /proc/PID/NAME, the caller's; NULL without them. */
static char *strings_of(uint32_t pid, const char *name, size_t max, size_t *ret_len)
{
	_cleanup_close_ int fd = dl_proc_open(pid);
	char *text;

	return fd >= 0 && !dl_proc_strings(fd, name, max, &text, ret_len) ? text : NULL;
}

bool dl_gpu_uses_cuda(uint32_t pid)
{
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_free_ char *line = NULL;
	char path[64];
	size_t cap = 0;

	snprintf(path, sizeof(path), "/proc/%u/maps", pid);
	f = fopen(path, "re");
	while (f && getline(&line, &cap, f) > 0)
		if (strstr(line, "/libcuda.so"))
			return true;
	return false;
}

/* The value of CUDA_INJECTION64_PATH that the process was started with; "" without. */
static void injection_of(uint32_t pid, char *buf, size_t sz)
{
	size_t len = 0;
	_cleanup_free_ char *env = strings_of(pid, "environ", ENVIRON_MAX, &len);
	const char *val = env ? dl_proc_var(env, len, VARIABLE) : NULL;

	snprintf(buf, sz, "%s", val ? val : "");
}

/* As a shell reads it back; what a terminal would act upon becomes '?'. */
static void add_quoted(struct dl_str *s, const char *arg)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-./=:,+@%";
	char c;

	if (arg[0] && !arg[strspn(arg, plain)]) {
		dl_str_add(s, arg);
		return;
	}
	dl_str_add(s, "'");
	for (; *arg; arg++) {
		if (*arg == '\'') {
			dl_str_add(s, "'\\''");
			continue;
		}
		c = (unsigned char)*arg < ' ' || *arg == 0x7f ? '?' : *arg;
		dl_str_addn(s, &c, 1);
	}
	dl_str_add(s, "'");
}

static void add_command(struct dl_str *s, uint32_t pid)
{
	size_t len = 0;
	_cleanup_free_ char *args = strings_of(pid, "cmdline", CMDLINE_MAX, &len);

	for (size_t i = 0; args && i < len; i += strlen(args + i) + 1) {
		dl_str_add(s, " ");
		add_quoted(s, args + i);
	}
	if (len == CMDLINE_MAX)
		dl_str_add(s, " ...");
}

/* The process may see other files than we do: a container. */
static bool visible_to(uint32_t pid, const char *path)
{
	char inside[PATH_MAX + 32];

	snprintf(inside, sizeof(inside), "/proc/%u/root%s", pid, path);
	return !access(inside, R_OK);
}

static void add_hint(struct dl_str *s, uint32_t pid)
{
	char lib[PATH_MAX], set[PATH_MAX];

	if (!dl_gpu_library(lib, sizeof(lib))) {
		dl_str_add(s, COLLECTOR " is missing: build or install dlbpf completely");
		return;
	}
	injection_of(pid, set, sizeof(set));
	if (!strcmp(set, lib) || strstr(set, COLLECTOR)) {
		dl_str_addf(s, VARIABLE " is set but the collector is not running: it starts with the "
			    "first CUDA call, and needs a readable %s", set);
		return;
	}
	if (set[0])
		dl_str_add(s, "another tool is injected; to load both, ");
	else
		dl_str_add(s, "record it with --inject, or ");
	if (!visible_to(pid, lib))
		dl_str_addf(s, "bind %s into the container, and ", lib);
	dl_str_add(s, "start it as: ");
	if (set[0]) {
		dl_str_add(s, CHAIN "=");
		add_quoted(s, set);
		dl_str_add(s, " ");
	}
	dl_str_add(s, VARIABLE "=");
	add_quoted(s, lib);
	add_command(s, pid);
}

const char *dl_gpu_hint(const struct dl_gpu *g, uint32_t pid, char *buf, size_t sz)
{
	struct dl_str s = {};

	buf[0] = '\0';
	if (g && dl_gpu_knows(g, pid))
		return buf;
	if (!dl_gpu_uses_cuda(pid))
		return buf;
	add_hint(&s, pid);
	if (!s.err && s.s)
		snprintf(buf, sz, "%s", s.s);
	dl_str_fini(&s);
	return buf;
}
