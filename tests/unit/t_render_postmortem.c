/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The post-mortem as text and as JSON, from ones filled in by hand; pages against tests/golden/postmortem/
 * (DLBPF_UPDATE_GOLDEN=1 writes them anew; read them then). With DLBPF_SAMPLES_DIR set, each is also written
 * there as NAME.json, for the test that holds it against docs/postmortem.schema.json.
 */
#include "test.h"

#include <json-c/json.h>
#include <signal.h>

#include "diagnose/postmortem.h"
#include "failing_alloc.h"
#include "render/postmortem.h"
#include "render/text.h"

#define SEC 1000000000ULL
#define MIB (1024ULL * 1024)
#define T0 (5000 * SEC)

static struct dl_pm_who worker(uint32_t pid, int32_t index, char *name)
{
	return (struct dl_pm_who){ .pid = pid, .nspid = pid - 4000, .tid = pid, .role = DL_ROLE_WORKER, .index = index,
				   .name = name };
}

static void add_proc(struct dl_postmortem *pm, const struct dl_pm_who *who, uint64_t anon, bool ended)
{
	struct dl_pm_proc *p = vec_push(&pm->procs);

	CHECK(p);
	CHECK_OK(dl_pm_who_copy(&p->who, who));
	p->anon = anon;
	p->shmem = 12 * MIB;
	p->file = 80 * MIB;
	p->total_first = anon / 2;
	p->total_peak = anon + 12 * MIB;
	p->has_mem = true;
	p->fds = 57;
	p->fds_limit = 1024;
	p->ended = ended;
	if (ended) {
		p->status = SIGBUS;
		p->end_ts = T0 + 12 * SEC;
		CHECK_OK(dl_pm_set(&p->state, "killed by SIGBUS"));
	} else {
		p->has_growth = p->leaks = true;
		p->growth_bps = (double)(3 * MIB);
		p->growth_batch = 1024.0 * 300;
	}
}

static void add_thread(struct dl_postmortem *pm, const struct dl_pm_who *who, bool died)
{
	struct dl_pm_thread *t = vec_push(&pm->threads);

	CHECK(t);
	CHECK_OK(dl_pm_who_copy(&t->who, who));
	t->died = died;
	t->for_ns = died ? 0 : 2 * SEC;
	CHECK_OK(dl_pm_set(&t->state, died ? "running" : "waiting in poll for the result pipe"));
	if (!died) {
		t->holder = worker(4711, 1, NULL);
		return;
	}
	for (int i = 0; i < 14; i++) {
		char **frame = vec_push(&t->stack);

		CHECK(frame);
		CHECK_OK(dl_pm_set(frame, "frame_%d+0x%x (libtorch_cpu.so)", i, i * 16));
	}
}

/* A worker in a container whose /dev/shm is too small; PyTorch is right for once. */
static struct dl_postmortem *sample_shm(void)
{
	struct dl_pm_who w = worker(4711, 1, "pt_data_worker"), main_thread = worker(4700, -1, "python3");
	struct dl_postmortem *pm = dl_pm_new();

	CHECK(pm);
	main_thread.role = DL_ROLE_TRAINER;
	CHECK_OK(dl_pm_set(&pm->path, "run.dlbpf"));
	pm->complete = true;
	pm->start = T0;
	pm->end = T0 + 20 * SEC;
	pm->death = DL_DEATH_SHM_FULL;
	pm->confidence = DL_PM_CERTAIN;
	CHECK_OK(dl_pm_set(&pm->text, "worker 1 touched a new page of '/dev/shm/torch_711_1' when /dev/shm was full: 64.0 MiB "
			   "are allowed, the run needs 154 MiB"));
	CHECK_OK(dl_pm_who_copy(&pm->victim, &w));
	pm->sig = SIGBUS;
	pm->ts = T0 + 12 * SEC;
	CHECK_OK(dl_pm_fact(pm, &w, T0 + 12 * SEC + 1000, DL_PM_TRACE, false, "raised the signal again"));
	CHECK_OK(dl_pm_fact(pm, &w, T0 + 12 * SEC, DL_PM_TRACE, true, "SIGBUS at 0x7f12 in '/dev/shm/torch_711_1'"));
	CHECK_OK(dl_pm_fact(pm, NULL, T0 + 2 * SEC, DL_PM_TRACE, false, "/dev/shm: 60.0 MiB of 64.0 MiB used"));
	dl_pm_sort_facts(pm);
	CHECK_OK(dl_pm_number(pm, "shm.total", "size of /dev/shm", 64 * MIB, DL_PM_BYTES, DL_PM_TRACE));
	CHECK_OK(dl_pm_estimate(pm, "shm.needed", "what the run needs", 154 * MIB, DL_PM_BYTES, DL_PM_TRACE,
				"2 workers x 2 batches ahead x 38.5 MiB"));
	add_proc(pm, &main_thread, 900 * MIB, false);
	add_proc(pm, &w, 300 * MIB, true);
	add_thread(pm, &main_thread, false);
	add_thread(pm, &w, true);
	CHECK_OK(dl_pm_action(pm, "docker run --shm-size=192m ...", "Give the container 192 MiB of shared memory"));
	CHECK_OK(dl_pm_action(pm, NULL, "Or fewer batches ahead: prefetch_factor=1"));
	CHECK_OK(dl_pm_set(&pm->gpu, "idle for 2.00 s, waiting for a batch"));
	return pm;
}

