/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the proof: what ranks hold, and that each cell lies there. See compact_proof.h. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "trainerd/plan/compact_proof.h"
#include "trainerd/plan/proof_box.h"

/* ---- the catalogue by name ---- */

static uint32_t slot_of(const struct sw_proof *p, const char *name)
{
    uint32_t at = (uint32_t)XXH3_64bits(name, strlen(name)) & (p->by_name_size - 1);

    while (p->by_name[at] && strcmp(p->c->entries[p->by_name[at] - 1].name, name) != 0)
        at = (at + 1) & (p->by_name_size - 1);
    return at;
}

uint32_t sw_proof_entry(const struct sw_proof *p, const char *name)
{
    return p->by_name[slot_of(p, name)] - 1; /* 0 - 1 is SW_NONE */
}

static int index_names(struct sw_proof *p, struct sw_error *e)
{
    p->by_name_size = 16;
    while (p->by_name_size < 2ull * p->c->n_entries && p->by_name_size < 1u << 31)
        p->by_name_size *= 2;
    p->by_name = calloc(p->by_name_size, sizeof(*p->by_name));
    if (!p->by_name || p->c->n_entries >= p->by_name_size)
        return sw_proof_no_memory(e);
    for (uint32_t i = 0; i < p->c->n_entries; i++) {
        const uint32_t at = slot_of(p, p->c->entries[i].name);

        if (p->by_name[at])
            return sw_proof_wrong(e, "tensor %s is in the catalogue twice", p->c->entries[i].name);
        p->by_name[at] = i + 1;
    }
    return 0;
}

/* ---- lists ---- */

struct tally { /* how many tensors of a list have a pattern of holders */
    uint32_t pattern, n;
};

struct list { /* a source list, whichever ranks have it */
    const struct sw_source_list *list;
    struct tally *tallies; /* sorted by pattern */
    uint32_t n;
};

struct held {
    struct sw_proof *p;
    struct list *lists;
    uint32_t n_lists;
    uint32_t *list_of; /* by rank */
    /* While one list is looked at: */
    uint32_t *seen;    /* by entry: the list's number + 1 */
    uint32_t *tally;   /* by pattern: its tensors in this list */
    uint32_t *touched; /* patterns with a tally */
};

struct by_list {
    const struct sw_source_list *list;
    uint32_t rank;
};

static int by_list_compare(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct by_list *)a)->list;
    const uintptr_t y = (uintptr_t)((const struct by_list *)b)->list;

    return x < y ? -1 : x > y;
}

static int find_lists(struct held *h, struct sw_error *e)
{
    const struct sw_proof *p = h->p;
    struct by_list *ranks = calloc(p->n_ranks + 1ull, sizeof(*ranks));

    h->lists = calloc(p->n_ranks + 1ull, sizeof(*h->lists));
    h->list_of = calloc(p->n_ranks + 1ull, sizeof(*h->list_of));
    if (!ranks || !h->lists || !h->list_of) {
        free(ranks);
        return sw_proof_no_memory(e);
    }
    for (uint32_t r = 0; r < p->n_ranks; r++)
        ranks[r] = (struct by_list){p->ranks[r].list, r};
    qsort(ranks, p->n_ranks, sizeof(*ranks), by_list_compare);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        if (i == 0 || ranks[i].list != ranks[i - 1].list)
            h->lists[h->n_lists++].list = ranks[i].list;
        h->list_of[ranks[i].rank] = h->n_lists - 1;
    }
    free(ranks);
    return 0;
}

static bool same_tensor(const struct sw_plan_tensor *t, const struct sw_catalogue_entry *entry)
{
    return t->dtype == entry->dtype && t->ndim == entry->ndim &&
           !memcmp(t->shape, entry->shape, t->ndim * sizeof(*t->shape));
}

static bool same_box(const struct sw_box *a, const struct sw_box *b)
{
    return a->ndim == b->ndim && !memcmp(a->lo, b->lo, a->ndim * sizeof(*a->lo)) &&
           !memcmp(a->len, b->len, a->ndim * sizeof(*a->len));
}

