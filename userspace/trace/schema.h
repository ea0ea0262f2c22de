/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The event table as data: what events.def says, for everything that handles events without
 * knowing their kinds (the file, dump, docs/EVENTS.md, fuzzers).
 */
#ifndef DLBPF_TRACE_SCHEMA_H
#define DLBPF_TRACE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dlbpf/event.h>

enum dl_ftype { DL_FT_u16 = 1, DL_FT_u32, DL_FT_u64, DL_FT_s32, DL_FT_s64, DL_FT_c16, DL_FT_x32 };

enum dl_unit {
	DL_UNIT_TIME = 1, DL_UNIT_NS, DL_UNIT_TID, DL_UNIT_CNT, DL_UNIT_BYTES, DL_UNIT_ID,
	DL_UNIT_BITS, DL_UNIT_ENUM, DL_UNIT_ADDR, DL_UNIT_NR, DL_UNIT_NUM, DL_UNIT_TEXT,
	DL_UNIT_TOTAL,
};

enum dl_tail { DL_TAIL_NONE = 0, DL_TAIL_STR, DL_TAIL_ADDRS };

enum dl_group {
	DL_GROUP_SCHED = 1, DL_GROUP_LIFE, DL_GROUP_FAULT, DL_GROUP_MEM, DL_GROUP_CRASH,
	DL_GROUP_IO, DL_GROUP_SAMPLE, DL_GROUP_ENV, DL_GROUP_GPU, DL_GROUP_META,
};

struct dl_field {
	const char *name;	/* "next_tid" */
	const char *doc;
	uint16_t off;		/* in the event struct */
	uint8_t size;
	uint8_t type;		/* enum dl_ftype */
	uint8_t unit;		/* enum dl_unit */
};

struct dl_event_desc {
	const char *name;	/* "switch", as in JSON */
	const char *doc;
	const struct dl_field *fields;	/* behind the header */
	uint16_t kind;		/* enum dl_kind */
	uint16_t size;		/* of the fixed part, the header included */
	uint8_t field_cnt;
	uint8_t group;		/* enum dl_group */
	uint8_t tail;		/* enum dl_tail */
};

/* NULL for a kind this build does not know. */
const struct dl_event_desc *dl_event_desc(unsigned int kind);
const struct dl_event_desc *dl_event_by_name(const char *name);
const char *dl_group_name(unsigned int group);
const char *dl_unit_name(unsigned int unit);
const char *dl_ftype_name(unsigned int type);

/* The size agrees with the description (NULL: it does not), the tail included. */
bool dl_event_fits(const struct dl_event_desc *desc, const struct dl_hdr *ev);

/* The text tail of an event (not NUL-terminated) and its length; length 0 where it has none. */
const char *dl_event_tail(const struct dl_hdr *ev, size_t *ret_len);

#endif
