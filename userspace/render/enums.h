/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Names for the values of event fields. Which enumeration a field holds stands in its meaning in
 * events.def ("enum dl_file_kind"); a few fields hold numbers of the kernel or of POSIX.
 */
#ifndef DLBPF_RENDER_ENUMS_H
#define DLBPF_RENDER_ENUMS_H

#include <stdint.h>

#include "base/str.h"
#include "trace/schema.h"

struct dl_enum_name {
	uint64_t val;
	const char *name;
};

struct dl_enum {
	const char *tag;	/* "file_kind" of enum dl_file_kind */
	const struct dl_enum_name *names;
	size_t cnt;
};

/* NULL for a field whose values have no names. */
const struct dl_enum *dl_enum_of(const struct dl_field *f);
const struct dl_enum *dl_enum_by_tag(const char *tag, size_t len);

/* NULL for a value without a name. */
const char *dl_enum_name(const struct dl_enum *e, uint64_t val);

/* What the value of a field is called: an enumerator, bits joined by "|", a system call, a signal,
 * a file system, a device number. Nothing is added where there is no name. machine: of the trace. */
void dl_field_name(struct dl_str *out, const struct dl_field *f, int64_t val, const char *machine);

/* "sched 3", "crash", ...: enum dl_ring */
void dl_ring_text(struct dl_str *out, uint32_t ring);

#endif
