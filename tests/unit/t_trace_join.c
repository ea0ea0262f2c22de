/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Several traces as one: copied into a file, and read where they lie. */
#include "unit/trace_util.h"

static void write_mark(struct dl_trace_writer *w, uint64_t ts, uint32_t what)
{
	const struct dl_ev_mark ev = { .h = { .size = sizeof(ev), .kind = DL_EV_MARK, .ts = ts }, .what = what };

	CHECK_OK(dl_trace_write(w, &ev.h));
}

/* Events from..to of a list; with a head that says something again when there is something before. */
static void write_segment(const char *path, const struct evlist *l, size_t from, size_t to)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	struct dl_trace_writer *w = open_writer(path, &opts, NULL);
	struct evlist again = some_events(1000 + from, 50);

	for (size_t i = 0; from && i < again.off.cnt; i++)
		CHECK_OK(dl_trace_write(w, evlist_at(&again, i)));
	CHECK_OK(dl_trace_writer_flush(w, UINT64_MAX));
	if (from)
		write_mark(w, 1, DL_MARK_STATE);
	CHECK_OK(dl_trace_writer_flush(w, UINT64_MAX));
	for (size_t i = from; i < to; i++)
		CHECK_OK(dl_trace_write(w, evlist_at(l, i)));
	CHECK_OK(dl_trace_writer_close(w, NULL));
	evlist_fini(&again);
}

static void check_reads(const char *path, const struct evlist *want)
{
	struct dl_trace *t = open_trace(path);
	uint64_t kinds[DL_EV_MAX] = { 0 };
	struct evlist got = { 0 };

	CHECK_EQ(dl_trace_info(t)->events, want->off.cnt);
	read_events(t, &got);
	check_same(&got, want);
	for (size_t i = 0; i < want->off.cnt; i++)
		kinds[evlist_at(want, i)->kind]++;
	for (size_t k = 0; k < DL_EV_MAX; k++)
		CHECK_EQ(dl_trace_info(t)->kind_cnt[k], kinds[k]);
	CHECK_EQ(dl_trace_info(t)->first_ts, evlist_at(want, 0)->ts);
	CHECK_EQ(dl_trace_info(t)->last_ts, evlist_at(want, want->off.cnt - 1)->ts);
	CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
	dl_trace_close(t);
	evlist_fini(&got);
}

TEST(segments_are_copied)
{
	const char *joint = test_path("joint.dlbpf"), *part = test_path("part.dlbpf");
	struct evlist l = some_events(50, 3000), sorted = some_events(50, 3000);
	struct dl_trace_writer *w = open_writer(joint, NULL, NULL);

	evlist_sort(&sorted);
	for (size_t from = 0; from < 3000; from += 600) {
		struct dl_trace *t;

		write_segment(part, &l, from, from + 600);
		t = open_trace(part);
		CHECK_OK(dl_trace_copy_frames(t, w, from > 0));
		dl_trace_close(t);
	}
	CHECK_OK(dl_trace_writer_close(w, NULL));
	check_reads(joint, &sorted);
	evlist_fini(&l);
	evlist_fini(&sorted);
}

/* What was pending comes first, what is written then last. */
TEST(copied_between_events)
{
	const char *joint = test_path("between.dlbpf"), *part = test_path("part.dlbpf");
	struct evlist l = some_events(51, 900), sorted = some_events(51, 900);
	struct dl_trace_writer *w = open_writer(joint, NULL, NULL);
	struct dl_trace *t;

	evlist_sort(&sorted);
	write_segment(part, &l, 300, 600);
	t = open_trace(part);
	for (size_t i = 0; i < 300; i++)
		CHECK_OK(dl_trace_write(w, evlist_at(&l, i)));
	CHECK_OK(dl_trace_copy_frames(t, w, true));
	for (size_t i = 600; i < 900; i++)
		CHECK_OK(dl_trace_write(w, evlist_at(&l, i)));
	dl_trace_close(t);
	CHECK_OK(dl_trace_writer_close(w, NULL));
	check_reads(joint, &sorted);
	evlist_fini(&l);
	evlist_fini(&sorted);
}

TEST(damage_is_not_copied)
{
	const char *joint = test_path("damaged.dlbpf"), *part = test_path("part.dlbpf");
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	struct evlist l = some_events(52, 1000);
	struct dl_trace_writer *w;
	struct dl_trace *t;
	struct dl_buf b;
	uint64_t events;

	write_list(part, &l, &opts, NULL);
	b = read_file(part);
	b.v[b.cnt / 2] ^= 1;
	write_file(part, b.v, b.cnt);
	free(b.v);
	t = open_trace(part);
	w = open_writer(joint, NULL, NULL);
	CHECK_OK(dl_trace_copy_frames(t, w, false));
	CHECK_OK(dl_trace_writer_close(w, NULL));
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 1);
	dl_trace_close(t);
	t = open_trace(joint);
	events = dl_trace_info(t)->events;
	CHECK(events > 500 && events < 1000);
	CHECK_EQ(read_events(t, NULL), events);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 0);
	dl_trace_close(t);
	evlist_fini(&l);
}

