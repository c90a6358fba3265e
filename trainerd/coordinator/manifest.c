/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/coordinator/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct item {
    uint32_t name, alias; /* into names; alias 0 = none */
    uint32_t dims;        /* into dims: shape, then lo and len of a box that is not the whole */
    uint32_t region;      /* parameters */
    uint64_t offset;      /* parameters */
    uint8_t dtype, ndim, boxed;
};

struct sw_manifest {
    unsigned refs;
    uint32_t total, n, size; /* items expected, there, and allocated */
    struct item *items;
    char *names; /* byte 0 is not used */
    uint32_t names_used, names_size;
    uint64_t *dims;
    uint32_t dims_used, dims_size;
};

struct sw_manifest *sw_manifest_new(uint32_t total)
{
    struct sw_manifest *m = calloc(1, sizeof(*m));

    if (m) {
        m->refs = 1;
        m->total = total;
        m->names_used = 1;
    }
    return m;
}

struct sw_manifest *sw_manifest_hold(struct sw_manifest *m)
{
    m->refs++;
    return m;
}

void sw_manifest_free(struct sw_manifest *m)
{
    if (!m || --m->refs > 0)
        return;
    free(m->items);
    free(m->names);
    free(m->dims);
    free(m);
}

/* Makes room for `more` elements; sizes double, so that all parts together cost linear time. */
static int grow(void **array, uint32_t *size, uint32_t used, size_t more, size_t element)
{
    uint64_t wanted = *size ? *size : 64;
    void *larger;

    if (more > UINT32_MAX / 2 - used)
        return SW_ERR_LIMIT;
    if (used + more <= *size)
        return 0;
    while (wanted < used + more)
        wanted *= 2;
    larger = realloc(*array, wanted * element);
    if (!larger)
        return SW_ERR_NOMEM;
    *array = larger;
    *size = (uint32_t)wanted;
    return 0;
}

static int add_name(struct sw_manifest *m, const char *name, uint32_t *at)
{
    const size_t length = strlen(name) + 1;
    const int err = grow((void **)&m->names, &m->names_size, m->names_used, length, 1);

    if (err)
        return err;
    memcpy(m->names + m->names_used, name, length);
    *at = m->names_used;
    m->names_used += (uint32_t)length;
    return 0;
}

static int add_dims(struct sw_manifest *m, const uint64_t *dims, uint32_t n)
{
    const int err = grow((void **)&m->dims, &m->dims_size, m->dims_used, n, sizeof(*m->dims));

    if (err)
        return err;
    for (uint32_t d = 0; d < n; d++)
        m->dims[m->dims_used++] = dims[d];
    return 0;
}

static int start_part(
    struct sw_manifest *m, uint32_t first, uint32_t total, uint32_t n, struct sw_error *e)
{
    if (total != m->total || first != m->n || n > total - first)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "a part of a manifest (%u items from %u, of %u) does not follow the one before it (%u "
            "of %u)",
            n, first, total, m->n, m->total);
    if (n == 0 && total != 0)
        return sw_fail(e, SW_ERR_PROTOCOL, "a part of a manifest of %u items is empty", total);
    if (grow((void **)&m->items, &m->size, m->n, n, sizeof(*m->items)))
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a manifest of %u items", total);
    return 0;
}

static void shrink(void **array, size_t bytes)
{
    void *less = realloc(*array, bytes);

    if (less)
        *array = less;
}

/* Gives back what doubling took too much, once nothing more comes. */
static void trim(struct sw_manifest *m)
{
    if (!sw_manifest_complete(m) || m->n == 0)
        return;
    shrink((void **)&m->items, m->n * sizeof(*m->items));
    shrink((void **)&m->names, m->names_used);
    m->size = m->n;
    m->names_size = m->names_used;
    if (m->dims_used) {
        shrink((void **)&m->dims, m->dims_used * sizeof(*m->dims));
        m->dims_size = m->dims_used;
    }
}

static bool is_whole(const struct sw_source *s)
{
    for (uint32_t d = 0; d < s->ndim; d++)
        if (s->box.lo[d] != 0 || s->box.len[d] != s->shape[d])
            return false;
    return true;
}

static int add_source(struct sw_manifest *m, const struct sw_source *s)
{
    struct item item = {.dtype = (uint8_t)s->dtype, .ndim = (uint8_t)s->ndim, .dims = m->dims_used};
    int err = add_name(m, s->name, &item.name);

    item.boxed = !is_whole(s);
    if (!err)
        err = add_dims(m, s->shape, s->ndim);
    if (!err && item.boxed)
        err = add_dims(m, s->box.lo, s->ndim);
    if (!err && item.boxed)
        err = add_dims(m, s->box.len, s->ndim);
    if (!err)
        m->items[m->n++] = item;
    return err;
}

int sw_manifest_add_sources(
    struct sw_manifest *m, const struct sw_sources *part, struct sw_error *e)
{
    int err = start_part(m, part->first, part->total, part->n, e);

