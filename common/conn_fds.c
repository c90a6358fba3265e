/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conn_fds.h"

#include <string.h>
#include <unistd.h>

#include "common/error.h"

/* Frames that have begun. */
static uint64_t begun(const struct sw_fd_queue *q)
{
    return q->done + (q->partial ? 1 : 0);
}

void sw_fd_queue_arrive(struct sw_fd_queue *q, const int *fds, uint32_t n)
{
    struct sw_fd_batch *batch = &q->fresh;

    batch->n = n;
    memcpy(batch->fds, fds, n * sizeof(*fds));
    batch->after = begun(q);
    batch->last = UINT64_MAX; /* known when the bytes were fed */
}

int sw_fd_queue_frame(struct sw_fd_queue *q, uint32_t n_fds, struct sw_msg *msg, struct sw_error *e)
{
    struct sw_fd_batch *batch = q->old.n ? &q->old : &q->fresh;

    q->done++;
    q->partial = false;
    if (n_fds == 0)
        return 0;
    if (batch->n != n_fds || q->done <= batch->after || q->done > batch->last)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "message %s says that %u descriptors are with it, and %u are there",
            sw_msg_kind_name(msg->kind), n_fds, batch->n);
    memcpy(msg->fds, batch->fds, n_fds * sizeof(msg->fds[0]));
    msg->n_fds = n_fds;
    batch->n = 0;
    return 0;
}

int sw_fd_queue_fed(struct sw_fd_queue *q, bool partial, struct sw_error *e)
{
    q->partial = partial;
    if (q->fresh.n) {
        if (q->old.n || begun(q) == q->fresh.after)
            return sw_fail(e, SW_ERR_PROTOCOL, "descriptors came in the middle of a message");
        q->old = q->fresh;
        q->old.last = begun(q);
        q->fresh.n = 0;
    }
    if (q->old.n && q->done >= q->old.last)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "%u descriptors came, and no message says that they are with it", q->old.n);
    return 0;
}

bool sw_fd_queue_empty(const struct sw_fd_queue *q)
{
    return !q->old.n && !q->fresh.n;
}

static void batch_close(struct sw_fd_batch *batch)
{
    for (uint32_t i = 0; i < batch->n; i++)
        close(batch->fds[i]);
    batch->n = 0;
}

void sw_fd_queue_clear(struct sw_fd_queue *q)
{
    batch_close(&q->old);
    batch_close(&q->fresh);
}
