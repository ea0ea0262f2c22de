/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Files as a whole: opening, metadata, windows, merging, other versions, damage. */
#include <sys/wait.h>

#include "unit/trace_util.h"

/* --- opening --- */

static void check_refused(const char *path, int want, const char *msg)
{
	struct dl_trace *t = NULL;
	struct dl_diag d = { "" };

	CHECK_EQ(dl_trace_open(&t, path, &d), want);
	CHECK(t == NULL);
	CHECK_HAS(d.msg, path);
	CHECK_HAS(d.msg, msg);
	CHECK_EQ(dl_trace_open(&t, path, NULL), want);
}

TEST(open_says_what_is_wrong)
{
	const char *path = test_path("odd");
	uint8_t magic[] = DL_TRACE_MAGIC "\x01";

	check_refused(test_path("missing"), -ENOENT, "No such file");
	check_refused("/tmp", -EISDIR, "is a directory");
	check_refused("/dev/null", -EINVAL, "not a regular file");
	write_file(path, "", 0);
	check_refused(path, -ENODATA, "is empty");
	write_file(path, "hello\n", 6);
	check_refused(path, -EINVAL, "is not a dlbpf trace");
	write_file(path, "{\"schema\": \"something else, and long enough for a header\"}", 58);
	check_refused(path, -EINVAL, "is not a dlbpf trace");
	write_file(path, magic, 5);
	check_refused(path, -EBADMSG, "cut off in its header");
	write_file(path, magic, 9);
	check_refused(path, -EBADMSG, "cut off in its header");
	CHECK(!mkfifo(test_path("fifo"), 0600));
	check_refused(test_path("fifo"), -EINVAL, "not a regular file");
}

