/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The reader of trace files, fed with any bytes. The first byte of the input says how: bit 0 makes
 * the checksums right first, bit 1 reads windows too. The rest is the file.
 *
 *	tests/fuzz/test_trace.py --libfuzzer	builds it with clang's libFuzzer (libclang-rt-*-dev)
 *	build/tests/fuzz/libfuzzer/fuzz_trace -max_len=20000 -rss_limit_mb=4096 NEW tests/fuzz/corpus/trace
 */
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/driver.h"
#include "fuzz/reseal.h"
#include "trace/schema.h"
#include "trace/trace.h"

static uint64_t read_all(struct dl_trace *t, uint64_t from, uint64_t to)
{
	const struct dl_hdr *ev;
	uint64_t last = from, cnt = 0;
	int err;

	MUST(!dl_trace_window(t, from, to));
	for (; (err = dl_trace_next(t, &ev)) == 1; cnt++) {
		size_t len;

		MUST(dl_event_fits(dl_event_desc(ev->kind), ev));
		MUST(ev->ts >= last && ev->ts <= to);
		last = ev->ts;
		dl_event_tail(ev, &len);
		MUST(len <= DL_EVENT_MAX_SZ);
	}
	MUST(!err);
	return cnt;
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t sz)
{
	const struct dl_trace_info *info;
	struct dl_trace *t = NULL;
	struct dl_diag d = { "" };
	uint8_t how, *file;
	char path[64];
	int fd;

	if (sz < 1)
		return 0;
	how = *in++;
	file = malloc(sz--);
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	MUST(file && fd >= 0);
	memcpy(file, in, sz);
	if (how & 1)
		reseal(file, sz);
	MUST(write(fd, file, sz) == (ssize_t)sz);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (dl_trace_open(&t, path, &d)) {
		MUST(!t && d.msg[0]);
	} else {
		info = dl_trace_info(t);
		MUST(info->damaged_bytes <= info->file_bytes && info->meta.host && info->meta.boot_id);
		MUST(read_all(t, 0, UINT64_MAX) <= info->events);
		MUST(info->damaged_frames <= info->frames);
		if (how & 2 && info->first_ts < info->last_ts) {
			uint64_t mid = info->first_ts + (info->last_ts - info->first_ts) / 2;

			read_all(t, mid, mid + 1000);
		}
		dl_trace_close(t);
	}
	close(fd);
	free(file);
	return 0;
}
