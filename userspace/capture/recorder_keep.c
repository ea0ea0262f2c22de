/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The flight recorder: what goes into segments instead of a file, what fires, what is saved and when.
 *
 * A trigger is marked in the recording. The first one, and the first after the cool-down, is saved as a
 * trace of its own a little later, so that what it led to is in there as well. How the recording ends is
 * always saved, in the file that the user named.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/forecast.h"
#include "capture/keep.h"
#include "capture/meta.h"
#include "capture/output.h"
#include "capture/recorder_int.h"

#define TAIL_NS (5 * DL_NS_PER_S)
#define TOLD_FORECAST_NS (30 * 60 * DL_NS_PER_S)	/* limits that are met later are not worth a word */

/* A trace that was saved while the recording went on. */
struct saved { char *path; enum dl_trigger what; };

struct dl_rec_keep {
	struct dl_keep *k;
	struct dl_trace_meta meta;
	struct dl_triggers triggers;
	struct dl_lines *lines;
	int out_fd;		/* of the file for the end; -1 handed over */
	/* what fired and is going to be saved */
	struct dl_fired due;
	uint64_t due_ts;	/* when; 0 nothing */
	uint64_t saved_ts;	/* when what was saved last had fired; 0 never */
	time_t due_wall;
	/* what is being saved */
	pid_t saver;		/* 0 none */
	struct saved saving;
	DL_VEC(struct saved) saved;
	uint32_t saved_cnt;
	char forecast[64];
	bool told_full;
};

/* --- begin --------------------------------------------------------------------------------------- */

static void told(const char *text, void *arg)
{
	dl_rec_note(arg, text);
}

static int open_all(struct dl_recorder *r, struct dl_rec_keep *rk, struct dl_diag *d)
{
	const struct dl_record_keep *o = r->o->keep;
	const struct dl_keep_opts opts = { .span_ns = o->span_ns, .max_sz = o->max_sz, .base = r->o->path,
					   .told = { told, r } };
	_cleanup_free_ char *dir = NULL;
	int err;

	if (dl_rec_meta_init(&rk->meta, r->o, r->root_pid))
		return dl_oom(d);
	if (asprintf(&dir, "%s.keep", r->o->path) < 0) {
		dir = NULL;
		return dl_oom(d);
	}
	if (dl_lines_new(&rk->lines))
		return dl_oom(d);
	/* Now, so that whoever may not write there learns it before the run and not behind it. */
	rk->out_fd = dl_output_open(r->o->path, r->o->invoker, d);
	if (rk->out_fd < 0)
		return rk->out_fd;
	err = dl_keep_open(&rk->k, &opts, dir, r->o->invoker, &rk->meta, d);
	if (err)
		dl_output_remove(r->o->path, r->o->invoker);
	return err;
}

static void keep_free(struct dl_rec_keep *rk, bool and_remove)
{
	int err;

	if (rk->saver > 0)
		dl_keep_saved(rk->saver, true, &err);
	dl_keep_close(rk->k, and_remove);
	dl_lines_free(rk->lines);
	dl_rec_meta_fini(&rk->meta);
	vec_for_each(&rk->saved, it)
		free(it->path);
	vec_free(&rk->saved);
	free(rk->saving.path);
	if (rk->out_fd >= 0)
		close(rk->out_fd);
	free(rk);
}

int dl_rec_keep_open(struct dl_recorder *r, struct dl_diag *d)
{
	struct dl_rec_keep *rk = calloc(1, sizeof(*rk));
	int err;

	if (!rk)
		return dl_oom(d);
	rk->out_fd = -1;
	rk->triggers = r->o->keep->triggers;
	err = open_all(r, rk, d);
	if (err) {
		keep_free(rk, true);
		return err;
	}
	r->keep = rk;
	return 0;
}

void dl_rec_keep_abort(struct dl_recorder *r)
{
	if (!r->keep)
		return;
	keep_free(r->keep, true);
	r->keep = NULL;
	dl_output_remove(r->o->path, r->o->invoker);
}

/* --- triggers ------------------------------------------------------------------------------------ */

static bool is_cooling(const struct dl_recorder *r, const struct dl_rec_keep *rk, uint64_t now)
{
	return rk->saved_ts && now - rk->saved_ts < r->o->keep->cooldown_ns;
}

/* What the user asks for is saved at once and whenever asked; and a forecast before it comes true. */
static bool is_at_once(enum dl_trigger what)
{
	return what == DL_TRIGGER_SIGNAL || what == DL_TRIGGER_FORECAST;
}

