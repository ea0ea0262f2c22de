/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Segments: what is kept is bounded, what is saved can be read by itself, and neither a kill at any
 * instant nor a full disk takes more than what was not yet a frame. The events of the tests are numbered:
 * a window is a gapless row of them.
 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/map.h"
#include "capture/keep.h"
#include "capture/keep_int.h"
#include "unit/keep_util.h"

enum { TRAINER = 100, WORKER = 201 };

#define BEGIN (1000 * S)
#define STEP (10 * MS)		/* from one event to the next */

static struct dl_invoker inv;
static struct dl_trace_meta meta;

static struct dl_keep *open_keep(const char *dir, const struct dl_keep_opts *opts)
{
	struct dl_diag d = { "" };
	struct dl_keep *k = NULL;
	int err;

	inv.uid = geteuid();
	inv.gid = getegid();
	meta = test_meta();
	meta.start_ts = BEGIN;
	err = dl_keep_open(&k, opts, dir, &inv, &meta, &d);
	CHECK_MSG(!err, "%s", d.msg);
	return k;
}

static const struct dl_hdr *numbered(uint64_t i)
{
	static struct dl_ev_wake ev;

	ev = DL_EVENT_INIT(wake, DL_EV_WAKE, BEGIN + i * STEP, 300, 300);
	ev.wakee_tid = (uint32_t)i;
	ev.arg0 = dl_hash64(i);	/* so that it takes room */
	ev.flags = DL_WK_FOREIGN_WAKEE;
	return &ev.h;
}

/* Said once, at the begin. */
static void say_job(struct dl_keep *k)
{
	struct dl_ev_mark mark = DL_EVENT_INIT(mark, DL_EV_MARK, BEGIN, 0, 0);
	struct dl_ev_task ev = task_ev(BEGIN, TRAINER, TRAINER, 1, "python3");
	struct dl_ev_cmdline cmd = DL_EVENT_INIT(cmdline, DL_EV_CMDLINE, BEGIN, TRAINER, TRAINER);
	struct dl_ev_fork fork = fork_ev(BEGIN + MS, TRAINER, WORKER);

	mark.what = DL_MARK_START;
	ev.flags = DL_TF_ROOT;
	CHECK_OK(dl_keep_write(k, &mark.h));
	CHECK_OK(dl_keep_write(k, &ev.h));
	CHECK_OK(dl_keep_write(k, with_text(&cmd.h, "python3 train.py")));
	CHECK_OK(dl_keep_write(k, &fork.h));
}

/* Events from..to, a tick every ten of them. */
static int write_row(struct dl_keep *k, uint64_t from, uint64_t to)
{
	int err = 0;

	for (uint64_t i = from; i < to && !err; i++) {
		err = dl_keep_write(k, numbered(i));
		if (!err && i % 10 == 9)
			err = dl_keep_tick(k, BEGIN + i * STEP + MS, BEGIN + i * STEP + 1);
	}
	return err;
}

static bool holes;	/* rows may have some: the disk was full */

struct row { uint64_t first, end, states, starts, tasks, cmdlines, forks; bool stop; };

/* A trace of numbered events; fails on a gap, a double, or disorder. */
static struct row read_row(const char *path)
{
	struct row r = { .first = UINT64_MAX };
	struct dl_trace *t = open_trace(path);
	const struct dl_hdr *ev;
	int err;

	while ((err = dl_trace_next(t, &ev)) > 0) {
		const struct dl_ev_wake *wake = (const void *)ev;
		const struct dl_ev_mark *mark = (const void *)ev;

		if (ev->kind == DL_EV_WAKE) {
			r.first = r.first == UINT64_MAX ? wake->wakee_tid : r.first;
			CHECK_MSG(wake->wakee_tid == (r.end ? r.end : r.first) || (holes && wake->wakee_tid > r.end),
				  "%u behind %d", wake->wakee_tid, (int)r.end);
			CHECK_MEM(ev, numbered(wake->wakee_tid), ev->size);
			r.end = wake->wakee_tid + 1;
		}
		r.states += ev->kind == DL_EV_MARK && mark->what == DL_MARK_STATE;
		r.starts += ev->kind == DL_EV_MARK && mark->what == DL_MARK_START;
		r.stop |= ev->kind == DL_EV_MARK && mark->what == DL_MARK_STOP;
		r.tasks += ev->kind == DL_EV_TASK;
		r.cmdlines += ev->kind == DL_EV_CMDLINE;
		r.forks += ev->kind == DL_EV_FORK;
	}
	CHECK_EQ(err, 0);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 0);
	dl_trace_close(t);
	return r;
}

