/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/event.h"

#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "render/clean.h"
#include "render/enums.h"
#include "render/jsonb.h"

/* Room that only keeps the alignment. */
static bool is_filler(const struct dl_field *f)
{
	return !strcmp(f->name, "reserved");
}


static bool is_signed(const struct dl_field *f)
{
	return f->type == DL_FT_s32 || f->type == DL_FT_s64;
}

/* The value of a number, sign-extended; that of a u64 keeps its bits. */
static int64_t number(const struct dl_field *f, const struct dl_hdr *ev)
{
	const void *at = (const char *)ev + f->off;
	uint16_t u16;
	uint32_t u32;
	int32_t s32;
	int64_t s64;

	switch (f->type) {
	case DL_FT_u16:
		memcpy(&u16, at, sizeof(u16));
		return u16;
	case DL_FT_u32:
		memcpy(&u32, at, sizeof(u32));
		return u32;
	case DL_FT_s32:
		memcpy(&s32, at, sizeof(s32));
		return s32;
	default:
		memcpy(&s64, at, sizeof(s64));
		return s64;
	}
}

void dl_event_time(struct dl_str *out, const struct dl_event_fmt *fmt, uint64_t ts)
{
	const bool early = ts < fmt->start_ts;
	const uint64_t ns = early ? fmt->start_ts - ts : ts - fmt->start_ts;

	dl_str_addf(out, "%s%" PRIu64 ".%09" PRIu64, early ? "-" : "", ns / 1000000000, ns % 1000000000);
}

static void add_hex(struct dl_str *out, const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		dl_str_addf(out, "%02x", bytes[i]);
}

static size_t hex_len(const uint8_t *bytes, size_t len)
{
	while (len && !bytes[len - 1])
		len--;
	return len;
}

static bool is_ns(const struct dl_field *f)
{
	const size_t len = strlen(f->name);

	return f->unit == DL_UNIT_NS ||
	       (f->unit == DL_UNIT_TOTAL && len > 3 && !strcmp(f->name + len - 3, "_ns"));
}

static bool is_syscall_arg(const struct dl_field *f)
{
	return !strncmp(f->name, "arg", 3) && f->name[3] >= '0' && f->name[3] <= '9';
}

/* 0 means "none" or "unknown" in these units, and is not worth a word in text; unless it is the
 * first of a count that begins there. */
static bool is_none(const struct dl_field *f, int64_t val, const char *name)
{
	if (val)
		return false;
	switch (f->unit) {
	case DL_UNIT_ENUM:
		return name && !strcmp(name, "none");
	case DL_UNIT_ID:
	case DL_UNIT_TIME:
	case DL_UNIT_ADDR:
	case DL_UNIT_NUM:
	case DL_UNIT_BITS:
		return !name && !strstr(f->doc, "from 0");
	default:
		return false;
	}
}

/* "8.00ms": a blank would end the value. */
static void add_duration(struct dl_str *out, uint64_t ns)
{
	char buf[32];
	const char *unit = strchr(dl_fmt_ns(buf, sizeof(buf), ns), ' ');

	dl_str_addn(out, buf, unit ? (size_t)(unit - buf) : strlen(buf));
	dl_str_add(out, unit ? unit + 1 : "");
}

static void add_value(struct dl_str *out, const struct dl_event_fmt *fmt, const struct dl_field *f,
		      int64_t val)
{
	if (f->unit == DL_UNIT_TIME)
		dl_event_time(out, fmt, (uint64_t)val);
	else if (f->unit == DL_UNIT_ADDR || f->unit == DL_UNIT_BITS || is_syscall_arg(f))
		dl_str_addf(out, "0x%" PRIx64, (uint64_t)val);
	else if (is_ns(f))
		add_duration(out, (uint64_t)val);
	else if (is_signed(f))
		dl_str_addf(out, "%" PRId64, val);
	else
		dl_str_addf(out, "%" PRIu64, (uint64_t)val);
}

static void add_number(struct dl_str *out, const struct dl_event_fmt *fmt, const struct dl_field *f,
		       int64_t val)
{
	_cleanup_(dl_str_fini) struct dl_str name = {};
	const char *quote;

	dl_field_name(&name, f, val, fmt->machine);
	if (name.err)
		out->err = name.err;
	if (is_none(f, val, name.s))
		return;
	quote = name.s && strchr(name.s, ' ') ? "\"" : "";
	dl_str_addf(out, " %s=", f->name);
	if (name.s)
		dl_str_addf(out, "%s%s%s", quote, name.s, quote);
	else
		add_value(out, fmt, f, val);
}

static void add_field(struct dl_str *out, const struct dl_event_fmt *fmt, const struct dl_field *f,
		      const struct dl_hdr *ev)
{
	const char *at = (const char *)ev + f->off;

	if (f->type == DL_FT_c16) {
		dl_str_addf(out, " %s=\"", f->name);
		dl_clean_line(out, at, strnlen(at, f->size), fmt->utf8);
		dl_str_add(out, "\"");
	} else if (f->type == DL_FT_x32) {
		const size_t len = hex_len((const uint8_t *)at, f->size);

		if (!len)
			return;
		dl_str_addf(out, " %s=", f->name);
		add_hex(out, (const uint8_t *)at, len);
	} else {
		add_number(out, fmt, f, number(f, ev));
	}
}