    for (uint32_t i = 0; !err && i < part->n; i++) {
        const struct sw_source *s = &part->items[i];

        if (s->ndim > SW_MAX_DIMS || s->box.ndim != s->ndim)
            return sw_fail(e, SW_ERR_PROTOCOL, "source %s has %u dimensions and a box of %u",
                s->name, s->ndim, s->box.ndim);
        if (add_source(m, s))
            err = sw_fail(e, SW_ERR_NOMEM, "no memory for a manifest of %u items", m->total);
    }
    trim(m);
    return err;
}

static int add_parameter(struct sw_manifest *m, const struct sw_parameter *p)
{
    struct item item = {.dtype = (uint8_t)p->dtype,
        .ndim = (uint8_t)p->ndim,
        .dims = m->dims_used,
        .region = p->region,
        .offset = p->offset};
    int err = add_name(m, p->name, &item.name);

    if (!err && p->alias_of && p->alias_of[0])
        err = add_name(m, p->alias_of, &item.alias);
    if (!err)
        err = add_dims(m, p->shape, p->ndim);
    if (!err)
        m->items[m->n++] = item;
    return err;
}

int sw_manifest_add_parameters(
    struct sw_manifest *m, const struct sw_parameters *part, struct sw_error *e)
{
    int err = start_part(m, part->first, part->total, part->n, e);

    for (uint32_t i = 0; !err && i < part->n; i++) {
        const struct sw_parameter *p = &part->items[i];

        if (p->ndim > SW_MAX_DIMS)
            return sw_fail(e, SW_ERR_PROTOCOL, "parameter %s has %u dimensions", p->name, p->ndim);
        if (add_parameter(m, p))
            err = sw_fail(e, SW_ERR_NOMEM, "no memory for a manifest of %u items", m->total);
    }
    trim(m);
    return err;
}

bool sw_manifest_complete(const struct sw_manifest *m)
{
    return m->n == m->total;
}

uint32_t sw_manifest_count(const struct sw_manifest *m)
{
    return m->n;
}

static bool same_names(
    const struct sw_manifest *a, uint32_t x, const struct sw_manifest *b, uint32_t y)
{
    return !x == !y && (!x || !strcmp(a->names + x, b->names + y));
}

bool sw_manifest_equal(const struct sw_manifest *a, const struct sw_manifest *b)
{
    if (a->n != b->n || a->total != b->total || a->dims_used != b->dims_used)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct item *x = &a->items[i], *y = &b->items[i];

        if (x->dtype != y->dtype || x->ndim != y->ndim || x->boxed != y->boxed ||
            x->region != y->region || x->offset != y->offset || x->dims != y->dims ||
            !same_names(a, x->name, b, y->name) || !same_names(a, x->alias, b, y->alias))
            return false;
    }
    return a->dims_used == 0 || !memcmp(a->dims, b->dims, a->dims_used * sizeof(*a->dims));
}

static void copy_dims(uint64_t *to, const uint64_t *from, uint32_t n)
{
    for (uint32_t d = 0; d < n; d++)
        to[d] = from[d];
}

struct sw_source *sw_manifest_sources(const struct sw_manifest *m)
{
    struct sw_source *out = calloc((size_t)m->n + 1, sizeof(*out));

    for (uint32_t i = 0; out && i < m->n; i++) {
        const struct item *item = &m->items[i];
        const uint32_t ndim = item->ndim;

        out[i].name = m->names + item->name;
        out[i].dtype = item->dtype;
        out[i].ndim = out[i].box.ndim = ndim;
        if (ndim == 0)
            continue;
        copy_dims(out[i].shape, m->dims + item->dims, ndim);
        if (item->boxed)
            copy_dims(out[i].box.lo, m->dims + item->dims + ndim, ndim);
        copy_dims(out[i].box.len, m->dims + item->dims + (item->boxed ? 2 * ndim : 0), ndim);
    }
    return out;
}

struct sw_parameter *sw_manifest_parameters(const struct sw_manifest *m)
{
    struct sw_parameter *out = calloc((size_t)m->n + 1, sizeof(*out));

    for (uint32_t i = 0; out && i < m->n; i++) {
        const struct item *item = &m->items[i];

        out[i].name = m->names + item->name;
        out[i].alias_of = item->alias ? m->names + item->alias : NULL;
        out[i].dtype = item->dtype;
        out[i].ndim = item->ndim;
        out[i].region = item->region;
        out[i].offset = item->offset;
        if (item->ndim)
            copy_dims(out[i].shape, m->dims + item->dims, item->ndim);
    }
    return out;
}

size_t sw_manifest_memory(const struct sw_manifest *m)
{
    return sizeof(*m) + m->size * sizeof(*m->items) + m->names_size +
           m->dims_size * sizeof(*m->dims);
}
