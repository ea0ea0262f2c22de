/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Can dlbpf record here? It is tried: everything is loaded and attached, with no target, and let go. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "capture/features.h"
#include "capture/gpu.h"
#include "capture/kernel.h"
#include "check/gather.h"

enum { LOAD_TIMEOUT_MS = 60000 };

struct absent {
	struct dl_sink sink;
	struct dl_ck_self *self;
};

/* What the kernel side says that it cannot give. */
static int take_absent(struct dl_sink *sink, const struct dl_hdr *h)
{
	struct dl_ck_self *self = ((struct absent *)sink)->self;
	const size_t len = h->size > sizeof(struct dl_ev_absent) ? h->size - sizeof(struct dl_ev_absent) : 0;
	const size_t have = strlen(self->missing);

	if (h->kind != DL_EV_ABSENT || !len)
		return 0;
	self->missing_cnt++;
	snprintf(self->missing + have, sizeof(self->missing) - have, "%s%.*s", have ? "; " : "", (int)len,
		 (const char *)h + sizeof(struct dl_ev_absent));
	return 0;
}

static int try_kernel(void *arg, void *buf)
{
	struct dl_ck_self *self = buf;
	struct absent a = { .sink.emit = take_absent, .self = self };
	const struct dl_kernel_opts opts = { .sample_hz = 199 };
	struct dl_kernel *k;
	struct dl_diag d = {};

	(void)arg;
	if (dl_kernel_open(&k, &opts, &a.sink, &d)) {
		ck_copy(self->trace_why, sizeof(self->trace_why), d.msg);
		return 0;
	}
	self->trace_ok = true;
	dl_kernel_close(k);
	return 0;
}

/* Without rights, all that can be said is why nothing can be. */
static void ask_kernel(struct dl_ck_self *self)
{
	struct dl_features feat = {};
	struct dl_diag d = {};
	int err = dl_features_probe(&feat, &d);

	if (err) {
		self->trace_known = err != -EPERM || self->root;
		ck_copy(self->trace_why, sizeof(self->trace_why), d.msg);
		return;
	}
	dl_features_fini(&feat);
	self->trace_known = true;
	err = ck_in_child(try_kernel, NULL, self, sizeof(*self), LOAD_TIMEOUT_MS);
	if (err) {
		self->trace_ok = false;
		snprintf(self->trace_why, sizeof(self->trace_why), "loading the BPF programs failed: %s", strerror(-err));
	}
}

void ck_gather_self(struct dl_ck_facts *f, uint32_t pid)
{
	struct dl_ck_self *self = &f->self;
	char inside[DL_CK_PATH + 64];

	self->root = !geteuid();
	ask_kernel(self);
	self->collector = dl_gpu_library(self->collector_path, sizeof(self->collector_path));
	self->collector_visible = self->collector;
	if (self->collector && pid) {
		snprintf(inside, sizeof(inside), "/proc/%u/root%s", pid, self->collector_path);
		self->collector_visible = !access(inside, R_OK);
	}
}
