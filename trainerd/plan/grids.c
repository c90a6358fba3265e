/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/grids.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"

/* ---- geometry ---- */

static uint64_t block_length(const uint32_t block[2], uint32_t ndim, uint32_t d)
{
    return d + 1 == ndim ? block[1] : d + 2 == ndim ? block[0] : 1;
}

void sw_grid_span(const struct sw_box *box, const uint32_t block[2], struct sw_box *blocks)
{
    struct sw_box out = {.ndim = box->ndim};

    for (uint32_t d = 0; d < box->ndim; d++) {
        const uint64_t b = block_length(block, box->ndim, d);

        out.lo[d] = box->lo[d] / b;
        out.len[d] = (box->lo[d] + box->len[d] + b - 1) / b - out.lo[d];
    }
    *blocks = out;
}

/* The blocks that lie wholly in a box; those at the tensor's end are cut off there. */
static void whole_blocks(
    const struct sw_box *box, const uint64_t *shape, const uint32_t block[2], struct sw_box *blocks)
{
    struct sw_box out = {.ndim = box->ndim};

    for (uint32_t d = 0; d < box->ndim; d++) {
        const uint64_t b = block_length(block, box->ndim, d), end = box->lo[d] + box->len[d];
        const uint64_t last = end == shape[d] ? (end + b - 1) / b : end / b;

        out.lo[d] = (box->lo[d] + b - 1) / b;
        out.len[d] = last > out.lo[d] ? last - out.lo[d] : 0;
    }
    *blocks = out;
}

uint64_t sw_grid_count(const struct sw_box *blocks)
{
    uint64_t n = 1;

    for (uint32_t d = 0; d < blocks->ndim; d++)
        n *= blocks->len[d];
    return n;
}

bool sw_grid_contains(const struct sw_box *outer, const struct sw_box *inner)
{
    for (uint32_t d = 0; d < inner->ndim; d++)
        if (inner->lo[d] < outer->lo[d] ||
            inner->lo[d] + inner->len[d] > outer->lo[d] + outer->len[d])
            return false;
    return true;
}

/* False when they have no block in common. */
static bool intersect(const struct sw_box *a, const struct sw_box *b, struct sw_box *both)
{
    struct sw_box out = {.ndim = a->ndim};

    for (uint32_t d = 0; d < a->ndim; d++) {
        const uint64_t lo = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        const uint64_t x = a->lo[d] + a->len[d], y = b->lo[d] + b->len[d];
        const uint64_t end = x < y ? x : y;

        if (end <= lo)
            return false;
        out.lo[d] = lo;
        out.len[d] = end - lo;
    }
    *both = out;
    return true;
}

