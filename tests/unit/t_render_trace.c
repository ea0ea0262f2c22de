/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What info and dump print of a trace whose contents are known. With DLBPF_SAMPLES_DIR set, the
 * traces are left there as sample.dlbpf and cut.dlbpf, for the command-line tests.
 */
#include "test.h"

#include <json-c/json.h>

#include "base/diag.h"
#include "render/enums.h"
#include "render/event.h"
#include "render/info.h"
#include "render/syscall_name.h"
#include "render/text.h"
#include "synth/synth.h"
#include "trace/schema.h"
#include "trace/trace.h"

#define T0 (1000 * MS(1000))

static const char *sample_path(const char *name)
{
	static char path[512];
	const char *dir = getenv("DLBPF_SAMPLES_DIR");

	if (!dir)
		return test_path(name);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* A trainer, a worker that is killed, a stranger, losses, something absent, a simulated GPU. */
static struct synth *fill(const char *path)
{
	struct synth *s = synth_new(path);
	struct dl_trace_meta *m = synth_meta(s);
	struct dl_ev_signal sig = { .h = { sizeof(sig), DL_EV_SIGNAL, 900, T0 + MS(70), 900, 1,
					   DL_HDR_FOREIGN },
				    .target_tid = 4301, .target_pid = 4301, .sig = 9, .group = 1,
				    .sender_comm = { "kill\033[2J" } };

	CHECK(s);
	m->start_ts = T0;
	m->start_realtime_ns = 1700000000ULL * 1000000000;
	m->cpus = 8;
	m->page_sz = 4096;
	m->sample_hz = 20;
	m->host = (char *)"gpu03";
	m->kernel = (char *)"6.1.0-37-amd64";
	m->machine = (char *)"x86_64";
	m->recorder = (char *)"dlbpf 0.1.0";
	m->record_args = (char *)"dlbpf record -o sample.dlbpf -- python train.py";
	m->target_cmdline = (char *)"python train.py";
	synth_foreign(s, 900, 900, "kill");
	synth_task(s, T0 - MS(1), 4242, 4242, 1, "python", DL_TF_ROOT, 0);
	synth_cmdline(s, T0 - MS(1), 4242, "python train.py --name caf\xc3\xa9\xff");
	synth_fork(s, T0 + MS(1), 4242, 4242, 4301, 4301, "pt_data_worker");
	synth_fork(s, T0 + MS(2), 4301, 4301, 4310, 4301, "QueueFeeder");
	synth_run(s, 0, 4242, 4242, T0 + MS(2), T0 + MS(10), SYNTH_SLEEP,
		  WAIT(202, .arg0 = 0x7f0012345678, .arg1 = 0x189, .deadline = T0 + MS(15)));
	synth_run(s, 1, 4301, 4301, T0 + MS(3), T0 + MS(60), SYNTH_DISK,
		  WAIT(0, .file_kind = DL_FILE_REG, .file_dev = 8 << 20 | 17, .file_ino = 4711,
		       .file_magic = 0xef53, .flags = DL_SW_IOWAIT | DL_SW_BLOCKIO));
	synth_event(s, &sig.h);
	synth_exit(s, T0 + MS(71), 4301, 4301, 9, DL_EX_LAST);
	synth_gpu_source(s, T0 + MS(5), 4242, DL_GPU_COLLECTOR, DL_GPU_SIMULATED, "CUPTI 13.0 (simulated)");
	synth_kernel(s, T0 + MS(20), T0 + MS(30), 4242, 0, 7, 1, "gemm");
	synth_memcpy(s, T0 + MS(15), T0 + MS(19), 4242, 0, 7, 2, DL_GPU_HTOD, DL_GPU_MEM_PAGEABLE, 1 << 20);
	synth_stack(s, T0 + MS(25), 4242, "schedule", "forward;main");
	synth_loss(s, T0 + MS(40), 0, DL_LOSS_RING_FULL, DL_EV_SWITCH, 5);
	synth_loss(s, T0 + MS(80), 0, DL_LOSS_RING_FULL, DL_EV_SWITCH, 12);
	synth_loss(s, T0 + MS(80), DL_RING_GPU, DL_LOSS_INVALID, 0, 3);
	synth_absent(s, T0, DL_SRC_FAULTS, "fexit is refused");
	synth_mark(s, T0 + MS(90), DL_MARK_TARGET_EXIT, 256, "");
	synth_mark(s, T0 + MS(100), DL_MARK_STOP, 0, "the target ended");
	return s;
}

static struct dl_trace *open_trace(const char *path)
{
	struct dl_trace *t = NULL;
	struct dl_diag d = {};
	int err = dl_trace_open(&t, path, &d);

	CHECK_MSG(!err, "%s", d.msg);
	return t;
}

static struct dl_trace *make_trace(bool killed)
{
	const char *path = sample_path(killed ? "cut.dlbpf" : "sample.dlbpf");
	struct synth *s = fill(path);

	CHECK_OK(killed ? synth_finish_killed(s) : synth_finish(s));
	return open_trace(path);
}

static char *info_of(struct dl_trace *t, bool json)
{
	const struct dl_text_opts opts = { .utf8 = true };
	struct dl_info *info = NULL;
	struct dl_diag d = {};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	CHECK_OK(dl_info_collect(&info, t, "the.dlbpf", &d));
	CHECK_OK(json ? dl_info_json(info, out, &d) : dl_info_text(info, &opts, out, &d));
	fclose(out);
	dl_info_free(info);
	return text;
}

TEST(info_says_what_was_put_in)
{
	struct dl_trace *t = make_trace(false);
	char *text = info_of(t, false);
	static const char *const has[] = {
		"the.dlbpf\n", "2023-11-14 22:13:20 UTC", "gpu03: Linux 6.1.0-37-amd64, x86_64, 8 CPUs",
		"dlbpf 0.1.0: dlbpf record -o sample.dlbpf -- python train.py", "pid 4242: python train.py",
		"the target ended", "exit code 1", "pid 4242: collector, CUPTI 13.0 (simulated)",
		"faults: fexit is refused", "20 a second and CPU", "PROCESSES (2)", "SIGKILL",
	};

	for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
		CHECK_HAS(text, has[i]);
	CHECK_HAS(text, "sched 0  ring full  switch      12\n");	/* the last total, not the sum */
	CHECK_HAS(text, "gpu      malformed  any          3\n");
	CHECK_HAS(text, "python train.py --name caf\xc3\xa9?");
	free(text);
	dl_trace_close(t);
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *val = NULL;

	CHECK_MSG(json_object_object_get_ex(o, key, &val), "%s", key);
	return val;
}

TEST(info_json)
{
	struct dl_trace *t = make_trace(false);
	char *text = info_of(t, true);
	struct json_object *root = json_tokener_parse(text), *kinds, *procs, *worker;

	CHECK_MSG(root, "%s", text);
	kinds = get(root, "kinds");
	CHECK_EQ(json_object_get_int(get(kinds, "signal")), 1);
	CHECK_EQ(json_object_get_int(get(kinds, "fork")), 2);
	CHECK_EQ(json_object_get_int(get(get(root, "trace"), "lost")), 15);
	CHECK_EQ(json_object_get_int(get(get(root, "trace"), "target_status")), 256);
	CHECK(json_object_get_boolean(get(get(root, "trace"), "complete")));
	procs = get(root, "processes");
	CHECK_EQ(json_object_array_length(procs), 2);
	worker = json_object_array_get_idx(procs, 1);
	CHECK_EQ(json_object_get_int(get(worker, "pid")), 4301);
	CHECK_EQ(json_object_get_int(get(worker, "ppid")), 4242);
	CHECK_EQ(json_object_get_int(get(worker, "threads")), 2);
	CHECK_EQ(json_object_get_int(get(worker, "exit_status")), 9);
	CHECK_STR(json_object_get_string(get(worker, "name")), "pt_data_worker");
	json_object_put(root);
	free(text);
	dl_trace_close(t);
}

TEST(info_of_a_cut_off_trace)
{
	struct dl_trace *t = make_trace(true);
	char *text = info_of(t, false);

	CHECK_HAS(text, "missing: the recorder was killed");
	CHECK_HAS(text, "up to 0.100 s\n");
	free(text);
	dl_trace_close(t);
}

/* The line of the n-th event of a kind. */
static char *dump_of(uint16_t kind, int nth, bool json)
{
	struct dl_trace *t = make_trace(false);
	const struct dl_event_fmt fmt = { T0, "x86_64", true };
	const struct dl_hdr *ev;
	struct dl_diag d = {};
	struct dl_str s = {};
	char *text = NULL;
	size_t len;

	while (dl_trace_next(t, &ev) > 0) {
		if (ev->kind != kind || nth--)
			continue;
		if (json) {
			FILE *out = open_memstream(&text, &len);

			CHECK_OK(dl_event_json(out, &fmt, ev, &d));
			fclose(out);
		} else {
			dl_event_text(&s, &fmt, ev);
			text = dl_str_take(&s);
		}
		break;
	}
	dl_trace_close(t);
	CHECK(text);
	return text;
}

static void check_line(uint16_t kind, int nth, const char *const *parts)
{
	char *line = dump_of(kind, nth, false);
	size_t len = strlen(line);

	for (; *parts; parts++)
		CHECK_HAS(line, *parts);
	CHECK_EQ(strchr(line, '\n') - line, len - 1);
	for (const char *p = line; *p != '\n'; p++)
		CHECK((unsigned char)*p >= ' ');
	free(line);
}

TEST(dump_names_what_has_a_name)
{
	check_line(DL_EV_SIGNAL, 0, (const char *const[]){
		"   0.070000000   1     900     900* signal ", "target_pid=4301", "sig=SIGKILL",
		"result=delivered", "sender_comm=\"kill?[2J\"", NULL });
	check_line(DL_EV_EXIT, 0, (const char *const[]){ "code=9", "flags=last", NULL });
	check_line(DL_EV_GPU_MEMCPY, 0, (const char *const[]){
		"dir=host-to-device", "src=pageable", "dst=device", "bytes=1048576", "end=0.019000000", NULL });
	check_line(DL_EV_ABSENT, 0, (const char *const[]){ "source=faults", "\"fexit is refused\"", NULL });
	check_line(DL_EV_LOSS, 2, (const char *const[]){ "ring=gpu", "cause=malformed", "kind=any", "cnt=3", NULL });
	check_line(DL_EV_LOSS, 0, (const char *const[]){
		"ring=\"sched 0\"", "cause=\"ring full\"", "kind=switch", "cnt=5", NULL });
	check_line(DL_EV_FORK, 0, (const char *const[]){ "clone_flags=CHILD_CLEARTID|CHILD_SETTID|SIGCHLD", NULL });
	check_line(DL_EV_GPU_KERNEL, 0, (const char *const[]){ "device=0", NULL });
	check_line(DL_EV_CMDLINE, 0, (const char *const[]){
		"  -0.001000000   -    4242    4242 ", "\"python train.py --name caf\xc3\xa9?\"", NULL });
	check_line(DL_EV_STACK, 0, (const char *const[]){ "kernel_cnt=1 user_cnt=2 [", NULL });
}

TEST(dump_of_switches)
{
	struct dl_trace *t = make_trace(false);
	const struct dl_event_fmt fmt = { T0, "x86_64", true };
	struct dl_str all = {};
	const struct dl_hdr *ev;

	while (dl_trace_next(t, &ev) > 0)
		if (ev->kind == DL_EV_SWITCH)
			dl_event_text(&all, &fmt, ev);
	dl_trace_close(t);
	CHECK_HAS(all.s, "prev_state=S syscall=futex arg0=0x7f0012345678 arg1=0x189 deadline=0.015000000");
	CHECK_HAS(all.s, "prev_state=D syscall=read file_ino=4711 file_dev=8:17 file_magic=ext4 "
			 "file_kind=regular flags=iowait|blockio");
	dl_str_fini(&all);
}

TEST(dump_of_a_failed_call)
{
	struct { struct dl_ev_syscall_fail ev; char tail[16]; } e = { .ev = {
		.h = { .size = sizeof(e.ev) + 11, .kind = DL_EV_SYSCALL_FAIL, .tid = 5, .pid = 4, .ts = T0 },
		.syscall = 285, .err = 28, .bytes = 4096, .used = 10, .limit = 20, .file_kind = DL_FILE_REG,
		.of = DL_LIMIT_FS, .flags = DL_SF_NAME | DL_SF_SHM, .skipped = 3 }, .tail = "torch_1_2_3" };
	const struct dl_event_fmt fmt = { T0, "x86_64", true };
	struct dl_str s = {};

	dl_event_text(&s, &fmt, &e.ev.h);
	CHECK_HAS(s.s, "syscall=fallocate err=ENOSPC bytes=4096 used=10 limit=20");
	CHECK_HAS(s.s, "of=\"file system\" flags=name|shm skipped=3 \"torch_1_2_3\"");
	dl_str_fini(&s);
}

TEST(dump_json_keeps_numbers_and_adds_names)
{
	char *line = dump_of(DL_EV_SIGNAL, 0, true);
	struct json_object *root = json_tokener_parse(line), *fields, *names;

	CHECK_MSG(root, "%s", line);
	CHECK_EQ(strchr(line, '\n') - line, strlen(line) - 1);
	CHECK_STR(json_object_get_string(get(root, "kind")), "signal");
	CHECK_EQ(json_object_get_uint64(get(root, "ts")), T0 + MS(70));
	CHECK_EQ(json_object_get_int(get(root, "cpu")), 1);
	fields = get(root, "fields");
	names = get(root, "names");
	CHECK_EQ(json_object_get_int(get(fields, "sig")), 9);
	CHECK_STR(json_object_get_string(get(names, "sig")), "SIGKILL");
	CHECK_STR(json_object_get_string(get(fields, "sender_comm")), "kill\033[2J");
	json_object_put(root);
	free(line);

	line = dump_of(DL_EV_STACK, 0, true);
	root = json_tokener_parse(line);
	CHECK_MSG(root, "%s", line);
	CHECK_EQ(json_object_array_length(get(root, "addrs")), 3);
	CHECK(!get(root, "cpu"));
	json_object_put(root);
	free(line);

	line = dump_of(DL_EV_MARK, 0, true);
	root = json_tokener_parse(line);
	CHECK_STR(json_object_get_string(get(root, "text")), "");
	CHECK_STR(json_object_get_string(get(get(root, "names"), "what")), "target_exit");
	json_object_put(root);
	free(line);
}

/* Every kind prints, also one filled with ones, as a hostile file could. */
TEST(every_kind_with_any_bits)
{
	const struct dl_event_fmt fmt = { T0, NULL, true };
	struct dl_diag d = {};

	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		_Alignas(8) unsigned char buf[DL_EVENT_MAX_SZ];
		struct dl_hdr *ev = (struct dl_hdr *)buf;
		const struct dl_event_desc *desc = dl_event_desc(k);
		struct json_object *root;
		struct dl_str s = {};
		char *json = NULL;
		size_t len;
		FILE *out;

		if (!desc)
			continue;
		memset(buf, 0xff, sizeof(buf));
		ev->kind = (uint16_t)k;
		ev->size = (uint16_t)(desc->size + (desc->tail ? 16 : 0));
		dl_event_text(&s, &fmt, ev);
		CHECK_HAS(s.s, desc->name);
		dl_str_fini(&s);
		out = open_memstream(&json, &len);
		CHECK_OK(dl_event_json(out, &fmt, ev, &d));
		fclose(out);
		root = json_tokener_parse(json);
		CHECK_MSG(root, "%s", json);
		json_object_put(root);
		free(json);
	}
}

