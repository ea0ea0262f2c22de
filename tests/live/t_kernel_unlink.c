/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Shared memory objects of a recorded process that somebody else removes, and what is nobody's business. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "kernel_test.h"

static void nap_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static void make_and_wait(struct truth *t, void *arg)
{
	char path[64];

	(void)arg;
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "/dev/shm/torch_%d_%d", getpid(), i);
		close(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
	}
	unlink(path);	/* the fourth: its own affair */
	t->v[0] = getpid();
	for (int i = 0; i < 2000 && !t->v[1]; i++)
		nap_ms(5);
}

static const char *const other_names[] = { "psm_dlbpf", "sem.mp-dlbpf", "sem.loky-dlbpf", "nccl-dlbpf" };
enum { OTHERS = sizeof(other_names) / sizeof(other_names[0]), MANY = 150 };

/* What a process makes and removes in /dev/shm; false when it cannot. */
static bool made_and_removed(const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/%s", name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	return fd >= 0 && !close(fd) && !unlink(path);
}

/* In a child, whose working directory may change. All three ways that programs have. */
static void remove_all(const struct truth *t)
{
	char name[64], own[64];
	int dir, err = 0;

	/* a failure of a process that is not recorded */
	err |= open("/dev/shm/torch_0_gone", O_RDONLY) >= 0;

	snprintf(name, sizeof(name), "/dev/shm/torch_%d_0", (int)t->v[0]);
	err |= unlink(name);
	dir = open("/dev/shm", O_RDONLY | O_DIRECTORY);
	snprintf(name, sizeof(name), "torch_%d_1", (int)t->v[0]);
	err |= unlinkat(dir, name, 0);
	err |= chdir("/dev");
	snprintf(name, sizeof(name), "shm/torch_%d_2", (int)t->v[0]);
	err |= unlink(name);
	/* its own, another kind, and another place */
	snprintf(own, sizeof(own), "torch_%d_own", getpid());
	err |= !made_and_removed(own) || !made_and_removed("dlbpf_test") || !made_and_removed("sem.other");
	close(open("/var/tmp/torch_1_test", O_RDWR | O_CREAT, 0600));
	err |= unlink("/var/tmp/torch_1_test");
	err |= mkdir("/dev/shm/torch_1_folder", 0700) || rmdir("/dev/shm/torch_1_folder");
	/* what does not say whose it is */
	for (int i = 0; i < OTHERS; i++)
		err |= !made_and_removed(other_names[i]);
	_exit(err ? 1 : 0);
}

TEST(objects_removed_by_a_stranger)
{
	int go, status = -1, cnt = 0;
	char name[64];
	pid_t pid, child;

	need_kernel();
	harness_reset(&h);
	pid = harness_start(&h, make_and_wait, NULL, &go);
	CHECK(pid > 0);
	CHECK_OK(harness_go(&h, pid, go));
	for (int i = 0; i < 2000 && !h.truth->v[0]; i++)
		nap_ms(5);
	CHECK_EQ(h.truth->v[0], pid);
	fflush(stdout);
	child = fork();
	if (!child)
		remove_all(h.truth);
	CHECK_EQ(waitpid(child, &status, 0), child);
	h.truth->v[1] = 1;
	CHECK_EQ(harness_finish(&h, pid, true), 0);
	CHECK_EQ(status, 0);
	EACH(&h, SHM_UNLINK, shm_unlink, e) {
		if ((pid_t)e->h.pid != child)
			continue;	/* another job's on this machine */
		CHECK_EQ(e->h.flags, DL_HDR_FOREIGN);
		CHECK_EQ(e->sender_ppid, getpid());
		CHECK_EQ(e->sender_uid, getuid());
		CHECK_STR(e->sender_comm.s, "t_kernel_unlink");
		CHECK_STR(e->parent_comm.s, "t_kernel_unlink");
		CHECK_EQ(e->owner, cnt < 3 ? pid : 0);
		CHECK_EQ(e->file_dev != 0, cnt == 1);
		CHECK(cnt < 3 + OTHERS);
		snprintf(name, sizeof(name), "torch_%d_%d", pid, cnt);
		CHECK_STR(harness_text(&e->h, sizeof(*e)), cnt < 3 ? name : other_names[cnt - 3]);
		cnt++;
	}
	CHECK_EQ(cnt, 3 + OTHERS);
	CHECK_EQ(harness_count(&h, DL_EV_SYSCALL_FAIL), 0);
	EACH(&h, SHM_UNLINK, shm_unlink, e)
		CHECK((pid_t)e->h.pid != pid);
}

/* A cleaner that takes all there is: few events, and a count of the others. */
TEST(many_objects_removed_at_once)
{
	uint64_t all = 0;
	int cnt = 0, go;
	pid_t pid, child;

	need_kernel();
	harness_reset(&h);
	pid = harness_start(&h, make_and_wait, NULL, &go);
	CHECK(pid > 0);
	CHECK_OK(harness_go(&h, pid, go));
	fflush(stdout);
	child = fork();
	if (!child) {
		int failed = 0;

		for (int i = 0; i < MANY; i++)
			failed += !made_and_removed("psm_dlbpf");
		nap_ms(1200);	/* longer than what is counted together */
		failed += !made_and_removed("psm_dlbpf_last");
		_exit(failed ? 1 : 0);
	}
	CHECK_EQ(waitpid(child, &go, 0), child);
	h.truth->v[1] = 1;
	CHECK_EQ(harness_finish(&h, pid, true), 0);
	CHECK_EQ(go, 0);
	for (int i = 0; i < 3; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/dev/shm/torch_%d_%d", pid, i);
		unlink(path);
	}
	EACH(&h, SHM_UNLINK, shm_unlink, e) {
		if ((pid_t)e->h.pid != child)
			continue;
		all += e->skipped + 1;
		cnt++;
	}
	CHECK_EQ(all, MANY + 1);
	CHECK(cnt < MANY);
}
