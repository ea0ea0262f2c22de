/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a kernel stack says: the kind of page fault of a sample, the reason of an uninterruptible
 * wait. Function names differ between kernels, so each rule is a list of name prefixes, and what
 * no rule knows stays unknown. The first rule with a frame in the stack wins, so the more special
 * ones come first.
 */
#include "timeline/past.h"
#include "timeline/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rule {
	uint8_t value;
	const char *prefixes[16];
};

/* "shrink_" and try_to_free_* are reclaim, wherever it was entered from; what it pushes out to swap is swap. */
#define SWAP_OUT { "swap_writepage", "swap_writeout", "__swap_writepage", "shmem_writepage", "shmem_writeout", \
		   "add_to_swap", "folio_alloc_swap", "zswap_store", "zram_" }

static const struct rule fault_rules[] = {
	{ DL_SMP_FAULT_SWAP, SWAP_OUT },
	{ DL_SMP_RECLAIM, { "try_to_free_", "shrink_node", "shrink_lruvec", "shrink_folio", "shrink_page",
			    "mem_cgroup_handle_over_high", "reclaim_high", "compact_zone", "__alloc_pages_direct" } },
	{ DL_SMP_FAULT_SWAP, { "do_swap_page", "swapin_", "swap_read", "shmem_swapin" } },
	{ DL_SMP_FAULT_SHM, { "shmem_", "shm_fault" } },
	{ DL_SMP_FAULT_COW, { "do_wp_page", "wp_page_", "do_cow_fault", "copy_present_" } },
	{ DL_SMP_FAULT_ANON, { "do_anonymous_page", "do_huge_pmd_anonymous", "alloc_anon_folio",
			       "do_huge_zero_page" } },
	{ DL_SMP_FAULT_FILE, { "filemap_", "do_read_fault", "do_fault_around", "next_uptodate", "ext4_", "xfs_" } },
};

static const char *const fault_entry[16] = {
	"asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault",
	"__handle_mm_fault", "do_page_fault", "do_mem_abort", "do_translation_fault",
};

static const struct rule syscall_rules[] = {
	{ DL_SMP_FAULT_SWAP, SWAP_OUT },
	{ DL_SMP_RECLAIM, { "try_to_free_", "shrink_node", "shrink_lruvec", "shrink_folio", "shrink_page",
			    "mem_cgroup_handle_over_high", "reclaim_high", "compact_zone" } },
	{ DL_SMP_SHM, { "shmem_fallocate", "shmem_undo_range", "shmem_evict", "shmem_truncate",
			"shmem_get_folio", "shmem_getpage", "shmem_write" } },
	{ DL_SMP_UNMAP, { "unmap_page_range", "unmap_region", "unmap_vmas", "zap_p", "__vm_munmap",
			  "do_munmap", "tlb_finish_mmu", "do_vmi_" } },
};

static const struct rule wait_rules[] = {
	{ DL_SW_WAIT_SWAP, SWAP_OUT },
	{ DL_SW_WAIT_RECLAIM, { "try_to_free_", "shrink_", "reclaim_", "mem_cgroup_handle_over_high",
				"throttle_direct", "congestion_wait", "wait_iff_congested" } },
	{ DL_SW_WAIT_SWAP, { "do_swap_page", "swapin_", "swap_read", "shmem_swapin" } },
	{ DL_SW_WAIT_RWSEM, { "rwsem_down_", "__down_read", "__down_write", "down_read", "down_write" } },
	{ DL_SW_WAIT_RCU, { "synchronize_rcu", "synchronize_srcu", "__wait_rcu_gp", "synchronize_sched", "rcu_barrier" } },
	{ DL_SW_WAIT_IO, { "io_schedule", "folio_wait_", "wait_on_page_", "__lock_page", "blk_", "bio_",
			   "filemap_", "submit_bio", "balance_dirty_pages", "jbd2_", "fuse_", "request_wait_answer",
			   "nfs_", "rpc_", "netfs_" } },
};

