/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The SQLite export of Nsight Systems. Its tables exist only where they have rows, and its columns have
 * changed over the years: every column is asked for, and one that is missing is unknown. Rows are read
 * one at a time and sorted elsewhere.
 *
 * Memory kinds are not CUPTI's numbers: 0 is pageable, 1 pinned, 2 device. Ids of threads and processes
 * are packed: bits 0 to 23 the thread, 24 to 47 the process.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "import/import_int.h"

#define COLS_MAX 16

struct reader {
	struct dl_import *imp;
	struct dl_diag *d;
	sqlite3 *db;
	sqlite3_stmt *string;	/* StringIds by id; NULL without the table */
	struct dl_map names;	/* StringIds.id -> STRING.id */
	struct dl_map classes;	/* StringIds.id -> enum dl_gpu_call */
	struct dl_map mem, dirs, syncs;	/* the file's own numbers -> ours, from its ENUM_ tables */
};

/* One row of a table, as it is read. */
struct row {
	struct reader *r;
	const char *table;
	const char *const *cols;
	sqlite3_stmt *st;
	int at[COLS_MAX];	/* of the column in the statement; -1 the table has none */
	int64_t id;
};

typedef int (*row_fn)(struct row *row);

static int broken(struct reader *r, const char *table, int64_t row, const char *why)
{
	return dl_fail(r->d, -EBADMSG, "%s: table %s, row %lld: %s", r->imp->path, table, (long long)row, why);
}

/* --- tables --- */

static bool has_column(struct reader *r, const char *table, const char *col)
{
	return sqlite3_table_column_metadata(r->db, NULL, table, col, NULL, NULL, NULL, NULL, NULL) == SQLITE_OK;
}

/* A whole number of the row; missing columns and NULL are otherwise. */
static int col_int(struct row *row, int col, int64_t otherwise, int64_t *ret)
{
	char why[96];

	*ret = otherwise;
	if (row->at[col] < 0)
		return 0;
	switch (sqlite3_column_type(row->st, row->at[col])) {
	case SQLITE_INTEGER:
		*ret = sqlite3_column_int64(row->st, row->at[col]);
		return 0;
	case SQLITE_NULL:
		return 0;
	}
	snprintf(why, sizeof(why), "column %s is no whole number", row->cols[col]);
	return broken(row->r, row->table, row->id, why);
}

static const char *col_text(struct row *row, int col)
{
	return row->at[col] < 0 ? NULL : (const char *)sqlite3_column_text(row->st, row->at[col]);
}

static int build_query(struct reader *r, const char *table, const char *const *cols, struct row *row, struct dl_str *sql)
{
	int cnt = 1;

	dl_str_add(sql, "SELECT rowid");
	for (int i = 0; cols[i]; i++) {
		row->at[i] = has_column(r, table, cols[i]) ? cnt++ : -1;
		if (row->at[i] >= 0)
			dl_str_addf(sql, ",\"%s\"", cols[i]);
	}
	dl_str_addf(sql, " FROM \"%s\"", table);
	return sql->err;
}

/*
 * Calls fn for each row of a table, if there is one. The first needed columns must exist: without them
 * the table says nothing.
 */
