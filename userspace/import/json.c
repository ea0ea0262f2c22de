/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "import/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum expect {
	WANT_VALUE = 0,
	WANT_VALUE_OR_END,	/* an array has just begun */
	WANT_KEY,
	WANT_KEY_OR_END,	/* an object has just begun */
	WANT_COMMA_OR_END,
	WANT_NOTHING,		/* the text is over */
};

void dl_json_begin(struct dl_json *j, struct dl_stream *in, struct dl_diag *d)
{
	memset(j, 0, sizeof(*j));
	j->in = in;
	j->d = d;
	j->expect = WANT_VALUE;
}

int dl_json_wrong(struct dl_json *j, const char *what)
{
	return dl_fail(j->d, -EBADMSG, "%s: byte %llu: %s", j->in->path, (unsigned long long)j->tok_off, what);
}

/* The next byte without taking it; -1 at the end, or another -errno. */
static int peek(struct dl_json *j)
{
	int err;

	if (j->in->at < j->in->end)
		return *j->in->at;
	err = dl_stream_fill(j->in, j->d);
	if (err < 0)
		return err < -1 ? err : -EIO;
	return err ? *j->in->at : -1;
}

static int ended(struct dl_json *j, int c)
{
	if (c < -1)
		return c;
	j->cut = true;
	j->tok_off = dl_stream_tell(j->in);
	return dl_json_wrong(j, j->in->cut ? "the gzipped file is cut off here" : "the text ends here, in the middle");
}

static bool in_object(const struct dl_json *j)
{
	return j->depth && (j->in_obj[(j->depth - 1) / 64] >> (j->depth - 1) % 64 & 1);
}

static void put(struct dl_json *j, char c)
{
	if (j->len < DL_JSON_TEXT_MAX)
		j->text[j->len++] = c;
	else
		j->long_text = true;
}

static void put_utf8(struct dl_json *j, uint32_t c)
{
	if (c < 0x80) {
		put(j, (char)(c ? c : ' '));	/* texts end at NUL */
	} else if (c < 0x800) {
		put(j, (char)(0xc0 | c >> 6));
		put(j, (char)(0x80 | (c & 0x3f)));
	} else if (c < 0x10000) {
		put(j, (char)(0xe0 | c >> 12));
		put(j, (char)(0x80 | (c >> 6 & 0x3f)));
		put(j, (char)(0x80 | (c & 0x3f)));
	} else {
		put(j, (char)(0xf0 | c >> 18));
		put(j, (char)(0x80 | (c >> 12 & 0x3f)));
		put(j, (char)(0x80 | (c >> 6 & 0x3f)));
		put(j, (char)(0x80 | (c & 0x3f)));
	}
}

static int hex4(struct dl_json *j, uint32_t *ret)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++) {
		int c = peek(j);

		if (c < 0)
			return ended(j, c);
		if (!isxdigit(c)) {
			j->tok_off = dl_stream_tell(j->in);
			return dl_json_wrong(j, "\\u wants four hexadecimal digits");
		}
		j->in->at++;
		v = v << 4 | (uint32_t)(isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
	}
	*ret = v;
	return 0;
}

/* Behind "\u". Half of a pair becomes U+FFFD. */
static int escape_u(struct dl_json *j)
{
	uint32_t hi, lo;
	int err = hex4(j, &hi), c;

	while (!err && hi >= 0xd800 && hi < 0xdc00) {
		c = peek(j);
		if (c < 0)
			return ended(j, c);
		if (c != '\\')
			break;
		j->in->at++;
		c = peek(j);
		if (c < 0)
			return ended(j, c);
		if (c != 'u') {
			put_utf8(j, 0xfffd);
			return 1;	/* another escape, whose backslash has been taken */
		}
		j->in->at++;
		err = hex4(j, &lo);
		if (err)
			return err;
		if (lo >= 0xdc00 && lo < 0xe000) {
			put_utf8(j, 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00));
			return 0;
		}
		put_utf8(j, 0xfffd);
		hi = lo;
	}
	if (!err)
		put_utf8(j, hi >= 0xd800 && hi < 0xe000 ? 0xfffd : hi);
	return err;
}

