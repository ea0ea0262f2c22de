/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Reads /proc/kallsyms: "address type name", and "[module]" behind it. */
#include "capture/kallsyms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static int add_line(struct dl_kallsyms *k, char *line)
{
	struct dl_ksym *sym;
	uint64_t addr;
	char *p;

	addr = strtoull(line, &p, 16);
	if (p == line || p[0] != ' ' || !p[1] || p[2] != ' ' || !strchr("tTwW", p[1]) || !addr)
		return 0;
	line = p + 3;
	p = strchr(line, '\t');
	if (p)
		*p = ' ';
	sym = vec_push(&k->syms);
	if (!sym)
		return -ENOMEM;
	sym->addr = addr;
	sym->name = (uint32_t)k->names.len;
	dl_str_addn(&k->names, line, strlen(line) + 1);
	return k->names.err;
}

static int by_addr(const void *a, const void *b)
{
	const struct dl_ksym *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static int read_lines(struct dl_kallsyms *k, int fd)
{
	_cleanup_free_ char *buf = malloc(65536);
	size_t have = 0;

	if (!buf)
		return -ENOMEM;
	for (;;) {
		const ssize_t n = read(fd, buf + have, 65536 - have);
		char *line = buf, *nl;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		have += (size_t)n;
		while ((nl = memchr(line, '\n', have - (size_t)(line - buf)))) {
			int err;

			*nl = '\0';
			err = add_line(k, line);
			if (err)
				return err;
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		if (have == 65536)
			return -EINVAL;
		memmove(buf, line, have);
	}
}

int dl_kallsyms_load(struct dl_kallsyms *ret, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct dl_kallsyms k = {};
	int err;

	if (fd < 0)
		return -errno;
	err = read_lines(&k, fd);
	if (!err && !k.syms.cnt)
		err = -EACCES;	/* every address was 0 */
	if (err) {
		dl_kallsyms_fini(&k);
		return err;
	}
	qsort(k.syms.v, k.syms.cnt, sizeof(*k.syms.v), by_addr);
	*ret = k;
	return 0;
}

void dl_kallsyms_fini(struct dl_kallsyms *k)
{
	vec_free(&k->syms);
	dl_str_fini(&k->names);
}

const char *dl_kallsyms_find(const struct dl_kallsyms *k, uint64_t addr, uint64_t *ret_off)
{
	size_t lo = 0, hi = k->syms.cnt;

	while (lo < hi) {
		const size_t mid = (lo + hi) / 2;

		if (k->syms.v[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	/* Of several names of one address the first in the file. */
	lo--;
	while (lo && k->syms.v[lo - 1].addr == k->syms.v[lo].addr)
		lo--;
	*ret_off = addr - k->syms.v[lo].addr;
	return k->names.s + k->syms.v[lo].name;
}