TEST(open_without_permission)
{
	const char *path = test_path("secret");
	int status;
	pid_t pid;

	write_file(path, "x", 1);
	CHECK(!chmod(path, 0));
	if (geteuid() != 0) {
		check_refused(path, -EACCES, "Permission denied");
		return;
	}
	pid = fork();
	if (!pid) {
		struct dl_diag d = { "" };
		struct dl_trace *t;
		/* the directory is root's own: reach the file by a descriptor of it */
		int fd = open(path, O_PATH | O_CLOEXEC);
		char proc[64];

		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
		if (fd < 0 || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(2);
		_exit(dl_trace_open(&t, proc, &d) == -EACCES && strstr(d.msg, "Permission denied") ?
		      0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

TEST(open_other_versions)
{
	const char *path = test_path("version.dlbpf");
	struct evlist l = some_events(1, 50);
	struct dl_buf b;
	struct dl_trace *t;

	write_list(path, &l, NULL, NULL);
	b = read_file(path);
	b.v[8] = DL_FORMAT_MAJOR + 1;
	write_file(path, b.v, b.cnt);
	check_refused(path, -EPROTONOSUPPORT, "trace format 2.0");

	b.v[8] = DL_FORMAT_MAJOR;	/* a newer minor version is read */
	b.v[10] = 77;
	dl_put(b.v + dl_get(b.v + 12, 4) - 4, dl_crc32(b.v, dl_get(b.v + 12, 4) - 4), 4);
	write_file(path, b.v, b.cnt);
	t = open_trace(path);
	CHECK_EQ(dl_trace_info(t)->minor, 77);
	CHECK_EQ(read_events(t, NULL), 50);
	dl_trace_close(t);

	b.v[40]++;	/* in the metadata */
	write_file(path, b.v, b.cnt);
	check_refused(path, -EBADMSG, "damaged header");
	free(b.v);
	evlist_fini(&l);
}

TEST(metadata_comes_back)
{
	const struct dl_trace_meta want = test_meta();
	const char *path = test_path("meta.dlbpf");
	struct evlist l = some_events(2, 10);
	const struct dl_trace_meta *got;
	struct dl_trace *t;

	write_list(path, &l, NULL, NULL);
	t = open_trace(path);
	got = &dl_trace_info(t)->meta;
	CHECK_EQ(got->start_ts, want.start_ts);
	CHECK_EQ(got->start_realtime_ns, want.start_realtime_ns);
	CHECK_EQ(got->target_pid, want.target_pid);
	CHECK_EQ(got->cpus, want.cpus);
	CHECK_EQ(got->page_sz, want.page_sz);
	CHECK_EQ(got->sample_hz, want.sample_hz);
	CHECK_STR(got->host, want.host);
	CHECK_STR(got->kernel, want.kernel);
	CHECK_STR(got->machine, want.machine);
	CHECK_STR(got->target_cmdline, want.target_cmdline);
	CHECK_STR(got->recorder, want.recorder);
	CHECK_STR(got->record_args, want.record_args);
	CHECK_STR(got->boot_id, want.boot_id);
	CHECK_EQ(dl_trace_info(t)->major, DL_FORMAT_MAJOR);
	dl_trace_close(t);
	evlist_fini(&l);
}

TEST(metadata_may_be_absent_or_huge)
{
	const char *path = test_path("meta.dlbpf");
	char *huge = malloc(300000);
	struct dl_trace_meta meta = { .target_cmdline = huge };
	struct dl_trace_writer *w;
	struct dl_trace *t;

	CHECK(huge != NULL);
	memset(huge, 'a', 299999);
	huge[299999] = '\0';
	CHECK_OK(dl_trace_writer_open(&w, open(path, O_CREAT | O_RDWR | O_TRUNC, 0600), &meta, NULL, NULL));
	CHECK_OK(dl_trace_writer_close(w, NULL));
	t = open_trace(path);
	CHECK_STR(dl_trace_info(t)->meta.host, "");
	CHECK_EQ(strlen(dl_trace_info(t)->meta.target_cmdline), 65536);
	CHECK(dl_trace_info(t)->complete);
	CHECK_EQ(dl_trace_info(t)->events, 0);
	CHECK_EQ(dl_trace_info(t)->first_ts, 0);
	CHECK_EQ(read_events(t, NULL), 0);
	dl_trace_close(t);
	free(huge);
}

TEST(writer_empties_an_old_file)
{
	const char *path = test_path("old.dlbpf");
	struct evlist l = some_events(3, 20);
	const struct dl_trace_meta meta = test_meta();
	struct dl_trace_writer *w;
	struct dl_trace *t;
	char junk[200000];
	int fd;

	memset(junk, 'j', sizeof(junk));
	write_file(path, junk, sizeof(junk));
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(lseek(fd, 1000, SEEK_SET) == 1000);
	CHECK_OK(dl_trace_writer_open(&w, fd, &meta, NULL, NULL));
	for (size_t i = 0; i < l.off.cnt; i++)
		CHECK_OK(dl_trace_write(w, evlist_at(&l, i)));
	CHECK_OK(dl_trace_writer_close(w, NULL));
	t = open_trace(path);
	CHECK_EQ(read_events(t, NULL), 20);
	CHECK_EQ(dl_trace_info(t)->damaged_bytes, 0);
	dl_trace_close(t);
	evlist_fini(&l);
}

/* --- counts, windows, merging --- */

TEST(info_adds_up)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("info.dlbpf");
	struct evlist l = some_events(4, 3000);
	struct dl_trace_writer *w = open_writer(path, &opts, NULL);
	uint64_t raw = 0, kinds[DL_EV_MAX] = { 0 };
	struct dl_trace_writer_stats st;
	const struct dl_trace_info *info;
	struct dl_trace *t;
	struct stat file;

	for (size_t i = 0; i < l.off.cnt; i++) {
		CHECK_OK(dl_trace_write(w, evlist_at(&l, i)));
		raw += evlist_at(&l, i)->size;
		kinds[evlist_at(&l, i)->kind]++;
	}
	dl_trace_writer_stats(w, &st);
	CHECK_EQ(st.events, 3000);
	CHECK_EQ(st.raw_bytes, raw);
	CHECK_EQ(st.lost, 0);
	CHECK(!stat(path, &file));
	CHECK_EQ(st.file_bytes, file.st_size);
	CHECK_OK(dl_trace_writer_close(w, NULL));

	for (int cut = 0; cut < 2; cut++) {	/* by the index, and without it */
		CHECK(!stat(path, &file));
		if (cut)
			CHECK(!truncate(path, file.st_size - DL_FOOTER_SZ - 1));
		t = open_trace(path);
		info = dl_trace_info(t);
		evlist_sort(&l);
		CHECK_EQ(info->events, 3000);
		CHECK_EQ(info->raw_bytes, raw);
		CHECK(info->frames > 10);
		CHECK_EQ(info->first_ts, evlist_at(&l, 0)->ts);
		CHECK_EQ(info->last_ts, evlist_at(&l, 2999)->ts);
		CHECK_EQ(info->file_bytes, file.st_size - cut * (DL_FOOTER_SZ + 1));
		CHECK_EQ(info->complete, !cut);
		CHECK_EQ(info->damaged_bytes > 0, cut);
		for (int k = 0; k < DL_EV_MAX; k++)
			CHECK_EQ(info->kind_cnt[k], kinds[k]);
		CHECK_EQ(read_events(t, NULL), 3000);
		dl_trace_close(t);
	}
	evlist_fini(&l);
}

TEST(window_is_exact)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("window.dlbpf");
	struct evlist l = some_events(5, 2000);
	struct dl_trace *t;
	uint64_t first, last;

	write_list(path, &l, &opts, NULL);
	evlist_sort(&l);
	first = evlist_at(&l, 0)->ts;
	last = evlist_at(&l, 1999)->ts;
	t = open_trace(path);
	for (int i = 0; i < 200; i++) {
		uint64_t from = i == 0 ? 0 : first - 10 + rng() % (last - first + 20);
		uint64_t to = i == 1 ? UINT64_MAX : from + rng() % (last - first);
		struct evlist got = { 0 }, want = { 0 };

		if (i == 2)
			from = to = evlist_at(&l, 700)->ts;
		for (size_t j = 0; j < l.off.cnt; j++) {
			const struct dl_hdr *ev = evlist_at(&l, j);

			if (ev->ts >= from && ev->ts <= to)
				evlist_add(&want, ev);
		}
		CHECK_OK(dl_trace_window(t, from, to));
		if (i % 3 == 0) {	/* a window may be left early */
			const struct dl_hdr *ev;

			dl_trace_next(t, &ev);
			dl_trace_next(t, &ev);
			CHECK_OK(dl_trace_window(t, from, to));
		}
		read_events(t, &got);
		check_same(&got, &want);
		evlist_fini(&got);
		evlist_fini(&want);
	}
	CHECK_EQ(dl_trace_window(t, 5, 4), -EINVAL);
	CHECK_OK(dl_trace_window(t, 0, UINT64_MAX));
	CHECK_EQ(read_events(t, NULL), 2000);
	dl_trace_close(t);
	evlist_fini(&l);
}

/* A frame that is damaged but lies outside of the window is not even looked at. */
TEST(window_reads_only_what_it_needs)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("window.dlbpf");
	struct evlist l = some_events(6, 2000);
	struct dl_trace *t;
	struct dl_buf b;
	uint64_t mid, frame;

	write_list(path, &l, &opts, NULL);
	evlist_sort(&l);
	mid = evlist_at(&l, 1000)->ts;
	b = read_file(path);
	frame = dl_get(b.v + 12, 4);
	b.v[frame + dl_get(b.v + frame + 8, 4) + 30] ^= 1;	/* in the first frame's payload */
	write_file(path, b.v, b.cnt);
	t = open_trace(path);
	CHECK_OK(dl_trace_window(t, mid, UINT64_MAX));
	CHECK(read_events(t, NULL) >= 1000);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 0);
	CHECK_OK(dl_trace_window(t, 0, UINT64_MAX));
	CHECK(read_events(t, NULL) < 2000);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 1);
	CHECK_HAS(dl_trace_damage(t), "checksum");
	CHECK_HAS(dl_trace_damage(t), path);
	CHECK_OK(dl_trace_window(t, 0, UINT64_MAX));
	read_events(t, NULL);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 1);	/* counted once */
	dl_trace_close(t);
	free(b.v);
	evlist_fini(&l);
}

