/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Text from a trace is not to be trusted: process names, paths and kernel names hold any bytes,
 * and a trace comes from other machines. Nothing of it reaches a terminal or a JSON document
 * except through one of these.
 */
#ifndef DLBPF_RENDER_CLEAN_H
#define DLBPF_RENDER_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Valid UTF-8 for JSON: what is not UTF-8 becomes U+FFFD. Control characters stay: JSON escapes
 * them. */
void dl_clean_utf8(struct dl_str *out, const char *text, size_t len);

/* Printable text for a terminal: control characters (those that turn the direction of writing
 * included) and what is not UTF-8 become '?', white space becomes a blank; without utf8, so does
 * everything that is not ASCII, except for common punctuation, which is spelt in ASCII. */
void dl_clean_line(struct dl_str *out, const char *text, size_t len, bool utf8);

/* Columns of a text made by dl_clean_line. */
size_t dl_text_width(const char *text);

/* Whether the locale (setlocale was called) writes UTF-8. */
bool dl_locale_utf8(void);

#endif
