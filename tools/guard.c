/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "common/error.h"
#include "tools/jobs.h"

#define BLOCK (1u << 20)
#define NO_BLOCK UINT64_MAX

struct block {
    const uint8_t *data;
    uint32_t bytes;
    bool known; /* `hash` is what it must be */
    uint64_t hash;
};

struct sw_guard {
    const struct sw_weights *weights;
    unsigned threads;
    uint32_t interval_ms;
    int fd;
    size_t n_blocks;
    struct block *blocks; /* the thread's, and resume's while it is paused */
    char (*hex)[65];
    size_t *order; /* weights, largest first */
    atomic_uint_fast64_t rounds;
    atomic_bool halt; /* stop reading soon */
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t wake, idle;
    bool paused, busy, quit;
    bool wanted; /* digests */
    bool dead;   /* a change was seen: no more checking */
    uint64_t version;
    struct timespec due; /* the next round */
    struct sw_guard_report changed, digests;
};

static void tell(struct sw_guard *g)
{
    const uint64_t one = 1;

    if (write(g->fd, &one, sizeof(one)) < 0) /* only a full counter fails: it is readable then */
        return;
}

/* One round; the number of the first block that changed, or NO_BLOCK. */
static uint64_t check_blocks(struct sw_guard *g)
{
    for (size_t i = 0; i < g->n_blocks && !atomic_load(&g->halt); i++) {
        struct block *b = &g->blocks[i];
        const uint64_t hash = XXH3_64bits(b->data, b->bytes);
        if (b->known && b->hash != hash)
            return i;
        b->hash = hash;
        b->known = true;
    }
    return NO_BLOCK;
}

static int digest_weight(size_t i, void *arg, struct sw_error *e)
{
    struct sw_guard *g = arg;
    const size_t number = g->order[i];
    const struct sw_weight *w = &g->weights->items[number];
    EVP_MD_CTX *context;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    bool ok;

    if (w->same_as != number)
        return 0;
    context = EVP_MD_CTX_new();
    ok = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL);
    for (uint64_t at = 0; ok && at < w->bytes && !atomic_load(&g->halt); at += BLOCK)
        ok = EVP_DigestUpdate(context, w->data + at, w->bytes - at < BLOCK ? w->bytes - at : BLOCK);
    ok = ok && EVP_DigestFinal_ex(context, digest, &n);
    EVP_MD_CTX_free(context);
    if (!ok)
        return sw_fail(e, SW_ERR_NOMEM, "SHA-256 of %s failed", w->name);
    for (unsigned k = 0; k < n && k < 32; k++)
        snprintf(g->hex[number] + 2 * k, 3, "%02x", digest[k]);
    return 0;
}

static int digest_all(struct sw_guard *g, struct sw_error *e)
{
    const int code = sw_jobs_run(g->threads, g->weights->n, digest_weight, g, e);

    for (size_t i = 0; !code && i < g->weights->n; i++)
        if (g->weights->items[i].same_as != i)
            memcpy(g->hex[i], g->hex[g->weights->items[i].same_as], sizeof(g->hex[i]));
    return code;
}

/* Waits until there is something to do; false = the end. The lock is held. */
static bool wait_for_work(struct sw_guard *g)
{
    bool due = false;

    while (!g->quit) {
        const bool checks = g->interval_ms && !g->dead && !g->paused;
        if (g->wanted && !g->paused)
            return true;
        if (due && checks) /* the lock was open meanwhile: all conditions anew */
            return true;
        due = false;
        if (checks)
            due = pthread_cond_timedwait(&g->wake, &g->lock, &g->due) == ETIMEDOUT;
        else
            pthread_cond_wait(&g->wake, &g->lock);
    }
    return false;
}

static void set_due(struct sw_guard *g, uint32_t in_ms)
{
    clock_gettime(CLOCK_MONOTONIC, &g->due);
    g->due.tv_sec += in_ms / 1000;
    g->due.tv_nsec += (long)(in_ms % 1000) * 1000000;
    if (g->due.tv_nsec >= 1000000000) {
        g->due.tv_sec++;
        g->due.tv_nsec -= 1000000000;
    }
}

/* Both are called without the lock while `busy` is set, and come back with it. */
static void do_digests(struct sw_guard *g)
{
    struct sw_error e = {0};
    const int code = digest_all(g, &e);

    pthread_mutex_lock(&g->lock);
    if (atomic_load(&g->halt)) /* again after resume */
        return;
    g->wanted = false;
    g->digests = (struct sw_guard_report){.news = code ? SW_GUARD_FAILED : SW_GUARD_DIGESTS,
        .version = g->version,
        .hex = (const char(*)[65])g->hex,
        .error = e};
    tell(g);
}

static void do_check(struct sw_guard *g)
{
    const uint64_t bad = check_blocks(g);

    pthread_mutex_lock(&g->lock);
    set_due(g, g->interval_ms);
    if (bad == NO_BLOCK) {
        if (!atomic_load(&g->halt))
            atomic_fetch_add(&g->rounds, 1);
        return;
    }
    g->dead = true;
    g->changed = (struct sw_guard_report){
        .news = SW_GUARD_CHANGED, .bytes = g->blocks[bad].bytes, .version = g->version};
    for (size_t i = 0; i < g->weights->n_regions; i++) {
        const struct sw_weight_region *r = &g->weights->regions[i];
        if (g->blocks[bad].data >= r->base && g->blocks[bad].data < r->base + r->bytes) {
            g->changed.region = i;
            g->changed.offset = (uint64_t)(g->blocks[bad].data - r->base);
        }
    }
    tell(g);
}