static int each_row(struct reader *r, const char *table, const char *const *cols, int needed, row_fn fn)
{
	struct row row = { .r = r, .table = table, .cols = cols };
	struct dl_str sql = {};
	int rc, err = 0;

	if (!has_column(r, table, NULL))
		return 0;
	for (int i = 0; i < needed; i++) {
		if (!has_column(r, table, cols[i]))
			return dl_fail(r->d, -EBADMSG, "%s: table %s has no column %s", r->imp->path, table, cols[i]);
	}
	if (build_query(r, table, cols, &row, &sql)) {
		dl_str_fini(&sql);
		return dl_oom(r->d);
	}
	rc = sqlite3_prepare_v2(r->db, sql.s, -1, &row.st, NULL);
	dl_str_fini(&sql);
	while (rc == SQLITE_OK && !err) {
		int step = sqlite3_step(row.st);

		if (step == SQLITE_DONE)
			break;
		if (step != SQLITE_ROW) {
			rc = step;
			break;
		}
		row.id = sqlite3_column_int64(row.st, 0);
		err = fn(&row);
	}
	if (!err && rc != SQLITE_OK)
		err = dl_fail(r->d, rc == SQLITE_NOMEM ? -ENOMEM : -EBADMSG, "%s: table %s, behind row %lld: %s", r->imp->path,
			      table, (long long)row.id, sqlite3_errmsg(r->db));
	sqlite3_finalize(row.st);
	return err;
}

/* --- names --- */

static int string_of(struct reader *r, int64_t id, uint32_t *ret_name, uint32_t *ret_class)
{
	uint64_t name = 0, cls = DL_CALL_OTHER;
	uint32_t new_name = 0;
	int err = 0;

	if (!dl_map_get(&r->names, (uint64_t)id, &name) && r->string) {
		sqlite3_bind_int64(r->string, 1, id);
		if (sqlite3_step(r->string) == SQLITE_ROW) {
			char text[512], *v;

			snprintf(text, sizeof(text), "%.511s", (const char *)sqlite3_column_text(r->string, 0) ?: "");
			cls = dl_import_call_class(text);
			/* "cudaMemcpy_v3020": the version of the call is noise. */
			v = strrchr(text, '_');
			if (!strncmp(text, "cu", 2) && v && v[1] == 'v' && strspn(v + 2, "0123456789") == strlen(v + 2))
				*v = 0;
			err = dl_import_name(r->imp, 0, text, strlen(text), &new_name, r->d);
			name = new_name;
		}
		sqlite3_reset(r->string);
		if (!err && (dl_map_set(&r->names, (uint64_t)id, name) || dl_map_set(&r->classes, (uint64_t)id, cls)))
			err = dl_oom(r->d);
	}
	dl_map_get(&r->classes, (uint64_t)id, &cls);
	*ret_name = (uint32_t)name;
	*ret_class = (uint32_t)cls;
	return err;
}

static uint32_t pid_of(int64_t global)
{
	return (uint32_t)((uint64_t)global >> 24 & 0xffffff);
}

/* -1, which nothing takes, where the end is before the start. */
static int64_t dur_of(int64_t start, int64_t end)
{
	return start < 0 || end < start ? -1 : end - start;
}

static int use_device(struct reader *r, int64_t id)
{
	struct dl_import_device *dev = dl_import_device(r->imp, (uint32_t)id);

	if (!dev)
		return dl_oom(r->d);
	dev->used = true;
	return 0;
}

/* --- records --- */

/* Columns that all records of the device begin with. */
#define GPU_COLS "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"
enum { C_START, C_END, C_DEVICE, C_CONTEXT, C_STREAM, C_CORR, C_PID, C_MORE };

struct gpu_row { int64_t start, end, device, context, stream, corr, pid, more[5]; };

static int read_gpu_row(struct row *row, struct gpu_row *g, int more)
{
	int64_t *at[] = { &g->start, &g->end, &g->device, &g->context, &g->stream, &g->corr, &g->pid };
	int err = 0;

	for (int i = 0; i < C_MORE; i++)
		err = err ? err : col_int(row, i, i == C_END ? -1 : i == C_STREAM ? (int64_t)UINT32_MAX : 0, at[i]);
	for (int i = 0; i < more; i++)
		err = err ? err : col_int(row, C_MORE + i, 0, &g->more[i]);
	g->pid = pid_of(g->pid);
	return err ? err : use_device(row->r, g->device);
}

