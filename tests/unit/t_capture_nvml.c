/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* NVML by its double, which knows its numbers; sysfs by a copy of it; and which device is which. */
#include "unit/test.h"

#include <sys/wait.h>

#include "base/vec.h"
#include "capture/nvml_watch.h"
#include "capture/nvml.h"
#include "capture/pci.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

/* With the double, and its variables as given until the test ends. */
static struct dl_nvml *nvml(const char *name, const char *value)
{
	static const char *const all[] = { "GPUSIM_NVML_FAIL", "GPUSIM_NVML_API", "GPUSIM_NVML_PROCS", "GPUSIM_DEVICES" };
	const char *build = getenv("DLBPF_BUILD");
	struct dl_nvml *n = NULL;
	struct dl_diag d = {};
	char path[4096];

	snprintf(path, sizeof(path), "%s/gpusim/libnvidia-ml.so.1", build ? build : "build");
	if (access(path, R_OK))
		SKIP("there is no double of NVML (make gpusim)");
	setenv("DLBPF_LIBNVML", path, 1);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		unsetenv(all[i]);
	if (name)
		setenv(name, value, 1);
	return dl_nvml_open(&n, &d) ? NULL : n;
}

TEST(facts)
{
	struct dl_nvml *n = nvml("GPUSIM_DEVICES", "2");
	struct dl_nvml_facts f;

	CHECK(n);
	CHECK_EQ(dl_nvml_cnt(n), 2);
	CHECK_OK(dl_nvml_facts(n, 1, &f));
	CHECK_STR(f.name, "Simulated GPU 1");
	CHECK_STR(f.uuid, "GPU-d1bf0001-0000-4000-8000-000000000000");
	CHECK_EQ(f.pci, 2 << 8);
	CHECK_EQ(f.mem_total, 16 * GIB);
	CHECK_EQ(f.gen, 3);
	CHECK_EQ(f.width, 16);
	CHECK_EQ(f.gen_max, 4);
	CHECK(f.simulated);
	CHECK_EQ(dl_nvml_facts(n, 2, &f), -ENODEV);
	dl_nvml_close(n);
}

TEST(looks)
{
	struct dl_nvml *n = nvml(NULL, NULL);
	struct dl_nvml_look l;

	CHECK(n);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_OK(dl_nvml_look(n, 0, i == 2, &l));
		CHECK_EQ(l.mem_used, GIB + i * 64 * MIB);
		CHECK_EQ(l.util_gpu, 10 + i);
		CHECK_EQ(!!(l.flags & DL_GS_PCIE), i == 2);
	}
	CHECK_EQ(l.rx_kbps, 1000002);
	CHECK_EQ(l.tx_kbps, 500001);
	dl_nvml_close(n);
}

/* Every version of the list of processes, and a process whose memory is not told. */
TEST(lists_of_processes)
{
	static const char *const apis[] = { "", "1", "2", "3", "old" };
	struct dl_nvml_look l;

	for (size_t i = 0; i < sizeof(apis) / sizeof(apis[0]); i++) {
		struct dl_nvml *n = nvml("GPUSIM_NVML_API", apis[i]);
		FILE *f = fopen(test_path("procs"), "w");

		CHECK(n && f);
		fprintf(f, "0 11 1048576\n0 12 %s\n1 13 5\n", i == 3 ? "?" : "2097152");
		fclose(f);
		setenv("GPUSIM_NVML_PROCS", test_path("procs"), 1);
		CHECK_OK(dl_nvml_look(n, 0, false, &l));
		CHECK(l.flags & DL_GS_PROCS);
		CHECK_EQ(!!(l.flags & DL_GS_PROC_MEM), i != 3);
		CHECK_EQ(l.proc_cnt, 2);
		CHECK_EQ(l.procs[0].pid, 11);
		CHECK_EQ(l.procs[0].used, MIB);
		CHECK_EQ(l.procs[1].pid, 12);
		/* Without the second memory record the driver's own share is counted as used. */
		CHECK_EQ(l.mem_used, i == 4 ? GIB + 512 * MIB : GIB);
		dl_nvml_close(n);
	}
}

