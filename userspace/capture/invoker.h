/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Who really started the recorder, and with what. sudo runs it as root with another environment
 * (no PATH of a virtual environment, no LD_LIBRARY_PATH, no CUDA_VISIBLE_DEVICES); what the user's
 * shell had given is still to be read from the sudo process itself, in /proc.
 */
#ifndef DLBPF_CAPTURE_INVOKER_H
#define DLBPF_CAPTURE_INVOKER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/diag.h"
#include "base/vec.h"

struct dl_env_list {
	char **v;	/* "NAME=value", owned; no NULL at the end */
	size_t cnt, cap;
};

struct dl_invoker {
	bool other_user;	/* uid .. groups are not our own */
	bool env_lost;		/* sudo has ended: the environment is the one that it made */
	bool as_root;		/* but only the trace is theirs: a command stays root */
	uid_t uid;
	gid_t gid;
	struct { gid_t *v; size_t cnt, cap; } groups;
	char *user;		/* name; NULL unknown */
	struct dl_env_list env;
	bool has_limit[RLIM_NLIMITS];
	struct rlimit limit[RLIM_NLIMITS];
	bool has_umask, has_nice;
	mode_t umask;
	int nice;
};

/* as_root: for a command that is to run as root, in the recorder's own environment. */
int dl_invoker_find(struct dl_invoker *ret, bool as_root, struct dl_diag *d);
void dl_invoker_fini(struct dl_invoker *inv);

const char *dl_env_get(const struct dl_env_list *env, const char *name);	/* NULL: not set */
int dl_env_set(struct dl_env_list *env, const char *name_value);	/* 0 or -ENOMEM */
int dl_env_from_strings(struct dl_env_list *env, const char *strings, size_t len);

/*
 * The environment before sudo. sudo_env: what sudo was given. sudo_args: sudo's command line, in
 * which NAME=value before the program set variables (sudo's own or env(1)'s); taken when now_env
 * agrees. first_env: what the first process under sudo began with, when that is not the recorder:
 * what now_env has beyond it was set on the way, by a script.
 */
int dl_env_before_sudo(struct dl_env_list *ret, const struct dl_env_list *sudo_env,
		       const struct dl_env_list *sudo_args, const struct dl_env_list *first_env,
		       const struct dl_env_list *now_env);

/* Text of /proc/PID/limits. */
void dl_limits_parse(const char *text, bool has[RLIM_NLIMITS], struct rlimit limit[RLIM_NLIMITS]);


#endif
