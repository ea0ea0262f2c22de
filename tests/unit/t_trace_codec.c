/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is written is what is read, for every kind and every number. */
#include "unit/trace_util.h"

static void round_trip(struct evlist *in, const struct dl_trace_writer_opts *opts)
{
	const char *path = test_path("codec.dlbpf");
	struct evlist out = { 0 };
	struct dl_trace *t;

	write_list(path, in, opts, NULL);
	t = open_trace(path);
	CHECK_EQ(dl_trace_info(t)->events, in->off.cnt);
	read_events(t, &out);
	CHECK(dl_trace_damage(t) == NULL);
	CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 0);
	CHECK(dl_trace_info(t)->complete);
	dl_trace_close(t);
	evlist_sort(in);
	check_same(&out, in);
	evlist_fini(&out);
	evlist_fini(in);
}

TEST(codec_every_kind_alone)
{
	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);
		struct evlist l = { 0 };

		if (!desc)
			continue;
		rng_seed(k);
		for (int i = 0; i < 200; i++)
			evlist_add(&l, random_event(desc, 5000 + (uint64_t)i * 1000));
		round_trip(&l, NULL);
	}
}

TEST(codec_every_kind_once)
{
	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		struct evlist l = { 0 };

		if (!dl_event_desc(k))
			continue;
		rng_seed(k + 1000);
		evlist_add(&l, random_event(dl_event_desc(k), rng_num()));
		round_trip(&l, NULL);
	}
}

TEST(codec_all_kinds_mixed_and_out_of_order)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		/* from one frame to many; from all in order to no order at all */
		const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096u << (seed % 10) };
		struct evlist l = { 0 };
		uint64_t ts = 1000;

		rng_seed(seed);
		for (int i = 0; i < 3000; i++) {
			ts += rng() % 3000;
			evlist_add(&l, random_event(random_desc(), ts - rng() % (seed * 100)));
		}
		round_trip(&l, &opts);
	}
}

TEST(codec_equal_times_stay_in_order)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096 };
	struct evlist l = { 0 };

	rng_seed(7);
	for (int i = 0; i < 2000; i++)
		evlist_add(&l, random_event(random_desc(), 77 + rng() % 2));
	round_trip(&l, &opts);
}

/* Rings that are read one after the other, with times so coarse that many are equal across them. */
TEST(codec_equal_times_of_several_rings_stay_in_order)
{
	for (uint64_t rings = 2; rings <= 4; rings++) {
		const struct dl_trace_writer_opts opts = { .frame_raw_sz = 16384u << rings };
		struct evlist l = { 0 };

		rng_seed(rings);
		for (uint64_t from = 1000; from < 1600; from += 20) {
			for (uint64_t r = 0; r < rings; r++)
				for (uint64_t i = 0; i < 40; i++)
					evlist_add(&l, random_event(random_desc(), from + i / 2));
		}
		round_trip(&l, &opts);
	}
}

/* Columns that are constant in one frame and not in the next, for which no model was chosen before. */
TEST(codec_constants_that_end)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	struct evlist l = { 0 };

	rng_seed(12);
	for (uint64_t i = 0; i < 4000; i++) {
		const bool late = i > 2000;
		struct dl_ev_switch ev = {
			.h = { .size = sizeof(ev), .kind = DL_EV_SWITCH, .ts = 1000 + i * 100, .tid = 7, .pid = 7,
			       .cpu = late ? (uint16_t)(rng() % 3) : 1 },
			.next_tid = late ? (uint32_t)(rng() % 9) : 8, .syscall = late ? (int32_t)(rng() % 3) - 1 : -1,
			.exec_ns = late ? i * 90 : 5, .arg0 = i > 3000 ? UINT64_MAX - rng() % 5 : 0,
			.deadline = i > 3000 && rng() % 2 ? rng() : 0,
		};

		evlist_add(&l, &ev.h);
	}
	round_trip(&l, &opts);
}

TEST(codec_ends_of_time)
{
	struct evlist l = { 0 };

	rng_seed(8);
	for (int i = 0; i < 300; i++)
		evlist_add(&l, random_event(random_desc(), i % 3 ? i % 2 ? UINT64_MAX : 0 : rng()));
	round_trip(&l, NULL);
}

