/* SPDX-License-Identifier: Apache-2.0 */
#include "client/buffers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include "common/error.h"
#include "common/memory.h"
#include "common/program.h"

struct part { /* data, counters, or maxima */
    int fd;   /* -1 once it is mapped */
    uint64_t bytes;
    void *base; /* NULL until then */
};

struct buffer {
    bool there;
    uint64_t generation;
    struct part data, counters, maxima;
};

struct sw_buffers {
    struct buffer items[SW_BUFFERS];
};

struct sw_buffers *sw_buffers_new(void)
{
    return calloc(1, sizeof(struct sw_buffers));
}

static void drop_part(struct part *p)
{
    if (p->fd >= 0)
        close(p->fd);
    sw_memory_unmap(p->base, p->bytes);
    *p = (struct part){.fd = -1};
}

static void drop(struct buffer *b)
{
    if (!b->there)
        return;
    drop_part(&b->data);
    drop_part(&b->counters);
    drop_part(&b->maxima);
    b->there = false;
}

void sw_buffers_free(struct sw_buffers *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < SW_BUFFERS; i++)
        drop(&b->items[i]);
    free(b);
}

int sw_buffers_take(struct sw_buffers *b, struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_buffer *in = &msg->u.buffer;
    struct buffer *to;

    if (in->index >= SW_BUFFERS)
        return sw_fail(e, SW_ERR_PROTOCOL, "BUFFER %u; there are %d", in->index, SW_BUFFERS);
    if (msg->n_fds != (in->maxima_bytes ? 3 : 2))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "BUFFER %u came with %u descriptors instead of %d (data, counters%s)", in->index,
            msg->n_fds, in->maxima_bytes ? 3 : 2, in->maxima_bytes ? ", maxima" : "");
    if (!in->data_bytes || in->data_bytes > SW_BYTES_MAX || !in->counter_bytes ||
        in->counter_bytes > SW_BYTES_MAX || in->maxima_bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "BUFFER %u of %" PRIu64 " bytes with counters of %" PRIu64 " and maxima of %" PRIu64
            " bytes",
            in->index, in->data_bytes, in->counter_bytes, in->maxima_bytes);
    to = &b->items[in->index];
    drop(to);
    *to = (struct buffer){.there = true,
        .generation = in->generation,
        .data = {.fd = sw_msg_take_fd(msg, 0), .bytes = in->data_bytes},
        .counters = {.fd = sw_msg_take_fd(msg, 1), .bytes = in->counter_bytes},
        .maxima = {
            .fd = in->maxima_bytes ? sw_msg_take_fd(msg, 2) : -1, .bytes = in->maxima_bytes}};
    return 0;
}

static int map_part(
    struct part *p, const char *what, uint32_t index, unsigned threads, struct sw_error *e)
{
    int rc;

    if (p->base)
        return 0;
    rc = sw_memory_check(p->fd, p->bytes, true, NULL, e);
    if (!rc)
        rc = sw_memory_map(p->fd, p->bytes, true, SW_FILL_USED, threads, &p->base, e);
    if (rc)
        return sw_error_context(e, rc, "%s of buffer %u", what, index);
    close(p->fd); /* the mapping keeps the memory */
    p->fd = -1;
    return 0;
}

static int check_room(
    const struct buffer *b, uint32_t index, const struct sw_buffer_need *need, struct sw_error *e)
{
    const uint64_t counters = b->counters.bytes / sizeof(uint64_t);
    const uint64_t maxima = b->maxima.bytes / sizeof(float);

    if (b->data.bytes >= need->replica_bytes && counters >= need->n_tiles &&
        maxima >= need->n_maxima)
        return 0;
    return sw_fail(e, SW_ERR_PROTOCOL,
        "buffer %u (generation %" PRIu64 ") has %" PRIu64 " bytes and room for %" PRIu64
        " counters and %" PRIu64 " maxima; the plan needs %" PRIu64
        " bytes, %u counters and %" PRIu64 " maxima",
        index, b->generation, b->data.bytes, counters, maxima, need->replica_bytes, need->n_tiles,
        need->n_maxima);
}

int sw_buffers_use(struct sw_buffers *b, uint32_t index, const struct sw_buffer_need *need,
    unsigned threads, struct sw_buffer_memory *memory, struct sw_error *e)
{
    struct buffer *use = index < SW_BUFFERS ? &b->items[index] : NULL;
    int rc;

    if (!use || !use->there)
        return sw_fail(e, SW_ERR_PROTOCOL, "buffer %u is to be used, and never came", index);
    rc = check_room(use, index, need, e);
    if (!rc)
        rc = map_part(&use->data, "data", index, threads, e);
    if (!rc)
        rc = map_part(&use->counters, "counters", index, threads, e);
    if (!rc && need->n_maxima)
        rc = map_part(&use->maxima, "maxima", index, threads, e);
    if (rc)
        return rc;
    memory->data = use->data.base;
    memory->counters = use->counters.base;
    memory->maxima = need->n_maxima ? use->maxima.base : NULL;
    return 0;
}
