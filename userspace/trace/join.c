/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Segments of one recording as one trace: which of their frames belong to it, and copying them. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "trace/format.h"
#include "trace/reader_int.h"
#include "trace/scan.h"

/* The marks that end what is said again stand in a frame of their own. */
static bool is_state_end(const struct dl_frame_hdr *h)
{
	return h->kinds == 1 && h->kind[0].kind == DL_EV_MARK;
}

int dl_trace_skip_state(const struct source *s, struct dl_index *ix, size_t *ret_first)
{
	bool end = false;
	size_t i = 0;

	for (; i < ix->cnt && !end; i++) {
		uint8_t buf[DL_FRAME_HEADER_MAX];
		struct dl_frame_hdr h;
		int err;

		err = dl_read_at(s->fd, buf, ix->v[i].header_sz, ix->v[i].off);
		if (err)
			return err;
		if (!dl_frame_hdr_parse(&h, buf, ix->v[i].header_sz, s->trace_id))
			continue;
		end = is_state_end(&h);
		ix->events -= h.events;
		ix->struct_bytes -= h.struct_sz;
		for (uint32_t k = 0; k < h.kinds; k++)
			ix->kind_cnt[h.kind[k].kind] -= h.kind[k].cnt;
	}
	*ret_first = i;
	return 0;
}

bool dl_trace_same_events(const struct dl_file_schema *s)
{
	for (unsigned int k = 0; k <= DL_MAX_KIND; k++) {
		const struct dl_event_desc *own = dl_event_desc(k);
		const struct dl_file_event *ev = &s->events[k];

		if (ev->known != (own != NULL))
			return false;
		if (own && (ev->field_cnt != own->field_cnt || ev->tail != own->tail))
			return false;
		for (unsigned int i = 0; own && i < own->field_cnt; i++) {
			if (ev->fields[i].type != own->fields[i].type || ev->fields[i].own_off != own->fields[i].off ||
			    !ev->fields[i].own_type)
				return false;
		}
	}
	return true;
}

static int cmp_order(const void *a, const void *b)
{
	const struct frame *const *x = a, *const *y = b;

	return (*x)->order < (*y)->order ? -1 : (*x)->order > (*y)->order;
}

int dl_trace_copy_frames(struct dl_trace *t, struct dl_trace_writer *w, bool no_state)
{
	_cleanup_free_ struct frame **frames = calloc(t->frames.cnt + 1, sizeof(*frames));
	int err = 0;

	if (!frames)
		return -ENOMEM;
	if (!dl_trace_same_events(&t->header.schema))
		return -EPROTOTYPE;
	for (size_t i = 0; i < t->frames.cnt; i++)
		frames[i] = &t->frames.v[i];
	qsort(frames, t->frames.cnt, sizeof(*frames), cmp_order);	/* as they stand in the file */
	for (size_t i = 0; i < t->frames.cnt && err >= 0; i++) {
		struct dl_frame_hdr h;

		err = frames[i]->bad ? 0 : dl_trace_load(t, frames[i], &h);
		if (err <= 0)
			continue;
		if (!no_state)
			err = dl_trace_writer_put_frame(w, &h, t->comp.v + h.header_sz);
		else if (is_state_end(&h))
			no_state = false;
	}
	return err < 0 ? err : 0;
}
