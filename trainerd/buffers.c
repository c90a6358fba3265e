/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica buffers are made on a worker thread: populating takes seconds for each 10 GB. What is
 * replaced is dropped first, so that the memory of two is enough (readers keep theirs until they
 * are done), unless live tiles must be copied out of it. One at a time: each checks for itself
 * whether there is memory enough, and each uses several threads.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/internal.h"

struct allocation {
    struct allocation *next; /* asked for later */
    uv_work_t work;
    struct sw_trainerd *d;
    struct sw_replica_buffer_spec spec;
    bool copy;
    struct sw_replica_buffer *old; /* held; live tiles are copied from it */
    struct sw_replica_buffer *made;
    struct sw_error error;
};

static void start_next(struct sw_trainerd *d);

static void on_worker(uv_work_t *work)
{
    struct allocation *a = work->data;

    if (!sw_replica_buffer_create(&a->spec, &a->made, &a->error) && a->old)
        sw_replica_buffer_copy(a->made, a->old);
}

static bool is_wanted(const struct allocation *a)
{
    return sw_host_wants(a->d->host, a->spec.rank, a->spec.index, a->spec.generation);
}

static void answer(struct allocation *a, int code)
{
    struct sw_host_event event = {.kind = SW_HOST_ALLOCATED,
        .rank = a->spec.rank,
        .buffer = a->spec.index,
        .generation = a->spec.generation,
        .code = code,
        .text = a->error.text};

    trainerd_event(a->d, &event);
}

/* The first allocation is done: its buffer takes its place, unless another one was asked for since,
 * or the rank is gone. */
static void finish(struct sw_trainerd *d, struct allocation *a, int code)
{
    const bool wanted = is_wanted(a);

    d->allocations = a->next;
    sw_replica_buffer_release(a->old);
    if (!code && wanted)
        code = sw_replica_put(d->replica, a->made, &a->error);
    if (code || !wanted)
        sw_replica_buffer_release(a->made);
    if (!d->closing && wanted)
        answer(a, code);
    free(a);
}

static void on_done(uv_work_t *work, int status)
{
    struct allocation *a = work->data;
    struct sw_trainerd *d = a->d;

    d->allocating = false;
    finish(d, a, status ? SW_ERR_ABORTED : a->error.code);
    start_next(d);
    trainerd_finish(d);
}

static void start_next(struct sw_trainerd *d)
{
    struct allocation *a;

    while (!d->allocating && (a = d->allocations) != NULL) {
        struct sw_replica_buffer *old = sw_replica_get(d->replica, a->spec.rank, a->spec.index);

        if (!is_wanted(a) || d->closing) {
            finish(d, a, SW_ERR_ABORTED);
            continue;
        }
        if (old && a->copy) {
            sw_replica_buffer_hold(old);
            a->old = old;
        }
        d->allocating = uv_queue_work(d->loop, &a->work, on_worker, on_done) == 0;
        if (!d->allocating)
            finish(d, a, sw_fail(&a->error, SW_ERR_IO, "no worker thread for an allocation"));
    }
}

void buffers_allocate(struct sw_trainerd *d, const struct sw_host_action *act)
{
    struct allocation *a = calloc(1, sizeof(*a)), **at = &d->allocations;

    if (!a) {
        struct allocation none = {.d = d,
            .spec = {.rank = act->rank, .index = act->buffer, .generation = act->generation}};

        sw_fail(&none.error, SW_ERR_NOMEM, "trainerd is out of memory");
        answer(&none, SW_ERR_NOMEM);
        return;
    }
    a->work.data = a;
    a->d = d;
    a->copy = act->copy;
    a->spec = (struct sw_replica_buffer_spec){.rank = act->rank,
        .index = act->buffer,
        .generation = act->generation,
        .bytes = act->bytes,
        .counter_bytes = act->counter_bytes,
        .maxima_bytes = act->maxima_bytes,
        .huge = d->config->huge_pages,
        .threads = d->config->populate_threads};
    if (!a->copy)
        sw_replica_drop(d->replica, act->rank, act->buffer);
    while (*at)
        at = &(*at)->next;
    *at = a;
    start_next(d);
}