/* Behind a backslash. */
static int escape(struct dl_json *j)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;
	int c, err;

	do {
		c = peek(j);
		if (c < 0)
			return ended(j, c);
		j->in->at++;
		if (c != 'u') {
			found = c ? strchr(from, c) : NULL;
			if (!found) {
				j->tok_off = dl_stream_tell(j->in) - 1;
				return dl_json_wrong(j, "no such escape");
			}
			put(j, to[found - from]);
			return 0;
		}
		err = escape_u(j);
	} while (err == 1);
	return err;
}

/* Behind the first quote. */
static int string(struct dl_json *j)
{
	for (;;) {
		const unsigned char *from = j->in->at, *p = from;
		size_t n, room = DL_JSON_TEXT_MAX - j->len;
		int c, err;

		while (p < j->in->end && *p != '"' && *p != '\\' && *p)
			p++;
		n = (size_t)(p - from);
		if (n > room) {
			j->long_text = true;
			n = room;
		}
		if (n)
			memcpy(j->text + j->len, from, n);
		j->len += n;
		j->in->at = p;
		if (p == j->in->end) {
			c = peek(j);
			if (c < 0)
				return ended(j, c);
			continue;
		}
		j->in->at++;
		if (*p == '"')
			return 0;
		if (!*p)
			put(j, ' ');
		err = *p == '\\' ? escape(j) : 0;
		if (err)
			return err;
	}
}

static bool is_number(const char *s)
{
	s += *s == '-';
	if (!isdigit((unsigned char)*s))
		return false;
	if (*s == '0' && isdigit((unsigned char)s[1]))
		return false;
	while (isdigit((unsigned char)*s))
		s++;
	if (*s == '.') {
		s++;
		if (!isdigit((unsigned char)*s))
			return false;
		while (isdigit((unsigned char)*s))
			s++;
	}
	if (*s == 'e' || *s == 'E') {
		s++;
		s += *s == '+' || *s == '-';
		if (!isdigit((unsigned char)*s))
			return false;
		while (isdigit((unsigned char)*s))
			s++;
	}
	return !*s;
}

static bool is_word(const char *s)
{
	static const char *const words[] = { "true", "false", "null", "NaN", "nan", "-nan", "-NaN", "inf", "-inf",
					     "Infinity", "-Infinity", "Inf", "-Inf" };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (!strcmp(s, words[i]))
			return true;
	}
	return false;
}

/* A number or a word: what it is made of ends at anything else. */
static int bare(struct dl_json *j)
{
	int c;

	while ((c = peek(j)) >= 0 && (isalnum(c) || c == '+' || c == '-' || c == '.' || c == '_')) {
		put(j, (char)c);
		j->in->at++;
	}
	if (c < -1)
		return c;
	j->text[j->len] = 0;
	if (c == -1 && j->depth)
		return ended(j, c);	/* the rest of it may be missing */
	if (is_number(j->text))
		return DL_JSON_NUM;
	return is_word(j->text) ? DL_JSON_WORD : dl_json_wrong(j, "neither a value nor anything else of JSON");
}

/* The first byte that is no space. */
static int next_byte(struct dl_json *j)
{
	int c;

	while ((c = peek(j)) >= 0 && (c == ' ' || c == '\n' || c == '\t' || c == '\r'))
		j->in->at++;
	j->tok_off = dl_stream_tell(j->in);
	return c;
}

static int open_container(struct dl_json *j, bool obj)
{
	if (j->depth == DL_JSON_DEPTH_MAX)
		return dl_json_wrong(j, "nested too deep (more than 1024 levels)");
	j->in->at++;
	j->in_obj[j->depth / 64] &= ~(1ULL << j->depth % 64);
	j->in_obj[j->depth / 64] |= (uint64_t)obj << j->depth % 64;
	j->depth++;
	j->expect = obj ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
	return obj ? DL_JSON_OBJ : DL_JSON_ARR;
}

static int close_container(struct dl_json *j, int c)
{
	bool obj = in_object(j);

	if (!j->depth || c != (obj ? '}' : ']'))
		return dl_json_wrong(j, "closes what is not open");
	j->in->at++;
	j->depth--;
	j->expect = j->depth ? WANT_COMMA_OR_END : WANT_NOTHING;
	return obj ? DL_JSON_OBJ_END : DL_JSON_ARR_END;
}

