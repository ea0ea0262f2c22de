/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The main() of a fuzz target without libFuzzer:
 *
 *	fuzz_X [-n COUNT] FILE...	replays the files, then COUNT mutations of each
 *
 * The mutations are always the same. With -DDLBPF_LIBFUZZER there is no main(): clang
 * -fsanitize=fuzzer has one.
 */
#ifndef DLBPF_TESTS_FUZZ_DRIVER_H
#define DLBPF_TESTS_FUZZ_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz);

#define MUST(cond) do { \
	if (!(cond)) { \
		fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond); \
		abort(); \
	} \
} while (0)

#ifndef DLBPF_LIBFUZZER
static uint64_t driver_rng = 1;

static uint64_t driver_rnd(void)
{
	driver_rng ^= driver_rng << 13;
	driver_rng ^= driver_rng >> 7;
	return driver_rng ^= driver_rng << 17;
}

static size_t driver_mutate(uint8_t *p, size_t sz)
{
	for (uint64_t n = 1 + driver_rnd() % 6; n-- && sz;) {
		size_t at = driver_rnd() % sz, from = driver_rnd() % sz, len = 1 + driver_rnd() % 32;
		uint64_t num;

		switch (driver_rnd() % 6) {
		case 0:
			p[at] ^= (uint8_t)(1 << driver_rnd() % 8);
			break;
		case 1:
			p[at] = driver_rnd() % 2 ? 0xff : 0;
			break;
		case 2:
			p[at] = (uint8_t)(p[at] + driver_rnd() % 9 - 4);
			break;
		case 3:	/* a number at its end, or a little beyond */
			num = (1ULL << driver_rnd() % 64) - driver_rnd() % 3;
			len = 1ULL << driver_rnd() % 4;
			if (at + len <= sz)
				memcpy(p + at, &num, len);
			break;
		case 4:
			if (at + len <= sz && from + len <= sz)
				memmove(p + at, p + from, len);
			break;
		default:
			if (driver_rnd() % 8 == 0)
				sz = at;
		}
	}
	return sz;
}

static uint8_t *driver_load(const char *path, size_t *ret_sz)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p = malloc(1 << 22);

	if (!f || !p) {
		perror(path);
		exit(2);
	}
	*ret_sz = fread(p, 1, 1 << 22, f);
	fclose(f);
	return p;
}

int main(int argc, char **argv)
{
	unsigned long mutations = 0;
	int first = 1;

	if (argc > 2 && !strcmp(argv[1], "-n")) {
		mutations = strtoul(argv[2], NULL, 10);
		first = 3;
	}
	for (int i = first; i < argc; i++) {
		size_t sz, cut;
		uint8_t *in = driver_load(argv[i], &sz), *bad = malloc(sz + 1);

		MUST(bad);
		LLVMFuzzerTestOneInput(in, sz);
		for (unsigned long n = 0; n < mutations; n++) {
			memcpy(bad, in, sz);
			cut = driver_mutate(bad, sz);
			LLVMFuzzerTestOneInput(bad, cut);
		}
		free(bad);
		free(in);
	}
	return 0;
}
#endif

#endif
