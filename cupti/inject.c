/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The collector's life. The driver loads this library from CUDA_INJECTION64_PATH inside cuInit()
 * and calls InitializeInjection(), which makes the ring and a thread that sleeps until a recorder
 * writes the mode it wants. Until then nothing of CUPTI is touched.
 */
#include "agent.h"
#include "compat.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

OLD_SYMBOL(dlopen);
OLD_SYMBOL(dlsym);
OLD_SYMBOL(pthread_create);
OLD_SYMBOL(pthread_attr_init);
OLD_SYMBOL(pthread_attr_destroy);
OLD_SYMBOL(pthread_attr_setdetachstate);
OLD_SYMBOL(pthread_attr_setstacksize);

#define FLUSH_MS 100
#define FLUSH_MIN_MS 5
#define FLUSH_MAX_MS 1000
#define STACK_SZ (1U << 20)	/* the loader and CUPTI run on it */
#define EXIT_WAIT_MS 1000
#define BUSY_RETRY_MS 5000
#define START_TRIES 5		/* each failing call costs the driver's locks, and 12.9 a thread */

int InitializeInjection(void);

static struct {
	_Atomic bool loaded, dead, exiting;
	_Atomic uint32_t exit_done;
	pid_t pid;
	uint32_t beat;		/* last seen */
	uint64_t beat_ns;	/* when it last changed */
	uint64_t retry_ns;	/* no start before; 0 at once */
	unsigned int tries;
	uint32_t failed_want;	/* given up on this mode until another is wanted */
} agent;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* Not FUTEX_PRIVATE: the recorder is another process. ms < 0 waits for ever. */
static void futex_wait(uint32_t *word, uint32_t val, int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	syscall(SYS_futex, word, FUTEX_WAIT, val, ms < 0 ? NULL : &ts, NULL, 0);
}

static void futex_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void agent_wake(void)
{
	struct dl_gpu_ring *hdr = ring_header();
	int err = errno;

	if (hdr && !agent.dead)
		futex_wake(&hdr->want);
	errno = err;	/* called on the application's threads */
}

/* --- the collector's thread ------------------------------------------------------------------ */

static void set_state(uint32_t mode)
{
	__atomic_store_n(&ring_header()->state, mode, __ATOMIC_RELEASE);
}

static void stop(void)
{
	session_stop();
	set_state(DL_GPU_MODE_OFF);
}

/* False, with everything off, when the recorder has not beaten for too long. */
static bool recorder_lives(uint32_t want)
{
	struct dl_gpu_ring *hdr = ring_header();
	uint32_t beat = __atomic_load_n(&hdr->beat, __ATOMIC_RELAXED);
	uint64_t now = now_ns();

	if (beat != agent.beat || !agent.beat_ns) {
		agent.beat = beat;
		agent.beat_ns = now;
	}
	if (now - agent.beat_ns < DL_GPU_BEAT_TIMEOUT_MS * 1000000ULL)
		return true;
	stop();
	agent.beat_ns = 0;
	/* Unless another recorder asks just now, sleep until one does. */
	__atomic_compare_exchange_n(&hdr->want, &want, DL_GPU_MODE_OFF, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_RELAXED);
	return false;
}

static void try_start(uint32_t want)
{
	int rc;

	if (want == agent.failed_want || now_ns() < agent.retry_ns)
		return;
	agent.failed_want = 0;
	rc = session_start(want);
	if (!rc) {
		agent.tries = 0;
		agent.retry_ns = 0;
		set_state(want);
	} else if (rc == -EAGAIN || rc == -EBUSY) {
		agent.retry_ns = now_ns() + (rc == -EBUSY ? BUSY_RETRY_MS : FLUSH_MAX_MS) * 1000000ULL;
	} else if (++agent.tries >= START_TRIES) {
		agent.failed_want = want;
		agent.tries = 0;
	} else {
		/* cuInit() may not be through yet: 1, 2, 4, 8 s */
		agent.retry_ns = now_ns() + (1000000000ULL << (agent.tries - 1));
	}
}

