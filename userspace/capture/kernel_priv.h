/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the files behind kernel.h share. */
#ifndef DLBPF_CAPTURE_KERNEL_PRIV_H
#define DLBPF_CAPTURE_KERNEL_PRIV_H

#include <bpf/libbpf.h>
#include <dlbpf/bpf_shared.h>

#include "base/map.h"
#include "base/vec.h"
#include "capture/features.h"
#include "capture/kernel.h"

/* bpftool's skeleton has functions that not every user of it calls. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "dlbpf.skel.h"
#pragma GCC diagnostic pop

#define DL_GROUP_MAX DL_RING_SCHED_MAX

/* How a program is attached. */
enum dl_attach {
	DL_AT_TP = 0,	/* tp_btf */
	DL_AT_SAMPLE,	/* the sampling timer of each CPU */
	DL_AT_MAJOR,	/* the major fault counter of each CPU */
	DL_AT_UPROBE,	/* on demand: kernel_cuda.c */
};

/*
 * One row a program. Of the rows of one group only the first that this kernel can run is used; a
 * group of which none can is absent, and named so.
 */
struct dl_prog_rule {
	const char *name;
	size_t off;		/* of its struct bpf_program * in the skeleton */
	const char *tracepoint;
	int args;		/* the tracepoint has at least so many */
	enum dl_feat needs;	/* or DL_FEAT_NONE */
	int group;
	enum dl_source source;
	enum dl_kind kind;	/* that its losses are counted under */
	enum dl_attach attach;
	bool required;		/* nothing works without one of the group */
};

extern const struct dl_prog_rule dl_prog_rules[];
extern const int dl_prog_rule_cnt;

#define DL_PROG_MAX 64

struct dl_dead { uint32_t pid; uint64_t ts; };

/* What watching system calls costs, see kernel_calls.c. */
struct dl_calls {
	struct bpf_link *link;	/* NULL: they are not watched */
	double call_ns;		/* a short one takes that much longer here; 0 cannot be seen */
	uint64_t cnt, ts;	/* at the last look */
	unsigned int dear;	/* looks in a row at which it was */
};

struct dl_kernel {
	struct dl_sink *sink;
	struct dl_kernel_opts opts;
	struct dl_features feat;
	struct dlbpf_bpf *skel;
	bool use[DL_PROG_MAX];		/* by rule: loaded */
	bool bad[DL_PROG_MAX];		/* by rule: the verifier refused it */
	DL_VEC(struct bpf_link *) links;
	int cpus;
	int group_shift;		/* CPUs to a ring: 1 << this */
	int group_cnt;
	int ring_fds[DL_GROUP_MAX];
	struct ring_buffer *sched[DL_GROUP_MAX];	/* the rings of the groups of CPUs */
	struct ring_buffer *crash;
	int drained;			/* events of the drain under way */
	int drain_stop;			/* at so many another ring has its turn */
	bool behind;			/* the last drain left something */
	bool hurry;			/* it found a ring more than half full */
	DL_VEC(struct dl_dead) dead;	/* ended processes still in the target map */

	struct dl_map stacks;		/* hash of frames -> STACK.id */
	uint32_t stack_next;

	struct dl_map losses;		/* ring, cause, kind -> count */
	uint64_t loss_total;

	struct dl_calls calls;
	uint64_t loss_ts;		/* losses were told of until then */
	uint64_t shed_total, shed_ts;	/* the same of what was left out */
	uint32_t shed_epoch;		/* of the kernel side's first and last */
	uint32_t holes;			/* that have been told of */
};

struct bpf_program *dl_rule_prog(const struct dl_kernel *k, const struct dl_prog_rule *r);

uint64_t dl_kernel_now(void);

/* kernel.c: emits the event when its count has grown since the last one of this ring, cause, kind and class. */
int dl_kernel_tell_loss(struct dl_kernel *k, const struct dl_ev_loss *ev);

/* kernel_load.c */
int dl_kernel_load(struct dl_kernel *k, struct dl_diag *d);

/* kernel_attach.c */
int dl_kernel_attach(struct dl_kernel *k, struct dl_diag *d);
int dl_kernel_absent(struct dl_kernel *k, enum dl_source source, const char *why);
int dl_kernel_emit_absent(struct dl_kernel *k);

/* kernel_log.c: libbpf's messages, kept while something is loaded */
void dl_log_begin(bool verbose);
const char *dl_log_text(void);
void dl_log_end(void);
/* Writes the text to a file for the user to report; its path, or "" when that failed too. */
const char *dl_log_save(char *path, size_t sz);

/* kernel_stack.c: an event that carries frames is emitted with the id of a STACK event instead. */
int dl_kernel_emit_stacked(struct dl_kernel *k, const struct dl_hdr *ev);

/* kernel_shed.c */
int dl_kernel_emit_sheds(struct dl_kernel *k);
int dl_kernel_tell_holes(struct dl_kernel *k);	/* the same, where a ring has been full since */
void dl_kernel_made_room(struct dl_kernel *k, int ring);	/* the ring was read to its end */
bool dl_kernel_is_half_full(const struct dl_kernel *k, int ring);	/* as the kernel side saw it last */

/* kernel_target.c */
void dl_kernel_reap(struct dl_kernel *k);

/* kernel_syscall.c */
void dl_kernel_fill_syscalls(struct dl_syscall *table);

/* kernel_calls.c */
int dl_kernel_attach_calls(struct dl_kernel *k, struct bpf_program *prog);
void dl_kernel_detach_calls(struct dl_kernel *k);

/* kernel_fail.c */
void dl_kernel_fill_fails(struct dl_sc_fail *table);

#endif
