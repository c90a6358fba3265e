/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine process does for local: maps source memory, copies or compares by extents.
 *
 * The extents lie in a memfd that is sealed against writing as well: nobody can change them between
 * check and use, so they are used where they lie. All of them are checked before the first byte is
 * copied.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/copy.h"
#include "common/error.h"
#include "common/memory.h"
#include "common/transport.h"
#include "common/transport/window.h"

#define PARTS_MAX 64u
#define PART_BYTES_MAX (1ull << 56) /* of one job and thread: sums do not overflow */

struct mapping {
    struct mapping *next;
    uint64_t source; /* number; the upper half is the writer's slot */
    void *base;
    uint64_t bytes;
};

struct sw_local_engine {
    struct sw_window *window; /* regions and runs; inferd guards when they may be written */
    unsigned threads;
    struct mapping *mappings;
};

struct sw_local_engine *sw_local_engine_new(const struct sw_port_spec *spec, unsigned threads)
{
    struct sw_local_engine *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->threads = threads < 1 ? 1 : threads > PARTS_MAX ? PARTS_MAX : threads;
    if (sw_window_new(spec, &l->window, NULL)) {
        free(l);
        return NULL;
    }
    return l;
}

/* Unmaps what the slot of `source` has. */
static void unmap_slot(struct sw_local_engine *l, uint64_t source)
{
    struct mapping **at = &l->mappings;

    while (*at) {
        struct mapping *m = *at;

        if (m->source >> 32 != source >> 32) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        sw_memory_unmap(m->base, m->bytes);
        free(m);
    }
}

void sw_local_engine_free(struct sw_local_engine *l)
{
    if (!l)
        return;
    while (l->mappings)
        unmap_slot(l, l->mappings->source);
    sw_window_free(l->window);
    free(l);
}

/* ---- LOCAL_SOURCE ---- */

static int map_source(
    struct sw_local_engine *l, const struct sw_local_source *s, int fd, struct sw_error *e)
{
    struct mapping *m;
    int rc = sw_memory_check(fd, s->bytes, false, NULL, e);

    if (rc)
        return rc;
    m = calloc(1, sizeof(*m));
    if (!m)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a mapping");
    rc = sw_memory_map(fd, s->bytes, false, SW_FILL_USED, l->threads, &m->base, e);
    if (rc) {
        free(m);
        return rc;
    }
    m->source = s->source;
    m->bytes = s->bytes;
    m->next = l->mappings;
    l->mappings = m;
    return 0;
}

static int take_source(struct sw_local_engine *l, struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_local_source *s = &msg->u.local_source;
    int fd, rc;

    unmap_slot(l, s->source);
    if (s->bytes == 0 && msg->n_fds == 0)
        return 0;
    fd = sw_msg_take_fd(msg, 0);
    if (fd < 0)
        return sw_fail(e, SW_ERR_PROTOCOL, "LOCAL_SOURCE without a descriptor");
    rc = map_source(l, s, fd, e);
    close(fd);
    return rc ? sw_error_context(e, rc, "source memory") : 0;
}

/* ---- LOCAL_COPY ---- */

struct copy {
    const struct sw_local_engine *engine;
    const struct mapping *source;
    const struct sw_extent *extents;
    uint64_t n;
    uint64_t bytes;
    bool verify;
    struct check {
        uint64_t bytes;
        bool bad;
        uint64_t at; /* the bad one */
    } parts[PARTS_MAX];
    struct difference {
        bool found;
        uint32_t region;
        uint64_t offset;
    } differences[PARTS_MAX]; /* the first one in each part */
};

/* Compares; false = they differ, and *at tells where. */
static bool same(const uint8_t *a, const uint8_t *b, uint64_t n, uint64_t *at)
{
    uint64_t i = 0;

    if (memcmp(a, b, n) == 0)
        return true;
    while (i + 1 < n && a[i] == b[i])
        i++;
    *at = i;
    return false;
}

/* One run that is contiguous on both sides. False: found a difference, stop. */
static bool run_span(struct copy *c, unsigned part, const struct sw_extent *x)
{
    uint8_t *to = sw_window_at(c->engine->window, x->region, x->dst);
    const uint8_t *from = (const uint8_t *)c->source->base + x->src;
    uint64_t at;

    if (!c->verify) {
        sw_copy(to, from, x->length);
        return true;
    }
    if (same(from, to, x->length, &at))
        return true;
    c->differences[part] = (struct difference){true, x->region, x->dst + at};
    return false;
}

/* Part i of n: an even share of the bytes, whatever the extents' sizes are. */
static void copy_part(unsigned i, unsigned n, void *arg)
{
    struct copy *c = arg;
    const uint64_t share = c->bytes / n, from = share * i;
    uint64_t left = i + 1 == n ? c->bytes - from : share, skip = from, k = 0;
    struct sw_extent span = {0};

    while (k < c->n && skip >= c->extents[k].length)
        skip -= c->extents[k++].length;
    for (; left > 0 && k < c->n; k++, skip = 0) {
        struct sw_extent x = c->extents[k];

        x.src += skip;
        x.dst += skip;
        x.length -= skip;
        if (x.length > left)
            x.length = left;
        left -= x.length;
        if (span.length && span.region == x.region && span.src + span.length == x.src &&
            span.dst + span.length == x.dst) {
            span.length += x.length;
            continue;
        }
        if (span.length && !run_span(c, i, &span))
            return;
        span = x;
    }
    if (span.length)
        run_span(c, i, &span);
}