TEST(flush_by_arrival)
{
	const struct dl_trace_writer_opts opts = { .frame_ns = 1000 };
	const char *path = test_path("flush.dlbpf");
	struct dl_trace_writer *w = open_writer(path, &opts, NULL);	/* begins at 1000 */
	struct dl_ev_name ev = { .h = { .size = sizeof(ev), .kind = DL_EV_NAME, .ts = 5 } };
	struct dl_trace_writer_stats st;

	CHECK_OK(dl_trace_writer_flush(w, 50000));	/* nothing is pending */
	CHECK_OK(dl_trace_write(w, &ev.h));		/* a late event, but it has just come */
	CHECK_OK(dl_trace_writer_flush(w, 50500));
	dl_trace_writer_stats(w, &st);
	CHECK_EQ(st.frames, 0);
	CHECK_OK(dl_trace_writer_flush(w, 51000));
	dl_trace_writer_stats(w, &st);
	CHECK_EQ(st.frames, 1);
	CHECK_OK(dl_trace_write(w, &ev.h));
	CHECK_OK(dl_trace_writer_flush(w, 51999));
	dl_trace_writer_stats(w, &st);
	CHECK_EQ(st.frames, 1);
	CHECK_OK(dl_trace_writer_flush(w, UINT64_MAX));
	CHECK_OK(dl_trace_writer_flush(w, UINT64_MAX));
	dl_trace_writer_stats(w, &st);
	CHECK_EQ(st.frames, 2);
	CHECK_OK(dl_trace_writer_close(w, NULL));
}

