/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Full disks, limited files and a limited trace: what fits is readable. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "unit/trace_util.h"

TEST(dev_full)
{
	const struct dl_trace_meta meta = test_meta();
	struct dl_trace_writer *w = NULL;
	struct dl_diag d = { "" };
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		SKIP("no /dev/full: %s", strerror(errno));
	CHECK_EQ(dl_trace_writer_open(&w, fd, &meta, NULL, &d), -ENOSPC);
	CHECK(w == NULL);
	CHECK_HAS(d.msg, "No space left");
	CHECK(fcntl(fd, F_GETFD) < 0);	/* the writer owned it */
}

TEST(not_writable)
{
	const struct dl_trace_meta meta = test_meta();
	struct dl_trace_writer *w = NULL;
	struct dl_diag d = { "" };
	const char *path = test_path("readonly");

	write_file(path, "x", 1);
	CHECK_EQ(dl_trace_writer_open(&w, open(path, O_RDONLY), &meta, NULL, &d), -EINVAL);
	CHECK_EQ(dl_trace_writer_open(&w, -1, &meta, NULL, &d), -EBADF);
	CHECK_HAS(d.msg, "Bad file descriptor");
}

/* In a child: files may grow to limit bytes only, a write beyond fails with EFBIG. */
static void write_limited(const char *path, const struct evlist *l, rlim_t limit)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const struct rlimit rl = { limit, limit };
	pid_t pid = fork();
	int status;

	if (!pid) {
		const struct dl_trace_meta meta = test_meta();
		struct dl_trace_writer_stats st;
		struct dl_trace_writer *w;
		struct dl_diag d = { "" };
		int err = 0, fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

		signal(SIGXFSZ, SIG_IGN);
		if (fd < 0 || setrlimit(RLIMIT_FSIZE, &rl))
			_exit(2);
		if (dl_trace_writer_open(&w, fd, &meta, &opts, &d))
			_exit(3);
		for (size_t i = 0; i < l->off.cnt && !err; i++)
			err = dl_trace_write(w, evlist_at(l, i));
		if (err != -EFBIG || dl_trace_write(w, evlist_at(l, 0)) != err ||
		    dl_trace_writer_flush(w, UINT64_MAX) != err)
			_exit(4);
		dl_trace_writer_stats(w, &st);
		if (!st.lost || st.events >= l->off.cnt)
			_exit(5);
		_exit(dl_trace_writer_close(w, &d) == err && d.msg[0] ? 0 : 6);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

TEST(write_fails_in_a_frame)
{
	const char *path = test_path("limited.dlbpf");
	struct evlist l = some_events(40, 2000), sorted = some_events(40, 2000);

	evlist_sort(&sorted);
	for (rlim_t limit = 40000; limit < 48000; limit += 401) {
		write_limited(path, &l, limit);
		check_limited(path, (off_t)limit);	/* the index is there when there was room for it */
	}
	evlist_fini(&l);
	evlist_fini(&sorted);
}

TEST(max_size_is_kept)
{
	const char *path = test_path("max.dlbpf");
	struct evlist l = some_events(41, 3000);
	uint64_t last = 0;

	for (uint64_t max = 20000; max < 100000; max += 7777) {
		const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192, .max_sz = max };
		struct dl_trace_writer *w = open_writer(path, &opts, NULL);
		struct dl_trace_writer_stats ws;
		struct dl_diag d = { "" };
		struct dl_trace *t;
		struct stat st;
		int err = 0;

		for (size_t i = 0; i < l.off.cnt && !err; i++)
			err = dl_trace_write(w, evlist_at(&l, i));
		CHECK_EQ(err, -EFBIG);
		dl_trace_writer_stats(w, &ws);
		CHECK_EQ(dl_trace_writer_close(w, &d), -EFBIG);
		CHECK_HAS(d.msg, "maximal size");
		CHECK(!stat(path, &st));
		CHECK(st.st_size <= (off_t)max);
		t = open_trace(path);
		CHECK(dl_trace_info(t)->complete);
		CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
		CHECK_EQ(dl_trace_info(t)->events, ws.events);
		CHECK_EQ(read_events(t, NULL), ws.events);
		CHECK(ws.events > last);
		last = ws.events;
		dl_trace_close(t);
	}
	evlist_fini(&l);
}

TEST(max_size_too_small)
{
	const struct dl_trace_writer_opts opts = { .max_sz = 5000 };
	const struct dl_trace_meta meta = test_meta();
	struct dl_trace_writer *w = NULL;
	struct dl_diag d = { "" };
	int fd = open(test_path("small"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	CHECK_EQ(dl_trace_writer_open(&w, fd, &meta, &opts, &d), -EFBIG);
	CHECK_HAS(d.msg, "5000");
}
