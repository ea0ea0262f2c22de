/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "render/clean.h"

#include <langinfo.h>
#include <string.h>

/* The length of the UTF-8 sequence at p, 0 when there is none (RFC 3629: no surrogates, no
 * overlong forms, nothing above U+10FFFF). */
static size_t decode(const unsigned char *p, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t need;
	uint32_t cp;

	if (p[0] < 0x80) {
		*ret = p[0];
		return 1;
	}
	if (p[0] >= 0xc2 && p[0] < 0xe0) {
		need = 2;
		cp = p[0] & 0x1f;
	} else if (p[0] >= 0xe0 && p[0] < 0xf0) {
		need = 3;
		cp = p[0] & 0x0f;
	} else if (p[0] >= 0xf0 && p[0] < 0xf5) {
		need = 4;
		cp = p[0] & 0x07;
	} else {
		return 0;
	}
	if (len < need)
		return 0;
	for (size_t i = 1; i < need; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (p[i] & 0x3f);
	}
	if (cp < least[need] || (cp >= 0xd800 && cp < 0xe000) || cp > 0x10ffff)
		return 0;
	*ret = cp;
	return need;
}

void dl_clean_utf8(struct dl_str *out, const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + len, *good = p;
	uint32_t cp;

	while (p < end) {
		const size_t n = decode(p, (size_t)(end - p), &cp);

		if (n) {
			p += n;
			continue;
		}
		dl_str_addn(out, (const char *)good, (size_t)(p - good));
		dl_str_add(out, "\xef\xbf\xbd");
		good = ++p;
	}
	dl_str_addn(out, (const char *)good, (size_t)(p - good));
}

static bool is_space(uint32_t cp)
{
	return cp == ' ' || cp == '\t' || cp == '\n' || cp == '\r' || cp == 0xa0;
}

/* Control, direction and invisible format characters (Unicode Cc, and the Cf in common use). */
static bool is_control(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0xad || cp == 0x61c ||
	       (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) ||
	       (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff || (cp >= 0xfff9 && cp <= 0xfffb) ||
	       (cp >= 0xe0000 && cp <= 0xe0fff);
}

static const char *ascii_of(uint32_t cp)
{
	switch (cp) {
	case 0x2013: case 0x2014: case 0x2212:
		return "-";
	case 0x2018: case 0x2019:
		return "'";
	case 0x201c: case 0x201d:
		return "\"";
	case 0x2026:
		return "...";
	case 0xb5: case 0x3bc:
		return "u";
	case 0xd7:
		return "x";
	default:
		return "?";
	}
}

void dl_clean_line(struct dl_str *out, const char *text, size_t len, bool utf8)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + len;
	uint32_t cp;

	dl_str_addn(out, "", 0);
	while (p < end) {
		const size_t n = decode(p, (size_t)(end - p), &cp);

		if (!n || (is_control(cp) && !is_space(cp)))
			dl_str_add(out, "?");
		else if (is_space(cp))
			dl_str_add(out, " ");
		else if (cp < 0x80 || utf8)
			dl_str_addn(out, (const char *)p, n);
		else
			dl_str_add(out, ascii_of(cp));
		p += n ? n : 1;
	}
}

/* East Asian wide and full-width ranges, enough to keep columns apart. */
static bool is_wide(uint32_t cp)
{
	return (cp >= 0x1100 && cp <= 0x115f) || (cp >= 0x2e80 && cp <= 0xa4cf) ||
	       (cp >= 0xac00 && cp <= 0xd7a3) || (cp >= 0xf900 && cp <= 0xfaff) ||
	       (cp >= 0xfe30 && cp <= 0xfe6f) || (cp >= 0xff00 && cp <= 0xff60) ||
	       (cp >= 0xffe0 && cp <= 0xffe6) || (cp >= 0x1f300 && cp <= 0x1faff) ||
	       (cp >= 0x20000 && cp <= 0x3fffd);
}

size_t dl_text_width(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t len = strlen(text), width = 0;
	uint32_t cp;

	while (len) {
		size_t n = decode(p, len, &cp);

		if (!n) {
			n = 1;
			cp = '?';
		}
		if (cp < 0x300 || cp > 0x36f)	/* combining marks take no column */
			width += is_wide(cp) ? 2 : 1;
		p += n;
		len -= n;
	}
	return width;
}

bool dl_locale_utf8(void)
{
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}
