/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The process that becomes the command: another user, limits, environment, and a barrier. */
#include "capture/spawn.h"

#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

extern char **environ;

enum stage { STAGE_READY, STAGE_LIMITS, STAGE_USER, STAGE_EXEC };

/* What the child tells us. */
struct word {
	int stage, err;
};

static void tell(int sock, enum stage stage, int err)
{
	const struct word w = { stage, err };

	if (send(sock, &w, sizeof(w), MSG_NOSIGNAL) < 0)
		_exit(125);
}

/* Root in a container may not be allowed to raise a limit: then as far as it goes. */
static int set_limit(int resource, struct rlimit want)
{
	const __rlimit_resource_t res = (__rlimit_resource_t)resource;
	struct rlimit own;

	if (!setrlimit(res, &want))
		return 0;
	if (errno != EPERM || getrlimit(res, &own))
		return errno;
	if (want.rlim_max > own.rlim_max)
		want.rlim_max = own.rlim_max;
	if (want.rlim_cur > want.rlim_max)
		want.rlim_cur = want.rlim_max;
	return setrlimit(res, &want) ? errno : 0;
}

static int set_limits(const struct dl_invoker *inv)
{
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		const int err = inv->has_limit[i] ? set_limit(i, inv->limit[i]) : 0;

		if (err)
			return err;
	}
	if (inv->has_nice && setpriority(PRIO_PROCESS, 0, inv->nice))
		return errno;
	if (inv->has_umask)
		umask(inv->umask);
	return 0;
}

static int become_user(const struct dl_invoker *inv)
{
	if (!inv->other_user || inv->as_root)
		return 0;
	if (setgroups(inv->groups.cnt, inv->groups.v) || setresgid(inv->gid, inv->gid, inv->gid) ||
	    setresuid(inv->uid, inv->uid, inv->uid))
		return errno;
	/* Never go on with root's rights. */
	return setuid(0) ? 0 : EPERM;
}

__attribute__((noreturn))
static void child(int sock, char **argv, char **env, const struct dl_invoker *inv)
{
	enum stage stage = STAGE_LIMITS;
	char go;
	int err;

	err = set_limits(inv);
	if (!err) {
		stage = STAGE_USER;
		err = become_user(inv);
	}
	tell(sock, err ? stage : STAGE_READY, err);
	if (err)
		_exit(125);
	if (recv(sock, &go, 1, 0) != 1)
		_exit(125);	/* the recorder gave up, or died */
	environ = env;
	execvp(argv[0], argv);	/* by the PATH of the environment that is to be the command's */
	tell(sock, STAGE_EXEC, errno);
	_exit(125);
}

static int hear(int sock, struct word *ret)
{
	ssize_t n;

	do {
		n = recv(sock, ret, sizeof(*ret), 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == sizeof(*ret) ? 1 : 0;
}

int dl_spawn_prepare(struct dl_spawn *ret, char **argv, const struct dl_invoker *inv,
		     struct dl_diag *d)
{
	_cleanup_free_ char **env = calloc(inv->env.cnt + 1, sizeof(*env));
	struct dl_spawn s;
	struct word w;
	int pair[2];

	if (!env)
		return dl_oom(d);
	for (size_t i = 0; i < inv->env.cnt; i++)
		env[i] = inv->env.v[i];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return dl_fail_errno(d, -errno, "cannot make a socket pair");
	fflush(NULL);
	s = (struct dl_spawn){ .pid = fork(), .sock = pair[0] };
	if (!s.pid) {
		close(pair[0]);
		child(pair[1], argv, env, inv);
	}
	close(pair[1]);
	if (s.pid < 0) {
		close(pair[0]);
		return dl_fail_errno(d, -errno, "cannot make a process for %s", argv[0]);
	}
	if (hear(s.sock, &w) != 1)
		w = (struct word){ STAGE_USER, ECHILD };
	if (w.stage != STAGE_READY) {
		dl_spawn_close(&s);
		return dl_fail_errno(d, -w.err, w.stage == STAGE_LIMITS ?
				     "cannot give %s the limits it would have without sudo" :
				     "cannot run %s as the invoking user", argv[0]);
	}
	*ret = s;
	return 0;
}

int dl_spawn_go(struct dl_spawn *s, const char *name, struct dl_diag *d)
{
	struct word w;
	int ret;

	if (send(s->sock, "g", 1, MSG_NOSIGNAL) != 1)
		return dl_fail(d, -ESRCH, "%s was ended before it could start", name);
	ret = hear(s->sock, &w);	/* 0: the socket was closed by exec */
	close(s->sock);
	s->sock = -1;
	if (ret < 0)
		return dl_fail_errno(d, ret, "%s", name);
	if (!ret)
		return 0;
	waitpid(s->pid, NULL, 0);
	s->pid = -1;
	return dl_fail(d, -w.err, "cannot run %s: %s", name, strerror(w.err));
}

void dl_spawn_close(struct dl_spawn *s)
{
	if (s->sock >= 0) {
		close(s->sock);
		if (s->pid > 0)
			waitpid(s->pid, NULL, 0);
	}
	*s = (struct dl_spawn)DL_SPAWN_NONE;
}
