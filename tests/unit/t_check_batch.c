/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How large a batch is, from objects of shared memory as workers make them. */
#include "unit/test.h"

#include "base/cleanup.h"
#include "check/batch.h"

enum { IMAGE = 4816896, LABEL = 4096, MASK = 802816 };

static struct ck_storage objects[4096];
static size_t cnt;
static uint32_t look;
static bool late;

static void begin(void)
{
	cnt = 0;
	look = 0;
	late = false;
}

static void made(uint32_t owner, uint64_t nr, uint64_t size)
{
	objects[cnt] = (struct ck_storage){ .ino = cnt + 1, .owner = owner, .nr = nr, .size = size, .look = look,
					  .late = late };
	cnt++;
}

TEST(names)
{
	uint32_t owner = 0;
	uint64_t nr = 99;

	CHECK(ck_storage_parse("torch_4711_123456_7", &owner, &nr));
	CHECK_EQ(owner, 4711);
	CHECK_EQ(nr, 7);
	/* Before PyTorch counted them. */
	CHECK(ck_storage_parse("torch_12_4029771858", &owner, &nr));
	CHECK_EQ(owner, 12);
	CHECK_EQ(nr, 0);
	CHECK(!ck_storage_parse("torch_", &owner, &nr));
	CHECK(!ck_storage_parse("torch_x_1_2", &owner, &nr));
	CHECK(!ck_storage_parse("torch_12", &owner, &nr));
	CHECK(!ck_storage_parse("torch_12_", &owner, &nr));
	CHECK(!ck_storage_parse("torch_12_3_", &owner, &nr));
	CHECK(!ck_storage_parse("torch_12_3_4x", &owner, &nr));
	CHECK(!ck_storage_parse("torch_0_3_4", &owner, &nr));
	CHECK(!ck_storage_parse("torch_-1_3_4", &owner, &nr));
	CHECK(!ck_storage_parse("torch_99999999999_3_4", &owner, &nr));
	CHECK(!ck_storage_parse("sem.torch_1_2_3", &owner, &nr));
}

TEST(one_tensor)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 10; i++)
		made(1, i, IMAGE);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE);
	CHECK_EQ(b.storages, 1);
	CHECK_EQ(b.seen, 10);
	CHECK(!b.at_least);
}

TEST(image_and_label)
{
	struct dl_ck_batch b;

	begin();
	for (uint32_t worker = 1; worker <= 2; worker++)
		for (int i = 0; i < 12; i++)
			made(worker, 30 + i, i % 2 ? LABEL : IMAGE);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE + LABEL);
	CHECK_EQ(b.storages, 2);
	CHECK_EQ(b.seen, 12);
	CHECK(!b.at_least);
}

/* Two views of one size, which counting alone would take for one. */
TEST(two_equal_images_and_a_label)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 30; i++)
		made(7, i, i % 3 == 2 ? LABEL : IMAGE);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 3);
	CHECK_EQ(b.bytes, 2 * IMAGE + LABEL);
	CHECK(!b.at_least);
}

/* Looks miss some of them: what is missing does not shift the pattern. */
TEST(gaps)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 60; i++)
		if (i % 7 && i % 5)
			made(7, i, i % 3 == 0 ? IMAGE : i % 3 == 1 ? MASK : LABEL);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 3);
	CHECK_EQ(b.bytes, IMAGE + MASK + LABEL);
	CHECK(!b.at_least);
}

/* The last batch of an epoch has fewer samples. */
TEST(a_smaller_last_batch)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 40; i++)
		made(7, i, i % 2 ? LABEL : i == 38 ? IMAGE / 2 / 4096 * 4096 : IMAGE);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE + LABEL);
	CHECK(!b.at_least);
}

/* A worker that runs ahead makes two images before its other thread makes the labels: no pattern yet, and
 * the result says that it is the least. */
TEST(the_first_two_batches)
{
	struct dl_ck_batch b;

	begin();
	made(7, 0, IMAGE);
	made(7, 1, IMAGE);
	made(7, 2, LABEL);
	made(7, 3, LABEL);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE + LABEL);
	CHECK_EQ(b.storages, 2);
	CHECK(b.at_least);
}

/* Failed allocations: of what is large, more is seen than of what is small. It is still the least. */
TEST(more_images_than_labels)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 4; i++)
		made(7, i, IMAGE);
	made(7, 4, LABEL);
	made(7, 5, LABEL);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE + LABEL);
	CHECK(b.at_least);
}

