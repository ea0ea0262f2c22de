/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The machine: memory, swap, CPUs, huge pages, and those who end jobs. */
#include "check/gather.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "capture/proc.h"

void ck_copy(char *to, size_t sz, const char *from)
{
	const size_t len = strlen(from);
	const size_t n = len < sz ? len : sz - 1;

	memcpy(to, from, n);
	to[n] = '\0';
}

bool ck_read(const char *root, const char *path, char *buf, size_t sz)
{
	char full[PATH_MAX];
	ssize_t n;

	snprintf(full, sizeof(full), "%s%s", root, path);
	n = dl_proc_read(AT_FDCWD, full, buf, sz);
	if (n < 0) {
		buf[0] = '\0';
		return false;
	}
	if (n && buf[n - 1] == '\n')
		buf[n - 1] = '\0';
	return true;
}

bool ck_read_u64(const char *root, const char *path, uint64_t *ret)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s%s", root, path);
	return dl_proc_read_u64(AT_FDCWD, full, ret);
}

uint32_t ck_list_cnt(const char *list)
{
	uint64_t cnt = 0;

	while (*list >= '0' && *list <= '9') {
		char *end;
		const unsigned long from = strtoul(list, &end, 10);
		unsigned long to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		if (to < from || to > 1 << 20)
			return 0;
		cnt += to - from + 1;
		list = end + (*end == ',');
	}
	return (uint32_t)cnt;
}

void ck_gather_cpus(struct dl_ck_facts *f, const char *root)
{
	char text[4096];

	if (ck_read(root, "/sys/devices/system/cpu/online", text, sizeof(text)))
		f->cpus.online = ck_list_cnt(text);
}

/* --- memory -------------------------------------------------------------------------------------- */

static uint64_t kib(const char *text, const char *key)
{
	uint64_t v = 0;

	return dl_text_u64(text, key, &v) ? v << 10 : 0;
}

/* "Filename Type Size Used Priority" and a line for each. */
static void read_swaps(struct dl_ck_mem *m, const char *root)
{
	char text[4096];
	const char *line;

	if (!ck_read(root, "/proc/swaps", text, sizeof(text)))
		return;
	line = strchr(text, '\n');
	if (line && line[1]) {
		const size_t len = strcspn(line + 1, " \t\n");

		snprintf(m->swap_dev, sizeof(m->swap_dev), "%.*s", (int)len, line + 1);
	}
	m->zram = strstr(text, "/dev/zram") != NULL;
}

/* "always [madvise] never": the one in brackets. */
static bool chosen(const char *root, const char *path, char *buf, size_t sz)
{
	char text[128], *open, *close;

	if (!ck_read(root, path, text, sizeof(text)))
		return false;
	open = strchr(text, '[');
	close = open ? strchr(open, ']') : NULL;
	if (!close)
		return false;
	*close = '\0';
	ck_copy(buf, sz, open + 1);
	return true;
}

void ck_gather_mem(struct dl_ck_facts *f, const char *root)
{
	struct dl_ck_mem *m = &f->mem;
	char text[8192];
	uint64_t v;

	if (ck_read(root, "/proc/meminfo", text, sizeof(text))) {
		m->total = kib(text, "MemTotal");
		m->avail = kib(text, "MemAvailable");
		m->swap_total = kib(text, "SwapTotal");
		m->swap_free = kib(text, "SwapFree");
		m->commit_limit = kib(text, "CommitLimit");
		m->committed = kib(text, "Committed_AS");
		m->known = m->total != 0;
	}
	if (ck_read_u64(root, "/proc/sys/vm/overcommit_memory", &v)) {
		m->overcommit_known = true;
		m->overcommit = (uint32_t)v;
	}
	read_swaps(m, root);
	if (ck_read(root, "/sys/module/zswap/parameters/enabled", text, sizeof(text)))
		m->zswap = text[0] == 'Y';
	m->thp_known = chosen(root, "/sys/kernel/mm/transparent_hugepage/enabled", m->thp, sizeof(m->thp));
	chosen(root, "/sys/kernel/mm/transparent_hugepage/defrag", m->thp_defrag, sizeof(m->thp_defrag));
}

