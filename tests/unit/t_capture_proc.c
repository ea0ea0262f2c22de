/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Texts of /proc, and /proc itself: of this process, of its threads, of processes that end. */
#include "unit/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "capture/maps.h"
#include "capture/proc.h"

TEST(stat_with_a_hostile_name)
{
	struct dl_stat st;

	CHECK(dl_parse_stat("42 (a) S 1 (b) c) R 7 42 42 0 -1 4194560 1 0 0 0 30 12 0 0 20 -5 3 0 8765 1 2 3\n", &st));
	CHECK_STR(st.comm, "a) S 1 (b) c");
	CHECK_EQ(st.state, 'R');
	CHECK_EQ(st.ppid, 7);
	CHECK_EQ(st.flags, 4194560);
	CHECK_EQ(st.cpu_ticks, 42);
	CHECK_EQ(st.nice, -5);
	CHECK_EQ(st.start_ticks, 8765);
}

TEST(stat_with_a_long_name_is_clipped)
{
	struct dl_stat st;

	CHECK(dl_parse_stat("42 (kworker/u8:1-ext4-rsv-conversion) I 2 0 0 0 -1 69238880 0 0 0 0 0 9 0 0 20 0 1 0 9 0 0\n", &st));
	CHECK_STR(st.comm, "kworker/u8:1-ex");
	CHECK(st.flags & DL_PF_KTHREAD);
}

TEST(stat_cut_off)
{
	struct dl_stat st;

	CHECK(!dl_parse_stat("", &st));
	CHECK(!dl_parse_stat("42 (a", &st));
	CHECK(!dl_parse_stat("42 (a)", &st));
	CHECK(!dl_parse_stat("42 (a) R 7 42 42 0 -1 4194560\n", &st));
	CHECK(!dl_parse_stat("42 )a( R 7 42 42 0 -1 4194560 1 0 0 0 30 12 0 0 20 -5 3 0 8765\n", &st));
}

static const char status_text[] =
	"Name:\tpython3\nUmask:\t0027\nState:\tS (sleeping)\nTgid:\t100\nNgid:\t0\nPid:\t103\nPPid:\t90\n"
	"TracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGid:\t500\t500\t500\t500\nFDSize:\t64\nGroups:\t4 27 1000 \n"
	"NStgid:\t100\t12\t1\nNSpid:\t103\t15\t4\nNSpgid:\t1\nVmLck:\t     16 kB\nVmPin:\t      8 kB\n"
	"RssAnon:\t    2048 kB\nRssFile:\t    1024 kB\nRssShmem:\t     512 kB\nVmPTE:\t     60 kB\n"
	"VmSwap:\t       4 kB\nThreads:\t7\nSigBlk:\tfffffffe7ffbfeff\nSigIgn:\t0000000001001000\n"
	"SigCgt:\t00000001000044c2\nCpus_allowed:\tf0,000000ff\nCpus_allowed_list:\t0-7,36-39\n";

TEST(status_of_a_thread_in_a_container)
{
	struct dl_status st;

	CHECK(dl_parse_status(status_text, &st));
	CHECK_EQ(st.tgid, 100);
	CHECK_EQ(st.pid, 103);
	CHECK_EQ(st.ppid, 90);
	CHECK_EQ(st.nstgid, 1);
	CHECK_EQ(st.nspid, 4);
	CHECK_EQ(st.uid, 1000);
	CHECK_EQ(st.gid, 500);
	CHECK_EQ(st.umask, 027);
	CHECK_EQ(st.locked, 16 << 10);
	CHECK_EQ(st.pinned, 8 << 10);
	CHECK_EQ(st.rss_anon, 2048 << 10);
	CHECK_EQ(st.rss_file, 1024 << 10);
	CHECK_EQ(st.rss_shmem, 512 << 10);
	CHECK_EQ(st.pgtables, 60 << 10);
	CHECK_EQ(st.swap, 4 << 10);
	CHECK_EQ(st.threads, 7);
	CHECK(st.sig_blocked == 0xfffffffe7ffbfeffULL);
	CHECK(st.sig_caught == 0x1000044c2ULL);
	CHECK_EQ(st.cpus_allowed, 12);
}