/* Where it ran, in the members that all events of the device have. */
#define SET_PLACE(ev, g) do { \
	(ev).h.pid = (uint32_t)(g).pid; \
	(ev).device = (uint32_t)(g).device; \
	(ev).context = (uint32_t)(g).context; \
	(ev).stream = (uint32_t)(g).stream; \
	(ev).corr = (uint32_t)(g).corr; \
} while (0)

static int put(struct row *row, struct dl_hdr *ev, const struct gpu_row *g)
{
	return dl_import_event(row->r->imp, ev, g->start, dur_of(g->start, g->end), row->r->d);
}

static int on_kernel(struct row *row)
{
	struct dl_ev_gpu_kernel k = { .h = { .kind = DL_EV_GPU_KERNEL, .size = sizeof(k) } };
	struct gpu_row g;
	uint32_t unused;
	int err = read_gpu_row(row, &g, 3);

	err = err ? err : string_of(row->r, g.more[0] ? g.more[0] : g.more[1], &k.name, &unused);
	if (err)
		return err;
	SET_PLACE(k, g);
	k.graph = (uint32_t)g.more[2];
	row->r->imp->info.kernels++;
	return put(row, &k.h, &g);
}

static uint16_t mem_of(const struct reader *r, int64_t kind)
{
	static const uint16_t mems[] = { DL_GPU_MEM_PAGEABLE, DL_GPU_MEM_PINNED, DL_GPU_MEM_DEVICE, DL_GPU_MEM_ARRAY,
					 DL_GPU_MEM_MANAGED, DL_GPU_MEM_DEVICE, DL_GPU_MEM_MANAGED };
	uint64_t v;

	if (r->mem.cnt)
		return dl_map_get(&r->mem, (uint64_t)kind, &v) ? (uint16_t)v : DL_GPU_MEM_UNKNOWN;
	return kind >= 0 && kind < (int64_t)ARRAY_SIZE(mems) ? mems[kind] : DL_GPU_MEM_UNKNOWN;
}

static uint16_t dir_of(const struct reader *r, int64_t kind)
{
	uint64_t v;

	if (r->dirs.cnt)
		return dl_map_get(&r->dirs, (uint64_t)kind, &v) ? (uint16_t)v : 0;
	if (kind >= 11 && kind <= 13)	/* managed memory: host to device, back, between devices */
		return kind == 11 ? DL_GPU_HTOD : kind == 12 ? DL_GPU_DTOH : DL_GPU_PTOP;
	return kind >= DL_GPU_HTOD && kind <= DL_GPU_PTOP ? (uint16_t)kind : 0;
}

static int on_memcpy(struct row *row)
{
	struct dl_ev_gpu_memcpy c = { .h = { .kind = DL_EV_GPU_MEMCPY, .size = sizeof(c) } };
	struct gpu_row g;
	int err = read_gpu_row(row, &g, 4);

	if (err)
		return err;
	SET_PLACE(c, g);
	c.bytes = g.more[0] > 0 ? (uint64_t)g.more[0] : 0;
	c.dir = dir_of(row->r, g.more[1]);
	c.src = mem_of(row->r, row->at[C_MORE + 2] < 0 ? -1 : g.more[2]);
	c.dst = mem_of(row->r, row->at[C_MORE + 3] < 0 ? -1 : g.more[3]);
	row->r->imp->info.copies++;
	return put(row, &c.h, &g);
}

static int on_memset(struct row *row)
{
	struct dl_ev_gpu_memset m = { .h = { .kind = DL_EV_GPU_MEMSET, .size = sizeof(m) } };
	struct gpu_row g;
	int err = read_gpu_row(row, &g, 1);

	if (err)
		return err;
	SET_PLACE(m, g);
	m.bytes = g.more[0] > 0 ? (uint64_t)g.more[0] : 0;
	row->r->imp->info.memsets++;
	return put(row, &m.h, &g);
}

