/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The training itself: how it ended, how it starts workers and shares memory, what its environment costs. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "check/judge.h"

void ck_judge_run(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_seen *s = &f->seen;
	const double seconds = (double)s->watched_ns / 1e9;
	ck_buf a, b;

	if (f->target == DL_CK_SELF)
		return;
	if (!s->watched && !s->ended) {
		ck_say(l, DL_CK_UNKNOWN, "%s", s->why[0] ? s->why : "the job could not be watched");
		return;
	}
	ck_num(l, "watched_s", seconds);
	ck_num(l, "workers", s->workers);
	if (s->batch.bytes) {
		ck_num(l, "batch_bytes", (double)s->batch.bytes);
		ck_num(l, "batch_tensors", s->batch.storages);
		ck_num(l, "shm_peak_bytes", (double)s->peak_bytes);
	}
	if (s->ended && WIFSIGNALED(s->status))
		ck_say(l, DL_CK_PROBLEM, "the command was killed by signal %d (%s) after %.1f s", WTERMSIG(s->status),
		       strsignal(WTERMSIG(s->status)), seconds);
	else if (s->ended && WEXITSTATUS(s->status))
		ck_say(l, DL_CK_PROBLEM, "the command ended with exit code %d after %.1f s", WEXITSTATUS(s->status), seconds);
	else
		ck_say(l, DL_CK_OK, "watched for %.1f s", seconds);
	if (l->state == DL_CK_PROBLEM) {
		ck_fix(l, "what it printed stands above; a recording tells what ended it");
		ck_cmd(l, "sudo dlbpf record -- COMMAND; dlbpf postmortem");
	}
	if (s->interrupted)
		ck_add(l, ", then stopped");
	if (s->trainer_of_target) {
		l->state = DL_CK_WARNING;
		ck_add(l, "; this process looks like a DataLoader worker itself");
		ck_fix(l, "look at its trainer");
		ck_cmd(l, "sudo dlbpf check -p %u", s->trainer_of_target);
		return;
	}
	if (!s->workers)
		ck_add(l, "; no workers were seen");
	else
		ck_add(l, "; %u worker%s", s->workers, s->workers == 1 ? "" : "s");
	if (s->batch.bytes && s->batch.at_least)
		ck_add(l, ", batches of at least %s", ck_size(a, s->batch.bytes));
	else if (s->batch.bytes)
		ck_add(l, ", batches of %s in %u tensor%s", ck_size(a, s->batch.bytes), s->batch.storages,
		       s->batch.storages == 1 ? "" : "s");
	else if (s->workers)
		ck_add(l, ", and no batch in shared memory was seen");
	if (s->peak_bytes)
		ck_add(l, ", at most %s of shared memory at once", ck_size(b, s->peak_bytes));
}

void ck_judge_start(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_seen *s = &f->seen;

	switch (s->workers ? s->start : DL_CK_START_UNKNOWN) {
	case DL_CK_FORK:
		ck_say(l, DL_CK_OK, "fork");
		break;
	case DL_CK_SPAWN:
		ck_say(l, DL_CK_OK, "spawn: each worker imports everything anew, at each epoch unless persistent_workers=True");
		break;
	case DL_CK_FORKSERVER:
		ck_say(l, DL_CK_OK, "forkserver: each worker imports everything anew; when one is killed, PyTorch notices seconds later "
		       "and cannot say by what");
		break;
	default:
		if (f->target != DL_CK_SELF)
			ck_say(l, DL_CK_UNKNOWN, "no workers were seen");
		break;
	}
}

void ck_judge_sharing(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	const struct dl_ck_seen *s = &f->seen;

	if (f->target == DL_CK_SELF)
		return;
	if (s->file_system)
		ck_say(l, DL_CK_OK, "file_system: needs no descriptors, but a run that is killed may leave its memory in /dev/shm");
	else if (s->file_descriptor)
		ck_say(l, DL_CK_OK, "file_descriptor: a descriptor for each tensor that is shared");
	else
		ck_say(l, DL_CK_UNKNOWN, "no shared memory of the loaders was seen");
}

/* --- variables ----------------------------------------------------------------------------------- */

enum when { IF_SET, IF_ON, IF_OFF, IF_TEXT };	/* to anything, to 1, to 0, to the text */

