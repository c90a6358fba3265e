/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: a worker thread creates a buffer, the loop puts it in its place, BUFFER messages
 * carry duplicates of its descriptors to the trainer, jobs hold it while they read. Failure modes:
 * no memory (reported by sw_memory_create before anything changes; the old buffer stays), a
 * replaced buffer with readers (it lives on until they release it; status counts it).
 */
#include "trainerd/replica/replica.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/memory.h"

struct sw_replica_buffer {
    struct sw_replica_buffer_spec spec;
    struct sw_memory_info info;
    struct sw_source_memory memory;
    int data_fd, counter_fd, maxima_fd;
    void *counters, *maxima;
    unsigned refs;
    bool placed;  /* the replica itself holds one of the references */
    bool spoiled; /* counts as read for ever */
    struct sw_replica *owner;
};

struct place {
    uint32_t rank;
    struct sw_replica_buffer *buffer[2];
};

struct sw_replica {
    struct place *places;
    size_t n, capacity;
    uint64_t outside_bytes; /* replaced, and still held by readers */
    unsigned outside;
};

static void buffer_destroy(struct sw_replica_buffer *b)
{
    sw_memory_unmap((void *)(uintptr_t)b->memory.base, b->spec.bytes);
    sw_memory_unmap(b->counters, b->spec.counter_bytes);
    sw_memory_unmap(b->maxima, b->spec.maxima_bytes);
    if (b->memory.fd >= 0)
        close(b->memory.fd);
    if (b->data_fd >= 0)
        close(b->data_fd);
    if (b->counter_fd >= 0)
        close(b->counter_fd);
    if (b->maxima_fd >= 0)
        close(b->maxima_fd);
    free(b);
}

static int create_maxima(struct sw_replica_buffer *b, struct sw_error *e)
{
    const uint64_t bytes = b->spec.maxima_bytes;
    int r;

    if (!bytes)
        return 0;
    r = sw_memory_create("shardwire-maxima", bytes, false, b->spec.threads, &b->maxima_fd, NULL, e);
    if (!r)
        r = sw_memory_map(b->maxima_fd, bytes, true, SW_FILL_NEW, b->spec.threads, &b->maxima, e);
    return r;
}

int sw_replica_buffer_create(
    const struct sw_replica_buffer_spec *spec, struct sw_replica_buffer **out, struct sw_error *e)
{
    struct sw_replica_buffer *b = calloc(1, sizeof(*b));
    void *base = NULL;
    int r;

    if (!b)
        return sw_fail(
            e, SW_ERR_NOMEM, "buffer %u of rank %u: out of memory", spec->index, spec->rank);
    b->spec = *spec;
    b->refs = 1;
    b->data_fd = b->counter_fd = b->maxima_fd = b->memory.fd = -1;
    r = sw_memory_create(
        "shardwire-replica", spec->bytes, spec->huge, spec->threads, &b->data_fd, &b->info, e);
    if (!r)
        r = sw_memory_create(
            "shardwire-counters", spec->counter_bytes, false, 1, &b->counter_fd, NULL, e);
    if (!r)
        r = sw_memory_reopen_readonly(b->data_fd, &b->memory.fd, e);
    if (!r)
        r = sw_memory_map(b->data_fd, spec->bytes, true, SW_FILL_NEW, spec->threads, &base, e);
    if (!r) {
        b->memory.base = base;
        r = sw_memory_map(
            b->counter_fd, spec->counter_bytes, true, SW_FILL_NEW, 1, &b->counters, e);
    }
    if (!r)
        r = create_maxima(b, e);
    if (r) {
        sw_error_context(e, r, "replica buffer %u of trainer rank %u (%llu bytes)", spec->index,
            spec->rank, (unsigned long long)spec->bytes);
        buffer_destroy(b);
        return r;
    }
    b->memory.bytes = spec->bytes;
    b->memory.id = spec->generation;
    *out = b;
    return 0;
}

void sw_replica_buffer_hold(struct sw_replica_buffer *b)
{
    b->refs++;
}

void sw_replica_buffer_release(struct sw_replica_buffer *b)
{
    if (!b || --b->refs > 0)
        return;
    if (b->owner) {
        b->owner->outside--;
        b->owner->outside_bytes -= b->spec.bytes;
    }
    buffer_destroy(b);
}

const struct sw_source_memory *sw_replica_buffer_memory(const struct sw_replica_buffer *b)
{
    return &b->memory;
}

