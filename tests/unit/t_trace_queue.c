/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A trace that is written by a thread of its own: a disk that does not answer holds up nobody, and what
 * could not be written is no part of the file. */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "trace/outq.h"
#include "unit/trace_util.h"

enum { QUEUE_SZ = 1 << 20 };

/* All of a pipe, until it ends, into a file. */
struct drain { int fd; const char *path; };

static void *drain(void *arg)
{
	const struct drain *d = arg;
	int out = open(d->path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	static char buf[65536];
	ssize_t n;

	while ((n = read(d->fd, buf, sizeof(buf))) > 0) {
		if (write(out, buf, (size_t)n) != n)
			break;
	}
	close(out);
	close(d->fd);
	return NULL;
}

/* A pipe holds 64 KiB, and nobody reads: what is more waits in memory, and the writer goes on. */
TEST(writer_goes_on_while_nothing_is_written)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192, .queue_sz = QUEUE_SZ };
	struct evlist l = some_events(50, 4000);
	const struct dl_trace_meta meta = test_meta();
	const char *path = test_path("queued.dlbpf");
	struct dl_trace_writer_stats st;
	struct dl_trace_writer *w;
	struct dl_diag d = { "" };
	struct dl_trace *t;
	pthread_t thread;
	struct drain dr;
	size_t cnt = 0;
	int p[2];

	CHECK(!pipe(p));
	CHECK_OK(dl_trace_writer_open(&w, p[1], &meta, &opts, &d));
	CHECK(!dl_trace_writer_is_behind(w));
	/* until more than half a MiB waits; the test would hang here otherwise */
	while (!dl_trace_writer_is_behind(w)) {
		CHECK_OK(dl_trace_write(w, evlist_at(&l, cnt++ % l.off.cnt)));
		CHECK(cnt < 1000000);
	}
	dl_trace_writer_stats(w, &st);
	CHECK_EQ(st.events, cnt);
	CHECK(st.file_bytes <= 65536);
	dr = (struct drain){ p[0], path };
	CHECK(!pthread_create(&thread, NULL, drain, &dr));
	CHECK_OK(dl_trace_writer_close(w, &d));
	CHECK(!pthread_join(thread, NULL));
	t = open_trace(path);
	CHECK(dl_trace_info(t)->complete);
	CHECK_EQ(dl_trace_info(t)->events, cnt);
	CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
	CHECK_EQ(read_events(t, NULL), cnt);
	dl_trace_close(t);
	evlist_fini(&l);
}

/* In a child: files may grow to limit bytes only. The error comes later, but the file is as whole. */
static void write_limited(const char *path, const struct evlist *l, rlim_t limit)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192, .queue_sz = QUEUE_SZ };
	const struct rlimit rl = { limit, limit };
	pid_t pid = fork();
	int status;

	if (!pid) {
		const struct dl_trace_meta meta = test_meta();
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
		if (err && err != -EFBIG)
			_exit(4);
		if (err && dl_trace_write(w, evlist_at(l, 0)) != err)
			_exit(5);
		_exit(dl_trace_writer_close(w, &d) == -EFBIG && d.msg[0] ? 0 : 6);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

TEST(what_could_not_be_written_is_no_part)
{
	const char *path = test_path("limited.dlbpf");
	struct evlist l = some_events(40, 2000);

	for (rlim_t limit = 40000; limit < 48000; limit += 401) {
		write_limited(path, &l, limit);
		check_limited(path, (off_t)limit);	/* the index is there when there was room for it */
	}
	evlist_fini(&l);
}

/* The same events in the same frames as without a thread. */
TEST(same_file)
{
	const struct dl_trace_writer_opts with = { .frame_raw_sz = 8192, .queue_sz = QUEUE_SZ }, without = { .frame_raw_sz = 8192 };
	const char *paths[2] = { test_path("with.dlbpf"), test_path("without.dlbpf") };
	struct evlist l = some_events(60, 3000);
	uint64_t events[2], frames[2];

	for (int i = 0; i < 2; i++) {
		struct dl_trace_writer *w = open_writer(paths[i], i ? &without : &with, NULL);
		struct dl_trace *t;

		for (size_t j = 0; j < l.off.cnt; j++)
			CHECK_OK(dl_trace_write(w, evlist_at(&l, j)));
		CHECK_OK(dl_trace_writer_close(w, NULL));
		t = open_trace(paths[i]);
		CHECK(dl_trace_info(t)->complete);
		events[i] = read_events(t, NULL);
		frames[i] = dl_trace_info(t)->frames;
		dl_trace_close(t);
	}
	CHECK_EQ(events[0], l.off.cnt);
	CHECK_EQ(events[0], events[1]);
	CHECK_EQ(frames[0], frames[1]);
	evlist_fini(&l);
}

/* A piece larger than all that may wait is taken when nothing else waits. */
TEST(queue_takes_a_large_piece)
{
	static char big[100000];
	const char *path = test_path("big");
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	struct dl_outq *q;
	uint64_t off = 0;
	struct stat st;

	CHECK_OK(dl_outq_new(&q, fd, 0, 1000));
	for (int i = 0; i < 3; i++)
		CHECK_OK(dl_outq_put(q, big, sizeof(big)));
	CHECK_OK(dl_outq_close(q, &off));
	CHECK_EQ(off, 3 * sizeof(big));
	CHECK(!fstat(fd, &st));
	CHECK_EQ(st.st_size, 3 * sizeof(big));
	close(fd);
}
