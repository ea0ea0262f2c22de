/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The event table as data. */
#include "trace/schema.h"
#include "unit/test.h"

TEST(schema_fields_fill_their_event)
{
	unsigned int kinds = 0;

	for (unsigned int k = 0; k < DL_EV_MAX + 10; k++) {
		const struct dl_event_desc *desc = dl_event_desc(k);
		size_t off = sizeof(struct dl_hdr);

		if (!desc)
			continue;
		kinds++;
		CHECK_EQ(desc->kind, k);
		CHECK(desc->name[0] && desc->doc[0]);
		CHECK(desc->field_cnt > 0);
		for (unsigned int i = 0; i < desc->field_cnt; i++) {
			CHECK_EQ(desc->fields[i].off, off);
			CHECK(desc->fields[i].doc[0]);
			off += desc->fields[i].size;
		}
		CHECK_EQ(desc->size, off);
		CHECK(dl_event_by_name(desc->name) == desc);
		CHECK(strcmp(dl_group_name(desc->group), "unknown"));
	}
	CHECK(kinds >= 39);
}

TEST(schema_describes_switch)
{
	const struct dl_event_desc *desc = dl_event_by_name("switch");

	CHECK(desc != NULL);
	CHECK_EQ(desc->kind, DL_EV_SWITCH);
	CHECK_EQ(desc->size, sizeof(struct dl_ev_switch));
	CHECK_STR(dl_group_name(desc->group), "sched");
	CHECK_STR(desc->fields[3].name, "syscall");
	CHECK_EQ(desc->fields[3].off, offsetof(struct dl_ev_switch, syscall));
	CHECK_STR(dl_ftype_name(desc->fields[3].type), "s32");
	CHECK_STR(dl_unit_name(desc->fields[3].unit), "nr");
}

TEST(schema_knows_what_it_does_not_know)
{
	CHECK(dl_event_desc(0) == NULL);
	CHECK(dl_event_desc(29) == NULL);
	CHECK(dl_event_desc(UINT32_MAX) == NULL);
	CHECK(dl_event_by_name("SWITCH") == NULL);
	CHECK(dl_event_by_name("") == NULL);
	CHECK_STR(dl_group_name(99), "unknown");
	CHECK_STR(dl_unit_name(0), "unknown");
	CHECK_STR(dl_ftype_name(99), "unknown");
}

TEST(schema_sizes_of_events)
{
	struct { struct dl_ev_exec ev; char tail[8]; } e = { .tail = "/bin/sh" };
	struct { struct dl_ev_stack ev; uint64_t tail[4]; } s = { .ev = { .kernel_cnt = 1, .user_cnt = 2 } };
	struct dl_hdr *h = &e.ev.h;
	size_t len;

	h->kind = DL_EV_EXEC;
	h->size = sizeof(e.ev) + 7;
	CHECK(dl_event_fits(dl_event_desc(h->kind), h));
	CHECK(!strncmp(dl_event_tail(h, &len), "/bin/sh", 7));
	CHECK_EQ(len, 7);
	h->size = sizeof(e.ev);
	CHECK(dl_event_fits(dl_event_desc(h->kind), h));
	dl_event_tail(h, &len);
	CHECK_EQ(len, 0);
	h->size = sizeof(e.ev) - 1;
	CHECK(!dl_event_fits(dl_event_desc(h->kind), h));
	h->size = DL_EVENT_MAX_SZ + 1;
	CHECK(!dl_event_fits(dl_event_desc(h->kind), h));

	h->kind = DL_EV_NAME;	/* has no tail */
	h->size = sizeof(struct dl_ev_name);
	CHECK(dl_event_fits(dl_event_desc(h->kind), h));
	h->size++;
	CHECK(!dl_event_fits(dl_event_desc(h->kind), h));
	h->kind = 29;
	CHECK(!dl_event_fits(dl_event_desc(h->kind), h));

	s.ev.h.kind = DL_EV_STACK;
	s.ev.h.size = sizeof(s.ev) + 24;
	CHECK(dl_event_fits(dl_event_desc(DL_EV_STACK), &s.ev.h));
	dl_event_tail(&s.ev.h, &len);	/* addresses are no text */
	CHECK_EQ(len, 0);
	s.ev.h.size = sizeof(s.ev) + 20;
	CHECK(!dl_event_fits(dl_event_desc(DL_EV_STACK), &s.ev.h));
	s.ev.h.size = sizeof(s.ev) + 32;	/* more than the counts say */
	CHECK(!dl_event_fits(dl_event_desc(DL_EV_STACK), &s.ev.h));
}
