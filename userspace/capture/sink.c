/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Events with a text tail, for the sources that userspace makes itself. */
#include "capture/sink.h"

#include <errno.h>
#include <string.h>

/* The longest prefix of at most max bytes that does not cut a UTF-8 character in two. */
static size_t clip(const char *text, size_t max)
{
	size_t len = strnlen(text, max + 1);

	if (len <= max)
		return len;
	len = max;
	while (len && ((unsigned char)text[len] & 0xc0) == 0x80)
		len--;
	return len ? len : max;
}

int dl_emit_text(struct dl_sink *sink, const struct dl_hdr *ev, const char *text)
{
	union {
		struct dl_hdr h;
		char bytes[DL_EVENT_MAX_SZ];
	} buf;
	const size_t fixed = ev->size;
	size_t len;

	if (fixed < sizeof(*ev) || fixed > sizeof(buf))
		return -EINVAL;
	len = clip(text, sizeof(buf) - fixed);
	memcpy(buf.bytes, ev, fixed);
	memcpy(buf.bytes + fixed, text, len);
	buf.h.size = (__u16)(fixed + len);
	return sink->emit(sink, &buf.h);
}
