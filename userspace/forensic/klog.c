/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reading the kernel log: where it comes from, its lines, the events that are kept. */
#include "forensic/klog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "forensic/klog_int.h"

enum {
	EVENTS_MAX = 4096,
	BOOT_LINES_NS = 2000000000,	/* a log that begins within two seconds of the boot has lost nothing */
	SKIPPED_MAX = 10000,
	RECORD_SZ = 8192,		/* of /dev/kmsg: CONSOLE_EXT_LOG_MAX of the kernel */
};

const char *dl_klog_kind_id(enum dl_klog_kind kind)
{
	static const char *const ids[DL_KLOG_KIND_CNT] = {
		"oom", "fault", "memory-failure", "hugepages", "io-error", "fs-gone", "hung", "fork-rejected", "alloc-failed",
		"gpu", "daemon-kill", "dumped", "logout",
	};

	return kind < DL_KLOG_KIND_CNT ? ids[kind] : "";
}

void dl_klog_event_fini(struct dl_klog_event *ev)
{
	free(ev->text);
	free(ev->oom.limit_cgroup);
	free(ev->oom.cgroup);
	vec_free(&ev->oom.tasks);
	*ev = (struct dl_klog_event){};
}

bool dl_klog_num(const char *msg, const char *key, int base, uint64_t *ret)
{
	const char *at = strstr(msg, key);
	char *end;
	uint64_t nr;

	if (!at)
		return false;
	at += strlen(key);
	if (*at == '-' || *at == '+' || *at == ' ')
		return false;	/* strtoull would take them */
	nr = strtoull(at, &end, base);
	if (end == at)
		return false;
	*ret = nr;
	return true;
}

bool dl_klog_word(const char *msg, const char *key, char *buf, size_t sz)
{
	const char *at = strstr(msg, key);
	size_t len;

	if (!at)
		return false;
	at += strlen(key);
	len = strcspn(at, ", ");
	if (!len)
		return false;
	if (len >= sz)
		len = sz - 1;
	memcpy(buf, at, len);
	buf[len] = '\0';
	return true;
}

int dl_klog_keep(struct dl_klog *k, struct dl_klog_event *ev)
{
	struct dl_klog_event *to;

	if (k->events.cnt >= EVENTS_MAX) {
		/* Half at once, so that moving the rest costs little. */
		for (size_t i = 0; i < EVENTS_MAX / 2; i++)
			dl_klog_event_fini(&k->events.v[i]);
		memmove(k->events.v, k->events.v + EVENTS_MAX / 2, (EVENTS_MAX - EVENTS_MAX / 2) * sizeof(*k->events.v));
		k->events.cnt -= EVENTS_MAX / 2;
		k->dropped += EVENTS_MAX / 2;
	}
	to = vec_push(&k->events);
	if (!to)
		return -ENOMEM;
	*to = *ev;
	return 0;
}

static int log_line(struct dl_klog *k, const char *line, int64_t now_wall_ns)
{
	char json[DL_KLOG_LINE_SZ];
	struct dl_klog_prefix p;
	const char *msg = line;
	int err;

	if (*line == '{' && dl_klog_json(line, json, sizeof(json), &p))
		msg = json;
	else
		msg += dl_klog_prefix(line, now_wall_ns, &p);
	k->lines++;
	if (p.boot_ns) {
		if (!k->first_boot_ns)
			k->first_boot_ns = p.boot_ns;
		k->last_boot_ns = p.boot_ns;
	}
	if (p.kernel && dl_klog_oom_line(k, msg, &p, &err))
		return err;
	return dl_klog_other_line(k, msg, &p);
}

int dl_klog_line(struct dl_klog *k, const char *line, size_t len, int64_t now_wall_ns)
{
	char buf[2 * DL_KLOG_LINE_SZ];
	size_t n = 0;

	if (!k->parser) {
		k->parser = calloc(1, sizeof(*k->parser));
		if (!k->parser)
			return -ENOMEM;
	}
	/* A line of JSON is long; of others what is behind is of no interest. Nothing is passed on that a terminal obeys. */
	for (size_t i = 0; i < len && n + 1 < sizeof(buf); i++)
		if (line[i] && line[i] != '\r')
			buf[n++] = (unsigned char)line[i] < ' ' || line[i] == 0x7f ? ' ' : line[i];
	buf[n] = '\0';
	return n ? log_line(k, buf, now_wall_ns) : 0;
}

