/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a libcupti, real or double, says of itself without a driver: version, sizes of its records
 * as its own walker steps over them, its clock, its symbols; and what it finds in a buffer.
 *
 *   walker LIB sizes          "KIND SIZE" lines
 *   walker LIB about          version, clock, symbols
 *   walker LIB walk FILE      one line a record of the buffer: kind, offset
 *   walker LIB names FILE     the names of the calls listed as "DOMAIN CBID" lines
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../cupti/cupti_abi.h"

static struct cupti_api_table api;

static int load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL), *f;
	int missing = 0;

	if (!lib) {
		fprintf(stderr, "walker: %s\n", dlerror());
		return 1;
	}
#define CUPTI_FN(required, member, symbol, params) \
	f = dlsym(lib, symbol); \
	memcpy(&api.member, &f, sizeof(f)); \
	if (!f && required) { \
		printf("missing %s\n", symbol); \
		missing = 1; \
	}
	CUPTI_FUNCTIONS(CUPTI_FN)
#undef CUPTI_FN
	return missing;
}

static size_t size_of(uint32_t kind)
{
	static uint64_t buf[256];
	uint8_t *rec = NULL;

	for (size_t i = 0; i < 256; i++)
		buf[i] = kind;
	if (api.next_record((uint8_t *)buf, sizeof(buf), &rec) ||
	    api.next_record((uint8_t *)buf, sizeof(buf), &rec))
		return 0;
	return (size_t)(rec - (uint8_t *)buf);
}

static uint64_t realtime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static void about(void)
{
	uint32_t version = 0;
	uint64_t before, after, ts = 0, off = UINT64_MAX;
	int err = api.get_version(&version);

	printf("version %u error %d\n", version, err);
	for (int i = 0; i < 100; i++) {
		before = realtime();
		err = api.get_timestamp(&ts);
		after = realtime();
		if (!err && ts >= before && ts <= after && after - before < off)
			off = after - before;
	}
	printf("clock error %d realtime %d\n", err, off != UINT64_MAX);
	printf("enable_runtime_api %d\n", api.enable_runtime_api != NULL);
	printf("enable_all_sync %d\n", api.enable_all_sync != NULL);
}

static int walk(const char *path)
{
	static uint64_t buf[1 << 17];
	FILE *f = fopen(path, "rb");
	size_t n = f ? fread(buf, 1, sizeof(buf), f) : 0;
	uint8_t *rec = NULL;
	int err;

	if (!f)
		return 1;
	fclose(f);
	while (!(err = api.next_record((uint8_t *)buf, n, &rec)))
		printf("record %u %zu\n", *(const uint32_t *)(const void *)rec,
		       (size_t)(rec - (const uint8_t *)buf));
	printf("end %d\n", err);
	return 0;
}

static int names(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned int cbid;
	int domain;

	if (!f || !api.callback_name)
		return 1;
	while (fscanf(f, "%d %u", &domain, &cbid) == 2) {
		const char *name = NULL;
		int err = api.callback_name(domain, cbid, &name);

		printf("%d %u %s\n", domain, cbid, !err && name ? name : "-");
	}
	fclose(f);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3 || load(argv[1]))
		return 2;
	if (!strcmp(argv[2], "sizes")) {
		for (uint32_t kind = 1; kind < 64; kind++)
			if (size_of(kind))
				printf("%u %zu\n", kind, size_of(kind));
		return 0;
	}
	if (!strcmp(argv[2], "about")) {
		about();
		return 0;
	}
	if (argc == 4 && !strcmp(argv[2], "walk"))
		return walk(argv[3]);
	if (argc == 4 && !strcmp(argv[2], "names"))
		return names(argv[3]);
	return 2;
}
