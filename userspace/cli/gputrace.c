/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#include "cli/gputrace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "import/import.h"
#include "import/spill.h"
#include "trace/trace.h"

static void trace_close_p(struct dl_trace **t)
{
	dl_trace_close(*t);
}

static int fill(struct dl_import *imp, const char *run_path, int fd, struct dl_diag *d)
{
	_cleanup_(trace_close_p) struct dl_trace *run = NULL;
	int err;

	if (!run_path)
		return dl_import_write(imp, fd, d);
	err = dl_trace_open(&run, run_path, d);
	if (err) {
		close(fd);
		return err;
	}
	return dl_import_merge(imp, run, run_path, fd, d);
}

int dl_gputrace_open(const char *path, const char *run_path, struct dl_trace **ret, struct dl_import **ret_imp,
		     struct dl_diag *d)
{
	_cleanup_close_ int fd = -1;
	struct dl_import *imp;
	char link[32];
	int err, own;

	err = dl_import_read(&imp, path, d);
	if (err)
		return err;
	err = dl_temp_file(&fd, d);
	if (!err) {
		own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		err = own < 0 ? dl_fail_errno(d, -errno, "cannot duplicate a descriptor") : fill(imp, run_path, own, d);
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (!err)
		err = dl_trace_open(ret, link, d);
	if (!err && ret_imp)
		*ret_imp = imp;
	else
		dl_import_free(imp);
	return err;
}
