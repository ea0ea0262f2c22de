/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Growing arrays and the cleanup attributes. */
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "unit/test.h"

struct pair { uint64_t a, b; };

TEST(vec_pushes_zeroed_elements)
{
	DL_VEC(struct pair) v = { 0 };

	CHECK(vec_last(&v) == NULL);
	for (uint64_t i = 0; i < 10000; i++) {
		struct pair *e = vec_push(&v);

		CHECK(e != NULL);
		CHECK_EQ(e->a, 0);
		CHECK_EQ(e->b, 0);
		e->a = i;
		e->b = ~i;
		if (i % 3 == 0)
			v.cnt--;	/* the place is used again, and is zero again */
	}
	CHECK_EQ(v.cnt, 10000 - 3334);
	CHECK(v.cap >= v.cnt);
	CHECK_EQ(vec_last(&v)->a, 9998);
	vec_free(&v);
	CHECK(v.v == NULL);
	CHECK_EQ(v.cnt + v.cap, 0);
}

TEST(vec_walks_all)
{
	DL_VEC(int) v = { 0 };
	int sum = 0, steps = 0;

	vec_for_each(&v, none)
		sum += *none + 1000;
	for (int i = 1; i <= 100; i++)
		*vec_push(&v) = i;
	vec_for_each(&v, it) {
		sum += *it;
		steps++;
	}
	CHECK_EQ(sum, 5050);
	CHECK_EQ(steps, 100);
	vec_free(&v);
}

TEST(vec_reserve_leaves_the_rest_alone)
{
	DL_VEC(uint32_t) v = { 0 };

	*vec_push(&v) = 7;
	CHECK_OK(vec_reserve(&v, 5000));
	CHECK(v.cap >= 5001);
	CHECK_EQ(v.cnt, 1);
	CHECK_EQ(v.v[0], 7);
	CHECK_OK(vec_reserve(&v, 0));
	vec_free(&v);
}

TEST(vec_too_large_is_no_memory)
{
	DL_VEC(uint64_t) v = { 0 };

	*vec_push(&v) = 1;
	CHECK_EQ(vec_reserve(&v, SIZE_MAX), -ENOMEM);
	CHECK_EQ(vec_reserve(&v, SIZE_MAX / 8), -ENOMEM);
	CHECK_EQ(v.cnt, 1);
	CHECK_EQ(v.v[0], 1);
	vec_free(&v);
}

static int open_and_close(bool hand_over, int *ret_nr)
{
	_cleanup_close_ int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	*ret_nr = fd;
	return hand_over ? take_fd(fd) : -1;
}

TEST(cleanup_closes_unless_taken)
{
	int nr, fd = open_and_close(false, &nr);

	CHECK(nr >= 0);
	CHECK_EQ(fd, -1);
	CHECK(fcntl(nr, F_GETFD) < 0 && errno == EBADF);
	fd = open_and_close(true, &nr);
	CHECK_EQ(fd, nr);
	CHECK(fcntl(nr, F_GETFD) >= 0);
	close(fd);
}

TEST(cleanup_accepts_nothing)
{
	_cleanup_free_ char *none = NULL;
	_cleanup_free_ char *some = malloc(10);
	_cleanup_close_ int fd = -1;
	_cleanup_fclose_ FILE *f = NULL;
	_cleanup_closedir_ DIR *dir = NULL;
	char *taken = take_ptr(some);

	CHECK(some == NULL && taken != NULL);
	CHECK(!none && fd == -1 && !f && !dir);
	free(taken);
}
