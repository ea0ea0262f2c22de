/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Every allocation fails once: -ENOMEM comes back, nothing crashes, nothing leaks. */
#include <dirent.h>
#include <malloc.h>

#include "unit/trace_util.h"

/*
 * The program's own malloc in front of the C library's. Allocations are counted while armed; the
 * one with number fail_at fails. live counts what was not freed.
 */
/* volatile: the compiler knows malloc and what it does not look at */
static volatile bool armed;
static volatile uint64_t alloc_cnt, fail_at;
static volatile int64_t live;

#if !defined(__SANITIZE_ADDRESS__) && defined(__GLIBC__)
#define HAVE_HOOK 1

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static bool fails(void)
{
	return armed && ++alloc_cnt == fail_at;
}

void *malloc(size_t sz)
{
	void *p = fails() ? NULL : __libc_malloc(sz);

	live += p != NULL;
	if (!p)
		errno = ENOMEM;
	return p;
}

void *calloc(size_t cnt, size_t sz)
{
	void *p = fails() ? NULL : __libc_calloc(cnt, sz);

	live += p != NULL;
	if (!p)
		errno = ENOMEM;
	return p;
}

void *realloc(void *old, size_t sz)
{
	void *p = fails() ? NULL : __libc_realloc(old, sz);

	live += p && !old;
	if (!p)
		errno = ENOMEM;
	return p;
}

void free(void *p)
{
	live -= p != NULL;
	__libc_free(p);
}
#else
#define HAVE_HOOK 0
#endif

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int cnt = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		cnt++;
	closedir(dir);
	return cnt;
}

static int read_all(const char *path, const struct evlist *l)
{
	const struct dl_hdr *ev;
	struct dl_trace *t;
	struct dl_diag d;
	size_t cnt = 0;
	int err = dl_trace_open(&t, path, &d);

	if (err)
		return err;
	while ((err = dl_trace_next(t, &ev)) == 1)
		cnt++;
	dl_trace_close(t);
	return err ? err : cnt == l->off.cnt ? 0 : -EIO;	/* memory is no damage */
}

/*
 * Runs fn with the n-th allocation failing for n = 1, 2, ... until it needs fewer than n. A few can
 * be done without (qsort's buffer, the one kept for the next frame): then all must be as ever.
 */
static void fail_each(int (*fn)(const char *path, const struct evlist *l), const char *path,
		      const struct evlist *l)
{
	uint64_t n, done_without = 0;

	CHECK_OK(fn(path, l));	/* what is allocated only once, by the C library, is there now */
	for (n = 1;; n++) {
		int64_t live_before = live, live_after;
		int fds = count_fds(), err;

		alloc_cnt = 0;
		fail_at = n;
		armed = true;
		err = fn(path, l);
		armed = false;
		live_after = live;
		if (alloc_cnt < n) {
			CHECK_EQ(err, 0);
			break;
		}
		if (!err) {
			done_without++;
			CHECK_OK(read_all(path, l));
		} else {
			CHECK_MSG(err == -ENOMEM, "allocation %llu: %d", (unsigned long long)n, err);
		}
		CHECK_EQ(live_after, live_before);
		CHECK_EQ(count_fds(), fds);
	}
	CHECK(n > 10);	/* something was tried */
	CHECK(done_without < n / 4);
}

static int write_all(const char *path, const struct evlist *l)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 20000 };
	const struct dl_trace_meta meta = test_meta();
	int err, close_err, fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	struct dl_trace_writer *w;
	struct dl_diag d;

	err = dl_trace_writer_open(&w, fd, &meta, &opts, &d);
	if (err)
		return err;
	for (size_t i = 0; i < l->off.cnt && !err; i++)
		err = dl_trace_write(w, evlist_at(l, i));
	close_err = dl_trace_writer_close(w, &d);
	return err ? err : close_err;
}

static struct evlist few_events(void)
{
	struct evlist l = { 0 };

	rng_seed(50);
	for (int i = 0; i < 600; i++)
		evlist_add(&l, random_event(random_desc(), 1000 + rng() % 100000));
	return l;
}

static void check_hook(void)
{
	void *volatile p;	/* or the compiler leaves the call out */

	if (!HAVE_HOOK)
		SKIP("malloc cannot be replaced under AddressSanitizer or without glibc");
	alloc_cnt = 0;
	fail_at = 1;
	armed = true;
	p = malloc(10);
	armed = false;
	CHECK(p == NULL);
}

TEST(oom_while_writing)
{
	const char *path = test_path("oom.dlbpf");
	struct evlist l;
	struct dl_trace *t;

	check_hook();
	l = few_events();
	fail_each(write_all, path, &l);
	t = open_trace(path);	/* the last one succeeded */
	CHECK_EQ(read_events(t, NULL), 600);
	dl_trace_close(t);
	evlist_fini(&l);
}

/* What is on disk stays readable when memory ends in the middle. */
TEST(oom_leaves_a_readable_file)
{
	const char *path = test_path("oom.dlbpf");
	struct evlist l;

	check_hook();
	l = few_events();
	for (fail_at = 1; fail_at < 400; fail_at += 3) {
		struct dl_trace *t = NULL;
		int err;

		alloc_cnt = 0;
		armed = true;
		err = write_all(path, &l);
		armed = false;
		if (!err)
			break;
		CHECK_EQ(err, -ENOMEM);
		if (dl_trace_open(&t, path, NULL)) {
			struct stat st;

			CHECK(!stat(path, &st));
			CHECK_EQ(st.st_size, 0);	/* it did not come to the header */
			continue;
		}
		CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
		CHECK_EQ(read_events(t, NULL), dl_trace_info(t)->events);
		dl_trace_close(t);
	}
	evlist_fini(&l);
}

TEST(oom_while_reading)
{
	const char *path = test_path("oom.dlbpf");
	struct evlist l;

	check_hook();
	l = few_events();
	CHECK_OK(write_all(path, &l));
	fail_each(read_all, path, &l);
	evlist_fini(&l);
}

TEST(oom_while_reading_without_index)
{
	const char *path = test_path("oom.dlbpf");
	struct evlist l;
	struct stat st;

	check_hook();
	l = few_events();
	CHECK_OK(write_all(path, &l));
	CHECK(!stat(path, &st));
	CHECK(!truncate(path, st.st_size - 1));
	fail_each(read_all, path, &l);
	evlist_fini(&l);
}
