/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the user has to do for GPU data: the exact command line, ready to be pasted. */
#include "capture/gpu.h"
#include "capture/gpu_priv.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define COLLECTOR "libdlbpf_cupti.so"
#define VARIABLE "CUDA_INJECTION64_PATH"
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

/* Reads at most max bytes of /proc/PID/NAME; NULL without it. The text ends with a NUL. */
static char *read_proc(uint32_t pid, const char *name, size_t max, size_t *ret_sz)
{
	_cleanup_close_ int fd = -1;
	char path[64], *buf;
	size_t have = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	buf = malloc(max + 1);
	if (!buf)
		return NULL;
	while (have < max && (n = read(fd, buf + have, max - have)) > 0)
		have += (size_t)n;
	buf[have] = '\0';
	*ret_sz = have;
	return buf;
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
	_cleanup_free_ char *env = read_proc(pid, "environ", ENVIRON_MAX, &len);

	buf[0] = '\0';
	for (size_t i = 0; env && i < len; i += strlen(env + i) + 1)
		if (!strncmp(env + i, VARIABLE "=", sizeof(VARIABLE)))
			snprintf(buf, sz, "%s", env + i + sizeof(VARIABLE));
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
	_cleanup_free_ char *args = read_proc(pid, "cmdline", CMDLINE_MAX, &len);

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