/* Only a pasted log and a cgroup's counter. */
static struct dl_postmortem *sample_leftovers(void)
{
	struct dl_pm_claim c = { .line = "RuntimeError: DataLoader worker (pid 711) is killed by signal: Killed.",
				 .tells = "a worker got SIGKILL", .not_tells = "who sent it",
				 .suggests = DL_DEATH_OOM_CGROUP, .pid = 711 };
	struct dl_postmortem *pm = dl_pm_new();

	CHECK(pm);
	pm->confidence = DL_PM_POSSIBLE;
	CHECK_OK(dl_pm_fact(pm, NULL, 0, DL_PM_CGROUP, false, "the memory limit was met 3,211 times"));
	CHECK_OK(dl_pm_alternative(pm, DL_DEATH_OOM_CGROUP, "the kernel log", "a worker was killed, and its cgroup was full"));
	CHECK_OK(dl_pm_alternative(pm, DL_DEATH_KILLED_BY, NULL, "somebody may have sent the signal"));
	CHECK_OK(dl_pm_claim(pm, &c));
	c.contradicts = true;
	c.line = "bad \033[31m line\r\n";
	CHECK_OK(dl_pm_claim(pm, &c));
	CHECK_OK(dl_pm_note(pm, "A recording would have named the sender."));
	return pm;
}

static struct dl_postmortem *sample_none(void)
{
	struct dl_postmortem *pm = dl_pm_new();

	CHECK(pm);
	pm->death = DL_DEATH_NONE;
	pm->confidence = DL_PM_CERTAIN;
	return pm;
}

static const struct { const char *name; struct dl_postmortem *(*make)(void); } samples[] = {
	{ "shm", sample_shm }, { "leftovers", sample_leftovers }, { "none", sample_none },
};

#define SAMPLE_CNT (sizeof(samples) / sizeof(samples[0]))

static char *render(const struct dl_postmortem *pm, const struct dl_text_opts *opts)
{
	struct dl_diag d = {};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	if (opts)
		CHECK_OK(dl_render_postmortem(pm, opts, out, &d));
	else
		CHECK_OK(dl_render_postmortem_json(pm, out, &d));
	fclose(out);
	CHECK_EQ(strlen(text), len);
	return text;
}

static void file_text(const char *folder, const char *name, const char *ext, char *path, size_t path_sz, const char *write)
{
	FILE *f;

	snprintf(path, path_sz, "%s/%s.%s", folder, name, ext);
	if (!write)
		return;
	f = fopen(path, "w");
	CHECK_MSG(f, "%s", path);
	CHECK(fputs(write, f) >= 0);
	CHECK(!fclose(f));
}

TEST(pages)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		struct dl_postmortem *pm = samples[i].make();
		char *text = render(pm, &(struct dl_text_opts){ .utf8 = true });
		char path[256], want[16384];
		size_t n;
		FILE *f;

		file_text("tests/golden/postmortem", samples[i].name, "txt", path, sizeof(path),
			  getenv("DLBPF_UPDATE_GOLDEN") ? text : NULL);
		f = fopen(path, "r");
		CHECK_MSG(f, "%s (run from the root of the tree)", path);
		n = fread(want, 1, sizeof(want) - 1, f);
		fclose(f);
		want[n] = '\0';
		CHECK_STR(text, want);
		free(text);
		dl_postmortem_free(pm);
	}
}

