/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The injection alone, for tests: injector PID LIBRARY. One line says how it went. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/inject.h"

int main(int argc, char **argv)
{
	struct dl_inject_result res = {};
	struct dl_diag d = {};
	int err;

	if (argc != 3) {
		fprintf(stderr, "usage: injector PID LIBRARY\n");
		return 2;
	}
	err = dl_inject((uint32_t)atoi(argv[1]), argv[2], &res, &d);
	if (err)
		printf("error %d %s\n", -err, d.msg);
	else
		printf("ok tid %u tries %u away_us %.1f load_us %.1f\n", res.tid, res.tries, (double)res.away_ns / 1e3,
		       (double)res.load_ns / 1e3);
	return err != 0;
}
