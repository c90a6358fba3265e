/* SPDX-License-Identifier: Apache-2.0 */
/* Raw wants -> distinct slabs, and wants of these. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/build.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the slabs of a plan");
}

/* ---- a set of slabs ---- */

static bool same_slab(const void *arg, uint32_t item, const void *key)
{
    return !memcmp(
        &((const struct sw_slab_set *)arg)->items[item], key, sizeof(struct sw_slab_key));
}

uint32_t sw_slab_set_find(const struct sw_slab_set *s, const struct sw_slab_key *key)
{
    return sw_index_find(&s->index, XXH3_64bits(key, sizeof(*key)), same_slab, s, key);
}

uint32_t sw_slab_set_add(struct sw_slab_set *s, const struct sw_slab_key *key)
{
    const uint64_t hash = XXH3_64bits(key, sizeof(*key));
    const uint32_t found = sw_index_find(&s->index, hash, same_slab, s, key);

    if (found != SW_NONE)
        return found;
    if (sw_array_room(&s->items, &s->size, s->n, sizeof(*s->items)) ||
        sw_index_add(&s->index, hash, s->n))
        return SW_NONE;
    s->items[s->n] = *key;
    return s->n++;
}

void sw_slab_set_free(struct sw_slab_set *s)
{
    free(s->items);
    sw_index_free(&s->index);
    *s = (struct sw_slab_set){0};
}

uint64_t sw_build_bytes(const struct sw_build *b, const struct sw_slab_key *slab)
{
    return sw_box_bytes(&b->w.boxes.items[slab->box], b->w.formats[slab->format].dst_dtype);
}

/* ---- who wants a slab ---- */

struct audience { /* the kinds of `parent`, and one more */
    uint32_t parent, kind;
};

struct audiences {
    uint32_t n, size;
    struct audience *items;
    struct sw_index index;
};

static bool same_audience(const void *arg, uint32_t item, const void *key)
{
    return !memcmp(&((const struct audiences *)arg)->items[item], key, sizeof(struct audience));
}

static int add_kind(struct audiences *a, uint32_t *audience, uint32_t kind)
{
    const struct audience key = {*audience, kind};
    const uint64_t hash = XXH3_64bits(&key, sizeof(key));

    if (*audience != SW_NONE && a->items[*audience].kind == kind)
        return 0;
    *audience = sw_index_find(&a->index, hash, same_audience, a, &key);
    if (*audience != SW_NONE)
        return 0;
    if (sw_array_room(&a->items, &a->size, a->n, sizeof(*a->items)) ||
        sw_index_add(&a->index, hash, a->n))
        return -1;
    a->items[a->n] = key;
    *audience = a->n++;
    return 0;
}

/* ---- wants ---- */

struct emitter {
    struct sw_build *b;
    struct audiences audiences;
    const struct sw_plan_target *t; /* the first of the kind */
    uint32_t kind;
    uint64_t size; /* of wants */
};

/* Whether a want lies before another one in the engine rank. */
static bool before(const struct sw_plan_target *t, const struct sw_want *a, const struct sw_want *b)
{
    const struct sw_parameter *p = &t->parameters[a->parameter], *q = &t->parameters[b->parameter];

    if (p->region != q->region)
        return p->region < q->region;
    return p->offset + a->offset < q->offset + b->offset;
}

static int emit(struct emitter *m, uint32_t slab, const struct sw_raw *raw, uint64_t offset)
{
    struct sw_build *b = m->b;
    struct sw_compact *c = &b->l->c;
    const struct sw_want want = {slab, raw->parameter, offset};
    uint32_t *first = &b->first_want[slab];

    if (c->n_wants == m->size) {
        const uint64_t size = m->size + m->size / 2 + 16;
        struct sw_want *more = realloc(c->wants, size * sizeof(*more));

        if (!more)
            return -1;
        c->wants = more;
        m->size = size;
    }
    if (c->n_wants >= SW_NONE || b->dests[slab] > SW_NONE - b->kind_targets[m->kind])
        return -1;
    b->dests[slab] += b->kind_targets[m->kind];
    if (*first == SW_NONE ||
        (*first >= c->kinds[m->kind].first && before(m->t, &want, &c->wants[*first])))
        *first = (uint32_t)c->n_wants;
    c->wants[c->n_wants++] = want;
    return add_kind(&m->audiences, &b->audience[slab], m->kind);
}

/* Bytes from one index of the box's dimension d to the next, in the parameter. */
static uint64_t stride_in(const struct sw_parameter *p, uint32_t ndim, uint32_t d)
{
    const uint64_t bits = sw_dtype_bits(p->dtype);
    uint64_t elements = 1;

    for (uint32_t k = d + 1; k < ndim; k++)
        elements *= p->shape[k + p->ndim - ndim];
    return elements / 8 * bits + elements % 8 * bits / 8;
}

/* How far a piece of a box begins behind it, in the parameter; they differ in one dimension. */
static uint64_t piece_offset(const struct emitter *m, const struct sw_raw *raw, uint32_t piece)
{
    const struct sw_box *whole = &m->b->w.boxes.items[raw->box];
    const struct sw_box *box = &m->b->w.boxes.items[piece];

    for (uint32_t d = 0; d < box->ndim; d++)
        if (box->lo[d] != whole->lo[d])
            return (box->lo[d] - whole->lo[d]) *
                   stride_in(&m->t->parameters[raw->parameter], box->ndim, d);
    return 0;
}