/* In words of its own: it tells of who lives although that was said before. */
static void check_head(const struct row *r, bool from_begin)
{
	CHECK_EQ(r->starts, 1);
	CHECK_EQ(r->states, from_begin ? 0 : 1);
	CHECK_EQ(r->tasks, 1);
	CHECK_EQ(r->cmdlines, 1);
	CHECK_EQ(r->forks, 1);
}

static void save(struct dl_keep *k, uint64_t ts, const char *path)
{
	const struct dl_keep_out out = { .fd = -1, .path = path };
	const pid_t pid = dl_keep_save(k, ts, &out);
	int err = 0;

	CHECK(pid > 0);
	CHECK(dl_keep_saved(pid, true, &err));
	CHECK_OK(err);
}

static struct dl_names list(const char *path)
{
	struct dl_keep_dir dir = { .fd = open(path, O_RDONLY | O_DIRECTORY), .inv = &inv };
	struct dl_names names;

	CHECK_OK(dl_keep_dir_list(&dir, &names));
	close(dir.fd);
	return names;
}

static uint64_t bytes_in(const char *path)
{
	struct dl_names names = list(path);
	uint64_t sum = 0;

	vec_for_each(&names, it) {
		char file[700];
		struct stat st;

		snprintf(file, sizeof(file), "%s/%s", path, *it);
		CHECK(!stat(file, &st));
		sum += (uint64_t)st.st_size;
	}
	dl_names_fini(&names);
	return sum;
}

/* --- what is kept ------------------------------------------------------------------------------- */

TEST(a_span)
{
	const struct dl_keep_opts opts = { .span_ns = 8 * S, .frame_raw_sz = 4096 };
	const char *dir = test_path("span.keep"), *path = test_path("span.dlbpf");
	struct dl_keep *k = open_keep(dir, &opts);
	struct dl_keep_stats st;
	struct row r;

	say_job(k);
	for (uint64_t i = 0; i < 6000; i += 100) {
		CHECK_OK(write_row(k, i, i + 100));
		dl_keep_stats(k, BEGIN + (i + 100) * STEP, &st);
		CHECK(i < 900 || st.kept_ns >= 8 * S);
		CHECK(st.kept_ns <= 10 * S);	/* one segment more */
		CHECK(st.segments <= 10);
		CHECK_EQ(st.lost, 0);
	}
	save(k, BEGIN + 6000 * STEP, path);
	r = read_row(path);
	check_head(&r, false);
	CHECK_EQ(r.end, 6000);
	CHECK(r.first <= 6000 - 800 && r.first >= 6000 - 1000);
	dl_keep_close(k, true);
	CHECK(access(dir, F_OK));
}

TEST(a_size)
{
	const struct dl_keep_opts opts = { .max_sz = 100000, .seg_sz = 12000, .frame_raw_sz = 4096 };
	const char *dir = test_path("size.keep"), *path = test_path("size.dlbpf");
	struct dl_keep *k = open_keep(dir, &opts);
	struct row r;

	say_job(k);
	for (uint64_t i = 0; i < 60000; i += 1000) {
		CHECK_OK(write_row(k, i, i + 1000));
		CHECK(bytes_in(dir) <= 100000 + 12000 + 4096);
	}
	CHECK(bytes_in(dir) > 80000);
	save(k, BEGIN + 60000 * STEP, path);
	r = read_row(path);
	check_head(&r, false);
	CHECK_EQ(r.end, 60000);
	CHECK(r.first > 40000);
	dl_keep_close(k, true);
}

