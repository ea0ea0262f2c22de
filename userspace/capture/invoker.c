/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finds sudo above us and reads what it was given: user, groups, environment, limits, umask. */
#include "capture/invoker.h"

#include <ctype.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/invoker_env.h"
#include "capture/proc.h"

enum { UP_MAX = 64, ENV_MAX = 4 << 20, NGROUPS = 65536 };

extern char **environ;

void dl_invoker_fini(struct dl_invoker *inv)
{
	dl_env_fini(&inv->env);
	vec_free(&inv->groups);
	free(inv->user);
	*inv = (struct dl_invoker){};
}

static const struct {
	const char *name;
	int resource;
} limit_names[] = {
	{ "Max cpu time", RLIMIT_CPU }, { "Max file size", RLIMIT_FSIZE },
	{ "Max data size", RLIMIT_DATA }, { "Max stack size", RLIMIT_STACK },
	{ "Max core file size", RLIMIT_CORE }, { "Max resident set", RLIMIT_RSS },
	{ "Max processes", RLIMIT_NPROC }, { "Max open files", RLIMIT_NOFILE },
	{ "Max locked memory", RLIMIT_MEMLOCK }, { "Max address space", RLIMIT_AS },
	{ "Max file locks", RLIMIT_LOCKS }, { "Max pending signals", RLIMIT_SIGPENDING },
	{ "Max msgqueue size", RLIMIT_MSGQUEUE }, { "Max nice priority", RLIMIT_NICE },
	{ "Max realtime priority", RLIMIT_RTPRIO }, { "Max realtime timeout", RLIMIT_RTTIME },
};

static const char *one_limit(const char *p, rlim_t *ret)
{
	char *end;

	p += strspn(p, " ");
	if (!strncmp(p, "unlimited", 9)) {
		*ret = RLIM_INFINITY;
		return p + 9;
	}
	if (!isdigit((unsigned char)*p))
		return NULL;
	*ret = strtoull(p, &end, 10);
	return end;
}

void dl_limits_parse(const char *text, bool has[RLIM_NLIMITS], struct rlimit limit[RLIM_NLIMITS])
{
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		for (size_t i = 0; i < ARRAY_SIZE(limit_names); i++) {
			const size_t len = strlen(limit_names[i].name);
			struct rlimit l;
			const char *p;

			if (strncmp(line, limit_names[i].name, len) || line[len] != ' ')
				continue;
			p = one_limit(line + len, &l.rlim_cur);
			if (p && one_limit(p, &l.rlim_max)) {
				limit[limit_names[i].resource] = l;
				has[limit_names[i].resource] = true;
			}
		}
	}
}

/* --- the processes above us -------------------------------------------------------------------- */

struct line {
	uint32_t sudo;		/* the topmost of one or more sudo processes above us */
	uint32_t caller;	/* its parent: the user's shell */
	uint32_t first;		/* the first process below it, perhaps ourselves */
};

static bool is_sudo(uint32_t pid)
{
	char path[48], exe[4096];
	const char *base;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/exe", pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n <= 0)
		return false;
	exe[n] = '\0';
	base = strrchr(exe, '/');
	base = base ? base + 1 : exe;
	/* sudo, sudo-rs, sudo.ws; not sudoedit */
	return !strcmp(base, "sudo") || !strncmp(base, "sudo-", 5) || !strncmp(base, "sudo.", 5);
}

static uint32_t parent_of(uint32_t pid)
{
	_cleanup_close_ int fd = dl_proc_open(pid);
	struct dl_stat st;

	return fd < 0 || dl_proc_stat(fd, 0, &st) ? 0 : st.ppid;
}

/* With use_pty there are two sudo processes, one below the other. */
static bool find_line(struct line *ret)
{
	uint32_t pid = (uint32_t)getpid();
	struct line l = {};

	for (int i = 0; i < UP_MAX && pid > 1; i++) {
		const uint32_t up = parent_of(pid);

		if (up && is_sudo(up)) {
			l.first = l.first ? l.first : pid;
			l.sudo = up;
		} else if (l.sudo) {
			l.caller = up;
			*ret = l;
			return true;
		}
		pid = up;
	}
	return false;
}

