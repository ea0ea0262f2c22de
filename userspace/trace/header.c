/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The file header: metadata and the schema block, which makes a file describe itself. */
#include "trace/format.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/vec.h"

enum meta_kind { META_U64, META_U32, META_TEXT };

static const struct meta_key {
	const char *name;
	uint16_t off;
	uint8_t kind;
} meta_keys[] = {
#define KEY(field, kind) { #field, offsetof(struct dl_trace_meta, field), kind }
	KEY(start_ts, META_U64),
	KEY(start_realtime_ns, META_U64),
	KEY(target_pid, META_U32),
	KEY(cpus, META_U32),
	KEY(page_sz, META_U32),
	KEY(sample_hz, META_U32),
	KEY(host, META_TEXT),
	KEY(kernel, META_TEXT),
	KEY(machine, META_TEXT),
	KEY(target_cmdline, META_TEXT),
	KEY(recorder, META_TEXT),
	KEY(record_args, META_TEXT),
	KEY(boot_id, META_TEXT),
#undef KEY
};

#define META_KEY_CNT (sizeof(meta_keys) / sizeof(meta_keys[0]))

/* --- building --- */

static int add(struct dl_buf *out, const void *p, size_t sz)
{
	if (vec_reserve(out, sz))
		return -ENOMEM;
	if (sz)
		memcpy(out->v + out->cnt, p, sz);
	out->cnt += sz;
	return 0;
}

static int add_num(struct dl_buf *out, uint64_t v, size_t sz)
{
	return add(out, &v, sz);
}

static int add_meta(struct dl_buf *out, const struct dl_trace_meta *meta, const struct meta_key *key)
{
	const char *at = (const char *)meta + key->off, *text = NULL;
	size_t len = strlen(key->name), val_sz = 8;
	uint64_t num = 0;
	int err;

	if (key->kind == META_TEXT) {
		memcpy(&text, at, sizeof(text));
		text = text ? text : "";
		val_sz = strnlen(text, DL_MAX_TEXT_SZ);
	} else {
		memcpy(&num, at, key->kind == META_U64 ? 8 : 4);
	}
	err = add_num(out, len, 1);
	err = err ?: add_num(out, text ? DL_META_TEXT : DL_META_U64, 1);
	err = err ?: add_num(out, val_sz, 4);
	err = err ?: add(out, key->name, len);
	return err ?: add(out, text ? (const void *)text : &num, val_sz);
}

static int add_event(struct dl_buf *out, const struct dl_event_desc *desc)
{
	size_t len = strlen(desc->name);
	int err;

	err = add_num(out, desc->kind, 2);
	err = err ?: add_num(out, desc->size, 2);
	err = err ?: add_num(out, desc->group, 1);
	err = err ?: add_num(out, desc->tail, 1);
	err = err ?: add_num(out, desc->field_cnt, 1);
	err = err ?: add_num(out, len, 1);
	err = err ?: add(out, desc->name, len);
	for (unsigned int i = 0; i < desc->field_cnt && !err; i++) {
		const struct dl_field *f = &desc->fields[i];

		len = strlen(f->name);
		err = add_num(out, f->off, 2);
		err = err ?: add_num(out, f->type, 1);
		err = err ?: add_num(out, f->unit, 1);
		err = err ?: add_num(out, len, 1);
		err = err ?: add(out, f->name, len);
	}
	return err;
}

static int add_schema(struct dl_buf *out, dl_desc_fn *desc)
{
	unsigned int cnt = 0;
	int err;

	for (unsigned int k = 1; k <= DL_MAX_KIND; k++)
		cnt += desc(k) != NULL;
	err = add_num(out, cnt, 2);
	for (unsigned int k = 1; k <= DL_MAX_KIND && !err; k++) {
		if (desc(k))
			err = add_event(out, desc(k));
	}
	return err;
}

static int begin_section(struct dl_buf *out, uint32_t tag, size_t *ret_at)
{
	int err = add_num(out, tag, 4);

	*ret_at = out->cnt;
	return err ?: add_num(out, 0, 4);
}

static void end_section(struct dl_buf *out, size_t at)
{
	dl_put(out->v + at, out->cnt - at - 4, 4);
}

int dl_header_build(struct dl_buf *out, const struct dl_trace_meta *meta, dl_desc_fn *desc,
		    uint64_t *ret_trace_id)
{
	const uint8_t prefix[DL_PREFIX_SZ] = DL_TRACE_MAGIC;
	size_t section;
	int err;

	out->cnt = 0;
	err = add(out, prefix, sizeof(prefix));
	err = err ?: begin_section(out, DL_SEC_META, &section);
	for (size_t i = 0; i < META_KEY_CNT && !err; i++)
		err = add_meta(out, meta, &meta_keys[i]);
	if (err)
		return err;
	end_section(out, section);
	err = begin_section(out, DL_SEC_SCHEMA, &section);
	err = err ?: add_schema(out, desc);
	if (err)
		return err;
	end_section(out, section);
	err = add_num(out, 0, 4);	/* room for the checksum */
	if (err)
		return err;
	if (out->cnt > DL_MAX_HEADER_SZ)
		return -E2BIG;
	dl_put(out->v + 8, DL_FORMAT_MAJOR, 2);
	dl_put(out->v + 10, DL_FORMAT_MINOR, 2);
	dl_put(out->v + 12, out->cnt, 4);
	dl_put(out->v + 28, 2, 4);
	*ret_trace_id = dl_hash_bytes(out->v, out->cnt);
	dl_put(out->v + 16, *ret_trace_id, 8);
	dl_put(out->v + out->cnt - 4, dl_crc32(out->v, out->cnt - 4), 4);
	return 0;
}

