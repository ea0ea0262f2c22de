/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * docs/FORMAT.md says what is in a file: tests/format_reader.py, which was written from it, finds
 * the same events. docs/EVENTS.md says what there is to find. Runs in the root of the sources.
 */
#include <sys/wait.h>

#include "base/str.h"
#include "unit/trace_util.h"

static void need(const char *program)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "command -v %s >/dev/null 2>&1", program);
	if (system(cmd))
		SKIP("%s is not installed", program);
}

/* What the command prints. */
static char *run(const char *cmd)
{
	struct dl_str out = { 0 };
	FILE *f = popen(cmd, "r");
	char buf[4096];
	size_t n;
	int status;

	CHECK(f != NULL);
	while ((n = fread(buf, 1, sizeof(buf), f)))
		dl_str_addn(&out, buf, n);
	status = pclose(f);
	CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "%s: status %d: %s", cmd, status,
		  out.s ? out.s : "");
	return dl_str_take(&out);
}

static void add_hex(struct dl_str *s, const uint8_t *p, size_t sz)
{
	dl_str_add(s, "\"");
	for (size_t i = 0; i < sz; i++)
		dl_str_addf(s, "%02x", p[i]);
	dl_str_add(s, "\"");
}

static void add_field(struct dl_str *s, const struct dl_field *f, const uint8_t *ev)
{
	uint64_t v = 0;

	dl_str_addf(s, "\"%s\": ", f->name);
	if (!dl_ftype_is_int(f->type)) {
		add_hex(s, ev + f->off, f->size);
		return;
	}
	memcpy(&v, ev + f->off, f->size);
	if (f->type == DL_FT_s32)
		dl_str_addf(s, "%" PRId32, (int32_t)v);
	else if (f->type == DL_FT_s64)
		dl_str_addf(s, "%" PRId64, (int64_t)v);
	else
		dl_str_addf(s, "%" PRIu64, v);
}

static void add_event(struct dl_str *s, const struct dl_hdr *h)
{
	const struct dl_event_desc *desc = dl_event_desc(h->kind);
	const uint8_t *ev = (const uint8_t *)h;

	dl_str_addf(s, "{\"kind\": \"%s\", \"ts\": %" PRIu64 ", \"tid\": %u, \"pid\": %u, \"cpu\": %u, "
		    "\"flags\": %u, \"fields\": {", desc->name, (uint64_t)h->ts, h->tid, h->pid, h->cpu,
		    h->flags);
	for (unsigned int i = 0; i < desc->field_cnt; i++) {
		dl_str_add(s, i ? ", " : "");
		add_field(s, &desc->fields[i], ev);
	}
	dl_str_add(s, "}");
	if (desc->tail == DL_TAIL_STR) {
		dl_str_add(s, ", \"tail\": ");
		add_hex(s, ev + desc->size, h->size - desc->size);
	} else if (desc->tail == DL_TAIL_ADDRS) {
		dl_str_add(s, ", \"tail\": [");
		for (size_t at = desc->size; at < h->size; at += 8)
			dl_str_addf(s, "%s%" PRIu64, at > desc->size ? ", " : "", dl_get(ev + at, 8));
		dl_str_add(s, "]");
	}
	dl_str_add(s, "}\n");
}

static void check_agrees(const char *path, struct evlist *l)
{
	struct dl_str want = { 0 };
	char cmd[600], *got, *text;
	size_t line = 1;

	evlist_sort(l);
	for (size_t i = 0; i < l->off.cnt; i++)
		add_event(&want, evlist_at(l, i));
	text = dl_str_take(&want);
	CHECK(text != NULL);
	snprintf(cmd, sizeof(cmd), "python3 tests/format_reader.py %s 2>&1", path);
	got = run(cmd);
	for (char *g = got, *w = text; *g || *w; line++) {
		size_t glen = strcspn(g, "\n"), wlen = strcspn(w, "\n");

		CHECK_MSG(glen == wlen && !memcmp(g, w, glen), "line %zu is\n%.*s\nnot\n%.*s", line,
			  (int)glen, g, (int)wlen, w);
		g += glen + (g[glen] == '\n');
		w += wlen + (w[wlen] == '\n');
	}
	free(got);
	free(text);
}