static int period_ms(void)
{
	uint32_t ms = __atomic_load_n(&ring_header()->flush_ms, __ATOMIC_RELAXED);

	if (!ms)
		return FLUSH_MS;
	return ms < FLUSH_MIN_MS ? FLUSH_MIN_MS : ms > FLUSH_MAX_MS ? FLUSH_MAX_MS : (int)ms;
}

/* One round; returns how long to sleep in milliseconds, -1 until woken. */
static int turn(uint32_t want)
{
	if (want > DL_GPU_MODE_FULL)
		want = DL_GPU_MODE_FULL;
	if (want == DL_GPU_MODE_OFF) {
		if (session_running())
			stop();
		agent.beat_ns = 0;
		agent.failed_want = 0;
		agent.tries = 0;
		agent.retry_ns = 0;
		return -1;
	}
	if (!recorder_lives(want))
		return 0;
	if (!session_running()) {
		try_start(want);
	} else if (want != ring_header()->state) {
		session_switch(want);
		set_state(want);
	} else {
		session_flush();
	}
	return session_running() ? period_ms() : FLUSH_MAX_MS / 4;
}

static void *agent_main(void *arg)
{
	struct dl_gpu_ring *hdr = arg;
	uint64_t last = 0;

	prctl(PR_SET_NAME, DL_GPU_THREAD);
	while (!agent.exiting) {
		uint32_t want = __atomic_load_n(&hdr->want, __ATOMIC_ACQUIRE);
		uint64_t now = now_ns();
		int ms;

		/* Woken by a full pool, but never more often than the shortest period. */
		if (session_running() && now - last < FLUSH_MIN_MS * 1000000ULL) {
			futex_wait(&hdr->want, want, FLUSH_MIN_MS);
			continue;
		}
		ms = turn(want);
		last = now_ns();
		if (ms && !agent.exiting)
			futex_wait(&hdr->want, want, ms);
	}
	/* The tail of the recording; the exiting thread waits for it, though not for ever. */
	stop();
	atomic_store(&agent.exit_done, 1);
	futex_wake((uint32_t *)&agent.exit_done);
	return NULL;
}

/* --- the process's ends ---------------------------------------------------------------------- */

static void at_exit(void)
{
	struct dl_gpu_ring *hdr = ring_header();
	uint64_t deadline = now_ns() + EXIT_WAIT_MS * 1000000ULL;

	/* A child of a bare clone() runs no fork handler and has no ring. */
	if (agent.dead || getpid() != agent.pid)
		return;
	atomic_store(&agent.exiting, true);
	while (!agent.exit_done && now_ns() < deadline) {
		futex_wake(&hdr->want);
		futex_wait((uint32_t *)&agent.exit_done, 0, 20);
	}
	__atomic_store_n(&hdr->exited, 1, __ATOMIC_RELEASE);
}

void agent_flush_at_exit(void)
{
	/* Handlers run in reverse order: this one before the destructors of the CUPTI just loaded. */
	atexit(at_exit);
}

static void in_child(void)
{
	agent.dead = true;
	ring_leave();
}

static bool start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int err;

	if (pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_SZ);
	/* The application's signals are for its own threads. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, agent_main, ring_header());
	sigprocmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return !err;
}

/* The driver loads one library: DLBPF_CHAIN_INJECTION names another tool's, which comes after us. */
static void chain(void)
{
	const char *path = getenv("DLBPF_CHAIN_INJECTION");
	int (*init)(void) = NULL;
	void *lib;

	if (!path || !path[0])
		return;
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib)
		init = (int (*)(void))dlsym(lib, "InitializeInjection");
	if (!init && ring_header())
		ring_set_text("DLBPF_CHAIN_INJECTION names no injection library: %.64s", path);
	else if (init && init != InitializeInjection)
		init();
}

static void set_up(void)
{
	const char *off = getenv("DLBPF_GPU_DISABLE");

	if (off && off[0] && strcmp(off, "0"))
		return;
	if (ring_open())
		return;
	if (pthread_atfork(NULL, NULL, in_child) || atexit(at_exit) || !start_thread()) {
		agent.dead = true;
		ring_leave();
	}
}

/* What the driver calls; 1 is success, and failing here must not fail cuInit(). */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
	if (atomic_exchange(&agent.loaded, true))
		return 1;
	agent.pid = getpid();
	set_up();
	chain();
	return 1;
}