static int on_graph(struct row *row)
{
	struct dl_ev_gpu_graph k = { .h = { .kind = DL_EV_GPU_GRAPH, .size = sizeof(k) } };
	struct gpu_row g;
	int err = read_gpu_row(row, &g, 1);

	if (err)
		return err;
	SET_PLACE(k, g);
	k.graph = (uint32_t)g.more[0];
	row->r->imp->info.kernels++;
	return put(row, &k.h, &g);
}

static int on_sync(struct row *row)
{
	struct dl_ev_gpu_sync s = { .h = { .kind = DL_EV_GPU_SYNC, .size = sizeof(s) } };
	struct gpu_row g;
	uint64_t type;
	int err = read_gpu_row(row, &g, 2);

	if (err)
		return err;
	s.h.pid = (uint32_t)g.pid;
	s.context = (uint32_t)g.context;
	s.stream = (uint32_t)g.stream;
	s.event = (uint32_t)g.more[1];
	s.corr = (uint32_t)g.corr;
	s.type = dl_map_get(&row->r->syncs, (uint64_t)g.more[0], &type) ? (uint32_t)type : (uint32_t)g.more[0];
	row->r->imp->info.syncs++;
	return put(row, &s.h, &g);
}

static int on_call(struct row *row)
{
	struct dl_ev_gpu_api a = { .h = { .kind = DL_EV_GPU_API, .size = sizeof(a) } };
	struct dl_import *imp = row->r->imp;
	int64_t v[7];
	int err = 0;

	for (int i = 0; i < 7; i++)
		err = err ? err : col_int(row, i, 0, &v[i]);
	err = err ? err : string_of(row->r, v[5], &a.name, &a.class);
	if (err)
		return err;
	a.h.pid = pid_of(v[2]);
	a.h.tid = (uint32_t)(v[2] & 0xffffff);
	a.domain = v[4] == 1 ? DL_GPU_DRIVER : DL_GPU_RUNTIME;
	a.corr = (uint32_t)v[3];
	a.ret = (uint32_t)v[6];
	if (!imp->info.calls)
		imp->info.pid = a.h.pid;
	if (dl_map_set(&imp->pid_seen, a.h.pid, 1) || !dl_import_thread(imp, a.h.pid, a.h.tid))
		return dl_oom(row->r->d);
	imp->info.calls++;
	return dl_import_event(imp, &a.h, v[0], dur_of(v[0], v[1]), row->r->d);
}

/* Of NVTX only the loader's ranges and the operators of emit_nvtx() say something here. */
static int on_nvtx(struct row *row)
{
	char buf[256];
	int64_t start, end, tid;
	const char *text = col_text(row, 3), *comma;
	int64_t id = 0;
	uint32_t kind;
	int err = col_int(row, 0, 0, &start);

	err = err ? err : col_int(row, 1, -1, &end);
	err = err ? err : col_int(row, 2, 0, &tid);
	err = err ? err : col_int(row, 4, 0, &id);
	if (err || end < 0)
		return err;	/* a mark, or a range that never ended */
	if (!text && id && row->r->string) {
		sqlite3_bind_int64(row->r->string, 1, id);
		if (sqlite3_step(row->r->string) == SQLITE_ROW)
			text = (const char *)sqlite3_column_text(row->r->string, 0);
	}
	snprintf(buf, sizeof(buf), "%.255s", text ? text : "");
	if (row->r->string)
		sqlite3_reset(row->r->string);
	comma = strstr(buf, ", ");	/* "aten::view, op_id = 314290" */
	if (comma)
		buf[comma - buf] = 0;
	kind = dl_import_span_kind(buf);
	if (!kind && strncmp(buf, "aten::", 6))
		return 0;
	return dl_import_span(row->r->imp, pid_of(tid), (uint32_t)(tid & 0xffffff), start, dur_of(start, end), buf,
			      kind ? kind : DL_SPAN_OP, row->r->d);
}

/* --- about the file --- */

