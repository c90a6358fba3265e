/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory by descriptor: making memfds, checking those of others, mapping. */
#ifndef SW_COMMON_MEMORY_H
#define SW_COMMON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shardwire/error.h>

struct sw_memory_info {
    bool huge; /* backed by huge pages */
};

/*
 * A memfd of exactly `bytes` (rounded up to the page size in use), mode 0600, its pages allocated
 * now, sealed against shrinking, growing and further seals. With huge = true huge pages are used
 * when enough of them are free, ordinary ones otherwise; *info (may be NULL) tells which. Lack of
 * memory is SW_ERR_NOMEM with the bytes asked for and available, never a signal: it is compared
 * with MemAvailable and the cgroup's limit first. `threads` of them allocate in parallel (>= 1).
 * Any thread; may take seconds: keep it off an event loop.
 */
int sw_memory_create(const char *name, uint64_t bytes, bool huge, unsigned threads, int *fd,
    struct sw_memory_info *info, struct sw_error *e);

/* The same memory through a new, read-only descriptor (a mapping of it can't be made writable). */
int sw_memory_reopen_readonly(int fd, int *readonly, struct sw_error *e);

/*
 * Checks a descriptor that somebody sent: a memfd (F_GET_SEALS works) sealed against shrinking, of
 * at least min_bytes, opened for reading and, if asked, for writing. *bytes (may be NULL) gets its
 * size. The message names what is wrong.
 */
int sw_memory_check(int fd, uint64_t min_bytes, bool writable, uint64_t *bytes, struct sw_error *e);

enum sw_memory_fill { /* when page tables are filled */
    SW_FILL_LATER,    /* as pages are touched */
    SW_FILL_NEW,      /* now; most pages were never used and are cleared with it */
    SW_FILL_USED,     /* now; somebody else's mapping has used the pages: twice as fast for them */
};

/* Maps the first `bytes` shared; pages are filled by `threads` in parallel. */
int sw_memory_map(int fd, uint64_t bytes, bool writable, enum sw_memory_fill fill, unsigned threads,
    void **base, struct sw_error *e);
void sw_memory_unmap(void *base, uint64_t bytes); /* accepts NULL */

/* memcpy split over up to `threads` threads (1 = the caller alone). Regions must not overlap. */
void sw_memory_copy(void *dst, const void *src, size_t bytes, unsigned threads);

/* Calls run(i, n, arg) for i = 0 .. n - 1 at the same time, n = `threads` (at least 1, at most 64);
 * part 0 runs in the caller, as do those for which no thread can be had. */
void sw_memory_parallel(
    unsigned threads, void (*run)(unsigned i, unsigned n, void *arg), void *arg);

/* Gives freed heap back to the system, where the C library keeps it. Milliseconds; any thread. */
void sw_memory_trim(void);

#endif
