/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/catalogue.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/boxes.h"
#include "trainerd/plan/holders.h"

struct catalogue {
    struct sw_layout *l;
    struct sw_index names;
    struct sw_members members;
    uint32_t size, lists_size; /* of the growing arrays */
    uint32_t *seen;            /* by entry: the list that had it last */
    uint32_t seen_size;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the table of source tensors");
}

static uint64_t name_hash(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}

static bool same_name(const void *arg, uint32_t item, const void *key)
{
    return !strcmp(((const struct sw_layout *)arg)->c.entries[item].name, key);
}

uint32_t sw_catalogue_find(
    const struct sw_layout *l, const struct sw_index *names, const char *name)
{
    return sw_index_find(names, name_hash(name), same_name, l, name);
}

int sw_catalogue_index(const struct sw_layout *l, struct sw_index *names, struct sw_error *e)
{
    *names = (struct sw_index){0};
    for (uint32_t i = 0; i < l->c.n_entries; i++)
        if (sw_index_add(names, name_hash(l->c.entries[i].name), i)) {
            sw_index_free(names);
            return no_memory(e);
        }
    return 0;
}

/* ---- lists ---- */

/* Any rank with this list, for messages. */
static uint32_t rank_with(const struct sw_layout *l, uint32_t list)
{
    for (uint32_t r = 0; r < l->n_ranks; r++)
        if (l->rank_list[r] == list)
            return l->ranks[r].rank;
    return 0;
}

static bool same_list(const void *arg, uint32_t item, const void *key)
{
    return ((const struct sw_layout *)arg)->lists[item].list == key;
}

static int find_lists(struct catalogue *c, struct sw_error *e)
{
    struct sw_layout *l = c->l;
    struct sw_index index = {0};
    int err = 0;

    for (uint32_t r = 0; !err && r < l->n_ranks; r++) {
        const struct sw_source_list *list = l->ranks[r].list;
        const uint64_t hash = XXH3_64bits(&list, sizeof(list));

        l->rank_list[r] = sw_index_find(&index, hash, same_list, l, list);
        if (l->rank_list[r] != SW_NONE)
            continue;
        if (sw_array_room(&l->lists, &c->lists_size, l->n_lists, sizeof(*l->lists)) ||
            sw_index_add(&index, hash, l->n_lists)) {
            err = no_memory(e);
        } else {
            l->lists[l->n_lists] = (struct sw_layout_list){.list = list};
            l->rank_list[r] = l->n_lists++;
        }
    }
    sw_index_free(&index);
    return err;
}

/* ---- entries ---- */

static bool same_shape(uint32_t ndim, const uint64_t *a, uint32_t ndim_b, const uint64_t *b)
{
    return ndim == ndim_b && (ndim == 0 || !memcmp(a, b, ndim * sizeof(*a)));
}

static int entry_differs(const struct catalogue *c, const struct sw_catalogue_entry *entry,
    uint32_t list, const struct sw_plan_tensor *t, struct sw_error *e)
{
    const uint32_t other = c->seen[entry - c->l->c.entries];
    char a[160], b[160];

    return sw_fail(e, SW_ERR_PLAN,
        "source %s is %s on trainer rank %u and %s on rank %u: all ranks must declare its global "
        "shape and dtype alike",
        t->name, sw_tensor_text(entry->dtype, entry->ndim, entry->shape, a, sizeof(a)),
        rank_with(c->l, other), sw_tensor_text(t->dtype, t->ndim, t->shape, b, sizeof(b)),
        rank_with(c->l, list));
}

static int new_entry(struct catalogue *c, uint32_t list, const struct sw_plan_tensor *t,
    uint64_t hash, struct sw_error *e)
{
    struct sw_compact *plan = &c->l->c;
    struct sw_catalogue_entry *entry;
    uint64_t bytes;

    if (t->ndim > SW_MAX_DIMS || sw_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes) ||
        bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_PLAN,
            "trainer rank %u: source %s has a dtype or shape that has no size in bytes, or one "
            "over %llu",
            rank_with(c->l, list), t->name, (unsigned long long)SW_BYTES_MAX);
    if (sw_array_room(&plan->entries, &c->size, plan->n_entries, sizeof(*entry)) ||
        sw_array_room(&c->seen, &c->seen_size, plan->n_entries, sizeof(*c->seen)) ||
        sw_index_add(&c->names, hash, plan->n_entries))
        return no_memory(e);
    c->seen[plan->n_entries] = SW_NONE;
    entry = &plan->entries[plan->n_entries++];
    *entry = (struct sw_catalogue_entry){
        .name = t->name, .dtype = t->dtype, .ndim = t->ndim, .holders = SW_NONE};
    memcpy(entry->shape, t->shape, t->ndim * sizeof(*t->shape));
    return 0;
}