TEST(less_than_is_kept)
{
	const struct dl_keep_opts opts = { .span_ns = 3600 * S };
	const char *dir = test_path("short.keep"), *path = test_path("short.dlbpf");
	struct dl_keep *k = open_keep(dir, &opts);
	struct row r;

	say_job(k);
	CHECK_OK(write_row(k, 0, 500));
	save(k, BEGIN + 500 * STEP, path);
	r = read_row(path);
	check_head(&r, true);
	CHECK_EQ(r.first, 0);
	CHECK_EQ(r.end, 500);
	dl_keep_close(k, true);
}

/* It goes on meanwhile, and what is saved next overlaps. */
TEST(saved_while_it_goes_on)
{
	const struct dl_keep_opts opts = { .span_ns = 8 * S };
	const char *dir = test_path("on.keep"), *path = test_path("on.dlbpf");
	const struct dl_keep_out out = { .fd = -1, .path = path, .stop = "saved" };
	struct dl_keep *k = open_keep(dir, &opts);
	struct row r;
	int err;

	say_job(k);
	CHECK_OK(write_row(k, 0, 3000));
	for (uint64_t i = 3000; i < 9000; i += 2000) {
		const pid_t pid = dl_keep_save(k, BEGIN + i * STEP, &out);

		CHECK(pid > 0);
		CHECK_OK(write_row(k, i, i + 2000));	/* all that is being saved is dropped */
		CHECK(dl_keep_saved(pid, true, &err));
		CHECK_OK(err);
		r = read_row(path);
		check_head(&r, false);
		CHECK_EQ(r.end, i);
		CHECK(r.stop);
		CHECK(r.first <= i - 800);
	}
	dl_keep_close(k, true);
}

TEST(held)
{
	const struct dl_keep_opts opts = { .span_ns = 8 * S };
	struct dl_keep *k = open_keep(test_path("held.keep"), &opts);
	const char *path = test_path("held.dlbpf");
	struct row r;

	say_job(k);
	CHECK_OK(write_row(k, 0, 3000));
	dl_keep_hold(k, BEGIN + 3000 * STEP);
	CHECK_OK(write_row(k, 3000, 3500));
	save(k, BEGIN + 3500 * STEP, path);
	r = read_row(path);
	CHECK(r.first <= 3000 - 800);
	CHECK_EQ(r.end, 3500);
	dl_keep_hold(k, 0);
	CHECK_OK(write_row(k, 3500, 5000));
	save(k, BEGIN + 5000 * STEP, path);
	CHECK(read_row(path).first > 3000);
	dl_keep_close(k, true);
}

/* A description of the part, not of the whole. */
TEST(the_head_of_what_is_saved)
{
	const struct dl_keep_opts opts = { .span_ns = 8 * S };
	struct dl_keep *k = open_keep(test_path("meta.keep"), &opts);
	const char *path = test_path("meta.dlbpf");
	const struct dl_trace_info *info;
	struct dl_trace *t;

	say_job(k);
	CHECK_OK(write_row(k, 0, 3000));
	save(k, BEGIN + 3000 * STEP, path);
	t = open_trace(path);
	info = dl_trace_info(t);
	CHECK(info->complete);
	CHECK(info->meta.start_ts > BEGIN + 2000 * STEP && info->meta.start_ts <= BEGIN + 2200 * STEP);
	CHECK_STR(info->meta.target_cmdline, meta.target_cmdline);
	CHECK_EQ(info->meta.target_pid, meta.target_pid);
	dl_trace_close(t);
	dl_keep_close(k, true);
}

TEST(one_recorder_a_folder)
{
	const struct dl_keep_opts opts = { .span_ns = 8 * S };
	const char *dir = test_path("lock.keep");
	struct dl_keep *k = open_keep(dir, &opts), *other = NULL;
	struct dl_diag d = { "" };

	CHECK_EQ(dl_keep_open(&other, &opts, dir, &inv, &meta, &d), -EBUSY);
	CHECK_HAS(d.msg, "another recording");
	dl_keep_close(k, true);
}

