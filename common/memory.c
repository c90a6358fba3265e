/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memfds: pages are allocated while the caller can still be told that there are none. A page that
 * is missing later would be a SIGBUS in whoever touches it, so sizes are compared with what the
 * system and the cgroup have left, then every page is made with fallocate, which returns an error
 * where a plain touch would kill. Mappings are filled with MADV_POPULATE for the same reason.
 */
#include "common/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/copy.h"
#include "common/error.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define THREADS_MAX 64u
#define COPY_PART_MIN (1u << 20)      /* less than this is not worth a thread */
#define POPULATE_PART_MIN (32u << 20) /* likewise for page faults */
#define HUGE_PAGE (2ull << 20)
#define RESERVE_PIECE (256ull << 20)

/* ---- parallel parts ---- */

struct part {
    void (*run)(unsigned i, unsigned n, void *arg);
    void *arg;
    unsigned i, n;
};

static void *part_main(void *arg)
{
    struct part *p = arg;

    p->run(p->i, p->n, p->arg);
    return NULL;
}

void sw_memory_parallel(unsigned threads, void (*run)(unsigned i, unsigned n, void *arg), void *arg)
{
    pthread_t id[THREADS_MAX];
    struct part part[THREADS_MAX];
    unsigned n = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    bool started[THREADS_MAX] = {false};
    sigset_t all, old;

    sigfillset(&all); /* signals are the program's affair, not that of a helper thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (unsigned i = 1; i < n; i++) {
        part[i] = (struct part){run, arg, i, n};
        started[i] = pthread_create(&id[i], NULL, part_main, &part[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    run(0, n, arg);
    for (unsigned i = 1; i < n; i++) {
        if (started[i])
            pthread_join(id[i], NULL);
        else
            run(i, n, arg);
    }
}

/* At most one thread for each `least` bytes. */
static unsigned threads_for(uint64_t bytes, uint64_t least, unsigned threads)
{
    const uint64_t useful = bytes / least;

    if (useful < 1 || threads < 1)
        return 1;
    return useful < threads ? (unsigned)useful : threads;
}

/* Part i of n of [0, bytes), cut at multiples of `align`. */
static void part_of(
    uint64_t bytes, uint64_t align, unsigned i, unsigned n, uint64_t *from, uint64_t *to)
{
    const uint64_t step = (bytes / n + align - 1) / align * align;

    *from = step * i < bytes ? step * i : bytes;
    *to = i + 1 == n || step * (i + 1) > bytes ? bytes : step * (i + 1);
}

/* ---- how much is left ---- */

/* The number after `key` in a file of "key number" lines; the first number for key NULL. */
static bool read_number(const char *path, const char *key, uint64_t *value)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");

    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        const char *p = line;
        char *end;

        if (key) {
            if (strncmp(line, key, strlen(key)) != 0)
                continue;
            p += strlen(key);
        }
        errno = 0;
        *value = strtoull(p, &end, 10);
        found = end != p && errno == 0;
        if (!key)
            break;
    }
    fclose(f);
    return found;
}

/* What one cgroup leaves free; UINT64_MAX without a limit. Its page cache can be had back. */
static uint64_t cgroup_room(const char *dir)
{
    char path[PATH_MAX + 32];
    uint64_t max, current, cache;

    snprintf(path, sizeof(path), "%s/memory.max", dir);
    if (!read_number(path, NULL, &max))
        return UINT64_MAX; /* "max", or no such controller */
    snprintf(path, sizeof(path), "%s/memory.current", dir);
    if (!read_number(path, NULL, &current))
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    if (read_number(path, "inactive_file ", &cache))
        current -= cache < current ? cache : current;
    return current < max ? max - current : 0;
}

