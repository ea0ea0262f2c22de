/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel side as one object: opening, draining, losses, statistics. */
#include "capture/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "base/cleanup.h"
#include "capture/kernel_priv.h"

/* Events in one call of dl_kernel_drain(): where they come faster than they can be handled, the caller
 * still gets to do something else. And of one ring before the next has its turn. */
#define DRAIN_MAX (1 << 18)
#define RING_AT_ONCE (1 << 14)

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

uint64_t dl_kernel_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Deadlines in other clocks are converted in BPF with these; CLOCK_REALTIME may be set at any time. */
static void update_clocks(struct dl_kernel *k)
{
	int64_t before = clock_ns(CLOCK_MONOTONIC), real = clock_ns(CLOCK_REALTIME), boot = clock_ns(CLOCK_BOOTTIME);
	int64_t mono = (before + clock_ns(CLOCK_MONOTONIC)) / 2;

	k->skel->bss->dl_realtime_off_ns = real - mono;
	k->skel->bss->dl_boottime_off_ns = boot - mono;
}

/* --- draining -------------------------------------------------------------------------------- */

static int note_exit(struct dl_kernel *k, const struct dl_ev_exit *ev)
{
	struct dl_dead *dead;

	if (!(ev->flags & DL_EX_LAST))
		return 0;
	dead = vec_push(&k->dead);
	if (!dead)
		return -ENOMEM;
	*dead = (struct dl_dead){ .pid = ev->h.pid, .ts = ev->h.ts };
	return 0;
}

static int emit(struct dl_kernel *k, const struct dl_hdr *ev, size_t sz)
{
	int err = 0;

	if (sz < sizeof(*ev) || ev->size != sz)
		return -EINVAL;	/* our own programs wrote it */
	if (ev->kind == DL_EV_SAMPLE || (ev->kind == DL_EV_SWITCH && sz > sizeof(struct dl_ev_switch)))
		return dl_kernel_emit_stacked(k, ev);
	if (ev->kind == DL_EV_EXIT)
		err = note_exit(k, (const struct dl_ev_exit *)ev);
	return err ? err : k->sink->emit(k->sink, ev);
}

/* libbpf has consumed the event whatever is returned; less than 0 ends the call. */
static int on_event(void *ctx, void *data, size_t sz)
{
	struct dl_kernel *k = ctx;
	int err = emit(k, data, sz);

	if (err)
		return err;
	return ++k->drained >= k->drain_stop ? -ECANCELED : 0;
}

/* One ring, or a part of what is in it; then k->behind is set. */
static int consume(struct dl_kernel *k, struct ring_buffer *ring)
{
	int err;

	k->drain_stop = k->drained + RING_AT_ONCE;
	err = ring_buffer__consume(ring);
	if (err == -ECANCELED) {
		k->behind = true;
		return 0;
	}
	return err < 0 ? err : 1;
}

/* Crash events first: they say of whom the others speak. One ring that is filled all the time must
 * not keep the others from being read. */
int dl_kernel_drain(struct dl_kernel *k)
{
	int err;

	update_clocks(k);
	k->drained = 0;
	k->hurry = false;
	for (int i = 0; i < k->group_cnt; i++)
		k->hurry |= dl_kernel_is_half_full(k, i);
	do {
		k->behind = false;
		for (int i = 0; i < k->group_cnt; i++) {
			err = consume(k, k->crash);
			if (err >= 0)
				err = consume(k, k->sched[i]);
			if (err < 0)
				return err;
			if (err)
				dl_kernel_made_room(k, i);
		}
	} while (k->behind && k->drained < DRAIN_MAX);
	dl_kernel_reap(k);
	/* At once, so that each hole has times of its own. */
	err = k->behind ? 0 : dl_kernel_tell_holes(k);
	return err ? err : k->drained;
}

int dl_kernel_drain_crash(struct dl_kernel *k)
{
	int err;

	k->drained = 0;
	k->behind = k->hurry = false;
	err = consume(k, k->crash);
	dl_kernel_reap(k);
	return err < 0 ? err : k->drained;
}

bool dl_kernel_behind(const struct dl_kernel *k)
{
	return k->behind;
}

bool dl_kernel_in_hurry(const struct dl_kernel *k)
{
	return k->behind || k->hurry;
}

uint32_t dl_kernel_stack_id(struct dl_kernel *k)
{
	return ++k->stack_next;
}