TEST(status_without_memory_and_namespaces)
{
	struct dl_status st;

	CHECK(dl_parse_status("Name:\tkthreadd\nTgid:\t2\nPid:\t2\nPPid:\t0\nThreads:\t1\nSigCgt:\t0\n", &st));
	CHECK_EQ(st.nspid, 2);
	CHECK_EQ(st.nstgid, 2);
	CHECK_EQ(st.rss_anon, 0);
	CHECK(!dl_parse_status("", &st));
	CHECK(!dl_parse_status("nonsense", &st));
}

TEST(syscall_texts)
{
	uint64_t a, b;
	int32_t nr;

	CHECK(dl_parse_syscall("202 0x7f01 0x89 0x0 0x7ffe 0x0 0x0 0x7ffd 0x7f00\n", &nr, &a, &b));
	CHECK_EQ(nr, 202);
	CHECK_EQ(a, 0x7f01);
	CHECK_EQ(b, 0x89);
	CHECK(dl_parse_syscall("running\n", &nr, &a, &b));
	CHECK_EQ(nr, -2);
	CHECK(dl_parse_syscall("-1 0x7ffd 0x7f00\n", &nr, &a, &b));
	CHECK_EQ(nr, -1);
	CHECK_EQ(a, 0);
	CHECK(!dl_parse_syscall("", &nr, &a, &b));
}

TEST(numbers_behind_keys)
{
	uint64_t nr = 5;

	CHECK(dl_text_u64("ab 1\nabc 2\n", "abc", &nr));
	CHECK_EQ(nr, 2);
	CHECK(dl_text_u64("MemTotal:       24683652 kB\n", "MemTotal", &nr));
	CHECK_EQ(nr, 24683652);
	CHECK(!dl_text_u64("abcd 1\n", "abc", &nr));
	CHECK(!dl_text_u64("abc x\n", "abc", &nr));
	CHECK(!dl_text_u64("abc", "abc", &nr));
	CHECK(!dl_text_u64("", "abc", &nr));
	CHECK_EQ(nr, 24683652);
}

/* --- live ------------------------------------------------------------------------------------- */

TEST(own_process)
{
	_cleanup_close_ int fd = dl_proc_open((uint32_t)getpid());
	struct dl_status status;
	struct dl_stat st;
	uint64_t now;

	CHECK(fd >= 0);
	CHECK_OK(dl_proc_stat(fd, 0, &st));
	CHECK_EQ(st.ppid, getppid());
	CHECK_EQ(st.state, 'R');
	now = dl_now_ns();
	CHECK(dl_start_ns(st.start_ticks) <= now);
	CHECK(now - dl_start_ns(st.start_ticks) < 600 * DL_NS_PER_S);
	CHECK_OK(dl_proc_status(fd, 0, &status));
	CHECK_EQ(status.pid, getpid());
	CHECK_EQ(status.uid, getuid());
	CHECK(status.cpus_allowed > 0);
}

static pid_t thread_tid;
static int thread_pipe[2];

static void *sleeper(void *arg)
{
	char c;

	prctl(PR_SET_NAME, "odd) (name");
	thread_tid = (pid_t)syscall(SYS_gettid);
	(void)!write(thread_pipe[1], "x", 1);
	(void)!read(*(int *)arg, &c, 1);
	return NULL;
}

static int count_tid(uint32_t tid, void *arg)
{
	(void)tid;
	++*(int *)arg;
	return 0;
}

TEST(own_thread)
{
	_cleanup_close_ int fd = dl_proc_open((uint32_t)getpid());
	int hold[2], cnt = 0;
	struct dl_stat st;
	pthread_t t;
	char c;

	CHECK_OK(pipe(thread_pipe));
	CHECK_OK(pipe(hold));
	CHECK_OK(pthread_create(&t, NULL, sleeper, &hold[0]));
	CHECK_EQ(read(thread_pipe[0], &c, 1), 1);
	CHECK_OK(dl_proc_stat(fd, (uint32_t)thread_tid, &st));
	CHECK_STR(st.comm, "odd) (name");
	CHECK_OK(dl_proc_each_tid(fd, count_tid, &cnt));
	CHECK_EQ(cnt, 2);
	/* A thread is no target; the message names its process. */
	{
		struct dl_diag d = {};
		char want[32];

		CHECK_EQ(dl_proc_check_target((uint32_t)thread_tid, &d), -EINVAL);
		snprintf(want, sizeof(want), "-p %d", getpid());
		CHECK_HAS(d.msg, want);
	}
	close(hold[1]);
	pthread_join(t, NULL);
	close(hold[0]);
	close(thread_pipe[0]);
	close(thread_pipe[1]);
}