/* Three tensors of one length, which is another one in each batch; some lengths are met again. */
TEST(lengths_that_vary)
{
	struct dl_ck_batch b;
	uint32_t random = 1;

	begin();
	for (int i = 0; i < 90; i++) {
		random = i % 3 ? random : random * 1103515245 + 12345;
		made(7, i, 4096 * (uint64_t)(1 + (random >> 16) % 11));
	}
	made(7, 90, 4096 * 11);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, 4096 * 11);
	CHECK(b.at_least);
}

/* Two images of one size and no label: what appears together is a batch. */
TEST(equal_tensors_that_appear_together)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 20; i++) {
		look = (uint32_t)(i / 2) * 5;
		made(7, i, IMAGE);
	}
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, 2 * IMAGE);
	CHECK_EQ(b.storages, 2);
	CHECK_EQ(b.seen, 10);
	CHECK(!b.at_least);
	/* With a new one in each look that cannot be told. */
	begin();
	for (int i = 0; i < 20; i++) {
		look = (uint32_t)i / 2;
		made(7, i, IMAGE);
	}
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE);
}

/* A watcher that was not let run meets many batches in one look: those are no batch. */
TEST(what_a_late_look_finds)
{
	struct dl_ck_batch b;
	uint32_t random = 1;

	/* Lengths that vary, two a batch; in two looks there were twenty. */
	begin();
	for (int i = 0; i < 96; i++) {
		const int group = i < 28 ? i / 2 : i < 68 ? 14 + (i - 28) / 20 : 16 + (i - 68) / 2;

		random = random * 1103515245 + 12345;
		look = (uint32_t)group * 4;
		late = i >= 28 && i < 68;
		made(7, i, 4096 * (uint64_t)(100 + (random >> 16) % 11));
	}
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 2);
	CHECK(b.bytes > 2 * 4096 * 100 && b.bytes <= 2 * 4096 * 110);

	/* Nor is the one that is larger than all others, late or not. */
	for (uint32_t i = 0; i < cnt; i++)
		objects[i].late = false;
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 2);
	CHECK(b.bytes <= 2 * 4096 * 110);

	/* Where all looks came late, nothing is known of what belongs together. */
	for (uint32_t i = 0; i < cnt; i++)
		objects[i].late = true;
	b = ck_batch_of(objects, cnt);
	CHECK(b.bytes <= 4096 * 110);
	CHECK(b.at_least);
}

/* Texts: three tensors of one length, another one in each batch, and batches that appear one by one. */
TEST(lengths_that_vary_and_appear_together)
{
	struct dl_ck_batch b;
	uint32_t random = 1;

	begin();
	for (int i = 0; i < 90; i++) {
		random = i % 3 ? random : random * 1103515245 + 12345;
		look = (uint32_t)(i / 3) * 4;
		made(7, i, 4096 * (uint64_t)(1 + (random >> 16) % 11));
	}
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 3);
	CHECK(b.bytes >= 3 * 4096 * 10 && b.bytes <= 3 * 4096 * 11);
	CHECK(b.at_least);
}

/* Sizes that fill the same pages, but are not the same: a label and a box. */
TEST(sizes_below_a_page)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 20; i++)
		made(7, i, i % 2 ? 64 : 256);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 2);
	CHECK_EQ(b.bytes, 2 * 4096);
}

TEST(a_single_object)
{
	struct dl_ck_batch b;

	begin();
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, 0);
	made(7, 0, IMAGE);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE);
	CHECK(b.at_least);
}

/* Texts of all lengths: the largest that was seen, and said to be the least. */
TEST(sizes_that_vary)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 100; i++)
		made(7, i, 4096 * (uint64_t)(1 + (i * 37) % 101));
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, 4096 * 101);
	CHECK(b.at_least);
}

/* Of a worker with a pattern and one without, the first is believed; of two patterns the larger. */
TEST(several_workers)
{
	struct dl_ck_batch b;

	begin();
	made(1, 0, IMAGE * 3);
	for (int i = 0; i < 8; i++)
		made(2, i, i % 2 ? LABEL : IMAGE);
	for (int i = 0; i < 8; i++)
		made(3, i, i % 2 ? LABEL : MASK);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.bytes, IMAGE + LABEL);
	CHECK(!b.at_least);
}

TEST(many_objects_end)
{
	struct dl_ck_batch b;

	begin();
	for (int i = 0; i < 4000; i++)
		made(2, i, i % 5 ? LABEL : IMAGE);
	b = ck_batch_of(objects, cnt);
	CHECK_EQ(b.storages, 5);
	CHECK_EQ(b.bytes, IMAGE + 4 * LABEL);
}