const struct sw_box *sw_grid_held(const struct sw_compact *c, uint32_t entry, uint32_t rank)
{
    const struct sw_holders *h = &c->holders[c->entries[entry].holders];
    uint32_t low = h->first, high = h->first + h->n;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (c->holder_items[mid].rank == rank)
            return &c->holder_items[mid].box;
        if (c->holder_items[mid].rank < rank)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* ---- classes ---- */

struct classes { /* while they are found */
    const struct sw_compact *c;
    struct sw_grids g;
    uint32_t *key;        /* by format: a number for its blocks; SW_NONE: not FP8 */
    uint32_t *first;      /* by entry, and one more: its slabs in g->uses */
    uint32_t *item_class; /* by item, in the order of entries */
    uint32_t *item_start; /* by item: its slabs in g->uses, from here to the next item's */
    uint32_t *table;      /* classes + 1, by hash */
    uint32_t mask;
};

static bool is_fp8(const struct sw_format *f)
{
    return f->transform == SW_TRANSFORM_FP8_VALUES || f->transform == SW_TRANSFORM_FP8_SCALES;
}

static int number_keys(struct classes *k, struct sw_error *e)
{
    for (uint32_t i = 0; i < k->c->n_formats; i++) {
        const struct sw_format *f = &k->c->formats[i];

        k->key[i] = SW_NONE;
        if (!is_fp8(f))
            continue;
        if (!f->block[0] || !f->block[1])
            return sw_fail(e, SW_ERR_PLAN, "the plan is wrong: an FP8 format without blocks");
        k->key[i] = i;
        for (uint32_t j = 0; j < i; j++) {
            const struct sw_format *g = &k->c->formats[j];

            if (k->key[j] == j && g->block[0] == f->block[0] && g->block[1] == f->block[1] &&
                g->scale == f->scale) {
                k->key[i] = j;
                break;
            }
        }
    }
    return 0;
}

static uint32_t slab_key(const struct classes *k, uint32_t slab)
{
    return k->key[k->c->slabs[slab].format];
}

static int slab_compare(const struct classes *k, uint32_t a, uint32_t b)
{
    const struct sw_slab *x = &k->c->slabs[a], *y = &k->c->slabs[b];

    if (slab_key(k, a) != slab_key(k, b))
        return slab_key(k, a) < slab_key(k, b) ? -1 : 1;
    if (x->format != y->format)
        return x->format < y->format ? -1 : 1;
    if (x->box != y->box)
        return x->box < y->box ? -1 : 1;
    return x->split < y->split ? -1 : x->split > y->split;
}

static int slab_compare_r(const void *a, const void *b, void *arg)
{
    return slab_compare(arg, *(const uint32_t *)a, *(const uint32_t *)b);
}

/* The FP8 slabs by entry; each entry's sorted, so that those of equal tensors can be compared. */
static void sort_slabs(struct classes *k, uint32_t n_uses)
{
    const struct sw_compact *c = k->c;
    uint32_t *uses = k->g.uses;

    for (uint32_t i = 0; i < c->n_slabs; i++)
        if (slab_key(k, i) != SW_NONE)
            k->first[c->slabs[i].source + 1]++;
    for (uint32_t i = 0; i < c->n_entries; i++)
        k->first[i + 1] += k->first[i];
    k->first[c->n_entries + 1] = n_uses;
    for (uint32_t i = c->n_slabs; i-- > 0;) /* first[] moves to where each entry's begin */
        if (slab_key(k, i) != SW_NONE)
            uses[--k->first[c->slabs[i].source + 1]] = i;
    for (uint32_t i = 0; i < c->n_entries; i++) {
        const uint32_t n = k->first[i + 2] - k->first[i + 1];
        bool sorted = true;

        for (uint32_t j = 1; j < n; j++)
            sorted = sorted &&
                     slab_compare(k, uses[k->first[i + 1] + j - 1], uses[k->first[i + 1] + j]) <= 0;
        if (!sorted)
            qsort_r(uses + k->first[i + 1], n, sizeof(*uses), slab_compare_r, k);
    }
}

static uint64_t hash_uses(const struct classes *k, const uint32_t *uses, uint32_t n)
{
    const struct sw_catalogue_entry *entry = &k->c->entries[k->c->slabs[uses[0]].source];
    uint64_t hash = XXH3_64bits_withSeed(entry->shape, sizeof(entry->shape), entry->holders);

    for (uint32_t i = 0; i < n; i++) {
        const struct sw_slab *s = &k->c->slabs[uses[i]];
        const uint32_t values[] = {s->format, s->box, s->split};

        hash = XXH3_64bits_withSeed(values, sizeof(values), hash);
    }
    return hash;
}

static bool same_class(
    const struct classes *k, const struct sw_grid_class *class, const uint32_t *uses, uint32_t n)
{
    const struct sw_catalogue_entry *a = &k->c->entries[class->entry];
    const struct sw_catalogue_entry *b = &k->c->entries[k->c->slabs[uses[0]].source];

    if (class->n_uses != n || a->holders != b->holders || a->ndim != b->ndim ||
        memcmp(a->shape, b->shape, sizeof(a->shape)) != 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (slab_compare(k, k->g.uses[class->first_use + i], uses[i]))
            return false;
    return true;
}

static uint32_t find_class(struct classes *k, uint32_t first, uint32_t n)
{
    const uint32_t *uses = k->g.uses + first;
    const struct sw_format *f = &k->c->formats[k->c->slabs[uses[0]].format];
    uint32_t at = (uint32_t)hash_uses(k, uses, n) & k->mask;

    for (; k->table[at]; at = (at + 1) & k->mask)
        if (same_class(k, &k->g.classes[k->table[at] - 1], uses, n))
            return k->table[at] - 1;
    k->g.classes[k->g.n_classes] = (struct sw_grid_class){.entry = k->c->slabs[uses[0]].source,
        .block = {f->block[0], f->block[1]},
        .scale = f->scale,
        .first_use = first,
        .n_uses = n};
    k->table[at] = ++k->g.n_classes;
    return k->g.n_classes - 1;
}

/* Items in the order of entries, and their classes. */
static void find_items(struct classes *k, uint32_t n_uses)
{
    for (uint32_t i = 0, n; i < n_uses; i += n) {
        const uint32_t slab = k->g.uses[i];
        const struct sw_slab *s = &k->c->slabs[slab];

        for (n = 1; i + n < n_uses; n++) {
            const uint32_t other = k->g.uses[i + n];

            if (k->c->slabs[other].source != s->source || slab_key(k, other) != slab_key(k, slab))
                break;
        }
        k->item_start[k->g.n_items] = i;
        k->item_class[k->g.n_items] = find_class(k, i, n);
        k->g.classes[k->item_class[k->g.n_items++]].n_items++;
    }
    k->item_start[k->g.n_items] = n_uses;
}

static void place_items(struct classes *k)
{
    struct sw_grids *g = &k->g;
    uint32_t at = 0;

    for (uint32_t i = 0; i < g->n_classes; i++) {
        g->classes[i].first_item = at;
        at += g->classes[i].n_items;
        g->classes[i].n_items = 0;
    }
    for (uint32_t i = 0; i < g->n_items; i++) {
        struct sw_grid_class *class = &g->classes[k->item_class[i]];
        const uint32_t place = class->first_item + class->n_items++;

        g->items[place] = k->c->slabs[g->uses[k->item_start[i]]].source;
        for (uint32_t j = k->item_start[i]; j < k->item_start[i + 1]; j++)
            g->item_of[g->uses[j]] = place;
    }
}

static int find_classes(struct classes *k, uint32_t n, struct sw_error *e)
{
    struct sw_grids *g = &k->g;

    k->mask = 15;
    while (k->mask < 2 * (uint64_t)n && k->mask < UINT32_MAX / 2)
        k->mask = k->mask * 2 + 1;
    k->table = calloc((size_t)k->mask + 1, sizeof(*k->table));
    k->first = calloc((size_t)k->c->n_entries + 2, sizeof(*k->first));
    k->item_class = calloc((size_t)n + 1, sizeof(*k->item_class));
    k->item_start = calloc((size_t)n + 1, sizeof(*k->item_start));
    g->classes = calloc((size_t)n + 1, sizeof(*g->classes));
    g->uses = calloc((size_t)n + 1, sizeof(*g->uses));
    g->items = calloc((size_t)n + 1, sizeof(*g->items));
    if (!k->table || !k->first || !k->item_class || !k->item_start || !g->classes || !g->uses ||
        !g->items)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the blocks of %u slabs", n);
    sort_slabs(k, n);
    find_items(k, n);
    place_items(k);
    return 0;
}

int sw_grids_make(const struct sw_compact *c, struct sw_grids *out, struct sw_error *e)
{
    struct classes k = {.c = c, .key = calloc((size_t)c->n_formats + 1, sizeof(*k.key))};
    uint32_t n = 0;
    int err;

    k.g.item_of = malloc(((size_t)c->n_slabs + 1) * sizeof(*k.g.item_of));
    err = k.g.item_of && k.key ? number_keys(&k, e)
                               : sw_fail(e, SW_ERR_NOMEM, "no memory for the blocks of a plan");
    for (uint32_t i = 0; !err && i < c->n_slabs; i++) {
        k.g.item_of[i] = SW_NONE;
        n += slab_key(&k, i) != SW_NONE;
    }
    if (!err && n)
        err = find_classes(&k, n, e);
    free(k.key);
    free(k.first);
    free(k.item_class);
    free(k.item_start);
    free(k.table);
    if (err) {
        sw_grids_free(&k.g);
        return err;
    }
    *out = k.g;
    return 0;
}

void sw_grids_free(struct sw_grids *g)
{
    free(g->classes);
    free(g->uses);
    free(g->items);
    free(g->item_of);
    *g = (struct sw_grids){0};
}

/* ---- who touches what ---- */

static void make_touch(const struct sw_compact *c, const struct sw_grid_class *class,
    const struct sw_slab *slab, const struct sw_cell *cell, struct sw_touch *out)
{
    const struct sw_catalogue_entry *entry = &c->entries[class->entry];
    const struct sw_box *held = sw_grid_held(c, class->entry, cell->rank);
    struct sw_box box = cell->box;

    for (uint32_t d = 0; d < box.ndim; d++)
        box.lo[d] += c->boxes[slab->box].lo[d];
    *out = (struct sw_touch){.rank = cell->rank, .blocks = box};
    if (c->formats[slab->format].transform == SW_TRANSFORM_FP8_VALUES)
        sw_grid_span(&box, class->block, &out->blocks);
    if (held)
        whole_blocks(held, entry->shape, class->block, &out->whole);
}

int sw_grids_touches(const struct sw_compact *c, const struct sw_grids *g,
    const struct sw_grid_class *class, struct sw_touches *t, struct sw_error *e)
{
    size_t n = 0;

    for (uint32_t i = 0; i < class->n_uses; i++)
        n += c->splits[c->slabs[g->uses[class->first_use + i]].split].n;
    if (n > t->size) {
        struct sw_touch *more = n < UINT32_MAX ? realloc(t->items, n * sizeof(*more)) : NULL;

        if (!more)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for the blocks of %zu cells", n);
        t->items = more;
        t->size = (uint32_t)n;
    }
    t->n = 0;
    for (uint32_t i = 0; i < class->n_uses; i++) {
        const struct sw_slab *slab = &c->slabs[g->uses[class->first_use + i]];
        const struct sw_split *split = &c->splits[slab->split];

        for (uint32_t j = 0; j < split->n; j++)
            make_touch(c, class, slab, &c->cells[split->first + j], &t->items[t->n++]);
    }
    return 0;
}

void sw_touches_free(struct sw_touches *t)
{
    free(t->items);
    *t = (struct sw_touches){0};
}

void sw_touches_need(const struct sw_touches *t, uint32_t rank, bool *needs, bool *shared)
{
    *needs = *shared = false;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct sw_touch *own = &t->items[i];

        if (own->rank != rank)
            continue;
        *needs = true;
        for (uint32_t j = 0; j < t->n && !*shared; j++) {
            struct sw_box both;

            *shared = intersect(&own->blocks, &t->items[j].blocks, &both) &&
                      !sw_grid_contains(&t->items[j].whole, &both);
        }
    }
}
