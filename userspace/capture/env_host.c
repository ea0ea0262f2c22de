/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The machine: memory, swapping, pressure, idle time. Files stay open and are read from the start. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/env.h"
#include "capture/proc.h"

enum { MEMINFO, VMSTAT, STAT, PSI_CPU, PSI_MEM, PSI_IO, LOADAVG, FILE_NR, OVERCOMMIT };

static const char *const files[DL_HOST_FILES] = {
	[MEMINFO] = "/proc/meminfo",
	[VMSTAT] = "/proc/vmstat",
	[STAT] = "/proc/stat",
	[PSI_CPU] = "/proc/pressure/cpu",
	[PSI_MEM] = "/proc/pressure/memory",
	[PSI_IO] = "/proc/pressure/io",
	[LOADAVG] = "/proc/loadavg",
	[FILE_NR] = "/proc/sys/fs/file-nr",
	[OVERCOMMIT] = "/proc/sys/vm/overcommit_memory",
};

static uint64_t read_threads_limit(void)
{
	uint64_t threads, pids;

	if (!dl_proc_read_u64(AT_FDCWD, "/proc/sys/kernel/threads-max", &threads) ||
	    !dl_proc_read_u64(AT_FDCWD, "/proc/sys/kernel/pid_max", &pids))
		return 0;
	return threads < pids ? threads : pids;
}

void dl_env_host_open(struct dl_env_host *h)
{
	char c;

	for (size_t i = 0; i < DL_HOST_FILES; i++) {
		h->fd[i] = open(files[i], O_RDONLY | O_CLOEXEC);
		/* Booted with psi=0, the files are there and cannot be read. */
		if (h->fd[i] >= 0 && pread(h->fd[i], &c, 1, 0) < 1) {
			close(h->fd[i]);
			h->fd[i] = -1;
		}
	}
	h->threads_limit = read_threads_limit();
}

void dl_env_host_close(struct dl_env_host *h)
{
	for (size_t i = 0; i < DL_HOST_FILES; i++) {
		if (h->fd[i] >= 0)
			close(h->fd[i]);
		h->fd[i] = -1;
	}
}

static uint64_t value(const char *text, const char *key, uint64_t unit)
{
	uint64_t nr = 0;

	return dl_text_u64(text, key, &nr) ? nr * unit : 0;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234", in microseconds */
static uint64_t psi_total(const char *text)
{
	const char *total = strncmp(text, "some ", 5) ? NULL : strstr(text, "total=");

	return total ? strtoull(total + 6, NULL, 10) * 1000 : 0;
}

/* "cpu  user nice system idle iowait ...": a CPU whose threads all wait for I/O is idle too. */
static uint64_t idle_ns(const char *text)
{
	const uint64_t tick_ns = DL_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t field[5];
	char *p;

	if (strncmp(text, "cpu ", 4))
		return 0;
	p = (char *)text + 4;
	for (int i = 0; i < 5; i++)
		field[i] = strtoull(p, &p, 10);
	return (field[3] + field[4]) * tick_ns;
}

static void read_tasks_and_files(const struct dl_env_host *h, struct dl_ev_env_host *ev)
{
	char buf[256], *end;
	const char *slash;

	/* "0.20 0.18 0.12 1/80 11206": threads that run, and all */
	if (h->fd[LOADAVG] >= 0 && dl_pread_text(h->fd[LOADAVG], buf, sizeof(buf)) > 0) {
		slash = strchr(buf, '/');
		ev->threads = slash ? strtoull(slash + 1, NULL, 10) : 0;
		ev->threads_limit = h->threads_limit;
	}
	/* in use, 0 since 2.6, and the limit */
	if (h->fd[FILE_NR] >= 0 && dl_pread_text(h->fd[FILE_NR], buf, sizeof(buf)) > 0) {
		ev->files = strtoull(buf, &end, 10);
		strtoull(end, &end, 10);
		ev->files_limit = strtoull(end, NULL, 10);
	}
}

/* The limit stands in meminfo always, and holds in mode 2 only. */
static bool commit_is_limited(const struct dl_env_host *h)
{
	char buf[16];

	return h->fd[OVERCOMMIT] >= 0 && dl_pread_text(h->fd[OVERCOMMIT], buf, sizeof(buf)) > 0 && buf[0] == '2';
}

int dl_env_host_emit(const struct dl_env_host *h, struct dl_sink *sink, uint64_t ts)
{
	struct dl_ev_env_host ev = DL_EVENT_INIT(env_host, DL_EV_ENV_HOST, ts, 0, 0);
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	char buf[16384];

	if (h->fd[MEMINFO] >= 0 && dl_pread_text(h->fd[MEMINFO], buf, sizeof(buf)) > 0) {
		ev.mem_total = value(buf, "MemTotal", 1024);
		ev.mem_avail = value(buf, "MemAvailable", 1024);
		ev.swap_total = value(buf, "SwapTotal", 1024);
		ev.swap_free = value(buf, "SwapFree", 1024);
		ev.committed = value(buf, "Committed_AS", 1024);
		ev.commit_limit = commit_is_limited(h) ? value(buf, "CommitLimit", 1024) : 0;
	}
	if (h->fd[VMSTAT] >= 0 && dl_pread_text(h->fd[VMSTAT], buf, sizeof(buf)) > 0) {
		ev.pswpin = value(buf, "pswpin", 1);
		ev.pswpout = value(buf, "pswpout", 1);
	}
	if (h->fd[STAT] >= 0 && dl_pread_text(h->fd[STAT], buf, 256) > 0)
		ev.idle_ns = idle_ns(buf);
	if (h->fd[PSI_CPU] >= 0 && dl_pread_text(h->fd[PSI_CPU], buf, 256) > 0)
		ev.psi_cpu_ns = psi_total(buf);
	if (h->fd[PSI_MEM] >= 0 && dl_pread_text(h->fd[PSI_MEM], buf, 256) > 0)
		ev.psi_mem_ns = psi_total(buf);
	if (h->fd[PSI_IO] >= 0 && dl_pread_text(h->fd[PSI_IO], buf, 256) > 0)
		ev.psi_io_ns = psi_total(buf);
	read_tasks_and_files(h, &ev);
	ev.cpus = cpus > 0 ? (uint32_t)cpus : 0;
	return sink->emit(sink, &ev.h);
}
