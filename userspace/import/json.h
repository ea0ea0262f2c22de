/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A JSON text read token by token, without a tree: memory does not grow with the file. Every error
 * names the byte. Numbers stay text, since nanoseconds since 1970 do not fit a double.
 *
 * Taken beyond the standard, because profilers write them: NaN, nan, Infinity, inf (with a sign too),
 * control characters and bytes that are no UTF-8 in strings.
 */
#ifndef DLBPF_IMPORT_JSON_H
#define DLBPF_IMPORT_JSON_H

#include "import/stream.h"

#define DL_JSON_DEPTH_MAX 1024
#define DL_JSON_TEXT_MAX 4096	/* of a string or number that is kept; the rest of it is left out */

enum dl_json_tok {
	DL_JSON_END = 0,	/* the text is over */
	DL_JSON_OBJ, DL_JSON_OBJ_END,
	DL_JSON_ARR, DL_JSON_ARR_END,
	DL_JSON_KEY, DL_JSON_STR, DL_JSON_NUM,
	DL_JSON_WORD,		/* true, false, null, NaN, ... */
};

struct dl_json {
	struct dl_stream *in;
	struct dl_diag *d;
	uint64_t tok_off;	/* first byte of the last token */
	unsigned int depth;	/* containers that are open */
	bool cut;		/* the error was the end of the text in the middle of it */
	bool long_text;		/* text is only the begin */
	size_t len;
	char text[DL_JSON_TEXT_MAX + 8];	/* of KEY, STR, NUM and WORD; unescaped, NUL at the end */
	uint8_t expect;
	uint64_t in_obj[DL_JSON_DEPTH_MAX / 64];	/* which of the open containers are objects */
};

void dl_json_begin(struct dl_json *j, struct dl_stream *in, struct dl_diag *d);

/* The next token (enum dl_json_tok), or -errno: -EBADMSG with the byte in the message; j->cut says that
 * it was the end that came too early. */
int dl_json_next(struct dl_json *j);

/* Passes over the value that is about to come, or when tok has begun one, over the rest of that. */
int dl_json_skip(struct dl_json *j, int tok);

/* -EBADMSG with the place of the last token. */
int dl_json_wrong(struct dl_json *j, const char *what);

/* text * 1000 as a whole number: "1234.567" us are 1234567 ns. Exact, digits beyond the third are cut
 * off. False where it is no number or does not fit. */
bool dl_json_milli(const char *text, int64_t *ret);

/* Whole numbers; a fraction (4.0) is cut off. */
bool dl_json_int(const char *text, int64_t *ret);

#endif
