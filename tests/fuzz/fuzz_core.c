/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The reader of core files, fed with any bytes; what it takes must make a whole post-mortem. */
#include <sys/mman.h>
#include <unistd.h>

#include "diagnose/postmortem.h"
#include "forensic/core.h"
#include "fuzz/driver.h"

static void read_stacks(const struct dl_core *core)
{
	char buf[64];

	vec_for_each(&core->threads, t) {
		vec_for_each(&t->frames, f)
			MUST(dl_core_frame_text(f, buf, sizeof(buf))[0]);
		dl_core_map_at(core, t->sp);
	}
	vec_for_each(&core->maps, m)
		MUST(m->path && m->start < m->end);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct dl_postmortem *pm;
	struct dl_core *core = NULL;
	struct dl_diag d = { "" };
	char path[64];

	MUST(fd >= 0 && write(fd, in, sz) == (ssize_t)sz);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (dl_core_read(&core, path, &d)) {
		MUST(d.msg[0] && !core);
	} else {
		MUST(core->threads.cnt);
		read_stacks(core);
		pm = dl_pm_new();
		MUST(pm && !dl_pm_add_core(pm, core));
		MUST(pm->death == DL_DEATH_UNEXPLAINED || pm->text);
		dl_postmortem_free(pm);
	}
	dl_core_free(core);
	close(fd);
	return 0;
}