static int on_start(struct row *row)
{
	int64_t ns;
	int err = col_int(row, 0, 0, &ns);

	if (err || ns <= 0 || ns > INT64_MAX / 2)
		return err;
	row->r->imp->info.base_ns = ns;
	row->r->imp->info.has_clock = true;
	return 0;
}

static int on_device(struct row *row)
{
	const char *name = col_text(row, 1);
	struct dl_import_device *dev;
	int64_t id, mem, cu;
	int err = col_int(row, 0, 0, &id);

	err = err ? err : col_int(row, 2, 0, &mem);
	err = err ? err : col_int(row, 3, id, &cu);
	if (err)
		return err;
	dev = dl_import_device(row->r->imp, (uint32_t)cu);
	if (!dev)
		return dl_oom(row->r->d);
	snprintf(dev->name, sizeof(dev->name), "%.63s", name ? name : "");
	dev->mem = mem > 0 ? (uint64_t)mem : 0;
	return 0;
}

static int on_meta(struct row *row)
{
	const char *name = col_text(row, 0), *value = col_text(row, 1);
	char *origin = row->r->imp->origin;

	if (!name || !value || !*value)
		return 0;
	if (strstr(name, "PRODUCT_VERSION") || strstr(name, "NSYS_VERSION"))
		snprintf(origin, sizeof(row->r->imp->origin), "Nsight Systems %.40s", value);
	else if (!strcmp(name, "EXPORT_SCHEMA_VERSION") && !strpbrk(origin, "0123456789"))
		snprintf(origin, sizeof(row->r->imp->origin), "Nsight Systems (schema %.40s)", value);
	return 0;
}

static int add_enum(struct row *row, struct dl_map *to, uint64_t (*of)(const char *name))
{
	const char *name = col_text(row, 1);
	int64_t id;
	int err = col_int(row, 0, -1, &id);

	if (err || id < 0 || !name)
		return err;
	return dl_map_set(to, (uint64_t)id, of(name)) ? dl_oom(row->r->d) : 0;
}

struct word { const char *part; uint64_t v; };

static uint64_t by_part(const struct word *words, size_t cnt, const char *name)
{
	for (size_t i = 0; i < cnt; i++) {
		if (strstr(name, words[i].part))
			return words[i].v;
	}
	return 0;
}

static uint64_t mem_by_name(const char *name)
{
	static const struct word words[] = {
		{ "PAGEABLE", DL_GPU_MEM_PAGEABLE }, { "PINNED", DL_GPU_MEM_PINNED }, { "MANAGED", DL_GPU_MEM_MANAGED },
		{ "DEVICE", DL_GPU_MEM_DEVICE }, { "ARRAY", DL_GPU_MEM_ARRAY },
	};

	return by_part(words, ARRAY_SIZE(words), name);
}

static uint64_t dir_by_name(const char *name)
{
	static const struct word words[] = {
		{ "HTOD", DL_GPU_HTOD }, { "DTOH", DL_GPU_DTOH }, { "DTOD", DL_GPU_DTOD }, { "HTOH", DL_GPU_HTOH },
		{ "PTOP", DL_GPU_PTOP }, { "HTOA", DL_GPU_HTOA }, { "ATOH", DL_GPU_ATOH }, { "ATOA", DL_GPU_ATOA },
		{ "ATOD", DL_GPU_ATOD }, { "DTOA", DL_GPU_DTOA },
	};

	return by_part(words, ARRAY_SIZE(words), name);
}

static uint64_t sync_by_name(const char *name)
{
	static const struct word words[] = {
		{ "STREAM_WAIT", DL_GPU_SYNC_STREAM_WAIT }, { "EVENT_SYNC", DL_GPU_SYNC_EVENT },
		{ "STREAM_SYNC", DL_GPU_SYNC_STREAM }, { "CONTEXT_SYNC", DL_GPU_SYNC_CONTEXT },
	};

	return by_part(words, ARRAY_SIZE(words), name);
}

