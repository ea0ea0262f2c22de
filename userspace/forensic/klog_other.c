/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Lines of the kernel log that are of deaths or their causes, each by itself. Where they come from: arch/x86/mm/fault.c,
 * arch/x86/kernel/traps.c, arch/arm64/kernel/traps.c, kernel/signal.c, mm/memory-failure.c, mm/hugetlb.c,
 * kernel/hung_task.c, kernel/cgroup/pids.c, mm/page_alloc.c, block/blk-core.c and the file systems; and of programs
 * beside the kernel: systemd, systemd-oomd, systemd-coredump, systemd-logind, earlyoom.
 */
#include "forensic/klog_int.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static void set_comm(struct dl_klog_event *ev, const char *from, size_t len)
{
	len = len < sizeof(ev->comm) ? len : sizeof(ev->comm) - 1;
	memcpy(ev->comm, from, len);
	ev->comm[len] = '\0';
}

/* "name[123]: " or "name:123 " before at: the name may hold anything but what ends it. */
static bool name_and_pid(const char *from, const char *at, struct dl_klog_event *ev)
{
	const char *p = at, *digits;

	while (p > from && strchr(": ]", p[-1]))
		p--;
	digits = p;
	while (digits > from && isdigit((unsigned char)digits[-1]))
		digits--;
	if (digits == p || digits == from || !strchr("[:/", digits[-1]))
		return false;
	ev->pid = (uint32_t)strtoul(digits, NULL, 10);
	set_comm(ev, from, (size_t)(digits - 1 - from));
	return true;
}

/* " in libfoo.so[7f12000+3000]", from 6.11 on "[off,start+size]". */
static void library(const char *msg, struct dl_klog_event *ev)
{
	const char *in = strstr(msg, " in "), *open = in ? strchr(in, '[') : NULL, *base;
	uint64_t start;
	char *end;

	if (!open || open - in - 4 >= (int)sizeof(ev->lib))
		return;
	memcpy(ev->lib, in + 4, (size_t)(open - in - 4));
	ev->lib[open - in - 4] = '\0';
	base = strchr(open, ',');
	start = strtoull(base && base < open + strcspn(open, "]") ? base + 1 : open + 1, &end, 16);
	if (*end == '+' && ev->ip >= start)
		ev->lib_off = ev->ip - start;
}

/* "python3[812]: segfault at 10 ip 00007f.. sp 00007f.. error 6 in libfoo.so[...]" */
static bool segfault(const char *msg, struct dl_klog_event *ev)
{
	const char *at = strstr(msg, ": segfault at ");
	uint64_t error;

	if (!at || !name_and_pid(msg, at, ev))
		return false;
	ev->kind = DL_KLOG_FAULT;
	ev->sig = SIGSEGV;
	ev->has_addr = dl_klog_num(at, "segfault at ", 16, &ev->addr);
	dl_klog_num(at, " ip ", 16, &ev->ip);
	if (dl_klog_num(at, " error ", 16, &error))
		ev->wrote = error & 2;
	library(at, ev);
	return true;
}

/* "traps: python3[812] trap divide error ip:.. sp:.. error:0 in libfoo.so[...]" */
static bool trap(const char *msg, struct dl_klog_event *ev)
{
	static const struct { const char *what; int sig; } traps[] = {
		{ "] trap divide error ", SIGFPE }, { "] trap invalid opcode ", SIGILL }, { "] trap int3 ", SIGTRAP },
		{ "] trap stack segment ", SIGBUS }, { "] trap alignment check ", SIGBUS },
		{ "] general protection ", SIGSEGV }, { "] trap bounds ", SIGSEGV }, { "] trap segment not present ", SIGBUS },
	};
	const char *from = strncmp(msg, "traps: ", 7) ? msg : msg + 7;

	for (size_t i = 0; i < ARRAY_SIZE(traps); i++) {
		const char *at = strstr(from, traps[i].what);

		if (!at || !name_and_pid(from, at + 1, ev))
			continue;
		ev->kind = DL_KLOG_FAULT;
		ev->sig = traps[i].sig;
		dl_klog_num(at, " ip:", 16, &ev->ip);
		library(at, ev);
		return true;
	}
	return false;
}

/* arm64: "python3[812]: unhandled level 2 translation fault (11) at 0x10, esr 0x..., in libfoo.so[...]" */
static bool unhandled(const char *msg, struct dl_klog_event *ev)
{
	const char *at = strstr(msg, ": unhandled "), *nr;

	if (!at || !name_and_pid(msg, at, ev))
		return false;
	nr = strchr(at, '(');
	ev->kind = DL_KLOG_FAULT;
	ev->sig = nr ? atoi(nr + 1) : 0;
	ev->has_addr = dl_klog_num(at, ") at 0x", 16, &ev->addr);
	library(at, ev);
	return true;
}

