/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Cores that are made here, byte by byte: of another machine, of deaths that cannot be had at will, hostile ones. */
#include "unit/test.h"

#include <elf.h>
#include <limits.h>
#include <sys/auxv.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "diagnose/postmortem.h"
#include "forensic/core.h"

#define STACK UINT64_C(0x7ffd00000000)
#define CODE UINT64_C(0x400000)
#define DATA UINT64_C(0x7f0000000000)
#define SP (STACK + 256)
#define PID 77

struct made {
	uint16_t machine;
	int32_t sig, code;	/* of the core */
	uint64_t addr;
	uint32_t sender;
	bool no_siginfo;
	int32_t frame_sig, frame_code;	/* of a signal's frame on the stack; 0 none */
	uint64_t frame_addr;
	uint64_t frame_error;
	const char *data_path;	/* mapped at DATA, two pages from offset 4096 on */
	const char *code_path;
};

static void add_note(struct dl_str *s, uint32_t type, const void *desc, uint32_t sz)
{
	const uint32_t head[3] = { 5, sz, type };
	static const char zeros[4];

	dl_str_addn(s, (const char *)head, sizeof(head));
	dl_str_addn(s, "CORE\0\0\0\0", 8);
	dl_str_addn(s, desc, sz);
	dl_str_addn(s, zeros, -(size_t)sz & 3);
}

static void put(uint8_t *p, size_t at, uint64_t v, size_t sz)
{
	memcpy(p + at, &v, sz);
}

static void add_thread(struct dl_str *s, const struct made *m, uint32_t tid, uint64_t sp)
{
	uint8_t p[112 + 34 * 8 + 8] = {};
	const bool x86 = m->machine == EM_X86_64;

	put(p, 0, (uint32_t)m->sig, 4);
	put(p, 12, (uint32_t)m->sig, 2);
	put(p, 32, tid, 4);
	put(p, 112 + 8 * (x86 ? 16 : 32), CODE + 0x10, 8);
	put(p, 112 + 8 * (x86 ? 19 : 31), sp, 8);
	if (x86)
		put(p, 112 + 8 * 15, 202, 8);	/* in futex */
	add_note(s, NT_PRSTATUS, p, x86 ? 336 : sizeof(p));
}

static void put_siginfo(uint8_t *p, int32_t sig, int32_t code, uint64_t addr, uint32_t sender)
{
	put(p, 0, (uint32_t)sig, 4);
	put(p, 8, (uint32_t)code, 4);
	put(p, 16, code > 0 ? addr : sender, 8);
}

static void add_files(struct dl_str *s, const struct made *m)
{
	const uint64_t table[] = { 2, 4096, CODE, CODE + 8192, 0, DATA, DATA + 8192, 1 };
	struct dl_str desc = {};

	dl_str_addn(&desc, (const char *)table, sizeof(table));
	dl_str_addn(&desc, m->code_path ? m->code_path : "/nonexistent/program", strlen(m->code_path ? m->code_path :
		    "/nonexistent/program") + 1);
	dl_str_addn(&desc, m->data_path ? m->data_path : "/nonexistent/data", strlen(m->data_path ? m->data_path :
		    "/nonexistent/data") + 1);
	add_note(s, NT_FILE, desc.s, (uint32_t)desc.len);
	dl_str_fini(&desc);
}

static void add_notes(struct dl_str *s, const struct made *m)
{
	const uint64_t auxv[] = { AT_PAGESZ, 4096, AT_EXECFN, STACK + 4000, AT_NULL, 0 };
	uint8_t info[128] = {}, ps[136] = {};

	add_thread(s, m, PID, SP);
	put(ps, 16, 1000, 4);
	put(ps, 24, PID, 4);
	put(ps, 28, 7, 4);
	memcpy(ps + 40, "pt_data_worker", 14);
	memcpy(ps + 56, "python train.py  ", 17);
	add_note(s, NT_PRPSINFO, ps, sizeof(ps));
	put_siginfo(info, m->sig, m->code, m->addr, m->sender);
	if (!m->no_siginfo)
		add_note(s, NT_SIGINFO, info, sizeof(info));
	add_note(s, NT_AUXV, auxv, sizeof(auxv));
	add_files(s, m);
	add_thread(s, m, PID + 1, SP + 2048);
}