static int fire(struct dl_recorder *r, const struct dl_fired *f)
{
	struct dl_rec_keep *rk = r->keep;
	const uint64_t now = dl_now_ns();
	char text[sizeof(f->text) + 64];
	int err;

	err = dl_rec_mark(r, DL_MARK_TRIGGER, (int32_t)f->what, f->text);
	if (err || rk->due_ts)
		return err;
	if (f->what != DL_TRIGGER_SIGNAL && is_cooling(r, rk, now)) {
		snprintf(text, sizeof(text), "%s: %s; not saved, --cooldown is not over", dl_trigger_name(f->what), f->text);
		dl_rec_note(r, text);
		return 0;
	}
	rk->due = *f;
	rk->due_ts = is_at_once(f->what) ? now : now + TAIL_NS;
	rk->due_wall = time(NULL);
	rk->saved_ts = now;
	dl_keep_hold(rk->k, now);
	snprintf(text, sizeof(text), "%s: %s", dl_trigger_name(f->what), f->text);
	dl_rec_note(r, text);
	return 0;
}

int dl_rec_keep_write(struct dl_recorder *r, const struct dl_hdr *ev)
{
	struct dl_rec_keep *rk = r->keep;
	struct dl_fired f;
	int err;

	err = dl_keep_write(rk->k, ev);
	if (err)
		return err;
	dl_lines_event(rk->lines, ev);
	return dl_trigger_event(&rk->triggers, dl_keep_state(rk->k), ev, &f) ? fire(r, &f) : 0;
}

int dl_rec_keep_asked(struct dl_recorder *r)
{
	struct dl_fired f = { .what = DL_TRIGGER_SIGNAL, .text = "it was asked for by SIGUSR1" };

	return r->keep && r->keep->triggers.on[DL_TRIGGER_SIGNAL] ? fire(r, &f) : 0;
}

void dl_rec_keep_ending(struct dl_recorder *r)
{
	if (r->keep)
		r->keep->triggers.ending = true;
}

static int look_ahead(struct dl_recorder *r, uint64_t now)
{
	struct dl_rec_keep *rk = r->keep;
	struct dl_fired f = { .what = DL_TRIGGER_FORECAST };
	struct dl_line_forecast next, save;
	bool due;

	rk->forecast[0] = '\0';
	if (dl_lines_next(rk->lines, now, TOLD_FORECAST_NS, &next, r->o->keep->forecast_ns, &save, &due))
		memcpy(rk->forecast, next.brief, sizeof(rk->forecast));
	if (!due)
		return 0;
	memcpy(f.text, save.text, sizeof(f.text));
	return fire(r, &f);
}

static int look_at_time(struct dl_recorder *r, uint64_t now)
{
	struct dl_rec_keep *rk = r->keep;
	struct dl_fired f[DL_TRIGGER_MAX];
	const int cnt = dl_trigger_tick(&rk->triggers, dl_keep_state(rk->k), now, f);
	int err = 0;

	for (int i = 0; i < cnt && !err; i++)
		err = fire(r, &f[i]);
	return err ? err : look_ahead(r, now);
}

/* --- saving -------------------------------------------------------------------------------------- */

/* The oldest of the same trigger, when there are as many as there may be. */
static size_t too_many(const struct dl_recorder *r, const struct dl_rec_keep *rk, enum dl_trigger what)
{
	size_t oldest = SIZE_MAX;
	uint32_t cnt = 0;

	for (size_t i = rk->saved.cnt; i-- > 0;) {
		if (rk->saved.v[i].what != what)
			continue;
		oldest = i;
		cnt++;
	}
	return r->o->keep->bundles && cnt >= r->o->keep->bundles ? oldest : SIZE_MAX;
}

