/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/lookup.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/kinds.h"
#include "trainerd/plan/wants.h"

struct sw_lookup {
    const struct sw_layout *l;
    struct sw_wanting w;
    uint32_t *first, *slabs; /* slabs by entry; after the last entry: zeros */
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to look at the slabs of a plan");
}

void sw_lookup_free(struct sw_lookup *k)
{
    if (!k)
        return;
    sw_wanting_free(&k->w);
    free(k->first);
    free(k->slabs);
    free(k);
}

static uint32_t bucket(const struct sw_layout *l, uint32_t entry)
{
    return entry == SW_NONE ? l->c.n_entries : entry;
}

static int sort_slabs(struct sw_lookup *k, struct sw_error *e)
{
    const struct sw_layout *l = k->l;

    k->first = calloc((size_t)l->c.n_entries + 3, sizeof(*k->first));
    k->slabs = malloc(((size_t)l->c.n_slabs + 1) * sizeof(*k->slabs));
    if (!k->first || !k->slabs)
        return no_memory(e);
    for (uint32_t i = 0; i < l->c.n_slabs; i++)
        k->first[bucket(l, l->c.slabs[i].source) + 2]++;
    for (uint32_t i = 2; i < l->c.n_entries + 3; i++)
        k->first[i] += k->first[i - 1];
    for (uint32_t i = 0; i < l->c.n_slabs; i++)
        k->slabs[k->first[bucket(l, l->c.slabs[i].source) + 1]++] = i;
    return 0;
}

static int lookup_make(const struct sw_layout *l, struct sw_lookup **out, struct sw_error *e)
{
    struct sw_lookup *k = calloc(1, sizeof(*k));
    int err;

    if (!k)
        return no_memory(e);
    k->l = l;
    err = sw_wanting_init(&k->w, l, false, e);
    if (!err)
        err = sort_slabs(k, e);
    if (err) {
        sw_lookup_free(k);
        return err;
    }
    *out = k;
    return 0;
}

static bool same_format(const struct sw_format *f, const struct sw_format *g)
{
    return f->transform == g->transform && f->src_dtype == g->src_dtype &&
           f->dst_dtype == g->dst_dtype && f->block[0] == g->block[0] &&
           f->block[1] == g->block[1] && f->scale == g->scale;
}

/* Whether a slab's box is the next piece of `box`, of which all up to `at` along `axis` is found:
 * equal in all other dimensions, and within it. The first dimension that isn't 1 is the axis. */
static bool is_next(const struct sw_box *slab, const struct sw_box *box, uint32_t axis, uint64_t at)
{
    for (uint32_t d = 0; d < box->ndim; d++)
        if (d != axis && (slab->lo[d] != box->lo[d] || slab->len[d] != box->len[d]))
            return false;
    return box->ndim == 0 ||
           (slab->lo[axis] == at && at + slab->len[axis] <= box->lo[axis] + box->len[axis]);
}

static uint32_t find_next(const struct sw_lookup *k, const struct sw_raw *raw,
    const struct sw_box *box, uint32_t axis, uint64_t at)
{
    const struct sw_compact *c = &k->l->c;
    const uint32_t b = bucket(k->l, raw->entry);
    uint32_t best = SW_NONE;

    for (uint32_t i = k->first[b]; i < k->first[b + 1]; i++) {
        const struct sw_slab *slab = &c->slabs[k->slabs[i]];
        const struct sw_box *have = &c->boxes[slab->box];

        if (have->ndim != box->ndim ||
            !same_format(&c->formats[slab->format], &k->w.formats[raw->format]) ||
            !is_next(have, box, axis, at))
            continue;
        if (box->ndim == 0 || best == SW_NONE ||
            have->len[axis] > c->boxes[c->slabs[best].box].len[axis])
            best = k->slabs[i];
    }
    return best;
}

/* Bytes from one index of the box's dimension d to the next, in the parameter. */
static uint64_t stride_in(const struct sw_parameter *p, uint32_t ndim, uint32_t d)
{
    const uint64_t bits = sw_dtype_bits(p->dtype);
    uint64_t elements = 1;

    for (uint32_t i = d + 1; i < ndim; i++)
        elements *= p->shape[i + p->ndim - ndim];
    return elements / 8 * bits + elements % 8 * bits / 8;
}

static int no_tile(const struct sw_plan_target *t, const struct sw_parameter *p, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s is in no tile of the current plan (no engine wanted it "
        "when the plan was made); the next version plans for it",
        t->engine, t->engine_rank, p->name);
}

/* Covers one raw want with slabs, along its axis; from the longest on, without going back: cuts of
 * one tensor have common ends. */
static int cover(const struct sw_lookup *k, const struct sw_plan_target *t,
    const struct sw_raw *raw, struct sw_want **wants, uint32_t *n, uint32_t *size,
    struct sw_error *e)
{
    const struct sw_box *box = &k->w.boxes.items[raw->box];
    const struct sw_parameter *p = &t->parameters[raw->parameter];
    uint32_t axis = 0;
    uint64_t at, end;

    while (axis + 1 < box->ndim && box->len[axis] == 1)
        axis++;
    at = box->ndim ? box->lo[axis] : 0;
    end = box->ndim ? at + box->len[axis] : 1;
    while (at < end) {
        const uint32_t slab = find_next(k, raw, box, axis, at);

        if (slab == SW_NONE)
            return no_tile(t, p, e);
        if (sw_array_room(wants, size, *n, sizeof(**wants)))
            return no_memory(e);
        (*wants)[(*n)++] = (struct sw_want){slab, raw->parameter,
            raw->offset + (box->ndim ? (at - box->lo[axis]) * stride_in(p, box->ndim, axis) : 0)};
        at += box->ndim ? k->l->c.boxes[k->l->c.slabs[slab].box].len[axis] : 1;
    }
    return 0;
}

int sw_lookup_wants(const struct sw_layout *l, struct sw_lookup **lookup,
    const struct sw_plan_target *t, struct sw_want **wants, uint64_t *n, uint8_t **expert,
    struct sw_error *e)
{
    struct sw_want *found = NULL;
    uint8_t *stacked = NULL;
    uint32_t count = 0, size = 0;
    int err = *lookup ? 0 : lookup_make(l, lookup, e);

    if (err)
        return err;
    (*lookup)->w.n = 0;
    err = sw_wanting_target(&(*lookup)->w, t, &stacked, e);
    for (uint32_t i = 0; !err && i < (*lookup)->w.n; i++)
        err = cover(*lookup, t, &(*lookup)->w.raw[i], &found, &count, &size, e);
    if (err) {
        free(found);
        free(stacked);
        return err;
    }
    *wants = found;
    *n = count;
    *expert = stacked;
    return 0;
}

int sw_layout_knows(const struct sw_layout *l, const struct sw_plan_target *t, struct sw_error *e)
{
    struct sw_lookup *lookup = NULL;
    struct sw_want *wants = NULL;
    uint8_t *expert = NULL;
    uint64_t n;
    int err;

    if (sw_layout_kind_of(l, t) != SW_NONE)
        return sw_storages_check(NULL, t, e);
    err = sw_lookup_wants(l, &lookup, t, &wants, &n, &expert, e);
    free(wants);
    free(expert);
    sw_lookup_free(lookup);
    return err;
}
