/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The JSON report, read back with a parser. With DLBPF_SAMPLES_DIR set, every sample is also
 * written there as NAME.json, for the test that holds it against docs/report.schema.json.
 */
#include <iconv.h>
#include "test.h"

#include <json-c/json.h>

#include "base/diag.h"
#include "render/clean.h"
#include "render/json.h"
#include "failing_alloc.h"
#include "render_samples.h"

typedef struct dl_report *(*sample_fn)(void);

static const struct { const char *name; sample_fn make; } samples[] = {
	{ "decode", sample_decode }, { "no-gpu", sample_no_gpu }, { "healthy", sample_healthy },
	{ "crash", sample_crash }, { "cut", sample_cut }, { "empty", sample_empty },
};

static char *render(const struct dl_report *r)
{
	struct dl_diag d = {};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	CHECK_OK(dl_render_json(r, out, &d));
	fclose(out);
	CHECK_EQ(strlen(text), len);
	return text;
}

/* By the C library, and without JSON_TOKENER_STRICT below: with it json-c 0.18 refuses every byte
 * above 127 in a string, since it compares a signed char with 0x1f. */
static bool is_utf8(const char *text)
{
	char out[4096], *in = (char *)text;
	size_t left = strlen(text);
	iconv_t cd = iconv_open("UTF-32", "UTF-8");
	bool good = true;

	CHECK(cd != (iconv_t)-1);
	while (left && good) {
		char *to = out;
		size_t room = sizeof(out);

		good = iconv(cd, &in, &left, &to, &room) != (size_t)-1 || errno == E2BIG;
	}
	iconv_close(cd);
	return good;
}

static struct json_object *parse(const char *text)
{
	struct json_tokener *tok = json_tokener_new();
	struct json_object *root;

	CHECK(is_utf8(text));
	CHECK(tok);
	root = json_tokener_parse_ex(tok, text, (int)strlen(text) + 1);
	CHECK_MSG(root, "%s", json_tokener_error_desc(json_tokener_get_error(tok)));
	json_tokener_free(tok);
	return root;
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *val = NULL;

	CHECK_MSG(json_object_object_get_ex(o, key, &val), "%s", key);
	return val;
}

static struct json_object *at(struct json_object *o, const char *key, size_t i)
{
	struct json_object *list = get(o, key);

	CHECK_MSG(i < json_object_array_length(list), "%s[%zu]", key, i);
	return json_object_array_get_idx(list, i);
}

static uint64_t num(struct json_object *o, const char *key)
{
	return json_object_get_uint64(get(o, key));
}

static const char *str(struct json_object *o, const char *key)
{
	return json_object_get_string(get(o, key));
}

static void save(const char *name, const char *text)
{
	const char *dir = getenv("DLBPF_SAMPLES_DIR");
	char path[512];
	FILE *f;

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/%s.json", dir, name);
	f = fopen(path, "w");
	CHECK_MSG(f, "%s", path);
	CHECK(fputs(text, f) >= 0);
	CHECK(!fclose(f));
}

TEST(every_sample_is_valid_json)
{
	for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
		struct dl_report *r = samples[i].make();
		char *text = render(r);
		struct json_object *root = parse(text);

		CHECK_STR(str(root, "schema"), "dlbpf.report/1");
		CHECK_EQ(text[strlen(text) - 1], '\n');
		save(samples[i].name, text);
		json_object_put(root);
		free(text);
		dl_report_free(r);
	}
}

TEST(members_stand_in_a_fixed_order)
{
	static const char *const order[] = {
		"schema", "trace", "verdict", "devices", "waits", "processes", "crash", "trainers", "loaders",
		"copies", "copy_devices", "gpus", "worst", "losses", "left_out", "absent", "notes",
	};
	struct dl_report *r = sample_decode();
	char *text = render(r);
	struct json_object *root = parse(text);
	size_t i = 0;

	json_object_object_foreach(root, key, val) {
		(void)val;
		CHECK(i < sizeof(order) / sizeof(order[0]));
		CHECK_STR(key, order[i++]);
	}
	CHECK_EQ(i, sizeof(order) / sizeof(order[0]));
	json_object_put(root);
	free(text);
	dl_report_free(r);
}

