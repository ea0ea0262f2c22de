/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Entry points of CUDA in a file: this program has some, linked in as a static runtime would be. */
#include "unit/test.h"

#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "capture/cuda_priv.h"

int cudaMemcpyAsync(void *dst, const void *src, size_t sz, int kind, void *stream);
int cudaStreamSynchronize(void *stream);
int cudaMemcpyAsynchronously(void);
int __cudaLaunchKernel(void);	/* the name is CUDA 13's */

/* A second function that launches kernels. */
__attribute__((noinline, used)) int __cudaLaunchKernel(void)
{
	return 2;
}

__attribute__((noinline, used)) int cudaMemcpyAsync(void *dst, const void *src, size_t sz, int kind, void *stream)
{
	return dst == src && sz == (size_t)kind && !stream;
}

__attribute__((noinline, used)) int cudaStreamSynchronize(void *stream)
{
	return stream == NULL;
}

/* Only begins like one. */
__attribute__((noinline, used)) int cudaMemcpyAsynchronously(void)
{
	return 1;
}

static const struct cuda_call *find(const char *symbol)
{
	return cuda_call_find(symbol, strlen(symbol));
}

TEST(calls_are_found_by_their_exact_name)
{
	CHECK_EQ(find("cudaMemcpyAsync")->c.cbid, 41);
	CHECK_EQ(find("cudaMemcpyAsync@@libcudart.so.12")->c.cbid, 41);
	CHECK_EQ(find("cudaMemcpyAsync_ptsz")->c.cbid, 225);
	CHECK_EQ(find("cuMemcpyHtoDAsync_v2")->c.domain, DL_GPU_DRIVER);
	CHECK(!find("cudaMemcpyAsynchronously"));
	CHECK(!find("cudaMemcpyAsyn"));
	CHECK(!find("cudaEventQuery"));
	CHECK(!find(""));
	CHECK(!find("@"));
	/* CUPTI's name of a second number that cudaGraphInstantiate has. */
	CHECK(!find("cudaGraphInstantiate_v12000"));
	/* A table that ends in the middle of a name. */
	CHECK(!cuda_call_find("cudaMemcpyAsync", 6));
}

TEST(names_tell_direction_and_arguments)
{
	struct dl_cuda_call c = cuda_call_full(find("cudaMemcpyAsync"));

	CHECK_EQ(c.flags, DL_CUDA_HAS_BYTES | DL_CUDA_HAS_KIND);
	CHECK_EQ(c.dir, 0);
	CHECK(c.name >= DL_CUDA_NAMES);
	c = cuda_call_full(find("cuMemcpyDtoH_v2"));
	CHECK_EQ(c.flags, DL_CUDA_HAS_BYTES);
	CHECK_EQ(c.dir, DL_GPU_DTOH);
	CHECK_EQ(cuda_call_full(find("cudaMemcpy2DAsync")).flags, 0);	/* a pitch is no size */
	CHECK_EQ(cuda_call_full(find("cuLaunchKernel")).flags, 0);
}

