/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dlbpf itself: could it record this job? */
#include <string.h>

#include "check/judge.h"

void ck_judge_trace(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_self *s = &f->self;

	if (s->trace_ok)
		ck_say(l, DL_CK_OK, "dlbpf can record here: its programs were loaded, attached and removed again");
	else if (!s->trace_known)
		ck_say(l, DL_CK_UNKNOWN, "whether dlbpf can record here shows as root: %s", s->trace_why);
	else
		ck_say(l, DL_CK_PROBLEM, "dlbpf cannot record here: %s", s->trace_why);
	if (!s->trace_known)
		ck_cmd(l, "sudo dlbpf check ...");
}

void ck_judge_features(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_self *s = &f->self;

	if (!s->trace_ok)
		return;
	ck_num(l, "missing", s->missing_cnt);
	if (s->missing_cnt)
		ck_say(l, DL_CK_WARNING, "this kernel does not give everything: %s", s->missing);
	else
		ck_say(l, DL_CK_OK, "this kernel gives everything that dlbpf asks for");
}

void ck_judge_collector(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_self *s = &f->self;
	const char *set = dl_ck_var(f, "CUDA_INJECTION64_PATH");
	const bool gpu = f->gpus.has_device || f->seen.uses_cuda;

	if (!s->collector) {
		ck_say(l, gpu ? DL_CK_PROBLEM : DL_CK_WARNING, "dlbpf's collector, libdlbpf_cupti.so, is not installed: no GPU data");
		ck_fix(l, "build and install dlbpf completely");
		ck_cmd(l, "make && sudo make install");
		return;
	}
	if (!gpu) {
		ck_say(l, DL_CK_OK, "the collector is there, and there is no GPU to ask");
		return;
	}
	if (set && strstr(set, "libdlbpf_cupti.so")) {
		ck_say(l, DL_CK_OK, "the job has dlbpf's collector (CUDA_INJECTION64_PATH)");
		return;
	}
	if (f->target == DL_CK_CMD || f->target == DL_CK_SELF) {
		ck_say(l, DL_CK_OK, "dlbpf record -- COMMAND loads the collector; for jobs that are recorded while they run, set it where "
		       "they are started: export CUDA_INJECTION64_PATH=%s", s->collector_path);
		return;
	}
	ck_say(l, DL_CK_WARNING, "the job was started without dlbpf's collector%s: a recording of it has no kernels and copies",
	       set ? " but with another tool's" : "");
	ck_fix(l, s->collector_visible ? "record it with --inject, or start it with the collector" :
	       "bind the collector into the container, and start the job with it");
	ck_cmd(l, "export CUDA_INJECTION64_PATH=%s", s->collector_path);
}
