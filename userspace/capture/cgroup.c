/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where the control groups of a process are: mounts, paths, levels. The numbers are cgroup_read.c. */
#include "capture/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/cgroup_read.h"
#include "capture/proc.h"

static const char *const ctl_names[] = {
	[DL_CG_MEMORY] = "memory",
	[DL_CG_CPU] = "cpu",
	[DL_CG_PIDS] = "pids",
};

/* A word of a list with the given separators. */
static bool has_word(const char *list, size_t len, const char *word)
{
	const size_t word_len = strlen(word);

	while (len) {
		size_t n = 0;

		while (n < len && list[n] != ',' && list[n] != ' ' && list[n] != '\n')
			n++;
		if (n == word_len && !memcmp(list, word, n))
			return true;
		list += n + (n < len);
		len -= n + (n < len);
	}
	return false;
}

struct mount_line {
	const char *root, *dir, *type, *super;
	size_t root_len, dir_len, type_len, super_len;
};

/* "36 35 98:0 /root /dir rw,noatime master:1 - type source superoptions", see proc(5). */
static bool split_mount(const char *line, size_t len, struct mount_line *ret)
{
	const char *end = line + len, *p = line;
	struct mount_line m = {};
	int field = 0, after = -1;

	while (p < end) {
		const char *word = p;
		size_t n = 0;

		while (word + n < end && word[n] != ' ')
			n++;
		p = word + n + 1;
		if (field == 3)
			m.root = word, m.root_len = n;
		else if (field == 4)
			m.dir = word, m.dir_len = n;
		if (after == 0)
			m.type = word, m.type_len = n;
		else if (after == 2)
			m.super = word, m.super_len = n;
		field++;
		if (after >= 0)
			after++;
		else if (field > 6 && n == 1 && *word == '-')
			after = 0;
	}
	if (!m.root || !m.dir || !m.type || !m.super)
		return false;
	*ret = m;
	return true;
}

static int set_mount(struct dl_cg_mount *to, const struct mount_line *m, int version)
{
	char *dir = dl_mount_path(m->dir, m->dir_len), *root = dl_mount_path(m->root, m->root_len);

	if (!dir || !root) {
		free(dir);
		free(root);
		return -ENOMEM;
	}
	free(to->dir);
	free(to->root);
	*to = (struct dl_cg_mount){ dir, root, version };
	return 0;
}

/* Of two mounts of one controller the first is taken, but one that shows all groups goes before
 * one that shows a part, as the bind mounts of containers do. */
static bool is_better(const struct dl_cg_mount *have, const struct mount_line *m)
{
	return !have->dir || (strcmp(have->root, "/") && m->root_len == 1);
}

static int take_mount(struct dl_cg_mounts *mounts, const struct mount_line *m,
		      bool (*has)(const char *dir, const char *controller))
{
	const bool v1 = m->type_len == 6 && !memcmp(m->type, "cgroup", 6);
	const bool v2 = m->type_len == 7 && !memcmp(m->type, "cgroup2", 7);
	int err = 0;

	if (!v1 && !v2)
		return 0;
	for (size_t i = 0; i < DL_CG_CTL_CNT && !err; i++) {
		struct dl_cg_mount *ctl = &mounts->ctl[i];

		if (v1 && has_word(m->super, m->super_len, ctl_names[i]) &&
		    (ctl->version != 1 || is_better(ctl, m))) {
			err = set_mount(ctl, m, 1);
		} else if (v2 && ctl->version != 1 && is_better(ctl, m)) {
			_cleanup_free_ char *dir = dl_mount_path(m->dir, m->dir_len);

			if (!dir)
				return -ENOMEM;
			if (has(dir, ctl_names[i]))
				err = set_mount(ctl, m, 2);
		}
	}
	return err;
}

int dl_cg_mounts_parse(const char *mountinfo, bool (*has)(const char *dir, const char *controller),
		       struct dl_cg_mounts *ret)
{
	struct dl_cg_mounts mounts = {};

