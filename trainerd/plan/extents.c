/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wants of a kind, cells of a rank -> extents. A cell lies densely in the replica and by the
 * parameter's strides in the region: as many of its last dimensions as span the parameter's go in
 * one copy, the others are loops.
 */
#include "trainerd/plan/extents.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/own.h"

struct extents { /* sorted as far as they came so */
    uint64_t n, size;
    struct sw_extent *items;
    bool unsorted;
};

struct writer {
    const struct sw_compact *c;
    const struct sw_plan_target *t;
    uint32_t rank;
    struct sw_own own;
    struct extents part[2]; /* parameters without a stack of experts, and those with one */
};

struct copy { /* a cell's way to a parameter; strides in bits: some elements are no whole bytes */
    uint32_t n;
    uint64_t count[SW_MAX_DIMS], step[SW_MAX_DIMS]; /* loops around a run, in the region */
    uint64_t src, dst, run;                         /* bytes */
    uint32_t region;
};

static bool joins(const struct sw_extent *a, const struct sw_extent *b)
{
    return a->region == b->region && a->dst + a->length == b->dst && a->src + a->length == b->src;
}

static bool before(const struct sw_extent *a, const struct sw_extent *b)
{
    return a->region != b->region ? a->region < b->region : a->dst < b->dst;
}

static int too_many(const struct writer *w, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_LIMIT,
        "engine %s rank %u would need more than %u extents from one trainer rank; spread its "
        "tensors over more ranks",
        w->t->engine, w->t->engine_rank, SW_EXTENTS_MAX);
}

static int grow(const struct writer *w, struct extents *x, struct sw_error *e)
{
    const uint64_t size = x->size ? x->size * 2 : 256;
    struct sw_extent *more = realloc(x->items, size * sizeof(*more));

    if (!more)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a write program of engine %s rank %u",
            w->t->engine, w->t->engine_rank);
    x->items = more;
    x->size = size;
    return 0;
}

static int add(
    const struct writer *w, struct extents *x, const struct sw_extent *extent, struct sw_error *e)
{
    struct sw_extent *last = x->n ? &x->items[x->n - 1] : NULL;

    if (last && joins(last, extent)) {
        last->length += extent->length;
        return 0;
    }
    if (x->n == SW_EXTENTS_MAX)
        return too_many(w, e);
    if (x->n == x->size && grow(w, x, e))
        return SW_ERR_NOMEM;
    assert(x->items);
    x->unsorted = x->unsorted || (x->n && before(extent, &x->items[x->n - 1]));
    x->items[x->n++] = *extent;
    return 0;
}

/* ---- one cell ---- */

/* Fills in loops and run; false when there is nothing to copy. */
static bool make_copy(const struct writer *w, const struct sw_want *want,
    const struct sw_cell *cell, struct copy *out)
{
    const struct sw_slab *slab = &w->c->slabs[want->slab];
    const struct sw_parameter *p = &w->t->parameters[want->parameter];
    const uint32_t ndim = cell->box.ndim;
    uint64_t stride = sw_dtype_bits(w->c->formats[slab->format].dst_dtype), at = 0;
    uint64_t run = stride;
    bool full = true; /* all dimensions behind this one span the parameter's */

    *out = (struct copy){.region = p->region};
    for (uint32_t d = ndim; d-- > 0;) {
        const uint64_t len = cell->box.len[d];
        /* A packed tensor's box may have dimensions of length 1 before the parameter's own. */
        const uint64_t shape = ndim - d <= p->ndim ? p->shape[p->ndim - (ndim - d)] : 1;

        if (len == 0)
            return false;
        at += cell->box.lo[d] * stride;
        if (full) {
            run *= len;
        } else if (len > 1) {
            out->count[out->n] = len;
            out->step[out->n++] = stride / 8;
        }
        full = full && len == shape;
        stride *= shape;
    }
    out->run = run / 8;
    out->dst = p->offset + want->offset + at / 8;
    return true;
}

