/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The reader of Kineto traces, fed with any bytes; what it takes must make a whole trace. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/driver.h"
#include "import/import.h"
#include "trace/trace.h"

static void write_and_read(struct dl_import *imp)
{
	const struct dl_hdr *ev;
	struct dl_diag d = { "" };
	struct dl_trace *t;
	char path[64];
	int fd = memfd_create("out", MFD_CLOEXEC), got;

	MUST(fd >= 0);
	MUST(!dl_import_write(imp, dup(fd), &d));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST(!dl_trace_open(&t, path, &d));
	while ((got = dl_trace_next(t, &ev)) == 1)
		;
	MUST(!got && !dl_trace_damage(t));
	dl_trace_close(t);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz)
{
	struct dl_import *imp = NULL;
	struct dl_diag d = { "" };
	int fd = memfd_create("fuzz", MFD_CLOEXEC), sink;
	char path[64];

	MUST(fd >= 0 && write(fd, in, sz) == (ssize_t)sz);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (sz >= 15 && !memcmp(in, "SQLite format 3", 15)) {
		close(fd);
		return 0;
	}
	if (dl_import_read(&imp, path, &d)) {
		MUST(d.msg[0] && !imp);
	} else {
		write_and_read(imp);
		dl_import_free(imp);
	}
	sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
	MUST(sink >= 0);
	dl_annotate_copy(path, "{}", sink, false, &d);
	close(fd);
	return 0;
}
