/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The texts of /proc/PID/stat, status and syscall, see proc(5). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "capture/proc.h"

const char *dl_proc_var(const char *env, size_t len, const char *name)
{
	const size_t name_len = strlen(name);

	for (size_t i = 0; i < len; i += strlen(env + i) + 1)
		if (!strncmp(env + i, name, name_len) && env[i + name_len] == '=')
			return env + i + name_len + 1;
	return NULL;
}

/* The name may hold spaces and parentheses: it ends at the last parenthesis. */
bool dl_parse_stat(const char *text, struct dl_stat *ret)
{
	enum { STATE = 3, PPID, FLAGS = 9, UTIME = 14, STIME, NICE = 19, START = 22 };
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	struct dl_stat st = {};
	const char *p;
	size_t len;

	if (!open || !close || close < open || close[1] != ' ')
		return false;
	len = (size_t)(close - open - 1);
	if (len > sizeof(st.comm) - 1)	/* kernel workers have longer names in there */
		len = sizeof(st.comm) - 1;
	memcpy(st.comm, open + 1, len);
	p = close + 2;
	st.state = *p;
	for (int field = STATE; field <= START; field++) {
		if (!*p || *p == '\n')
			return false;
		switch (field) {
		case PPID:
			st.ppid = (uint32_t)strtoul(p, NULL, 10);
			break;
		case FLAGS:
			st.flags = (uint32_t)strtoul(p, NULL, 10);
			break;
		case UTIME:
		case STIME:
			st.cpu_ticks += strtoull(p, NULL, 10);
			break;
		case NICE:
			st.nice = (int32_t)strtol(p, NULL, 10);
			break;
		case START:
			st.start_ticks = strtoull(p, NULL, 10);
			break;
		}
		p += strcspn(p, " \n");
		p += *p == ' ';
	}
	*ret = st;
	return true;
}

/* "Key:\tvalue ..." - the value, when the line has this key. */
static const char *value_of(const char *line, const char *key)
{
	const size_t len = strlen(key);

	if (strncmp(line, key, len) || line[len] != ':')
		return NULL;
	line += len + 1;
	return line + strspn(line, " \t");
}

static uint32_t last_number(const char *s)
{
	uint32_t nr = 0;

	while (isdigit((unsigned char)*s)) {
		char *end;

		nr = (uint32_t)strtoul(s, &end, 10);
		s = end + strspn(end, " \t");
	}
	return nr;
}

/* A mask in groups of 32 bits, "ff,ffffffff". */
static uint64_t count_bits(const char *s)
{
	uint64_t cnt = 0;

	for (; isxdigit((unsigned char)*s) || *s == ','; s++) {
		const int c = tolower((unsigned char)*s);

		if (c != ',')
			cnt += (uint64_t)__builtin_popcount((unsigned int)(c <= '9' ? c - '0' : c - 'a' + 10));
	}
	return cnt;
}

enum { AS_U32, AS_OCTAL, AS_HEX64, AS_KB, AS_LAST, AS_BITS };

static const struct {
	const char *key;
	size_t off;
	int as;
} status_fields[] = {
#define F(key, member, as) { key, offsetof(struct dl_status, member), as }
	F("Umask", umask, AS_OCTAL), F("Tgid", tgid, AS_U32), F("Pid", pid, AS_U32),
	F("PPid", ppid, AS_U32), F("Uid", uid, AS_U32), F("Gid", gid, AS_U32),
	F("NStgid", nstgid, AS_LAST), F("NSpid", nspid, AS_LAST), F("VmLck", locked, AS_KB),
	F("VmPin", pinned, AS_KB), F("RssAnon", rss_anon, AS_KB), F("RssFile", rss_file, AS_KB),
	F("RssShmem", rss_shmem, AS_KB), F("VmLib", libs, AS_KB), F("VmPTE", pgtables, AS_KB), F("VmSwap", swap, AS_KB),
	F("Threads", threads, AS_U32), F("SigBlk", sig_blocked, AS_HEX64),
	F("SigCgt", sig_caught, AS_HEX64), F("Cpus_allowed", cpus_allowed, AS_BITS),
#undef F
};

static void set_status(struct dl_status *st, size_t i, const char *value)
{
	void *to = (char *)st + status_fields[i].off;

	switch (status_fields[i].as) {
	case AS_U32:
		*(uint32_t *)to = (uint32_t)strtoul(value, NULL, 10);
		break;
	case AS_OCTAL:
		*(uint32_t *)to = (uint32_t)strtoul(value, NULL, 8);
		break;
	case AS_LAST:
		*(uint32_t *)to = last_number(value);
		break;
	case AS_HEX64:
		*(uint64_t *)to = strtoull(value, NULL, 16);
		break;
	case AS_KB:
		*(uint64_t *)to = strtoull(value, NULL, 10) << 10;
		break;
	case AS_BITS:
		*(uint64_t *)to = count_bits(value);
		break;
	}
}

bool dl_parse_status(const char *text, struct dl_status *ret)
{
	const size_t cnt = sizeof(status_fields) / sizeof(status_fields[0]);
	struct dl_status st = {};
	size_t next = 0;	/* the lines come in a fixed order, so the search goes on from here */

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		for (size_t i = next; i < cnt; i++) {
			const char *value = value_of(line, status_fields[i].key);

			if (value) {
				set_status(&st, i, value);
				next = i + 1;
				break;
			}
		}
	}
	if (!st.pid)
		return false;
	/* Kernels without PID namespaces give no NS lines. */
	if (!st.nspid)
		st.nspid = st.pid;
	if (!st.nstgid)
		st.nstgid = st.tgid;
	*ret = st;
	return true;
}

bool dl_parse_syscall(const char *text, int32_t *ret_nr, uint64_t *ret_arg0, uint64_t *ret_arg1)
{
	char *p;
	long nr;

	if (!strncmp(text, "running", 7)) {
		*ret_nr = -2;
		*ret_arg0 = *ret_arg1 = 0;
		return true;
	}
	nr = strtol(text, &p, 10);
	if (p == text || nr < -1 || nr > INT32_MAX)
		return false;
	*ret_nr = (int32_t)nr;
	*ret_arg0 = nr < 0 ? 0 : strtoull(p, &p, 16);
	*ret_arg1 = nr < 0 ? 0 : strtoull(p, &p, 16);
	return true;
}

char *dl_mount_path(const char *s, size_t len)
{
	char *out = malloc(len + 1), *to = out;

	if (!out)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '\\' && i + 3 < len) {
			*to++ = (char)((s[i + 1] - '0') << 6 | (s[i + 2] - '0') << 3 | (s[i + 3] - '0'));
			i += 3;
		} else {
			*to++ = s[i];
		}
	}
	*to = '\0';
	return out;
}