/* --- files of other builds --- */

static struct dl_field future_wake_fields[16];
static struct dl_event_desc future_wake, future_low, future_high;

static const struct dl_event_desc *future_desc(unsigned int kind)
{
	static const struct dl_field fields[] = {
		{ .name = "a", .off = 24, .size = 8, .type = DL_FT_u64, .unit = DL_UNIT_TIME },
		{ .name = "b", .off = 32, .size = 16, .type = DL_FT_c16, .unit = DL_UNIT_TEXT },
	};
	const struct dl_event_desc *wake = dl_event_desc(DL_EV_WAKE);

	memcpy(future_wake_fields, wake->fields, wake->field_cnt * sizeof(*wake->fields));
	future_wake_fields[wake->field_cnt] = (struct dl_field){
		.name = "novelty", .off = wake->size, .size = 8, .type = DL_FT_u64, .unit = DL_UNIT_NS };
	future_wake = *wake;
	future_wake.fields = future_wake_fields;
	future_wake.field_cnt++;
	future_wake.size += 8;
	future_low = (struct dl_event_desc){
		.name = "low", .fields = fields, .kind = 29, .size = 48, .field_cnt = 2,
		.group = 200, .tail = DL_TAIL_STR };
	future_high = future_low;
	future_high.name = "high";
	future_high.kind = 1000;
	switch (kind) {
	case DL_EV_WAKE:
		return &future_wake;
	case 29:
		return &future_low;
	case 1000:
		return &future_high;
	default:
		return dl_event_desc(kind);
	}
}

TEST(file_of_the_future)
{
	const char *path = test_path("future.dlbpf");
	struct evlist in = { 0 }, want = { 0 }, out = { 0 };
	struct dl_trace *t;

	rng_seed(20);
	for (uint64_t i = 0; i < 1000; i++) {
		struct { struct dl_ev_wake ev; uint64_t novelty; } wake;
		const struct dl_hdr *ev;

		switch (i % 4) {
		case 0:
			ev = random_event(&future_low, i);
			evlist_add(&in, ev);
			break;
		case 1:
			ev = random_event(&future_high, i);
			evlist_add(&in, ev);
			break;
		case 2:
			memcpy(&wake.ev, random_event(dl_event_desc(DL_EV_WAKE), i), sizeof(wake.ev));
			evlist_add(&want, &wake.ev.h);
			wake.ev.h.size = sizeof(wake);
			wake.novelty = rng();
			evlist_add(&in, &wake.ev.h);
			break;
		default:
			ev = random_event(dl_event_desc(DL_EV_EXEC), i);
			evlist_add(&want, ev);
			evlist_add(&in, ev);
		}
		future_desc(0);	/* fills in the descriptions */
	}
	write_list(path, &in, NULL, future_desc);
	t = open_trace(path);
	CHECK_EQ(dl_trace_info(t)->events, 1000);
	CHECK_EQ(dl_trace_info(t)->unknown_events, 500);
	CHECK_EQ(dl_trace_info(t)->kind_cnt[29], 0);
	CHECK_EQ(dl_trace_info(t)->kind_cnt[DL_EV_WAKE], 250);
	read_events(t, &out);
	check_same(&out, &want);
	CHECK(dl_trace_damage(t) == NULL);
	dl_trace_close(t);
	evlist_fini(&in);
	evlist_fini(&want);
	evlist_fini(&out);
}