/* With kernel.print-fatal-signals=1: "python3: potentially unexpected fatal signal 7." */
static bool fatal_signal(const char *msg, struct dl_klog_event *ev)
{
	const char *at = strstr(msg, ": potentially unexpected fatal signal "), *name;

	if (!at)
		return false;
	ev->kind = DL_KLOG_FAULT;
	ev->sig = atoi(at + 38);
	name = memrchr(msg, '/', (size_t)(at - msg));
	name = name ? name + 1 : msg;
	set_comm(ev, name, (size_t)(at - name));
	return true;
}

/*
 * "Memory failure: 0x1f2: Killing python3:812 due to hardware memory corruption",
 * "MCE: Killing python3:812 due to hardware memory corruption fault at 7f..."
 */
static bool memory_failure(const char *msg, struct dl_klog_event *ev)
{
	const char *at = strstr(msg, "Killing "), *due = at ? strstr(at, " due to hardware memory corruption") : NULL;

	if (due) {
		ev->kind = DL_KLOG_MEMORY_FAILURE;
		ev->sig = SIGBUS;
		ev->has_addr = dl_klog_num(due, " fault at ", 16, &ev->addr);
		name_and_pid(at + 8, due, ev);
		return true;
	}
	if (strncmp(msg, "Memory failure: ", 16) && !strstr(msg, "[Hardware Error]: Machine check") &&
	    !(strstr(msg, "EDAC MC") && strstr(msg, " UE ")))
		return false;
	ev->kind = DL_KLOG_MEMORY_FAILURE;
	return true;
}

static bool hugepages(const char *msg, struct dl_klog_event *ev)
{
	uint64_t pid;

	if (!strstr(msg, " killed due to inadequate hugepage pool") || !dl_klog_num(msg, "PID ", 10, &pid))
		return false;
	ev->kind = DL_KLOG_HUGEPAGES;
	ev->sig = SIGBUS;
	ev->pid = (uint32_t)pid;
	return true;
}

static bool io_error(const char *msg, struct dl_klog_event *ev)
{
	static const char *const texts[] = {
		"I/O error, dev ", "critical medium error, dev ", "critical target error, dev ", "Buffer I/O error on dev",
		"EXT4-fs error (", "EXT4-fs (", "XFS (", "BTRFS error (", "BTRFS critical (", "SQUASHFS error: ",
		"F2FS-fs (", "Remounting filesystem read-only", "Aborting journal on device", "lost async page write",
		"device offline", "nvme nvme",
	};
	/* Where the text alone is also that of good news. */
	static const char *const bad[] = {
		"rror", "orrupt", "shut", "Shut", "lost", "imeout", "offline", "reset", "read-only",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (!strstr(msg, texts[i]))
			continue;
		for (size_t j = 0; j < ARRAY_SIZE(bad); j++)
			if (strstr(msg, bad[j])) {
				ev->kind = DL_KLOG_IO_ERROR;
				return true;
			}
	}
	return false;
}

static bool fs_gone(const char *msg, struct dl_klog_event *ev)
{
	if (!(strncmp(msg, "nfs: server ", 12) == 0 && (strstr(msg, "not responding") || strstr(msg, "timed out"))) &&
	    !(strncmp(msg, "CIFS", 4) == 0 && strstr(msg, "has not responded")) &&
	    !(strncmp(msg, "ceph: ", 6) == 0 && (strstr(msg, "hung") || strstr(msg, "session lost"))) &&
	    !(strncmp(msg, "libceph: ", 9) == 0 && strstr(msg, "down")) &&
	    !(strncmp(msg, "Lustre", 6) == 0 && (strstr(msg, "was lost") || strstr(msg, "timed out"))))
		return false;
	ev->kind = DL_KLOG_FS_GONE;
	return true;
}

/*
 * "INFO: task python3:812 blocked for more than 120 seconds.",
 * "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [python3:812]"
 */
static bool hung(const char *msg, struct dl_klog_event *ev)
{
	const char *task = strstr(msg, "INFO: task "), *blocked = task ? strstr(task, " blocked for more than ") : NULL;
	const char *stuck = strstr(msg, "soft lockup - CPU#"), *open = stuck ? strchr(stuck, '[') : NULL;

	if (blocked && name_and_pid(task + 11, blocked, ev)) {
		ev->kind = DL_KLOG_HUNG;
		return true;
	}
	if (!open || !strchr(open, ']') || !name_and_pid(open + 1, strchr(open, ']'), ev))
		return false;
	ev->kind = DL_KLOG_HUNG;
	return true;
}

