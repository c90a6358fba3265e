/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/engine_rank.h"
#include "common/error.h"

struct span { /* where a parameter lies */
    uint64_t offset, bytes;
    uint32_t region, index;
};

void sw_manifest_close_fds(struct sw_manifest *m)
{
    for (uint32_t i = 0; i < m->n_regions; i++) {
        if (m->fds[i] >= 0)
            close(m->fds[i]);
        m->fds[i] = -1;
    }
}

void sw_manifest_drop_runs(struct sw_manifest *m)
{
    free(m->runs);
    m->runs = NULL;
    m->n_runs = 0;
}

void sw_manifest_clear(struct sw_manifest *m)
{
    sw_manifest_close_fds(m);
    sw_manifest_drop_runs(m);
    sw_msg_free(m->declared);
    free(m->items);
    sw_arena_clear(&m->strings);
    memset(m, 0, sizeof(*m));
}

size_t sw_manifest_memory(const struct sw_manifest *m)
{
    return m->strings.used + m->capacity * sizeof(*m->items) +
           (m->declared ? sizeof(*m->declared) + m->declared->arena.used : 0);
}

/* Names go into logs, JSON and messages for people: no control characters. */
static bool printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

static int check_rank(const struct sw_engine_rank *in, uint32_t n_fds, struct sw_error *e)
{
    int rc = sw_engine_rank_check(in, e);

    if (rc)
        return rc;
    if (sw_id_is_none(&in->instance))
        return sw_fail(
            e, SW_ERR_INVALID, "engine %s rank %u has no instance id", in->engine, in->rank);
    if (in->n_regions == 0 || in->n_regions > SW_FRAME_FDS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "engine %s rank %u: %u regions; 1 to %d can be registered",
            in->engine, in->rank, in->n_regions, SW_FRAME_FDS_MAX);
    if (in->n_regions != n_fds)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "engine %s rank %u: %u regions, but %u descriptors came with them", in->engine,
            in->rank, in->n_regions, n_fds);
    for (uint32_t i = 0; i < in->n_regions; i++)
        if (in->region_bytes[i] == 0 || in->region_bytes[i] > SW_BYTES_MAX)
            return sw_fail(e, SW_ERR_LIMIT,
                "engine %s rank %u: region %u has %" PRIu64 " bytes; 1 to %" PRIu64 " are possible",
                in->engine, in->rank, i, in->region_bytes[i], (uint64_t)SW_BYTES_MAX);
    if (in->n_parameters == 0 || in->n_parameters > SW_PARAMETERS_MAX)
        return sw_fail(e, SW_ERR_LIMIT, "engine %s rank %u: %u parameters; 1 to %u are possible",
            in->engine, in->rank, in->n_parameters, SW_PARAMETERS_MAX);
    return 0;
}

static int over_memory(const struct sw_manifest *m, size_t memory_max, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_LIMIT,
        "engine %s rank %u: the manifests kept here would take over %zu bytes", m->engine, m->rank,
        memory_max);
}

int sw_manifest_begin(
    struct sw_manifest *m, struct sw_msg *msg, size_t memory_max, struct sw_error *e)
{
    const struct sw_engine_rank *in = &msg->u.engine_rank;
    int rc = check_rank(in, msg->n_fds, e);

    if (rc)
        return rc;
    memset(m, 0, sizeof(*m));
    snprintf(m->engine, sizeof(m->engine), "%s", in->engine);
    m->rank = in->rank;
    m->world = in->world;
    m->instance = in->instance;
    m->declared = sw_msg_copy(msg);
    if (!m->declared)
        rc = sw_fail(e, SW_ERR_NOMEM, "no memory for engine %s rank %u", in->engine, in->rank);
    else if (sw_manifest_memory(m) > memory_max)
        rc = over_memory(m, memory_max, e);
    if (rc) {
        sw_manifest_clear(m);
        return rc;
    }
    m->version = in->version;
    m->torn = in->torn != 0;
    m->expected = in->n_parameters;
    m->n_regions = in->n_regions;
    for (uint32_t i = 0; i < in->n_regions; i++) {
        m->region_bytes[i] = in->region_bytes[i];
        m->fds[i] = sw_msg_take_fd(msg, i);
    }
    return 0;
}