/* SWITCH as it might have been: fewer fields, in another order, one of them narrower. */
static const struct dl_field past_fields[] = {
	{ .name = "syscall", .off = 24, .size = 4, .type = DL_FT_s32, .unit = DL_UNIT_NR },
	{ .name = "next_tid", .off = 28, .size = 2, .type = DL_FT_u16, .unit = DL_UNIT_TID },
	{ .name = "arg0", .off = 30, .size = 16, .type = DL_FT_c16, .unit = DL_UNIT_TEXT },
	{ .name = "gone", .off = 46, .size = 2, .type = DL_FT_u16, .unit = DL_UNIT_NUM },
	{ .name = "exec_ns", .off = 48, .size = 8, .type = DL_FT_u64, .unit = DL_UNIT_TOTAL },
};
static const struct dl_event_desc past_switch = {
	.name = "switch", .fields = past_fields, .kind = DL_EV_SWITCH, .size = 56, .field_cnt = 5,
	.group = DL_GROUP_SCHED,
};

static const struct dl_event_desc *past_desc(unsigned int kind)
{
	return kind == DL_EV_SWITCH ? &past_switch : NULL;
}

TEST(file_of_the_past)
{
	const char *path = test_path("past.dlbpf");
	struct evlist in = { 0 }, want = { 0 }, out = { 0 };
	struct dl_trace *t;

	rng_seed(21);
	for (uint64_t i = 0; i < 500; i++) {
		struct dl_ev_switch ev = { .h = *random_event(&past_switch, i) };
		const uint8_t *raw = (const uint8_t *)random_event(&past_switch, i);

		memcpy(&ev.h, raw, sizeof(ev.h));
		evlist_add(&in, (const struct dl_hdr *)(const void *)raw);
		ev.h.size = sizeof(ev);
		memcpy(&ev.syscall, raw + 24, 4);
		memcpy(&ev.next_tid, raw + 28, 2);
		memcpy(&ev.exec_ns, raw + 48, 8);
		evlist_add(&want, &ev.h);
	}
	write_list(path, &in, NULL, past_desc);
	t = open_trace(path);
	read_events(t, &out);
	check_same(&out, &want);
	dl_trace_close(t);
	evlist_fini(&in);
	evlist_fini(&want);
	evlist_fini(&out);
}

static void put_bytes(struct dl_buf *b, const void *p, size_t sz)
{
	CHECK_OK(vec_reserve(b, sz));
	memcpy(b->v + b->cnt, p, sz);
	b->cnt += sz;
}