	for (const char *line = mountinfo; *line;) {
		const size_t len = strcspn(line, "\n");
		struct mount_line m;
		int err;

		if (split_mount(line, len, &m)) {
			err = take_mount(&mounts, &m, has);
			if (err) {
				dl_cg_mounts_fini(&mounts);
				return err;
			}
		}
		line += len + (line[len] == '\n');
	}
	*ret = mounts;
	return 0;
}

/* The controllers of the version 2 hierarchy are listed in its root. */
static bool v2_has(const char *dir, const char *controller)
{
	char path[4096], buf[512];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
	n = dl_proc_read(AT_FDCWD, path, buf, sizeof(buf));
	return n > 0 && has_word(buf, (size_t)n, controller);
}

int dl_cg_mounts_read(struct dl_cg_mounts *ret)
{
	_cleanup_close_ int self = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t len;
	int err;

	if (self < 0)
		return -errno;
	err = dl_proc_strings(self, "mountinfo", 16 << 20, &text, &len);
	return err ? err : dl_cg_mounts_parse(text, v2_has, ret);
}

void dl_cg_mounts_fini(struct dl_cg_mounts *m)
{
	for (size_t i = 0; i < DL_CG_CTL_CNT; i++) {
		free(m->ctl[i].dir);
		free(m->ctl[i].root);
	}
	*m = (struct dl_cg_mounts){};
}

/* "4:memory:/path" of version 1, "0::/path" of version 2. */
bool dl_cg_path(const char *text, enum dl_cg_ctl ctl, int version, char *buf, size_t sz)
{
	for (const char *line = text; *line;) {
		const size_t len = strcspn(line, "\n");
		const char *list = memchr(line, ':', len);
		const char *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;

		if (path) {
			const size_t list_len = (size_t)(path - list - 1);
			const size_t path_len = len - (size_t)(path + 1 - line);
			const bool mine = version == 2 ? !list_len && line[0] == '0' :
				has_word(list + 1, list_len, ctl_names[ctl]);

			if (mine && path_len && path_len < sz) {
				memcpy(buf, path + 1, path_len);
				buf[path_len] = '\0';
				return true;
			}
		}
		line += len + (line[len] == '\n');
	}
	return false;
}

/* --- levels --------------------------------------------------------------------------------- */

struct dl_cg_chain {
	DL_VEC(struct dl_cg_level) levels;
};

static struct dl_cg_level *find_level(struct dl_cg_chain *c, const char *path)
{
	struct dl_cg_level *level;

	vec_for_each(&c->levels, it) {
		if (!strcmp(it->path, path))
			return it;
	}
	level = vec_push(&c->levels);
	if (!level)
		return NULL;
	dl_cg_level_init(level);
	level->path = strdup(path);
	if (!level->path) {
		c->levels.cnt--;
		return NULL;
	}
	return level;
}

/* The directory of a group, or -ENOENT when it lies outside what the mount shows. */
static int group_dir(const struct dl_cg_mount *m, const char *path, char *buf, size_t sz)
{
	const size_t root_len = strcmp(m->root, "/") ? strlen(m->root) : 0;

	if (!strncmp(path, "/..", 3))
		return -ENOENT;		/* above the recorder's own cgroup namespace */
	if (root_len && (strncmp(path, m->root, root_len) || (path[root_len] && path[root_len] != '/')))
		return -ENOENT;
	if ((size_t)snprintf(buf, sz, "%s%s", m->dir, path + root_len) >= sz)
		return -ENAMETOOLONG;
	return 0;
}

/* The root of version 2 is the whole machine and has no limits. Every other group has this file. */
static bool is_v2_root(int dirfd)
{
	return faccessat(dirfd, "cgroup.events", F_OK, 0) < 0;
}

