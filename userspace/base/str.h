/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A growing string. Zeroed to begin with; failures stick in err, so that only the end is checked. */
#ifndef DLBPF_BASE_STR_H
#define DLBPF_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dl_str {
	char *s;	/* NUL-terminated; NULL while nothing was added */
	size_t len, cap;
	int err;	/* 0 or -ENOMEM */
};

void dl_str_add(struct dl_str *s, const char *text);
void dl_str_addn(struct dl_str *s, const char *text, size_t len);
void dl_str_addf(struct dl_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The text, which the caller then owns; NULL with no memory. The string is empty again. */
char *dl_str_take(struct dl_str *s);
void dl_str_fini(struct dl_str *s);

/* "1.23 s", "45.6 ms", "789 us", "12 ns": three significant digits. buf of 16 bytes is enough. */
const char *dl_fmt_ns(char *buf, size_t sz, uint64_t ns);
/* "1.2 GiB", "34 KiB", "12 B" */
const char *dl_fmt_bytes(char *buf, size_t sz, uint64_t bytes);
/* "1,234,567" */
const char *dl_fmt_cnt(char *buf, size_t sz, uint64_t cnt);

/* Whole text as an unsigned number; false on anything else. Accepts no sign and no spaces. */
bool dl_parse_u64(const char *text, uint64_t *ret);

#endif
