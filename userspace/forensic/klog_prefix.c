/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What stands before a line of the kernel log, and when it was: /dev/kmsg, dmesg, syslog, journalctl. */
#include "forensic/klog_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"

#define NS UINT64_C(1000000000)
#define DAY_S (24 * 3600)

/* Digits behind a point, as nanoseconds. */
static uint64_t fraction(const char **p)
{
	uint64_t ns = 0, unit = NS / 10;

	for (; isdigit((unsigned char)**p); ++*p, unit /= 10)
		ns += unit * (uint64_t)(**p - '0');
	return ns;
}

/* "12345.678901" as nanoseconds; returns the character behind it, NULL when it is none. */
static const char *seconds(const char *s, uint64_t *ret_ns)
{
	char *end;
	const char *p;
	uint64_t sec;

	if (!isdigit((unsigned char)*s))
		return NULL;
	sec = strtoull(s, &end, 10);
	if (*end != '.' || sec > INT64_MAX / NS - 1)
		return NULL;
	p = end + 1;
	*ret_ns = sec * NS + fraction(&p);
	return p;
}

static int month_of(const char *s)
{
	static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const char *at;

	if (strnlen(s, 3) < 3)
		return -1;
	for (at = names; *at; at += 3)
		if (!strncmp(at, s, 3))
			return (int)(at - names) / 3;
	return -1;
}

static int64_t local_ns(struct tm *tm)
{
	time_t t;

	tm->tm_isdst = -1;
	t = mktime(tm);
	return t < 0 ? 0 : (int64_t)t * (int64_t)NS;
}

