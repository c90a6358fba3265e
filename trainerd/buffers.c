/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica buffers are made on a worker thread: populating takes seconds for each 10 GB. What is
 * replaced is dropped first, so that the memory of two is enough (readers keep theirs until they
 * are done), unless live tiles must be copied out of it.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/internal.h"

struct allocation {
    uv_work_t work;
    struct sw_trainerd *d;
    struct sw_replica_buffer_spec spec;
    struct sw_replica_buffer *old; /* held; live tiles are copied from it */
    struct sw_replica_buffer *made;
    struct sw_error error;
};

static void on_worker(uv_work_t *work)
{
    struct allocation *a = work->data;

    if (!sw_replica_buffer_create(&a->spec, &a->made, &a->error) && a->old)
        sw_replica_buffer_copy(a->made, a->old);
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

static void on_done(uv_work_t *work, int status)
{
    struct allocation *a = work->data;
    struct sw_trainerd *d = a->d;
    int code = status ? SW_ERR_ABORTED : a->error.code;

    d->allocations--;
    sw_replica_buffer_release(a->old);
    if (!code)
        code = sw_replica_put(d->replica, a->made, &a->error);
    if (code)
        sw_replica_buffer_release(a->made);
    if (!d->closing)
        answer(a, code);
    free(a);
    trainerd_finish(d);
}

void buffers_allocate(struct sw_trainerd *d, const struct sw_host_action *act)
{
    struct allocation *a = calloc(1, sizeof(*a));
    struct sw_replica_buffer *old = sw_replica_get(d->replica, act->rank, act->buffer);

    if (!a) {
        struct allocation none = {.d = d,
            .spec = {.rank = act->rank, .index = act->buffer, .generation = act->generation}};

        sw_fail(&none.error, SW_ERR_NOMEM, "trainerd is out of memory");
        answer(&none, SW_ERR_NOMEM);
        return;
    }
    a->work.data = a;
    a->d = d;
    a->spec = (struct sw_replica_buffer_spec){.rank = act->rank,
        .index = act->buffer,
        .generation = act->generation,
        .bytes = act->bytes,
        .counter_bytes = act->counter_bytes,
        .huge = d->config->huge_pages,
        .threads = d->config->populate_threads};
    if (old && act->copy) {
        sw_replica_buffer_hold(old);
        a->old = old;
    } else {
        sw_replica_drop(d->replica, act->rank, act->buffer);
    }
    d->allocations++;
    if (uv_queue_work(d->loop, &a->work, on_worker, on_done)) {
        sw_fail(&a->error, SW_ERR_IO, "no worker thread for an allocation");
        on_done(&a->work, UV_ECANCELED);
    }
}
