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

/* --- order --- */

static uint64_t rng = 88172645463325252ULL;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

struct pairs { struct pair *v; size_t cnt, cap; };

static uint64_t mix(uint64_t x)
{
	return (x ^ x >> 31) * 0x9e3779b97f4a7c15ULL;
}

/* What sorting has to come to: each number as often as before, equal ones in the order they had. */
static void check_sorted(struct pairs *v)
{
	uint64_t sum = 0, after = 0;

	for (size_t i = 0; i < v->cnt; i++) {
		v->v[i].b = i;
		sum += mix(v->v[i].a) + i;
	}
	vec_sort(v);
	for (size_t i = 0; i < v->cnt; i++) {
		after += mix(v->v[i].a) + v->v[i].b;
		CHECK(!i || v->v[i - 1].a < v->v[i].a || (v->v[i - 1].a == v->v[i].a && v->v[i - 1].b < v->v[i].b));
	}
	CHECK_EQ(sum, after);
}

TEST(vec_sorts)
{
	struct pairs v = { 0 };

	check_sorted(&v);
	for (size_t cnt = 1; cnt < 300; cnt++) {
		v.cnt = 0;
		for (size_t i = 0; i < cnt; i++)
			vec_push(&v)->a = rnd() % (cnt % 7 ? 10 : 1000000);
		check_sorted(&v);
		/* rows, as of threads one behind the other; backwards; all the same */
		for (size_t i = 0; i < cnt; i++)
			v.v[i].a = i % (1 + cnt / 5) * 10;
		check_sorted(&v);
		for (size_t i = 0; i < cnt; i++)
			v.v[i].a = UINT64_MAX - i / 2;
		check_sorted(&v);
		for (size_t i = 0; i < cnt; i++)
			v.v[i].a = 7;
		check_sorted(&v);
	}
	vec_free(&v);
}

TEST(vec_finds_the_first_from_anywhere)
{
	struct pairs v = { 0 };

	for (size_t cnt = 0; cnt < 70; cnt++) {
		for (uint64_t t = 0; t < 80; t++) {
			size_t first = 0;

			while (first < cnt && v.v[first].a < t)
				first++;
			CHECK_EQ(vec_first_at(&v, t), first);
			for (size_t near = 0; near < cnt + 3; near++)
				CHECK_EQ(vec_first_near(&v, t, near), first);
		}
		vec_push(&v);
		v.v[cnt].a = cnt ? v.v[cnt - 1].a + rnd() % 3 : 0;
	}
	vec_free(&v);
}

/* How often a key is looked at: a look-up that is not far from the last one is not as long as the array. */
static unsigned int looks;

static uint64_t counted_key(const void *ctx, size_t i)
{
	looks++;
	return ((const uint64_t *)ctx)[i];
}

TEST(vec_near_look_ups_are_short)
{
	enum { CNT = 1 << 20 };
	uint64_t *v = calloc(CNT, sizeof(*v));
	size_t near = 0;

	CHECK(v != NULL);
	for (size_t i = 0; i < CNT; i++)
		v[i] = i * 2;
	for (size_t i = 0; i < CNT; i += 5) {
		looks = 0;
		near = dl_first_near(counted_key, v, CNT, i * 2, near);
		CHECK_EQ(near, i);
		CHECK(looks <= 8);
	}
	looks = 0;
	CHECK_EQ(dl_first_near(counted_key, v, CNT, 1, CNT), 1);
	CHECK(looks <= 44);	/* twice the logarithm, from the far end */
	free(v);
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