static const struct variable {
	const char *name;
	enum when when;
	const char *text;	/* of IF_TEXT */
	enum dl_ck_state state;
	const char *why;
} variables[] = {
	{ "CUDA_LAUNCH_BLOCKING", IF_ON, NULL, DL_CK_PROBLEM, "the host waits for each kernel: nothing overlaps" },
	{ "PYTORCH_NO_CUDA_MEMORY_CACHING", IF_ON, NULL, DL_CK_PROBLEM, "each tensor is a cudaMalloc and a cudaFree, which wait for "
	  "the GPU" },
	{ "CUDA_CACHE_DISABLE", IF_ON, NULL, DL_CK_WARNING, "kernels are compiled anew in each run" },
	{ "NVIDIA_TF32_OVERRIDE", IF_OFF, NULL, DL_CK_WARNING, "TF32 is off for all: float32 products run at a fraction of the rate" },
	{ "TORCH_DISTRIBUTED_DEBUG", IF_TEXT, "DETAIL", DL_CK_WARNING, "collectives are checked one by one" },
	{ "TORCH_USE_CUDA_DSA", IF_ON, NULL, DL_CK_WARNING, "kernels carry checks" },
	{ "CUDNN_LOGINFO_DBG", IF_ON, NULL, DL_CK_WARNING, "cuDNN writes a log of each call" },
	{ "NCCL_DEBUG", IF_TEXT, "TRACE", DL_CK_WARNING, "NCCL writes a log of each call" },
	{ "NCCL_P2P_DISABLE", IF_ON, NULL, DL_CK_WARNING, "GPUs talk through host memory" },
	{ "NCCL_IB_DISABLE", IF_ON, NULL, DL_CK_WARNING, "nodes talk by TCP even where there is InfiniBand" },
	{ "NCCL_SHM_DISABLE", IF_ON, NULL, DL_CK_WARNING, "processes of one node talk through the network" },
	{ "PYTHONTRACEMALLOC", IF_SET, NULL, DL_CK_WARNING, "Python notes the stack of each allocation" },
	{ "PYTHONDEVMODE", IF_ON, NULL, DL_CK_WARNING, "Python's development mode checks each allocation" },
	{ "PYTHONMALLOC", IF_TEXT, "debug", DL_CK_WARNING, "Python checks each allocation" },
	{ "MALLOC_CHECK_", IF_SET, NULL, DL_CK_WARNING, "the C library checks each allocation" },
	{ "MALLOC_PERTURB_", IF_SET, NULL, DL_CK_WARNING, "the C library overwrites each allocation" },
	{ "OMP_WAIT_POLICY", IF_TEXT, "ACTIVE", DL_CK_WARNING, "idle OpenMP threads keep their CPUs" },
	{ "GOMP_SPINCOUNT", IF_TEXT, "INFINITE", DL_CK_WARNING, "idle OpenMP threads keep their CPUs" },
	{ "KMP_BLOCKTIME", IF_TEXT, "infinite", DL_CK_WARNING, "idle OpenMP threads keep their CPUs" },
	{ "LD_PRELOAD", IF_TEXT, "asan", DL_CK_WARNING, "the address sanitizer is loaded" },
};

static bool applies(const struct variable *v, const char *value)
{
	switch (v->when) {
	case IF_ON:
		return value[0] && strcmp(value, "0") && strcasecmp(value, "off") && strcasecmp(value, "false");
	case IF_OFF:
		return !strcmp(value, "0");
	case IF_TEXT:
		return strcasestr(value, v->text) != NULL;
	default:
		return value[0];
	}
}

void ck_judge_variables(const struct dl_ck_facts *f, struct dl_ck_line *l)
{
	unsigned int cnt = 0;

	if (!f->proc.env_known) {
		ck_say(l, DL_CK_UNKNOWN, "the environment of the job may not be read");
		return;
	}
	ck_say(l, DL_CK_OK, "none that is known to cost time is set");
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const struct variable *v = &variables[i];
		const char *value = dl_ck_var(f, v->name);

		if (!value || !applies(v, value))
			continue;
		if (!cnt++)
			ck_say(l, v->state, "%s=%s: %s", v->name, value, v->why);
		else
			ck_add(l, "; %s=%s: %s", v->name, value, v->why);
		if (v->state == DL_CK_PROBLEM)
			l->state = DL_CK_PROBLEM;
		ck_cmd(l, "unset %s", v->name);
	}
	if (cnt)
		ck_fix(l, "unless it is there on purpose, before the job starts");
}