/* Adds the group and all above it to the levels, as far as ctl goes. */
static int add_line(struct dl_cg_chain *c, const struct dl_cg_mount *m, enum dl_cg_ctl ctl, char *path)
{
	for (;;) {
		char dir[4096];
		char *slash;
		int err = group_dir(m, path, dir, sizeof(dir));

		if (!err) {
			_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			if (fd >= 0 && (m->version == 1 || !is_v2_root(fd))) {
				struct dl_cg_level *level = find_level(c, path);

				if (!level)
					return -ENOMEM;
				dl_cg_level_add(level, ctl, m->version, fd);
			}
		}
		slash = strrchr(path, '/');
		if (!slash || !path[1])
			return 0;
		slash[slash == path] = '\0';
	}
}

static int depth(const char *path)
{
	int n = 0;

	for (; *path; path++)
		n += *path == '/' && path[1];
	return n;
}

/* Deepest first; equally deep ones in the order of the controllers. */
static void sort_levels(struct dl_cg_chain *c)
{
	for (size_t i = 1; i < c->levels.cnt; i++) {
		for (size_t j = i; j && depth(c->levels.v[j].path) > depth(c->levels.v[j - 1].path); j--) {
			const struct dl_cg_level tmp = c->levels.v[j];

			c->levels.v[j] = c->levels.v[j - 1];
			c->levels.v[j - 1] = tmp;
		}
	}
}

static void drop_empty(struct dl_cg_chain *c)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->levels.cnt; i++) {
		if (dl_cg_level_is_empty(&c->levels.v[i]))
			dl_cg_level_fini(&c->levels.v[i]);
		else
			c->levels.v[kept++] = c->levels.v[i];
	}
	c->levels.cnt = kept;
}

int dl_cg_chain_open(struct dl_cg_chain **ret, const struct dl_cg_mounts *mounts,
		     const char *proc_cgroup, struct dl_diag *d)
{
	struct dl_cg_chain *c = calloc(1, sizeof(*c));
	bool hidden = false, any = false;

	if (!c)
		return dl_oom(d);
	for (size_t i = 0; i < DL_CG_CTL_CNT; i++) {
		const struct dl_cg_mount *m = &mounts->ctl[i];
		char path[4096];

		if (!m->dir)
			continue;
		any = true;
		if (!dl_cg_path(proc_cgroup, (enum dl_cg_ctl)i, m->version, path, sizeof(path)))
			continue;
		hidden |= !strncmp(path, "/..", 3);
		if (add_line(c, m, (enum dl_cg_ctl)i, path) < 0) {
			dl_cg_chain_close(c);
			return dl_oom(d);
		}
	}
	drop_empty(c);
	sort_levels(c);
	if (!c->levels.cnt) {
		dl_cg_chain_close(c);
		return dl_fail(d, -ENOENT, !any ? "no control group file system is mounted" : hidden ?
			       "the target's control groups lie outside the recorder's own cgroup "
			       "namespace: record on the host" :
			       "the target's control groups have no limits and no counters here");
	}
	*ret = c;
	return 0;
}

void dl_cg_chain_close(struct dl_cg_chain *c)
{
	if (!c)
		return;
	vec_for_each(&c->levels, it)
		dl_cg_level_fini(it);
	vec_free(&c->levels);
	free(c);
}

size_t dl_cg_chain_levels(const struct dl_cg_chain *c)
{
	return c->levels.cnt;
}

int dl_cg_chain_emit(struct dl_cg_chain *c, struct dl_sink *sink, uint64_t ts, uint32_t pid)
{
	for (size_t i = 0; i < c->levels.cnt; i++) {
		struct dl_ev_env_cgroup ev = DL_EVENT_INIT(env_cgroup, DL_EV_ENV_CGROUP, ts, pid, pid);
		int err;

		dl_cg_level_read(&c->levels.v[i], &ev);
		ev.level = (uint32_t)i;
		err = dl_emit_text(sink, &ev.h, c->levels.v[i].path);
		if (err)
			return err;
	}
	return 0;
}