static void begin_saving(struct dl_recorder *r)
{
	struct dl_rec_keep *rk = r->keep;
	const size_t old = too_many(r, rk, rk->due.what);
	char stop[sizeof(rk->due.text) + 64];
	struct dl_keep_out out = { .fd = -1, .remove = old == SIZE_MAX ? NULL : rk->saved.v[old].path,
				   .stop = stop };
	char text[512];
	pid_t pid;

	snprintf(stop, sizeof(stop), "saved since %s; the recording goes on", rk->due.text);
	rk->due_ts = 0;
	rk->saving = (struct saved){ dl_keep_name(r->o->path, rk->due_wall, dl_trigger_name(rk->due.what)), rk->due.what };
	out.path = rk->saving.path;
	pid = out.path ? dl_keep_save(rk->k, r->drain_ts, &out) : -ENOMEM;
	dl_keep_hold(rk->k, 0);
	if (pid < 0) {
		snprintf(text, sizeof(text), "cannot save what was kept: %s", strerror(-pid));
		dl_rec_note(r, text);
		free(rk->saving.path);
		rk->saving.path = NULL;
		return;
	}
	rk->saver = pid;
	if (old == SIZE_MAX)
		return;
	free(rk->saved.v[old].path);
	rk->saved.cnt--;
	memmove(rk->saved.v + old, rk->saved.v + old + 1, (rk->saved.cnt - old) * sizeof(*rk->saved.v));
}

static void end_saving(struct dl_recorder *r, bool wait)
{
	struct dl_rec_keep *rk = r->keep;
	struct saved *slot;
	char text[512];
	int err;

	if (!rk->saver || !dl_keep_saved(rk->saver, wait, &err))
		return;
	rk->saver = 0;
	if (err)
		snprintf(text, sizeof(text), "cannot save %s: %s", rk->saving.path, strerror(-err));
	else
		snprintf(text, sizeof(text), "saved %s", rk->saving.path);
	dl_rec_note(r, text);
	rk->saved_cnt += !err;
	slot = err ? NULL : vec_push(&rk->saved);
	if (slot)
		*slot = rk->saving;
	else
		free(rk->saving.path);
	rk->saving.path = NULL;
}

int dl_rec_keep_tick(struct dl_recorder *r, uint64_t now)
{
	struct dl_rec_keep *rk = r->keep;
	struct dl_keep_stats st;
	int err;

	err = dl_keep_tick(rk->k, now, r->drain_ts);
	if (!err)
		err = look_at_time(r, now);
	if (err)
		return err;
	end_saving(r, false);
	if (rk->due_ts && now >= rk->due_ts && !rk->saver)
		begin_saving(r);
	dl_keep_stats(rk->k, now, &st);
	if (st.full && !rk->told_full)
		dl_rec_note(r, "the disk is full: what was kept last stays, new events are lost until there is room");
	rk->told_full = st.full;
	if (r->k && dl_kstate_wants_new_stacks(dl_keep_state(rk->k)))
		dl_kernel_forget_stacks(r->k);
	return 0;
}

/* --- what is told, and the end ------------------------------------------------------------------- */

uint64_t dl_rec_keep_lost(const struct dl_recorder *r)
{
	struct dl_keep_stats ks;

	dl_keep_stats(r->keep->k, 0, &ks);
	return ks.lost;
}

uint64_t dl_rec_keep_dropped(const struct dl_recorder *r)
{
	return dl_kstate_dropped(dl_keep_state(r->keep->k));
}

void dl_rec_keep_status(const struct dl_recorder *r, uint64_t now, struct dl_record_status *st)
{
	struct dl_keep_stats ks;

	dl_keep_stats(r->keep->k, now, &ks);
	st->events = ks.events;
	st->lost += ks.lost;
	st->file_bytes = ks.kept_bytes;
	st->kept_ns = ks.kept_ns;
	st->forecast = r->keep->forecast;
}

int dl_rec_keep_finish(struct dl_recorder *r, struct dl_record_result *res, struct dl_diag *d)
{
	struct dl_rec_keep *rk = r->keep;
	const struct dl_keep_out out = { .fd = rk->out_fd, .path = r->o->path, .last = true };
	struct dl_keep_stats ks;
	char text[512];
	pid_t pid;
	int err;

	end_saving(r, true);
	pid = dl_keep_save(rk->k, dl_now_ns(), &out);
	err = pid < 0 ? pid : 0;
	if (pid > 0)
		dl_keep_saved(pid, true, &err);
	dl_keep_stats(rk->k, dl_now_ns(), &ks);
	res->events = ks.events;
	res->lost += ks.lost;
	res->kept_ns = ks.kept_ns;
	res->saved = rk->saved_cnt;
	if (err) {
		snprintf(text, sizeof(text), "what could not be written to %s stays in %s.keep", r->o->path, r->o->path);
		dl_rec_note(r, text);
		err = dl_fail_errno(d, err, "cannot write %s", r->o->path);
	}
	keep_free(rk, !err);
	r->keep = NULL;
	return err;
}