static bool has_prefix(const char *name, const char *const *prefixes)
{
	for (int i = 0; i < 16 && prefixes[i]; i++) {
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	}
	return false;
}

/* Names of the kernel part of a stack, as far as they are known. */
struct names { const char **v; size_t cnt, cap; };

static bool any_has(const struct names *names, const char *const *prefixes)
{
	vec_for_each(names, name) {
		if (has_prefix(*name, prefixes))
			return true;
	}
	return false;
}

static int first_rule(const struct names *names, const struct rule *rules, size_t cnt, int otherwise)
{
	for (size_t i = 0; i < cnt; i++) {
		if (any_has(names, rules[i].prefixes))
			return rules[i].value;
	}
	return otherwise;
}

#define FIRST_RULE(names, rules, otherwise) first_rule(names, rules, sizeof(rules) / sizeof(rules[0]), otherwise)

static int classify_stack(const struct dl_timeline *tl, struct dl_stack *s, struct names *names)
{
	if (!s->kernel_cnt || s->classified)
		return 0;
	names->cnt = 0;
	for (int i = 0; i < s->kernel_cnt; i++) {
		const char *name = dl_kernel_symbol(tl, s->addrs[i]), **at = name ? vec_push(names) : NULL;

		if (name && !at)
			return -ENOMEM;
		if (name)
			*at = name;
	}
	s->classified = names->cnt == s->kernel_cnt;
	if (any_has(names, fault_entry))
		s->cls = (uint8_t)FIRST_RULE(names, fault_rules, DL_SMP_FAULT);
	else
		s->cls = (uint8_t)FIRST_RULE(names, syscall_rules, DL_SMP_KERNEL);
	s->wait = (uint8_t)FIRST_RULE(names, wait_rules, DL_SW_WAIT_UNKNOWN);
	return 0;
}

#define INSN_MAX 15	/* bytes of an x86 instruction */
#define SKID_RATIO 3	/* faults for each user sample at an instruction; less is the instruction's own work */

struct at { uint64_t ip; uint8_t cls; };
struct ats { struct at *v; size_t cnt, cap; };

static bool is_fault(uint8_t cls)
{
	return cls >= DL_SMP_FAULT && cls <= DL_SMP_FAULT_SWAP;
}

/* The most frequent class in [from, to]. */
static uint8_t most_frequent(const struct ats *list, uint64_t from, uint64_t to, uint8_t otherwise)
{
	uint32_t cnt[DL_SMP_CNT] = {};
	uint8_t best = otherwise;

	for (size_t i = vec_first_at(list, from); i < list->cnt && list->v[i].ip <= to; i++) {
		cnt[list->v[i].cls]++;
		if (cnt[list->v[i].cls] > cnt[best])
			best = list->v[i].cls;
	}
	return best;
}

static uint64_t before(uint64_t ip)
{
	return ip > INSN_MAX ? ip - INSN_MAX : 0;
}

/* A sample early or late in a fault does not show its kind: others at the same instruction do. */
static void resolve_unknown(struct dl_thread *th, const struct ats *known)
{
	vec_for_each(&th->samples, smp) {
		if (smp->cls == DL_SMP_FAULT)
			smp->cls = most_frequent(known, before(smp->ip), smp->ip + INSN_MAX, DL_SMP_FAULT);
	}
}

/*
 * Interrupts are off on the way out of a page fault: a sampling timer that is due then fires at the
 * first instructions behind it, in user mode. So user samples at an instruction at which the thread
 * was nearly always met in a fault belong to the fault.
 */
static void take_back_skid(struct dl_thread *th, const struct ats *faults, const struct ats *users)
{
	vec_for_each(&th->samples, smp) {
		uint64_t from = before(smp->ip), to = smp->ip;
		size_t fault_cnt = vec_first_at(faults, to + 1) - vec_first_at(faults, from);
		size_t user_cnt = vec_first_at(users, to + 1) - vec_first_at(users, from);

		if (smp->cls == DL_SMP_USER && fault_cnt && fault_cnt >= SKID_RATIO * user_cnt)
			smp->cls = most_frequent(faults, from, to, DL_SMP_FAULT);
	}
}

