/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells that the same NICs could send are added up, in whichever slab they are; then each set of
 * NICs takes in the bytes of its subsets.
 */
#include "trainerd/plan/bound.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/boxes.h"
#include "trainerd/plan/layout.h"

#define CLOSED_SETS_MAX 4096u /* with more of them, subsets are not looked for: still a bound */

struct set { /* NICs, as bits */
    uint64_t bytes;
    uint32_t n;
};

struct likeness { /* slabs whose cells have the same candidates, and their bytes x destinations */
    uint32_t holders, box, split, format;
    uint64_t weight; /* destinations, of all of them */
};

struct bound {
    const struct sw_compact *c;
    uint32_t n_ranks, n_nics, words;
    uint32_t *nic;          /* by rank position */
    uint64_t *destinations; /* by slab: targets that want it */
    struct likeness *likes;
    uint32_t n_likes;
    struct set *sets;
    uint64_t *bits; /* of sets, `words` each */
    uint32_t n_sets, size;
    uint32_t *slots; /* hash table over sets: index + 1 */
    uint32_t n_slots;
    struct sw_error *e;
};

static int no_memory(struct bound *b)
{
    return sw_fail(b->e, SW_ERR_NOMEM, "no memory for a plan's lower bound");
}

/* ---- NICs ---- */

struct place {
    uint64_t key; /* host, nic */
    uint32_t rank;
};

static int place_compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return x->key < y->key ? -1 : x->key > y->key;
}

static int number_nics(struct bound *b, const struct sw_plan_rank *ranks)
{
    struct place *p = calloc((size_t)b->n_ranks + 1, sizeof(*p));

    b->nic = calloc((size_t)b->n_ranks + 1, sizeof(*b->nic));
    if (!p || !b->nic) {
        free(p);
        return no_memory(b);
    }
    for (uint32_t r = 0; r < b->n_ranks; r++)
        p[r] = (struct place){(uint64_t)ranks[r].host << 32 | ranks[r].nic, r};
    qsort(p, b->n_ranks, sizeof(*p), place_compare);
    for (uint32_t r = 0; r < b->n_ranks; r++) {
        b->n_nics += r == 0 || p[r].key != p[r - 1].key;
        b->nic[p[r].rank] = b->n_nics - 1;
    }
    b->words = b->n_nics / 64 + 1;
    free(p);
    return 0;
}

/* ---- slabs and their destinations ---- */

static int count_destinations(
    struct bound *b, const struct sw_layout *l, const struct sw_plan_target *targets, uint32_t n)
{
    uint64_t *by_kind = calloc((size_t)b->c->n_kinds + 1, sizeof(*by_kind));

    b->destinations = calloc((size_t)b->c->n_slabs + 1, sizeof(*b->destinations));
    if (!by_kind || !b->destinations) {
        free(by_kind);
        return no_memory(b);
    }
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t kind = sw_layout_kind_of(l, &targets[t]);

        if (kind != SW_NONE)
            by_kind[kind]++;
    }
    for (uint32_t k = 0; k < b->c->n_kinds; k++)
        for (uint64_t i = 0; i < b->c->kinds[k].n; i++)
            b->destinations[b->c->wants[b->c->kinds[k].first + i].slab] += by_kind[k];
    free(by_kind);
    return 0;
}

static int like_compare(const void *a, const void *b)
{
    const struct likeness *x = a, *y = b;

    if (x->holders != y->holders)
        return x->holders < y->holders ? -1 : 1;
    if (x->split != y->split)
        return x->split < y->split ? -1 : 1;
    if (x->box != y->box)
        return x->box < y->box ? -1 : 1;
    return x->format < y->format ? -1 : x->format > y->format;
}

/* Zeros can be sent by anybody: they bind nobody. */
static int group_slabs(struct bound *b)
{
    uint32_t used = 0;

    b->likes = calloc((size_t)b->c->n_slabs + 1, sizeof(*b->likes));
    if (!b->likes)
        return no_memory(b);
    for (uint32_t s = 0; s < b->c->n_slabs; s++) {
        const struct sw_slab *slab = &b->c->slabs[s];

        if (slab->source != SW_NONE)
            b->likes[b->n_likes++] = (struct likeness){b->c->entries[slab->source].holders,
                slab->box, slab->split, slab->format, b->destinations[s]};
    }
    qsort(b->likes, b->n_likes, sizeof(*b->likes), like_compare);
    for (uint32_t i = 0; i < b->n_likes; i++) {
        if (used && !like_compare(&b->likes[used - 1], &b->likes[i]))
            b->likes[used - 1].weight += b->likes[i].weight;
        else
            b->likes[used++] = b->likes[i];
    }
    b->n_likes = used;
    return 0;
}

/* ---- sets ---- */

static int grow(struct bound *b)
{
    const uint32_t size = b->size ? b->size * 2 : 256, n_slots = size * 2;
    struct set *sets = realloc(b->sets, size * sizeof(*sets));
    uint64_t *bits = realloc(b->bits, (size_t)size * b->words * sizeof(*bits));
    uint32_t *slots = calloc(n_slots, sizeof(*slots));

    b->sets = sets ? sets : b->sets;
    b->bits = bits ? bits : b->bits;
    if (!sets || !bits || !slots) {
        free(slots);
        return no_memory(b);
    }
    for (uint32_t i = 0; i < b->n_sets; i++) {
        uint32_t at = (uint32_t)XXH3_64bits(bits + (size_t)i * b->words, b->words * 8) % n_slots;

        while (slots[at])
            at = (at + 1) % n_slots;
        slots[at] = i + 1;
    }
    free(b->slots);
    b->slots = slots;
    b->n_slots = n_slots;
    b->size = size;
    return 0;
}

