/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "trace/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/vec.h"

#define SUFFIX ".dlbpf"

void dl_folder_fini(struct dl_folder *folder)
{
	vec_for_each(folder, it)
		free(*it);
	vec_free(folder);
}

static int cmp_paths(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;

	return strcmp(*x, *y);
}

/* RECORDING-000003.dlbpf: how long the part is that all segments of a recording share; 0: it is none. */
static size_t common_len(const char *name)
{
	const char *end = strrchr(name, '-');
	const size_t digits = end ? strspn(end + 1, "0123456789") : 0;

	return digits && !strcmp(end + 1 + digits, SUFFIX) ? (size_t)(end - name) : 0;
}

static int list(const char *dir, struct dl_folder *ret)
{
	_cleanup_closedir_ DIR *dp = opendir(dir);
	struct dirent *de;

	while (dp && (de = readdir(dp))) {
		char **slot;

		if (!common_len(de->d_name))
			continue;
		slot = vec_push(ret);
		if (!slot)
			return -ENOMEM;
		if (asprintf(slot, "%s/%s", dir, de->d_name) < 0) {
			ret->cnt--;
			return -ENOMEM;
		}
	}
	if (ret->cnt)
		qsort(ret->v, ret->cnt, sizeof(*ret->v), cmp_paths);
	return 0;
}

/* Names begin with the time of their recording. */
static void leave_newest(struct dl_folder *f)
{
	const char *last = f->v[f->cnt - 1];
	const size_t len = common_len(last);
	size_t first = 0;

	while (common_len(f->v[first]) != len || strncmp(f->v[first], last, len))
		free(f->v[first++]);
	f->cnt -= first;
	memmove(f->v, f->v + first, f->cnt * sizeof(*f->v));
}

int dl_folder_of(const char *path, struct dl_folder *ret)
{
	_cleanup_free_ char *beside = NULL;
	const char *dir = path;
	struct stat st;
	int err;

	*ret = (struct dl_folder){};
	if (stat(path, &st) || (S_ISREG(st.st_mode) && st.st_size))
		return 0;
	if (S_ISREG(st.st_mode)) {
		if (asprintf(&beside, "%s.keep", path) < 0) {
			beside = NULL;
			return -ENOMEM;
		}
		dir = beside;
	} else if (!S_ISDIR(st.st_mode)) {
		return 0;
	}
	err = list(dir, ret);
	if (!err && ret->cnt)
		leave_newest(ret);
	if (err)
		dl_folder_fini(ret);
	return err ? err : ret->cnt != 0;
}
