/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What to do: every death has a remedy, with its numbers where they are known, and none where nothing died. */
#include "unit/pm_util.h"

#include "unit/failing_alloc.h"

static struct dl_postmortem *dead_of(enum dl_death death)
{
	struct dl_postmortem *pm = dl_pm_new();

	CHECK(pm);
	pm->death = death;
	pm->victim.pid = 4711;
	return pm;
}

static void add_number(struct dl_postmortem *pm, const char *id, uint64_t value)
{
	CHECK_OK(dl_pm_number(pm, id, id, value, DL_PM_BYTES, DL_PM_TRACE));
}

TEST(every_death_has_one)
{
	for (int death = 0; death < DL_DEATH_CNT; death++) {
		struct dl_postmortem *pm = dead_of((enum dl_death)death);

		CHECK_OK(dl_pm_remedies(pm));
		CHECK_MSG(!pm->actions.cnt == (death == DL_DEATH_NONE), "%s", dl_death_id((enum dl_death)death));
		vec_for_each(&pm->actions, a)
			CHECK(a->text[0] && (!a->command || a->command[0]));
		dl_postmortem_free(pm);
	}
}

TEST(shm_size_from_need)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_SHM_FULL);

	add_number(pm, "shm.total", 64 * MIB);
	add_number(pm, "shm.needed", 1800 * MIB);
	CHECK_OK(dl_pm_remedies(pm));
	/* 1800 and a sixth of it, up to the next 64 */
	CHECK(has_command(pm, "docker run --shm-size=2112m"));
	CHECK(has_command(pm, "shm_size: \"2112m\""));
	CHECK(has_command(pm, "sizeLimit: 2112Mi") && has_command(pm, "mountPath: /dev/shm"));
	CHECK(has_command(pm, "mount -o remount,size=2112m /dev/shm"));
	CHECK(has_command(pm, "kernel.shmmax"));
	dl_postmortem_free(pm);
}

/* What is given must be more than what it had. */
TEST(shm_size_beyond_what_it_had)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_SHM_FULL);

	add_number(pm, "shm.total", 2048 * MIB);
	add_number(pm, "shm.needed", 600 * MIB);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(!has_command(pm, "--shm-size=704m") && has_command(pm, "--shm-size=3136m"));
	dl_postmortem_free(pm);
}

TEST(shm_size_unknown)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_SHM_FULL);

	add_number(pm, "shm.total", 64 * MIB);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(has_command(pm, "--shm-size=256m") && has_command(pm, "is not known"));
	dl_postmortem_free(pm);
}

TEST(shm_counts_towards_the_memory_limit)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_SHM_FULL);

	add_number(pm, "shm.total", 64 * MIB);
	add_number(pm, "shm.needed", 1024 * MIB);
	add_number(pm, "cgroup.limit", 1500 * MIB);
	add_number(pm, "cgroup.anon", 700 * MIB);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(has_command(pm, "Raise the cgroup's memory limit, too"));
	dl_postmortem_free(pm);
}

TEST(fewer_workers_that_fit)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_SHM_FULL);

	add_number(pm, "shm.total", 64 * MIB);
	add_number(pm, "shm.needed", 200 * MIB);
	add_number(pm, "batch.bytes", 10 * MIB);
	add_number(pm, "workers", 8);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(has_command(pm, "num_workers=2 (there were 8)"));
	dl_postmortem_free(pm);
}

TEST(limits)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_FD_LIMIT);

	add_number(pm, "fds.limit", 1024);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(has_command(pm, "ulimit -n 65536") && has_command(pm, "LimitNOFILE=65536") && has_command(pm, "set_sharing_strategy('file_system')"));
	dl_postmortem_free(pm);
	pm = dead_of(DL_DEATH_MAP_COUNT_LIMIT);
	add_number(pm, "maps.limit", 65530);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(has_command(pm, "vm.max_map_count=262144") && has_command(pm, "More memory does not help"));
	dl_postmortem_free(pm);
	pm = dead_of(DL_DEATH_PROCESS_LIMIT);
	add_number(pm, "pids.limit", 2000);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(has_command(pm, "--pids-limit=8000") && has_command(pm, "TasksMax=8000"));
	dl_postmortem_free(pm);
}

/* Whoever leaks is named before more memory is. */
TEST(memory)
{
	struct dl_postmortem *pm = dead_of(DL_DEATH_OOM_CGROUP);
	struct dl_pm_proc *p = vec_push(&pm->procs);

	CHECK(p);
	p->who.role = DL_ROLE_WORKER;
	p->who.pid = 4711;
	p->anon = 700 * MIB;
	p->leaks = p->has_growth = true;
	p->growth_bps = (double)(3 * MIB);
	p->growth_batch = (double)MIB;
	add_number(pm, "cgroup.limit", 1024 * MIB);
	add_number(pm, "cgroup.shmem", 400 * MIB);
	add_number(pm, "workers", 4);
	CHECK_OK(dl_pm_remedies(pm));
	CHECK(strstr(pm->actions.v[0].text, "pid 4711") && strstr(pm->actions.v[0].text, "1.00 MiB a batch"));
	CHECK(has_command(pm, "400 MiB of it was shared memory"));
	CHECK(has_command(pm, "docker run --memory=") && has_command(pm, "limits: {memory:") && has_command(pm, "sbatch --mem="));
	CHECK(has_command(pm, "each held up to 700 MiB"));
	CHECK(has_command(pm, "--shm-size) does not help"));
	dl_postmortem_free(pm);
}

/* PyTorch's advice is contradicted where it is wrong. */
TEST(what_does_not_help)
{
	static const enum dl_death deaths[] = { DL_DEATH_MAPPED_FILE_TRUNCATED, DL_DEATH_MAPPED_FILESYSTEM_FULL, DL_DEATH_MAPPED_FILE_ERROR };

	for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
		struct dl_postmortem *pm = dead_of(deaths[i]);

		CHECK_OK(dl_pm_remedies(pm));
		CHECK(has_command(pm, "(--shm-size) does not help") && !has_command(pm, "docker run --shm-size"));
		dl_postmortem_free(pm);
	}
}

TEST(no_memory)
{
#if FAILING_ALLOC
	for (int death = 0; death < DL_DEATH_CNT; death++) {
		int err = -ENOMEM;

		for (long n = 0; err; n++) {
			struct dl_postmortem *pm = dead_of((enum dl_death)death);

			add_number(pm, "shm.needed", 1800 * MIB);
			add_number(pm, "cgroup.limit", 1024 * MIB);
			alloc_left = n;
			err = dl_pm_remedies(pm);
			alloc_left = LONG_MAX;
			CHECK(!err || err == -ENOMEM);
			dl_postmortem_free(pm);
		}
	}
#else
	SKIP("the sanitizer has an allocator of its own");
#endif
}
