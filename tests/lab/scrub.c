/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Makes a small trace for the repository from a recorded one: a window of it, without the names of
 * the machine, of its files and of other people's programs.
 *
 *	scrub FILE OUT [FROM_MS TO_MS]		milliseconds since the start of the recording
 *
 * What lives outside the window but explains what is in it (threads, symbols, texts) stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/schema.h"
#include "trace/trace.h"

static void die(const char *what, const char *why)
{
	fprintf(stderr, "scrub: %s: %s\n", what, why);
	exit(1);
}

static bool is_wanted(const struct dl_hdr *ev, uint64_t from, uint64_t to)
{
	switch (ev->kind) {
	case DL_EV_MMAP:
		return false;
	case DL_EV_SYMBOL:	/* the kernel's decide what samples mean; others name the machine's files */
		return ev->pid == 0;
	case DL_EV_NAME:
	case DL_EV_FORK:
	case DL_EV_EXEC:
	case DL_EV_EXIT:
	case DL_EV_TASK:
	case DL_EV_CMDLINE:
	case DL_EV_STACK:
	case DL_EV_STRING:
	case DL_EV_GPU_SOURCE:
	case DL_EV_GPU_DEVICE:
	case DL_EV_MARK:
	case DL_EV_LOSS:
	case DL_EV_ABSENT:
		return true;
	}
	return ev->ts >= from && ev->ts <= to;
}

/* The event with another text in its tail. */
static const struct dl_hdr *with_tail(const struct dl_hdr *ev, const char *text)
{
	static union { struct dl_hdr h; char bytes[4096]; } out;
	size_t fixed = dl_event_desc(ev->kind)->size, len = strlen(text);

	memcpy(&out, ev, fixed);
	memcpy(out.bytes + fixed, text, len);
	out.h.size = (uint16_t)(fixed + len);
	return &out.h;
}

static const struct dl_hdr *renamed(const struct dl_hdr *ev)
{
	static struct dl_ev_name name;

	if (!(ev->flags & DL_HDR_FOREIGN) || !strncmp(((const struct dl_ev_name *)ev)->comm.s, "dlbpf", 5) || ((const struct dl_ev_name *)ev)->flags & DL_NM_KTHREAD)
		return ev;
	memcpy(&name, ev, sizeof(name));
	memset(&name.comm, 0, sizeof(name.comm));
	strcpy(name.comm.s, "other");
	return &name.h;
}

static const struct dl_hdr *scrubbed(const struct dl_hdr *ev)
{
	switch (ev->kind) {
	case DL_EV_NAME:
		return renamed(ev);
	case DL_EV_CMDLINE:
		return with_tail(ev, "python3 train.py");
	case DL_EV_EXEC:
		return with_tail(ev, "/usr/bin/python3");
	case DL_EV_ENV_CGROUP:
		return with_tail(ev, "/job");
	case DL_EV_GPU_SOURCE:
		return with_tail(ev, "CUPTI (simulated)");
	case DL_EV_MARK:
		return with_tail(ev, "");
	}
	return ev;
}

static struct dl_trace_writer *writer_for(const char *path, const struct dl_trace_info *info)
{
	struct dl_trace_writer_opts opts = { .frame_ns = 4000000000U, .level = 19 };
	struct dl_trace_meta meta = info->meta;
	struct dl_trace_writer *w = NULL;
	struct dl_diag d = {};
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		die(path, strerror(errno));
	meta.host = (char *)"host";
	meta.kernel = (char *)"";
	meta.boot_id = (char *)"";
	meta.target_cmdline = (char *)"python3 train.py";
	meta.record_args = (char *)"dlbpf record";
	if (dl_trace_writer_open(&w, fd, &meta, &opts, &d))
		die(path, d.msg);
	return w;
}

int main(int argc, char **argv)
{
	uint64_t from = 0, to = UINT64_MAX;
	struct dl_trace *t = NULL;
	struct dl_trace_writer *w;
	const struct dl_hdr *ev;
	struct dl_diag d = {};
	int got;

	if (argc != 3 && argc != 5)
		die("usage", "scrub FILE OUT [FROM_MS TO_MS]");
	if (dl_trace_open(&t, argv[1], &d))
		die(argv[1], d.msg);
	if (argc == 5) {
		from = dl_trace_info(t)->first_ts + strtoull(argv[3], NULL, 10) * 1000000;
		to = dl_trace_info(t)->first_ts + strtoull(argv[4], NULL, 10) * 1000000;
	}
	w = writer_for(argv[2], dl_trace_info(t));
	while ((got = dl_trace_next(t, &ev)) > 0) {
		if (!is_wanted(ev, from, to))
			continue;
		ev = scrubbed(ev);
		if (dl_trace_write(w, ev))
			die(argv[2], "cannot write");
	}
	if (got < 0)
		die(argv[1], strerror(-got));
	if (dl_trace_writer_close(w, &d))
		die(argv[2], d.msg);
	dl_trace_close(t);
	return 0;
}