static int add_at(struct ats *list, const struct dl_smp *smp)
{
	struct at *at = vec_push(list);

	if (!at)
		return -ENOMEM;
	*at = (struct at){ smp->ip, smp->cls };
	return 0;
}

static int look_around(struct dl_thread *th)
{
	struct ats known = {}, faults = {}, users = {};
	int err = 0;

	vec_for_each(&th->samples, smp) {
		if (is_fault(smp->cls) && smp->cls != DL_SMP_FAULT && !err)
			err = add_at(&known, smp);
	}
	vec_sort(&known);
	resolve_unknown(th, &known);
	vec_for_each(&th->samples, smp) {
		if ((is_fault(smp->cls) || smp->cls == DL_SMP_USER) && !err)
			err = add_at(smp->cls == DL_SMP_USER ? &users : &faults, smp);
	}
	vec_sort(&faults);
	vec_sort(&users);
	take_back_skid(th, &faults, &users);
	vec_free(&known);
	vec_free(&faults);
	vec_free(&users);
	return err;
}

int dl_tl_classify(struct dl_timeline *tl)
{
	struct names names = {};
	int err = 0;

	vec_for_each(&tl->stacks, s)
		err = err ? err : classify_stack(tl, s, &names);
	vec_free(&names);
	vec_for_each(&tl->threads, th) {
		vec_for_each(&th->samples, smp) {
			if (!smp->kernel)
				smp->cls = DL_SMP_USER;
			else if (smp->stack < tl->stacks.cnt)
				smp->cls = tl->stacks.v[smp->stack].cls;
			else
				smp->cls = DL_SMP_KERNEL;
		}
		err = err ? err : look_around(th);
	}
	return err;
}

/* --- libraries --- */

#define LIBRARIES_MAX 64

const char *dl_mapped_at(const struct dl_timeline *tl, uint32_t proc, uint64_t ip)
{
	for (int up = 0; proc != DL_NONE && up < 4; up++, proc = tl->procs.v[proc].execed ? DL_NONE : tl->procs.v[proc].parent) {
		vec_for_each(&tl->procs.v[proc].mappings, m) {
			if (ip >= m->start && ip < m->end)
				return m->path;
		}
	}
	return NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}

struct libs { struct dl_lib v[LIBRARIES_MAX]; uint32_t cnt; };

static void add_lib(struct libs *libs, const char *path, uint32_t cnt)
{
	uint32_t i = 0;

	while (i < libs->cnt && strcmp(libs->v[i].path, path))
		i++;
	if (i == LIBRARIES_MAX)
		return;
	if (i == libs->cnt)
		libs->v[libs->cnt++].path = path;
	libs->v[i].cnt += cnt;
}

const char *dl_library_of(const struct dl_timeline *tl, uint32_t proc, uint32_t role)
{
	struct libs libs = {};
	uint32_t all = 0, best = 0;

	vec_for_each(&tl->procs.v[proc].threads, idx) {
		const struct dl_thread *th = &tl->threads.v[*idx];

		if (th->role != role)
			continue;
		all += th->past ? th->past->smp_cls[DL_SMP_USER] : 0;
		for (size_t i = 0; th->past && i < th->past->libs.cnt; i++)
			add_lib(&libs, th->past->libs.v[i].path, th->past->libs.v[i].cnt);
		vec_for_each(&th->samples, smp) {
			const char *path = smp->cls == DL_SMP_USER ? dl_mapped_at(tl, proc, smp->ip) : NULL;

			all += smp->cls == DL_SMP_USER;
			if (path)
				add_lib(&libs, path, 1);
		}
	}
	for (uint32_t i = 0; i < libs.cnt; i++)
		best = libs.v[i].cnt > libs.v[best].cnt ? i : best;
	return libs.v[best].cnt * 2 > all ? base_name(libs.v[best].path) : NULL;
}