/* --- parsing --- */

struct cursor { const uint8_t *p, *end; };

/* NULL when fewer than sz bytes are left. */
static const uint8_t *take(struct cursor *c, size_t sz)
{
	const uint8_t *p = c->p;

	if ((size_t)(c->end - c->p) < sz)
		return NULL;
	c->p += sz;
	return p;
}

static int set_meta(struct dl_trace_meta *meta, const uint8_t *name, size_t len, unsigned int type,
		    const uint8_t *val, size_t val_sz)
{
	for (size_t i = 0; i < META_KEY_CNT; i++) {
		const struct meta_key *key = &meta_keys[i];
		char *at = (char *)meta + key->off, *text, *old;

		if (strlen(key->name) != len || memcmp(key->name, name, len))
			continue;
		if (key->kind == META_TEXT && type == DL_META_TEXT) {
			text = strndup((const char *)val, val_sz);
			if (!text)
				return -ENOMEM;
			memcpy(&old, at, sizeof(old));
			free(old);
			memcpy(at, &text, sizeof(text));
		} else if (key->kind != META_TEXT && type == DL_META_U64 && val_sz == 8) {
			memcpy(at, val, key->kind == META_U64 ? 8 : 4);
		}
		return 0;
	}
	return 0;	/* a key of a newer recorder */
}

static int parse_meta(struct dl_trace_meta *meta, struct cursor c)
{
	while (c.p < c.end) {
		const uint8_t *fixed = take(&c, 6), *name, *val;
		size_t val_sz;
		int err;

		if (!fixed)
			return -EBADMSG;
		val_sz = dl_get(fixed + 2, 4);
		name = take(&c, fixed[0]);
		val = name ? take(&c, val_sz) : NULL;
		if (!val)
			return -EBADMSG;
		err = set_meta(meta, name, fixed[0], fixed[1], val, val_sz);
		if (err)
			return err;
	}
	return 0;
}

/* This build's field of that name, unless one is text and the other a number. */
static void map_field(struct dl_file_field *f, const struct dl_event_desc *own, const uint8_t *name,
		      size_t len)
{
	for (unsigned int i = 0; own && i < own->field_cnt; i++) {
		const struct dl_field *o = &own->fields[i];

		if (strlen(o->name) != len || memcmp(o->name, name, len))
			continue;
		if (dl_ftype_is_int(o->type) ? dl_ftype_is_int(f->type) : o->type == f->type) {
			f->own_type = o->type;
			f->own_off = o->off;
		}
		return;
	}
}

static bool is_whole(const struct dl_file_event *ev)
{
	unsigned int found = 0;

	if (!ev->own || ev->own->tail != DL_TAIL_NONE || ev->tail != DL_TAIL_NONE)
		return false;
	for (unsigned int i = 0; i < ev->own->field_cnt; i++) {
		for (unsigned int k = 0; k < ev->field_cnt; k++) {
			if (ev->fields[k].own_type && ev->fields[k].own_off == ev->own->fields[i].off) {
				found++;
				break;
			}
		}
	}
	return found == ev->own->field_cnt;
}

static int parse_event(struct dl_file_schema *s, struct cursor *c)
{
	const uint8_t *fixed = take(c, 8);
	struct dl_file_event *ev;
	unsigned int kind;

	if (!fixed || !take(c, fixed[7]))
		return -EBADMSG;
	kind = (unsigned int)dl_get(fixed, 2);
	if (!kind || kind > DL_MAX_KIND || fixed[6] > DL_MAX_FIELDS || s->events[kind].known)
		return -EBADMSG;
	ev = &s->events[kind];
	ev->known = true;
	ev->size = (uint16_t)dl_get(fixed + 2, 2);
	ev->tail = fixed[5];
	ev->own = dl_event_desc(kind);
	ev->fields = calloc(fixed[6] ? fixed[6] : 1, sizeof(*ev->fields));
	if (!ev->fields)
		return -ENOMEM;
	for (unsigned int i = 0; i < fixed[6]; i++) {
		const uint8_t *field = take(c, 5), *name = field ? take(c, field[4]) : NULL;

		if (!name)
			return -EBADMSG;
		ev->fields[i].type = field[2];
		ev->fields[i].size = (uint8_t)dl_ftype_sz(field[2]);
		map_field(&ev->fields[i], ev->own, name, field[4]);
		ev->field_cnt++;
	}
	ev->whole = is_whole(ev);
	return 0;
}