void ck_gather_swapins(struct dl_ck_facts *f, const char *root, bool end)
{
	char text[16384];
	uint64_t v;

	if (!ck_read(root, "/proc/vmstat", text, sizeof(text)) || !dl_text_u64(text, "pswpin", &v))
		return;
	f->mem.swapins_known = end;
	f->mem.swapins = end && v > f->mem.swapins ? v - f->mem.swapins : end ? 0 : v;
}

/* --- those who end jobs ---------------------------------------------------------------------------- */

static bool is_yes(const char *value)
{
	return !strncasecmp(value, "yes", 3) || !strncasecmp(value, "true", 4) || !strncasecmp(value, "on", 2) ||
	       value[0] == '1';
}

/* "Key=value", or with a '#' before it what systemd was built with: the file that it comes with says so. */
static void logind_line(const char *text, const char *key, bool *ret, bool *ret_known)
{
	const size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		bool comment;

		line += *line == '\n';
		comment = *line == '#';
		if (strncmp(line + comment, key, len) || line[comment + len] != '=')
			continue;
		if (comment && *ret_known)
			continue;
		*ret = is_yes(line + comment + len + 1);
		*ret_known = true;
	}
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_conf(const struct dirent *de)
{
	const size_t len = strlen(de->d_name);

	return len > 5 && !strcmp(de->d_name + len - 5, ".conf");
}

struct logind {
	bool remove, remove_known, kill, kill_known;
};

static void logind_file(const char *root, const char *path, struct logind *l)
{
	char text[16384];

	if (!ck_read(root, path, text, sizeof(text)))
		return;
	logind_line(text, "RemoveIPC", &l->remove, &l->remove_known);
	logind_line(text, "KillUserProcesses", &l->kill, &l->kill_known);
}

/* Later files win; drop-ins come after the main file, see logind.conf(5). */
static void read_logind(struct dl_ck_host *h, const char *root)
{
	static const char *const mains[] = { "/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf" };
	static const char *const dirs[] = {
		"/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d",
	};
	struct logind l = {};

	for (size_t i = 0; i < ARRAY_SIZE(mains); i++)
		logind_file(root, mains[i], &l);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		struct dirent **names = NULL;
		char full[PATH_MAX];
		int cnt;

		snprintf(full, sizeof(full), "%s%s", root, dirs[i]);
		cnt = scandir(full, &names, is_conf, by_name);
		for (int n = 0; n < cnt; n++) {
			snprintf(full, sizeof(full), "%s/%s", dirs[i], names[n]->d_name);
			logind_file(root, full, &l);
			free(names[n]);
		}
		free(names);
	}
	h->logind_known = l.remove_known || l.kill_known;
	h->remove_ipc = l.remove;
	h->kill_user = l.kill;
}

/* Does a process of this name run? comm has 15 characters. */
static void find_killers(struct dl_ck_host *h, const char *root)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[PATH_MAX], comm[32];

	snprintf(path, sizeof(path), "%s/proc", root);
	dir = opendir(path);
	for (const struct dirent *de; dir && (de = readdir(dir));) {
		if (de->d_name[0] < '1' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", de->d_name);
		if (!ck_read(root, path, comm, sizeof(comm)))
			continue;
		h->oomd |= !strcmp(comm, "systemd-oomd");
		h->earlyoom |= !strcmp(comm, "earlyoom");
	}
}

void ck_gather_host(struct dl_ck_facts *f, const char *root)
{
	struct dl_ck_host *h = &f->host;
	const struct passwd *pw = f->proc.known ? getpwuid(f->proc.uid) : NULL;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/run/systemd/system", root);
	h->systemd = !access(path, F_OK);	/* as sd_booted(3) */
	if (h->systemd)
		read_logind(h, root);
	find_killers(h, root);
	if (pw) {
		ck_copy(h->user, sizeof(h->user), pw->pw_name);
		snprintf(path, sizeof(path), "%s/var/lib/systemd/linger/%s", root, pw->pw_name);
		h->linger = !access(path, F_OK);
	}
}