TEST(names)
{
	const char *base = test_path("name.dlbpf");
	char *path, *second;

	path = dl_keep_name(base, 1700000000, "death");
	CHECK(path);
	CHECK_HAS(path, "name-2023");
	CHECK_HAS(path, "-death.dlbpf");
	write_file(path, "x", 1);
	second = dl_keep_name(base, 1700000000, "death");
	CHECK_HAS(second, "-death-2.dlbpf");
	free(path);
	free(second);
}

/* --- killed ------------------------------------------------------------------------------------- */

struct heard { int cnt; char path[512]; };

static void hear(const char *text, void *arg)
{
	struct heard *h = arg;
	const char *at = strstr(text, "is now ");

	h->cnt++;
	snprintf(h->path, sizeof(h->path), "%s", at ? at + 7 : text);
}

static void copy_file(const char *from_dir, const char *to_dir, const char *name, size_t max)
{
	char from[800], to[800];
	struct dl_buf b;

	snprintf(from, sizeof(from), "%s/%s", from_dir, name);
	snprintf(to, sizeof(to), "%s/%s", to_dir, name);
	b = read_file(from);
	write_file(to, b.v, b.cnt < max ? b.cnt : max);
	free(b.v);
}

static void empty(const char *dir)
{
	struct dl_names names = list(dir);

	vec_for_each(&names, it) {
		char file[800];

		snprintf(file, sizeof(file), "%s/%s", dir, *it);
		CHECK(!unlink(file));
	}
	dl_names_fini(&names);
}

/*
 * The newest segment ends anywhere: within its header, its head, a frame, its index. What the next
 * recorder makes of the folder has all of the older ones, and of the newest what its whole frames have.
 */
TEST(killed_at_every_byte)
{
	const struct dl_keep_opts opts = { .span_ns = 4 * S, .frame_raw_sz = 4096 };
	const char *dir = test_path("kill.keep"), *cut = test_path("cut.keep"), *base = test_path("cut.dlbpf");
	struct dl_keep *k = open_keep(dir, &opts);
	struct dl_keep_dir cut_dir = { .inv = &inv };
	struct dl_names names;
	uint64_t whole_end, newest_first = 0, last_end = 0;
	char newest[800];
	struct stat st;
	struct row r;

	say_job(k);
	CHECK_OK(write_row(k, 0, 1050));
	dl_keep_close(k, false);
	names = list(dir);
	CHECK(names.cnt >= 5);
	snprintf(newest, sizeof(newest), "%s/%s", dir, names.v[names.cnt - 1]);
	r = read_row(newest);	/* it can be read by itself */
	check_head(&r, false);
	newest_first = r.first;
	whole_end = r.end;
	CHECK_EQ(whole_end, 1050);
	CHECK(!stat(newest, &st));
	CHECK(!mkdir(cut, 0700));
	cut_dir.fd = open(cut, O_RDONLY | O_DIRECTORY);
	cut_dir.path = (char *)cut;
	for (size_t sz = 0; sz <= (size_t)st.st_size; sz += sz < 64 || sz + 64 > (size_t)st.st_size ? 1 : 23) {
		struct heard heard = { 0 };
		const struct dl_keep_told told = { hear, &heard };

		empty(cut);
		for (size_t i = names.cnt - 3; i < names.cnt; i++)
			copy_file(dir, cut, names.v[i], i + 1 == names.cnt ? sz : SIZE_MAX);
		CHECK_OK(dl_keep_recover(&cut_dir, base, &told));
		CHECK_EQ(heard.cnt, 1);
		r = read_row(heard.path);
		check_head(&r, false);
		CHECK_MSG(r.end >= newest_first && r.end <= whole_end && r.end >= last_end, "%d with %zu bytes", (int)r.end, sz);
		last_end = r.end;
		CHECK(!unlink(heard.path));
		CHECK_EQ(bytes_in(cut), 0);
	}
	CHECK_EQ(last_end, whole_end);
	close(cut_dir.fd);
	dl_names_fini(&names);
}

