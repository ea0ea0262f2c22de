/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* /dev/shm: where each finished batch lies until the training drops it. */
#include <string.h>

#include "check/judge.h"

enum { DEFAULT_MIB = 64 };	/* what container runtimes give */

/* A size to ask for: a quarter more than needed, rounded up. */
static uint64_t suggest(uint64_t bytes)
{
	const uint64_t mib = (bytes + bytes / 4 + (1 << 20) - 1) >> 20;
	const uint64_t step = mib < 64 ? 16 : mib < 1024 ? 64 : 256;

	return (mib + step - 1) / step * step;
}

static void fix_size(const struct dl_ck_facts *f, struct dl_ck_line *l, uint64_t bytes)
{
	const unsigned long long mib = suggest(bytes);

	ck_num(l, "suggested_bytes", (double)(mib << 20));
	if (f->place == DL_CK_KUBERNETES) {
		ck_fix(l, "mount a memory volume of %llu MiB over /dev/shm (it counts against the pod's memory limit)", mib);
		ck_cmd(l, "volumes: [{ name: shm, emptyDir: { medium: Memory, sizeLimit: %lluMi } }]", mib);
		ck_cmd(l, "volumeMounts: [{ name: shm, mountPath: /dev/shm }]");
	} else if (f->place == DL_CK_CONTAINER) {
		ck_fix(l, "give the container %llu MiB when it is made (a container that exists keeps its size)", mib);
		ck_cmd(l, "docker run --shm-size=%llum ...", mib);
	} else {
		ck_fix(l, "make it %llu MiB", mib);
		ck_cmd(l, "sudo mount -o remount,size=%lluM /dev/shm", mib);
	}
	ck_fix(l, "or fewer workers, a smaller prefetch_factor, smaller batches");
}

/* "2 workers x 2 batches ahead + 1 in use, of 4.6 MiB each" */
static void say_need(struct dl_ck_line *l, const struct dl_ck_need *n)
{
	ck_buf a, b;

	if (n->by_peak) {
		ck_add(l, "the loaders held %s at once while watched", ck_size(a, n->bytes));
		return;
	}
	ck_add(l, "%u worker%s x %u batches ahead%s + %u in use, of %s%s each, need %s", n->workers, n->workers == 1 ? "" : "s",
	       n->prefetch, n->prefetch_assumed ? " (assumed: prefetch_factor)" : "", n->held, n->at_least ? "at least " : "",
	       ck_size(a, n->batch), ck_size(b, n->bytes));
}

static void add_numbers(struct dl_ck_line *l, const struct dl_ck_facts *f, const struct dl_ck_need *n, uint64_t others)
{
	ck_num(l, "total_bytes", (double)f->shm.total);
	ck_num(l, "used_bytes", (double)f->shm.used);
	ck_num(l, "others_bytes", (double)others);
	if (!n->bytes)
		return;
	ck_num(l, "needed_bytes", (double)n->bytes);
	ck_num(l, "batch_bytes", (double)n->batch);
	ck_num(l, "workers", n->workers);
	ck_num(l, "prefetch", n->prefetch);
	ck_num(l, "held", n->held);
}

static void judge_unknown_need(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	ck_buf a, b;

	if (f->shm.total <= (uint64_t)DEFAULT_MIB << 20) {
		ck_say(l, DL_CK_WARNING, "%s, as containers have it unless told otherwise: one batch of 32 images (224 x 224, float32) "
		       "takes 18.4 MiB, and each worker keeps two", ck_size(a, f->shm.total));
		fix_size(f, l, 1ULL << 30);
		return;
	}
	ck_say(l, DL_CK_UNKNOWN, "%s, %s of it used; what the loaders need is not known (-p PID, a command, or --workers and "
	       "--batch-bytes)", ck_size(a, f->shm.total), ck_size(b, f->shm.used));
}

/* A command that failed when one more batch of each worker would have filled it. */
static bool died_full(const struct dl_ck_facts *f, const struct dl_ck_need *n, uint64_t have)
{
	return f->seen.ended && f->seen.status && f->seen.peak_bytes && f->seen.peak_bytes + n->workers * n->batch > have;
}