static int check_extent(const struct copy *c, uint64_t i, struct sw_error *e)
{
    const struct sw_extent *x = &c->extents[i];

    if (sw_range_exceeds(x->src, x->length, c->source->bytes)) {
        return sw_fail(e, SW_ERR_INVALID,
            "extent %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " of a source of %" PRIu64, i,
            x->length, x->src, c->source->bytes);
    }
    if (sw_window_check(c->engine->window, x->region, x->dst, x->length, e))
        return sw_error_context(e, SW_ERR_INVALID, "extent %" PRIu64, i);
    return 0;
}

/* Part i of n of the extents: sums their bytes, stops at the first bad one. */
static void check_part(unsigned i, unsigned n, void *arg)
{
    struct copy *c = arg;
    const uint64_t share = c->n / n, end = i + 1 == n ? c->n : share * (i + 1);
    uint64_t bytes = 0, k = share * i;

    while (k < end && bytes <= PART_BYTES_MAX && check_extent(c, k, NULL) == 0)
        bytes += c->extents[k++].length;
    c->parts[i].bytes = bytes;
    c->parts[i].bad = k < end;
    c->parts[i].at = k;
}

static int check_extents(struct copy *c, unsigned threads, struct sw_error *e)
{
    sw_memory_parallel(threads, check_part, c);
    for (unsigned i = 0; i < threads; i++) {
        if (c->parts[i].bad) {
            if (check_extent(c, c->parts[i].at, e))
                return SW_ERR_INVALID;
            return sw_fail(e, SW_ERR_LIMIT, "more than %llu bytes in one job", PART_BYTES_MAX);
        }
        c->bytes += c->parts[i].bytes;
    }
    return 0;
}

/* Not more threads than there is work for. */
static unsigned threads_for(const struct copy *c, uint64_t work, uint64_t least)
{
    return work / least < c->engine->threads ? (unsigned)(work / least) + 1 : c->engine->threads;
}

static int run_copy(struct copy *c, struct sw_error *e)
{
    int rc = check_extents(c, threads_for(c, c->n, 20000), e);
    unsigned threads;

    if (rc)
        return rc;
    threads = threads_for(c, c->bytes, 256u << 10);
    sw_memory_parallel(threads, copy_part, c);
    for (unsigned i = 0; i < threads; i++) {
        if (c->differences[i].found) {
            return sw_fail(e, SW_ERR_IO,
                "region %" PRIu32 ", offset %" PRIu64
                ": the target holds another byte than the source (the first difference)",
                c->differences[i].region, c->differences[i].offset);
        }
    }
    return 0;
}

/* Maps the extents; they must be sealed against everything. */
static int map_extents(int fd, uint64_t n, void **base, struct sw_error *e)
{
    int rc;

    if (n > SW_EXTENTS_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "%" PRIu64 " extents, at most %u can be had", n, SW_EXTENTS_MAX);
    rc = sw_memory_check(fd, n * sizeof(struct sw_extent), false, NULL, e);
    if (rc)
        return rc;
    if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE))
        return sw_fail(e, SW_ERR_INVALID, "the memfd is not sealed against writing");
    *base = NULL;
    return n ? sw_memory_map(fd, n * sizeof(struct sw_extent), false, SW_FILL_LATER, 1, base, e)
             : 0;
}

static int take_copy(
    struct sw_local_engine *l, struct sw_msg *msg, uint64_t *bytes, struct sw_error *e)
{
    const struct sw_local_copy *m = &msg->u.local_copy;
    struct copy c = {.engine = l, .n = m->n, .verify = m->mode == SW_LOCAL_VERIFY};
    const int fd = sw_msg_take_fd(msg, 0);
    void *base;
    int rc;

    if (fd < 0)
        return sw_fail(e, SW_ERR_PROTOCOL, "LOCAL_COPY without a descriptor");
    for (c.source = l->mappings; c.source && c.source->source != m->source;)
        c.source = c.source->next;
    rc = c.source ? map_extents(fd, m->n, &base, e)
                  : sw_fail(e, SW_ERR_STATE, "no such source memory is mapped");
    close(fd);
    if (rc)
        return sw_error_context(e, rc, "extents");
    c.extents = base;
    rc = run_copy(&c, e);
    sw_memory_unmap(base, m->n * sizeof(struct sw_extent));
    if (!rc)
        *bytes = c.bytes;
    return rc;
}

/* ---- messages ---- */

static void set_failure(struct sw_msg *reply, struct sw_failure *f, int rc, struct sw_error *e)
{
    const char *text = rc ? sw_arena_strdup(&reply->arena, e->text) : "";

    f->code = rc;
    f->reason = text ? text : "";
}

struct sw_msg *sw_local_engine_handle(struct sw_local_engine *l, struct sw_msg *msg)
{
    const bool copy = msg->kind == SW_MSG_LOCAL_COPY;
    /* Before the work: an answer that cannot be given must not leave anything done. */
    struct sw_msg *reply = sw_msg_new(copy ? SW_MSG_LOCAL_DONE : SW_MSG_LOCAL_MAPPED);
    struct sw_error e = {0};
    uint64_t bytes = 0;
    int rc;

    if (!reply)
        return NULL;
    if (copy) {
        rc = take_copy(l, msg, &bytes, &e);
        reply->u.local_done.copy = msg->u.local_copy.copy;
        reply->u.local_done.bytes = bytes;
        set_failure(reply, &reply->u.local_done.error, rc, &e);
        return reply;
    }
    rc = msg->kind == SW_MSG_LOCAL_SOURCE
             ? take_source(l, msg, &e)
             : sw_fail(&e, SW_ERR_PROTOCOL, "%s is nothing to copy", sw_msg_kind_name(msg->kind));
    reply->u.local_mapped.source =
        msg->kind == SW_MSG_LOCAL_SOURCE ? msg->u.local_source.source : 0;
    set_failure(reply, &reply->u.local_mapped.error, rc, &e);
    return reply;
}