TEST(an_ended_process_is_not_mistaken_for_another)
{
	_cleanup_close_ int fd = -1;
	struct dl_stat st;
	struct dl_diag d = {};
	const pid_t pid = fork();

	if (!pid)
		_exit(0);
	CHECK(pid > 0);
	CHECK_OK(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT));
	CHECK_EQ(dl_proc_check_target((uint32_t)pid, &d), -ESRCH);
	CHECK_HAS(d.msg, "already ended");
	fd = dl_proc_open((uint32_t)pid);
	CHECK(fd >= 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK(dl_proc_stat(fd, 0, &st) < 0);
	CHECK_EQ(dl_proc_open((uint32_t)pid), -ENOENT);
	CHECK_EQ(dl_proc_check_target((uint32_t)pid, &d), -ESRCH);
}

TEST(bad_targets)
{
	struct dl_diag d = {};

	CHECK_EQ(dl_proc_check_target((uint32_t)getpid(), &d), -EINVAL);
	CHECK_HAS(d.msg, "dlbpf itself");
	CHECK_EQ(dl_proc_check_target((uint32_t)getppid(), &d), -EINVAL);
	CHECK_HAS(d.msg, "record itself");
}

TEST(command_line_of_a_process)
{
	_cleanup_close_ int fd = -1;
	static const char want[] = "my sh -c echo; kill -STOP $$ - two words";
	char buf[64], small[8];
	uint32_t argc = 0;
	int hold[2];
	pid_t pid;
	char c;

	CHECK_OK(pipe(hold));
	pid = fork();
	if (!pid) {
		close(hold[0]);
		dup2(hold[1], 1);
		execl("/bin/sh", "my sh", "-c", "echo;\nkill -STOP $$", "-", "two words", "", (char *)NULL);
		_exit(1);
	}
	close(hold[1]);
	CHECK_EQ(read(hold[0], &c, 1), 1);
	fd = dl_proc_open((uint32_t)pid);
	CHECK_OK(dl_proc_cmdline(fd, buf, sizeof(buf), &argc));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	/* It stops itself: with no standard input a read would end it. */
	CHECK(!strncmp(buf, want, strlen(want)));
	CHECK(argc >= 5);
	close(fd);
	fd = dl_proc_open((uint32_t)getpid());
	CHECK_OK(dl_proc_cmdline(fd, small, sizeof(small), &argc));
	CHECK_EQ(strlen(small), 7);
	close(hold[0]);
}

TEST(list_has_parents)
{
	struct dl_pid_list list;
	bool found = false;

	CHECK_OK(dl_proc_list(&list));
	vec_for_each(&list, it)
		found |= it->pid == (uint32_t)getpid() && it->ppid == (uint32_t)getppid();
	free(list.v);
	CHECK(found);
}

/* --- mappings --------------------------------------------------------------------------------- */

TEST(maps_lines)
{
	char file[] = "7f5e4ab40000-7f5e4ac96000 r-xp 00026000 fe:01 339380                     /usr/lib/a b (deleted)";
	char anon[] = "7ffd0000-7ffd1000 rw-s 00000000 00:00 0 ";
	char vdso[] = "7ffd0000-7ffd1000 r-xp 00000000 00:00 0                  [vdso]";
	char bad[] = "7ffd1000-7ffd0000 r-xp 00000000 00:00 0";
	char cut[] = "7ffd0000-7ffd1000 r-x";
	struct dl_mapping m;

	CHECK(dl_maps_parse(file, &m));
	CHECK_EQ(m.start, 0x7f5e4ab40000);
	CHECK_EQ(m.end, 0x7f5e4ac96000);
	CHECK_EQ(m.off, 0x26000);
	CHECK_EQ(m.dev, 0xfe << 20 | 1);
	CHECK_EQ(m.ino, 339380);
	CHECK(m.exec && !m.write && !m.shared);
	CHECK_STR(m.path, "/usr/lib/a b");
	CHECK(dl_maps_parse(anon, &m));
	CHECK(!m.exec && m.write && m.shared);
	CHECK_STR(m.path, "");
	CHECK(dl_maps_parse(vdso, &m));
	CHECK_STR(m.path, "[vdso]");
	CHECK(!dl_maps_parse(bad, &m));
	CHECK(!dl_maps_parse(cut, &m));
}

struct kept {
	struct dl_sink sink;
	union {
		struct dl_hdr h;
		char bytes[DL_EVENT_MAX_SZ];
	} ev;
	int cnt;
};

