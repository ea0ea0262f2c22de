/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Names of kernels and calls: each text gets an id once in a process and is shipped once in a
 * session. CUPTI's name pointers are only a hint: before 13.4 they could be stale after a module
 * was loaded again, so a pointer seen before is compared with what it said then.
 */
#include "agent.h"

#include <string.h>
#include <sys/mman.h>

#define NAME_MAX_CNT 16384	/* more than that get id 0 */
#define SLOT_CNT (2 * NAME_MAX_CNT)
#define TEXT_SZ (8U << 20)	/* address space; touched as it fills */
#define NAME_MAX_LEN 1024	/* templates can be longer; the rest is cut off */
#define CACHE_CNT 1024

struct name {
	uint32_t off, len;	/* in text */
	uint32_t session;	/* shipped in it */
};

static struct {
	char *text;
	struct name *names;	/* [0] is not used */
	uint32_t *slots;	/* hash to id; 0 free */
	uint32_t cnt, text_sz, session;
	struct { const char *ptr; uint32_t id; } cache[CACHE_CNT];
} tab = { .session = 1 };

static bool open_table(void)
{
	size_t names_sz = sizeof(struct name) * (NAME_MAX_CNT + 1);
	size_t slots_sz = sizeof(uint32_t) * SLOT_CNT;
	char *mem;

	if (tab.text)
		return true;
	mem = mmap(NULL, TEXT_SZ + names_sz + slots_sz, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return false;
	tab.names = (struct name *)(mem + TEXT_SZ);
	tab.slots = (uint32_t *)(mem + TEXT_SZ + names_sz);
	tab.text = mem;
	return true;
}

void names_forget(void)
{
	tab.session++;
}

static uint32_t hash(const char *s, size_t len)
{
	uint32_t h = 2166136261U;	/* FNV-1a */

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)s[i]) * 16777619U;
	return h;
}

static uint32_t intern(const char *s, size_t len)
{
	uint32_t i = hash(s, len) % SLOT_CNT, id;

	for (; (id = tab.slots[i]); i = (i + 1) % SLOT_CNT) {
		const struct name *n = &tab.names[id];

		if (n->len == len && !memcmp(tab.text + n->off, s, len))
			return id;
	}
	if (tab.cnt >= NAME_MAX_CNT || tab.text_sz + len + 1 > TEXT_SZ)
		return 0;
	id = ++tab.cnt;
	tab.names[id] = (struct name){ .off = tab.text_sz, .len = (uint32_t)len };
	memcpy(tab.text + tab.text_sz, s, len);
	tab.text[tab.text_sz + len] = '\0';
	tab.text_sz += (uint32_t)len + 1;
	tab.slots[i] = id;
	return id;
}

static void ship(uint32_t id)
{
	struct name *n = &tab.names[id];
	struct dl_ev_string ev = {
		.h = { .kind = DL_EV_STRING, .pid = ring_header()->pid, .cpu = DL_CPU_NONE },
		.id = id,
	};

	if (n->session == tab.session)
		return;
	/* Without room it is tried again when the name comes next. */
	if (ring_put_text(&ev.h, sizeof(ev), tab.text + n->off, n->len, false))
		n->session = tab.session;
}

uint32_t names_id(const char *text)
{
	size_t len, slot = ((uintptr_t)text >> 3) % CACHE_CNT;
	uint32_t id = tab.cache[slot].id;

	if (!text || !open_table())
		return 0;
	if (tab.cache[slot].ptr != text || !id ||
	    strncmp(tab.text + tab.names[id].off, text, NAME_MAX_LEN)) {
		len = strnlen(text, NAME_MAX_LEN);
		id = len ? intern(text, len) : 0;
		tab.cache[slot].ptr = text;
		tab.cache[slot].id = id;
	}
	if (id)
		ship(id);
	return id;
}
