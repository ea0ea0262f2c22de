/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The environment and limits before sudo, and commands that are let go after a while. */
#include "unit/test.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "capture/invoker.h"
#include "capture/invoker_env.h"
#include "capture/output.h"
#include "capture/spawn.h"

static void fill(struct dl_env_list *env, const char *const *vars)
{
	for (; *vars; vars++) {
		char **slot = vec_push(env);

		*slot = strdup(*vars);
	}
}

#define ENV(...) (const char *const[]){ __VA_ARGS__, NULL }

static void before(struct dl_env_list *ret, const char *const *sudo_env, const char *const *args,
		   const char *const *first, const char *const *now)
{
	struct dl_env_list e = {}, a = {}, f = {}, n = {};

	fill(&e, sudo_env);
	fill(&a, args);
	fill(&n, now);
	if (first)
		fill(&f, first);
	memset(ret, 0, sizeof(*ret));
	CHECK_OK(dl_env_before_sudo(ret, &e, &a, first ? &f : NULL, &n));
	dl_env_fini(&e);
	dl_env_fini(&a);
	dl_env_fini(&f);
	dl_env_fini(&n);
}

TEST(what_sudo_dropped_comes_back)
{
	struct dl_env_list env;

	before(&env, ENV("PATH=/venv/bin:/bin", "LD_LIBRARY_PATH=/opt", "HOME=/home/u", "BASH_FUNC_f%%=() { :; }"),
	       ENV("sudo", "dlbpf", "record"), NULL,
	       ENV("PATH=/usr/sbin", "HOME=/root", "SUDO_UID=1000", "MAIL=/var/mail/root"));
	CHECK_EQ(env.cnt, 4);
	CHECK_STR(dl_env_get(&env, "PATH"), "/venv/bin:/bin");
	CHECK_STR(dl_env_get(&env, "LD_LIBRARY_PATH"), "/opt");
	CHECK_STR(dl_env_get(&env, "HOME"), "/home/u");
	CHECK_STR(dl_env_get(&env, "BASH_FUNC_f%%"), "() { :; }");
	CHECK(!dl_env_get(&env, "MAIL"));
	CHECK(!dl_env_get(&env, "PAT"));
	dl_env_fini(&env);
}

TEST(variables_on_the_command_line_count_when_they_were_set)
{
	struct dl_env_list env;

	before(&env, ENV("A=old"), ENV("sudo", "A=new", "-n", "env", "B=2", "dlbpf", "record", "--", "prog", "C=3", "1D=4", "=x"),
	       NULL, ENV("A=new", "B=2", "1D=4"));
	CHECK_STR(dl_env_get(&env, "A"), "new");
	CHECK_STR(dl_env_get(&env, "B"), "2");
	CHECK(!dl_env_get(&env, "C"));	/* an argument of the command */
	CHECK(!dl_env_get(&env, "1D"));
	dl_env_fini(&env);
}

TEST(what_a_script_under_sudo_set)
{
	struct dl_env_list env;

	before(&env, ENV("A=user", "PATH=/venv/bin"), ENV("sudo", "sh", "script"),
	       ENV("PATH=/usr/sbin", "HOME=/root", "PWD=/a"),
	       ENV("PATH=/usr/sbin", "HOME=/root", "PWD=/b", "_=/x", "SHLVL=2", "A=script", "B=2", "SUDO_UID=1"));
	CHECK_STR(dl_env_get(&env, "A"), "script");
	CHECK_STR(dl_env_get(&env, "B"), "2");
	CHECK_STR(dl_env_get(&env, "PATH"), "/venv/bin");
	CHECK_EQ(env.cnt, 3);
	dl_env_fini(&env);
}

TEST(strings_of_proc)
{
	static const char text[] = "A=1\0B=\0\0C";
	struct dl_env_list env = {};

	CHECK_OK(dl_env_from_strings(&env, text, sizeof(text) - 1));
	CHECK_EQ(env.cnt, 4);
	CHECK_STR(env.v[1], "B=");
	CHECK_STR(env.v[3], "C");
	CHECK_STR(dl_env_get(&env, "B"), "");
	CHECK_OK(dl_env_set(&env, "B=7"));
	CHECK_OK(dl_env_set(&env, "nothing"));
	CHECK_EQ(env.cnt, 4);
	CHECK_STR(dl_env_get(&env, "B"), "7");
	dl_env_fini(&env);
}

