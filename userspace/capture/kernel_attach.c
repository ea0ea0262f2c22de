/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Attaching the loaded programs, and naming what could not be had. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "capture/kernel_priv.h"

int dl_kernel_absent(struct dl_kernel *k, enum dl_source source, const char *why)
{
	struct dl_ev_absent ev = DL_EVENT_INIT(absent, DL_EV_ABSENT, dl_kernel_now(), 0, 0);

	ev.source = source;
	return dl_emit_text(k->sink, &ev.h, why);
}

static int keep_link(struct dl_kernel *k, struct bpf_link *link)
{
	struct bpf_link **slot = vec_push(&k->links);

	if (!slot) {
		bpf_link__destroy(link);
		return -ENOMEM;
	}
	*slot = link;
	return 0;
}

static struct perf_event_attr perf_attr(const struct dl_kernel *k, enum dl_attach how)
{
	struct perf_event_attr a = { .size = sizeof(a), .type = PERF_TYPE_SOFTWARE };

	if (how == DL_AT_SAMPLE) {
		a.config = PERF_COUNT_SW_CPU_CLOCK;
		a.freq = 1;
		a.sample_freq = k->opts.sample_hz;
		a.exclude_idle = 1;
	} else {
		a.config = PERF_COUNT_SW_PAGE_FAULTS_MAJ;
		a.sample_period = 1;
	}
	return a;
}

/* One event on each CPU that is online now; a CPU plugged in later is not watched. */
static int attach_perf(struct dl_kernel *k, const struct dl_prog_rule *r)
{
	struct perf_event_attr attr = perf_attr(k, r->attach);
	int cnt = 0;

	for (int cpu = 0; cpu < k->cpus; cpu++) {
		struct bpf_link *link;
		int fd, err;

		fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0 && errno == ENODEV)	/* offline */
			continue;
		if (fd < 0)
			return -errno;
		link = bpf_program__attach_perf_event(dl_rule_prog(k, r), fd);
		if (!link) {
			err = -errno;
			close(fd);
			return err;
		}
		err = keep_link(k, link);	/* the link owns the descriptor */
		if (err)
			return err;
		cnt++;
	}
	return cnt ? 0 : -ENODEV;
}

static int attach_one(struct dl_kernel *k, const struct dl_prog_rule *r)
{
	struct bpf_link *link;

	if (r->attach != DL_AT_TP)
		return attach_perf(k, r);
	if (r->source == DL_SRC_SYSCALLS)
		return dl_kernel_attach_calls(k, dl_rule_prog(k, r));
	link = bpf_program__attach(dl_rule_prog(k, r));
	return link ? keep_link(k, link) : -errno;
}

int dl_kernel_attach(struct dl_kernel *k, struct dl_diag *d)
{
	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		const struct dl_prog_rule *r = &dl_prog_rules[i];
		char why[256];
		int err;

		if (!k->use[i] || r->attach == DL_AT_UPROBE)
			continue;
		err = attach_one(k, r);
		if (!err)
			continue;
		if (r->required || err == -ENOMEM)
			return dl_fail_errno(d, err, "cannot attach %s to %s", r->name, r->tracepoint);
		k->use[i] = false;
		snprintf(why, sizeof(why), "%s could not be attached: %s%s", r->name, strerror(-err),
			 r->attach == DL_AT_TP ? "" : " (perf_event_open; see kernel.perf_event_paranoid and seccomp)");
		err = dl_kernel_absent(k, r->source, why);
		if (err)
			return dl_fail_errno(d, err, "cannot write the trace");
	}
	return 0;
}

static bool group_used(const struct dl_kernel *k, int group)
{
	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		if (k->use[i] && dl_prog_rules[i].group == group)
			return true;
	}
	return false;
}

static void say_absent(const struct dl_kernel *k, int i, char *why, size_t sz)
{
	const struct dl_prog_rule *r = &dl_prog_rules[i];

	if (r->attach == DL_AT_SAMPLE && !k->opts.sample_hz)
		snprintf(why, sz, "on-CPU samples were not asked for (--sample-hz 0)");
	else if (r->source == DL_SRC_SYSCALLS && k->opts.no_syscalls)
		snprintf(why, sz, "failed system calls were not asked for (--no-syscalls)");
	else if (k->bad[i])
		snprintf(why, sz, "the kernel's verifier refused %s", r->name);
	else if (r->tracepoint && dl_features_tp_args(&k->feat, r->tracepoint) < 0)
		snprintf(why, sz, "this kernel has no tracepoint %s", r->tracepoint);
	else if (r->needs)
		snprintf(why, sz, "this kernel has no %s (%s)", dl_feature_table[r->needs].name,
			 dl_feature_table[r->needs].since);
	else
		snprintf(why, sz, "tracepoint %s has a form that is not known", r->tracepoint ? r->tracepoint : "");
}

/* Groups without a program, and lesser forms of what is there. */
int dl_kernel_emit_absent(struct dl_kernel *k)
{
	bool vma = k->feat.has[DL_FEAT_FIND_VMA] || k->feat.has[DL_FEAT_VMA_RB];
	int err = 0, said = -1;
	char why[256];

	for (int i = 0; i < dl_prog_rule_cnt && !err; i++) {
		const struct dl_prog_rule *r = &dl_prog_rules[i];

		if (k->bad[i] && group_used(k, r->group)) {
			snprintf(why, sizeof(why), "the kernel's verifier refused %s; a lesser program is used", r->name);
			err = dl_kernel_absent(k, r->source, why);
		}
		/* the signal before an OOM kill is only needed where mark_victim has no task */
		if (r->group == said || group_used(k, r->group) || !strcmp(r->name, "dl_oom_signal"))
			continue;
		said = r->group;
		say_absent(k, i, why, sizeof(why));
		err = dl_kernel_absent(k, r->source, why);
	}
	if (!err && !vma)
		err = dl_kernel_absent(k, DL_SRC_FAULTS, "this kernel cannot look up a mapping in BPF: major faults and SIGBUS "
				       "come without their file");
	if (!err && !k->feat.has[DL_FEAT_CFS_BANDWIDTH])
		err = dl_kernel_absent(k, DL_SRC_SWITCH, "this kernel has no CPU quotas (CONFIG_CFS_BANDWIDTH)");
	if (!err && !k->feat.has[DL_FEAT_PSI])
		err = dl_kernel_absent(k, DL_SRC_SWITCH, "this kernel does not mark threads that reclaim (CONFIG_PSI)");
	return err;
}