/* Checks what can be said of one parameter alone. */
static int check_parameter(
    const struct sw_manifest *m, const struct sw_parameter *p, struct sw_error *e)
{
    uint64_t bytes;

    if (!p->name || !p->name[0] || strlen(p->name) > SW_NAME_MAX || !printable(p->name))
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: a parameter's name must have 1 to %d printable characters",
            m->engine, m->rank, SW_NAME_MAX);
    if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes) || bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_INVALID,
            "parameter '%s' of engine %s rank %u: dtype %s with %u dimensions has no valid size",
            p->name, m->engine, m->rank, sw_dtype_name(p->dtype), p->ndim);
    if (p->region >= m->n_regions)
        return sw_fail(e, SW_ERR_INVALID,
            "parameter '%s' of engine %s rank %u lies in region %u; there are %u regions", p->name,
            m->engine, m->rank, p->region, m->n_regions);
    if (sw_range_exceeds(p->offset, bytes, m->region_bytes[p->region]))
        return sw_fail(e, SW_ERR_INVALID,
            "parameter '%s' of engine %s rank %u: %" PRIu64 " bytes at offset %" PRIu64
            " do not fit into region %u of %" PRIu64 " bytes",
            p->name, m->engine, m->rank, bytes, p->offset, p->region, m->region_bytes[p->region]);
    return 0;
}

static int check_part(
    const struct sw_manifest *m, const struct sw_parameters *part, struct sw_error *e)
{
    if (strcmp(part->engine, m->engine) != 0 || part->rank != m->rank ||
        !sw_id_equal(&part->instance, &m->instance))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "parameters of engine '%.64s' rank %u came where those of %s rank %u were expected",
            part->engine, part->rank, m->engine, m->rank);
    if (part->first != m->n || part->total != m->expected || part->n == 0 ||
        part->n > SW_PART_ITEMS_MAX || part->n > m->expected - m->n)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "engine %s rank %u: a part with parameters %u to %u of %u does not join: %u of %u came",
            m->engine, m->rank, part->first, part->first + part->n, part->total, m->n, m->expected);
    return 0;
}

static int grow(struct sw_manifest *m, uint32_t more, size_t memory_max, struct sw_error *e)
{
    uint32_t want = m->capacity;
    struct sw_parameter *items;

    if (more <= m->capacity - m->n)
        return 0;
    while (want - m->n < more)
        want = want ? want * 2 : more;
    if (want > m->expected)
        want = m->expected;
    if (want * sizeof(*items) > memory_max)
        return over_memory(m, memory_max, e);
    items = realloc(m->items, want * sizeof(*items));
    if (!items)
        return sw_fail(e, SW_ERR_NOMEM, "engine %s rank %u: no memory for %u parameters", m->engine,
            m->rank, want);
    m->items = items;
    m->capacity = want;
    return 0;
}

int sw_manifest_add(
    struct sw_manifest *m, const struct sw_parameters *part, size_t memory_max, struct sw_error *e)
{
    int rc = check_part(m, part, e);

    if (!rc)
        rc = grow(m, part->n, memory_max, e);
    for (uint32_t i = 0; !rc && i < part->n; i++) {
        struct sw_parameter p = part->items[i];
        const char *alias = p.alias_of && p.alias_of[0] ? p.alias_of : NULL;

        rc = check_parameter(m, &p, e);
        if (rc)
            break;
        p.name = sw_arena_strdup(&m->strings, p.name);
        p.alias_of = alias ? sw_arena_strdup(&m->strings, alias) : NULL;
        if (!p.name || (alias && !p.alias_of))
            rc = sw_fail(e, SW_ERR_NOMEM, "engine %s rank %u: no memory for parameter %u",
                m->engine, m->rank, m->n);
        else if (sw_manifest_memory(m) > memory_max)
            rc = over_memory(m, memory_max, e);
        else
            m->items[m->n++] = p;
    }
    return rc;
}

