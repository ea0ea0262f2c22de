/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Where the data lie, and how fast they come from there. */
#include <string.h>

#include "check/judge.h"

#define SEEK_NS 3000000		/* an SSD takes a tenth of a millisecond, a disk that turns eight */
#define FILE_NS 5000000.0	/* for a small file */
#define SMALL (256 << 10)	/* bytes of one */

void ck_judge_data_fs(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_data *d = &f->data;
	const char *what = d->found ? " (the job reads there)" : "";

	if (!d->asked)
		return;
	if (d->timed_out) {
		ck_say(l, DL_CK_PROBLEM, "%s%s did not answer within 8 s: its file server is gone or overloaded", d->path, what);
		ck_fix(l, "see whether its server answers");
		ck_cmd(l, "timeout 5 ls %s; mount | grep -E 'nfs|fuse|cifs'", d->path);
		return;
	}
	if (!d->fs[0]) {
		ck_say(l, !d->found && d->why[0] ? DL_CK_PROBLEM : DL_CK_UNKNOWN, "%s%s: %s", d->path, what, d->why[0] ? d->why :
		       "its mount was not found");
		return;
	}
	ck_say(l, DL_CK_OK, "%s%s is on %s (%s)", d->path, what, d->fs, d->source);
	switch (d->class) {
	case DL_CK_FS_NETWORK:
		l->state = DL_CK_WARNING;
		ck_add(l, ", a network file system: each small file costs a round trip or more, and all jobs share its server");
		ck_fix(l, "copy the data to a local disk before the run, or pack them into few large files (tar shards, Arrow, LMDB)");
		break;
	case DL_CK_FS_FUSE:
		l->state = DL_CK_WARNING;
		ck_add(l, ", in user space: each read goes through a daemon and back");
		ck_fix(l, "copy the data to a local disk before the run, or read it by the store's own library in large pieces");
		break;
	case DL_CK_FS_MEMORY:
		ck_add(l, ": in memory, which it takes from the job");
		break;
	case DL_CK_FS_OVERLAY:
		ck_add(l, ", the container's own layers: fine for reading; large data are better mounted from outside");
		break;
	case DL_CK_FS_LOCAL:
		ck_add(l, ", local");
		break;
	default:
		ck_add(l, ", of which nothing is known here");
		break;
	}
	/* Virtual disks say that they turn; so the time of a small read decides, where it is known. */
	if (!d->rotational || d->class != DL_CK_FS_LOCAL || (d->seek_ns && d->seek_ns < SEEK_NS))
		return;
	ck_add(l, ", on a disk that turns, or says so");
	if (!d->seek_ns)
		return;
	l->state = DL_CK_WARNING;
	ck_num(l, "seek_s", (double)d->seek_ns / 1e9);
	ck_add(l, ": a small read anywhere takes %.1f ms, and many workers read everywhere", (double)d->seek_ns / 1e6);
	ck_fix(l, "use an SSD, or read large files in sequence");
}

/* Of many small files the time of one counts, not the bytes. */
static void judge_small(const struct dl_ck_data *d, struct dl_ck_line *l)
{
	const double each = (double)d->read_ns / (double)d->file_cnt;

	ck_num(l, "file_s", each / 1e9);
	ck_add(l, "; %.2g ms a file", each / 1e6);
	if (each < FILE_NS)
		return;
	l->state = each < 5 * FILE_NS ? DL_CK_WARNING : DL_CK_PROBLEM;
	ck_add(l, ": a worker waits %.2g s for the files of a batch of 64", 64 * each / 1e9);
	ck_fix(l, "pack the data into few large files (tar shards, Arrow, LMDB), or copy them to a faster disk");
}

void ck_judge_data_rate(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_data *d = &f->data;
	double rate;
	ck_buf a, b, c;

	if (!d->asked || d->timed_out || !d->fs[0])
		return;
	if (!d->read_bytes || !d->read_ns) {
		ck_say(l, DL_CK_UNKNOWN, "not measured: %s", d->why[0] ? d->why : "nothing could be read");
		return;
	}
	rate = (double)d->read_bytes * 1e9 / (double)d->read_ns;
	ck_num(l, "bytes_per_s", rate);
	ck_num(l, "read_bytes", (double)d->read_bytes);
	ck_num(l, "files", (double)d->file_cnt);
	ck_say(l, DL_CK_OK, "%s a second by one reader (%s in %s file%s, ", ck_size(a, (uint64_t)rate), ck_size(b, d->read_bytes),
	       ck_cnt(c, d->file_cnt), d->file_cnt == 1 ? "" : "s");
	if (d->direct)
		ck_add(l, "past the page cache)");
	else if (d->cached < 0)
		ck_add(l, "perhaps from the page cache)");
	else
		ck_add(l, "%.0f %% of it from the page cache)", d->cached * 100);
	if (f->target != DL_CK_SELF && d->found)
		ck_add(l, ", beside the job");
	/* So much cached tells nothing of the disk. */
	if (!d->direct && (d->cached < 0 || d->cached > 0.5) && rate > 1e8) {
		l->state = DL_CK_UNKNOWN;
		ck_add(l, ": what the disk alone gives is not known");
		return;
	}
	if (d->read_bytes < 1 << 20 && d->file_cnt < 8) {
		l->state = DL_CK_UNKNOWN;
		ck_add(l, ": too little to judge by");
		return;
	}
	if (d->read_bytes / d->file_cnt < SMALL) {
		judge_small(d, l);
		return;
	}
	if (rate >= 100e6)
		return;
	l->state = rate < 10e6 ? DL_CK_PROBLEM : DL_CK_WARNING;
	ck_add(l, ": slow; 1 GiB takes one reader %.0f s", (double)(1 << 30) / rate);
	ck_fix(l, "copy the data to a faster disk, read in larger pieces, use more workers while the disk is not yet busy");
}