/* The tightest limit on the way from our own cgroup (version 2) to the root. */
static uint64_t cgroup_available(void)
{
    char line[PATH_MAX - 64], dir[PATH_MAX];
    uint64_t least = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool found = false;

    if (!f)
        return UINT64_MAX;
    while (!found && fgets(line, sizeof(line), f))
        found = strncmp(line, "0::/", 4) == 0;
    fclose(f);
    if (!found)
        return UINT64_MAX;
    line[strcspn(line, "\n")] = '\0';
    for (char *path = line + 3;;) {
        char *slash;
        uint64_t room;

        snprintf(dir, sizeof(dir), "/sys/fs/cgroup%s", path);
        room = cgroup_room(dir);
        least = room < least ? room : least;
        slash = strrchr(path, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

static int check_available(const char *name, uint64_t bytes, struct sw_error *e)
{
    uint64_t system = 0, cgroup = cgroup_available(), available;

    if (read_number("/proc/meminfo", "MemAvailable:", &system))
        system *= 1024;
    else
        system = UINT64_MAX;
    available = system < cgroup ? system : cgroup;
    if (bytes <= available)
        return 0;
    return sw_fail(e, SW_ERR_NOMEM,
        "%s: %" PRIu64 " bytes of memory asked for, %" PRIu64 " available (%s)", name, bytes,
        available, system < cgroup ? "MemAvailable" : "limit of the cgroup");
}

/* ---- populate ---- */

struct populate {
    uint8_t *base;
    uint64_t bytes;
    uint64_t page;
    bool writable;
    int error[THREADS_MAX]; /* errno of each part */
};

/* Kernels before 5.14. Adding nothing is a write that cannot harm anybody else's. */
static void touch(struct populate *p, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += p->page) {
        if (p->writable)
            __atomic_fetch_or(p->base + at, 0, __ATOMIC_RELAXED);
        else
            (void)__atomic_load_n(p->base + at, __ATOMIC_RELAXED);
    }
}

static void populate_part(unsigned i, unsigned n, void *arg)
{
    struct populate *p = arg;
    uint64_t from, to;
    int advice = p->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

    part_of(p->bytes, HUGE_PAGE, i, n, &from, &to);
    if (from == to)
        return;
    to = (to + p->page - 1) / p->page * p->page;
    while (madvise(p->base + from, to - from, advice) != 0) {
        if (errno == EINTR)
            continue;
        p->error[i] = errno;
        return;
    }
}

/* 0 or an errno. `allocated`: the pages are there, so that touching them cannot fail. */
static int populate(
    void *base, uint64_t bytes, uint64_t page, bool writable, bool allocated, unsigned threads)
{
    struct populate p = {.base = base, .bytes = bytes, .page = page, .writable = writable};
    int err = 0;

    sw_memory_parallel(threads_for(bytes, POPULATE_PART_MIN, threads), populate_part, &p);
    for (unsigned i = 0; i < THREADS_MAX && !err; i++)
        err = p.error[i];
    if (err == EINVAL && allocated) {
        touch(&p, 0, bytes);
        return 0;
    }
    return err;
}

/* ---- memfds ---- */

/* In pieces, so that a signal does not start it all over. 0 or an errno. */
static int reserve(int fd, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t n = bytes - at < RESERVE_PIECE ? bytes - at : RESERVE_PIECE;

        if (fallocate(fd, 0, (off_t)at, (off_t)n) == 0)
            at += n;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

static int populate_holes(int fd, uint64_t bytes, uint64_t page, unsigned threads)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int err;

    if (base == MAP_FAILED)
        return errno;
    err = populate(base, bytes, page, true, false, threads);
    munmap(base, bytes);
    return err;
}

/*
 * Whoever uses the memory maps it anyway: taking small pages by fallocate, and clearing them when
 * they are first mapped, costs half of mapping them twice. fallocate clears huge pages itself, with
 * one thread: those are populated, which is quick to do again.
 */
static int allocate_pages(int fd, uint64_t bytes, bool huge, uint64_t page, unsigned threads)
{
    int err = huge ? populate_holes(fd, bytes, page, threads) : EINVAL;

    if (err == EINVAL)
        err = reserve(fd, bytes);
    return err == EFAULT || err == ENOSPC ? ENOMEM : err;
}

/* One try with one page size. 0 or an errno; *fd on success. */
static int create_with(
    const char *name, uint64_t bytes, bool huge, uint64_t page, unsigned threads, int *fd)
{
    const uint64_t whole = (bytes + page - 1) / page * page;
    int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0));
    int err = 0;

    if (made < 0)
        return errno;
    if (fchmod(made, 0600) != 0 || ftruncate(made, (off_t)whole) != 0)
        err = errno;
    if (!err)
        err = allocate_pages(made, whole, huge, page, threads);
    if (!err && fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        err = errno;
    if (err) {
        close(made);
        return err;
    }
    *fd = made;
    return 0;
}

static uint64_t huge_page_bytes(void)
{
    uint64_t kib;

    return read_number("/proc/meminfo", "Hugepagesize:", &kib) && kib ? kib * 1024 : HUGE_PAGE;
}

int sw_memory_create(const char *name, uint64_t bytes, bool huge, unsigned threads, int *fd,
    struct sw_memory_info *info, struct sw_error *e)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t free_pages = 0, huge_page;
    int err;

    if (bytes == 0)
        return sw_fail(e, SW_ERR_INVALID, "%s: 0 bytes of memory asked for", name);
    if (huge && read_number("/proc/meminfo", "HugePages_Free:", &free_pages)) {
        huge_page = huge_page_bytes();
        if (bytes / huge_page < free_pages &&
            create_with(name, bytes, true, huge_page, threads, fd) == 0) {
            if (info)
                info->huge = true;
            return 0;
        }
    }
    if (check_available(name, bytes, e))
        return SW_ERR_NOMEM;
    err = create_with(name, bytes, false, page, threads, fd);
    if (err == ENOMEM) {
        return sw_fail(e, SW_ERR_NOMEM,
            "%s: %" PRIu64 " bytes of memory asked for, and the system has not that many", name,
            bytes);
    }
    if (err) {
        return sw_fail_errno(
            e, SW_ERR_IO, err, "%s: making a memfd of %" PRIu64 " bytes", name, bytes);
    }
    if (info)
        info->huge = false;
    return 0;
}

