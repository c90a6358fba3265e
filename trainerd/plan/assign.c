/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who sends what. The most loaded NIC decides how long a publish takes; what loads it is bytes
 * times destinations. Slabs that few ranks can have go first, and who has more to choose from
 * fills up what they leave: for sets of ranks of which each two are nested or disjoint (pipeline
 * stages, replicas) that is the best there is. Within a set, ranks get runs of slabs wanted by the
 * same engine ranks, so that pairs are few and writes long.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/build.h"
#include "trainerd/plan/water.h"

struct item { /* a slab with what is decided with it */
    uint32_t slab, n, set, audience, place;
    uint64_t traffic;
};

struct assigner {
    struct sw_build *b;
    uint32_t *nic_of; /* by rank: number of its (host, NIC) */
    uint64_t *nic_load, *rank_load;
    uint32_t *partner; /* by slab: the values' slab of a slab of scales; NULL without scales */
    uint32_t n_items;
    struct item *items;
    /* Of one group at a time: */
    uint32_t *ranks; /* a set's, by NIC */
    uint64_t *loads, *scratch, *amounts;
    uint32_t *vessel; /* by item */
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to assign the slabs of a plan to ranks");
}

/* ---- NICs ---- */

static int nic_compare(const void *a, const void *b, void *ranks)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const struct sw_plan_rank *x = (const struct sw_plan_rank *)ranks + i;
    const struct sw_plan_rank *y = (const struct sw_plan_rank *)ranks + k;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    if (x->nic != y->nic)
        return x->nic < y->nic ? -1 : 1;
    return i < k ? -1 : i > k;
}

static int number_nics(struct assigner *a, struct sw_error *e)
{
    struct sw_layout *l = a->b->l;
    const size_t n = (size_t)l->n_ranks + 1;
    uint32_t *order = malloc(n * sizeof(*order)), nics = 0;

    a->nic_of = malloc(n * sizeof(*a->nic_of));
    a->nic_load = calloc(n, sizeof(*a->nic_load));
    a->rank_load = calloc(n, sizeof(*a->rank_load));
    if (!order || !a->nic_of || !a->nic_load || !a->rank_load) {
        free(order);
        return no_memory(e);
    }
    for (uint32_t r = 0; r < l->n_ranks; r++)
        order[r] = r;
    qsort_r(order, l->n_ranks, sizeof(*order), nic_compare, l->ranks);
    for (uint32_t i = 0; i < l->n_ranks; i++) {
        const struct sw_plan_rank *x = &l->ranks[order[i]];
        const struct sw_plan_rank *y = &l->ranks[order[i ? i - 1 : 0]];

        nics += i && (x->host != y->host || x->nic != y->nic);
        a->nic_of[order[i]] = nics;
    }
    free(order);
    return 0;
}

/* ---- items ---- */

/* Scales go with their values: who quantises has both. */
static int find_partners(struct assigner *a, struct sw_error *e)
{
    struct sw_build *b = a->b;
    uint32_t values[SW_FORMATS_MAX];
    bool any = false;

    for (uint32_t i = 0; i < b->w.n_formats; i++) {
        const struct sw_format *f = &b->w.formats[i];

        values[i] = SW_NONE;
        if (f->transform != SW_TRANSFORM_FP8_SCALES)
            continue;
        for (uint32_t k = 0; k < b->w.n_formats; k++) {
            const struct sw_format *g = &b->w.formats[k];

            if (g->transform == SW_TRANSFORM_FP8_VALUES && g->src_dtype == f->src_dtype &&
                g->block[0] == f->block[0] && g->block[1] == f->block[1] && g->scale == f->scale)
                values[i] = k;
        }
        any |= values[i] != SW_NONE;
    }
    if (!any)
        return 0;
    a->partner = malloc(((size_t)b->slabs.n + 1) * sizeof(*a->partner));
    if (!a->partner)
        return no_memory(e);
    for (uint32_t i = 0; i < b->slabs.n; i++) {
        struct sw_slab_key key = b->slabs.items[i];
        const struct sw_format *f = &b->w.formats[key.format];
        struct sw_box box;

        a->partner[i] = SW_NONE;
        if (values[key.format] == SW_NONE)
            continue;
        sw_box_of_blocks(
            &b->w.boxes.items[key.box], f->block, b->l->c.entries[key.entry].shape, &box);
        key.format = values[key.format];
        key.box = sw_boxes_find(&b->w.boxes, &box);
        if (key.box != SW_NONE)
            a->partner[i] = sw_slab_set_find(&b->slabs, &key);
    }
    return 0;
}