static int add_tensor(struct catalogue *c, uint32_t list, uint32_t i, struct sw_error *e)
{
    const struct sw_source_list *from = c->l->lists[list].list;
    const struct sw_plan_tensor *t = &from->tensors[i];
    const uint64_t hash = name_hash(t->name);
    uint32_t at = sw_index_find(&c->names, hash, same_name, c->l, t->name);
    struct sw_catalogue_entry *entry;

    if (at == SW_NONE) {
        const int err = new_entry(c, list, t, hash, e);

        if (err)
            return err;
        at = c->l->c.n_entries - 1;
    }
    entry = &c->l->c.entries[at];
    if (c->seen[at] == list)
        return sw_fail(e, SW_ERR_PLAN, "trainer rank %u declares source %s twice",
            rank_with(c->l, list), t->name);
    if (entry->dtype != t->dtype || !same_shape(entry->ndim, entry->shape, t->ndim, t->shape))
        return entry_differs(c, entry, list, t, e);
    if (sw_members_step(&c->members, entry->holders, list, from->group[i], &entry->holders))
        return no_memory(e);
    c->seen[at] = list;
    c->l->lists[list].entry[i] = at;
    return 0;
}

/* Equal shapes within a group are what makes one box for all of it meaningful. */
static int check_groups(const struct catalogue *c, uint32_t list, struct sw_error *e)
{
    const struct sw_source_list *from = c->l->lists[list].list;
    uint32_t *first = malloc(((size_t)from->n_groups + 1) * sizeof(*first));
    int err = first ? 0 : no_memory(e);

    if (!err)
        memset(first, 0xff, ((size_t)from->n_groups + 1) * sizeof(*first));
    for (uint32_t i = 0; !err && i < from->n; i++) {
        const uint32_t g = from->group[i];
        const struct sw_plan_tensor *t = &from->tensors[i], *u;

        if (g >= from->n_groups) {
            err = sw_fail(
                e, SW_ERR_INVALID, "source %s is in group %u of %u", t->name, g, from->n_groups);
            break;
        }
        if (first[g] == SW_NONE)
            first[g] = i;
        u = &from->tensors[first[g]];
        if (t->ndim > SW_MAX_DIMS || !same_shape(t->ndim, t->shape, u->ndim, u->shape))
            err = sw_fail(e, SW_ERR_PLAN,
                "trainer rank %u: sources %s and %s are in one group, but their shapes differ",
                rank_with(c->l, list), u->name, t->name);
    }
    free(first);
    return err;
}

static int add_list(struct catalogue *c, uint32_t list, struct sw_error *e)
{
    struct sw_layout_list *to = &c->l->lists[list];
    int err = check_groups(c, list, e);

    if (err)
        return err;
    to->entry = malloc(((size_t)to->list->n + 1) * sizeof(*to->entry));
    if (!to->entry)
        return no_memory(e);
    for (uint32_t i = 0; !err && i < to->list->n; i++)
        err = add_tensor(c, list, i, e);
    return err;
}

int sw_catalogue_make(
    struct sw_layout *l, const struct sw_plan_rank *ranks, uint32_t n_ranks, struct sw_error *e)
{
    struct catalogue c = {.l = l};
    int err = 0;

    l->ranks = malloc(((size_t)n_ranks + 1) * sizeof(*l->ranks));
    l->rank_list = malloc(((size_t)n_ranks + 1) * sizeof(*l->rank_list));
    if (!l->ranks || !l->rank_list)
        return no_memory(e);
    for (uint32_t r = 0; r < n_ranks; r++)
        l->ranks[r] = ranks[r];
    l->n_ranks = n_ranks;
    err = find_lists(&c, e);
    for (uint32_t i = 0; !err && i < l->n_lists; i++)
        err = add_list(&c, i, e);
    sw_index_free(&c.names);
    free(c.seen);
    sw_array_trim(&l->c.entries, &c.size, l->c.n_entries, sizeof(*l->c.entries));
    if (!err)
        err = sw_holders_make(l, &c.members, e);
    sw_members_free(&c.members);
    return err;
}