int sw_memory_reopen_readonly(int fd, int *readonly, struct sw_error *e)
{
    char path[64];
    int opened;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "opening %s read-only (is /proc mounted?)", path);
    *readonly = opened;
    return 0;
}

int sw_memory_check(int fd, uint64_t min_bytes, bool writable, uint64_t *bytes, struct sw_error *e)
{
    const int flags = fcntl(fd, F_GETFL), seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (flags < 0 || fstat(fd, &st) != 0)
        return sw_fail_errno(e, SW_ERR_INVALID, errno, "descriptor %d", fd);
    if (seals < 0 || !S_ISREG(st.st_mode))
        return sw_fail(e, SW_ERR_INVALID, "the descriptor is no memfd");
    if (!(seals & F_SEAL_SHRINK))
        return sw_fail(e, SW_ERR_INVALID, "the memfd is not sealed against shrinking");
    if ((flags & O_ACCMODE) == O_WRONLY)
        return sw_fail(e, SW_ERR_INVALID, "the memfd is not open for reading");
    if (writable && (flags & O_ACCMODE) != O_RDWR)
        return sw_fail(e, SW_ERR_INVALID, "the memfd is not open for writing");
    if (writable && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
        return sw_fail(e, SW_ERR_INVALID, "the memfd is sealed against writing");
    if (st.st_size < 0 || (uint64_t)st.st_size < min_bytes) {
        return sw_fail(e, SW_ERR_INVALID, "the memfd has %lld bytes, %" PRIu64 " are needed",
            (long long)st.st_size, min_bytes);
    }
    if (bytes)
        *bytes = (uint64_t)st.st_size;
    return 0;
}

int sw_memory_map(int fd, uint64_t bytes, bool writable, enum sw_memory_fill fill, unsigned threads,
    void **base, struct sw_error *e)
{
    struct stat st;
    void *at;
    int err;

    if (bytes == 0)
        return sw_fail(e, SW_ERR_INVALID, "mapping of 0 bytes");
    if (fstat(fd, &st) != 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "descriptor %d", fd);
    at = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        err = errno;
        return sw_fail_errno(e, err == ENOMEM ? SW_ERR_NOMEM : SW_ERR_IO, err,
            "mapping %" PRIu64 " bytes of shared memory", bytes);
    }
    /* Shared memory has nothing to do at a first write: what a read mapped (sixteen pages at a
     * time, if they are there) can be written. */
    err = fill ? populate(at, bytes, (uint64_t)sysconf(_SC_PAGESIZE),
                     writable && fill == SW_FILL_NEW, true, threads)
               : 0;
    if (err) {
        sw_memory_unmap(at, bytes);
        return sw_fail_errno(e, err == ENOMEM ? SW_ERR_NOMEM : SW_ERR_IO, err,
            "touching %" PRIu64 " bytes of shared memory", bytes);
    }
    *base = at;
    return 0;
}

void sw_memory_unmap(void *base, uint64_t bytes)
{
    uint64_t huge;

    if (!base || munmap(base, bytes) == 0)
        return;
    /* The kernel rounded the length up when it mapped huge pages, and does not when unmapping. */
    huge = huge_page_bytes();
    munmap(base, (bytes + huge - 1) / huge * huge);
}

/* ---- copy ---- */

struct copy {
    uint8_t *dst;
    const uint8_t *src;
    size_t bytes;
};

static void copy_part(unsigned i, unsigned n, void *arg)
{
    const struct copy *c = arg;
    uint64_t from, to;

    part_of(c->bytes, 4096, i, n, &from, &to);
    sw_copy(c->dst + from, c->src + from, to - from);
}

void sw_memory_copy(void *dst, const void *src, size_t bytes, unsigned threads)
{
    struct copy c = {dst, src, bytes};

    if (bytes > 0)
        sw_memory_parallel(threads_for(bytes, COPY_PART_MIN, threads), copy_part, &c);
}

void sw_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