static void put_frame(uint8_t *stack, const struct made *m)
{
	uint8_t *f = stack + 256 + 64;

	if (m->machine == EM_X86_64) {
		put(f, 40 + 8 * 15, SP + 1024, 8);
		put(f, 40 + 8 * 16, CODE + 0x20, 8);
		put(f, 40 + 8 * 18, 0x33, 8);
		put(f, 40 + 8 * 19, m->frame_error, 8);
		put(f, 40 + 8 * 20, 14, 8);
		put_siginfo(f + 304, m->frame_sig, m->frame_code, m->frame_addr, 0);
	} else {
		put_siginfo(f, m->frame_sig, m->frame_code, m->frame_addr, 0);
		put(f, 128 + 184 + 8 * 31, SP + 1024, 8);
		put(f, 128 + 184 + 8 * 32, CODE + 0x20, 8);
	}
}

static void add_core(struct dl_str *s, const struct made *m)
{
	struct dl_str notes = {};
	uint8_t stack[4096] = {};
	Elf64_Ehdr eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 }, .e_type = ET_CORE,
			  .e_machine = m->machine, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 4, .e_phoff = sizeof(eh) };
	Elf64_Phdr ph[4] = {
		{ .p_type = PT_NOTE },
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = CODE, .p_memsz = 8192 },
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_W, .p_vaddr = DATA, .p_memsz = 8192 },
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_W, .p_vaddr = STACK, .p_memsz = 4096, .p_filesz = 4096 },
	};

	memcpy(stack + 4000, "/usr/bin/python3", 17);
	if (m->frame_sig)
		put_frame(stack, m);
	add_notes(&notes, m);
	ph[0].p_offset = sizeof(eh) + sizeof(ph);
	ph[0].p_filesz = notes.len;
	ph[3].p_offset = ph[0].p_offset + notes.len;
	dl_str_addn(s, (const char *)&eh, sizeof(eh));
	dl_str_addn(s, (const char *)ph, sizeof(ph));
	dl_str_addn(s, notes.s, notes.len);
	dl_str_addn(s, (const char *)stack, sizeof(stack));
	dl_str_fini(&notes);
}

static struct dl_core *core;
static struct dl_postmortem *pm;

static void read_bytes(const char *p, size_t sz)
{
	const char *path = test_path("made");
	FILE *f = fopen(path, "we");
	struct dl_diag d = {};
	int err;

	CHECK(f && fwrite(p, 1, sz, f) == sz);
	fclose(f);
	core = NULL;
	err = dl_core_read(&core, path, &d);
	CHECK_MSG(!err, "%d: %s", err, d.msg);
}

static void examine(const struct made *m)
{
	struct dl_str s = {};

	add_core(&s, m);
	read_bytes(s.s, s.len);
	dl_str_fini(&s);
	pm = dl_pm_new();
	CHECK(pm);
	CHECK_OK(dl_pm_add_core(pm, core));
}

static void done(void)
{
	dl_postmortem_free(pm);
	dl_core_free(core);
}

static bool has_alternative(enum dl_death death)
{
	vec_for_each(&pm->alternatives, a)
		if (a->death == death)
			return true;
	return false;
}

/* --- the first signal, by its looks ------------------------------------------------------------ */

static void raised_again(uint16_t machine)
{
	examine(&(struct made){ .machine = machine, .sig = SIGBUS, .code = SI_TKILL, .sender = PID, .frame_sig = SIGBUS,
				.frame_code = BUS_ADRERR, .frame_addr = DATA + 4096 + 8, .frame_error = 6,
				.data_path = "/dev/shm/torch_77_1_0 (deleted)" });
	CHECK_EQ(core->machine, machine);
	CHECK_EQ(core->pid, PID);
	CHECK_EQ(core->ppid, 7);
	CHECK_EQ(core->uid, 1000);
	CHECK_STR(core->comm, "pt_data_worker");
	CHECK_STR(core->cmdline, "python train.py");
	CHECK_STR(core->program, "/usr/bin/python3");
	CHECK_EQ(core->thread_cnt, 2);
	CHECK_EQ(core->threads.v[1].tid, PID + 1);
	CHECK_EQ(core->last.code, SI_TKILL);
	CHECK_EQ(core->first.sig, SIGBUS);
	CHECK_EQ(core->first.code, BUS_ADRERR);
	CHECK_EQ(core->first.addr, DATA + 4096 + 8);
	CHECK_EQ(core->first.has_access, machine == EM_X86_64);
	CHECK_EQ(core->threads.v[0].frames.v[0].pc, CODE + 0x20);
	CHECK_EQ(core->missing.cnt, 1);
	CHECK_EQ(pm->death, DL_DEATH_SHM_FULL);
	CHECK_EQ(pm->confidence, DL_PM_LIKELY);
	CHECK_HAS(pm->text, machine == EM_X86_64 ? "wrote to shared memory" : "touched shared memory");
	CHECK(has_alternative(DL_DEATH_MAPPED_FILE_TRUNCATED));
	CHECK_HAS(pm->threads.v[0].stack.v[0], "(program+0x20)");
	done();
}

