/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which libcupti to use. glibc matches libraries by SONAME, so that a copy loaded here first
 * becomes the one that a later `import torch` gets, and torch fails where it needs a newer one
 * (pytorch #157381). Hence: the copy that the process has already; the one the user names; the
 * one beside the CUDA libraries in use; and only then the toolkit's, which a Python process that
 * has not loaded torch is spared for a while.
 */
#include "agent.h"
#include "compat.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

OLD_SYMBOL(dlopen);
OLD_SYMBOL(dlsym);

#define PATH_SZ 512
#define DEFER_NS 30000000000ULL

struct scene {
	char cupti[PATH_SZ];	/* mapped already */
	char cudart[PATH_SZ];	/* the folder of a mapped CUDA library */
	char site[PATH_SZ];	/* site-packages of a mapped library */
	bool torch, python;
};

/* SONAMEs, the newest first: CUPTI 11 has the minor version in it, later ones do not. */
static const char *const sonames[] = {
	"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7",
	"libcupti.so.11.6", "libcupti.so.11.5", "libcupti.so.11.4", "libcupti.so.11.3",
	"libcupti.so.11.2", "libcupti.so.11.1", "libcupti.so.11.0",
};
#define SONAME_CNT (sizeof(sonames) / sizeof(sonames[0]))

static unsigned int soname_major(const char *soname)
{
	return (unsigned int)(soname[12] - '0') * 10 + (unsigned int)(soname[13] - '0');
}

static void copy_path(char *dst, const char *src, size_t len)
{
	if (len >= PATH_SZ)
		return;
	memcpy(dst, src, len);
	dst[len] = '\0';
}

static void look_at(struct scene *s, const char *path)
{
	const char *base = strrchr(path, '/'), *p;

	if (!base++)
		return;
	if (!strncmp(base, "libcupti.so", 11) && !s->cupti[0])
		copy_path(s->cupti, path, strlen(path));
	if (!strncmp(base, "libtorch", 8))
		s->torch = true;
	if (!strncmp(base, "python", 6) || !strncmp(base, "libpython", 9))
		s->python = true;
	if (!strncmp(base, "libcudart.so", 12) || !strncmp(base, "libcublas.so", 12))
		copy_path(s->cudart, path, (size_t)(base - 1 - path));
	p = strstr(path, "/site-packages/");
	if (!p)
		p = strstr(path, "/dist-packages/");
	if (p && !s->site[0])
		copy_path(s->site, path, (size_t)(p - path) + 14);
}

/* Reads /proc/self/maps without malloc: this may run early and in any process. */
static void look_around(struct scene *s)
{
	char buf[8192], *line, *end, *path;
	size_t have = 0;
	ssize_t n;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	memset(s, 0, sizeof(*s));
	if (fd < 0)
		return;
	while ((n = read(fd, buf + have, sizeof(buf) - 1 - have)) > 0) {
		have += (size_t)n;
		buf[have] = '\0';
		for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			path = strchr(line, '/');
			if (path)
				look_at(s, path);
		}
		have -= (size_t)(line - buf);
		if (have == sizeof(buf) - 1)
			have = 0;	/* a line longer than the buffer: not one of ours */
		memmove(buf, line, have);
	}
	close(fd);
}

static bool fill_table(void *lib, struct cupti_api_table *ret)
{
	struct cupti_api_table t;
	void *f;

#define CUPTI_FN(required, member, symbol, params) \
	f = dlsym(lib, symbol); \
	if (!f && required) \
		return false; \
	memcpy(&t.member, &f, sizeof(f));
	CUPTI_FUNCTIONS(CUPTI_FN)
	CUPTI_FUNCTIONS_V2(CUPTI_FN)
#undef CUPTI_FN
	*ret = t;
	return true;
}

struct found {
	void *lib;
	char path[PATH_SZ];
	bool here;	/* loaded by us, it was not there before */
};

static bool try_open(struct found *f, const char *path, int extra)
{
	f->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | extra);
	if (!f->lib)
		return false;
	copy_path(f->path, path, strlen(path));
	f->here = !(extra & RTLD_NOLOAD);
	return true;
}

static bool open_mapped(struct found *f, const struct scene *s)
{
	if (s->cupti[0] && try_open(f, s->cupti, RTLD_NOLOAD))
		return true;
	for (size_t i = 0; i < SONAME_CNT; i++)
		if (try_open(f, sonames[i], RTLD_NOLOAD))
			return true;
	return false;
}

