/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Parts of the JSON report that have a file of their own. Internal to render/. */
#ifndef DLBPF_RENDER_JSON_PARTS_H
#define DLBPF_RENDER_JSON_PARTS_H

#include "diagnose/report.h"
#include "render/jsonb.h"

/* A number, or null where it is not known. */
static inline void json_known(struct jsonb *b, struct json_object *o, const char *key, uint64_t val, bool known)
{
	if (known)
		jb_u64(b, o, key, val);
	else
		jb_null(b, o, key);
}

void json_copy_devices(struct jsonb *b, struct json_object *root, const struct dl_report *r);
void json_gpus(struct jsonb *b, struct json_object *root, const struct dl_report *r);

#endif