static bool refused(const char *msg, struct dl_klog_event *ev)
{
	const char *at = strstr(msg, ": page allocation failure: ");

	if (!strncmp(msg, "cgroup: fork rejected by pids controller", 40)) {
		ev->kind = DL_KLOG_FORK_REJECTED;
		return true;
	}
	if (!at)
		at = strstr(msg, ": vmalloc");
	if (!at || (strncmp(at, ": page", 6) && !strstr(at, "failure") && !strstr(at, "error")))
		return false;
	ev->kind = DL_KLOG_ALLOC_FAILED;
	set_comm(ev, msg, (size_t)(at - msg));
	return true;
}

/* "NVRM: Xid (PCI:0000:01:00): 79, pid=812, name=python3, GPU has fallen off the bus." */
static bool gpu(const char *msg, struct dl_klog_event *ev)
{
	uint64_t pid;

	if (!strstr(msg, "NVRM: Xid "))
		return false;
	ev->kind = DL_KLOG_GPU;
	if (dl_klog_num(msg, "pid=", 10, &pid))
		ev->pid = (uint32_t)pid;
	dl_klog_word(msg, "name=", ev->comm, sizeof(ev->comm));
	return true;
}

/* --- programs beside the kernel ----------------------------------------------------------------- */

static bool daemon_kill(const char *msg, const struct dl_klog_prefix *p, struct dl_klog_event *ev)
{
	const char *name;
	uint64_t pid;

	if (!strcmp(p->ident, "systemd-oomd") && !strncmp(msg, "Killed ", 7)) {
		ev->kind = DL_KLOG_DAEMON_KILL;
		ev->sig = SIGKILL;
		return true;
	}
	if (strcmp(p->ident, "earlyoom") ||
	    (strncmp(msg, "sending SIGTERM to ", 19) && strncmp(msg, "sending SIGKILL to ", 19)))
		return false;
	ev->kind = DL_KLOG_DAEMON_KILL;
	ev->sig = msg[11] == 'T' ? SIGTERM : SIGKILL;
	if (dl_klog_num(msg, "process ", 10, &pid))
		ev->pid = (uint32_t)pid;
	name = strchr(msg, '"');
	if (name)
		set_comm(ev, name + 1, strcspn(name + 1, "\""));
	return true;
}

/*
 * "Process 812 (python3) of user 1000 dumped core.",
 * from 255 on also "terminated abnormally with signal 11/SEGV, processing..."
 */
static bool dumped(const char *msg, const struct dl_klog_prefix *p, struct dl_klog_event *ev)
{
	const char *open = strchr(msg, '('), *close = open ? strchr(open, ')') : NULL;
	uint64_t nr;

	if (strcmp(p->ident, "systemd-coredump") || strncmp(msg, "Process ", 8) || !close ||
	    !dl_klog_num(msg, "Process ", 10, &nr))
		return false;
	ev->kind = DL_KLOG_DUMPED;
	ev->pid = (uint32_t)nr;
	set_comm(ev, open + 1, (size_t)(close - open - 1));
	if (dl_klog_num(msg, "with signal ", 10, &nr) && nr < 65)
		ev->sig = (int)nr;
	return true;
}

static bool logout(const char *msg, const struct dl_klog_prefix *p, struct dl_klog_event *ev)
{
	if (strcmp(p->ident, "systemd-logind") || strncmp(msg, "Removed session ", 16))
		return false;
	ev->kind = DL_KLOG_LOGOUT;
	return true;
}

int dl_klog_other_line(struct dl_klog *k, const char *msg, const struct dl_klog_prefix *p)
{
	static bool (*const of_kernel[])(const char *, struct dl_klog_event *) = {
		segfault, trap, unhandled, fatal_signal, memory_failure, hugepages, hung, refused, gpu, fs_gone, io_error,
	};
	static bool (*const of_programs[])(const char *, const struct dl_klog_prefix *, struct dl_klog_event *) = {
		daemon_kill, dumped, logout,
	};
	struct dl_klog_event ev = { .boot_ns = p->boot_ns, .wall_ns = p->wall_ns };
	bool found = false;
	int err;

	for (size_t i = 0; p->kernel && !found && i < ARRAY_SIZE(of_kernel); i++)
		found = of_kernel[i](msg, &ev);
	for (size_t i = 0; !p->kernel && !found && i < ARRAY_SIZE(of_programs); i++)
		found = of_programs[i](msg, p, &ev);
	if (!found)
		return 0;
	ev.text = strdup(msg);
	err = ev.text ? dl_klog_keep(k, &ev) : -ENOMEM;
	if (err)
		dl_klog_event_fini(&ev);
	return err;
}