/* A new field that holds an enumeration must get its names. */
TEST(every_enumeration_of_the_contract_has_names)
{
	unsigned int named = 0;

	for (unsigned int k = 0; k < DL_EV_MAX; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);

		for (size_t i = 0; desc && i < desc->field_cnt; i++) {
			const struct dl_field *f = &desc->fields[i];

			if (!strstr(f->doc, "enum dl_"))
				continue;
			CHECK_MSG(dl_enum_of(f), "%s.%s: %s", desc->name, f->name, f->doc);
			named++;
		}
	}
	CHECK(named > 20);
}

TEST(system_calls_by_the_machine_of_the_trace)
{
	CHECK_STR(dl_syscall_name("x86_64", 0), "read");
	CHECK_STR(dl_syscall_name("x86_64", 202), "futex");
	CHECK_STR(dl_syscall_name("x86_64", 435), "clone3");
	CHECK_STR(dl_syscall_name("aarch64", 98), "futex");
	CHECK_STR(dl_syscall_name("aarch64", 63), "read");
	CHECK(!dl_syscall_name("x86_64", -1));
	CHECK(!dl_syscall_name("x86_64", INT32_MAX));
	CHECK(!dl_syscall_name("riscv64", 0));
	CHECK(!dl_syscall_name(NULL, 0));
}