static int on_mem_enum(struct row *row)
{
	return add_enum(row, &row->r->mem, mem_by_name);
}

static int on_dir_enum(struct row *row)
{
	return add_enum(row, &row->r->dirs, dir_by_name);
}

static int on_sync_enum(struct row *row)
{
	return add_enum(row, &row->r->syncs, sync_by_name);
}

static const struct table {
	const char *name;
	int needed;	/* of cols, the first ones */
	row_fn fn;
	const char *cols[COLS_MAX];
} tables[] = {
	{ "META_DATA_EXPORT", 2, on_meta, { "name", "value" } },
	{ "META_DATA_CAPTURE", 2, on_meta, { "name", "value" } },
	{ "TARGET_INFO_SESSION_START_TIME", 1, on_start, { "utcEpochNs" } },
	{ "TARGET_INFO_GPU", 2, on_device, { "id", "name", "totalMemory", "cuDevice" } },
	{ "ENUM_CUDA_MEM_KIND", 2, on_mem_enum, { "id", "name" } },
	{ "ENUM_CUDA_MEMCPY_OPER", 2, on_dir_enum, { "id", "name" } },
	{ "ENUM_CUPTI_SYNC_TYPE", 2, on_sync_enum, { "id", "name" } },
	{ "CUPTI_ACTIVITY_KIND_RUNTIME", 3, on_call,
	  { "start", "end", "globalTid", "correlationId", "eventClass", "nameId", "returnValue" } },
	{ "CUPTI_ACTIVITY_KIND_KERNEL", 2, on_kernel, { GPU_COLS, "demangledName", "shortName", "graphId" } },
	{ "CUPTI_ACTIVITY_KIND_MEMCPY", 2, on_memcpy, { GPU_COLS, "bytes", "copyKind", "srcKind", "dstKind" } },
	{ "CUPTI_ACTIVITY_KIND_MEMSET", 2, on_memset, { GPU_COLS, "bytes" } },
	{ "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 2, on_graph, { GPU_COLS, "graphId" } },
	{ "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 2, on_sync, { GPU_COLS, "syncType", "eventId" } },
	{ "NVTX_EVENTS", 3, on_nvtx, { "start", "end", "globalTid", "text", "textId" } },
};

static int read_tables(struct reader *r)
{
	int err = 0;

	if (has_column(r, "StringIds", "value") &&
	    sqlite3_prepare_v2(r->db, "SELECT value FROM StringIds WHERE id=?", -1, &r->string, NULL) != SQLITE_OK)
		return dl_fail(r->d, -EBADMSG, "%s: table StringIds: %s", r->imp->path, sqlite3_errmsg(r->db));
	for (size_t i = 0; i < ARRAY_SIZE(tables) && !err; i++)
		err = each_row(r, tables[i].name, tables[i].cols, tables[i].needed, tables[i].fn);
	return err;
}

int dl_nsys_read(struct dl_import *imp, struct dl_diag *d)
{
	struct reader r = { .imp = imp, .d = d };
	int err = 0;

	snprintf(imp->origin, sizeof(imp->origin), "Nsight Systems");
	if (sqlite3_open_v2(imp->path, &r.db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
	    sqlite3_exec(r.db, "PRAGMA cell_size_check=1; SELECT 1 FROM sqlite_master LIMIT 1", NULL, NULL, NULL) != SQLITE_OK)
		err = dl_fail(d, -EBADMSG, "cannot read %s: %s", imp->path, r.db ? sqlite3_errmsg(r.db) : "out of memory");
	if (!err)
		err = read_tables(&r);
	sqlite3_finalize(r.string);
	sqlite3_close(r.db);
	dl_map_fini(&r.names);
	dl_map_fini(&r.classes);
	dl_map_fini(&r.mem);
	dl_map_fini(&r.dirs);
	dl_map_fini(&r.syncs);
	return err;
}