TEST(limits_of_proc)
{
	bool has[RLIM_NLIMITS] = {};
	struct rlimit l[RLIM_NLIMITS];

	dl_limits_parse("Limit                     Soft Limit           Hard Limit           Units     \n"
			"Max cpu time              unlimited            unlimited            seconds   \n"
			"Max open files            543                  1543                 files     \n"
			"Max nice priority         0                    0                    \n"
			"Max locked memory         8388608              unlimited            bytes     \n"
			"Max strange things        1                    2                    \n"
			"Max processes             x                    2                    processes \n", has, l);
	CHECK(has[RLIMIT_NOFILE] && l[RLIMIT_NOFILE].rlim_cur == 543 && l[RLIMIT_NOFILE].rlim_max == 1543);
	CHECK(has[RLIMIT_CPU] && l[RLIMIT_CPU].rlim_cur == RLIM_INFINITY);
	CHECK(has[RLIMIT_MEMLOCK] && l[RLIMIT_MEMLOCK].rlim_cur == 8388608 && l[RLIMIT_MEMLOCK].rlim_max == RLIM_INFINITY);
	CHECK(has[RLIMIT_NICE]);
	CHECK(!has[RLIMIT_NPROC] && !has[RLIMIT_STACK]);
}

static uint64_t vote(int resource, uint64_t own, const uint64_t *sudo, const uint64_t *shell)
{
	const struct rlimit o = { own, own }, s = { sudo ? *sudo : 0, sudo ? *sudo : 0 },
			    sh = { shell ? *shell : 0, shell ? *shell : 0 };
	struct rlimit ret;

	dl_limit_vote(resource, &o, sudo ? &s : NULL, shell ? &sh : NULL, &ret);
	return ret.rlim_cur;
}

TEST(whose_limits_are_the_users)
{
	const uint64_t user = 543, pam = 1024, odd = 8;

	CHECK_EQ(vote(RLIMIT_NOFILE, user, &user, &user), user);
	CHECK_EQ(vote(RLIMIT_NOFILE, pam, &user, &user), user);		/* PAM set root's */
	CHECK_EQ(vote(RLIMIT_NOFILE, user, &user, &pam), user);		/* set in a subshell */
	CHECK_EQ(vote(RLIMIT_NOFILE, user, &odd, &user), user);		/* sudo lifted its own */
	CHECK_EQ(vote(RLIMIT_NOFILE, user, &odd, NULL), user);		/* the shell has ended */
	CHECK_EQ(vote(RLIMIT_CORE, odd, &odd, &user), user);		/* sudo allows no cores */
	CHECK_EQ(vote(RLIMIT_STACK, user, &odd, &user), user);
}

/* --- commands ---------------------------------------------------------------------------------- */

static void own_invoker(struct dl_invoker *inv, const char *const *env)
{
	memset(inv, 0, sizeof(*inv));
	inv->uid = geteuid();
	inv->gid = getegid();
	fill(&inv->env, env);
}

TEST(a_command_waits_until_it_is_let_go)
{
	const char *proof = test_path("proof");
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)"echo \"$X\" > \"$1\"; ulimit -Sn >> \"$1\"; umask >> \"$1\"; exit 3",
			 (char *)"-", (char *)proof, NULL };
	struct dl_spawn s = DL_SPAWN_NONE;
	struct dl_invoker inv;
	struct dl_diag d = {};
	char buf[64] = "";
	int status;
	FILE *f;

	own_invoker(&inv, ENV("PATH=/usr/bin:/bin", "X=here"));
	inv.has_limit[RLIMIT_NOFILE] = true;
	inv.limit[RLIMIT_NOFILE] = (struct rlimit){ 77, 88 };
	inv.has_umask = true;
	inv.umask = 031;
	CHECK_MSG(!dl_spawn_prepare(&s, argv, &inv, &d), "%s", d.msg);
	usleep(50000);
	CHECK(access(proof, F_OK));	/* it has not begun */
	CHECK_MSG(!dl_spawn_go(&s, argv[0], &d), "%s", d.msg);
	CHECK_EQ(waitpid(s.pid, &status, 0), s.pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	f = fopen(proof, "r");
	CHECK(f && fread(buf, 1, sizeof(buf) - 1, f) > 0);
	fclose(f);
	CHECK_STR(buf, "here\n77\n0031\n");
	dl_spawn_close(&s);
	dl_invoker_fini(&inv);
}