TEST(unknown_metadata_is_skipped)
{
	static const uint8_t keys[] = {
		3, 1, 8, 0, 0, 0, 'n', 'e', 'w', 1, 2, 3, 4, 5, 6, 7, 8,	/* unknown key */
		4, 9, 3, 0, 0, 0, 'h', 'o', 's', 't', 'a', 'b', 'c',		/* known, unknown type */
		4, 1, 2, 0, 0, 0, 'c', 'p', 'u', 's', 7, 7,			/* known, wrong size */
		0, 2, 0, 0, 0, 0,
	};
	static const uint8_t section[] = { 99, 0, 0, 0, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o' };
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("unknown.dlbpf");
	struct evlist l = some_events(22, 500);
	struct dl_buf b, made = { 0 };
	size_t header_sz, meta_sz;
	struct dl_trace *t;

	write_list(path, &l, &opts, NULL);
	b = read_file(path);
	header_sz = dl_get(b.v + 12, 4);
	meta_sz = dl_get(b.v + DL_PREFIX_SZ + 4, 4);
	put_bytes(&made, b.v, DL_PREFIX_SZ);
	put_bytes(&made, section, sizeof(section));
	put_bytes(&made, b.v + DL_PREFIX_SZ, 8 + meta_sz);
	put_bytes(&made, keys, sizeof(keys));
	dl_put(made.v + DL_PREFIX_SZ + sizeof(section) + 4, meta_sz + sizeof(keys), 4);
	put_bytes(&made, b.v + DL_PREFIX_SZ + 8 + meta_sz, header_sz - DL_PREFIX_SZ - 8 - meta_sz);
	dl_put(made.v + 12, made.cnt, 4);
	dl_put(made.v + made.cnt - 4, dl_crc32(made.v, made.cnt - 4), 4);
	put_bytes(&made, b.v + header_sz, b.cnt - header_sz);
	write_file(path, made.v, made.cnt);
	t = open_trace(path);	/* the index does not fit any more: found by search */
	CHECK_STR(dl_trace_info(t)->meta.host, test_meta().host);
	CHECK_EQ(dl_trace_info(t)->meta.cpus, 96);
	CHECK_EQ(read_events(t, NULL), 500);
	dl_trace_close(t);
	free(b.v);
	free(made.v);
	evlist_fini(&l);
}

/* --- damage --- */

/* Junk between the frames, in front of the index and behind the footer. */
TEST(junk_is_stepped_over)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("junk.dlbpf");
	struct evlist l = some_events(30, 1000), out = { 0 };
	struct dl_buf b, made = { 0 };
	uint8_t junk[100000] = DL_FRAME_MAGIC;
	size_t at, junk_sz = 0;
	struct dl_trace *t;

	memcpy(junk + 500, DL_INDEX_MAGIC, 8);
	memcpy(junk + 1000, DL_FOOTER_MAGIC, 8);
	write_list(path, &l, &opts, NULL);
	b = read_file(path);
	at = dl_get(b.v + 12, 4);
	put_bytes(&made, b.v, at);
	while (at < b.cnt - DL_FOOTER_SZ) {
		size_t sz = !memcmp(b.v + at, DL_FRAME_MAGIC, 8) ?
			    dl_get(b.v + at + 8, 4) + dl_get(b.v + at + 12, 4) : dl_get(b.v + at + 8, 4);
		size_t more = rng() % 3 ? rng() % 200 : rng() % sizeof(junk);

		put_bytes(&made, junk, more);
		junk_sz += more;
		put_bytes(&made, b.v + at, sz);
		at += sz;
	}
	put_bytes(&made, b.v + at, DL_FOOTER_SZ);
	put_bytes(&made, junk, 70);
	write_file(path, made.v, made.cnt);
	t = open_trace(path);
	read_events(t, &out);
	evlist_sort(&l);
	check_same(&out, &l);
	CHECK(dl_trace_info(t)->complete);
	CHECK(dl_trace_info(t)->damaged_bytes >= junk_sz + 70);
	CHECK(dl_trace_damage(t) != NULL);
	dl_trace_close(t);
	free(b.v);
	free(made.v);
	evlist_fini(&l);
	evlist_fini(&out);
}

/* An index whose checksum is right, but which lies, is not believed. */
TEST(index_that_lies)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("lies.dlbpf");
	struct evlist l = some_events(31, 1000);
	struct dl_buf b;
	uint64_t off, sz;

	write_list(path, &l, &opts, NULL);
	b = read_file(path);
	off = dl_get(b.v + b.cnt - DL_FOOTER_SZ + 8, 8);
	sz = dl_get(b.v + b.cnt - DL_FOOTER_SZ + 24, 4);
	for (uint64_t i = 8; i < sz - 4; i++) {
		uint8_t was = b.v[off + i];
		struct dl_trace *t;
		size_t got;

		b.v[off + i] ^= 0x80;
		dl_put(b.v + off + sz - 4, dl_crc32(b.v + off, sz - 4), 4);
		write_file(path, b.v, b.cnt);
		t = open_trace(path);
		got = read_events(t, NULL);
		CHECK(got <= 1000);
		/* what does not agree with the frames themselves is noticed when they are met */
		CHECK(got == 1000 || dl_trace_info(t)->damaged_frames);
		dl_trace_close(t);
		b.v[off + i] = was;
	}
	free(b.v);
	evlist_fini(&l);
}

