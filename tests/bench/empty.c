/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Attaches the empty programs named on the command line and keeps them until its input ends.
 *
 *   empty OBJECT NAME...      prints "ready N" with the number attached
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>

static int quiet(enum libbpf_print_level level, const char *fmt, va_list args)
{
	(void)level;
	(void)fmt;
	(void)args;
	return 0;
}

/* Only what is asked for is loaded; a name that the kernel does not have is left out. */
static int attach_all(struct bpf_object *obj)
{
	struct bpf_program *prog;
	int cnt = 0;

	bpf_object__for_each_program(prog, obj)
		if (bpf_program__autoload(prog) && bpf_program__attach(prog))
			cnt++;
	return cnt;
}

int main(int argc, char **argv)
{
	struct bpf_object *obj;
	char byte;

	if (argc < 3) {
		fprintf(stderr, "usage: empty OBJECT NAME...\n");
		return 2;
	}
	libbpf_set_print(quiet);
	obj = bpf_object__open_file(argv[1], NULL);
	if (!obj) {
		fprintf(stderr, "empty: cannot open %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		struct bpf_program *prog = bpf_object__find_program_by_name(obj, argv[i]);

		if (prog)
			bpf_program__set_autoload(prog, true);
	}
	if (bpf_object__load(obj)) {
		fprintf(stderr, "empty: cannot load: %s\n", strerror(errno));
		bpf_object__close(obj);
		return 1;
	}
	printf("ready %d\n", attach_all(obj));
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	bpf_object__close(obj);
	return 0;
}