TEST(raised_again_on_x86_64)
{
	raised_again(EM_X86_64);
}

TEST(raised_again_on_arm64)
{
	raised_again(EM_AARCH64);
}

/* Without the frame nothing is concluded, and what it may have been is said. */
TEST(raised_without_a_frame)
{
	examine(&(struct made){ .machine = EM_X86_64, .sig = SIGBUS, .code = SI_TKILL, .sender = PID });
	CHECK_EQ(core->first.sig, 0);
	CHECK_EQ(pm->death, DL_DEATH_UNEXPLAINED);
	CHECK_EQ(pm->confidence, DL_PM_POSSIBLE);
	CHECK(has_alternative(DL_DEATH_SHM_FULL));
	done();
}

/* What looks like a frame of another signal is an old one. */
TEST(frame_of_another_signal)
{
	examine(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .code = SI_TKILL, .sender = PID, .frame_sig = SIGBUS,
				.frame_code = BUS_ADRERR, .frame_addr = DATA, .frame_error = 6 });
	CHECK_EQ(core->first.sig, 0);
	CHECK(has_alternative(DL_DEATH_SEGFAULT));
	done();
}

/* --- verdicts ---------------------------------------------------------------------------------- */

static void judged(const struct made *m, enum dl_death death, enum dl_pm_confidence confidence, const char *text)
{
	examine(m);
	CHECK_EQ(pm->death, death);
	CHECK_EQ(pm->confidence, confidence);
	CHECK_HAS(pm->text, text);
	CHECK_EQ(pm->sig, m->sig);
	CHECK(pm->facts.cnt && pm->facts.v[0].decides && pm->facts.v[0].source == DL_PM_CORE);
	done();
}

TEST(verdicts)
{
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGBUS, .code = BUS_MCEERR_AR, .addr = DATA },
	       DL_DEATH_MEMORY_FAILURE, DL_PM_CERTAIN, "broken");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGBUS, .code = BUS_ADRERR, .addr = DATA,
			       .data_path = "/anon_hugepage (deleted)" }, DL_DEATH_HUGEPAGES_EXHAUSTED, DL_PM_LIKELY, "huge page");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGBUS, .code = BUS_ADRERR, .addr = 0x123000 },
	       DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, "no mapped file");
	judged(&(struct made){ .machine = EM_AARCH64, .sig = SIGBUS, .code = BUS_ADRALN, .addr = DATA + 1 },
	       DL_DEATH_SEGFAULT, DL_PM_CERTAIN, "alignment");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .code = SEGV_ACCERR, .addr = CODE + 1 },
	       DL_DEATH_SEGFAULT, DL_PM_CERTAIN, "must not access");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .code = SI_KERNEL },
	       DL_DEATH_SEGFAULT, DL_PM_CERTAIN, "as an address that is none");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGILL, .code = ILL_ILLOPN, .addr = CODE + 0x10 },
	       DL_DEATH_ILLEGAL_INSTRUCTION, DL_PM_CERTAIN, "does not have");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGABRT, .code = SI_TKILL, .sender = PID },
	       DL_DEATH_ABORT, DL_PM_CERTAIN, "gave itself up");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGABRT, .code = SI_USER, .sender = 4711 },
	       DL_DEATH_KILLED_BY, DL_PM_CERTAIN, "process 4711");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGABRT, .code = SI_USER, .sender = 0 },
	       DL_DEATH_KILLED_BY, DL_PM_LIKELY, "outside its container");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGQUIT, .code = SI_KERNEL },
	       DL_DEATH_KILLED_BY, DL_PM_CERTAIN, "terminal");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGXCPU, .code = SI_KERNEL },
	       DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, "CPU time");
	judged(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .no_siginfo = true },
	       DL_DEATH_UNEXPLAINED, DL_PM_POSSIBLE, "does not say");
}