TEST(libraries_are_known_by_name)
{
	CHECK_EQ(cuda_layer_of("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), CUDA_DRIVER);
	CHECK_EQ(cuda_layer_of("/usr/lib/libcuda.so.550.54.14"), CUDA_DRIVER);
	CHECK_EQ(cuda_layer_of("/x/nvidia/cuda_runtime/lib/libcudart.so.12"), CUDA_RUNTIME);
	CHECK_EQ(cuda_layer_of("/x/torch/lib/libcudart-d0da41ae.so.11.0"), CUDA_RUNTIME);
	CHECK_EQ(cuda_layer_of("/libcuda.so.1/libc.so.6"), CUDA_NONE);
	CHECK_EQ(cuda_layer_of("/x/libcudadebugger.so.1"), CUDA_NONE);
	CHECK_EQ(cuda_layer_of(""), CUDA_NONE);
}

static uint64_t base_of_program;

static int first_object(struct dl_phdr_info *info, size_t sz, void *arg)
{
	(void)sz, (void)arg;
	base_of_program = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		/* Where the program's own functions lie: address in the file = address - base + offset. */
		if (ph->p_type == PT_LOAD && ph->p_flags & PF_X)
			base_of_program += ph->p_vaddr - ph->p_offset;
	}
	return 1;
}

static const struct cuda_point *point_of(const struct cuda_lib *lib, const char *symbol)
{
	vec_for_each(&lib->points, p) {
		if (!strcmp(p->call->symbol, symbol))
			return p;
	}
	return NULL;
}

TEST(places_are_those_of_the_functions)
{
	struct cuda_lib lib = {};
	const struct cuda_point *p;

	CHECK_EQ(cuda_lib_read(&lib, open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 0);
	dl_iterate_phdr(first_object, NULL);
	CHECK_EQ(lib.points.cnt, 3);
	CHECK(point_of(&lib, "cudaLaunchKernel"));
	p = point_of(&lib, "cudaMemcpyAsync");
	CHECK(p);
	CHECK_EQ(p->off, (uint64_t)(uintptr_t)cudaMemcpyAsync - base_of_program);
	p = point_of(&lib, "cudaStreamSynchronize");
	CHECK(p);
	CHECK_EQ(p->off, (uint64_t)(uintptr_t)cudaStreamSynchronize - base_of_program);
	CHECK(!lib.simulated);
	cuda_lib_fini(&lib);
}

/* The toolkit's own runtime, where there is one: the names are right, and few are missing. */
TEST(a_real_runtime_has_the_calls)
{
	static const char *const calls[] = { "cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc",
					     "cudaFree", "cudaHostAlloc", "cudaGraphLaunch", "cudaEventSynchronize" };
	struct cuda_lib lib = {};
	glob_t g = {};

	if (glob("/usr/local/cuda*/lib64/libcudart.so.1[123]*", 0, NULL, &g) || !g.gl_pathc) {
		globfree(&g);
		SKIP("no CUDA toolkit in /usr/local");
	}
	CHECK_EQ(cuda_lib_read(&lib, open(g.gl_pathv[0], O_RDONLY | O_CLOEXEC)), 0);
	globfree(&g);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		CHECK_MSG(point_of(&lib, calls[i]), "%s was not found", calls[i]);
	CHECK(lib.points.cnt >= 40);
	CHECK(!lib.simulated);
	cuda_lib_fini(&lib);
}

TEST(files_that_are_none_are_refused)
{
	static const char *const paths[] = { "/dev/null", "/proc/self/cmdline" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct cuda_lib lib = {};

		CHECK(cuda_lib_read(&lib, open(paths[i], O_RDONLY | O_CLOEXEC)) < 0);
		CHECK_EQ(lib.points.cnt, 0);
		cuda_lib_fini(&lib);
	}
}

static uint64_t rng = 88172645463325252ULL;

static uint64_t rnd(uint64_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % below;
}

/* The file is the target's: whatever it holds, at most one place a call, all within it. */
TEST(damaged_files_do_no_harm)
{
	_cleanup_close_ int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const off_t size = lseek(self, 0, SEEK_END);
	_cleanup_free_ unsigned char *bytes = malloc((size_t)size);

	CHECK(bytes && pread(self, bytes, (size_t)size, 0) == size);
	for (int round = 0; round < 150; round++) {
		const size_t len = round % 3 ? (size_t)size : (size_t)rnd((uint64_t)size);
		int fd = memfd_create("damaged", MFD_CLOEXEC);
		struct cuda_lib lib = {};

		CHECK(write(fd, bytes, len) == (ssize_t)len);
		for (int i = 0; i < 40; i++) {
			/* Headers, section headers (at the end), and anything. */
			const uint64_t at = i % 3 == 0 ? rnd(64 + 10 * 56) : i % 3 == 1 ? (uint64_t)size - 1 - rnd(40 * 64) :
				rnd((uint64_t)size);
			const unsigned char byte = (unsigned char)(rnd(2) ? 0xff : rnd(256));

			if (at > 20 && at < len)
				CHECK(pwrite(fd, &byte, 1, (off_t)at) == 1);
		}
		cuda_lib_read(&lib, fd);
		CHECK(lib.points.cnt <= 2 * cuda_call_cnt);
		cuda_lib_fini(&lib);
	}
}