/* Ranks of list `l` hold of the tensors of a group what a pattern says. */
static int check_group(const struct held *h, uint32_t l, uint32_t group, uint32_t pattern,
    const struct sw_plan_tensor *t, struct sw_error *e)
{
    const struct sw_compact *c = h->p->c;
    const struct sw_holders *holders = &c->holders[pattern];

    for (uint32_t i = holders->first; i < holders->first + holders->n; i++) {
        const struct sw_holder *item = &c->holder_items[i];
        const struct sw_plan_rank *rank = &h->p->ranks[item->rank];

        if (h->list_of[item->rank] != l)
            continue;
        if (!same_box(&item->box, &rank->boxes[group]) || item->box.ndim != t->ndim ||
            (sw_proof_box_volume(&item->box) && !sw_proof_box_fits(&item->box, t->shape)))
            return sw_proof_wrong(
                e, "rank %u does not hold the box of %s that the plan says", rank->rank, t->name);
    }
    return 0;
}

static int tally_compare(const void *a, const void *b)
{
    const struct tally *x = a, *y = b;

    return x->pattern < y->pattern ? -1 : x->pattern > y->pattern;
}

static int keep_tallies(struct held *h, struct list *list, uint32_t n, struct sw_error *e)
{
    list->tallies = calloc(n + 1ull, sizeof(*list->tallies));
    if (!list->tallies)
        return sw_proof_no_memory(e);
    for (uint32_t i = 0; i < n; i++) {
        list->tallies[i] = (struct tally){h->touched[i], h->tally[h->touched[i]]};
        h->tally[h->touched[i]] = 0;
    }
    list->n = n;
    qsort(list->tallies, n, sizeof(*list->tallies), tally_compare);
    return 0;
}

/* One tensor of a list; *proven is the pattern that its group was last compared with, + 1. */
static int check_tensor(struct held *h, uint32_t l, uint32_t i, uint32_t *proven,
    uint32_t *n_touched, struct sw_error *e)
{
    const struct sw_source_list *list = h->lists[l].list;
    const struct sw_plan_tensor *t = &list->tensors[i];
    const uint32_t entry = sw_proof_entry(h->p, t->name);
    uint32_t pattern;
    int err = 0;

    if (entry == SW_NONE)
        return 0;
    if (h->seen[entry] == l + 1)
        return sw_proof_wrong(e, "a rank declares %s twice", t->name);
    h->seen[entry] = l + 1;
    if (list->group[i] >= list->n_groups || !same_tensor(t, &h->p->c->entries[entry]))
        return sw_proof_wrong(e, "%s has another dtype or shape in the plan", t->name);
    pattern = h->p->c->entries[entry].holders;
    if (h->tally[pattern]++ == 0)
        h->touched[(*n_touched)++] = pattern;
    if (proven[list->group[i]] != pattern + 1)
        err = check_group(h, l, list->group[i], pattern, t, e);
    proven[list->group[i]] = pattern + 1;
    return err;
}

static int check_list(struct held *h, uint32_t l, struct sw_error *e)
{
    const struct sw_source_list *list = h->lists[l].list;
    uint32_t *proven = calloc((list ? list->n_groups : 0) + 1ull, sizeof(*proven));
    uint32_t n_touched = 0;
    int err = proven ? 0 : sw_proof_no_memory(e);

    for (uint32_t i = 0; !err && list && i < list->n; i++)
        err = check_tensor(h, l, i, proven, &n_touched, e);
    if (!err)
        err = keep_tallies(h, &h->lists[l], n_touched, e);
    free(proven);
    return err;
}

static uint32_t find_tally(const struct list *list, uint32_t pattern)
{
    const struct tally key = {pattern, 0};
    const struct tally *found =
        list->n ? bsearch(&key, list->tallies, list->n, sizeof(key), tally_compare) : NULL;

    return found ? found->n : 0;
}