/* No CUPTI newer than the driver's CUDA: it would only answer NOT_INITIALIZED. */
static unsigned int newest_major(void)
{
	int (*get)(int *) = (int (*)(int *))find_driver("cuDriverGetVersion");
	int version = 0;

	if (!get || get(&version) || version < 1000)
		return 99;
	return (unsigned int)version / 1000;
}

static bool open_in(struct found *f, const char *dir, const char *sub, unsigned int newest)
{
	char path[PATH_SZ];

	for (size_t i = 0; i < SONAME_CNT; i++) {
		int n = snprintf(path, sizeof(path), "%s/%s%s", dir, sub, sonames[i]);

		if (soname_major(sonames[i]) > newest || n >= (int)sizeof(path))
			continue;
		if (!access(path, R_OK) && try_open(f, path, 0))
			return true;
	}
	return false;
}

/* The one that PyTorch would load from there. */
static bool open_site(struct found *f, const struct scene *s, unsigned int newest)
{
	return s->site[0] && (open_in(f, s->site, "nvidia/cuda_cupti/lib/", newest) ||
			      open_in(f, s->site, "nvidia/cu13/lib/", newest));
}

static bool open_beside(struct found *f, const struct scene *s, unsigned int newest)
{
	return s->cudart[0] && (open_in(f, s->cudart, "", newest) ||
				open_in(f, s->cudart, "../extras/CUPTI/lib64/", newest) ||
				open_in(f, s->cudart, "../../cuda_cupti/lib/", newest));
}

static bool open_toolkit(struct found *f, unsigned int newest)
{
	static const char *const subs[] = {
		"extras/CUPTI/lib64/", "lib64/", "lib/",
#ifdef __aarch64__
		"targets/sbsa-linux/lib/", "targets/aarch64-linux/lib/",
#else
		"targets/x86_64-linux/lib/",
#endif
	};
	char dir[PATH_SZ];
	struct dirent *e;
	DIR *d;

	for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++)
		if (open_in(f, "/usr/local/cuda", subs[i], newest))
			return true;
	d = opendir("/usr/local");
	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, "cuda-", 5))
			continue;
		snprintf(dir, sizeof(dir), "/usr/local/%s", e->d_name);
		for (size_t i = 0; i < sizeof(subs) / sizeof(subs[0]); i++) {
			if (open_in(f, dir, subs[i], newest)) {
				closedir(d);
				return true;
			}
		}
	}
	if (d)
		closedir(d);
	for (size_t i = 0; i < SONAME_CNT; i++)
		if (soname_major(sonames[i]) <= newest && try_open(f, sonames[i], 0))
			return true;
	return false;
}

static enum find_result search(struct found *f)
{
	static uint64_t first_ns;
	const char *named = getenv("DLBPF_LIBCUPTI");
	struct timespec ts;
	struct scene s;
	uint64_t now;
	unsigned int newest = newest_major();

	look_around(&s);
	if (open_mapped(f, &s))
		return FIND_OK;
	if (named && named[0])
		return try_open(f, named, 0) ? FIND_OK : FIND_NONE;
	if (open_site(f, &s, newest))
		return FIND_OK;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
	if (!first_ns)
		first_ns = now;
	if (s.python && !s.torch && now - first_ns < DEFER_NS)
		return FIND_LATER;
	return open_beside(f, &s, newest) || open_toolkit(f, newest) ? FIND_OK : FIND_NONE;
}

enum find_result find_cupti(struct cupti_api_table *ret, char *path, size_t sz, bool *ret_simulated,
			    bool *ret_loaded_here)
{
	static struct found f;
	static struct cupti_api_table table;
	enum find_result r;

	if (!f.lib) {
		r = search(&f);
		if (r != FIND_OK)
			return r;
		if (!fill_table(f.lib, &table)) {
			/* Never dlclose libcupti: it may have left a thread behind (12.9). */
			f.lib = NULL;
			return FIND_NONE;
		}
	}
	*ret = table;
	snprintf(path, sz, "%s", f.path);
	*ret_simulated = dlsym(f.lib, "dlbpf_gpusim_marker") != NULL;
	*ret_loaded_here = f.here;
	return FIND_OK;
}

bool find_torch(void)
{
	struct scene s;

	look_around(&s);
	return s.torch;
}

void *find_driver(const char *symbol)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	return lib ? dlsym(lib, symbol) : NULL;
}