TEST(all_frames_overlap)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096 };
	const char *path = test_path("overlap.dlbpf");
	struct evlist l = { 0 }, out = { 0 };
	struct dl_trace *t;

	rng_seed(32);
	for (int i = 0; i < 5000; i++)
		evlist_add(&l, random_event(dl_event_desc(DL_EV_WAKE), rng() % 1000000));
	write_list(path, &l, &opts, NULL);
	t = open_trace(path);
	CHECK(dl_trace_info(t)->frames > 50);
	read_events(t, &out);
	evlist_sort(&l);
	check_same(&out, &l);
	dl_trace_close(t);
	evlist_fini(&l);
	evlist_fini(&out);
}

TEST(closing_nothing)
{
	dl_trace_close(NULL);
	CHECK_EQ(dl_trace_writer_close(NULL, NULL), 0);
}

/* Reads with a window; returns how many events, and how many frames were decompressed. */
static uint64_t read_window(const char *path, uint64_t from, uint64_t to, dl_kinds keep, uint64_t *ret_frames, uint64_t *ret_outside)
{
	const struct dl_hdr *ev;
	struct dl_trace *t;
	struct dl_diag d = {};
	uint64_t cnt = 0;

	CHECK_EQ(dl_trace_open(&t, path, &d), 0);
	CHECK_EQ(dl_trace_window_keep(t, from, to, keep), 0);
	*ret_outside = 0;
	while (dl_trace_next(t, &ev) > 0) {
		bool outside = ev->ts < from || ev->ts > to;

		CHECK(!outside || keep & DL_KIND(ev->kind));
		*ret_outside += outside;
		cnt++;
	}
	*ret_frames = dl_trace_info(t)->decoded_frames;
	dl_trace_close(t);
	return cnt;
}

/* 20 s of switches, and a name each 100 ms: a window and all names are read from its own frames and those of
 * the names. */
TEST(window_keeps_kinds)
{
	enum { CNT = 200000 };
	struct dl_trace_writer_opts opts = { .no_sync = true };
	struct dl_trace_meta meta = { .start_ts = 1 };
	struct dl_trace_writer *w;
	struct dl_diag d = {};
	uint64_t frames, all_frames, outside;
	int fd = open(test_path("w.dlbpf"), O_RDWR | O_CREAT, 0600);

	CHECK_EQ(dl_trace_writer_open(&w, fd, &meta, &opts, &d), 0);
	for (uint64_t i = 0; i < CNT; i++) {
		struct dl_ev_switch sw = { .h = { .kind = DL_EV_SWITCH, .size = sizeof(sw), .ts = 1000 + i * 100000, .tid = 5 } };
		struct dl_ev_name name = { .h = { .kind = DL_EV_NAME, .size = sizeof(name), .ts = 1001 + i * 100000, .tid = 5 } };

		CHECK_EQ(dl_trace_write(w, &sw.h), 0);
		if (i % 1000 == 0)
			CHECK_EQ(dl_trace_write(w, &name.h), 0);
		CHECK_EQ(dl_trace_writer_flush(w, sw.h.ts), 0);
	}
	CHECK_EQ(dl_trace_writer_close(w, &d), 0);
	CHECK_EQ(read_window(test_path("w.dlbpf"), 0, UINT64_MAX, 0, &all_frames, &outside), CNT + CNT / 1000);
	CHECK_EQ(read_window(test_path("w.dlbpf"), 5000000000, 6000000000, DL_KIND(DL_EV_NAME), &frames, &outside), 10000 + CNT / 1000);
	CHECK_EQ(outside, CNT / 1000 - 10);
	CHECK(frames < all_frames * 6 / 10);	/* half of them are those of names */
	CHECK_EQ(read_window(test_path("w.dlbpf"), 5000000000, 6000000000, DL_KIND(DL_EV_EXIT), &frames, &outside), 10010);
	CHECK(frames < all_frames / 5);
}