int dl_kernel_watch(const struct dl_kernel *k, int epoll_fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	ev.data.fd = ring_buffer__epoll_fd(k->crash);
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev))
		return -errno;
	/* They hardly ever are empty: what counts is that the kernel side woke somebody. */
	ev.events = EPOLLIN | EPOLLET;
	for (int i = 0; i < k->group_cnt; i++) {
		ev.data.fd = k->ring_fds[i];
		if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev))
			return -errno;
	}
	return 0;
}

/* --- losses ---------------------------------------------------------------------------------- */

static bool is_crash_kind(unsigned int kind)
{
	switch (kind) {
	case DL_EV_FORK:
	case DL_EV_EXEC:
	case DL_EV_EXIT:
	case DL_EV_SIGNAL:
	case DL_EV_SIGBUS_MAP:
	case DL_EV_SIGNAL_DELIVER:
	case DL_EV_OOM_KILL:
	case DL_EV_SYSCALL_FAIL:
	case DL_EV_SHM_UNLINK:
	case DL_EV_CRASH_STACK:
		return true;
	}
	return false;
}

int dl_kernel_tell_loss(struct dl_kernel *k, const struct dl_ev_loss *ev)
{
	const uint64_t key = (uint64_t)ev->shed << 56 | (uint64_t)ev->ring << 32 | ev->cause << 16 | ev->kind;
	uint64_t old = 0;
	int err;

	dl_map_get(&k->losses, key, &old);
	if (ev->cnt <= old)
		return 0;
	err = dl_map_set(&k->losses, key, ev->cnt);
	if (err)
		return err;
	*(ev->cause == DL_LOSS_SHED ? &k->shed_total : &k->loss_total) += ev->cnt - old;
	return k->sink->emit(k->sink, &ev->h);
}

static int report_loss(struct dl_kernel *k, uint32_t ring, uint32_t cause, uint32_t kind, uint64_t cnt)
{
	struct dl_ev_loss ev = DL_EVENT_INIT(loss, DL_EV_LOSS, k->loss_ts, 0, 0);

	ev.ring = ring;
	ev.cause = cause;
	ev.kind = kind;
	ev.cnt = cnt;
	ev.first = k->loss_ts;
	ev.last = dl_kernel_now();	/* at some time since they were told of last */
	return dl_kernel_tell_loss(k, &ev);
}

static int report_cause(struct dl_kernel *k, uint32_t cause, const struct dl_losses *by_cpu)
{
	for (uint32_t kind = 0; kind < DL_EV_MAX; kind++) {
		uint64_t by_ring[DL_RING_CRASH + 1] = {}, any = 0;

		for (int cpu = 0; cpu < k->cpus; cpu++)
			any |= by_cpu[cpu].cnt[kind];
		if (!any)
			continue;	/* nearly always */
		for (int cpu = 0; cpu < k->cpus; cpu++)
			by_ring[is_crash_kind(kind) ? DL_RING_CRASH : cpu >> k->group_shift] += by_cpu[cpu].cnt[kind];
		for (uint32_t ring = 0; ring <= DL_RING_CRASH; ring++) {
			int err = report_loss(k, ring, cause, kind, by_ring[ring]);

			if (err)
				return err;
		}
	}
	return 0;
}

/* A program is not run when it interrupts itself on a CPU. The kernel counts that by program, not
 * by CPU, so these stand under the first ring. */
static int report_misses(struct dl_kernel *k)
{
	uint64_t by_kind[DL_EV_MAX] = {};

	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		struct bpf_prog_info info = {};
		__u32 sz = sizeof(info);

		if (k->use[i] && !bpf_obj_get_info_by_fd(bpf_program__fd(dl_rule_prog(k, &dl_prog_rules[i])), &info, &sz))
			by_kind[dl_prog_rules[i].kind] += info.recursion_misses;
	}
	for (uint32_t kind = 0; kind < DL_EV_MAX; kind++) {
		int err = report_loss(k, is_crash_kind(kind) ? DL_RING_CRASH : 0, DL_LOSS_RECURSION, kind, by_kind[kind]);

		if (err)
			return err;
	}
	return 0;
}