static int emit_kind(struct emitter *m, const struct sw_cuts *cuts, const struct sw_slab_set *raws,
    const uint32_t *raw_slab)
{
    struct sw_build *b = m->b;
    const struct sw_slab_key *keys = raws->items;

    for (uint32_t i = b->kind_raw[m->kind]; i < b->kind_raw[m->kind + 1]; i++) {
        const struct sw_raw *raw = &b->w.raw[i];
        const uint32_t r = raw_slab[i];

        if (!cuts->first || !keys) {
            if (emit(m, r, raw, raw->offset))
                return -1;
            continue;
        }
        for (uint32_t k = cuts->first[r]; k < cuts->first[r + 1]; k++) {
            const struct sw_slab_key key = {
                keys[r].entry, keys[r].format, cuts->pieces[k], SW_NONE};

            if (emit(m, sw_slab_set_find(&b->slabs, &key), raw,
                    raw->offset + piece_offset(m, raw, cuts->pieces[k])))
                return -1;
        }
    }
    return 0;
}

static int emit_wants(struct sw_build *b, const struct sw_cuts *cuts,
    const struct sw_slab_set *raws, const uint32_t *raw_slab, struct sw_error *e)
{
    struct sw_compact *c = &b->l->c;
    const size_t n = (size_t)b->slabs.n + 1;
    struct emitter m = {.b = b, .size = b->w.n};
    int err = 0;

    b->dests = calloc(n, sizeof(*b->dests));
    b->first_want = malloc(n * sizeof(*b->first_want));
    b->audience = malloc(n * sizeof(*b->audience));
    c->wants = malloc(((size_t)b->w.n + 1) * sizeof(*c->wants));
    if (!b->dests || !b->first_want || !b->audience || !c->wants)
        return no_memory(e);
    memset(b->first_want, 0xff, n * sizeof(*b->first_want));
    memset(b->audience, 0xff, n * sizeof(*b->audience));
    for (m.kind = 0; !err && m.kind < c->n_kinds; m.kind++) {
        struct sw_kind *kind = &c->kinds[m.kind];

        m.t = &b->targets[kind->target];
        kind->first = c->n_wants;
        if (emit_kind(&m, cuts, raws, raw_slab))
            err = no_memory(e);
        kind->n = c->n_wants - kind->first;
    }
    free(m.audiences.items);
    sw_index_free(&m.audiences.index);
    return err;
}

/* ---- all of it ---- */

static int find_raw_slabs(struct sw_build *b, struct sw_slab_set *raws, uint32_t *raw_slab,
    uint32_t **dests, struct sw_error *e)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < b->w.n; i++) {
        const struct sw_raw *raw = &b->w.raw[i];
        const struct sw_slab_key key = {raw->entry, raw->format, raw->box, SW_NONE};

        raw_slab[i] = sw_slab_set_add(raws, &key);
        if (raw_slab[i] == SW_NONE)
            return no_memory(e);
    }
    *dests = calloc((size_t)raws->n + 1, sizeof(**dests));
    if (!*dests)
        return no_memory(e);
    for (uint32_t i = 0; i < b->w.n; i++) {
        while (i >= b->kind_raw[k + 1])
            k++;
        (*dests)[raw_slab[i]] += b->kind_targets[k];
    }
    return 0;
}

static int cut_slabs(struct sw_build *b, struct sw_slab_set *raws, const uint32_t *dests,
    struct sw_cuts *cuts, struct sw_error *e)
{
    int err = 0;

    if (b->options.assignment != SW_ASSIGN_LMSYS)
        err = sw_cuts_make(b, raws, dests, cuts, e);
    if (err)
        return err;
    if (!cuts->first) { /* as they are */
        b->slabs = *raws;
        *raws = (struct sw_slab_set){0};
        return 0;
    }
    for (uint32_t r = 0; r < raws->n; r++)
        for (uint32_t k = cuts->first[r]; k < cuts->first[r + 1]; k++) {
            const struct sw_slab_key key = {
                raws->items[r].entry, raws->items[r].format, cuts->pieces[k], SW_NONE};

            if (sw_slab_set_add(&b->slabs, &key) == SW_NONE)
                return no_memory(e);
        }
    return 0;
}

int sw_build_slabs(struct sw_build *b, struct sw_error *e)
{
    struct sw_slab_set raws = {0};
    struct sw_cuts cuts = {0};
    uint32_t *raw_slab = malloc(((size_t)b->w.n + 1) * sizeof(*raw_slab)), *dests = NULL;
    int err = raw_slab ? find_raw_slabs(b, &raws, raw_slab, &dests, e) : no_memory(e);

    if (!err && b->options.assignment == SW_ASSIGN_LMSYS)
        err = sw_build_lmsys(b, &raws, raw_slab, e);
    if (!err)
        err = cut_slabs(b, &raws, dests, &cuts, e);
    free(dests);
    if (!err)
        err = emit_wants(b, &cuts, &raws, raw_slab, e);
    free(raw_slab);
    sw_slab_set_free(&raws);
    sw_cuts_free(&cuts);
    return err;
}
