/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* For the tests of the flight recorder: events of a small job, made by hand. */
#ifndef DLBPF_TESTS_KEEP_UTIL_H
#define DLBPF_TESTS_KEEP_UTIL_H

#include "capture/keep_state.h"
#include "capture/proc.h"
#include "capture/sink.h"
#include "capture/tree.h"
#include "unit/trace_util.h"

#define S DL_NS_PER_S
#define MS 1000000ULL

union any_event {
	struct dl_hdr h;
	char bytes[DL_EVENT_MAX_SZ];
};

/* With a text behind it. */
__attribute__((unused))
static const struct dl_hdr *with_text(const struct dl_hdr *ev, const char *text)
{
	static union any_event buf;
	const size_t len = strlen(text);

	memcpy(&buf, ev, ev->size);
	memcpy(buf.bytes + ev->size, text, len);
	buf.h.size = (uint16_t)(ev->size + len);
	return &buf.h;
}

__attribute__((unused))
static struct dl_ev_task task_ev(uint64_t ts, uint32_t pid, uint32_t tid, uint32_t ppid, const char *name)
{
	struct dl_ev_task ev = DL_EVENT_INIT(task, DL_EV_TASK, ts, pid, tid);

	ev.ppid = ppid;
	ev.nspid = pid % 100;
	ev.nstid = tid % 100;
	ev.state = 'S';
	ev.syscall = 7;
	snprintf(ev.comm.s, sizeof(ev.comm.s), "%s", name);
	return ev;
}

__attribute__((unused))
static struct dl_ev_fork fork_ev(uint64_t ts, uint32_t pid, uint32_t child)
{
	struct dl_ev_fork ev = DL_EVENT_INIT(fork, DL_EV_FORK, ts, pid, pid);

	ev.child_pid = ev.child_tid = child;
	ev.child_nspid = ev.child_nstid = child % 100;
	strcpy(ev.comm.s, "python3");
	return ev;
}

__attribute__((unused))
static struct dl_ev_exit exit_ev(uint64_t ts, uint32_t pid, int32_t code)
{
	struct dl_ev_exit ev = DL_EVENT_INIT(exit, DL_EV_EXIT, ts, pid, pid);

	ev.code = code;
	ev.flags = DL_EX_LAST;
	return ev;
}

/* Out of tid into the idle task. state 0: it wants to go on. */
__attribute__((unused))
static struct dl_ev_switch out_ev(uint64_t ts, uint32_t pid, uint32_t tid, uint32_t state, uint64_t exec_ns)
{
	struct dl_ev_switch ev = DL_EVENT_INIT(switch, DL_EV_SWITCH, ts, pid, tid);

	ev.h.cpu = 3;
	ev.prev_state = state;
	ev.exec_ns = exec_ns;
	ev.syscall = 202;
	ev.arg0 = 0x7f0000001000;
	ev.file_ino = tid;
	ev.switches = (uint32_t)(ts / MS);
	return ev;
}

__attribute__((unused))
static struct dl_ev_switch in_ev(uint64_t ts, uint32_t pid, uint32_t tid)
{
	struct dl_ev_switch ev = DL_EVENT_INIT(switch, DL_EV_SWITCH, ts, 0, 0);

	ev.h.cpu = 3;
	ev.next_pid = pid;
	ev.next_tid = tid;
	return ev;
}

#endif
