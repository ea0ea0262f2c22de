/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Describes machine, target and recorder for the head of the trace. */
#include "capture/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/version.h"
#include "capture/proc.h"

void dl_rec_meta_fini(struct dl_trace_meta *meta)
{
	free(meta->host);
	free(meta->kernel);
	free(meta->machine);
	free(meta->target_cmdline);
	free(meta->recorder);
	free(meta->record_args);
	free(meta->boot_id);
	*meta = (struct dl_trace_meta){};
}

static char *target_cmdline(const struct dl_record_opts *o, uint32_t pid)
{
	_cleanup_close_ int fd = -1;
	char text[8192] = "";
	uint32_t argc;

	if (o->argv) {
		struct dl_str s = {};

		for (char **arg = o->argv; *arg; arg++)
			dl_str_addf(&s, "%s%s", arg == o->argv ? "" : " ", *arg);
		return dl_str_take(&s);
	}
	fd = dl_proc_open(pid);
	if (fd >= 0)
		dl_proc_cmdline(fd, text, sizeof(text), &argc);
	return strdup(text);
}

/* Both clocks at one instant: read between two readings of the other, the closest of some. */
static void read_clocks(struct dl_trace_meta *meta)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 16; i++) {
		const uint64_t before = dl_now_ns();
		struct timespec real;
		uint64_t after;

		clock_gettime(CLOCK_REALTIME, &real);
		after = dl_now_ns();
		if (after - before >= best)
			continue;
		best = after - before;
		meta->start_ts = before + best / 2;
		meta->start_realtime_ns = (uint64_t)real.tv_sec * DL_NS_PER_S + (uint64_t)real.tv_nsec;
	}
}

int dl_rec_meta_init(struct dl_trace_meta *ret, const struct dl_record_opts *o, uint32_t pid)
{
	struct dl_trace_meta meta = {
		.target_pid = pid,
		.cpus = (uint32_t)sysconf(_SC_NPROCESSORS_CONF),
		.page_sz = (uint32_t)sysconf(_SC_PAGESIZE),
		.sample_hz = o->sample_hz,
	};
	char boot_id[64] = "";
	struct utsname un = {};

	uname(&un);
	if (dl_proc_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id)) > 0)
		boot_id[strcspn(boot_id, "\n")] = '\0';
	read_clocks(&meta);
	meta.host = strdup(un.nodename);
	meta.kernel = strdup(un.release);
	meta.machine = strdup(un.machine);
	meta.target_cmdline = target_cmdline(o, pid);
	meta.recorder = strdup("dlbpf " DLBPF_VERSION);
	meta.record_args = strdup(o->record_args ? o->record_args : "");
	meta.boot_id = strdup(boot_id);
	if (!meta.host || !meta.kernel || !meta.machine || !meta.target_cmdline || !meta.recorder ||
	    !meta.record_args || !meta.boot_id) {
		dl_rec_meta_fini(&meta);
		return -ENOMEM;
	}
	*ret = meta;
	return 0;
}
