/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/checks.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/grids.h"

struct held { /* a box of a set's member */
    uint32_t set;
    const struct sw_box *box;
};

static int box_compare(const struct sw_box *a, const struct sw_box *b)
{
    if (a->ndim != b->ndim)
        return a->ndim < b->ndim ? -1 : 1;
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->lo[d] != b->lo[d])
            return a->lo[d] < b->lo[d] ? -1 : 1;
        if (a->len[d] != b->len[d])
            return a->len[d] < b->len[d] ? -1 : 1;
    }
    return 0;
}

static int held_compare(const void *a, const void *b)
{
    const struct held *x = a, *y = b;

    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    return box_compare(x->box, y->box);
}

/* The distinct boxes of all sets, sorted. NULL = no memory. */
static struct held *list_boxes(const struct sw_compact *c, const uint32_t *set, size_t *n)
{
    struct held *held;
    size_t total = 0, used = 0;

    for (uint32_t i = 0; i < c->n_entries; i++)
        if (set[i] != SW_NONE)
            total += c->holders[c->entries[i].holders].n;
    held = calloc(total + 1, sizeof(*held));
    if (!held)
        return NULL;
    for (uint32_t i = 0; i < c->n_entries; i++) {
        const struct sw_holders *h = &c->holders[c->entries[i].holders];

        for (uint32_t j = 0; set[i] != SW_NONE && j < h->n; j++)
            held[used++] = (struct held){set[i], &c->holder_items[h->first + j].box};
    }
    qsort(held, used, sizeof(*held), held_compare);
    *n = 0;
    for (size_t i = 0; i < used; i++)
        if (i == 0 || held_compare(&held[*n - 1], &held[i]))
            held[(*n)++] = held[i];
    return held;
}

/* ---- can they be compared? ---- */

static bool same_boxes(const struct held *a, size_t n_a, const struct held *b, size_t n_b)
{
    bool same = n_a == n_b;

    for (size_t i = 0; same && i < n_a; i++)
        same = box_compare(a[i].box, b[i].box) == 0;
    return same;
}

/* `held` has the boxes of each member, one member after another; first[set]: where those of its
 * first one begin, SW_NONE at the start. */
static int compare_members(
    const struct sw_layout *l, const struct held *held, size_t n, size_t *first, struct sw_error *e)
{
    for (size_t from = 0, to; from < n; from = to) {
        const uint32_t set = l->set[held[from].set];
        size_t begin = first[set], end = begin;

        for (to = from + 1; to < n && held[to].set == held[from].set;)
            to++;
        if (begin == SIZE_MAX) {
            first[set] = from;
            continue;
        }
        while (held[end].set == held[begin].set)
            end++;
        if (!same_boxes(held + begin, end - begin, held + from, to - from))
            return sw_fail(e, SW_ERR_PLAN,
                "source tensors %s share one storage in an engine and must be compared, but "
                "trainer ranks hold them in different boxes: declare both in the same boxes, or "
                "only one of them",
                sw_layout_alias_names(l, set));
    }
    return 0;
}

int sw_checks_possible(const struct sw_layout *l, struct sw_error *e)
{
    uint32_t *member; /* each of a set's entries for itself */
    struct held *held = NULL;
    size_t *first, n = 0;
    int err;

    if (l->n_sets == 0)
        return 0;
    member = calloc((size_t)l->c.n_entries + 1, sizeof(*member));
    first = calloc((size_t)l->n_sets + 1, sizeof(*first));
    if (member && first) {
        for (uint32_t i = 0; i < l->c.n_entries; i++)
            member[i] = l->set[i] == SW_NONE ? SW_NONE : i;
        memset(first, 0xff, l->n_sets * sizeof(*first));
        held = list_boxes(&l->c, member, &n);
    }
    err = held ? compare_members(l, held, n, first, e)
               : sw_fail(e, SW_ERR_NOMEM, "no memory for alias checks");
    free(held);
    free(member);
    free(first);
    return err;
}

/* ---- the checks of a rank ---- */

/* Which of its set's boxes this is. */
static uint32_t box_number(
    const struct held *held, size_t n, uint32_t set, const struct sw_box *box)
{
    const struct held key = {set, box};
    const struct held *found = bsearch(&key, held, n, sizeof(*held), held_compare);
    const struct held *first = found;

    while (first > held && first[-1].set == set)
        first--;
    return (uint32_t)(found - first);
}

int sw_checks_make(const struct sw_layout *l, uint32_t rank, struct sw_alias_check **checks,
    uint32_t *n, struct sw_error *e)
{
    const struct sw_layout_list *list = &l->lists[l->rank_list[rank]];
    struct sw_alias_check *out;
    struct held *held;
    size_t n_held = 0;
    uint32_t used = 0;
    int err = 0;

    if (l->n_sets == 0) {
        *checks = NULL;
        *n = 0;
        return 0;
    }
    held = list_boxes(&l->c, l->set, &n_held);
    out = calloc((size_t)list->list->n + 1, sizeof(*out));
    if (!held || !out)
        err = sw_fail(e, SW_ERR_NOMEM, "no memory for alias checks");
    for (uint32_t i = 0; !err && i < list->list->n; i++) {
        const uint32_t set = list->entry[i] == SW_NONE ? SW_NONE : l->set[list->entry[i]];
        const struct sw_box *box =
            set == SW_NONE ? NULL : sw_grid_held(&l->c, list->entry[i], rank);
        uint64_t number;

        if (!box) /* in no set, or nothing of it is here */
            continue;
        number = set + (uint64_t)l->n_sets * box_number(held, n_held, set, box);
        if (number >= UINT32_MAX)
            err = sw_fail(e, SW_ERR_LIMIT, "there are too many alias sets of too many boxes");
        out[used++] = (struct sw_alias_check){i, (uint32_t)number};
    }
    free(held);
    if (err) {
        free(out);
        return err;
    }
    *checks = out;
    *n = used;
    return 0;
}
