/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* kill -9 of the recorder at any instant leaves a file with everything up to the last whole frame. */
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "unit/trace_util.h"

/* What the writer says of itself, in memory that outlives it. */
struct progress {
	volatile uint64_t flushed;	/* events in frames whose write has returned */
	volatile uint64_t offered;	/* events that dl_trace_write has been called with */
	volatile uint32_t opened;	/* dl_trace_writer_open has returned */
	volatile uint32_t closed;
};

static const struct dl_hdr *numbered(uint64_t i)
{
	static struct dl_ev_switch ev;

	ev = (struct dl_ev_switch){
		.h = { .size = sizeof(ev), .kind = DL_EV_SWITCH, .ts = i + 1, .tid = (uint32_t)(i % 9),
		       .cpu = (uint16_t)(i % 3) },
		.arg0 = i * 0x9e3779b97f4a7c15ULL,
		.next_tid = (uint32_t)i,
	};
	return &ev.h;
}

/* Writes small files over and over: most of the time goes into opening and closing. */
__attribute__((noreturn))
static void be_writer(const char *path, struct progress *p, uint64_t events)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096, .level = 1 };
	const struct dl_trace_meta meta = test_meta();
	struct dl_trace_writer_stats st;
	struct dl_trace_writer *w;
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 || dl_trace_writer_open(&w, fd, &meta, &opts, NULL))
		_exit(1);
	p->opened = 1;
	for (uint64_t i = 0; i < events; i++) {
		p->offered = i + 1;
		if (dl_trace_write(w, numbered(i)))
			_exit(1);
		if (i % 50 == 49) {
			if (dl_trace_writer_flush(w, UINT64_MAX))
				_exit(1);
			dl_trace_writer_stats(w, &st);
			p->flushed = st.events;
		}
	}
	if (dl_trace_writer_close(w, NULL))
		_exit(1);
	p->flushed = events;
	p->closed = 1;
	for (;;)
		pause();
}

/* Events are a gapless row from 0 on; returns how many. */
static uint64_t check_row(const char *path, bool *ret_complete)
{
	struct dl_trace *t = open_trace(path);
	const struct dl_hdr *ev;
	uint64_t i = 0;
	int err;

	for (; (err = dl_trace_next(t, &ev)) == 1; i++) {
		CHECK_EQ(ev->size, sizeof(struct dl_ev_switch));
		CHECK_MEM(ev, numbered(i), ev->size);
	}
	CHECK_EQ(err, 0);
	CHECK_EQ(dl_trace_info(t)->damaged_frames, 0);
	*ret_complete = dl_trace_info(t)->complete;
	dl_trace_close(t);
	return i;
}

static void kill_after(struct progress *p, const char *path, uint64_t events, uint64_t delay_ns,
		       unsigned int *opened, unsigned int *closed)
{
	const struct timespec delay = { 0, (long)delay_ns };
	int status;
	uint64_t got;
	bool complete;
	pid_t pid;

	memset((void *)p, 0, sizeof(*p));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		be_writer(path, p, events);
	nanosleep(&delay, NULL);
	CHECK(!kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	if (!p->opened)
		return;	/* the header's write may not have begun */
	got = check_row(path, &complete);
	CHECK_MSG(got >= p->flushed && got <= p->offered, "%llu events, %llu flushed, %llu offered",
		  (unsigned long long)got, (unsigned long long)p->flushed,
		  (unsigned long long)p->offered);
	CHECK(!p->closed || (complete && got == events));
	*opened += 1;
	*closed += p->closed;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* How long a whole run takes here, so that the kills are spread over all of it. */
static uint64_t time_run(struct progress *p, const char *path, uint64_t events)
{
	uint64_t start = now_ns(), took;
	int status;
	pid_t pid;

	memset((void *)p, 0, sizeof(*p));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		be_writer(path, p, events);
	while (!p->closed) {
		sched_yield();
		CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
	}
	took = now_ns() - start;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return took;
}

static struct progress *shared(void)
{
	struct progress *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

TEST(kill_at_200_instants)
{
	const char *path = test_path("kill.dlbpf");
	struct progress *p = shared();
	uint64_t took = time_run(p, path, 3000);
	unsigned int opened = 0, closed = 0;

	rng_seed(took);
	for (int i = 0; i < 200; i++)
		kill_after(p, path, 3000, rng() % (took + took / 8), &opened, &closed);
	CHECK(opened > 50);
	munmap(p, sizeof(*p));
}

/* Hardly any events: header, index and footer are what is being written. */
TEST(kill_while_opening_and_closing)
{
	const char *path = test_path("kill.dlbpf");
	struct progress *p = shared();
	uint64_t took = time_run(p, path, 50);
	unsigned int opened = 0, closed = 0;

	rng_seed(took);
	for (int i = 0; i < 200; i++)
		kill_after(p, path, 50, rng() % (took + took / 4), &opened, &closed);
	CHECK(opened > 0);
	munmap(p, sizeof(*p));
}

/*
 * A kill in the middle of a write cannot be aimed at, but its result can be made: the file ends
 * anywhere. Whatever frames are whole then are read.
 */
TEST(kill_in_every_write)
{
	const char *path = test_path("whole.dlbpf"), *cut = test_path("cut.dlbpf");
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 4096 };
	struct dl_trace_writer *w = open_writer(path, &opts, NULL);
	uint64_t events_at[100], off_at[100], cnt = 0;
	struct dl_trace_writer_stats st;
	struct dl_buf b;

	for (uint64_t i = 0; i < 300; i++) {
		CHECK_OK(dl_trace_write(w, numbered(i)));
		if (i % 30 == 29) {
			CHECK_OK(dl_trace_writer_flush(w, UINT64_MAX));
			dl_trace_writer_stats(w, &st);
			off_at[cnt] = st.file_bytes;
			events_at[cnt++] = i + 1;
		}
	}
	CHECK_OK(dl_trace_writer_close(w, NULL));
	b = read_file(path);
	for (size_t sz = dl_get(b.v + 12, 4); sz <= b.cnt; sz++) {
		uint64_t want = 0;
		bool complete;

		for (uint64_t i = 0; i < cnt; i++)
			want = off_at[i] <= sz ? events_at[i] : want;
		write_file(cut, b.v, sz);
		CHECK_EQ(check_row(cut, &complete), want);
		CHECK_EQ(complete, sz == b.cnt);
	}
	free(b.v);
}
