/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Environments as lists of NAME=value, and how the one before sudo is put together. */
#include "capture/invoker_env.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

void dl_env_fini(struct dl_env_list *env)
{
	vec_for_each(env, it)
		free(*it);
	vec_free(env);
}

/* Length of the name in "NAME=value"; 0 when it is no such thing. */
static size_t name_len(const char *s)
{
	size_t n = 0;

	if (!isalpha((unsigned char)*s) && *s != '_')
		return 0;
	while (isalnum((unsigned char)s[n]) || s[n] == '_')
		n++;
	return s[n] == '=' ? n : 0;
}

/* Shells also export functions, under names with other characters. */
static size_t any_name_len(const char *s)
{
	const char *eq = strchr(s, '=');

	return eq ? (size_t)(eq - s) : 0;
}

static char **find(const struct dl_env_list *env, const char *name, size_t len)
{
	vec_for_each(env, it) {
		if (!strncmp(*it, name, len) && (*it)[len] == '=')
			return it;
	}
	return NULL;
}

const char *dl_env_get(const struct dl_env_list *env, const char *name)
{
	char **slot = find(env, name, strlen(name));

	return slot ? *slot + strlen(name) + 1 : NULL;
}

int dl_env_set(struct dl_env_list *env, const char *name_value)
{
	const size_t len = any_name_len(name_value);
	char *copy, **slot;

	if (!len)
		return 0;
	copy = strdup(name_value);
	if (!copy)
		return -ENOMEM;
	slot = find(env, name_value, len);
	if (slot) {
		free(*slot);
	} else {
		slot = vec_push(env);
		if (!slot) {
			free(copy);
			return -ENOMEM;
		}
	}
	*slot = copy;
	return 0;
}

/* Keeps strings that are no NAME=value too: command lines are read with it as well. */
int dl_env_from_strings(struct dl_env_list *env, const char *strings, size_t len)
{
	for (size_t pos = 0; pos < len; pos += strnlen(strings + pos, len - pos) + 1) {
		char **slot = vec_push(env);

		if (!slot)
			return -ENOMEM;
		*slot = strndup(strings + pos, len - pos);
		if (!*slot) {
			env->cnt--;
			return -ENOMEM;
		}
	}
	return 0;
}

/* Changes with every process, and means only itself. */
static bool is_shells_own(const char *name, size_t len)
{
	static const char *const names[] = { "_", "SHLVL", "PWD", "OLDPWD" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && !strncmp(names[i], name, len))
			return true;
	return !strncmp(name, "SUDO_", 5);
}

static bool has_exactly(const struct dl_env_list *env, const char *name_value)
{
	char **slot = find(env, name_value, any_name_len(name_value));

	return slot && !strcmp(*slot, name_value);
}

int dl_env_before_sudo(struct dl_env_list *ret, const struct dl_env_list *sudo_env,
		       const struct dl_env_list *sudo_args, const struct dl_env_list *first_env,
		       const struct dl_env_list *now_env)
{
	struct dl_env_list env = {};
	int err = 0;

	vec_for_each(sudo_env, it) {
		if (!err && any_name_len(*it))
			err = dl_env_set(&env, *it);
	}
	vec_for_each(sudo_args, it) {
		/* What is on the command line and is not set was an argument of the command. */
		if (!err && name_len(*it) && has_exactly(now_env, *it))
			err = dl_env_set(&env, *it);
	}
	if (first_env) {
		vec_for_each(now_env, it) {
			if (!err && !has_exactly(first_env, *it) && !is_shells_own(*it, any_name_len(*it)))
				err = dl_env_set(&env, *it);
		}
	}
	if (err) {
		dl_env_fini(&env);
		return err;
	}
	*ret = env;
	return 0;
}