static void *run(void *arg)
{
    struct sw_guard *g = arg;

    pthread_mutex_lock(&g->lock);
    while (wait_for_work(g)) {
        const bool digests = g->wanted;
        g->busy = true;
        pthread_mutex_unlock(&g->lock);
        if (digests)
            do_digests(g);
        else
            do_check(g);
        g->busy = false;
        pthread_cond_broadcast(&g->idle);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static int make_blocks(struct sw_guard *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->weights->n_regions; i++)
        n += (g->weights->regions[i].bytes + BLOCK - 1) / BLOCK;
    g->blocks = calloc(n + 1, sizeof(*g->blocks));
    if (!g->blocks)
        return -1;
    for (size_t i = 0; i < g->weights->n_regions; i++) {
        const struct sw_weight_region *r = &g->weights->regions[i];
        for (uint64_t at = 0; at < r->bytes; at += BLOCK) {
            struct block *b = &g->blocks[g->n_blocks++];
            b->data = r->base + at;
            b->bytes = r->bytes - at < BLOCK ? (uint32_t)(r->bytes - at) : BLOCK;
        }
    }
    return 0;
}

static int larger_first(const void *a, const void *b, void *arg)
{
    const struct sw_weights *w = arg;
    const uint64_t x = w->items[*(const size_t *)a].bytes, y = w->items[*(const size_t *)b].bytes;

    return x > y ? -1 : x < y;
}

static int make_order(struct sw_guard *g)
{
    const size_t n = g->weights->n;

    g->hex = calloc(n + 1, sizeof(*g->hex));
    g->order = calloc(n + 1, sizeof(*g->order));
    if (!g->hex || !g->order)
        return -1;
    for (size_t i = 0; i < n; i++)
        g->order[i] = i;
    qsort_r(g->order, n, sizeof(*g->order), larger_first, (void *)(uintptr_t)g->weights);
    return 0;
}

int sw_guard_new(const struct sw_weights *weights, unsigned threads, uint32_t interval_ms,
    struct sw_guard **guard, struct sw_error *e)
{
    struct sw_guard *g = calloc(1, sizeof(*g));
    pthread_condattr_t monotonic;

    if (!g)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a guard");
    g->weights = weights;
    g->threads = threads;
    g->interval_ms = interval_ms;
    g->paused = true;
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->wake, &monotonic);
    pthread_cond_init(&g->idle, NULL);
    pthread_condattr_destroy(&monotonic);
    g->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->fd >= 0 && make_blocks(g) == 0 && make_order(g) == 0)
        g->started = pthread_create(&g->thread, NULL, run, g) == 0;
    if (!g->started) {
        sw_guard_free(g);
        return sw_fail(e, SW_ERR_NOMEM, "no memory, descriptor or thread for a guard");
    }
    *guard = g;
    return 0;
}

void sw_guard_free(struct sw_guard *g)
{
    if (!g)
        return;
    if (g->started) {
        pthread_mutex_lock(&g->lock);
        g->quit = true;
        atomic_store(&g->halt, true);
        pthread_cond_broadcast(&g->wake);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    if (g->fd >= 0)
        close(g->fd);
    pthread_cond_destroy(&g->wake);
    pthread_cond_destroy(&g->idle);
    pthread_mutex_destroy(&g->lock);
    free(g->blocks);
    free(g->hex);
    free(g->order);
    free(g);
}

void sw_guard_pause(struct sw_guard *g)
{
    pthread_mutex_lock(&g->lock);
    g->paused = true;
    atomic_store(&g->halt, true);
    while (g->busy)
        pthread_cond_wait(&g->idle, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void sw_guard_resume(struct sw_guard *g, uint64_t version, bool changed)
{
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; changed && g->paused && i < g->n_blocks; i++)
        g->blocks[i].known = false;
    g->paused = false;
    g->version = version;
    atomic_store(&g->rounds, 0);
    atomic_store(&g->halt, false);
    set_due(g, 0);
    pthread_cond_broadcast(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

void sw_guard_request(struct sw_guard *g)
{
    pthread_mutex_lock(&g->lock);
    g->wanted = true;
    pthread_cond_broadcast(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

uint64_t sw_guard_rounds(const struct sw_guard *g)
{
    return atomic_load(&g->rounds);
}

int sw_guard_fd(const struct sw_guard *g)
{
    return g->fd;
}

void sw_guard_take(struct sw_guard *g, struct sw_guard_report *report)
{
    struct sw_guard_report *next;
    uint64_t count;

    pthread_mutex_lock(&g->lock);
    next = g->changed.news ? &g->changed : &g->digests;
    *report = *next;
    *next = (struct sw_guard_report){0};
    if (!g->changed.news && !g->digests.news && read(g->fd, &count, sizeof(count)) < 0)
        count = 0; /* nothing had been told */
    pthread_mutex_unlock(&g->lock);
}