static int by_name(const void *a, const void *b, void *arg)
{
    const struct sw_parameter *items = arg;
    return strcmp(items[*(const uint32_t *)a].name, items[*(const uint32_t *)b].name);
}

static int by_place(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool find_name(
    const struct sw_manifest *m, const uint32_t *order, const char *name, uint32_t *index)
{
    uint32_t low = 0, high = m->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int c = strcmp(m->items[order[middle]].name, name);

        if (c == 0) {
            *index = order[middle];
            return true;
        }
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* No name twice; an alias names a parameter at exactly its own place. */
static int check_names(
    const struct sw_manifest *m, uint32_t *order, const struct span *spans, struct sw_error *e)
{
    uint32_t other;

    for (uint32_t i = 0; i < m->n; i++)
        order[i] = i;
    qsort_r(order, m->n, sizeof(*order), by_name, m->items);
    for (uint32_t i = 1; i < m->n; i++)
        if (strcmp(m->items[order[i - 1]].name, m->items[order[i]].name) == 0)
            return sw_fail(e, SW_ERR_EXISTS, "engine %s rank %u declares parameter '%s' twice",
                m->engine, m->rank, m->items[order[i]].name);
    for (uint32_t i = 0; i < m->n; i++) {
        const struct sw_parameter *p = &m->items[i];

        if (!p->alias_of)
            continue;
        if (!find_name(m, order, p->alias_of, &other))
            return sw_fail(e, SW_ERR_NOT_FOUND,
                "parameter '%s' of engine %s rank %u is an alias of '%s', which is not declared",
                p->name, m->engine, m->rank, p->alias_of);
        if (spans[i].region != spans[other].region || spans[i].offset != spans[other].offset ||
            spans[i].bytes != spans[other].bytes)
            return sw_fail(e, SW_ERR_INVALID,
                "parameter '%s' of engine %s rank %u is said to be an alias of '%s', but its place "
                "(region %u, offset %" PRIu64 ", %" PRIu64 " bytes) is not the same (region %u, "
                "offset %" PRIu64 ", %" PRIu64 " bytes)",
                p->name, m->engine, m->rank, p->alias_of, spans[i].region, spans[i].offset,
                spans[i].bytes, spans[other].region, spans[other].offset, spans[other].bytes);
    }
    return 0;
}

/* Parameters at one place (n >= 1): one of them owns the storage, the others are its aliases. */
static int settle_aliases(
    struct sw_manifest *m, const struct span *group, uint32_t n, struct sw_error *e)
{
    const char *owner = NULL;

    for (uint32_t i = 0; i < n && !owner; i++)
        if (!m->items[group[i].index].alias_of)
            owner = m->items[group[i].index].name;
    if (!owner)
        return sw_fail(e, SW_ERR_INVALID,
            "parameter '%s' of engine %s rank %u is an alias of '%s', which is itself an alias: "
            "one "
            "of them must own the storage",
            m->items[group[0].index].name, m->engine, m->rank, m->items[group[0].index].alias_of);
    for (uint32_t i = 0; i < n; i++)
        if (m->items[group[i].index].name != owner)
            m->items[group[i].index].alias_of = owner;
    return 0;
}

/* Walks the places in order: equal ones are aliases, other overlaps an error. Fills the runs. */
static int check_places(
    struct sw_manifest *m, const struct span *sorted, struct sw_run *runs, struct sw_error *e)
{
    const struct span *before = NULL;
    uint32_t n_runs = 0, group;
    int rc;

    m->parameter_bytes = 0;
    for (uint32_t i = 0; i < m->n; i += group) {
        const struct span *s = &sorted[i];

        for (group = 1; s->bytes && i + group < m->n; group++)
            if (s[group].region != s->region || s[group].offset != s->offset ||
                s[group].bytes != s->bytes)
                break;
        if (s->bytes == 0)
            continue;
        if (before && before->region == s->region && before->offset + before->bytes > s->offset)
            return sw_fail(e, SW_ERR_INVALID,
                "parameters '%s' (offset %" PRIu64 ", %" PRIu64 " bytes) and '%s' (offset %" PRIu64
                ", %" PRIu64 " bytes) of engine %s rank %u overlap in region %u and are no exact "
                "aliases",
                m->items[before->index].name, before->offset, before->bytes,
                m->items[s->index].name, s->offset, s->bytes, m->engine, m->rank, s->region);
        before = s;
        rc = settle_aliases(m, s, group, e);
        if (rc)
            return rc;
        runs[n_runs++] = (struct sw_run){s->region, s->offset, s->bytes};
        m->parameter_bytes += s->bytes;
    }
    m->n_runs = sw_runs_merge(runs, n_runs);
    return 0;
}

int sw_manifest_check(struct sw_manifest *m, struct sw_error *e)
{
    struct span *spans = calloc(m->n, sizeof(*spans));
    uint32_t *order = calloc(m->n, sizeof(*order));
    struct sw_run *runs = calloc(m->n, sizeof(*runs));
    int rc = 0;

    if (!spans || !order || !runs)
        rc = sw_fail(e, SW_ERR_NOMEM, "engine %s rank %u: no memory to check %u parameters",
            m->engine, m->rank, m->n);
    for (uint32_t i = 0; !rc && i < m->n; i++) {
        const struct sw_parameter *p = &m->items[i];

        spans[i] = (struct span){.offset = p->offset, .region = p->region, .index = i};
        if (sw_tensor_bytes(p->dtype, p->ndim, p->shape, &spans[i].bytes))
            rc = sw_fail(e, SW_ERR_INVALID, "parameter '%s' has no valid size", p->name);
    }
    if (!rc)
        rc = check_names(m, order, spans, e);
    if (!rc) {
        qsort(spans, m->n, sizeof(*spans), by_place);
        rc = check_places(m, spans, runs, e);
    }
    free(spans);
    free(order);
    if (rc) {
        free(runs);
        return rc;
    }
    m->runs = runs;
    return 0;
}

struct sw_msg *sw_manifest_rank_message(const struct sw_manifest *m, uint32_t pid)
{
    struct sw_msg *msg = sw_msg_copy(m->declared);

    if (msg)
        msg->u.engine_rank.pid = pid;
    return msg;
}

static size_t encoded_estimate(const struct sw_parameter *p)
{
    return 48 + strlen(p->name) + (p->alias_of ? strlen(p->alias_of) : 0) + p->ndim * 10;
}

struct sw_msg *sw_manifest_part(const struct sw_manifest *m, uint32_t first, uint32_t *next)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PARAMETERS);
    struct sw_parameters *out;
    uint32_t n = 0;

    if (!msg)
        return NULL;
    out = &msg->u.parameters;
    for (size_t bytes = 0; first + n < m->n && n < SW_PART_ITEMS_MAX; n++) {
        bytes += encoded_estimate(&m->items[first + n]);
        if (n > 0 && bytes > SW_PART_BYTES_TARGET)
            break;
    }
    out->engine = sw_arena_strdup(&msg->arena, m->engine);
    out->items = sw_arena_array(&msg->arena, n, sizeof(*out->items));
    if (!out->engine || !out->items)
        goto no_memory;
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_parameter *p = &m->items[first + i];

        out->items[i] = *p;
        out->items[i].name = sw_arena_strdup(&msg->arena, p->name);
        out->items[i].alias_of = sw_arena_strdup(&msg->arena, p->alias_of ? p->alias_of : "");
        if (!out->items[i].name || !out->items[i].alias_of)
            goto no_memory;
    }
    out->rank = m->rank;
    out->instance = m->instance;
    out->first = first;
    out->total = m->n;
    out->n = n;
    *next = first + n;
    return msg;
no_memory:
    sw_msg_free(msg);
    return NULL;
}