static int read_strings(uint32_t pid, const char *name, struct dl_env_list *ret)
{
	_cleanup_close_ int fd = dl_proc_open(pid);
	_cleanup_free_ char *text = NULL;
	size_t len;
	int err;

	if (fd < 0)
		return fd;
	err = dl_proc_strings(fd, name, ENV_MAX, &text, &len);
	return err ? err : dl_env_from_strings(ret, text, len);
}

static int own_env(struct dl_env_list *ret)
{
	int err = 0;

	for (char **e = environ; *e && !err; e++)
		if (strncmp(*e, "SUDO_", 5))
			err = dl_env_set(ret, *e);
	return err;
}

static int find_env(const struct line *l, struct dl_env_list *ret)
{
	struct dl_env_list sudo_env = {}, args = {}, first = {}, now = {};
	int err;

	err = own_env(&now);
	if (!err)
		err = read_strings(l->sudo, "environ", &sudo_env);
	if (!err)
		err = read_strings(l->sudo, "cmdline", &args);
	if (!err && l->first != (uint32_t)getpid())
		err = read_strings(l->first, "environ", &first);
	if (!err)
		err = dl_env_before_sudo(ret, &sudo_env, &args,
					 l->first == (uint32_t)getpid() ? NULL : &first, &now);
	dl_env_fini(&sudo_env);
	dl_env_fini(&args);
	dl_env_fini(&first);
	dl_env_fini(&now);
	return err;
}

/* --- limits, umask, groups --------------------------------------------------------------------- */

static bool same_limit(const struct rlimit *a, const struct rlimit *b)
{
	return a->rlim_cur == b->rlim_cur && a->rlim_max == b->rlim_max;
}

/*
 * Three processes may know a limit of the user: we ourselves (unless PAM set root's), sudo (but it
 * changes those of cores and of the stack for itself, src/limits.c), and the shell that called sudo
 * (unless the limit was set in a subshell, which then became sudo). Two of them are right; without a
 * second voice, the shell.
 */
void dl_limit_vote(int resource, const struct rlimit *own, const struct rlimit *sudo,
		   const struct rlimit *shell, struct rlimit *ret)
{
	if (resource == RLIMIT_CORE || resource == RLIMIT_STACK)
		sudo = NULL;
	if (!shell || (sudo && same_limit(own, sudo)))
		*ret = *own;
	else
		*ret = *shell;
}

static void find_limits(struct dl_invoker *inv, const struct dl_status *caller, const char *sudo_text,
			const char *caller_text)
{
	bool has_sudo[RLIM_NLIMITS] = {}, has_caller[RLIM_NLIMITS] = {};
	struct rlimit sudo[RLIM_NLIMITS], shell[RLIM_NLIMITS];
	const bool same = caller && caller->uid == inv->uid;

	dl_limits_parse(sudo_text, has_sudo, sudo);
	dl_limits_parse(same ? caller_text : "", has_caller, shell);
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit own;

		if (getrlimit((__rlimit_resource_t)i, &own))
			continue;
		inv->has_limit[i] = true;
		dl_limit_vote(i, &own, has_sudo[i] ? &sudo[i] : NULL, has_caller[i] ? &shell[i] : NULL,
			      &inv->limit[i]);
	}
}

/* The caller's groups, as the kernel has them: newgrp and containers know others than /etc/group. */
static int caller_groups(struct dl_invoker *inv, int caller_fd)
{
	_cleanup_free_ char *text = malloc(1 << 20);
	char *p;

	if (!text)
		return -ENOMEM;
	if (dl_proc_read(caller_fd, "status", text, 1 << 20) < 0)
		return -ESRCH;
	p = strstr(text, "\nGroups:");
	if (!p)
		return -ESRCH;
	for (p += 8 + strspn(p + 8, " \t"); isdigit((unsigned char)*p); p += strspn(p, " ")) {
		gid_t *g = vec_push(&inv->groups);

		if (!g)
			return -ENOMEM;
		*g = (gid_t)strtoul(p, &p, 10);
	}
	return 0;
}