/* The tail, and how long it is; NULL without one. */
static const char *tail_of(const struct dl_event_desc *desc, const struct dl_hdr *ev, size_t *ret_len)
{
	if (desc->tail == DL_TAIL_NONE || ev->size <= desc->size)
		return NULL;
	if (desc->tail == DL_TAIL_STR)
		return dl_event_tail(ev, ret_len);
	*ret_len = ev->size - desc->size;
	return (const char *)ev + desc->size;
}

static void add_tail(struct dl_str *out, const struct dl_event_fmt *fmt,
		     const struct dl_event_desc *desc, const struct dl_hdr *ev)
{
	size_t len = 0;
	const char *tail = tail_of(desc, ev, &len);

	if (!tail)
		return;
	if (desc->tail == DL_TAIL_STR) {
		dl_str_add(out, " \"");
		dl_clean_line(out, tail, len, fmt->utf8);
		dl_str_add(out, "\"");
		return;
	}
	dl_str_add(out, " [");
	for (size_t i = 0; i + sizeof(uint64_t) <= len; i += sizeof(uint64_t)) {
		uint64_t addr;

		memcpy(&addr, tail + i, sizeof(addr));
		dl_str_addf(out, "%s%" PRIx64, i ? " " : "", addr);
	}
	dl_str_add(out, "]");
}

void dl_event_text(struct dl_str *out, const struct dl_event_fmt *fmt, const struct dl_hdr *ev)
{
	const struct dl_event_desc *desc = dl_event_desc(ev->kind);
	_cleanup_(dl_str_fini) struct dl_str at = {};
	char cpu[8] = "-";

	if (!desc)
		return;
	dl_event_time(&at, fmt, ev->ts);
	if (ev->cpu != DL_CPU_NONE)
		snprintf(cpu, sizeof(cpu), "%u", ev->cpu);
	dl_str_addf(out, "%14s %3s %7" PRIu32 " %7" PRIu32 "%s %-14s", at.s ? at.s : "", cpu, ev->pid,
		    ev->tid, ev->flags & DL_HDR_RESTATED ? "<" : ev->flags & DL_HDR_FOREIGN ? "*" : " ", desc->name);
	for (size_t i = 0; i < desc->field_cnt; i++)
		if (!is_filler(&desc->fields[i]))
			add_field(out, fmt, &desc->fields[i], ev);
	add_tail(out, fmt, desc, ev);
	dl_str_add(out, "\n");
}

static void json_field(struct jsonb *b, struct json_object *fields, struct json_object *names,
		       const struct dl_event_fmt *fmt, const struct dl_field *f, const struct dl_hdr *ev)
{
	_cleanup_(dl_str_fini) struct dl_str s = {};
	const char *at = (const char *)ev + f->off;

	if (f->type == DL_FT_c16) {
		jb_strn(b, fields, f->name, at, strnlen(at, f->size));
	} else if (f->type == DL_FT_x32) {
		add_hex(&s, (const uint8_t *)at, hex_len((const uint8_t *)at, f->size));
		jb_strn(b, fields, f->name, s.s ? s.s : "", s.len);
	} else {
		const int64_t val = number(f, ev);

		if (is_signed(f))
			jb_s64(b, fields, f->name, val);
		else
			jb_u64(b, fields, f->name, (uint64_t)val);
		dl_field_name(&s, f, val, fmt->machine);
		if (s.len)
			jb_strn(b, names, f->name, s.s, s.len);
	}
	if (s.err)
		b->err = s.err;
}

static void json_tail(struct jsonb *b, struct json_object *root, const struct dl_event_desc *desc,
		      const struct dl_hdr *ev)
{
	struct json_object *list;
	size_t len = 0;
	const char *tail = tail_of(desc, ev, &len);

	if (desc->tail == DL_TAIL_STR) {
		jb_strn(b, root, "text", tail ? tail : "", len);
	} else if (desc->tail == DL_TAIL_ADDRS) {
		list = jb_array(b, root, "addrs");
		for (size_t i = 0; tail && i + sizeof(uint64_t) <= len; i += sizeof(uint64_t)) {
			uint64_t addr;

			memcpy(&addr, tail + i, sizeof(addr));
			jb_u64(b, list, NULL, addr);
		}
	}
}

int dl_event_json(FILE *out, const struct dl_event_fmt *fmt, const struct dl_hdr *ev, struct dl_diag *d)
{
	const struct dl_event_desc *desc = dl_event_desc(ev->kind);
	struct json_object *root, *fields, *names;
	struct jsonb b = {};
	int err;

	if (!desc)
		return 0;
	root = jb_object(&b, NULL, NULL);
	jb_str(&b, root, "kind", desc->name);
	jb_u64(&b, root, "ts", ev->ts);
	jb_u64(&b, root, "tid", ev->tid);
	jb_u64(&b, root, "pid", ev->pid);
	if (ev->cpu != DL_CPU_NONE)
		jb_u64(&b, root, "cpu", ev->cpu);
	else
		jb_null(&b, root, "cpu");
	jb_bool(&b, root, "foreign", ev->flags & DL_HDR_FOREIGN);
	if (ev->flags & DL_HDR_RESTATED)
		jb_bool(&b, root, "restated", true);
	fields = jb_object(&b, root, "fields");
	names = jb_object(&b, root, "names");
	for (size_t i = 0; i < desc->field_cnt; i++)
		if (!is_filler(&desc->fields[i]))
			json_field(&b, fields, names, fmt, &desc->fields[i], ev);
	json_tail(&b, root, desc, ev);
	err = jb_write(&b, root, false, out, d);
	json_object_put(root);
	return err;
}