/* More threads, CPUs and values than any table of the codec has slots. */
TEST(codec_many_threads_and_cpus)
{
	struct evlist l = { 0 };

	rng_seed(9);
	for (uint32_t i = 0; i < 20000; i++) {
		struct dl_ev_switch ev = {
			.h = { .size = sizeof(ev), .kind = DL_EV_SWITCH, .ts = 10000 + i * 10,
			       .tid = i % 5000, .pid = i % 3000, .cpu = (uint16_t)(i * 7) },
			.next_tid = i % 4999, .next_pid = i, .syscall = (int32_t)(i % 400) - 2,
			.arg0 = rng(), .arg1 = rng() % 5000, .exec_ns = i * 12345ULL,
			.switches = i / 5, .min_flt = rng_num(), .deadline = rng() % 2 ? 0 : rng_num(),
		};

		evlist_add(&l, &ev.h);
	}
	round_trip(&l, NULL);
}

/* Running totals, constant fields and repeated waits: what the predictors are made for. */
TEST(codec_regular_schedule)
{
	struct evlist l = { 0 };
	uint64_t exec[6] = { 0 };
	uint32_t switches[6] = { 0 };

	rng_seed(10);
	for (uint32_t i = 0; i < 30000; i++) {
		uint32_t t = i % 6, n = (i + 2) % 6;
		struct dl_ev_switch ev = {
			.h = { .size = sizeof(ev), .kind = DL_EV_SWITCH, .ts = 1000000 + i * 1000,
			       .tid = 100 + t, .pid = 100, .cpu = (uint16_t)(i % 2) },
			.next_tid = 100 + n, .next_pid = 100, .prev_state = 1, .syscall = 202,
			.arg0 = 0x7f0000000000 + t * 64, .arg1 = 0x189,
			.deadline = t == 3 ? 1000000 + i * 1000 + 5000000 : 0,
			.exec_ns = t ? (exec[t] += 1900 + rng() % 100) : 0, .switches = ++switches[t],
		};

		evlist_add(&l, &ev.h);
	}
	round_trip(&l, NULL);
}

TEST(codec_largest_events)
{
	struct evlist l = { 0 };
	uint8_t raw[DL_EVENT_MAX_SZ] = { 0 };
	struct dl_hdr h = { .size = DL_EVENT_MAX_SZ, .kind = DL_EV_CMDLINE };

	rng_seed(11);
	for (int i = 0; i < 600; i++) {
		for (size_t b = sizeof(h); b < sizeof(raw); b++)
			raw[b] = (uint8_t)rng();
		h.ts = (uint64_t)i;
		memcpy(raw, &h, sizeof(h));
		evlist_add(&l, (const struct dl_hdr *)(const void *)raw);
	}
	round_trip(&l, NULL);
}

TEST(codec_every_level)
{
	for (int level = 1; level <= 19; level += 6) {
		const struct dl_trace_writer_opts opts = { .level = level };
		struct evlist l = { 0 };

		rng_seed((uint64_t)level);
		for (int i = 0; i < 500; i++)
			evlist_add(&l, random_event(random_desc(), rng() % 100000));
		round_trip(&l, &opts);
	}
}

TEST(codec_malformed_events_are_refused)
{
	const char *path = test_path("refused.dlbpf");
	struct dl_trace_writer *w = open_writer(path, NULL, NULL);
	struct dl_ev_name ev = { .h = { .size = sizeof(ev), .kind = DL_EV_NAME, .ts = 1 } };
	struct dl_trace *t;

	CHECK_OK(dl_trace_write(w, &ev.h));
	ev.h.size--;
	CHECK_EQ(dl_trace_write(w, &ev.h), -EINVAL);
	ev.h.size = 4104;
	CHECK_EQ(dl_trace_write(w, &ev.h), -EINVAL);
	ev.h.size = sizeof(ev);
	ev.h.kind = 0;
	CHECK_EQ(dl_trace_write(w, &ev.h), -EINVAL);
	ev.h.kind = 0xffff;
	CHECK_EQ(dl_trace_write(w, &ev.h), -EINVAL);
	ev.h.kind = DL_EV_NAME;	/* and it goes on */
	ev.h.ts = 2;
	CHECK_OK(dl_trace_write(w, &ev.h));
	CHECK_OK(dl_trace_writer_close(w, NULL));
	t = open_trace(path);
	CHECK_EQ(read_events(t, NULL), 2);
	dl_trace_close(t);
}