static int key(struct dl_json *j)
{
	int err, c;

	j->in->at++;
	err = string(j);
	if (err)
		return err;
	j->text[j->len] = 0;
	c = next_byte(j);
	if (c < 0)
		return ended(j, c);
	if (c != ':')
		return dl_json_wrong(j, "a colon is missing behind a key");
	j->in->at++;
	j->expect = WANT_VALUE;
	return DL_JSON_KEY;
}

static int value(struct dl_json *j, int c)
{
	int tok;

	if (c == '{' || c == '[')
		return open_container(j, c == '{');
	if (c == '"') {
		j->in->at++;
		tok = string(j);
		j->text[j->len] = 0;
		tok = tok ? tok : DL_JSON_STR;
	} else if (isalnum(c) || c == '-') {
		tok = bare(j);
	} else {
		return dl_json_wrong(j, "a value is missing");
	}
	if (tok >= 0)
		j->expect = j->depth ? WANT_COMMA_OR_END : WANT_NOTHING;
	return tok;
}

int dl_json_next(struct dl_json *j)
{
	int c = next_byte(j);

	j->len = 0;
	j->long_text = false;
	if (j->expect == WANT_NOTHING)
		return c == -1 ? DL_JSON_END : c < -1 ? c : dl_json_wrong(j, "more text behind the end");
	if (c < 0)
		return ended(j, c);
	if (j->expect == WANT_COMMA_OR_END) {
		if (c == '}' || c == ']')
			return close_container(j, c);
		if (c != ',')
			return dl_json_wrong(j, "a comma is missing");
		j->in->at++;
		j->expect = in_object(j) ? WANT_KEY : WANT_VALUE;
		c = next_byte(j);
		if (c < 0)
			return ended(j, c);
	} else if ((j->expect == WANT_KEY_OR_END && c == '}') || (j->expect == WANT_VALUE_OR_END && c == ']')) {
		return close_container(j, c);
	}
	if (j->expect == WANT_KEY || j->expect == WANT_KEY_OR_END)
		return c == '"' ? key(j) : dl_json_wrong(j, "a key is missing");
	return value(j, c);
}

int dl_json_skip(struct dl_json *j, int tok)
{
	unsigned int depth;

	if (!tok)
		tok = dl_json_next(j);
	if (tok != DL_JSON_OBJ && tok != DL_JSON_ARR)
		return tok < 0 ? tok : 0;
	depth = j->depth - 1;
	while (tok >= 0 && j->depth > depth)
		tok = dl_json_next(j);
	return tok < 0 ? tok : 0;
}

/* At least one, up to the first character that is none; false also when they are too many. */
static bool take_digits(const char **s, int64_t *v)
{
	if (!isdigit((unsigned char)**s))
		return false;
	for (; isdigit((unsigned char)**s); (*s)++) {
		if (__builtin_mul_overflow(*v, 10, v) || __builtin_add_overflow(*v, **s - '0', v))
			return false;
	}
	return true;
}

bool dl_json_milli(const char *s, int64_t *ret)
{
	const bool neg = *s == '-';
	int64_t v = 0;
	int digits = 0;

	s += neg;
	if (!take_digits(&s, &v))
		return false;
	if (*s == '.')
		s++;
	for (; digits < 3; digits++) {
		int digit = isdigit((unsigned char)*s) ? *s++ - '0' : 0;

		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v))
			return false;
	}
	while (isdigit((unsigned char)*s))
		s++;
	if (*s == 'e' || *s == 'E') {
		/* Python writes times of days like this never, and small ones (1e-05) are 0. */
		double d = strtod(s + 1, NULL);
		int64_t exp = d > 18 ? 18 : d < -18 ? -18 : (int64_t)d;

		for (; exp > 0; exp--) {
			if (__builtin_mul_overflow(v, 10, &v))
				return false;
		}
		for (; exp < 0; exp++)
			v /= 10;
	} else if (*s) {
		return false;
	}
	*ret = neg ? -v : v;
	return true;
}

bool dl_json_int(const char *s, int64_t *ret)
{
	const bool neg = *s == '-';
	int64_t v = 0;

	s += neg;
	if (!take_digits(&s, &v))
		return false;
	if (*s && *s != '.')
		return false;
	*ret = neg ? -v : v;
	return true;
}
