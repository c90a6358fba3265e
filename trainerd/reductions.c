/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maxima of FP8 blocks that several trainer ranks share are reduced in their buffers, on a
 * worker thread. The buffers are held meanwhile: what is replaced lives on until it is done.
 */
#include <stdlib.h>

#include "common/error.h"
#include "trainerd/internal.h"

struct reduction {
    uv_work_t work;
    struct sw_trainerd *d;
    uint64_t generation;
    struct sw_shares *shares;
    uint32_t n;                      /* ranks, from 0 on */
    struct sw_replica_buffer **held; /* by rank; NULL = not among them */
    float **maxima;
};

static void answer(struct sw_trainerd *d, uint64_t generation, const struct sw_error *why)
{
    struct sw_host_event event = {.kind = SW_HOST_REDUCED,
        .generation = generation,
        .code = why ? why->code : 0,
        .text = why ? why->text : NULL};

    if (!d->closing)
        trainerd_event(d, &event);
}

static void reduction_free(struct reduction *r)
{
    for (uint32_t i = 0; r->held && i < r->n; i++)
        sw_replica_buffer_release(r->held[i]);
    free(r->held);
    free(r->maxima);
    sw_shares_release(r->shares);
    free(r);
}

static void on_worker(uv_work_t *work)
{
    struct reduction *r = work->data;

    sw_shares_reduce(r->shares, r->maxima);
}

static void on_done(uv_work_t *work, int status)
{
    struct reduction *r = work->data;
    struct sw_trainerd *d = r->d;
    const uint64_t generation = r->generation;
    struct sw_error e = {0};

    reduction_free(r);
    d->reductions--;
    if (status)
        sw_fail(&e, SW_ERR_ABORTED, "the reduction of block maxima was cancelled");
    answer(d, generation, status ? &e : NULL);
    trainerd_finish(d);
}

/* Which of them there are, the machine knows: every rank whose maxima are of this version. */
static int hold_buffers(struct reduction *r, struct sw_error *e)
{
    r->n = sw_shares_ranks(r->shares);
    r->held = calloc((size_t)r->n + 1, sizeof(*r->held));
    r->maxima = calloc((size_t)r->n + 1, sizeof(*r->maxima));
    if (!r->held || !r->maxima)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to reduce block maxima");
    for (uint32_t i = 0; i < r->n; i++) {
        const int index = sw_host_maxima_buffer(r->d->host, i);
        struct sw_replica_buffer *b =
            index < 0 ? NULL : sw_replica_get(r->d->replica, i, (uint32_t)index);

        if (b && sw_replica_buffer_maxima(b)) {
            sw_replica_buffer_hold(b);
            r->held[i] = b;
            r->maxima[i] = sw_replica_buffer_maxima(b);
        }
    }
    return 0;
}

/* They passed the check against the plan; here against the memory that there is. */
static uint64_t held_maxima(uint32_t rank, void *arg)
{
    const struct reduction *r = arg;

    return r->held[rank] ? sw_replica_buffer_spec_of(r->held[rank])->maxima_bytes / sizeof(float)
                         : 0;
}

static int start(struct reduction *r, struct sw_error *e)
{
    int rc = hold_buffers(r, e);

    if (!rc)
        rc = sw_shares_check(r->shares, held_maxima, r, e);
    if (!rc && uv_queue_work(r->d->loop, &r->work, on_worker, on_done))
        rc = sw_fail(e, SW_ERR_IO, "no worker thread to reduce block maxima");
    return rc;
}

void reductions_start(struct sw_trainerd *d, struct sw_host_action *act)
{
    struct reduction *r = calloc(1, sizeof(*r));
    struct sw_error e = {0};

    if (!r) {
        sw_shares_release(act->shares);
        sw_fail(&e, SW_ERR_NOMEM, "trainerd is out of memory");
        answer(d, act->generation, &e);
        return;
    }
    r->work.data = r;
    r->d = d;
    r->generation = act->generation;
    r->shares = act->shares;
    if (start(r, &e)) {
        reduction_free(r);
        answer(d, act->generation, &e);
        return;
    }
    d->reductions++;
}