static void need_all(void)
{
	if (access("tests/format_reader.py", R_OK))
		SKIP("not run in the root of the sources");
	need("python3");
	need("zstd");
}

TEST(format_second_reader_agrees_on_all_kinds)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 150000 };
	const char *path = test_path("format.dlbpf");
	struct evlist l = { 0 };
	uint64_t ts = 100000;

	need_all();
	rng_seed(60);
	for (int i = 0; i < 3000; i++) {
		ts += rng() % 3000;
		evlist_add(&l, random_event(random_desc(), ts - rng() % 20000));
	}
	write_list(path, &l, &opts, NULL);
	check_agrees(path, &l);
	evlist_fini(&l);
}

/* Numbers that bring out every model: totals, threads that come back, deadlines, neighbours. */
TEST(format_second_reader_agrees_on_models)
{
	const char *path = test_path("format.dlbpf");
	struct evlist l = { 0 };
	uint64_t exec[7] = { 0 };
	uint32_t switches[7] = { 0 };

	need_all();
	rng_seed(61);
	for (uint32_t i = 0; i < 8000; i++) {
		uint32_t t = (uint32_t)(rng() % 7), cpu = i % 2;
		struct dl_ev_switch ev = {
			.h = { .size = sizeof(ev), .kind = DL_EV_SWITCH, .ts = 1000000 + i * 1000 + rng() % 900,
			       .tid = 100 + t, .pid = 100 + t / 3, .cpu = (uint16_t)cpu },
			.next_tid = (uint32_t)(100 + rng() % 7), .prev_state = t != 2,
			.syscall = t == 1 ? -1 : 202, .arg0 = 0x7f0000000000 + t * 64,
			.arg1 = t == 1 ? 0 : 0x189, .switches = switches[t] += 1 + t % 2,
		};

		ev.next_pid = 100 + (ev.next_tid - 100) / 3;
		ev.deadline = t == 3 ? ev.h.ts + 5000000 + rng() % 1000 : 0;
		ev.exec_ns = t ? (exec[t] += 800 + rng() % 300) : 0;
		if (l.off.cnt > 1) {	/* this one was switched in by the one before on its CPU */
			size_t prev = l.off.cnt - 2;

			((struct dl_ev_switch *)(void *)(l.bytes.v + l.off.v[prev]))->next_tid = ev.h.tid;
		}
		evlist_add(&l, &ev.h);
	}
	write_list(path, &l, NULL, NULL);
	check_agrees(path, &l);
	evlist_fini(&l);
}

TEST(format_second_reader_reads_what_is_left)
{
	const struct dl_trace_writer_opts opts = { .frame_raw_sz = 8192 };
	const char *path = test_path("format.dlbpf");
	struct evlist l = { 0 }, left = { 0 };
	struct dl_trace *t;
	struct stat st;

	need_all();
	rng_seed(62);
	for (uint64_t i = 0; i < 400; i++)
		evlist_add(&l, random_event(random_desc(), 1000 + i));
	write_list(path, &l, &opts, NULL);
	CHECK(!stat(path, &st));
	CHECK(!truncate(path, st.st_size * 2 / 3));
	t = open_trace(path);
	read_events(t, &left);
	dl_trace_close(t);
	CHECK(left.off.cnt > 0 && left.off.cnt < 400);
	check_agrees(path, &left);
	evlist_fini(&l);
	evlist_fini(&left);
}

TEST(format_page_of_events_is_up_to_date)
{
	if (access("docs/mkevents.py", R_OK))
		SKIP("not run in the root of the sources");
	need("python3");
	free(run("python3 docs/mkevents.py --check 2>&1"));
}