static int make_items(struct assigner *a, struct sw_error *e)
{
    struct sw_build *b = a->b;
    uint32_t *item_of = malloc(((size_t)b->slabs.n + 1) * sizeof(*item_of));
    int err = 0;

    a->items = malloc(((size_t)b->slabs.n + 1) * sizeof(*a->items));
    if (!a->items || !item_of) {
        free(item_of);
        return no_memory(e);
    }
    for (uint32_t i = 0; !err && i < b->slabs.n; i++) {
        err = sw_build_choice(b, &b->slabs.items[i], &b->choice[i], e);
        if (err || (a->partner && a->partner[i] != SW_NONE))
            continue;
        item_of[i] = a->n_items;
        a->items[a->n_items++] = (struct item){.slab = i,
            .n = b->choices.items[b->choice[i]].n,
            .set = b->choices.items[b->choice[i]].set,
            .audience = b->audience[i],
            .place = b->place[i],
            .traffic = sw_build_bytes(b, &b->slabs.items[i]) * b->dests[i]};
    }
    for (uint32_t i = 0; !err && a->partner && i < b->slabs.n; i++)
        if (a->partner[i] != SW_NONE)
            a->items[item_of[a->partner[i]]].traffic +=
                sw_build_bytes(b, &b->slabs.items[i]) * b->dests[i];
    free(item_of);
    return err;
}

/* Few choices first; then sets together, and in these who is wanted by the same kinds, in the
 * engines' order. */
static int item_compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    if (x->audience != y->audience)
        return x->audience < y->audience ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* ---- groups ---- */

/* Gives items to vessels that hold a->loads. */
static void pour(struct assigner *a, const struct item *items, uint32_t n_items, uint32_t n)
{
    for (uint32_t i = 0; i < n_items; i++)
        a->amounts[i] = items[i].traffic;
    sw_pour(a->amounts, n_items, a->loads, n, a->scratch, a->vessel);
}

static void choose(struct assigner *a, const struct item *item, uint32_t variant, uint32_t rank)
{
    a->b->variant[item->slab] = variant;
    a->nic_load[a->nic_of[rank]] += item->traffic;
    a->rank_load[rank] += item->traffic;
}

