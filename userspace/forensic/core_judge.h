/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What core_verdict.c (what is told) and core_judge.c (what is concluded) share. */
#ifndef DLBPF_FORENSIC_CORE_JUDGE_H
#define DLBPF_FORENSIC_CORE_JUDGE_H

#include "diagnose/postmortem.h"
#include "forensic/core.h"

struct dl_core_judging {
	struct dl_postmortem *pm;
	const struct dl_core *core;
	const struct dl_core_signal *sig;
	const struct dl_core_thread *thread;	/* that died */
	const struct dl_core_map *map;		/* at the fault's address; NULL none */
	struct dl_pm_who who;
	char name[32];				/* "SIGSEGV" */
	char subject[64];			/* "process 4711 (python3)" */
	enum dl_death death;
	enum dl_pm_confidence confidence;
	char *text;
	int err;				/* -ENOMEM */
};

/* Fills in death, confidence and text, and adds alternatives; the core names a signal. */
void dl_core_judge(struct dl_core_judging *j);

/* The innermost frame of somebody's own code, not the C library's; NULL none. */
const struct dl_core_frame *dl_core_own_frame(const struct dl_core_thread *t);

#endif