static const struct dl_event_desc *without_marks(unsigned int kind)
{
	return kind == DL_EV_MARK ? NULL : dl_event_desc(kind);
}

/* Another build's events: its columns mean something else. */
TEST(other_events_are_refused)
{
	const char *joint = test_path("other.dlbpf"), *part = test_path("part.dlbpf");
	struct dl_trace_writer *w = open_writer(part, NULL, without_marks);
	struct dl_trace *t;

	CHECK_OK(dl_trace_writer_close(w, NULL));
	t = open_trace(part);
	w = open_writer(joint, NULL, NULL);
	CHECK_EQ(dl_trace_copy_frames(t, w, false), -EPROTOTYPE);
	CHECK_OK(dl_trace_writer_close(w, NULL));
	dl_trace_close(t);
}

TEST(no_room_for_a_copy)
{
	const char *joint = test_path("small.dlbpf"), *part = test_path("part.dlbpf");
	const struct dl_trace_writer_opts opts = { .max_sz = 40000 };
	struct evlist l = some_events(53, 3000);
	struct dl_trace_writer *w = open_writer(joint, &opts, NULL);
	struct dl_trace *t;
	struct stat st;

	write_segment(part, &l, 0, 3000);
	t = open_trace(part);
	CHECK_EQ(dl_trace_copy_frames(t, w, false), -EFBIG);
	CHECK_EQ(dl_trace_writer_close(w, NULL), -EFBIG);
	dl_trace_close(t);
	CHECK(!stat(joint, &st) && st.st_size <= 40000);
	t = open_trace(joint);
	CHECK(dl_trace_info(t)->complete);
	CHECK(read_events(t, NULL) > 100);
	dl_trace_close(t);
	evlist_fini(&l);
}

/* --- a folder ----------------------------------------------------------------------------------- */

static const char *in(const char *dir, const char *name)
{
	static char path[700];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

TEST(a_folder_is_a_trace)
{
	struct evlist l = some_events(54, 3000), sorted = some_events(54, 3000);
	const char *file = test_path("run.dlbpf"), *dir = test_path("run.dlbpf.keep");
	struct dl_trace *t;
	struct dl_diag d;
	char name[64];

	evlist_sort(&sorted);
	CHECK(!mkdir(dir, 0700));
	CHECK(dl_trace_open(&t, dir, &d));
	CHECK_HAS(d.msg, "is a directory");
	write_file(file, "", 0);
	CHECK(dl_trace_open(&t, file, &d));
	CHECK_HAS(d.msg, "is empty");
	/* An older recording's, and what is none. */
	write_segment(in(dir, "20250101T000000Z-9-000000.dlbpf"), &l, 0, 50);
	write_file(in(dir, "notes.dlbpf"), "x", 1);
	for (size_t i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "20260101T000000Z-7-%06zu.dlbpf", i);
		write_segment(in(dir, name), &l, i * 500, i * 500 + 500);
	}
	check_reads(dir, &sorted);
	check_reads(file, &sorted);	/* nothing was written to it yet */
	/* The newest was killed in its header, and in its head. */
	CHECK(!truncate(in(dir, name), 100));
	t = open_trace(file);
	CHECK_EQ(dl_trace_info(t)->events, 2500);
	CHECK(!strcmp(dl_trace_info(t)->meta.host, test_meta().host));
	dl_trace_close(t);
	write_segment(in(dir, name), &l, 2500, 2500);
	t = open_trace(file);
	CHECK_EQ(read_events(t, NULL), 2500);
	dl_trace_close(t);
	/* The oldest has no head: it begins with the next. */
	CHECK(!truncate(in(dir, "20260101T000000Z-7-000000.dlbpf"), 10));
	t = open_trace(file);
	CHECK_EQ(read_events(t, NULL), 2000 + 51);
	dl_trace_close(t);
	/* What was written to counts. */
	write_segment(file, &l, 0, 100);
	t = open_trace(file);
	CHECK_EQ(dl_trace_info(t)->events, 100);
	dl_trace_close(t);
	evlist_fini(&l);
	evlist_fini(&sorted);
}

TEST(a_folder_of_nothing)
{
	const char *dir = test_path("none.keep");
	struct dl_trace *t;
	struct dl_diag d;

	CHECK(!mkdir(dir, 0700));
	write_file(in(dir, "20260101T000000Z-7-000000.dlbpf"), "", 0);
	write_file(in(dir, "20260101T000000Z-7-000001.dlbpf"), "junk", 4);
	CHECK_EQ(dl_trace_open(&t, dir, &d), -ENODATA);
	CHECK_HAS(d.msg, "no part of a recording");
}