static int known_groups(struct dl_invoker *inv)
{
	_cleanup_free_ gid_t *list = malloc(NGROUPS * sizeof(*list));
	int cnt = NGROUPS;

	if (!list)
		return -ENOMEM;
	list[0] = inv->gid;
	if (!inv->user || getgrouplist(inv->user, inv->gid, list, &cnt) < 0)
		cnt = 1;
	for (int i = 0; i < cnt; i++) {
		gid_t *g = vec_push(&inv->groups);

		if (!g)
			return -ENOMEM;
		*g = list[i];
	}
	return 0;
}

static int find_groups(struct dl_invoker *inv, const struct dl_status *caller, int caller_fd)
{
	int err = -ESRCH;

	if (caller && caller->uid == inv->uid)
		err = caller_groups(inv, caller_fd);
	if (err == -ESRCH) {
		vec_free(&inv->groups);
		err = known_groups(inv);
	}
	return err;
}

static int look_above(struct dl_invoker *inv, const struct line *l)
{
	_cleanup_close_ int sudo_fd = dl_proc_open(l->sudo);
	_cleanup_close_ int caller_fd = l->caller ? dl_proc_open(l->caller) : -1;
	char sudo_text[4096] = "", caller_text[4096] = "";
	struct dl_status sudo, caller;
	bool has_caller;
	struct dl_stat st;

	has_caller = caller_fd >= 0 && !dl_proc_status(caller_fd, 0, &caller);
	if (sudo_fd >= 0) {
		dl_proc_read(sudo_fd, "limits", sudo_text, sizeof(sudo_text));
		if (!dl_proc_status(sudo_fd, 0, &sudo)) {
			inv->umask = sudo.umask;
			inv->has_umask = true;
		}
		if (!dl_proc_stat(sudo_fd, 0, &st)) {
			inv->nice = st.nice;
			inv->has_nice = true;
		}
	}
	if (has_caller)
		dl_proc_read(caller_fd, "limits", caller_text, sizeof(caller_text));
	find_limits(inv, has_caller ? &caller : NULL, sudo_text, caller_text);
	return find_groups(inv, has_caller ? &caller : NULL, caller_fd);
}

/* "1000" in the variable; false when it is not set. */
static bool env_id(const char *name, uint32_t *ret)
{
	const char *text = getenv(name);
	uint64_t nr;

	if (!text || !dl_parse_u64(text, &nr) || nr >= UINT32_MAX)
		return false;
	*ret = (uint32_t)nr;
	return true;
}

static int find_user(struct dl_invoker *inv, struct dl_diag *d)
{
	const struct passwd *pw;

	errno = 0;
	pw = getpwuid(inv->uid);
	if (!pw)
		return 0;	/* known only by number, as in containers */
	inv->user = strdup(pw->pw_name);
	return inv->user ? 0 : dl_oom(d);
}

int dl_invoker_find(struct dl_invoker *ret, bool as_root, struct dl_diag *d)
{
	struct dl_invoker inv = { .uid = geteuid(), .gid = getegid() };
	struct line line;
	uint32_t uid, gid;
	int err;

	if (!geteuid() && env_id("SUDO_UID", &uid) && env_id("SUDO_GID", &gid) && uid) {
		inv.other_user = true;
		inv.uid = uid;
		inv.gid = gid;
	}
	inv.as_root = as_root;
	err = find_user(&inv, d);
	if (!err && inv.other_user && !as_root && find_line(&line)) {
		err = look_above(&inv, &line);
		if (!err)
			err = find_env(&line, &inv.env);
	} else if (!err) {
		inv.env_lost = inv.other_user && !as_root;
		err = inv.other_user ? known_groups(&inv) : 0;
		if (!err)
			err = own_env(&inv.env);
	}
	if (err) {
		dl_invoker_fini(&inv);
		return err == -ENOMEM ? dl_oom(d) :
			dl_fail_errno(d, err, "cannot read what sudo was given, in /proc");
	}
	*ret = inv;
	return 0;
}