static int parse_schema(struct dl_file_schema *s, struct cursor c)
{
	const uint8_t *cnt = take(&c, 2);
	int err = cnt ? 0 : -EBADMSG;

	for (uint64_t n = cnt ? dl_get(cnt, 2) : 0; n && !err; n--)
		err = parse_event(s, &c);
	return err;
}

static int parse_sections(struct dl_file_header *h, struct cursor c, bool *ret_schema)
{
	while (c.p < c.end) {
		const uint8_t *fixed = take(&c, 8), *body;
		size_t sz = fixed ? dl_get(fixed + 4, 4) : 0;
		uint64_t tag = fixed ? dl_get(fixed, 4) : 0;
		int err = 0;

		body = fixed ? take(&c, sz) : NULL;
		if (!body)
			return -EBADMSG;
		if (tag == DL_SEC_META)
			err = parse_meta(&h->meta, (struct cursor){ body, body + sz });
		else if (tag == DL_SEC_SCHEMA && *ret_schema)
			err = -EBADMSG;
		else if (tag == DL_SEC_SCHEMA)
			err = parse_schema(&h->schema, (struct cursor){ body, body + sz });
		if (err)
			return err;
		*ret_schema |= tag == DL_SEC_SCHEMA;
	}
	return *ret_schema ? 0 : -EBADMSG;
}

/* Nobody has to ask whether a text is NULL. */
static int fill_texts(struct dl_trace_meta *meta)
{
	for (size_t i = 0; i < META_KEY_CNT; i++) {
		char *at = (char *)meta + meta_keys[i].off, *text;

		if (meta_keys[i].kind != META_TEXT)
			continue;
		memcpy(&text, at, sizeof(text));
		if (text)
			continue;
		text = calloc(1, 1);
		if (!text)
			return -ENOMEM;
		memcpy(at, &text, sizeof(text));
	}
	return 0;
}

int dl_header_prefix(const uint8_t *p, size_t sz, const char *path, uint32_t *ret_size,
		     struct dl_diag *d)
{
	size_t cmp = sz < DL_MAGIC_SZ ? sz : DL_MAGIC_SZ;
	uint64_t size;

	if (!sz)
		return dl_fail(d, -ENODATA, "%s is empty", path);
	if (memcmp(p, DL_TRACE_MAGIC, cmp))
		return dl_fail(d, -EINVAL, "%s is not a dlbpf trace", path);
	if (sz < DL_PREFIX_SZ)
		return dl_fail(d, -EBADMSG, "%s was cut off in its header: nothing in it can be read",
			       path);
	if (dl_get(p + 8, 2) != DL_FORMAT_MAJOR)
		return dl_fail(d, -EPROTONOSUPPORT,
			       "%s has trace format %u.%u; this dlbpf reads format %u. Use the dlbpf that recorded it, or a newer one",
			       path, (unsigned int)dl_get(p + 8, 2), (unsigned int)dl_get(p + 10, 2),
			       DL_FORMAT_MAJOR);
	size = dl_get(p + 12, 4);
	if (size < DL_PREFIX_SZ + 4 || size > DL_MAX_HEADER_SZ)
		return dl_fail(d, -EBADMSG, "%s has a damaged header: nothing in it can be read", path);
	*ret_size = (uint32_t)size;
	return 0;
}

int dl_header_parse(struct dl_file_header *h, const uint8_t *p, size_t sz, const char *path,
		    struct dl_diag *d)
{
	bool schema = false;
	int err = -EBADMSG;

	if (dl_get(p + sz - 4, 4) == dl_crc32(p, sz - 4)) {
		h->major = (uint16_t)dl_get(p + 8, 2);
		h->minor = (uint16_t)dl_get(p + 10, 2);
		h->size = (uint32_t)sz;
		h->trace_id = dl_get(p + 16, 8);
		err = parse_sections(h, (struct cursor){ p + DL_PREFIX_SZ, p + sz - 4 }, &schema);
		err = err ?: fill_texts(&h->meta);
	}
	if (err == -ENOMEM)
		return dl_oom(d);
	if (err)
		return dl_fail(d, err, "%s has a damaged header: nothing in it can be read", path);
	return 0;
}

void dl_file_schema_fini(struct dl_file_schema *s)
{
	for (size_t k = 0; k <= DL_MAX_KIND; k++)
		free(s->events[k].fields);
	memset(s, 0, sizeof(*s));
}

void dl_file_header_fini(struct dl_file_header *h)
{
	for (size_t i = 0; i < META_KEY_CNT; i++) {
		char *text;

		if (meta_keys[i].kind != META_TEXT)
			continue;
		memcpy(&text, (char *)&h->meta + meta_keys[i].off, sizeof(text));
		free(text);
	}
	dl_file_schema_fini(&h->schema);
	memset(&h->meta, 0, sizeof(h->meta));
}