void dl_klog_end(struct dl_klog *k)
{
	if (!k->parser)
		return;
	dl_klog_event_fini(&k->parser->report);
	free(k->parser);
	k->parser = NULL;
}

void dl_klog_fini(struct dl_klog *k)
{
	dl_klog_end(k);
	vec_for_each(&k->events, ev)
		dl_klog_event_fini(ev);
	vec_free(&k->events);
	*k = (struct dl_klog){};
}

static int64_t now_wall_ns(void)
{
	struct timespec ts;

	return clock_gettime(CLOCK_REALTIME, &ts) ? 0 : (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* --- a file ----------------------------------------------------------------------------------- */

static int read_lines(struct dl_klog *k, FILE *f, int64_t now)
{
	_cleanup_free_ char *buf = malloc(2 * DL_KLOG_LINE_SZ);
	bool rest = false;	/* of a line that is too long */

	if (!buf)
		return -ENOMEM;
	/* By pieces: fgets() cannot tell where a line with NUL bytes ends, and getline() has no bound. */
	for (;;) {
		size_t n = 0;
		int c, err;

		while (n < 2 * DL_KLOG_LINE_SZ && (c = getc_unlocked(f)) != EOF && c != '\n')
			buf[n++] = (char)c;
		if (n < 2 * DL_KLOG_LINE_SZ && c == EOF && !n)
			return ferror(f) ? -EIO : 0;
		err = rest ? 0 : dl_klog_line(k, buf, n, now);
		if (err)
			return err;
		rest = n == 2 * DL_KLOG_LINE_SZ;
	}
}

int dl_klog_read_file(struct dl_klog *k, const char *path, struct dl_diag *d)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	struct stat st;
	int err;

	if (!f)
		return dl_fail_errno(d, -errno, "%s", path);
	if (fstat(fileno(f), &st))
		return dl_fail_errno(d, -errno, "%s", path);
	/* "Nov 30" in a file that was last written in March is of the year before. */
	err = read_lines(k, f, S_ISREG(st.st_mode) ? (int64_t)st.st_mtim.tv_sec * 1000000000 : now_wall_ns());
	dl_klog_end(k);
	return err == -ENOMEM ? dl_oom(d) : err ? dl_fail_errno(d, err, "%s", path) : 0;
}

/* --- the kernel ---------------------------------------------------------------------------------- */

/* Each read() gives one record; those that were overwritten meanwhile are a -EPIPE. */
static int read_kmsg(struct dl_klog *k, int fd)
{
	char buf[RECORD_SZ];
	int skipped = 0;

	for (;;) {
		const ssize_t n = read(fd, buf, sizeof(buf));
		const char *end;
		int err;

		/* EINVAL: it does not fit, and the next read gives the next one. */
		if (n < 0 && (errno == EPIPE || errno == EINTR || errno == EINVAL) && skipped++ < SKIPPED_MAX)
			continue;
		if (n <= 0)
			return !n || errno == EAGAIN ? 0 : -errno;
		end = memchr(buf, '\n', (size_t)n);	/* what follows are its KEY=value lines */
		err = dl_klog_line(k, buf, end ? (size_t)(end - buf) : (size_t)n, 0);
		if (err)
			return err;
	}
}

int dl_klog_read_kernel(struct dl_klog *k, const char *path, struct dl_diag *d)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	FILE *f;
	int err;

	if (fd < 0 && (errno == EPERM || errno == EACCES))
		return dl_fail(d, -EPERM, "the kernel log can be read by root only: run this with sudo, or save it with "
			       "'sudo dmesg > kernel.log' and give that file");
	if (fd < 0)
		return dl_fail_errno(d, -errno, "%s", path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		err = read_kmsg(k, fd);
		close(fd);
	} else {
		f = fdopen(fd, "r");
		err = f ? read_lines(k, f, now_wall_ns()) : -errno;
		if (f)
			fclose(f);
		else
			close(fd);
	}
	dl_klog_end(k);
	k->live = true;
	k->complete = k->first_boot_ns && k->first_boot_ns < BOOT_LINES_NS && !k->dropped;
	if (err == -EPERM)
		return dl_fail(d, err, "the kernel log can be read by root only: run this with sudo, or save it with "
			       "'sudo dmesg > kernel.log' and give that file");
	return err == -ENOMEM ? dl_oom(d) : err ? dl_fail_errno(d, err, "%s", path) : 0;
}
