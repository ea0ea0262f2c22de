/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The whole test framework. A test program includes this once and defines tests:
 *
 *	TEST(map_grows) { CHECK_EQ(map.cnt, 3); }
 *
 * It prints one line a test (`ok NAME`, `FAIL NAME: why`, `skip NAME: why`) and a last line
 * `# N passed, N failed, N skipped`; it exits 1 on a failure. An argument runs only the tests
 * whose name contains it. A failed check ends its test at once, also from within a function that
 * the test called.
 */
#ifndef DLBPF_TEST_H
#define DLBPF_TEST_H

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEST_LIMIT_S 300	/* a test that hangs is a failed test */

struct test {
	const char *name;
	void (*fn)(void);
	struct test *next;
};

static struct test *test_first, **test_end = &test_first;
static const struct test *test_current;
static jmp_buf test_leave;
static char test_dir[256];

enum { TEST_PASSED = 0, TEST_FAILED, TEST_SKIPPED };

#define TEST(NAME) \
	static void test_fn_##NAME(void); \
	static struct test test_##NAME = { #NAME, test_fn_##NAME, NULL }; \
	__attribute__((constructor)) static void test_add_##NAME(void) \
	{ \
		*test_end = &test_##NAME; \
		test_end = &test_##NAME.next; \
	} \
	static void test_fn_##NAME(void)

__attribute__((noreturn, format(printf, 3, 4), unused))
static void test_fail(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	va_list ap;

	printf("FAIL %s: %s:%d: ", test_current->name, base ? base + 1 : file, line);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	longjmp(test_leave, TEST_FAILED);
}

__attribute__((noreturn, format(printf, 1, 2), unused))
static void test_skip(const char *fmt, ...)
{
	va_list ap;

	printf("skip %s: ", test_current->name);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	longjmp(test_leave, TEST_SKIPPED);
}

#define SKIP(...) test_skip(__VA_ARGS__)
#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(cond) do { \
	if (!(cond)) \
		test_fail(__FILE__, __LINE__, "not true: %s", #cond); \
} while (0)

/* CHECK with a message of one's own behind the condition. */
#define CHECK_MSG(cond, fmt, ...) do { \
	if (!(cond)) \
		test_fail(__FILE__, __LINE__, "not true: %s: " fmt, #cond, ##__VA_ARGS__); \
} while (0)

/* Integers of any type; both are compared as 64 bits. */
#define CHECK_EQ(got, want) do { \
	const int64_t _g = (int64_t)(got), _w = (int64_t)(want); \
	if (_g != _w) \
		test_fail(__FILE__, __LINE__, "%s is %" PRId64 ", not %s = %" PRId64, \
			  #got, _g, #want, _w); \
} while (0)

/* |got - want| <= tol */
#define CHECK_NEAR(got, want, tol) do { \
	const int64_t _g = (int64_t)(got), _w = (int64_t)(want), _t = (int64_t)(tol); \
	if (_g - _w > _t || _w - _g > _t) \
		test_fail(__FILE__, __LINE__, "%s is %" PRId64 ", not within %" PRId64 " of %" PRId64, \
			  #got, _g, _t, _w); \
} while (0)

/* A call that returns 0 or -errno. */
#define CHECK_OK(call) do { \
	const int64_t _e = (int64_t)(call); \
	if (_e) \
		test_fail(__FILE__, __LINE__, "%s: %" PRId64 " (%s)", #call, _e, \
			  strerror((int)(_e < 0 ? -_e : _e))); \
} while (0)

#define CHECK_STR(got, want) do { \
	const char *_g = (got), *_w = (want); \
	if (!_g || !_w || strcmp(_g, _w)) \
		test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #got, \
			  _g ? _g : "(NULL)", _w ? _w : "(NULL)"); \
} while (0)

/* want is part of got */
#define CHECK_HAS(got, want) do { \
	const char *_g = (got), *_w = (want); \
	if (!_g || !_w || !strstr(_g, _w)) \
		test_fail(__FILE__, __LINE__, "%s has no \"%s\": \"%s\"", #got, \
			  _w ? _w : "(NULL)", _g ? _g : "(NULL)"); \
} while (0)

#define CHECK_MEM(got, want, sz) do { \
	const unsigned char *_g = (const void *)(got), *_w = (const void *)(want); \
	for (size_t _i = 0; _i < (size_t)(sz); _i++) \
		if (_g[_i] != _w[_i]) \
			test_fail(__FILE__, __LINE__, "%s differs from %s at byte %zu: %02x, not %02x", \
				  #got, #want, _i, _g[_i], _w[_i]); \
} while (0)

static int test_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* NAME in a directory of this program's own, which is removed at the end. One static buffer of
 * four, used in turn. */
__attribute__((unused))
static const char *test_path(const char *name)
{
	static char paths[4][512];
	static unsigned int turn;
	char *path = paths[turn++ % 4];
	const char *tmp = getenv("TMPDIR");

	if (!test_dir[0]) {
		snprintf(test_dir, sizeof(test_dir), "%s/dlbpf-test-XXXXXX", tmp ? tmp : "/tmp");
		if (!mkdtemp(test_dir)) {
			perror("mkdtemp");
			exit(2);
		}
	}
	snprintf(path, sizeof(paths[0]), "%s/%s", test_dir, name);
	return path;
}

static void test_fatal(int sig)
{
	static const char hung[] = ": hung\n", crashed[] = ": crashed, signal ";
	char nr[4] = { (char)('0' + sig / 10), (char)('0' + sig % 10), '\n' };
	ssize_t sink;

	sink = write(1, "FAIL ", 5);
	sink += write(1, test_current->name, strlen(test_current->name));
	if (sig == SIGALRM) {
		sink += write(1, hung, sizeof(hung) - 1);
	} else {
		sink += write(1, crashed, sizeof(crashed) - 1);
		sink += write(1, nr, 3);
	}
	_exit(sink ? 1 : 2);
}

static int test_run(const struct test *t)
{
	int how;

	test_current = t;
	alarm(TEST_LIMIT_S);
	how = setjmp(test_leave);
	if (!how) {
		t->fn();
		printf("ok %s\n", t->name);
	}
	alarm(0);
	fflush(stdout);
	return how;
}

int main(int argc, char **argv)
{
	unsigned int cnt[3] = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, test_fatal);
#ifndef __SANITIZE_ADDRESS__
	signal(SIGSEGV, test_fatal);
	signal(SIGBUS, test_fatal);
	signal(SIGFPE, test_fatal);
	signal(SIGABRT, test_fatal);
#endif
	for (const struct test *t = test_first; t; t = t->next) {
		if (argc > 1 && !strstr(t->name, argv[1]))
			continue;
		cnt[test_run(t)]++;
	}
	if (test_dir[0])
		nftw(test_dir, test_remove, 16, FTW_DEPTH | FTW_PHYS);
	printf("# %u passed, %u failed, %u skipped\n", cnt[TEST_PASSED], cnt[TEST_FAILED],
	       cnt[TEST_SKIPPED]);
	return cnt[TEST_FAILED] || !(cnt[TEST_PASSED] + cnt[TEST_SKIPPED]);
}

#endif
