/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/holders.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "trainerd/plan/boxes.h"

/* ---- memberships ---- */

static bool same_member(const void *arg, uint32_t item, const void *key)
{
    return !memcmp(&((const struct sw_members *)arg)->items[item], key, sizeof(struct sw_member));
}

int sw_members_step(
    struct sw_members *m, uint32_t before, uint32_t list, uint32_t group, uint32_t *after)
{
    const struct sw_member key = {before, list, group};
    const uint64_t hash = XXH3_64bits(&key, sizeof(key));

    *after = sw_index_find(&m->index, hash, same_member, m, &key);
    if (*after != SW_NONE)
        return 0;
    if (sw_array_room(&m->items, &m->size, m->n, sizeof(*m->items)) ||
        sw_index_add(&m->index, hash, m->n))
        return -1;
    m->items[m->n] = key;
    *after = m->n++;
    return 0;
}

void sw_members_free(struct sw_members *m)
{
    free(m->items);
    sw_index_free(&m->index);
    *m = (struct sw_members){0};
}

/* ---- patterns ---- */

struct patterns {
    struct sw_layout *l;
    const struct sw_members *members;
    uint32_t *first_rank, *ranks; /* ranks by list: ranks[first_rank[list] ..] */
    uint32_t *pattern;            /* by membership */
    uint32_t holders_size, items_size;
    struct sw_index index; /* patterns by content */
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the table of who holds which tensors");
}

static int sort_ranks_by_list(struct patterns *p, struct sw_error *e)
{
    const struct sw_layout *l = p->l;

    p->first_rank = calloc((size_t)l->n_lists + 2, sizeof(*p->first_rank));
    p->ranks = calloc((size_t)l->n_ranks + 1, sizeof(*p->ranks));
    p->pattern = malloc(((size_t)p->members->n + 1) * sizeof(*p->pattern));
    if (!p->first_rank || !p->ranks || !p->pattern)
        return no_memory(e);
    memset(p->pattern, 0xff, ((size_t)p->members->n + 1) * sizeof(*p->pattern));
    for (uint32_t r = 0; r < l->n_ranks; r++)
        p->first_rank[l->rank_list[r] + 2]++;
    for (uint32_t i = 2; i < l->n_lists + 2; i++)
        p->first_rank[i] += p->first_rank[i - 1];
    for (uint32_t r = 0; r < l->n_ranks; r++)
        p->ranks[p->first_rank[l->rank_list[r] + 1]++] = r;
    return 0;
}

static int outside(const struct patterns *p, const struct sw_catalogue_entry *entry, uint32_t rank,
    const struct sw_box *box, struct sw_error *e)
{
    char a[256], b[160];

    return sw_fail(e, SW_ERR_PLAN,
        "trainer rank %u: box %s of source %s lies outside its shape, %s", p->l->ranks[rank].rank,
        sw_box_text(box, a, sizeof(a)), entry->name,
        sw_tensor_text(entry->dtype, entry->ndim, entry->shape, b, sizeof(b)));
}

static int add_holder(struct patterns *p, const struct sw_catalogue_entry *entry, uint32_t rank,
    const struct sw_box *box, struct sw_error *e)
{
    struct sw_compact *c = &p->l->c;
    struct sw_holder *holder;

    if (box->ndim != entry->ndim)
        return sw_fail(e, SW_ERR_PLAN,
            "trainer rank %u: source %s has %u dimensions, and its box has %u",
            p->l->ranks[rank].rank, entry->name, entry->ndim, box->ndim);
    for (uint32_t d = 0; d < box->ndim; d++)
        if (sw_range_exceeds(box->lo[d], box->len[d], entry->shape[d]))
            return outside(p, entry, rank, box, e);
    for (uint32_t d = 0; d < box->ndim; d++)
        if (box->len[d] == 0)
            return 0;
    if (sw_array_room(&c->holder_items, &p->items_size, c->n_holder_items, sizeof(*holder)))
        return no_memory(e);
    holder = &c->holder_items[c->n_holder_items++];
    memset(holder, 0, sizeof(*holder)); /* compared as bytes */
    holder->rank = rank;
    holder->box.ndim = box->ndim;
    memcpy(holder->box.lo, box->lo, box->ndim * sizeof(*box->lo));
    memcpy(holder->box.len, box->len, box->ndim * sizeof(*box->len));
    return 0;
}

static int holder_compare(const void *a, const void *b)
{
    const struct sw_holder *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool same_pattern(const void *arg, uint32_t item, const void *key)
{
    const struct sw_compact *c = arg;
    const struct sw_holders *a = &c->holders[item], *b = key;

    return a->n == b->n &&
           (a->n == 0 || !memcmp(c->holder_items + a->first, c->holder_items + b->first,
                             a->n * sizeof(*c->holder_items)));
}

/* Keeps what was added from `first` on as a pattern, unless there is an equal one. */
static int keep_pattern(struct patterns *p, uint32_t first, uint32_t *pattern, struct sw_error *e)
{
    struct sw_compact *c = &p->l->c;
    const struct sw_holders key = {first, c->n_holder_items - first};
    const uint64_t hash = XXH3_64bits(c->holder_items + first, key.n * sizeof(*c->holder_items));

    *pattern = sw_index_find(&p->index, hash, same_pattern, c, &key);
    if (*pattern != SW_NONE) {
        c->n_holder_items = first;
        return 0;
    }
    if (sw_array_room(&c->holders, &p->holders_size, c->n_holders, sizeof(*c->holders)) ||
        sw_index_add(&p->index, hash, c->n_holders))
        return no_memory(e);
    c->holders[c->n_holders] = key;
    *pattern = c->n_holders++;
    return 0;
}

static int add_pattern(struct patterns *p, const struct sw_catalogue_entry *entry,
    uint32_t *pattern, struct sw_error *e)
{
    struct sw_compact *c = &p->l->c;
    const uint32_t first = c->n_holder_items;
    uint32_t lists = 0;

    for (uint32_t m = entry->holders; m != SW_NONE; m = p->members->items[m].parent, lists++) {
        const struct sw_member *member = &p->members->items[m];

        for (uint32_t i = p->first_rank[member->list]; i < p->first_rank[member->list + 1]; i++) {
            const uint32_t rank = p->ranks[i];
            const int err = add_holder(p, entry, rank, &p->l->ranks[rank].boxes[member->group], e);

            if (err)
                return err;
        }
    }
    if (lists > 1 && c->n_holder_items > first)
        qsort(c->holder_items + first, c->n_holder_items - first, sizeof(*c->holder_items),
            holder_compare);
    return keep_pattern(p, first, pattern, e);
}

int sw_holders_make(struct sw_layout *l, const struct sw_members *m, struct sw_error *e)
{
    struct patterns p = {.l = l, .members = m};
    int err = sort_ranks_by_list(&p, e);

    for (uint32_t i = 0; !err && i < l->c.n_entries; i++) {
        struct sw_catalogue_entry *entry = &l->c.entries[i];
        uint32_t *pattern = &p.pattern[entry->holders];

        if (*pattern == SW_NONE)
            err = add_pattern(&p, entry, pattern, e);
        entry->holders = *pattern;
    }
    sw_array_trim(&l->c.holders, &p.holders_size, l->c.n_holders, sizeof(*l->c.holders));
    sw_array_trim(
        &l->c.holder_items, &p.items_size, l->c.n_holder_items, sizeof(*l->c.holder_items));
    free(p.first_rank);
    free(p.ranks);
    free(p.pattern);
    sw_index_free(&p.index);
    return err;
}