/* The runs of a copy, the last dimension first. */
static int add_copy(
    const struct writer *w, struct extents *x, const struct copy *copy, struct sw_error *e)
{
    struct sw_extent extent = {
        .src = copy->src, .dst = copy->dst, .length = copy->run, .region = copy->region};
    uint64_t at[SW_MAX_DIMS] = {0};
    uint32_t d;

    do {
        const int err = add(w, x, &extent, e);

        if (err)
            return err;
        extent.src += copy->run;
        for (d = 0; d < copy->n; d++) {
            extent.dst += copy->step[d];
            if (++at[d] < copy->count[d])
                break;
            extent.dst -= at[d] * copy->step[d];
            at[d] = 0;
        }
    } while (d < copy->n);
    return 0;
}

static int add_want(
    struct writer *w, const struct sw_want *want, struct extents *x, struct sw_error *e)
{
    const struct sw_compact *c = w->c;
    const struct sw_slab *slab = &c->slabs[want->slab];
    const struct sw_slab_run *run = &c->runs[slab->run];
    int err = 0;

    for (uint32_t i = w->own.first[slab->split]; !err && i < w->own.first[slab->split + 1]; i++) {
        const uint32_t number = w->own.cells[i];
        const struct sw_cell *cell = &c->cells[number];
        struct copy copy;

        if (!make_copy(w, want, cell, &copy))
            continue;
        copy.src =
            c->bases[run->first + (number - c->splits[slab->split].first)] + slab->at * cell->bytes;
        err = add_copy(w, x, &copy, e);
    }
    return err;
}

/* ---- all of them ---- */

static int extent_compare(const void *a, const void *b)
{
    const struct sw_extent *x = a, *y = b;

    return before(x, y) ? -1 : before(y, x);
}

/* Joins neighbours that came apart from each other; appends the result to a program. */
static void append(struct sw_write_plan *plan, struct extents *x)
{
    struct sw_extent *start = plan->extents + plan->n;
    uint64_t n = 0;

    if (x->unsorted)
        qsort(x->items, x->n, sizeof(*x->items), extent_compare);
    for (uint64_t i = 0; i < x->n; i++) {
        plan->bytes += x->items[i].length;
        if (n && joins(&start[n - 1], &x->items[i]))
            start[n - 1].length += x->items[i].length;
        else
            start[n++] = x->items[i];
    }
    plan->n += n;
}

static int collect(const struct sw_layout *l, uint32_t kind, struct writer *w, struct sw_error *e)
{
    const uint8_t *expert = l->known[kind].expert;
    const struct sw_kind *k = &l->c.kinds[kind];
    int err = sw_own_make(&l->c, w->rank, &w->own, e);

    for (uint64_t i = 0; !err && i < k->n; i++) {
        const struct sw_want *want = &l->c.wants[k->first + i];

        err = add_want(w, want, &w->part[expert && expert[want->parameter]], e);
    }
    return err;
}

int sw_extents_make(const struct sw_layout *l, uint32_t kind, uint32_t rank,
    const struct sw_plan_target *t, struct sw_write_plan *out, struct sw_error *e)
{
    struct writer w = {.c = &l->c, .t = t, .rank = rank};
    struct sw_write_plan plan = {.rank = l->ranks[rank].rank, .target = t->target};
    int err = collect(l, kind, &w, e);

    if (!err && w.part[0].n + w.part[1].n > SW_EXTENTS_MAX)
        err = too_many(&w, e);
    if (!err) {
        plan.extents = calloc(w.part[0].n + w.part[1].n + 1, sizeof(*plan.extents));
        if (!plan.extents)
            err = sw_fail(e, SW_ERR_NOMEM, "no memory for a write program of engine %s rank %u",
                t->engine, t->engine_rank);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (!err)
            append(&plan, &w.part[i]);
        free(w.part[i].items);
    }
    sw_own_free(&w.own);
    if (!err)
        *out = plan;
    return err;
}

void sw_write_plan_clear(struct sw_write_plan *p)
{
    free(p->extents);
    *p = (struct sw_write_plan){0};
}
