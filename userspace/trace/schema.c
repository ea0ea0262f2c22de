/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* events.def as tables, and the check of an event against them. */
#include "trace/schema.h"

#include <string.h>

#include "base/cleanup.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "events are little-endian in memory");

#define EVENT(NAME, tag, id, group, tail, doc) static const struct dl_field fields_##tag[] = {
#define FIELD(tag, ftype, fname, funit, fdoc) { \
	.name = #fname, \
	.doc = fdoc, \
	.off = offsetof(struct dl_ev_##tag, fname), \
	.size = sizeof(DL_CTYPE_##ftype), \
	.type = DL_FT_##ftype, \
	.unit = DL_UNIT_##funit, \
},
#define END(NAME, tag) };
#include <dlbpf/events.def>
#undef EVENT
#undef FIELD
#undef END

static const struct dl_event_desc events[DL_EV_MAX] = {
#define EVENT(NAME, tag, id, egroup, etail, edoc) [id] = { \
	.name = #tag, \
	.doc = edoc, \
	.fields = fields_##tag, \
	.kind = id, \
	.size = sizeof(struct dl_ev_##tag), \
	.field_cnt = ARRAY_SIZE(fields_##tag), \
	.group = DL_GROUP_##egroup, \
	.tail = DL_TAIL_##etail, \
},
#define FIELD(tag, ftype, fname, funit, fdoc)
#define END(NAME, tag)
#include <dlbpf/events.def>
#undef EVENT
#undef FIELD
#undef END
};

const struct dl_event_desc *dl_event_desc(unsigned int kind)
{
	return kind < DL_EV_MAX && events[kind].name ? &events[kind] : NULL;
}

const struct dl_event_desc *dl_event_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		if (events[i].name && !strcmp(events[i].name, name))
			return &events[i];
	}
	return NULL;
}

const char *dl_group_name(unsigned int group)
{
	static const char *const names[] = {
		[DL_GROUP_SCHED] = "sched", [DL_GROUP_LIFE] = "life", [DL_GROUP_FAULT] = "fault",
		[DL_GROUP_MEM] = "mem", [DL_GROUP_CRASH] = "crash", [DL_GROUP_IO] = "io",
		[DL_GROUP_SAMPLE] = "sample", [DL_GROUP_ENV] = "env", [DL_GROUP_GPU] = "gpu",
		[DL_GROUP_META] = "meta",
	};

	return group < ARRAY_SIZE(names) && names[group] ? names[group] : "unknown";
}

const char *dl_unit_name(unsigned int unit)
{
	static const char *const names[] = {
		[DL_UNIT_TIME] = "time", [DL_UNIT_NS] = "ns", [DL_UNIT_TID] = "tid",
		[DL_UNIT_CNT] = "cnt", [DL_UNIT_BYTES] = "bytes", [DL_UNIT_ID] = "id",
		[DL_UNIT_BITS] = "bits", [DL_UNIT_ENUM] = "enum", [DL_UNIT_ADDR] = "addr",
		[DL_UNIT_NR] = "nr", [DL_UNIT_NUM] = "num", [DL_UNIT_TEXT] = "text",
		[DL_UNIT_TOTAL] = "total",
	};

	return unit < ARRAY_SIZE(names) && names[unit] ? names[unit] : "unknown";
}

const char *dl_ftype_name(unsigned int type)
{
	static const char *const names[] = {
		[DL_FT_u16] = "u16", [DL_FT_u32] = "u32", [DL_FT_u64] = "u64", [DL_FT_s32] = "s32",
		[DL_FT_s64] = "s64", [DL_FT_c16] = "c16", [DL_FT_x32] = "x32",
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "unknown";
}

bool dl_event_fits(const struct dl_event_desc *desc, const struct dl_hdr *ev)
{
	size_t tail;

	if (!desc || ev->size < desc->size || ev->size > DL_EVENT_MAX_SZ)
		return false;
	tail = ev->size - desc->size;
	switch (desc->tail) {
	case DL_TAIL_NONE:
		return !tail;
	case DL_TAIL_ADDRS:
		if (desc->kind == DL_EV_STACK) {
			const struct dl_ev_stack *st = (const struct dl_ev_stack *)(const void *)ev;

			return tail == (st->kernel_cnt + st->user_cnt) * sizeof(uint64_t);
		}
		return tail % sizeof(uint64_t) == 0;
	default:
		return true;
	}
}

const char *dl_event_tail(const struct dl_hdr *ev, size_t *ret_len)
{
	const struct dl_event_desc *desc = dl_event_desc(ev->kind);

	*ret_len = 0;
	if (!desc || desc->tail != DL_TAIL_STR || ev->size <= desc->size)
		return "";
	*ret_len = ev->size - desc->size;
	return (const char *)ev + desc->size;
}