static int keep(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct kept *k = (struct kept *)sink;

	memcpy(&k->ev, ev, ev->size);
	k->ev.bytes[ev->size < sizeof(k->ev) ? ev->size : sizeof(k->ev) - 1] = '\0';
	k->cnt++;
	return 0;
}

/* A shared file mapping longer than its file, and its file removed: all is still found. */
TEST(what_is_mapped_where_sigbus_came)
{
	_cleanup_close_ int proc = dl_proc_open((uint32_t)getpid());
	const char *path = test_path("mapped");
	struct kept k = { .sink.emit = keep };
	const struct dl_ev_sigbus_map *ev = (const void *)&k.ev;
	const int fd = open(path, O_RDWR | O_CREAT, 0600);
	char *mem;

	CHECK(fd >= 0);
	CHECK_OK(ftruncate(fd, 5000));
	mem = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mem != MAP_FAILED);
	close(fd);
	CHECK_OK(unlink(path));
	CHECK_OK(dl_maps_emit_sigbus(&k.sink, 77, (uint32_t)getpid(), 5, proc, (uint64_t)(uintptr_t)mem + 8200));
	CHECK_EQ(k.cnt, 1);
	CHECK_EQ(ev->h.kind, DL_EV_SIGBUS_MAP);
	CHECK_EQ(ev->h.tid, 5);
	CHECK_EQ(ev->vma_start, (uint64_t)(uintptr_t)mem);
	CHECK_EQ(ev->vma_end, (uint64_t)(uintptr_t)mem + 16384);
	CHECK_EQ(ev->file_off, 8200);
	CHECK(ev->file_ino != 0);
	CHECK_STR((const char *)(ev + 1), "mapped");
	CHECK(ev->fault_flags & DL_SB_FROM_PROC);
	CHECK(ev->fault_flags & DL_SB_WRITE);
	CHECK(ev->fault_flags & DL_SB_SHARED);
	CHECK(!(ev->fault_flags & DL_SB_NO_VMA));
	if (!ev->file_sz)
		SKIP("no right to open /proc/PID/map_files");
	CHECK_EQ(ev->file_sz, 5000);
	CHECK(ev->fault_flags & DL_SB_PAST_END);
	CHECK(ev->fs_total >= ev->fs_used && ev->file_magic);
	munmap(mem, 16384);
	CHECK_OK(dl_maps_emit_sigbus(&k.sink, 77, (uint32_t)getpid(), 5, proc, 0x10));
	CHECK(ev->fault_flags & DL_SB_NO_VMA);
}

TEST(sigbus_of_a_process_that_is_gone_says_nothing)
{
	struct kept k = { .sink.emit = keep };
	_cleanup_close_ int proc = -1;
	const pid_t pid = fork();

	if (!pid)
		_exit(0);
	CHECK_OK(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT));
	proc = dl_proc_open((uint32_t)pid);
	CHECK(dl_maps_emit_sigbus(&k.sink, 1, (uint32_t)pid, (uint32_t)pid, proc, 0x1000) < 0);
	waitpid(pid, NULL, 0);
	CHECK(dl_maps_emit_sigbus(&k.sink, 1, (uint32_t)pid, (uint32_t)pid, proc, 0x1000) < 0);
	CHECK_EQ(k.cnt, 0);
}

TEST(text_events)
{
	struct kept k = { .sink.emit = keep };
	struct dl_ev_mark mark = DL_EVENT_INIT(mark, DL_EV_MARK, 5, 6, 7);
	char longer[DL_EVENT_MAX_SZ + 10];

	CHECK_OK(dl_emit_text(&k.sink, &mark.h, "hello"));
	CHECK_EQ(k.ev.h.size, sizeof(mark) + 5);
	CHECK(!memcmp(k.ev.bytes + sizeof(mark), "hello", 5));
	CHECK_OK(dl_emit_text(&k.sink, &mark.h, ""));
	CHECK_EQ(k.ev.h.size, sizeof(mark));
	/* Clipped, but not within a character: the last one is cut off whole. */
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	memcpy(longer + DL_EVENT_MAX_SZ - sizeof(mark) - 1, "\xc3\xa9", 2);
	CHECK_OK(dl_emit_text(&k.sink, &mark.h, longer));
	CHECK_EQ(k.ev.h.size, DL_EVENT_MAX_SZ - 1);
}