/* A file without an event is not worth a trace. */
TEST(killed_before_the_first_frame)
{
	const struct dl_keep_opts opts = { .span_ns = 4 * S };
	const char *dir = test_path("early.keep");
	struct heard heard = { 0 };
	const struct dl_keep_opts again = { .span_ns = 4 * S, .base = test_path("early.dlbpf"), .told = { hear, &heard } };

	dl_keep_close(open_keep(dir, &opts), false);
	CHECK(bytes_in(dir) > 0);
	dl_keep_close(open_keep(dir, &again), true);
	CHECK_EQ(heard.cnt, 0);
	CHECK(access(dir, F_OK));
}

/* Two recordings' remains in a folder are two traces; what is none of ours stays. */
TEST(remains_of_two)
{
	const struct dl_keep_opts opts = { .span_ns = 4 * S };
	const char *a = test_path("two-a.keep"), *both = test_path("two.keep");
	struct dl_keep_dir dir = { .inv = &inv };
	struct heard heard = { 0 };
	const struct dl_keep_told told = { hear, &heard };
	struct dl_keep *k = open_keep(a, &opts);
	struct dl_names names;
	char file[800];

	say_job(k);
	CHECK_OK(write_row(k, 0, 1000));
	dl_keep_close(k, false);
	CHECK(!mkdir(both, 0700));
	names = list(a);
	vec_for_each(&names, it) {
		char from[800], to[800];
		struct dl_buf b;

		copy_file(a, both, *it, SIZE_MAX);
		snprintf(from, sizeof(from), "%s/%s", a, *it);
		snprintf(to, sizeof(to), "%s/19990101T000000Z-1-%s", both, strrchr(*it, '-') + 1);
		b = read_file(from);
		write_file(to, b.v, b.cnt);
		free(b.v);
	}
	dl_names_fini(&names);
	snprintf(file, sizeof(file), "%s/mine.dlbpf", both);
	write_file(file, "x", 1);
	dir.fd = open(both, O_RDONLY | O_DIRECTORY);
	dir.path = (char *)both;
	CHECK_OK(dl_keep_recover(&dir, test_path("two.dlbpf"), &told));
	CHECK_EQ(heard.cnt, 2);
	CHECK_EQ(read_row(heard.path).end, 1000);
	CHECK_EQ(bytes_in(both), 1);
	close(dir.fd);
}

/* --- full --------------------------------------------------------------------------------------- */

/* In a child with a file system of its own; its exit code is where it failed. */
static void on_small_disk(void (*fn)(const char *where), unsigned int kib)
{
	const uid_t uid = geteuid();
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		char opt[32], map[32];
		FILE *f;

		if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)))
			_exit(77);
		if (uid) {
			snprintf(map, sizeof(map), "0 %u 1", uid);
			f = fopen("/proc/self/uid_map", "w");
			if (!f || fputs(map, f) < 0 || fclose(f))
				_exit(77);
		}
		snprintf(opt, sizeof(opt), "size=%uk", kib);
		if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("small", "/mnt", "tmpfs", 0, opt))
			_exit(77);
		if (!setjmp(test_leave))
			fn("/mnt");
		else
			_exit(1);
		fflush(stdout);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("no mount namespace for a small file system");
	CHECK_EQ(status, 0);
}

static void fill(const char *path, size_t leave)
{
	struct statvfs fs;
	char block[4096];
	int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);

	memset(block, 1, sizeof(block));
	CHECK(fd >= 0);
	while (!statvfs(path, &fs) && fs.f_bfree * fs.f_bsize > leave)
		CHECK_EQ(write(fd, block, sizeof(block)), sizeof(block));
	close(fd);
}