/* "Nov 30 09:02:57[.123456]": the last year in which it is not in the future. */
static const char *syslog_time(const char *s, int64_t now_ns, int64_t *ret)
{
	struct tm tm = { .tm_mon = month_of(s) }, now_tm;
	const time_t now = (time_t)(now_ns / (int64_t)NS);
	uint64_t frac = 0;
	const char *p;
	int n = 0;

	if (tm.tm_mon < 0 || sscanf(s + 3, " %2d %2d:%2d:%2d%n", &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 4 ||
	    !localtime_r(&now, &now_tm))
		return NULL;
	p = s + 3 + n;
	if (*p == '.') {
		p++;
		frac = fraction(&p);
	}
	tm.tm_year = now_tm.tm_year;
	*ret = local_ns(&tm) + (int64_t)frac;
	if (now_ns && *ret > now_ns + (int64_t)(DAY_S * NS)) {
		tm.tm_year--;
		*ret = local_ns(&tm) + (int64_t)frac;
	}
	return p;
}

/* "Mon Nov 30 09:02:57 2026", of dmesg -T. */
static const char *ctime_time(const char *s, int64_t *ret)
{
	struct tm tm = {};
	int n = 0, year;

	if (strnlen(s, 4) < 4 || s[3] != ' ' || !isalpha((unsigned char)*s))
		return NULL;
	tm.tm_mon = month_of(s + 4);
	if (tm.tm_mon < 0 || sscanf(s + 7, " %2d %2d:%2d:%2d %4d%n", &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &year,
				    &n) != 5)
		return NULL;
	tm.tm_year = year - 1900;
	*ret = local_ns(&tm);
	return s + 7 + n;
}

/* "+0100", "+01:00", "Z"; without one it is local time. */
static const char *zone(const char *p, struct tm *tm, int64_t *ret)
{
	int hours, minutes = 0, n = 0;

	if (*p == 'Z' || ((*p == '+' || *p == '-') && (sscanf(p + 1, "%2d:%2d%n", &hours, &minutes, &n) == 2 ||
						       sscanf(p + 1, "%2d%2d%n", &hours, &minutes, &n) == 2))) {
		const int64_t off = *p == 'Z' ? 0 : (*p == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);

		*ret = ((int64_t)timegm(tm) - off) * (int64_t)NS;
		return p + 1 + n;
	}
	*ret = local_ns(tm);
	return p;
}

/* "2026-11-30T09:02:57[.,]123456+00:00" */
static const char *iso_time(const char *s, int64_t *ret)
{
	struct tm tm = {};
	uint64_t frac = 0;
	const char *p;
	int n = 0;
	char t;

	if (sscanf(s, "%4d-%2d-%2d%c%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &t, &tm.tm_hour, &tm.tm_min,
		   &tm.tm_sec, &n) != 7 || (t != 'T' && t != ' '))
		return NULL;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	p = s + n;
	if (*p == '.' || *p == ',') {
		p++;
		frac = fraction(&p);
	}
	p = zone(p, &tm, ret);
	*ret += (int64_t)frac;
	return p;
}

/* "6,339,5140900,-;": priority, number, microseconds, flags. */
static const char *kmsg_prefix(const char *s, struct dl_klog_prefix *ret)
{
	unsigned long long us;
	int n = 0;

	if (sscanf(s, "%*u,%*u,%llu,%*[^;\n];%n", &us, &n) != 1 || !n)
		return NULL;
	ret->boot_ns = !us ? 1 : us < UINT64_MAX / 1000 ? us * 1000 : 0;	/* 0 is none */
	ret->kernel = true;
	return s + n;
}

/* "[   12.345678] ", "[Mon Nov 30 09:02:57 2026] ", "[  T123] " */
static const char *bracket(const char *s, struct dl_klog_prefix *ret)
{
	const char *p = s + 1 + strspn(s + 1, " "), *end;
	uint64_t ns;
	int64_t wall;

	if (*s != '[')
		return NULL;
	end = seconds(p, &ns);
	if (end && *end == ']') {
		ret->boot_ns = ns ? ns : 1;
		return end + 1;
	}
	end = ctime_time(p, &wall);
	if (end && *end == ']') {
		ret->wall_ns = wall;
		return end + 1;
	}
	/* Who printed it (CONFIG_PRINTK_CALLER): a task or a CPU. */
	if ((*p == 'T' || *p == 'C') && isdigit((unsigned char)p[1])) {
		p += 1 + strspn(p + 1, "0123456789");
		return *p == ']' ? p + 1 : NULL;
	}
	return NULL;
}

/*
 * "host kernel: " or "host program[123]: ", behind a time. A message of the kernel may look like it, "XFS (sda1): ",
 * hence the characters; and where dmesg may have written the line, only names that matter here are believed.
 */
static const char *host_and_program(const char *s, bool dmesg, struct dl_klog_prefix *ret)
{
	const char *ident = s + strcspn(s, " "), *end;
	size_t len;

	if (*ident != ' ' || ident == s || ident[-1] == ':')
		return NULL;
	ident += strspn(ident, " ");
	len = strspn(ident, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@/");
	end = ident + len;
	if (*end == '[')
		end += strcspn(end, ": ");
	if (!len || len >= sizeof(ret->ident) || *end != ':' || end[1] != ' ')
		return NULL;
	if (dmesg && strncmp(ident, "kernel:", 7) && strncmp(ident, "systemd", 7) && strncmp(ident, "earlyoom", 8))
		return NULL;
	memcpy(ret->ident, ident, len);
	ret->ident[len] = '\0';
	return end + 2;
}

/* Of syslog and journalctl, with the space behind it. */
static const char *any_time(const char *s, int64_t now_wall_ns, struct dl_klog_prefix *ret)
{
	const char *p = syslog_time(s, now_wall_ns, &ret->wall_ns);
	uint64_t ns;

	if (!p)
		p = iso_time(s, &ret->wall_ns);
	if (!p) {
		p = seconds(s, &ns);	/* short-unix */
		if (p && *p == ' ' && ns > 1000000000 * NS)
			ret->wall_ns = (int64_t)ns;
		else
			p = NULL;
	}
	return p && *p == ' ' ? p + strspn(p, " ") : NULL;
}

/* "kern  :warn  : " of dmesg -x, "<4>" of syslog(2). */
static const char *level(const char *s)
{
	const char *p = s;

	if (*p == '<' && isdigit((unsigned char)p[1])) {
		p += 1 + strspn(p + 1, "0123456789");
		return *p == '>' ? p + 1 : s;
	}
	if (!strncmp(p, "kern", 4)) {
		p += 4 + strspn(p + 4, " ");
		if (*p == ':') {
			p += 1 + strcspn(p + 1, ":");
			if (*p == ':')
				return p + 1 + strspn(p + 1, " ");
		}
	}
	return s;
}

size_t dl_klog_prefix(const char *line, int64_t now_wall_ns, struct dl_klog_prefix *ret)
{
	const char *s, *p;
	bool dmesg;

	*ret = (struct dl_klog_prefix){};
	s = kmsg_prefix(line, ret);
	if (s)
		return (size_t)(s - line);
	s = level(line);
	p = bracket(s, ret);
	dmesg = p != NULL;
	if (!p)
		p = any_time(s, now_wall_ns, ret);
	if (p) {
		s = p + strspn(p, " ");
		p = host_and_program(s, dmesg, ret);
		if (p)
			s = p + strspn(p, " ");
	}
	/* The kernel's own seconds behind those of syslog, and who printed it. */
	while ((p = bracket(s, ret)))
		s = p + strspn(p, " ");
	ret->kernel = !ret->ident[0] || !strcmp(ret->ident, "kernel");
	return (size_t)(s - line);
}

/* --- journalctl -o json ------------------------------------------------------------------------- */

/* The text of a string member, its escapes undone; false when there is none. */
static bool member(const char *line, const char *key, char *buf, size_t sz)
{
	const char *p = strstr(line, key);
	size_t len = 0;

	if (!p)
		return false;
	p += strlen(key) + strspn(p + strlen(key), " ");
	if (*p++ != ':')
		return false;
	p += strspn(p, " ");
	if (*p++ != '"')
		return false;
	for (; *p && *p != '"' && len + 1 < sz; p++) {
		if (*p == '\\' && p[1]) {
			p++;
			if (*p == 'u') {
				buf[len++] = '?';
				p += strnlen(p + 1, 4);
				continue;
			}
			buf[len++] = strchr("ntr", *p) ? ' ' : *p;
		} else {
			buf[len++] = *p;
		}
	}
	buf[len] = '\0';
	return true;
}

bool dl_klog_json(const char *line, char *buf, size_t sz, struct dl_klog_prefix *ret)
{
	char nr[32];

	*ret = (struct dl_klog_prefix){};
	if (*line != '{' || !member(line, "\"MESSAGE\"", buf, sz))
		return false;
	if (member(line, "\"__REALTIME_TIMESTAMP\"", nr, sizeof(nr)))
		ret->wall_ns = (int64_t)(strtoull(nr, NULL, 10) % (INT64_MAX / 1000)) * 1000;
	if (member(line, "\"_SOURCE_MONOTONIC_TIMESTAMP\"", nr, sizeof(nr)))
		ret->boot_ns = strtoull(nr, NULL, 10) % (INT64_MAX / 1000) * 1000;
	if (!member(line, "\"SYSLOG_IDENTIFIER\"", ret->ident, sizeof(ret->ident)))
		ret->ident[0] = '\0';
	ret->kernel = !ret->ident[0] || !strcmp(ret->ident, "kernel");
	return true;
}
