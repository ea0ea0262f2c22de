/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* See harness.h. */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static int keep(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct harness *h = (struct harness *)sink;
	struct dl_hdr **slot = vec_push(&h->events);

	if (!slot)
		return -ENOMEM;
	*slot = malloc(ev->size);
	if (!*slot)
		return -ENOMEM;
	memcpy(*slot, ev, ev->size);
	return 0;
}

const char *harness_open(struct harness *h, uint32_t sample_hz, uint32_t ring_sz)
{
	const struct dl_kernel_opts opts = { .sample_hz = sample_hz, .ring_sz = ring_sz, .user_stacks = true };
	static struct dl_diag d;

	memset(h, 0, sizeof(*h));
	h->sink.emit = keep;
	h->truth = mmap(NULL, sizeof(*h->truth), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (h->truth == MAP_FAILED)
		return "no memory";
	return dl_kernel_open(&h->k, &opts, &h->sink, &d) ? d.msg : NULL;
}

void harness_reset(struct harness *h)
{
	vec_for_each(&h->events, ev)
		free(*ev);
	vec_free(&h->events);
	memset(h->truth, 0, sizeof(*h->truth));
}

void harness_close(struct harness *h)
{
	dl_kernel_close(h->k);
	harness_reset(h);
	munmap(h->truth, sizeof(*h->truth));
}

pid_t harness_start(struct harness *h, body_fn body, void *arg, int *ret_go)
{
	int go[2];
	pid_t pid;
	char c;

	if (pipe(go))
		return -1;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -1;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGALRM, SIG_DFL);
		for (int sig = 1; sig < 16; sig++) {	/* the test program's own handlers */
			if (sig != SIGPIPE)
				signal(sig, SIG_DFL);
		}
		close(go[1]);
		if (read(go[0], &c, 1) != 1)
			_exit(99);
		close(go[0]);
		body(h->truth, arg);
		_exit(0);
	}
	close(go[0]);
	*ret_go = go[1];
	return pid;
}

int harness_go(struct harness *h, pid_t pid, int go)
{
	static struct dl_diag d;
	int err = dl_kernel_add_target(h->k, pid, true, &d);

	if (!err && write(go, "x", 1) != 1)
		err = -EIO;
	close(go);
	return err;
}

static int by_time(const void *a, const void *b)
{
	const struct dl_hdr *x = *(const struct dl_hdr *const *)a, *y = *(const struct dl_hdr *const *)b;

	return x->ts < y->ts ? -1 : x->ts > y->ts;
}

int harness_finish(struct harness *h, pid_t pid, bool drain)
{
	int status = -1, after = 4;

	while (after) {
		usleep(20000);
		if (drain && dl_kernel_drain(h->k) < 0)
			return -1;
		if (after < 4 || waitpid(pid, &status, WNOHANG) == pid)
			after--;
	}
	if (!drain && dl_kernel_drain(h->k) < 0)
		return -1;
	if (dl_kernel_emit_losses(h->k, &h->lost))
		return -1;
	/* Each CPU has a ring of its own; the writer of a trace sorts as well. */
	if (h->events.cnt)
		qsort(h->events.v, h->events.cnt, sizeof(*h->events.v), by_time);
	return status;
}

int harness_run(struct harness *h, body_fn body, void *arg)
{
	pid_t pid;
	int go;

	harness_reset(h);
	pid = harness_start(h, body, arg, &go);
	if (pid < 0 || harness_go(h, pid, go))
		return -1;
	return harness_finish(h, pid, true);
}

const void *harness_next(const struct harness *h, unsigned int kind, size_t *pos)
{
	while (*pos < h->events.cnt) {
		const struct dl_hdr *ev = h->events.v[(*pos)++];

		if (ev->kind == kind)
			return ev;
	}
	return NULL;
}

size_t harness_count(const struct harness *h, unsigned int kind)
{
	size_t pos = 0, cnt = 0;

	while (harness_next(h, kind, &pos))
		cnt++;
	return cnt;
}

const char *harness_text(const struct dl_hdr *ev, size_t fixed)
{
	static char text[DL_EVENT_MAX_SZ];

	snprintf(text, sizeof(text), "%.*s", (int)(ev->size - fixed), (const char *)ev + fixed);
	return text;
}

/* --- cgroups --------------------------------------------------------------------------------- */

static bool put(const char *dir, const char *file, const char *value)
{
	_cleanup_close_ int fd = -1;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
}

bool cgroup_make(struct cgroup *g, const char *controller, const char *name)
{
	char path[256], add[32];

	snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/cgroup.procs", controller);
	g->v2 = access(path, F_OK) != 0;
	if (g->v2) {
		snprintf(add, sizeof(add), "+%s", controller);
		if (!put("/sys/fs/cgroup", "cgroup.subtree_control", add))
			return false;
		snprintf(g->path, sizeof(g->path), "/sys/fs/cgroup/%s", name);
	} else {
		snprintf(g->path, sizeof(g->path), "/sys/fs/cgroup/%s/%s", controller, name);
	}
	return !mkdir(g->path, 0755);
}

bool cgroup_set(const struct cgroup *g, const char *v1_file, const char *v1_value, const char *v2_file,
		const char *v2_value)
{
	const char *file = g->v2 ? v2_file : v1_file;

	return !file || put(g->path, file, g->v2 ? v2_value : v1_value);
}

bool cgroup_enter(const struct cgroup *g)
{
	return put(g->path, "cgroup.procs", "0");
}

void cgroup_remove(const struct cgroup *g)
{
	for (int i = 0; i < 50 && rmdir(g->path) && errno == EBUSY; i++)
		usleep(20000);
}

/* --- files ----------------------------------------------------------------------------------- */

const char *block_dir(void)
{
	static const char *const dirs[] = { "/var/tmp", "/tmp", "/home", NULL };

	for (int i = 0; dirs[i]; i++) {
		char path[64];
		struct stat st;

		/* the device of the file system has a number other than "no device" (0) */
		if (stat(dirs[i], &st) || !(st.st_dev >> 8))
			continue;
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", (unsigned int)(st.st_dev >> 8),
			 (unsigned int)(st.st_dev & 0xff));
		if (!access(path, F_OK))
			return dirs[i];
	}
	return NULL;
}

bool cold_file(const char *path, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	_cleanup_free_ char *buf = malloc(1 << 20);

	if (fd < 0 || !buf)
		return false;
	for (size_t done = 0; done < size; done += 1 << 20) {
		memset(buf, (int)(done >> 20) + 1, 1 << 20);
		if (write(fd, buf, 1 << 20) != 1 << 20)
			return false;
	}
	return !fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}
