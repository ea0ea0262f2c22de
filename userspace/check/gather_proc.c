/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A process: limits, environment, namespaces, control groups, and what kind of place it runs in. */
#include "check/gather.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/cgroup.h"
#include "capture/invoker.h"
#include "capture/proc.h"

/* What judgements ask for; of the rest of an environment nothing is kept. */
static const char *const wanted[] = {
	"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_WAIT_POLICY",
	"GOMP_SPINCOUNT", "KMP_BLOCKTIME", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUDA_CACHE_DISABLE",
	"CUDA_MODULE_LOADING", "CUDA_INJECTION64_PATH", "CUDNN_LOGINFO_DBG", "CUDNN_LOGLEVEL_DBG", "NCCL_DEBUG",
	"NVIDIA_TF32_OVERRIDE", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE",
	"PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_DISTRIBUTED_DEBUG", "TORCH_LOGS", "TORCH_USE_CUDA_DSA",
	"PYTHONTRACEMALLOC", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONPROFILEIMPORTTIME", "MALLOC_CHECK_",
	"MALLOC_PERTURB_", "LD_PRELOAD", "KUBERNETES_SERVICE_HOST", "container", "SLURM_JOB_ID",
	"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU",
};

_Static_assert(ARRAY_SIZE(wanted) <= DL_CK_VARS, "raise DL_CK_VARS");

static void add_var(struct dl_ck_proc *p, const char *name, const char *value)
{
	struct dl_ck_var *v = &p->vars[p->var_cnt];

	if (!value)
		return;
	ck_copy(v->name, sizeof(v->name), name);
	ck_copy(v->value, sizeof(v->value), value);
	p->var_cnt++;
}

static void read_env(struct dl_ck_proc *p, int fd, const struct dl_invoker *inv)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	p->var_cnt = 0;
	p->env_known = false;
	if (!inv && dl_proc_strings(fd, "environ", 4 << 20, &text, &len))
		return;
	p->env_known = true;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		add_var(p, wanted[i], inv ? dl_env_get(&inv->env, wanted[i]) : dl_proc_var(text, len, wanted[i]));
}

static void read_limits(struct dl_ck_proc *p, int fd, const struct dl_invoker *inv)
{
	char text[4096];

	if (dl_proc_read(fd, "limits", text, sizeof(text)) > 0)
		dl_limits_parse(text, p->has_limit, p->limit);
	for (int i = 0; inv && i < RLIM_NLIMITS; i++) {
		if (!inv->has_limit[i])
			continue;
		p->has_limit[i] = true;
		p->limit[i] = inv->limit[i];
	}
}

/* The list behind a key of /proc/PID/status, "Cpus_allowed_list:\t0-3". */
static const char *status_line(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? at + strlen(key) + strspn(at + strlen(key), ": \t") : NULL;
}

static void read_status(struct dl_ck_facts *f, int fd)
{
	char text[16384];
	const char *list;
	struct dl_status st;

	if (dl_proc_read(fd, "status", text, sizeof(text)) <= 0 || !dl_parse_status(text, &st))
		return;
	f->proc.uid = st.uid;
	f->cpus.allowed = (uint32_t)st.cpus_allowed;
	list = status_line(text, "\nCpus_allowed_list");
	if (!list || !dl_pci_cpus(list, f->cpus.mask))
		memset(f->cpus.mask, 0, sizeof(f->cpus.mask));
	list = status_line(text, "\nNSpid");
	f->proc.pid_levels = 0;
	for (; list && *list >= '0' && *list <= '9'; list += strspn(list, " \t")) {
		f->proc.pid_levels++;
		list += strspn(list, "0123456789");
	}
}

/* Threads of a user, by which RLIMIT_NPROC counts. */
static uint64_t count_tasks(const char *root, uint32_t uid)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[PATH_MAX], text[8192];
	uint64_t cnt = 0;

	snprintf(path, sizeof(path), "%s/proc", root);
	dir = opendir(path);
	for (const struct dirent *de; dir && (de = readdir(dir));) {
		struct dl_status st;

		if (de->d_name[0] < '1' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/status", de->d_name);
		if (ck_read(root, path, text, sizeof(text)) && dl_parse_status(text, &st) && st.uid == uid)
			cnt += st.threads;
	}
	return cnt;
}

static void read_kernel(struct dl_ck_proc *p, const char *root)
{
	char path[PATH_MAX];

	ck_read_u64(root, "/proc/sys/vm/max_map_count", &p->map_count_max);
	if (!ck_read(root, "/proc/sys/kernel/core_pattern", p->core_pattern, sizeof(p->core_pattern)))
		p->core_pattern[0] = '\0';
	snprintf(path, sizeof(path), "%s/dev/infiniband", root);
	p->infiniband = !access(path, F_OK);
}

