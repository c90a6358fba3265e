/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport/window.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"

struct sw_window {
    pthread_rwlock_t lock; /* readers: inside the window; writer: opens or closes it */
    bool open;             /* under lock */
    struct sw_id id;       /* under lock: open now, or the last one */
    atomic_uint_fast64_t placed;
    uint32_t n_regions, n_runs;
    struct sw_port_region *regions;
    struct sw_run *runs;
};

static int init_lock(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attr;
    int err = pthread_rwlockattr_init(&attr);

    if (err)
        return err;
    /* The default prefers readers: streaming connections could keep a closer waiting for ever. */
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    err = pthread_rwlock_init(lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    return err;
}

int sw_window_new(const struct sw_port_spec *spec, struct sw_window **out, struct sw_error *e)
{
    struct sw_window *w = calloc(1, sizeof(*w));

    if (!w)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a write window");
    w->regions = calloc(spec->n_regions + 1ul, sizeof(*w->regions));
    w->runs = calloc(spec->n_runs + 1ul, sizeof(*w->runs));
    if (!w->regions || !w->runs || init_lock(&w->lock)) {
        free(w->regions);
        free(w->runs);
        free(w);
        return sw_fail(
            e, SW_ERR_NOMEM, "no memory for a write window of %" PRIu32 " runs", spec->n_runs);
    }
    w->n_regions = spec->n_regions;
    w->n_runs = spec->n_runs;
    if (spec->n_regions)
        memcpy(w->regions, spec->regions, spec->n_regions * sizeof(*w->regions));
    if (spec->n_runs)
        memcpy(w->runs, spec->runs, spec->n_runs * sizeof(*w->runs));
    *out = w;
    return 0;
}

void sw_window_free(struct sw_window *w)
{
    if (!w)
        return;
    pthread_rwlock_destroy(&w->lock);
    free(w->regions);
    free(w->runs);
    free(w);
}

int sw_window_open(struct sw_window *w, const struct sw_id *id, struct sw_error *e)
{
    int rc = 0;

    pthread_rwlock_wrlock(&w->lock);
    if (w->open)
        rc = sw_fail(e, SW_ERR_STATE, "the write window is open already");
    else if (sw_id_is_none(id))
        rc = sw_fail(e, SW_ERR_INVALID, "a write window needs an id");
    else if (sw_id_equal(&w->id, id))
        rc = sw_fail(e, SW_ERR_STATE, "this write window was open before: its id is used up");
    if (!rc) {
        w->open = true;
        w->id = *id;
        atomic_store_explicit(&w->placed, 0, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&w->lock);
    return rc;
}

uint64_t sw_window_close(struct sw_window *w)
{
    uint64_t placed;

    pthread_rwlock_wrlock(&w->lock); /* waits for those inside */
    w->open = false;
    placed = atomic_load_explicit(&w->placed, memory_order_relaxed);
    pthread_rwlock_unlock(&w->lock);
    return placed;
}

bool sw_window_enter(struct sw_window *w, const struct sw_id *id)
{
    /* A lock that cannot be had (too many readers) keeps out: never the other way round. */
    if (pthread_rwlock_rdlock(&w->lock))
        return false;
    if (w->open && sw_id_equal(&w->id, id))
        return true;
    pthread_rwlock_unlock(&w->lock);
    return false;
}

void sw_window_leave(struct sw_window *w, uint64_t placed)
{
    if (placed)
        atomic_fetch_add_explicit(&w->placed, placed, memory_order_relaxed);
    pthread_rwlock_unlock(&w->lock);
}

bool sw_window_is_open(struct sw_window *w, const struct sw_id *id)
{
    if (!sw_window_enter(w, id))
        return false;
    sw_window_leave(w, 0);
    return true;
}

int sw_window_check(const struct sw_window *w, uint32_t region, uint64_t offset, uint64_t length,
    struct sw_error *e)
{
    if (region >= w->n_regions) {
        return sw_fail(
            e, SW_ERR_INVALID, "region %" PRIu32 " of %" PRIu32 " regions", region, w->n_regions);
    }
    if (length == 0)
        return sw_fail(e, SW_ERR_INVALID, "an extent of 0 bytes in region %" PRIu32, region);
    if (sw_range_exceeds(offset, length, w->regions[region].bytes)) {
        return sw_fail(e, SW_ERR_INVALID,
            "%" PRIu64 " bytes at %" PRIu64 " of region %" PRIu32 ", which has %" PRIu64 " bytes",
            length, offset, region, w->regions[region].bytes);
    }
    if (!sw_runs_contain(w->runs, w->n_runs, region, offset, length)) {
        return sw_fail(e, SW_ERR_INVALID,
            "%" PRIu64 " bytes at %" PRIu64 " of region %" PRIu32
            " are not all bytes of declared parameters",
            length, offset, region);
    }
    return 0;
}

void *sw_window_at(const struct sw_window *w, uint32_t region, uint64_t offset)
{
    return (uint8_t *)w->regions[region].base + offset;
}
