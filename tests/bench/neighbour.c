/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A process that has nothing to do with the training and shows by its own speed what a recorder
 * costs those that it does not record.
 *
 *	neighbour switches FILE CPU	two processes on one CPU hand a byte to and fro: each hand-over
 *					is a wake and a context switch
 *	neighbour calls FILE CPU	one process makes system calls that do nothing (getppid)
 *
 * FILE always holds the number of hand-overs or calls so far, 8 bytes in host order. Runs until it is
 * ended by a signal; the second process goes with the first.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLS_A_COUNT 64	/* the counter's cache line is written once for so many calls */

static void die(const char *what)
{
	fprintf(stderr, "neighbour: %s: %s\n", what, strerror(errno));
	exit(1);
}

static volatile uint64_t *map_counter(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	void *p;

	if (fd < 0 || ftruncate(fd, sizeof(uint64_t)))
		die(path);
	p = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(path);
	close(fd);
	return p;
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

/* Gives every byte back until the other side has closed its end. */
static void echo(int from, int to)
{
	char c;

	while (read(from, &c, 1) == 1 && write(to, &c, 1) == 1)
		;
	_exit(0);
}

static void switches(volatile uint64_t *counter)
{
	int there[2], back[2];
	pid_t self = getpid();
	char c = 0;

	if (pipe(there) || pipe(back))
		die("pipe");
	switch (fork()) {
	case -1:
		die("fork");
		break;
	case 0:
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != self)
			_exit(1);
		close(there[1]);
		close(back[0]);
		echo(there[0], back[1]);
	}
	close(there[0]);
	close(back[1]);
	while (write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1)
		*counter += 2;
	die("the other side has gone");
}

static void calls(volatile uint64_t *counter)
{
	for (;;) {
		for (int i = 0; i < CALLS_A_COUNT; i++)
			syscall(SYS_getppid);
		*counter += CALLS_A_COUNT;
	}
}

int main(int argc, char **argv)
{
	volatile uint64_t *counter;

	if (argc != 4 || (strcmp(argv[1], "switches") && strcmp(argv[1], "calls"))) {
		fprintf(stderr, "usage: neighbour switches|calls FILE CPU\n");
		return 2;
	}
	counter = map_counter(argv[2]);
	stay_on(atoi(argv[3]));
	if (!strcmp(argv[1], "switches"))
		switches(counter);
	else
		calls(counter);
	return 0;
}