int dl_kernel_emit_losses(struct dl_kernel *k, uint64_t *ret_total)
{
	_cleanup_free_ struct dl_losses *by_cpu = calloc(k->cpus, sizeof(*by_cpu));
	int err;

	if (!by_cpu)
		return -ENOMEM;
	for (__u32 cause = 1; cause < DL_LOSS_CAUSE_MAX; cause++) {
		if (bpf_map_lookup_elem(bpf_map__fd(k->skel->maps.dl_loss), &cause, by_cpu))
			return -errno;
		err = report_cause(k, cause, by_cpu);
		if (err)
			return err;
	}
	err = report_misses(k);
	if (!err)
		err = dl_kernel_emit_sheds(k);
	if (err)
		return err;
	k->loss_ts = dl_kernel_now();
	*ret_total = k->loss_total;
	return 0;
}

int dl_kernel_prog_stats(const struct dl_kernel *k, struct dl_prog_stat *ret, int max)
{
	int cnt = 0;

	for (int i = 0; i < dl_prog_rule_cnt && cnt < max; i++) {
		struct bpf_prog_info info = {};
		__u32 sz = sizeof(info);

		if (!k->use[i])
			continue;
		if (bpf_obj_get_info_by_fd(bpf_program__fd(dl_rule_prog(k, &dl_prog_rules[i])), &info, &sz))
			return -errno;
		ret[cnt++] = (struct dl_prog_stat){ .name = dl_prog_rules[i].name, .run_cnt = info.run_cnt,
						    .run_ns = info.run_time_ns, .recursion_misses = info.recursion_misses };
	}
	return cnt;
}

/* No more than the kernel allows (it lowers the limit when sampling takes too long). */
static uint32_t sample_rate(uint32_t want)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned int max;

	return f && fscanf(f, "%u", &max) == 1 && max && want > max ? max : want;
}

/* --- life cycle ------------------------------------------------------------------------------ */

static int open_readers(struct dl_kernel *k, struct dl_diag *d)
{
	k->crash = ring_buffer__new(bpf_map__fd(k->skel->maps.dl_crash), on_event, k, NULL);
	if (!k->crash)
		return dl_fail_errno(d, -errno, "cannot map the ring of crash events");
	for (int i = 0; i < k->group_cnt; i++) {
		k->sched[i] = ring_buffer__new(k->ring_fds[i], on_event, k, NULL);
		if (!k->sched[i])
			return dl_fail_errno(d, -errno, "cannot map ring %d", i);
	}
	k->skel->bss->dl_shed_epoch = k->shed_epoch = 1;
	k->shed_ts = k->loss_ts = dl_kernel_now();
	return 0;
}

int dl_kernel_open(struct dl_kernel **ret, const struct dl_kernel_opts *opts, struct dl_sink *sink, struct dl_diag *d)
{
	struct dl_kernel *k = calloc(1, sizeof(*k));
	int err;

	if (!k)
		return dl_oom(d);
	k->sink = sink;
	k->opts = *opts;
	k->cpus = libbpf_num_possible_cpus();
	for (int i = 0; i < DL_GROUP_MAX; i++)
		k->ring_fds[i] = -1;
	k->opts.sample_hz = sample_rate(opts->sample_hz);
	err = k->cpus < 1 ? dl_fail_errno(d, k->cpus, "cannot count the CPUs") : 0;
	if (!err)
		err = dl_features_probe(&k->feat, d);
	if (!err)
		err = dl_kernel_load(k, d);
	dl_features_fini(&k->feat);	/* the kernel's types: 6 MiB that nobody needs from here on */
	if (!err)
		err = open_readers(k, d);
	if (!err) {
		update_clocks(k);
		err = dl_kernel_attach(k, d);
	}
	if (!err) {
		err = dl_kernel_emit_absent(k);
		if (err)
			dl_fail_errno(d, err, "cannot write the trace");
	}
	dl_log_end();
	if (err) {
		dl_kernel_close(k);
		return err;
	}
	*ret = k;
	return 0;
}

void dl_kernel_close(struct dl_kernel *k)
{
	if (!k)
		return;
	vec_for_each(&k->links, link)
		bpf_link__destroy(*link);
	dl_kernel_detach_calls(k);
	vec_free(&k->links);
	for (int i = 0; i < DL_GROUP_MAX; i++)
		ring_buffer__free(k->sched[i]);
	ring_buffer__free(k->crash);
	dlbpf_bpf__destroy(k->skel);
	for (int i = 0; i < DL_GROUP_MAX; i++) {
		if (k->ring_fds[i] >= 0)
			close(k->ring_fds[i]);
	}
	dl_features_fini(&k->feat);
	vec_free(&k->dead);
	dl_map_fini(&k->stacks);
	dl_map_fini(&k->losses);
	free(k);
}