TEST(nothing_but_text_reaches_the_terminal)
{
	struct dl_postmortem *pm = sample_leftovers();
	char *text = render(pm, &(struct dl_text_opts){});

	CHECK(!strchr(text, '\033'));
	CHECK(!strchr(text, '\r'));
	free(text);
	dl_postmortem_free(pm);
}

TEST(samples_are_valid_json)
{
	for (size_t i = 0; i < SAMPLE_CNT; i++) {
		struct dl_postmortem *pm = samples[i].make();
		char *text = render(pm, NULL);
		struct json_object *root = json_tokener_parse(text), *val;
		const char *dir = getenv("DLBPF_SAMPLES_DIR");
		char path[512];

		CHECK(root);
		CHECK(json_object_object_get_ex(root, "schema", &val));
		CHECK_STR(json_object_get_string(val), "dlbpf.postmortem/1");
		if (dir)
			file_text(dir, samples[i].name, "json", path, sizeof(path), text);
		json_object_put(root);
		free(text);
		dl_postmortem_free(pm);
	}
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *val = NULL;

	CHECK_MSG(json_object_object_get_ex(o, key, &val), "%s", key);
	return val;
}

/* Instants are since the start, and a fact before the death has a positive distance to it. */
TEST(times_of_facts)
{
	struct dl_postmortem *pm = sample_shm();
	char *text = render(pm, NULL);
	struct json_object *root = json_tokener_parse(text), *facts = get(root, "facts"), *f;

	CHECK_EQ(json_object_get_int64(get(get(root, "verdict"), "at_ns")), 12 * (int64_t)SEC);
	CHECK_EQ(json_object_array_length(facts), 3);
	f = json_object_array_get_idx(facts, 0);
	CHECK_EQ(json_object_get_int64(get(f, "at_ns")), 2 * (int64_t)SEC);
	CHECK_EQ(json_object_get_int64(get(f, "before_ns")), 10 * (int64_t)SEC);
	CHECK(!get(f, "who"));
	f = json_object_array_get_idx(facts, 2);
	CHECK_EQ(json_object_get_int64(get(f, "before_ns")), -1000);
	CHECK_EQ(json_object_get_int64(get(get(f, "who"), "nspid")), 711);
	json_object_put(root);
	free(text);
	dl_postmortem_free(pm);
}

TEST(facts_without_a_time_come_last)
{
	struct dl_postmortem *pm = dl_pm_new();

	CHECK_OK(dl_pm_fact(pm, NULL, 0, DL_PM_LOG, false, "a"));
	CHECK_OK(dl_pm_fact(pm, NULL, 30, DL_PM_TRACE, false, "b"));
	CHECK_OK(dl_pm_fact(pm, NULL, 0, DL_PM_LOG, false, "c"));
	CHECK_OK(dl_pm_fact(pm, NULL, 10, DL_PM_TRACE, false, "d"));
	CHECK_OK(dl_pm_fact(pm, NULL, 30, DL_PM_TRACE, false, "e"));
	dl_pm_sort_facts(pm);
	CHECK_STR(pm->facts.v[0].text, "d");
	CHECK_STR(pm->facts.v[1].text, "b");
	CHECK_STR(pm->facts.v[2].text, "e");
	CHECK_STR(pm->facts.v[3].text, "a");
	CHECK_STR(pm->facts.v[4].text, "c");
	dl_postmortem_free(pm);
}

#if FAILING_ALLOC
/* Wherever memory ends, there is an error or the whole text, and nothing is leaked or freed twice. */
TEST(out_of_memory)
{
	struct dl_postmortem *pm = sample_shm();
	char *whole = render(pm, &(struct dl_text_opts){});
	size_t failed = 0;

	for (long left = 0;; left++) {
		FILE *out = fopen("/dev/null", "w");
		struct dl_diag d = {};
		int err;

		CHECK(out);
		alloc_left = left;
		err = dl_render_postmortem(pm, &(struct dl_text_opts){}, out, &d);
		alloc_left = LONG_MAX;
		fclose(out);
		if (!err)
			break;
		CHECK_EQ(err, -ENOMEM);
		failed++;
	}
	CHECK(failed > 20);
	free(whole);
	dl_postmortem_free(pm);
}
#endif
