/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/proof_names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct named { /* one tensor of one list */
    const struct sw_plan_tensor *tensor;
    uint32_t list, number;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

static int named_compare(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    const int order = strcmp(x->tensor->name, y->tensor->name);

    if (order)
        return order;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int find_lists(struct sw_proof_names *n, const struct sw_plan_rank *ranks, uint32_t n_ranks,
    uint64_t *tensors, struct sw_error *e)
{
    n->lists = calloc((size_t)n_ranks + 1, sizeof(*n->lists));
    n->list_of = calloc((size_t)n_ranks + 1, sizeof(*n->list_of));
    *tensors = 0;
    if (!n->lists || !n->list_of)
        return no_memory(e);
    for (uint32_t r = 0; r < n_ranks; r++) {
        struct sw_proof_list *l = &n->lists[n->n_lists];
        uint32_t i = n->n_lists;

        while (i > 0 && n->lists[i - 1].list != ranks[r].list)
            i--;
        if (i > 0) {
            n->list_of[r] = i - 1;
            continue;
        }
        n->list_of[r] = n->n_lists++;
        l->list = ranks[r].list;
        l->name = calloc((size_t)l->list->n + 1, sizeof(*l->name));
        l->by_name = calloc((size_t)l->list->n + 1, sizeof(*l->by_name));
        if (!l->name || !l->by_name)
            return no_memory(e);
        *tensors += l->list->n;
    }
    return 0;
}

static bool same_tensor(const struct sw_plan_tensor *a, const struct sw_plan_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)));
}

/* Numbers the sorted tensors; equal names have one number. */
static int number_names(
    struct sw_proof_names *n, const struct named *all, uint64_t total, struct sw_error *e)
{
    uint32_t *used = calloc((size_t)n->n_lists + 1, sizeof(*used));
    int err = used ? 0 : no_memory(e);

    for (uint64_t i = 0; !err && i < total; i++) {
        const struct named *x = &all[i];
        struct sw_proof_list *l;
        const bool again = i && !strcmp(x->tensor->name, all[i - 1].tensor->name);

        if (again && (x->list == all[i - 1].list || !same_tensor(x->tensor, all[i - 1].tensor)))
            err = sw_fail(e, SW_ERR_PLAN,
                "source tensor %s is declared twice, or with another dtype or shape by another "
                "rank",
                x->tensor->name);
        if (!again)
            n->items[n->n++] = x->tensor;
        l = &n->lists[x->list];
        assert(l->name && l->by_name);
        l->name[x->number] = n->n - 1;
        l->by_name[used[x->list]++] = x->number;
    }
    free(used);
    return err;
}

int sw_proof_names_make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    struct sw_proof_names *out, struct sw_error *e)
{
    struct sw_proof_names n = {0};
    struct named *all = NULL;
    uint64_t total, used = 0;
    int err = find_lists(&n, ranks, n_ranks, &total, e);

    if (!err && total < UINT32_MAX) {
        all = calloc(total + 1, sizeof(*all));
        n.items = calloc(total + 1, sizeof(*n.items));
    }
    if (!err && (!all || !n.items))
        err = no_memory(e);
    for (uint32_t l = 0; !err && l < n.n_lists; l++)
        for (uint32_t i = 0; i < n.lists[l].list->n; i++)
            all[used++] = (struct named){&n.lists[l].list->tensors[i], l, i};
    if (!err) {
        qsort(all, total, sizeof(*all), named_compare);
        err = number_names(&n, all, total, e);
    }
    free(all);
    if (err) {
        sw_proof_names_free(&n);
        return err;
    }
    *out = n;
    return 0;
}

void sw_proof_names_free(struct sw_proof_names *n)
{
    for (uint32_t l = 0; l < n->n_lists; l++) {
        free(n->lists[l].name);
        free(n->lists[l].by_name);
    }
    free(n->lists);
    free(n->list_of);
    free(n->items);
    *n = (struct sw_proof_names){0};
}

uint32_t sw_proof_name(const struct sw_proof_names *n, const char *name)
{
    uint32_t low = 0, high = n->n;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const int order = strcmp(n->items[mid]->name, name);

        if (order == 0)
            return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return SW_PROOF_NONE;
}

uint32_t sw_proof_tensor(
    const struct sw_proof_names *n, const struct sw_plan_rank *ranks, uint32_t rank, uint32_t name)
{
    const struct sw_proof_list *l = &n->lists[n->list_of[rank]];
    uint32_t low = 0, high = l->list->n;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (l->name[l->by_name[mid]] < name)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == l->list->n || l->name[l->by_name[low]] != name)
        return SW_PROOF_NONE;
    low = l->by_name[low];
    for (uint32_t d = 0; d < l->list->tensors[low].ndim; d++)
        if (ranks[rank].boxes[l->list->group[low]].len[d] == 0)
            return SW_PROOF_NONE;
    return low;
}