TEST(values_of_a_gpu_run)
{
	struct dl_report *r = sample_decode();
	char *text = render(r);
	struct json_object *root = parse(text), *dev = at(root, "devices", 0), *c;
	uint64_t sum = 0, last = UINT64_MAX;

	CHECK_EQ(num(get(root, "trace"), "duration_ns"), 30 * SEC);
	CHECK(json_object_get_boolean(get(get(root, "trace"), "complete")));
	CHECK_STR(str(get(root, "trace"), "gpu_source"), "CUPTI 13.0 (simulated)");
	CHECK_STR(str(get(root, "verdict"), "cause"), "decode");
	CHECK_EQ(json_object_array_length(get(get(root, "verdict"), "actions")), 2);
	CHECK_EQ(num(dev, "busy_ns"), 11700 * MS);
	CHECK_EQ(num(dev, "idle_ns"), 18300 * MS);
	for (size_t i = 0; i < json_object_array_length(get(dev, "causes")); i++) {
		c = at(dev, "causes", i);
		CHECK(num(c, "ns") <= last);
		last = num(c, "ns");
		sum += last;
		CHECK_NEAR(json_object_get_double(get(c, "share")) * 1e6, (double)last / 18300e6 * 1e6, 1);
	}
	CHECK_EQ(sum, 18300 * MS);
	CHECK_STR(str(at(dev, "causes", 2), "cause"), "cpu-contention");
	CHECK_EQ(num(at(dev, "causes", 2), "own_tree_ns"), 600 * MS);
	CHECK_STR(str(at(root, "copies", 0), "direction"), "host-to-device");
	CHECK_STR(str(at(root, "copies", 0), "memory"), "pageable");
	CHECK_STR(str(at(root, "copy_devices", 0), "problem"), "pageable");
	CHECK_EQ(num(get(at(root, "copy_devices", 0), "link"), "bytes_per_s"), 15753846152ULL);
	CHECK_EQ(num(get(at(root, "copy_devices", 0), "numa"), "device_node"), 1);
	CHECK(!get(get(at(root, "copy_devices", 0), "numa"), "memory_node"));
	CHECK_EQ(num(get(at(root, "gpus", 0), "memory"), "peak_bytes"), 60ULL << 30);
	CHECK_STR(str(at(root, "gpus", 0), "pci"), "0000:3b:00.0");
	CHECK(!get(root, "crash"));
	json_object_put(root);
	free(text);
	dl_report_free(r);
}

TEST(steps_of_a_gap_are_in_the_order_of_time_and_add_up)
{
	struct dl_report *r = sample_decode();
	char *text = render(r);
	struct json_object *root = parse(text), *gap = at(root, "worst", 0), *steps = get(gap, "steps");
	int64_t end = json_object_get_int64(get(gap, "start_ns"));
	uint64_t causes = 0;

	CHECK_EQ(end, 12345 * MS);
	for (size_t i = 0; i < json_object_array_length(steps); i++) {
		struct json_object *s = json_object_array_get_idx(steps, i);

		CHECK_EQ(json_object_get_int64(get(s, "start_ns")), end);
		end = json_object_get_int64(get(s, "end_ns"));
	}
	CHECK_EQ(end, json_object_get_int64(get(gap, "end_ns")));
	json_object_object_foreach(get(gap, "causes"), key, val) {
		(void)key;
		causes += json_object_get_uint64(val);
	}
	CHECK_EQ(causes, 412 * MS);
	CHECK(json_object_get_boolean(get(json_object_array_get_idx(steps, 3), "woke_next")));
	CHECK_STR(str(json_object_array_get_idx(steps, 4), "role"), "feeder");
	json_object_put(root);
	free(text);
	dl_report_free(r);
}

TEST(a_crash)
{
	struct dl_report *r = sample_crash();
	char *text = render(r);
	struct json_object *root = parse(text), *crash = get(root, "crash");

	CHECK_EQ(num(crash, "pid"), 4302);
	CHECK_EQ(num(crash, "nspid"), 102);
	CHECK_STR(str(crash, "role"), "worker");
	CHECK_EQ(num(crash, "signal"), 7);
	CHECK_STR(str(crash, "cause"), "shm-full");
	CHECK_EQ(num(crash, "at_ns"), 17500 * MS);
	CHECK_EQ(num(at(root, "processes", 2), "exit_status"), 7);
	CHECK(!get(at(root, "processes", 0), "exit_status"));
	json_object_put(root);
	free(text);
	dl_report_free(r);
}

TEST(without_a_cause_it_is_null)
{
	struct dl_report *r = sample_healthy();
	char *text = render(r);
	struct json_object *root = parse(text), *verdict = get(root, "verdict");

	CHECK(!get(verdict, "cause"));
	CHECK(json_object_get_boolean(get(verdict, "healthy")));
	json_object_put(root);
	free(text);
	dl_report_free(r);
}

TEST(large_numbers_are_exact)
{
	struct dl_report *r = sample_empty();
	char *text;

	r->events = UINT64_MAX;
	r->lost = (1ULL << 53) + 1;
	r->start = 10 * SEC;
	sample_proc(r, UINT32_MAX, DL_ROLE_TRAINER, -1, "x")->start = 9 * SEC;	/* before the recording */
	text = render(r);
	CHECK_HAS(text, "\"events\": 18446744073709551615,");
	CHECK_HAS(text, "\"lost\": 9007199254740993,");
	CHECK_HAS(text, "\"start_ns\": -1000000000,");
	CHECK_HAS(text, "\"pid\": 4294967295,");
	free(text);
	dl_report_free(r);
}