/* Somebody fills the disk while it is recorded: the oldest goes first, the newest is kept and saved. */
static void disk_fills(const char *where)
{
	const struct dl_keep_opts opts = { .span_ns = 3600 * S, .seg_ns = S, .frame_raw_sz = 4096 };
	char dir[64], filler[64], path[64];
	struct dl_keep_stats st;
	struct dl_keep *k;
	struct row r;

	snprintf(dir, sizeof(dir), "%s/k", where);
	snprintf(filler, sizeof(filler), "%s/filler", where);
	snprintf(path, sizeof(path), "%s/out.dlbpf", where);
	holes = true;	/* in a process of its own */
	k = open_keep(dir, &opts);
	say_job(k);
	CHECK_OK(write_row(k, 0, 2000));
	fill(filler, 16384);
	CHECK_OK(write_row(k, 2000, 4000));
	dl_keep_stats(k, BEGIN + 4000 * STEP, &st);
	CHECK(!st.full);
	CHECK(st.segments < 40);
	/* At most what was not yet a frame is missing, each time that it was met. */
	CHECK_MSG(st.lost < 2000, "%d lost", (int)st.lost);
	/* A copy of all does not fit: the oldest make room for it. */
	save(k, BEGIN + 4000 * STEP, path);
	r = read_row(path);
	CHECK_EQ(r.starts, 1);
	CHECK_MSG(r.end == 4000, "%d", (int)r.end);
	CHECK_OK(write_row(k, 4000, 4500));
	dl_keep_close(k, true);
}

TEST(the_disk_fills)
{
	on_small_disk(disk_fills, 1024);
}

/* Random, so that a head that says them again is as large. */
static void say_strings(struct dl_keep *k, uint32_t from, uint32_t to)
{
	struct dl_ev_string string = DL_EVENT_INIT(string, DL_EV_STRING, BEGIN, TRAINER, 0);
	char text[1024];

	for (string.id = from; string.id < to; string.id++) {
		for (size_t i = 0; i < sizeof(text) - 1; i++)
			text[i] = (char)(1 + rng() % 255);
		text[sizeof(text) - 1] = '\0';
		CHECK_OK(dl_keep_write(k, with_text(&string.h, text)));
	}
}

/* There is no room for the head of a segment: what was kept last stays, and it goes on when there is. */
static void disk_is_full(const char *where)
{
	const struct dl_keep_opts opts = { .span_ns = 3600 * S, .seg_ns = S, .frame_raw_sz = 4096 };
	char dir[64], filler[64];
	struct dl_keep_stats st;
	struct dl_names names;
	struct dl_keep *k;

	snprintf(dir, sizeof(dir), "%s/k", where);
	snprintf(filler, sizeof(filler), "%s/filler", where);
	k = open_keep(dir, &opts);
	say_job(k);
	CHECK_OK(write_row(k, 0, 400));
	fill(filler, 0);
	say_strings(k, 1, 300);
	CHECK_OK(write_row(k, 400, 1400));
	dl_keep_stats(k, BEGIN + 1400 * STEP, &st);
	CHECK(st.full);
	CHECK(st.lost > 900);
	names = list(dir);
	CHECK(names.cnt >= 2);
	dl_names_fini(&names);
	CHECK(!unlink(filler));
	CHECK_OK(write_row(k, 1400, 1800));
	dl_keep_stats(k, BEGIN + 1800 * STEP, &st);
	CHECK(!st.full);
	dl_keep_close(k, true);
}

TEST(the_disk_is_full)
{
	on_small_disk(disk_is_full, 1024);
}

/* ulimit -f is met by a segment: the next one is another file. */
TEST(file_sizes_are_limited)
{
	const struct dl_keep_opts opts = { .span_ns = 3600 * S, .seg_ns = 3000 * S, .frame_raw_sz = 4096 };
	const char *dir = test_path("limit.keep");
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		const struct rlimit rl = { 40000, 40000 };
		struct dl_keep_stats st;
		struct dl_keep *k;

		signal(SIGXFSZ, SIG_IGN);
		if (setjmp(test_leave))
			_exit(1);
		k = open_keep(dir, &opts);
		CHECK(!setrlimit(RLIMIT_FSIZE, &rl));
		say_job(k);
		CHECK_OK(write_row(k, 0, 10000));
		dl_keep_stats(k, BEGIN + 10000 * STEP, &st);
		CHECK(!st.full);
		CHECK(st.segments > 2);
		CHECK_MSG(st.lost < 1000, "%d", (int)st.lost);
		dl_keep_close(k, true);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}
