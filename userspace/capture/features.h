/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the running kernel has, asked of its BTF, never of its version. "dlbpf check" prints the
 * table; kernel_load.c picks programs by it.
 */
#ifndef DLBPF_CAPTURE_FEATURES_H
#define DLBPF_CAPTURE_FEATURES_H

#include <stdbool.h>

#include "base/diag.h"

enum dl_feat {
	DL_FEAT_NONE = 0,
	DL_FEAT_SWITCH_STATE,
	DL_FEAT_PT_REGS,
	DL_FEAT_FIND_VMA,
	DL_FEAT_VMA_RB,
	DL_FEAT_VICTIM_TASK,
	DL_FEAT_RSS_PERCPU,
	DL_FEAT_EXIT_EARLY,
	DL_FEAT_PSI,
	DL_FEAT_CFS_BANDWIDTH,
	DL_FEAT_MEMCG,
	DL_FEAT_UPROBE,
	DL_FEAT_CAST,
	DL_FEAT_MAX,
};

struct dl_feature {
	const char *name;
	const char *what;	/* what it is good for here */
	const char *since;	/* commit and release that brought it */
};

struct dl_features {
	struct btf *btf;	/* of the running kernel */
	bool has[DL_FEAT_MAX];
};

/* Indexed by enum dl_feat; the first row is empty. */
extern const struct dl_feature dl_feature_table[DL_FEAT_MAX];

/* Reads the kernel's BTF. Fails with a message when the machine cannot run dlbpf at all: no
 * rights, lockdown, no BTF, a PID namespace of its own, a ring buffer that may sleep. */
int dl_features_probe(struct dl_features *f, struct dl_diag *d);
void dl_features_fini(struct dl_features *f);	/* has[] stays; may be called again */

/* Arguments of a raw tracepoint; -1 when there is no such tracepoint. */
int dl_features_tp_args(const struct dl_features *f, const char *tracepoint);

#endif
