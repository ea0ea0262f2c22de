/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tells what the kernel side left out of rings that filled (bpf/shed.bpf.h): how much of which class, and when. */
#include <stdlib.h>

#include <bpf/bpf.h>

#include "base/cleanup.h"
#include "capture/kernel_priv.h"
#include "capture/shed.h"

/* Of a class in one ring. */
static int report(struct dl_kernel *k, uint32_t ring, const struct dl_shed_rule *r, const struct dl_shed_sum *sum)
{
	struct dl_ev_loss ev = DL_EVENT_INIT(loss, DL_EV_LOSS, sum->first, 0, 0);

	ev.ring = ring;
	ev.cause = dl_shed_cause(r);
	ev.kind = r->kind;
	ev.cnt = sum->cnt;
	ev.first = sum->first;
	ev.last = sum->last;
	ev.shed = r->shed;
	if (!sum->first) {	/* counted between the last look and the raise of the epoch */
		ev.h.ts = ev.first = k->shed_ts;
		ev.last = k->shed_ts;
	}
	return dl_kernel_tell_loss(k, &ev);
}

static int report_class(struct dl_kernel *k, const struct dl_shed_rule *r, const struct dl_shed_cnt *by_cpu)
{
	struct dl_shed_sum sum;
	int err = 0;

	if (r->crash) {
		sum = dl_shed_sum(by_cpu, 0, k->cpus, k->shed_epoch);
		return report(k, DL_RING_CRASH, r, &sum);
	}
	for (int ring = 0; ring < k->group_cnt && !err; ring++) {
		const int from = ring << k->group_shift, to = (ring + 1) << k->group_shift;

		sum = dl_shed_sum(by_cpu, from, to < k->cpus ? to : k->cpus, k->shed_epoch);
		err = report(k, (uint32_t)ring, r, &sum);
	}
	return err;
}

int dl_kernel_emit_sheds(struct dl_kernel *k)
{
	_cleanup_free_ struct dl_shed_cnt *by_cpu = calloc((size_t)k->cpus, sizeof(*by_cpu));

	if (!by_cpu)
		return -ENOMEM;
	for (__u32 shed = DL_SHED_NONE + 1; shed < DL_SHED_MAX; shed++) {
		int err;

		if (bpf_map_lookup_elem(bpf_map__fd(k->skel->maps.dl_shed), &shed, by_cpu))
			return -errno;
		err = report_class(k, &dl_shed_rules[shed], by_cpu);
		if (err)
			return err;
	}
	k->shed_ts = dl_kernel_now();
	k->skel->bss->dl_shed_epoch = ++k->shed_epoch;
	return 0;
}

int dl_kernel_tell_holes(struct dl_kernel *k)
{
	const uint32_t holes = k->skel->bss->dl_holes;

	if (holes == k->holes)
		return 0;
	k->holes = holes;
	return dl_kernel_emit_sheds(k);
}

uint32_t dl_kernel_holes(const struct dl_kernel *k)
{
	return k->holes;
}

void dl_kernel_made_room(struct dl_kernel *k, int ring)
{
	k->skel->bss->dl_fill[ring] = 0;
}

bool dl_kernel_is_half_full(const struct dl_kernel *k, int ring)
{
	return k->skel->bss->dl_fill[ring] >= DL_FILL_FULL / 2;
}

uint64_t dl_kernel_shed_total(const struct dl_kernel *k)
{
	return k->shed_total;
}
