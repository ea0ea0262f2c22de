/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Numbers from the kernel's ABI: arch/x86/entry/syscalls/syscall_64.tbl, asm-generic/unistd.h. */
#include "timeline/syscalls.h"

#include <stddef.h>
#include <string.h>

static const uint8_t x86_64[] = {
	[0] = DL_SYS_READ, [1] = DL_SYS_WRITE, [2] = DL_SYS_FILE, [3] = DL_SYS_CLOSE,
	[4] = DL_SYS_FILE, [5] = DL_SYS_FILE, [6] = DL_SYS_FILE, [7] = DL_SYS_POLL,
	[9] = DL_SYS_MMAP, [10] = DL_SYS_MMAP, [11] = DL_SYS_MMAP, [12] = DL_SYS_MMAP,
	[17] = DL_SYS_READ, [18] = DL_SYS_WRITE, [19] = DL_SYS_READ, [20] = DL_SYS_WRITE,
	[21] = DL_SYS_FILE, [23] = DL_SYS_POLL, [25] = DL_SYS_MMAP, [26] = DL_SYS_FSYNC,
	[28] = DL_SYS_MMAP, [35] = DL_SYS_SLEEP, [40] = DL_SYS_READ, [42] = DL_SYS_CONNECT,
	[43] = DL_SYS_ACCEPT, [44] = DL_SYS_WRITE, [45] = DL_SYS_READ, [46] = DL_SYS_WRITE,
	[47] = DL_SYS_READ, [48] = DL_SYS_CLOSE, [56] = DL_SYS_FORK, [57] = DL_SYS_FORK,
	[58] = DL_SYS_FORK, [59] = DL_SYS_EXEC, [60] = DL_SYS_EXIT, [61] = DL_SYS_WAIT,
	[62] = DL_SYS_KILL, [72] = DL_SYS_LOCK, [73] = DL_SYS_LOCK, [74] = DL_SYS_FSYNC, [75] = DL_SYS_FSYNC, [76] = DL_SYS_FILE,
	[77] = DL_SYS_FILE, [78] = DL_SYS_FILE, [82] = DL_SYS_FILE, [83] = DL_SYS_FILE,
	[87] = DL_SYS_FILE, [89] = DL_SYS_FILE, [128] = DL_SYS_WAIT, [162] = DL_SYS_FSYNC,
	[187] = DL_SYS_READ, [202] = DL_SYS_FUTEX, [208] = DL_SYS_READ, [217] = DL_SYS_FILE,
	[221] = DL_SYS_FILE, [230] = DL_SYS_SLEEP, [231] = DL_SYS_EXIT, [232] = DL_SYS_POLL,
	[234] = DL_SYS_KILL, [247] = DL_SYS_WAIT, [257] = DL_SYS_FILE, [262] = DL_SYS_FILE,
	[263] = DL_SYS_FILE, [267] = DL_SYS_FILE, [269] = DL_SYS_FILE, [270] = DL_SYS_POLL,
	[271] = DL_SYS_POLL, [275] = DL_SYS_READ, [277] = DL_SYS_FSYNC, [281] = DL_SYS_POLL,
	[285] = DL_SYS_FILE, [288] = DL_SYS_ACCEPT, [295] = DL_SYS_READ, [296] = DL_SYS_WRITE,
	[299] = DL_SYS_READ, [306] = DL_SYS_FSYNC, [307] = DL_SYS_WRITE, [326] = DL_SYS_READ,
	[327] = DL_SYS_READ, [328] = DL_SYS_WRITE, [332] = DL_SYS_FILE, [435] = DL_SYS_FORK,
	[437] = DL_SYS_FILE, [441] = DL_SYS_POLL, [449] = DL_SYS_FUTEX, [454] = DL_SYS_FUTEX,
	[455] = DL_SYS_FUTEX,
};

static const uint8_t arm64[] = {
	[4] = DL_SYS_READ, [22] = DL_SYS_POLL, [25] = DL_SYS_LOCK, [32] = DL_SYS_LOCK, [35] = DL_SYS_FILE, [45] = DL_SYS_FILE,
	[46] = DL_SYS_FILE, [47] = DL_SYS_FILE, [48] = DL_SYS_FILE, [56] = DL_SYS_FILE,
	[57] = DL_SYS_CLOSE, [61] = DL_SYS_FILE, [63] = DL_SYS_READ, [64] = DL_SYS_WRITE,
	[65] = DL_SYS_READ, [66] = DL_SYS_WRITE, [67] = DL_SYS_READ, [68] = DL_SYS_WRITE,
	[69] = DL_SYS_READ, [70] = DL_SYS_WRITE, [71] = DL_SYS_READ, [72] = DL_SYS_POLL,
	[73] = DL_SYS_POLL, [76] = DL_SYS_READ, [78] = DL_SYS_FILE, [79] = DL_SYS_FILE,
	[80] = DL_SYS_FILE, [81] = DL_SYS_FSYNC, [82] = DL_SYS_FSYNC, [83] = DL_SYS_FSYNC,
	[84] = DL_SYS_FSYNC, [93] = DL_SYS_EXIT, [94] = DL_SYS_EXIT, [95] = DL_SYS_WAIT,
	[98] = DL_SYS_FUTEX, [101] = DL_SYS_SLEEP, [115] = DL_SYS_SLEEP, [129] = DL_SYS_KILL,
	[131] = DL_SYS_KILL, [137] = DL_SYS_WAIT, [202] = DL_SYS_ACCEPT, [203] = DL_SYS_CONNECT,
	[206] = DL_SYS_WRITE, [207] = DL_SYS_READ, [210] = DL_SYS_CLOSE, [211] = DL_SYS_WRITE,
	[212] = DL_SYS_READ, [213] = DL_SYS_READ, [214] = DL_SYS_MMAP, [215] = DL_SYS_MMAP,
	[216] = DL_SYS_MMAP, [220] = DL_SYS_FORK, [221] = DL_SYS_EXEC, [222] = DL_SYS_MMAP,
	[223] = DL_SYS_FILE, [226] = DL_SYS_MMAP, [227] = DL_SYS_FSYNC, [233] = DL_SYS_MMAP,
	[242] = DL_SYS_ACCEPT, [243] = DL_SYS_READ, [260] = DL_SYS_WAIT, [267] = DL_SYS_FSYNC,
	[269] = DL_SYS_WRITE, [285] = DL_SYS_READ, [286] = DL_SYS_READ, [287] = DL_SYS_WRITE,
	[291] = DL_SYS_FILE, [435] = DL_SYS_FORK, [437] = DL_SYS_FILE, [441] = DL_SYS_POLL,
	[449] = DL_SYS_FUTEX, [454] = DL_SYS_FUTEX, [455] = DL_SYS_FUTEX,
};

enum dl_machine dl_machine_of(const char *uname_machine)
{
	return uname_machine && (!strcmp(uname_machine, "aarch64") || !strcmp(uname_machine, "arm64")) ?
		DL_MACHINE_ARM64 : DL_MACHINE_X86_64;
}

enum dl_sys dl_sys_class(enum dl_machine machine, int32_t nr)
{
	const uint8_t *table = machine == DL_MACHINE_ARM64 ? arm64 : x86_64;
	size_t cnt = machine == DL_MACHINE_ARM64 ? sizeof(arm64) : sizeof(x86_64);
	enum dl_sys class;

	if (nr < 0)
		return DL_SYS_NONE;
	class = (size_t)nr < cnt ? table[nr] : DL_SYS_OTHER;
	return class == DL_SYS_NONE ? DL_SYS_OTHER : class;
}
