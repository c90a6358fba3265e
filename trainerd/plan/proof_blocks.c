/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of the proof: the maximum of an FP8 block is known to whoever quantises some of it. See
 * compact_proof.h.
 *
 * Ranks whose cells touch a block reduce their maxima of it, so that together they must hold the
 * whole block. A cell whose rank holds all of its blocks needs nobody. For others it is enough that
 * the tensor's slabs of values make up the blocks: each of their cells lies in what its rank holds.
 */
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/compact_proof.h"
#include "trainerd/plan/proof_box.h"

static const struct sw_format *format_of(const struct sw_compact *c, const struct sw_slab *s)
{
    return &c->formats[s->format];
}

static bool is_fp8(const struct sw_compact *c, const struct sw_slab *s)
{
    const enum sw_transform t = format_of(c, s)->transform;

    return t == SW_TRANSFORM_FP8_VALUES || t == SW_TRANSFORM_FP8_SCALES;
}

/* The blocks that a box of a slab touches, in elements of the tensor. */
static struct sw_box blocks_of(
    const struct sw_compact *c, const struct sw_slab *s, const struct sw_box *box)
{
    const struct sw_format *f = format_of(c, s);
    const struct sw_catalogue_entry *entry = &c->entries[s->source];

    return sw_proof_box_blocks(
        box, f->transform == SW_TRANSFORM_FP8_SCALES, f->block, entry->ndim, entry->shape);
}

/* Whether each cell's rank holds all of the blocks that the cell touches. */
static bool needs_nobody(const struct sw_compact *c, const struct sw_slab *s)
{
    const struct sw_split *split = &c->splits[s->split];

    for (uint32_t i = split->first; i < split->first + split->n; i++) {
        const struct sw_box box = sw_proof_box_moved(&c->cells[i].box, c->boxes[s->box].lo);
        const struct sw_box blocks = blocks_of(c, s, &box);
        const struct sw_box *held = sw_proof_holds(c, s->source, c->cells[i].rank);

        if (!held || !sw_proof_box_inside(&blocks, held))
            return false;
    }
    return true;
}

/* ---- the slabs of one tensor ---- */

struct tensor {
    const struct sw_compact *c;
    const uint32_t *slabs; /* its FP8 slabs */
    uint32_t n;
    struct sw_box *values; /* boxes of those that are values; sorted by where they begin */
    uint32_t n_values;
};

static int box_compare(const void *a, const void *b)
{
    const struct sw_box *x = a, *y = b;

    for (uint32_t d = 0; d < x->ndim; d++)
        if (x->lo[d] != y->lo[d])
            return x->lo[d] < y->lo[d] ? -1 : 1;
    return 0;
}

/* The values that have the blocks of `like`; sorted. */
static void list_values(struct tensor *t, const struct sw_format *like)
{
    bool sorted = true;

    t->n_values = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct sw_slab *s = &t->c->slabs[t->slabs[i]];
        const struct sw_format *f = format_of(t->c, s);

        if (f->transform != SW_TRANSFORM_FP8_VALUES || f->scale != like->scale ||
            f->block[0] != like->block[0] || f->block[1] != like->block[1])
            continue;
        t->values[t->n_values] = t->c->boxes[s->box];
        sorted = sorted && (t->n_values == 0 || box_compare(&t->values[t->n_values - 1],
                                                    &t->values[t->n_values]) <= 0);
        t->n_values++;
    }
    if (!sorted)
        qsort(t->values, t->n_values, sizeof(*t->values), box_compare);
}

/* Whether the values make up a region: most often one of them begins where it does. */
static int values_cover(const struct tensor *t, const struct sw_box *region)
{
    const struct sw_box *same =
        bsearch(region, t->values, t->n_values, sizeof(*t->values), box_compare);

    if (same && sw_proof_box_inside(region, same))
        return 1;
    return sw_proof_box_covers(t->values, t->n_values, sizeof(*t->values), region);
}

/* `alone` tells, by class, that a slab of it needs nobody. */
static int check_tensor(
    const struct sw_proof *p, struct tensor *t, const uint8_t *alone, struct sw_error *e)
{
    const struct sw_format *listed = NULL;

    for (uint32_t i = 0; i < t->n; i++) {
        const struct sw_slab *s = &t->c->slabs[t->slabs[i]];
        const struct sw_format *f = format_of(t->c, s);
        struct sw_box region;
        int covers;

        if (alone[p->classes.of[t->slabs[i]]])
            continue;
        if (!listed || listed->scale != f->scale || listed->block[0] != f->block[0] ||
            listed->block[1] != f->block[1]) {
            list_values(t, f);
            listed = f;
        }
        region = blocks_of(t->c, s, &t->c->boxes[s->box]);
        covers = values_cover(t, &region);
        if (covers < 0)
            return sw_proof_no_memory(e);
        if (!covers)
            return sw_proof_wrong(e,
                "slab %u (%s): no rank that quantises a part of its FP8 blocks holds the rest",
                t->slabs[i], t->c->entries[s->source].name);
    }
    return 0;
}

/* ---- all of them ---- */

/* FP8 slabs by tensor; first[i + 1] is where those of tensor i end. Returns how many; *most is that
 * of one tensor. */
static uint32_t sort_slabs(
    const struct sw_compact *c, uint32_t *first, uint32_t *slabs, uint32_t *most)
{
    uint32_t n = 0;

    *most = 0;
    for (uint32_t i = 0; i < c->n_slabs; i++)
        if (is_fp8(c, &c->slabs[i])) {
            const uint32_t of_tensor = ++first[c->slabs[i].source + 1];

            *most = of_tensor > *most ? of_tensor : *most;
            n++;
        }
    for (uint32_t i = 0; i < c->n_entries; i++)
        first[i + 1] += first[i];
    for (uint32_t i = c->n_slabs; i-- > 0;) /* moves first[i + 1] to where those of i begin */
        if (is_fp8(c, &c->slabs[i]))
            slabs[--first[c->slabs[i].source + 1]] = i;
    return n;
}

static int check_tensors(const struct sw_proof *p, uint32_t *first, uint32_t *slabs,
    const uint8_t *alone, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    uint32_t most;
    const uint32_t n = sort_slabs(c, first, slabs, &most);
    struct sw_box *values = malloc((most + 1ull) * sizeof(*values));
    int err = values ? 0 : sw_proof_no_memory(e);

    for (uint32_t i = 0; !err && i < c->n_entries; i++) {
        const uint32_t from = first[i + 1], to = i + 1 < c->n_entries ? first[i + 2] : n;
        struct tensor t = {.c = c, .slabs = slabs + from, .n = to - from, .values = values};

        err = check_tensor(p, &t, alone, e);
    }
    free(values);
    return err;
}

int sw_proof_blocks(struct sw_proof *p, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    uint8_t *alone = calloc(p->classes.n + 1ull, 1);
    uint32_t *first = calloc(c->n_entries + 2ull, sizeof(*first));
    uint32_t *slabs = malloc((c->n_slabs + 1ull) * sizeof(*slabs));
    bool all_alone = true;
    int err = alone && first && slabs ? 0 : sw_proof_no_memory(e);

    for (uint32_t i = 0; !err && i < p->classes.n; i++) {
        const struct sw_slab *s = &c->slabs[p->classes.first[i]];

        alone[i] = !is_fp8(c, s) || needs_nobody(c, s);
        all_alone = all_alone && alone[i];
    }
    if (!err && !all_alone)
        err = check_tensors(p, first, slabs, alone, e);
    free(alone);
    free(first);
    free(slabs);
    return err;
}
