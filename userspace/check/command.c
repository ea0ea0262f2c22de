/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "check/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/proc.h"
#include "capture/spawn.h"
#include "check/family.h"

#define GRACE_NS (4 * DL_NS_PER_S)

int ck_command_start(struct ck_command *c, char **argv, const struct dl_invoker *inv, bool *ret_exec, struct dl_diag *d)
{
	_cleanup_close_ int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	struct dl_spawn s = DL_SPAWN_NONE;
	int err;

	/* dlbpf may have children already: a shell that became it had jobs in the background. */
	if (ck_family_look(c->fam))
		return dl_oom(d);
	ck_family_disown(c->fam);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		return dl_fail_errno(d, -errno, "cannot see to the end of %s", argv[0]);
	fflush(NULL);
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return dl_fail_errno(d, -errno, "cannot redirect the output of %s", argv[0]);
	err = dl_spawn_prepare(&s, argv, inv, d);
	if (dup2(out, STDOUT_FILENO) < 0 && !err)
		err = dl_fail_errno(d, -errno, "cannot restore standard output");
	if (err) {
		dl_spawn_close(&s);
		return err;
	}
	c->pid = s.pid;
	err = dl_spawn_go(&s, argv[0], d);
	if (err) {
		c->pid = 0;
		*ret_exec = true;
	}
	dl_spawn_close(&s);
	return err;
}

static void note_end(struct ck_command *c, pid_t pid, int status)
{
	if (pid != c->pid || c->ended)
		return;
	c->ended = true;
	c->status = status;
}

void ck_command_poll(struct ck_command *c)
{
	int status;

	if (c->pid && !c->ended && waitpid(c->pid, &status, WNOHANG) == c->pid)
		note_end(c, c->pid, status);
}

/* Nothing of it is left. Without memory that cannot be said. */
static bool all_gone(struct ck_command *c)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		note_end(c, pid, status);
	return !ck_family_look(c->fam) && !ck_family_alive(c->fam);
}

/* By the descriptor of /proc/PID, which cannot be another process's: 3eb39f47934f, 5.1. */
static void send_signal(const struct ck_family *fam, int sig, bool workers)
{
	vec_for_each(&fam->v, it) {
		if (it->gone || it->foreign || (it->worker && !workers))
			continue;
		if (syscall(SYS_pidfd_send_signal, it->fd, sig, NULL, 0) && errno != ESRCH)
			kill((pid_t)it->pid, sig);	/* a sandbox does not know that call */
	}
}

void ck_command_end(struct ck_command *c)
{
	static const struct { int sig; bool workers; } steps[] = {
		{ SIGINT, false },	/* workers go with their trainer, and quietly */
		{ SIGTERM, true },
		{ SIGKILL, true },
	};

	if (!c->pid)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(steps) && !all_gone(c); i++) {
		const uint64_t until = dl_now_ns() + GRACE_NS;

		send_signal(c->fam, steps[i].sig, steps[i].workers);
		while (!all_gone(c) && dl_now_ns() < until)
			usleep(20000);
	}
}