static int position_compare(const void *x, const void *y, void *arg)
{
    const struct assigner *a = arg;
    const uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;

    if (a->nic_of[i] != a->nic_of[k])
        return a->nic_of[i] < a->nic_of[k] ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* The place of a rank in a set, which is sorted. */
static uint32_t place_in_set(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
    uint32_t low = 0, high = n;

    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;

        if (ranks[mid] <= rank)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The items that one NIC got, among its ranks ranks[0 .. n). */
static void share_nic(struct assigner *a, struct item *items, uint32_t n_items,
    const uint32_t *ranks, uint32_t n, const struct sw_rank_set *set)
{
    const uint32_t *all = a->b->choices.ranks + set->first;

    for (uint32_t i = 0; i < n; i++)
        a->loads[i] = a->rank_load[ranks[i]];
    pour(a, items, n_items, n);
    for (uint32_t i = 0; i < n_items; i++) {
        const uint32_t rank = ranks[a->vessel[i]];

        choose(a, &items[i], place_in_set(all, set->n, rank), rank);
    }
}

/* Sorts items by vessel, each vessel's in the order that they had. */
static int vessel_compare(const void *x, const void *y)
{
    const struct item *a = x, *b = y;

    if (a->n != b->n) /* the vessel, here */
        return a->n < b->n ? -1 : 1;
    if (a->audience != b->audience)
        return a->audience < b->audience ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Items that whole ranks can have: first a NIC for each, then a rank of that NIC. */
static void assign_whole(struct assigner *a, struct item *items, uint32_t n)
{
    const struct sw_rank_set *set = &a->b->choices.sets[items[0].set];
    uint32_t nics = 0;

    memcpy(a->ranks, a->b->choices.ranks + set->first, set->n * sizeof(*a->ranks));
    qsort_r(a->ranks, set->n, sizeof(*a->ranks), position_compare, a);
    for (uint32_t i = 0; i < set->n; i++)
        if (i == 0 || a->nic_of[a->ranks[i]] != a->nic_of[a->ranks[i - 1]])
            a->loads[nics++] = a->nic_load[a->nic_of[a->ranks[i]]];
    pour(a, items, n, nics);
    for (uint32_t i = 0; i < n; i++)
        items[i].n = a->vessel[i];
    qsort(items, n, sizeof(*items), vessel_compare);
    for (uint32_t i = 0, r = 0, nic = 0, k, m; r < set->n; r += m, nic++) {
        for (m = 1; r + m < set->n && a->nic_of[a->ranks[r + m]] == a->nic_of[a->ranks[r]];)
            m++;
        for (k = 0; i + k < n && items[i + k].n == nic;)
            k++;
        if (k)
            share_nic(a, items + i, k, a->ranks + r, m, set);
        i += k;
    }
}

static int take_cut(struct assigner *a, const struct item *item, uint32_t variant)
{
    struct sw_build *b = a->b;
    const struct sw_compact *plan = &b->l->c;
    const uint32_t choice = b->choice[item->slab];
    const uint32_t split =
        sw_choices_split(&b->choices, b->l, &b->w.boxes, b->w.formats, choice, variant);

    if (split == SW_NONE)
        return -1;
    b->variant[item->slab] = variant;
    for (uint32_t i = 0; i < plan->splits[split].n; i++) {
        const struct sw_cell *cell = &plan->cells[plan->splits[split].first + i];

        a->nic_load[a->nic_of[cell->rank]] += cell->bytes * b->dests[item->slab];
        a->rank_load[cell->rank] += cell->bytes * b->dests[item->slab];
    }
    return 0;
}

/* Items that are cut: each variant is a vessel, as full as its ranks' NICs together. */
static int assign_cut(struct assigner *a, struct item *items, uint32_t n)
{
    struct sw_build *b = a->b;
    const struct sw_compact *plan = &b->l->c;
    const struct sw_choice *choice = &b->choices.items[b->choice[items[0].slab]];

    for (uint32_t v = 0; v < choice->n && choice->n > 1; v++) {
        const struct sw_split *split = &plan->splits[b->choices.variants[choice->first + v].split];

        a->loads[v] = 0;
        for (uint32_t i = 0; i < split->n; i++)
            a->loads[v] += a->nic_load[a->nic_of[plan->cells[split->first + i].rank]];
    }
    if (choice->n > 1)
        pour(a, items, n, choice->n);
    for (uint32_t i = 0; i < n; i++)
        if (take_cut(a, &items[i], choice->n > 1 ? a->vessel[i] : 0))
            return -1;
    return 0;
}

static int assign_group(struct assigner *a, struct item *items, uint32_t n)
{
    struct sw_build *b = a->b;
    const struct sw_choice *choice = &b->choices.items[b->choice[items[0].slab]];

    if (!choice->whole || b->options.assignment == SW_ASSIGN_LMSYS) {
        if (b->options.assignment != SW_ASSIGN_LMSYS)
            return assign_cut(a, items, n);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t source = b->slabs.items[items[i].slab].source;

            if (take_cut(a, &items[i], source % items[i].n))
                return -1;
        }
        return 0;
    }
    assign_whole(a, items, n);
    return 0;
}

static int assign(struct assigner *a, struct sw_error *e)
{
    const struct sw_choices *c = &a->b->choices;
    size_t most = (size_t)a->b->l->n_ranks + 1;

    for (uint32_t i = 0; i < c->n; i++)
        most = c->items[i].n > most ? c->items[i].n : most;
    a->ranks = malloc(most * sizeof(*a->ranks));
    a->loads = malloc(most * sizeof(*a->loads));
    a->scratch = malloc(most * sizeof(*a->scratch));
    a->vessel = malloc(((size_t)a->n_items + 1) * sizeof(*a->vessel));
    a->amounts = malloc(((size_t)a->n_items + 1) * sizeof(*a->amounts));
    if (!a->ranks || !a->loads || !a->scratch || !a->vessel || !a->amounts)
        return no_memory(e);
    qsort(a->items, a->n_items, sizeof(*a->items), item_compare);
    for (uint32_t i = 0, k; i < a->n_items; i += k) {
        for (k = 1; i + k < a->n_items && a->items[i + k].set == a->items[i].set &&
                    a->items[i + k].n == a->items[i].n;)
            k++;
        if (assign_group(a, a->items + i, k))
            return no_memory(e);
    }
    return 0;
}

/* ---- all of it ---- */

static void follow_partners(struct assigner *a)
{
    struct sw_build *b = a->b;

    for (uint32_t i = 0; a->partner && i < b->slabs.n; i++)
        if (a->partner[i] != SW_NONE)
            b->variant[i] = b->variant[a->partner[i]] % b->choices.items[b->choice[i]].n;
}

int sw_build_assign(struct sw_build *b, struct sw_error *e)
{
    struct assigner a = {.b = b};
    const size_t n = (size_t)b->slabs.n + 1;
    int err;

    b->choice = malloc(n * sizeof(*b->choice));
    b->variant = calloc(n, sizeof(*b->variant));
    err = b->choice && b->variant ? number_nics(&a, e) : no_memory(e);
    if (!err)
        err = find_partners(&a, e);
    if (!err)
        err = make_items(&a, e);
    if (!err)
        err = assign(&a, e);
    if (!err)
        follow_partners(&a);
    free(a.nic_of);
    free(a.nic_load);
    free(a.rank_load);
    free(a.partner);
    free(a.items);
    free(a.ranks);
    free(a.loads);
    free(a.scratch);
    free(a.amounts);
    free(a.vessel);
    return err;
}
