/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mapping.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/error.h"

/* What the signal handler looks at: slots are never freed, so that it needs no lock. */
static struct slot {
    atomic_uintptr_t base; /* 0 = free */
    atomic_size_t bytes;
    atomic_bool damaged;
} slots[SW_MAPPINGS_MAX];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed; /* under the lock */
static struct sigaction previous;
static size_t page_bytes;

/* Zero pages from the fault to the end of its mapping. Only system calls here. */
static bool patch(uintptr_t address)
{
    for (int i = 0; i < SW_MAPPINGS_MAX; i++) {
        const uintptr_t base = atomic_load(&slots[i].base);
        const size_t bytes = atomic_load(&slots[i].bytes);
        if (!base || address < base || address - base >= bytes)
            continue;
        const uintptr_t from = address & ~(uintptr_t)(page_bytes - 1);
        atomic_store(&slots[i].damaged, true);
        return mmap((void *)from, base + bytes - from, PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    return false;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    const int saved = errno;

    if (!patch((uintptr_t)info->si_addr)) {
        if (previous.sa_flags & SA_SIGINFO && previous.sa_sigaction)
            previous.sa_sigaction(sig, info, context);
        else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
            previous.sa_handler(sig);
        else
            sigaction(SIGBUS, &previous, NULL); /* the same fault comes again, and ends us */
    }
    errno = saved;
}

static int install(struct sw_error *e)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

    if (installed)
        return 0;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &previous) < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "install a handler for SIGBUS");
    installed = true;
    return 0;
}

static int take_slot(
    const char *path, const void *base, size_t bytes, int *slot, struct sw_error *e)
{
    int code;

    pthread_mutex_lock(&slots_lock);
    code = install(e);
    for (int i = 0; !code && i < SW_MAPPINGS_MAX; i++) {
        if (atomic_load(&slots[i].base))
            continue;
        atomic_store(&slots[i].damaged, false);
        atomic_store(&slots[i].bytes, bytes);
        atomic_store(&slots[i].base, (uintptr_t)base);
        pthread_mutex_unlock(&slots_lock);
        *slot = i;
        return 0;
    }
    pthread_mutex_unlock(&slots_lock);
    if (code)
        return code;
    return sw_fail(e, SW_ERR_LIMIT, "%s: more than %d files mapped", path, SW_MAPPINGS_MAX);
}

int sw_mapping_open(int fd, const char *path, struct sw_mapping *m, struct sw_error *e)
{
    struct sw_mapping new = {.slot = -1};
    void *base;
    int code;

    if (fstat(fd, &new.before) < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "%s: fstat", path);
    new.bytes = (uint64_t) new.before.st_size;
    if (new.bytes) {
        base = mmap(NULL, new.bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED)
            return sw_fail_errno(
                e, SW_ERR_IO, errno, "%s: map %llu bytes", path, (unsigned long long)new.bytes);
        code = take_slot(path, base, new.bytes, &new.slot, e);
        if (code) {
            munmap(base, new.bytes);
            return code;
        }
        new.base = base;
    }
    *m = new;
    return 0;
}

int sw_mapping_check(const struct sw_mapping *m, int fd, const char *path, struct sw_error *e)
{
    struct stat now;

    if (fstat(fd, &now) < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "%s: fstat", path);
    if (now.st_size != m->before.st_size)
        return sw_fail(e, SW_ERR_IO,
            "%s changed while it was read: %lld bytes before, %lld now; write checkpoints to a new "
            "folder and rename it",
            path, (long long)m->before.st_size, (long long)now.st_size);
    if (m->slot >= 0 && atomic_load(&slots[m->slot].damaged))
        return sw_fail(e, SW_ERR_IO,
            "%s: a part could not be read (the disk failed, or the file was cut short for a "
            "moment)",
            path);
    if (now.st_mtim.tv_sec != m->before.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != m->before.st_mtim.tv_nsec)
        return sw_fail(e, SW_ERR_IO,
            "%s was written to while it was read; write checkpoints to a new folder and rename it",
            path);
    return 0;
}

void sw_mapping_close(struct sw_mapping *m)
{
    if (!m->base)
        return;
    atomic_store(&slots[m->slot].base, 0);
    munmap((void *)(uintptr_t)m->base, m->bytes);
    m->base = NULL;
    m->slot = -1;
}
