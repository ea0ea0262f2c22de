/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Mappings with build-ids and the names of functions, so that stacks mean something after the
 * processes are gone and on another machine: MMAP and SYMBOL events.
 *
 * Reading files may take long, above all where slow storage is what is being looked for, and rings
 * must be drained meanwhile: all of it is done by a thread of its own, at a lower priority. The
 * recorder hands in what it sees and collects events.
 *
 * Files are held open from the moment their mapping is first seen, so names can still be found when
 * the process and the file's name are gone. Names come from .symtab, else .dynsym; C++ names are
 * made readable where libstdc++ is installed (it is where PyTorch is). Code without symbols, and
 * code that was made at run time, has no SYMBOL event.
 */
#ifndef DLBPF_CAPTURE_SYMBOLS_H
#define DLBPF_CAPTURE_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"
#include "capture/sink.h"

struct dl_symbols;
struct dl_fault_stack;

int dl_symbols_open(struct dl_symbols **ret, struct dl_diag *d);
void dl_symbols_close(struct dl_symbols *s);

/* What became of processes. scan: read its mappings now; proc_fd is copied. */
int dl_symbols_scan(struct dl_symbols *s, uint32_t pid, int proc_fd);
int dl_symbols_fork(struct dl_symbols *s, uint32_t parent, uint32_t child);
int dl_symbols_exec(struct dl_symbols *s, uint32_t pid);
int dl_symbols_exit(struct dl_symbols *s, uint32_t pid);

/* An address seen in a stack of the process; pid 0: in the kernel. Asked for once is enough. Only one
 * that was executed makes the mappings be read again when none holds it: of code without frame
 * pointers, the callers in a stack are often no code at all. */
int dl_symbols_want(struct dl_symbols *s, uint32_t pid, uint64_t addr, bool executed);

/* A copied stack of a thread that got a fatal signal: STACK, by the id given, its SYMBOLs and CRASH_STACK are
 * emitted. The copy is forgotten then. proc_fd: its /proc/PID, -1 none. */
int dl_symbols_crash(struct dl_symbols *s, const struct dl_fault_stack *fs, uint32_t stack_id, int proc_fd);

/* Emits what has been found so far; never waits for files. */
int dl_symbols_drain(struct dl_symbols *s, struct dl_sink *sink);

/* Looks up all that is open, at most for so long, and emits it. */
int dl_symbols_finish(struct dl_symbols *s, struct dl_sink *sink, uint64_t timeout_ns);

/* Requests that had to be dropped, and why kernel names are missing ("" when they are not). */
uint64_t dl_symbols_dropped(struct dl_symbols *s);
const char *dl_symbols_kernel_hint(struct dl_symbols *s);

#endif