TEST(a_command_that_cannot_be_run)
{
	char *none[] = { (char *)"no-such-program", NULL }, *plain[] = { (char *)test_path("plain"), NULL };
	struct dl_spawn s = DL_SPAWN_NONE;
	struct dl_invoker inv;
	struct dl_diag d = {};

	close(open(plain[0], O_CREAT | O_WRONLY, 0644));
	own_invoker(&inv, ENV("PATH=/usr/bin:/bin"));
	CHECK_OK(dl_spawn_prepare(&s, none, &inv, &d));
	CHECK_EQ(dl_spawn_go(&s, none[0], &d), -ENOENT);
	CHECK_HAS(d.msg, "no-such-program");
	dl_spawn_close(&s);
	CHECK_OK(dl_spawn_prepare(&s, plain, &inv, &d));
	CHECK_EQ(dl_spawn_go(&s, plain[0], &d), -EACCES);
	dl_spawn_close(&s);
	dl_invoker_fini(&inv);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_EQ(errno, ECHILD);
}

TEST(a_command_that_is_given_up_is_not_run)
{
	const char *proof = test_path("never");
	char *argv[] = { (char *)"touch", (char *)proof, NULL };
	struct dl_spawn s = DL_SPAWN_NONE;
	struct dl_invoker inv;
	struct dl_diag d = {};

	own_invoker(&inv, ENV("PATH=/usr/bin:/bin"));
	CHECK_OK(dl_spawn_prepare(&s, argv, &inv, &d));
	dl_spawn_close(&s);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
	CHECK(access(proof, F_OK));
	dl_invoker_fini(&inv);
}

/* --- the output file --------------------------------------------------------------------------- */

TEST(what_is_not_a_trace_is_not_overwritten)
{
	const char *path = test_path("precious");
	struct dl_invoker inv;
	struct dl_diag d = {};
	char buf[16] = "";
	int fd;

	own_invoker(&inv, ENV("A=1"));
	fd = open(path, O_CREAT | O_RDWR, 0644);
	CHECK_EQ(write(fd, "text", 4), 4);
	CHECK_EQ(dl_output_open(path, &inv, &d), -EEXIST);
	CHECK_EQ(pread(fd, buf, sizeof(buf), 0), 4);
	CHECK_OK(ftruncate(fd, 0));
	close(fd);
	fd = dl_output_open(path, &inv, &d);	/* an empty one is */
	CHECK(fd >= 0);
	close(fd);
	dl_output_remove(path, &inv);
	CHECK(access(path, F_OK));
	dl_invoker_fini(&inv);
}

TEST(links_pipes_and_folders_are_refused)
{
	const char *link = test_path("link"), *fifo = test_path("fifo"), *file = test_path("file");
	struct dl_invoker inv;
	struct dl_diag d = {};

	own_invoker(&inv, ENV("A=1"));
	CHECK_OK(symlink(file, link));
	CHECK_EQ(dl_output_open(link, &inv, &d), -ELOOP);
	CHECK_HAS(d.msg, "symbolic link");
	CHECK(access(file, F_OK));
	CHECK_OK(mkfifo(fifo, 0600));
	CHECK(dl_output_open(fifo, &inv, &d) < 0);	/* and does not hang */
	CHECK_EQ(dl_output_open("/dev", &inv, &d), -EISDIR);
	CHECK(dl_output_open("/no/such/folder/t", &inv, &d) < 0);
	CHECK_HAS(d.msg, "/no/such/folder/t");
	dl_invoker_fini(&inv);
}