void ck_judge_shm_size(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_shm *shm = &f->shm;
	const struct dl_ck_need n = dl_ck_need_of(f);
	const uint64_t others = shm->used > f->seen.now_bytes ? shm->used - f->seen.now_bytes : 0;
	const uint64_t have = shm->total > others ? shm->total - others : 0;
	ck_buf a, b;

	if (!shm->known) {
		ck_say(l, shm->missing ? DL_CK_PROBLEM : DL_CK_UNKNOWN, "%s", shm->missing ? "there is none, and the DataLoader's "
		       "workers cannot do without" : shm->why);
		if (shm->missing)
			ck_cmd(l, "sudo mkdir -p /dev/shm && sudo mount -t tmpfs tmpfs /dev/shm");
		return;
	}
	add_numbers(l, f, &n, others);
	if (!n.bytes) {
		judge_unknown_need(f, l);
	} else {
		if (shm->total)
			ck_say(l, DL_CK_OK, "%s", ck_size(a, shm->total));
		else
			ck_say(l, DL_CK_OK, "no limit of its own");
		if (others > shm->total / 50 && shm->total)
			ck_add(l, ", %s of it used by others", ck_size(b, others));
		ck_add(l, "; ");
		say_need(l, &n);
		if (f->seen.failed)
			ck_add(l, "; it was full while watched: %u object%s got no memory", f->seen.failed,
			       f->seen.failed == 1 ? "" : "s");
		else if (died_full(f, &n, have))
			ck_add(l, "; the command failed with %s of it in use", ck_size(b, f->seen.peak_bytes));
		if (shm->total && (n.bytes > have || f->seen.failed || died_full(f, &n, have)))
			l->state = DL_CK_PROBLEM;
		else if (shm->total && n.bytes > have / 5 * 4)
			l->state = DL_CK_WARNING;
		else if (shm->total && n.bytes > have / 2)
			ck_add(l, "; a second loader at the same time (validation) would not fit");
		if (l->state != DL_CK_OK)
			fix_size(f, l, n.bytes + others);
	}
	if (!shm->tmpfs) {
		l->state = DL_CK_PROBLEM;
		ck_add(l, "; and it is no tmpfs: each batch goes to a disk");
		ck_fix(l, "mount memory over it");
		ck_cmd(l, "sudo mount -t tmpfs tmpfs /dev/shm");
	}
}

void ck_judge_shm_inodes(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_need n = dl_ck_need_of(f);
	ck_buf a, b;

	if (!f->shm.known || !f->shm.inodes)
		return;
	ck_num(l, "free", (double)f->shm.inodes_free);
	ck_say(l, DL_CK_OK, "%s files more may be made", ck_cnt(a, f->shm.inodes_free));
	if (n.storages)
		ck_add(l, ", the loaders have %s at once", ck_cnt(b, n.storages));
	if (f->shm.inodes_free > (n.storages > 16 ? n.storages : 16))
		return;
	l->state = DL_CK_PROBLEM;
	ck_fix(l, "allow more files");
	ck_cmd(l, "sudo mount -o remount,nr_inodes=%llu /dev/shm", (unsigned long long)(f->shm.inodes + 2 * n.storages + 4096));
}

void ck_judge_shm_left(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_shm *shm = &f->shm;
	ck_buf a, b;

	if (!shm->known)
		return;
	ck_num(l, "files", (double)shm->torch_cnt);
	if (!shm->torch_cnt) {
		ck_say(l, DL_CK_OK, "nothing was left behind by runs that have ended");
		return;
	}
	if (!shm->owners_known) {
		ck_say(l, DL_CK_UNKNOWN, "%s files torch_* hold %s; whether their processes still live cannot be seen from here",
		       ck_cnt(a, shm->torch_cnt), ck_size(b, shm->torch_bytes));
		return;
	}
	ck_num(l, "dead_files", (double)shm->dead_cnt);
	ck_num(l, "dead_bytes", (double)shm->dead_bytes);
	if (!shm->dead_cnt) {
		ck_say(l, DL_CK_OK, "the processes of all %s files torch_* live", ck_cnt(a, shm->torch_cnt));
		return;
	}
	ck_say(l, shm->total && shm->dead_bytes > shm->total / 4 ? DL_CK_PROBLEM : DL_CK_WARNING,
	       "%s file%s torch_* of processes that are gone hold %s", ck_cnt(a, shm->dead_cnt), shm->dead_cnt == 1 ? "" : "s",
	       ck_size(b, shm->dead_bytes));
	if (shm->failed_cnt)
		ck_add(l, "; %s without any memory: when they were made, /dev/shm was full", ck_cnt(a, shm->failed_cnt));
	ck_fix(l, "remove those whose process is gone%s", f->place == DL_CK_HOST ? "" : ", inside the container");
	ck_cmd(l, "for f in /dev/shm/torch_*; do p=${f#*_}; [ -d /proc/${p%%%%_*} ] || rm \"$f\"; done");
}
