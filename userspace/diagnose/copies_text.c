/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is wrong with a device's copies, in words, and what to do: it follows the kind. */
#include "diagnose/copies.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A link that carries less than this share of what it could in theory is held back by something else. */
#define LINK_LOW_SHARE 0.5

static const char *fmt_rate(char *buf, size_t sz, uint64_t bps)
{
	snprintf(buf, sz, "%.1f GB/s", (double)bps / 1e9);
	return buf;
}

static uint64_t mean_bps(const struct dl_copy_device *c)
{
	return c->ns ? (uint64_t)((double)c->bytes * 1e9 / (double)c->ns) : 0;
}

static double overlap_share(const struct dl_copy_device *c)
{
	return c->ns ? (double)c->overlap_ns / (double)c->ns : 0;
}

static const char *where(const struct dl_copy_device *c)
{
	return c->to_device ? "to the device" : "from the device";
}

/* "11.6 GB in 400 copies at 12.1 GB/s" */
static void add_amount(struct dl_str *out, const struct dl_copy_device *c)
{
	char a[32], b[32];

	dl_str_addf(out, "%s in %" PRIu64 " cop%s at %s", dl_fmt_bytes(a, sizeof(a), c->bytes), c->cnt,
		    c->cnt == 1 ? "y" : "ies", c->ns ? fmt_rate(b, sizeof(b), mean_bps(c)) : "a rate that is not known");
}

static void add_link(struct dl_str *out, const struct dl_copy_device *c)
{
	char a[32];

	if (c->link.bps >= c->best_bps && c->link.bps)
		dl_str_addf(out, "; the link, PCIe gen %u x%u, carries %s in theory", c->link.gen, c->link.width,
			    fmt_rate(a, sizeof(a), c->link.bps));
	else if (c->best_bps)
		dl_str_addf(out, "; the best copy of this run reached %s, what the link could is not known",
			    fmt_rate(a, sizeof(a), c->best_bps));
}

void dl_copy_text(struct dl_str *out, const struct dl_copy_device *c)
{
	char a[32];

	dl_str_addf(out, "batches were being copied %s: ", where(c));
	add_amount(out, c);
	switch (c->problem) {
	case DL_COPY_TOO_SMALL:
		dl_str_addf(out, ", and they are too small: half of them have at most %s, and copies below %s make up %.0f %% of what copying cost",
			    dl_fmt_bytes(a, sizeof(a), c->median_bytes), "256 KiB", 100 * c->share);
		break;
	case DL_COPY_PAGEABLE:
		dl_str_addf(out, ", %.0f %% of what that cost by pageable memory, which the CPU has to stage", 100 * c->share);
		if (c->cpu_ns)
			dl_str_addf(out, " (the copying thread was on a CPU for %s of it)", dl_fmt_ns(a, sizeof(a), c->cpu_ns));
		break;
	case DL_COPY_NOT_OVERLAPPED:
		dl_str_addf(out, ", not overlapped with kernels: one ran for %.0f %% of the time of the copies only",
			    100 * overlap_share(c));
		break;
	case DL_COPY_LINK:
		dl_str_addf(out, ", large, not pageable, and beside kernels for %.0f %% of their time: the link is the limit",
			    100 * overlap_share(c));
		add_link(out, c);
		break;
	default:
		break;
	}
}

/* --- what to do --------------------------------------------------------------------------------- */

static int action(struct dl_verdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int action(struct dl_verdict *v, const char *fmt, ...)
{
	char **at = vec_push(&v->actions);
	va_list ap;
	int len;

	if (!at)
		return -ENOMEM;
	va_start(ap, fmt);
	len = vasprintf(at, fmt, ap);
	va_end(ap);
	if (len >= 0)
		return 0;
	v->actions.cnt--;
	return -ENOMEM;
}

static int pin(struct dl_verdict *v, const struct dl_copy_device *c)
{
	if (c->to_device)
		return action(v, "Copy from pinned memory: DataLoader(..., pin_memory=True) and tensor.to(device, non_blocking=True); a pageable copy is staged by the CPU and blocks the trainer");
	return action(v, "Copy into pinned memory: keep a tensor made with pin_memory=True and use its copy_(x, non_blocking=True); a pageable copy is staged by the CPU and blocks the trainer");
}

static int pack(struct dl_verdict *v, const struct dl_copy_device *c)
{
	char a[32];

	return action(v, "Copies are small (median %s): pack tensors into one and copy once for each batch",
		      dl_fmt_bytes(a, sizeof(a), c->median_bytes));
}

static int link_actions(struct dl_verdict *v, const struct dl_copy_device *c)
{
	const uint64_t could = dl_link_bps(c->link.gen_max, c->link.width_max);
	char a[32], b[32];
	int err;

	err = action(v, "Send less: nothing else makes these copies faster. uint8 instead of float32 and conversion on the GPU, decoding on the GPU, and what stays the same kept there");
	if (!err && c->link.bps && could > c->link.bps)
		err = action(v, "The link ran at PCIe gen %u x%u at most, device and slot could do gen %u x%u (%s): look at slot, riser and BIOS (lspci -vv, LnkSta)",
			     c->link.gen, c->link.width, c->link.gen_max, c->link.width_max, fmt_rate(a, sizeof(a), could));
	if (!err && c->link.bps && (double)c->best_bps < LINK_LOW_SHARE * (double)c->link.bps && c->best_bps)
		err = action(v, "Even the best copy reached only %s of the link's %s: other devices behind the same switch, virtualisation, or memory far from the GPU (numactl --cpunodebind) may hold it back",
			     fmt_rate(a, sizeof(a), c->best_bps), fmt_rate(b, sizeof(b), c->link.bps));
	return err;
}

static double pageable_share(const struct dl_copy_device *c)
{
	return c->cost_ns ? (double)c->pageable_ns / (double)c->cost_ns : 0;
}

int dl_copy_actions(struct dl_verdict *v, const struct dl_copy_device *c)
{
	int err = 0;

	switch (c->problem) {
	case DL_COPY_TOO_SMALL:
		err = pack(v, c);
		if (!err && pageable_share(c) >= DL_COPY_PAGEABLE_SHARE)
			err = pin(v, c);
		return err;
	case DL_COPY_PAGEABLE:
		err = pin(v, c);
		return err || c->median_bytes >= DL_COPY_SMALL_SZ ? err : pack(v, c);
	case DL_COPY_NOT_OVERLAPPED:
		return action(v, "Overlap copies with kernels: prefetch the next batch on a second stream with non_blocking=True, and let the kernels' stream wait for an event behind the copy");
	case DL_COPY_LINK:
		return link_actions(v, c);
	default:
		return 0;
	}
}