const struct sw_replica_buffer_spec *sw_replica_buffer_spec_of(const struct sw_replica_buffer *b)
{
    return &b->spec;
}

uint64_t *sw_replica_buffer_counters(const struct sw_replica_buffer *b)
{
    return b->counters;
}

float *sw_replica_buffer_maxima(const struct sw_replica_buffer *b)
{
    return b->maxima;
}

bool sw_replica_buffer_busy(const struct sw_replica_buffer *b)
{
    return b->spoiled || b->refs > (b->placed ? 1u : 0u);
}

void sw_replica_buffer_spoil(struct sw_replica_buffer *b)
{
    b->spoiled = true;
}

void sw_replica_buffer_copy(struct sw_replica_buffer *to, const struct sw_replica_buffer *from)
{
    uint64_t n = to->spec.bytes < from->spec.bytes ? to->spec.bytes : from->spec.bytes;

    sw_memory_copy((void *)(uintptr_t)to->memory.base, from->memory.base, n, to->spec.threads);
}

int sw_replica_buffer_descriptors(
    const struct sw_replica_buffer *b, int fds[3], uint32_t *n, struct sw_error *e)
{
    const int from[3] = {b->data_fd, b->counter_fd, b->maxima_fd};
    const uint32_t count = b->maxima_fd >= 0 ? 3 : 2;

    for (uint32_t i = 0; i < count; i++) {
        fds[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 0);
        if (fds[i] >= 0)
            continue;
        while (i > 0)
            close(fds[--i]);
        return sw_fail(
            e, SW_ERR_LIMIT, "no descriptor left for a replica buffer (see LimitNOFILE)");
    }
    *n = count;
    return 0;
}

struct sw_replica *sw_replica_new(void)
{
    return calloc(1, sizeof(struct sw_replica));
}

static void unplace(struct sw_replica *r, struct sw_replica_buffer **slot)
{
    struct sw_replica_buffer *b = *slot;

    *slot = NULL;
    if (!b)
        return;
    b->placed = false;
    if (b->refs > 1) {
        b->owner = r;
        r->outside++;
        r->outside_bytes += b->spec.bytes;
    }
    sw_replica_buffer_release(b);
}

/* All readers must have released their buffers before. */
void sw_replica_free(struct sw_replica *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        unplace(r, &r->places[i].buffer[0]);
        unplace(r, &r->places[i].buffer[1]);
    }
    free(r->places);
    free(r);
}

static struct place *find(const struct sw_replica *r, uint32_t rank)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->places[i].rank == rank)
            return &r->places[i];
    return NULL;
}

int sw_replica_put(struct sw_replica *r, struct sw_replica_buffer *b, struct sw_error *e)
{
    struct place *p = find(r, b->spec.rank);

    if (!p && r->n == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 8;
        struct place *grown = realloc(r->places, capacity * sizeof(*grown));

        if (!grown)
            return sw_fail(e, SW_ERR_NOMEM, "table of %zu replica places: out of memory", capacity);
        r->places = grown;
        r->capacity = capacity;
    }
    if (!p) {
        p = &r->places[r->n++];
        memset(p, 0, sizeof(*p));
        p->rank = b->spec.rank;
    }
    unplace(r, &p->buffer[b->spec.index]);
    p->buffer[b->spec.index] = b;
    b->placed = true;
    return 0;
}

void sw_replica_drop(struct sw_replica *r, uint32_t rank, uint32_t index)
{
    struct place *p = find(r, rank);

    if (p)
        unplace(r, &p->buffer[index]);
}

struct sw_replica_buffer *sw_replica_get(const struct sw_replica *r, uint32_t rank, uint32_t index)
{
    const struct place *p = find(r, rank);

    return p && index < 2 ? p->buffer[index] : NULL;
}

json_t *sw_replica_status(const struct sw_replica *r)
{
    json_int_t buffers = 0, bytes = 0, huge = 0;

    for (size_t i = 0; i < r->n; i++) {
        for (unsigned k = 0; k < 2; k++) {
            const struct sw_replica_buffer *b = r->places[i].buffer[k];

            if (!b)
                continue;
            buffers++;
            bytes += (json_int_t)b->spec.bytes;
            huge += b->info.huge ? (json_int_t)b->spec.bytes : 0;
        }
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "buffers", buffers, "bytes", bytes, "huge_bytes",
        huge, "held_by_readers", (json_int_t)r->outside, "held_by_readers_bytes",
        (json_int_t)r->outside_bytes);
}