TEST(what_fails_is_unknown)
{
	struct dl_nvml_look l;
	struct dl_nvml *n;

	CHECK(!nvml("GPUSIM_NVML_FAIL", "init"));
	CHECK(!nvml("GPUSIM_NVML_FAIL", "count"));
	n = nvml("GPUSIM_NVML_FAIL", "procs");
	CHECK_OK(dl_nvml_look(n, 0, false, &l));
	CHECK(!(l.flags & DL_GS_PROCS));
	dl_nvml_close(n);
	n = nvml("GPUSIM_NVML_FAIL", "pcie");
	CHECK_OK(dl_nvml_look(n, 0, true, &l));
	CHECK(!(l.flags & DL_GS_PCIE));
	dl_nvml_close(n);
	n = nvml("GPUSIM_NVML_FAIL", "lost");
	CHECK_EQ(dl_nvml_look(n, 0, true, &l), -ENODEV);
	CHECK_EQ(dl_nvml_look(n, 0, true, &l), -ENODEV);
	dl_nvml_close(n);
	setenv("DLBPF_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
	CHECK_EQ(dl_nvml_open(&n, NULL), -ENOENT);
}

/* --- sysfs --------------------------------------------------------------------------------------- */

static void put(const char *path, const char *text)
{
	char full[512], *at;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", test_path("sys"), path);
	for (at = strchr(full + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(full, 0755);
		*at = '/';
	}
	f = fopen(full, "w");
	CHECK(f && fputs(text, f) >= 0);
	fclose(f);
}

TEST(sysfs)
{
	struct dl_pci p;

	put("bus/pci/devices/0000:3b:00.0/current_link_speed", "8.0 GT/s PCIe\n");
	put("bus/pci/devices/0000:3b:00.0/max_link_speed", "16.0 GT/s PCIe\n");
	put("bus/pci/devices/0000:3b:00.0/current_link_width", "8\n");
	put("bus/pci/devices/0000:3b:00.0/max_link_width", "16\n");
	put("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
	put("bus/pci/devices/0000:3b:00.0/local_cpulist", "8-15,300\n");
	put("bus/pci/devices/0000:1a:00.0/numa_node", "-1\n");
	put("devices/system/node/node1/distance", "21 10 32\n");
	CHECK(dl_pci_read(test_path("sys"), 0x3b00, &p));
	CHECK_EQ(p.gen, 3);
	CHECK_EQ(p.gen_max, 4);
	CHECK_EQ(p.width, 8);
	CHECK_EQ(p.width_max, 16);
	CHECK_EQ(p.numa_node, 1);
	CHECK_EQ(p.numa_nodes, 3);
	CHECK_EQ(p.dist_min, 21);
	CHECK_EQ(p.dist_max, 32);
	CHECK_EQ(p.near_cpus[0], 0);
	CHECK_EQ(p.near_cpus[1], 0xff);
	CHECK_EQ(p.near_cpus[300 / 8], 1 << 300 % 8);
	CHECK(dl_pci_read(test_path("sys"), 0x1a00, &p));
	CHECK_EQ(p.numa_node, -1);
	CHECK_EQ(p.gen, 0);
	CHECK(!dl_pci_read(test_path("sys"), 0x9900, &p));
}

TEST(texts_of_sysfs)
{
	uint8_t bits[DL_PCI_CPUS / 8];
	uint64_t pci;

	CHECK_EQ(dl_pci_gen("2.5 GT/s PCIe\n"), 1);
	CHECK_EQ(dl_pci_gen("8 GT/s"), 3);
	CHECK_EQ(dl_pci_gen("64.0 GT/s PCIe"), 6);
	CHECK_EQ(dl_pci_gen("Unknown"), 0);
	CHECK_EQ(dl_pci_gen("9 GT/s"), 0);
	CHECK(dl_pci_parse("0001:3b:1f.7", &pci));
	CHECK_EQ(pci, 0x10000 | 0x3b << 8 | 0x1f << 3 | 7);
	CHECK(!dl_pci_parse("0000:3b:20.0", &pci));
	CHECK(!dl_pci_parse("0000:3b:00.0x", &pci));
	CHECK(dl_pci_cpus("0,2-3,4000-5000\n", bits));
	CHECK_EQ(bits[0], 0x0d);
	CHECK(dl_pci_cpus("", bits));
	CHECK(!dl_pci_cpus("3-1", bits));
	CHECK(!dl_pci_cpus("1-", bits));
	CHECK(!dl_pci_cpus("a", bits));
	/* Whatever it is, it ends, and writes nowhere else (the sanitizers watch). */
	for (uint32_t seed = 1; seed < 20000; seed++) {
		static const char set[] = "0123456789,-\n x";
		uint32_t x = seed * 2654435761u;
		char text[16] = "";

		for (int i = 0; i < 15; i++, x = x * 1664525 + 1013904223)
			text[i] = set[(x >> 16) % (sizeof(set) - 1)];
		dl_pci_cpus(text, bits);
		dl_pci_parse(text, &pci);
	}
}

TEST(visible_devices)
{
	static const char *const uuids[] = { "GPU-aaaa-1", "GPU-aaaa-2", "GPU-bbbb-3" };

	CHECK_EQ(dl_gpu_visible(NULL, true, uuids, 3, 2), 2);
	CHECK_EQ(dl_gpu_visible(NULL, true, uuids, 3, 3), -1);
	CHECK_EQ(dl_gpu_visible(NULL, false, uuids, 3, 0), -1);
	CHECK_EQ(dl_gpu_visible("2,0", true, uuids, 3, 0), 2);
	CHECK_EQ(dl_gpu_visible("2,0", true, uuids, 3, 1), 0);
	CHECK_EQ(dl_gpu_visible("2,0", false, uuids, 3, 1), -1);
	CHECK_EQ(dl_gpu_visible("2,0", true, uuids, 3, 2), -1);
	CHECK_EQ(dl_gpu_visible("GPU-bbbb", false, uuids, 3, 0), 2);
	CHECK_EQ(dl_gpu_visible("GPU-aaaa", false, uuids, 3, 0), -1);	/* two of them */
	CHECK_EQ(dl_gpu_visible("GPU-aaaa-2,GPU-bbbb", false, uuids, 3, 1), 2);
	CHECK_EQ(dl_gpu_visible("0,-1,1", true, uuids, 3, 2), -1);	/* -1 ends the list */
	CHECK_EQ(dl_gpu_visible("", true, uuids, 3, 0), -1);
	CHECK_EQ(dl_gpu_visible("MIG-x", true, uuids, 3, 0), -1);
	CHECK_EQ(dl_gpu_visible("9", true, uuids, 3, 0), -1);
}

/* --- the watch ----------------------------------------------------------------------------------- */

struct kept {
	struct dl_sink sink;
	DL_VEC(struct dl_ev_gpu_link) links;
	int samples, absent;
};

static int keep(struct dl_sink *sink, const struct dl_hdr *ev)
{
	struct kept *k = (struct kept *)sink;
	struct dl_ev_gpu_link *at;

	k->samples += ev->kind == DL_EV_GPU_SAMPLE;
	k->absent += ev->kind == DL_EV_ABSENT;
	if (ev->kind != DL_EV_GPU_LINK)
		return 0;
	at = vec_push(&k->links);
	if (!at)
		return -ENOMEM;
	*at = *(const struct dl_ev_gpu_link *)ev;
	return 0;
}

static bool is_ours(uint32_t pid, void *arg)
{
	(void)arg;
	return pid == 77;
}

/* Takes what comes until there are so many samples. */
static void wait_for_samples(struct dl_gpu_watch *w, struct kept *k, int samples)
{
	for (int i = 0; i < 2000 && k->samples < samples && !k->absent; i++) {
		CHECK_OK(dl_gpu_watch_emit(w, &k->sink, false));
		usleep(5000);
	}
}

TEST(watch_matches_by_address)
{
	const struct dl_gpu_watch_opts o = { .sys = test_path("sys"), .period_ms = 20, .is_ours = is_ours };
	struct dl_ev_gpu_device dev = DL_EVENT_INIT(gpu_device, DL_EV_GPU_DEVICE, 1, 77, 77);
	struct kept k = { .sink.emit = keep };
	struct dl_gpu_watch *w = NULL;

	dl_nvml_close(nvml("GPUSIM_DEVICES", "2"));
	setenv("GPUSIM_NVML_PROCS", "/nowhere", 1);
	CHECK_OK(dl_gpu_watch_open(&w, &o));
	dev.device = 0;
	dev.pci = 2 << 8;	/* NVML's second */
	CHECK_OK(dl_gpu_watch_device(w, &dev));
	wait_for_samples(w, &k, 3);
	CHECK(k.samples >= 3);
	CHECK_EQ(k.links.cnt, 1);
	CHECK_EQ(k.links.v[0].index, 1);
	CHECK_EQ(k.links.v[0].device, 0);
	CHECK_EQ(k.links.v[0].match, DL_GPU_MATCH_PCI);
	CHECK_EQ(k.links.v[0].numa_node, -1);
	dl_gpu_watch_close(w);
	vec_free(&k.links);
}

/* Two devices, no address and no environment to read (there is no such process): not guessed. */
TEST(watch_does_not_guess)
{
	const struct dl_gpu_watch_opts o = { .sys = test_path("sys"), .period_ms = 20, .is_ours = is_ours };
	struct dl_ev_gpu_device dev = DL_EVENT_INIT(gpu_device, DL_EV_GPU_DEVICE, 1, 77, 77);
	struct kept k = { .sink.emit = keep };
	struct dl_gpu_watch *w = NULL;
	FILE *f = fopen(test_path("procs"), "w");

	CHECK(f);
	fputs("1 77 4096\n", f);
	fclose(f);
	dl_nvml_close(nvml("GPUSIM_DEVICES", "2"));
	setenv("GPUSIM_NVML_PROCS", test_path("procs"), 1);
	CHECK_OK(dl_gpu_watch_open(&w, &o));
	dev.h.pid = dev.h.tid = 77;
	CHECK_OK(dl_gpu_watch_device(w, &dev));
	wait_for_samples(w, &k, 2);
	CHECK_OK(dl_gpu_watch_emit(w, &k.sink, true));
	CHECK_EQ(k.links.cnt, 1);	/* where NVML sees it, without a number of its own */
	CHECK_EQ(k.links.v[0].index, 1);
	CHECK_EQ(k.links.v[0].device, UINT32_MAX);
	CHECK_EQ(k.links.v[0].match, DL_GPU_MATCH_NONE);
	dl_gpu_watch_close(w);
	vec_free(&k.links);
}