static int add_to_set(struct bound *b, const uint64_t *bits, uint64_t bytes)
{
    const size_t length = b->words * sizeof(*bits);
    uint32_t at;

    if (b->n_sets == b->size && grow(b))
        return SW_ERR_NOMEM;
    at = (uint32_t)XXH3_64bits(bits, length) % b->n_slots;
    while (
        b->slots[at] && memcmp(b->bits + (size_t)(b->slots[at] - 1) * b->words, bits, length) != 0)
        at = (at + 1) % b->n_slots;
    if (!b->slots[at]) {
        b->sets[b->n_sets] = (struct set){0};
        for (uint32_t i = 0; i < b->words; i++)
            b->sets[b->n_sets].n += (uint32_t)__builtin_popcountll(bits[i]);
        memcpy(b->bits + (size_t)b->n_sets * b->words, bits, length);
        b->slots[at] = ++b->n_sets;
    }
    b->sets[b->slots[at] - 1].bytes += bytes;
    return 0;
}

/* A cell in elements of the source tensor. */
static struct sw_box cell_box(const struct bound *b, const struct likeness *k,
    const struct sw_cell *cell, const struct sw_catalogue_entry *shape)
{
    const struct sw_format *f = &b->c->formats[k->format];
    const struct sw_box *slab = &b->c->boxes[k->box];
    struct sw_box at = cell->box, out;

    for (uint32_t d = 0; d < slab->ndim; d++)
        at.lo[d] += slab->lo[d];
    if (f->transform != SW_TRANSFORM_FP8_SCALES)
        return at;
    sw_box_of_blocks(&at, f->block, shape->shape, &out);
    return out;
}

/* Scales: who holds some of the block could be given it. */
static bool could_send(const struct sw_box *held, const struct sw_box *cell, bool scales)
{
    for (uint32_t d = 0; d < cell->ndim; d++) {
        const uint64_t held_end = held->lo[d] + held->len[d], end = cell->lo[d] + cell->len[d];

        if (scales ? held->lo[d] >= end || held_end <= cell->lo[d]
                   : held->lo[d] > cell->lo[d] || held_end < end)
            return false;
    }
    return true;
}

static int add_likeness(struct bound *b, const struct likeness *k, uint64_t *bits,
    const struct sw_catalogue_entry *shape)
{
    const struct sw_split *split = &b->c->splits[k->split];
    const struct sw_holders *h = &b->c->holders[k->holders];
    const bool scales = b->c->formats[k->format].transform == SW_TRANSFORM_FP8_SCALES;
    int err = 0;

    for (uint32_t i = 0; !err && i < split->n; i++) {
        const struct sw_cell *cell = &b->c->cells[split->first + i];
        const struct sw_box box = cell_box(b, k, cell, shape);

        memset(bits, 0, b->words * sizeof(*bits));
        for (uint32_t j = 0; j < h->n; j++) {
            const struct sw_holder *holder = &b->c->holder_items[h->first + j];
            const uint32_t nic = b->nic[holder->rank];

            if (could_send(&holder->box, &box, scales))
                bits[nic / 64] |= 1ull << nic % 64;
        }
        err = add_to_set(b, bits, cell->bytes * k->weight);
    }
    return err;
}

static int add_cells(struct bound *b)
{
    uint64_t *bits = calloc((size_t)b->words + 1, sizeof(*bits));
    const struct sw_catalogue_entry **shapes =
        calloc((size_t)b->c->n_holders + 1, sizeof(*shapes)); /* of tensors with these holders */
    int err = bits && shapes ? 0 : no_memory(b);

    for (uint32_t i = 0; !err && i < b->c->n_entries; i++)
        shapes[b->c->entries[i].holders] = &b->c->entries[i];
    for (uint32_t i = 0; !err && i < b->n_likes; i++)
        err = add_likeness(b, &b->likes[i], bits, shapes[b->likes[i].holders]);
    free(bits);
    free(shapes);
    return err;
}

/* ---- the bound ---- */

static bool is_subset(const uint64_t *a, const uint64_t *b, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        if (a[i] & ~b[i])
            return false;
    return true;
}

static uint64_t share(uint64_t bytes, uint32_t n)
{
    return n ? bytes / n + (bytes % n != 0) : 0;
}

static uint64_t largest(const struct bound *b)
{
    uint64_t all = 0, top;

    for (uint32_t i = 0; i < b->n_sets; i++)
        all += b->sets[i].bytes;
    top = share(all, b->n_nics);
    for (uint32_t i = 0; i < b->n_sets; i++) {
        uint64_t bytes = b->sets[i].bytes;

        for (uint32_t j = 0; b->n_sets <= CLOSED_SETS_MAX && j < b->n_sets; j++)
            if (j != i && b->sets[j].n <= b->sets[i].n &&
                is_subset(b->bits + (size_t)j * b->words, b->bits + (size_t)i * b->words, b->words))
                bytes += b->sets[j].bytes;
        bytes = share(bytes, b->sets[i].n);
        top = bytes > top ? bytes : top;
    }
    return top;
}

int sw_bound_make(const struct sw_layout *l, const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, uint64_t *bound, struct sw_error *e)
{
    struct bound b = {.c = &l->c, .n_ranks = n_ranks, .e = e};
    int err = number_nics(&b, ranks);

    if (!err)
        err = count_destinations(&b, l, targets, n_targets);
    if (!err)
        err = group_slabs(&b);
    if (!err)
        err = add_cells(&b);
    if (!err)
        *bound = largest(&b);
    free(b.nic);
    free(b.destinations);
    free(b.likes);
    free(b.sets);
    free(b.bits);
    free(b.slots);
    return err;
}