static bool has_container_file(const char *root, int fd)
{
	static const char *const names[] = { "root/.dockerenv", "root/run/.containerenv" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!root[0] && !faccessat(fd, names[i], F_OK, 0))
			return true;
		snprintf(path, sizeof(path), "%s%s", root, names[i] + strlen("root"));
		if (root[0] && !access(path, F_OK))
			return true;
	}
	return false;
}

static int open_proc(const char *root, uint32_t pid)
{
	char path[PATH_MAX];
	int fd;

	if (pid)
		snprintf(path, sizeof(path), "%s/proc/%" PRIu32, root, pid);
	else
		snprintf(path, sizeof(path), "%s/proc/self", root);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void ck_gather_proc(struct dl_ck_facts *f, const char *root, uint32_t pid, const struct dl_invoker *inv)
{
	_cleanup_close_ int fd = open_proc(root, pid);
	struct dl_ck_proc *p = &f->proc;
	char comm[64];

	if (fd < 0) {
		snprintf(p->why, sizeof(p->why), "process %" PRIu32 ": %s", pid, strerror(-fd));
		return;
	}
	p->known = true;
	p->pid = pid;
	if (dl_proc_read(fd, "comm", comm, sizeof(comm)) > 0) {
		comm[strcspn(comm, "\n")] = '\0';
		ck_copy(p->name, sizeof(p->name), comm);
	}
	read_status(f, fd);
	if (inv && !inv->as_root)
		p->uid = inv->uid;
	read_limits(p, fd, inv);
	read_env(p, fd, inv);
	read_kernel(p, root);
	p->has_container_file = has_container_file(root, fd);
	p->user_tasks = count_tasks(root, p->uid);
	if (!p->env_known)
		f->root_needed = true;
}

/* --- control groups -------------------------------------------------------------------------------- */

struct collect {
	struct dl_sink sink;
	struct dl_ck_facts *f;
	bool again;
	size_t at;
};

static int take_level(struct dl_sink *sink, const struct dl_hdr *h)
{
	struct collect *c = (struct collect *)sink;
	struct dl_ck_level *l;
	struct dl_ev_env_cgroup ev;
	size_t len;

	memcpy(&ev, h, sizeof(ev));
	if (c->again) {
		l = c->at < c->f->levels.cnt ? &c->f->levels.v[c->at++] : NULL;
		if (!l)
			return 0;
		l->watched = true;
		l->throttled_cnt = ev.throttled_cnt > l->ev.throttled_cnt ? ev.throttled_cnt - l->ev.throttled_cnt : 0;
		l->oom_kills = ev.oom_kills > l->ev.oom_kills ? ev.oom_kills - l->ev.oom_kills : 0;
		l->ev = ev;
		return 0;
	}
	l = vec_push(&c->f->levels);
	if (!l)
		return -ENOMEM;
	l->ev = ev;
	len = h->size - sizeof(ev);
	if (len >= sizeof(l->path))
		len = sizeof(l->path) - 1;
	memcpy(l->path, (const char *)h + sizeof(ev), len);
	l->path[len] = '\0';
	return 0;
}

static bool v2_has(const char *dir, const char *controller)
{
	char path[PATH_MAX], text[512];
	const size_t len = strlen(controller);

	snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
	if (!ck_read("", path, text, sizeof(text)))
		return false;
	for (const char *at = text; (at = strstr(at, controller)); at += len)
		if ((at == text || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

/* The cpuset of a group: its own controller under version 1, cpuset.cpus.effective under version 2. */
static uint32_t read_cpuset(const char *mountinfo, const char *group)
{
	char path[PATH_MAX], text[4096];
	struct ck_mount m;

	for (const char *line = mountinfo; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const size_t len = strcspn(line, "\n");
		_cleanup_free_ char *one = strndup(line, len);
		const bool v2 = one && strstr(one, " - cgroup2 "), v1 = one && strstr(one, " - cgroup ");

		if (!(v1 || v2) || !ck_mount_find(one, 0, NULL, &m) || (v1 && !strstr(m.options, "cpuset")))
			continue;
		snprintf(path, sizeof(path), "%s%s/%s", m.dir, group, v2 ? "cpuset.cpus.effective" :
			 "cpuset.effective_cpus");
		if (ck_read("", path, text, sizeof(text)) && text[0])
			return ck_list_cnt(text);
		snprintf(path, sizeof(path), "%s%s/cpuset.cpus", m.dir, group);
		if (v1 && ck_read("", path, text, sizeof(text)) && text[0])
			return ck_list_cnt(text);
	}
	return 0;
}

/* In a cgroup namespace of its own a group looks like the root, and what lies above is out of sight. */
static bool levels_hidden(const char *root, const char *groups)
{
	char link[64];
	char path[PATH_MAX];
	ssize_t n;

	if (strstr(groups, ":/.."))
		return true;
	snprintf(path, sizeof(path), "%s/proc/self/ns/cgroup", root);
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0)
		return false;
	link[n] = '\0';
	return strcmp(link, "cgroup:[4026531835]") != 0;	/* PROC_CGROUP_INIT_INO, include/linux/proc_ns.h */
}

/* memory.high of the levels, which is no limit for ENV_CGROUP: nothing is killed for it. */
static void read_high(struct dl_ck_facts *f, const struct dl_cg_mount *m)
{
	const size_t root_len = m->dir && strcmp(m->root, "/") ? strlen(m->root) : 0;
	char path[PATH_MAX];

	if (!m->dir || m->version != 2)
		return;
	vec_for_each(&f->levels, it) {
		if (root_len && strncmp(it->path, m->root, root_len))
			continue;
		snprintf(path, sizeof(path), "%s%s/memory.high", m->dir, it->path + root_len);
		if (!ck_read_u64("", path, &it->mem_high) || it->mem_high == UINT64_MAX)
			it->mem_high = 0;
	}
}

static void free_chain(struct dl_cg_chain **c)
{
	dl_cg_chain_close(*c);
}

int ck_gather_levels(struct dl_ck_facts *f, const char *root, uint32_t pid, bool again)
{
	_cleanup_(dl_cg_mounts_fini) struct dl_cg_mounts mounts = {};
	_cleanup_(free_chain) struct dl_cg_chain *chain = NULL;
	struct collect c = { .sink.emit = take_level, .f = f, .again = again };
	_cleanup_close_ int fd = open_proc(root, pid), self = open_proc(root, 0);
	_cleanup_free_ char *mountinfo = NULL, *groups = NULL;
	char group[DL_CK_PATH];
	struct dl_diag d = {};
	size_t len;
	int err;

	if (fd < 0 || self < 0 || dl_proc_strings(self, "mountinfo", 16 << 20, &mountinfo, &len) ||
	    dl_proc_strings(fd, "cgroup", 64 << 10, &groups, &len)) {
		if (!again)
			snprintf(f->levels_why, sizeof(f->levels_why), "the process's control groups cannot be read");
		return 0;
	}
	err = dl_cg_mounts_parse(mountinfo, v2_has, &mounts);
	if (!err && (err = dl_cg_chain_open(&chain, &mounts, groups, &d)) && err != -ENOMEM) {
		if (!again)
			ck_copy(f->levels_why, sizeof(f->levels_why), d.msg);
		return 0;
	}
	if (!err)
		err = dl_cg_chain_emit(chain, &c.sink, 0, pid);
	if (err == -ENOMEM)
		return err;
	f->levels_known = !err;
	read_high(f, &mounts.ctl[DL_CG_MEMORY]);
	f->levels_hidden = levels_hidden(root, groups);
	if (!again && dl_proc_read(fd, "cpuset", group, sizeof(group)) > 0) {
		group[strcspn(group, "\n")] = '\0';
		f->cpus.cpuset = read_cpuset(mountinfo, group[1] ? group : "");
	}
	return 0;
}

/* --- the place ------------------------------------------------------------------------------------- */

void ck_gather_place(struct dl_ck_facts *f, const char *root, uint32_t pid)
{
	static const char *const container[] = { "docker", "containerd", "libpod", "crio", "/lxc", "machine.slice" };
	_cleanup_close_ int fd = open_proc(root, pid);
	char groups[8192] = "";
	bool inside;

	if (fd >= 0)
		dl_proc_read(fd, "cgroup", groups, sizeof(groups));
	inside = f->proc.has_container_file || dl_ck_var(f, "container") || f->proc.pid_levels > 1;
	for (size_t i = 0; i < ARRAY_SIZE(container); i++)
		inside |= strstr(groups, container[i]) != NULL;
	f->place = inside ? DL_CK_CONTAINER : DL_CK_HOST;
	if (strstr(groups, "kubepods") || dl_ck_var(f, "KUBERNETES_SERVICE_HOST"))
		f->place = DL_CK_KUBERNETES;
	f->slurm = dl_ck_var(f, "SLURM_JOB_ID") || strstr(groups, "/slurm");
}