/* Every tensor with a pattern is in the list of each rank that the pattern has. */
static int check_patterns(const struct held *h, struct sw_error *e)
{
    const struct sw_compact *c = h->p->c;

    memset(h->tally, 0, c->n_holders * sizeof(*h->tally));
    for (uint32_t i = 0; i < c->n_entries; i++)
        h->tally[c->entries[i].holders]++;
    for (uint32_t i = 0; i < c->n_holders; i++) {
        uint32_t before = SW_NONE;

        for (uint32_t k = c->holders[i].first; k < c->holders[i].first + c->holders[i].n; k++) {
            const uint32_t l = h->list_of[c->holder_items[k].rank];

            if (l == before || h->tally[i] == 0)
                continue;
            before = l;
            if (find_tally(&h->lists[l], i) != h->tally[i])
                return sw_proof_wrong(e,
                    "rank %u does not hold all of the tensors that the plan "
                    "says",
                    h->p->ranks[c->holder_items[k].rank].rank);
        }
    }
    return 0;
}

static int check_lists(struct sw_proof *p, struct sw_error *e)
{
    struct held h = {.p = p,
        .seen = calloc(p->c->n_entries + 1ull, sizeof(*h.seen)),
        .tally = calloc(p->c->n_holders + 1ull, sizeof(*h.tally)),
        .touched = calloc(p->c->n_holders + 1ull, sizeof(*h.touched))};
    int err = h.seen && h.tally && h.touched ? find_lists(&h, e) : sw_proof_no_memory(e);

    for (uint32_t l = 0; !err && l < h.n_lists; l++)
        err = check_list(&h, l, e);
    if (!err)
        err = check_patterns(&h, e);
    for (uint32_t l = 0; l < h.n_lists; l++)
        free(h.lists[l].tallies);
    free(h.lists);
    free(h.list_of);
    free(h.seen);
    free(h.tally);
    free(h.touched);
    return err;
}

/* ---- cells ---- */

static int holder_compare(const void *key, const void *item)
{
    const uint32_t rank = *(const uint32_t *)key, other = ((const struct sw_holder *)item)->rank;

    return rank < other ? -1 : rank > other;
}

const struct sw_box *sw_proof_holds(const struct sw_compact *c, uint32_t entry, uint32_t rank)
{
    const struct sw_holders *h = &c->holders[c->entries[entry].holders];
    const struct sw_holder *item =
        bsearch(&rank, c->holder_items + h->first, h->n, sizeof(*item), holder_compare);

    return item ? &item->box : NULL;
}

static int check_cells(const struct sw_proof *p, uint32_t slab, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    const struct sw_slab *s = &c->slabs[slab];
    const struct sw_format *f = &c->formats[s->format];
    const struct sw_split *split = &c->splits[s->split];

    for (uint32_t i = split->first; i < split->first + split->n; i++) {
        const struct sw_cell *cell = &c->cells[i];
        const struct sw_box box = sw_proof_box_moved(&cell->box, c->boxes[s->box].lo);
        const struct sw_box *held = sw_proof_holds(c, s->source, cell->rank);
        struct sw_box has = {0};

        if (held)
            has = f->transform == SW_TRANSFORM_FP8_SCALES ? sw_proof_box_touched(held, f->block)
                                                          : *held;
        if (!held || !sw_proof_box_inside(&box, &has))
            return sw_proof_wrong(e, "slab %u (%s): rank %u has a cell of it that it does not hold",
                slab, c->entries[s->source].name, p->ranks[cell->rank].rank);
    }
    return 0;
}

int sw_proof_held(struct sw_proof *p, struct sw_error *e)
{
    int err = index_names(p, e);

    if (!err)
        err = check_lists(p, e);
    for (uint32_t i = 0; !err && i < p->classes.n; i++)
        if (p->c->slabs[p->classes.first[i]].source != SW_NONE)
            err = check_cells(p, p->classes.first[i], e);
    return err;
}