TEST(shares_are_numbers_between_0_and_1)
{
	static const double shares[] = { 0.0 / 1.0, -1, 2, 1e300 };
	static const char *const want[] = { "0.000000", "0.000000", "1.000000", "1.000000" };

	for (size_t i = 0; i < 5; i++) {
		struct dl_report *r = sample_decode();
		char *text, expect[64];

		r->verdict.share = i < 4 ? shares[i] : __builtin_nan("");
		text = render(r);
		snprintf(expect, sizeof(expect), "\"cause\": \"decode\",\n    \"share\": %s,", i < 4 ? want[i] : want[0]);
		CHECK_HAS(text, expect);
		json_object_put(parse(text));
		free(text);
		dl_report_free(r);
	}
}

TEST(any_bytes_become_valid_utf8)
{
	struct dl_report *r = sample_crash();
	uint32_t seed = 12345;
	char bytes[300];

	for (int round = 0; round < 200; round++) {
		char *text;

		for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
			seed = seed * 1664525 + 1013904223;
			bytes[i] = (char)(seed >> 24 ? seed >> 24 : 1);
		}
		bytes[sizeof(bytes) - 1] = '\0';
		free(r->procs.v[0].name);
		r->procs.v[0].name = strdup(bytes);
		free(r->verdict.text);
		r->verdict.text = strdup(bytes);
		text = render(r);
		json_object_put(parse(text));
		free(text);
	}
	dl_report_free(r);
}

TEST(utf8_is_kept_and_what_is_none_is_replaced)
{
	static const struct { const char *in, *out; } cases[] = {
		{ "plain", "plain" },
		{ "h\xc3\xb6 \xe6\x97\xa5 \xf0\x9f\x98\x80", "h\xc3\xb6 \xe6\x97\xa5 \xf0\x9f\x98\x80" },
		{ "a\xff" "b", "a\xef\xbf\xbd" "b" },
		{ "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },			/* overlong */
		{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },	/* surrogate */
		{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* too large */
		{ "cut \xe6\x97", "cut \xef\xbf\xbd\xef\xbf\xbd" },
		{ "tab\there", "tab\there" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dl_str s = {};

		dl_clean_utf8(&s, cases[i].in, strlen(cases[i].in));
		CHECK_STR(s.s, cases[i].out);
		dl_str_fini(&s);
	}
}

TEST(a_full_disk_is_an_error)
{
	struct dl_report *r = sample_decode();
	struct dl_diag d = {};
	FILE *full = fopen("/dev/full", "w");

	CHECK(full);
	CHECK_EQ(dl_render_json(r, full, &d), -ENOSPC);
	CHECK_HAS(d.msg, "No space left");
	fclose(full);
	dl_report_free(r);
}

#if FAILING_ALLOC
/* Wherever memory runs out, the answer is an error and nothing else. */
TEST(no_memory)
{
	struct dl_report *r = sample_crash();
	FILE *out = fopen("/dev/null", "w");
	struct dl_diag d = {};
	char buf[BUFSIZ];
	int err = -ENOMEM;

	CHECK(out);
	setvbuf(out, buf, _IOFBF, sizeof(buf));
	for (long n = 0; err; n += 1 + n / 50) {
		alloc_left = n;
		err = dl_render_json(r, out, &d);
		alloc_left = LONG_MAX;
		CHECK_MSG(!err || err == -ENOMEM, "after %ld allocations: %d", n, err);
	}
	fclose(out);
	dl_report_free(r);
}
#endif

TEST(what_was_left_out)
{
	struct dl_report *r = sample_cut();
	char *text = render(r);
	struct json_object *root = parse(text), *row = at(root, "left_out", 0);

	CHECK_EQ(num(get(root, "trace"), "lost"), 123456);
	CHECK_EQ(num(get(root, "trace"), "left_out"), 5432);
	CHECK_STR(str(row, "what"), "user stacks of samples");
	CHECK_STR(str(row, "kind"), "sample");
	CHECK(json_object_get_boolean(get(row, "event_kept")));
	CHECK_EQ(num(row, "count"), 5400);
	CHECK_EQ(json_object_array_length(get(row, "times")), 2);
	CHECK_EQ(num(at(row, "times", 1), "start_ns"), 20 * SEC);
	CHECK_EQ(num(at(row, "times", 1), "end_ns"), 20500 * MS);
	CHECK(!json_object_get_boolean(get(at(root, "left_out", 1), "event_kept")));
	CHECK_EQ(num(at(root, "losses", 0), "first_ns"), 3214 * MS);
	CHECK_EQ(num(at(root, "losses", 0), "last_ns"), 8300 * MS);
	CHECK(!get(at(root, "losses", 1), "first_ns"));
	json_object_put(root);
	free(text);
	dl_report_free(r);
}
