/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Attaching bpf/cuda.bpf.c; which entry points there are is known by cuda_probe.c. */
#include <errno.h>
#include <stdio.h>

#include <bpf/bpf.h>

#include "capture/kernel_priv.h"

static bool is_used(const struct dl_kernel *k, const struct bpf_program *prog)
{
	for (int i = 0; i < dl_prog_rule_cnt; i++) {
		if (k->use[i] && dl_rule_prog(k, &dl_prog_rules[i]) == prog)
			return true;
	}
	return false;
}

int dl_kernel_has_uprobes(const struct dl_kernel *k)
{
	return is_used(k, k->skel->progs.dl_cuda_enter) && is_used(k, k->skel->progs.dl_cuda_leave) ? 0 : -EOPNOTSUPP;
}

int dl_kernel_set_cuda_call(struct dl_kernel *k, uint32_t pid, uint64_t ip, const struct dl_cuda_call *call)
{
	const struct dl_cuda_key key = { .ip = ip, .pid = pid };
	const int fd = bpf_map__fd(k->skel->maps.dl_cuda_calls);

	if (call)
		return bpf_map_update_elem(fd, &key, call, BPF_ANY) ? -errno : 0;
	return bpf_map_delete_elem(fd, &key) ? -errno : 0;
}

/* A process of its own, since a file that many map is hit by strangers, too. Children that are forked
 * do not inherit the probes; what they load is theirs to be probed. */
int dl_kernel_uprobe(struct dl_kernel *k, uint32_t pid, int fd, uint64_t off, bool at_return, struct dl_uprobe **ret)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = at_return);
	struct bpf_link *link;
	char path[32];

	/* The file itself, whatever name it has in whichever mount namespace. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	link = bpf_program__attach_uprobe_opts(at_return ? k->skel->progs.dl_cuda_leave : k->skel->progs.dl_cuda_enter,
					       (pid_t)pid, path, off, &opts);
	if (!link)
		return -errno;
	*ret = (struct dl_uprobe *)link;
	return 0;
}

int dl_kernel_uprobe_fd(const struct dl_uprobe *u)
{
	return bpf_link__fd((const struct bpf_link *)u);
}

void dl_kernel_uprobe_off(struct dl_uprobe *u)
{
	bpf_link__destroy((struct bpf_link *)u);
}