TEST(taken_of_a_living_process)
{
	examine(&(struct made){ .machine = EM_X86_64, .no_siginfo = true });
	CHECK_EQ(core->last.sig, 0);
	CHECK_EQ(pm->death, DL_DEATH_UNEXPLAINED);
	CHECK_EQ(pm->confidence, DL_PM_UNKNOWN);
	CHECK(!pm->text);
	CHECK_HAS(pm->notes.v[0], "alive");
	CHECK_EQ(pm->threads.cnt, 2);
	CHECK(!pm->threads.v[0].died);
	CHECK_HAS(pm->threads.v[1].state, "futex");
	done();
}

/* A surer verdict stays, and is given no alternatives; facts and stacks are added all the same. */
TEST(surer_verdict_stays)
{
	const struct made m = { .machine = EM_X86_64, .sig = SIGBUS, .code = BUS_ADRERR, .addr = DATA,
				.data_path = "/dev/shm/torch_1" };

	examine(&m);
	dl_postmortem_free(pm);
	pm = dl_pm_new();
	pm->death = DL_DEATH_MAPPED_FILE_TRUNCATED;
	pm->confidence = DL_PM_CERTAIN;
	CHECK_OK(dl_pm_set(&pm->text, "seen in a trace"));
	CHECK_OK(dl_pm_add_core(pm, core));
	CHECK_EQ(pm->death, DL_DEATH_MAPPED_FILE_TRUNCATED);
	CHECK_STR(pm->text, "seen in a trace");
	CHECK_EQ(pm->alternatives.cnt, 0);
	CHECK(pm->facts.cnt > 0);
	CHECK_EQ(pm->threads.cnt, 2);
	/* Once more: its threads are there already. */
	CHECK_OK(dl_pm_add_core(pm, core));
	CHECK_EQ(pm->threads.cnt, 2);
	CHECK_EQ(pm->threads.v[0].stack.cnt, core->threads.v[0].frames.cnt);
	done();
}

/* --- hostile ----------------------------------------------------------------------------------- */

/* What a core names is opened only when it is a regular file: a pipe would hang, a device may act. */
TEST(names_of_no_files)
{
	char fifo[512];

	snprintf(fifo, sizeof(fifo), "%s", test_path("fifo"));
	CHECK(!mkfifo(fifo, 0600));
	examine(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .code = 1, .addr = 1, .code_path = fifo });
	CHECK_EQ(core->missing.cnt, 1);
	done();
	examine(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .code = 1, .addr = 1, .code_path = "/dev/zero" });
	CHECK_EQ(core->missing.cnt, 1);
	done();
	examine(&(struct made){ .machine = EM_X86_64, .sig = SIGSEGV, .code = 1, .addr = 1, .code_path = "relative" });
	CHECK_EQ(core->missing.cnt, 1);
	done();
}

/* Every number of the headers and notes at its ends: read or refused, never believed. */
TEST(numbers_at_their_ends)
{
	static const uint64_t ends[] = { 0, 1, UINT32_MAX, INT64_MAX, UINT64_MAX - 4095, UINT64_MAX };
	struct dl_str s = {};
	unsigned int taken = 0, refused = 0;

	add_core(&s, &(struct made){ .machine = EM_X86_64, .sig = SIGBUS, .code = SI_TKILL, .sender = PID, .frame_sig = SIGBUS,
				     .frame_code = BUS_ADRERR, .frame_addr = DATA });
	for (size_t at = 24; at + 8 <= s.len && at < 2400; at += 4)
		for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
			const char *path = test_path("made");
			_cleanup_free_ char *p = malloc(s.len);
			FILE *f = fopen(path, "we");
			struct dl_diag d = {};

			CHECK(p && f);
			memcpy(p, s.s, s.len);
			memcpy(p + at, &ends[i], 8);
			CHECK(fwrite(p, 1, s.len, f) == s.len);
			fclose(f);
			core = NULL;
			if (dl_core_read(&core, path, &d)) {
				CHECK(d.msg[0]);
				refused++;
				continue;
			}
			taken++;
			pm = dl_pm_new();
			CHECK_OK(dl_pm_add_core(pm, core));
			done();
		}
	dl_str_fini(&s);
	CHECK_MSG(taken > 100 && refused > 20, "%u taken, %u refused", taken, refused);
}
