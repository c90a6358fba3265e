/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/assign.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct item {
    const struct sw_table *table;
    uint32_t entry, position; /* position in the tile order */
};

/* Few holders first: who can stage more sources fills up what the others leave. */
static int holders_compare(const struct item *x, const struct item *y)
{
    const struct sw_entry *a = &x->table->entries[x->entry], *b = &y->table->entries[y->entry];

    if (a->n_holders != b->n_holders)
        return a->n_holders < b->n_holders ? -1 : 1;
    return memcmp(x->table->holder_rank + a->first_holder, y->table->holder_rank + b->first_holder,
        a->n_holders * sizeof(uint32_t));
}

static int item_compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const int order = holders_compare(x, y);

    if (order)
        return order;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int u64_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The height to which `bytes` fill vessels that hold `loads` (sorted) already. */
static uint64_t water_level(const uint64_t *loads, uint32_t n, uint64_t bytes)
{
    uint64_t sum = bytes;

    for (uint32_t i = 1; i <= n; i++) {
        sum += loads[i - 1];
        if (i == n || sum / i <= loads[i])
            return (sum + i - 1) / i;
    }
    return bytes;
}

/* Items of equal holders, in order: each holder gets a run of them that brings it to the level. */
static void assign_group(
    struct sw_table *t, const struct item *items, uint32_t n, uint64_t *loads, uint64_t *scratch)
{
    const struct sw_entry *first = &t->entries[items[0].entry];
    const uint32_t *holders = t->holder_rank + first->first_holder;
    const uint32_t n_holders = first->n_holders;
    uint64_t bytes = 0, level;
    uint32_t h = 0;

    for (uint32_t i = 0; i < n; i++)
        bytes += t->entries[items[i].entry].bytes;
    for (uint32_t i = 0; i < n_holders; i++)
        scratch[i] = loads[holders[i]];
    qsort(scratch, n_holders, sizeof(*scratch), u64_compare);
    level = water_level(scratch, n_holders, bytes);
    for (uint32_t i = 0; i < n; i++) {
        struct sw_entry *entry = &t->entries[items[i].entry];

        while (h + 1 < n_holders && loads[holders[h]] + entry->bytes / 2 > level)
            h++;
        entry->rank = holders[h];
        loads[holders[h]] += entry->bytes;
    }
}

int sw_assign(struct sw_table *t, const uint32_t *order, uint32_t n, struct sw_error *e)
{
    struct item *items = calloc((size_t)n + 1, sizeof(*items));
    uint64_t *loads = calloc((size_t)t->n_ranks + 1, sizeof(*loads));
    uint64_t *scratch = calloc((size_t)t->n_ranks + 1, sizeof(*scratch));
    const int err = items && loads && scratch
                        ? 0
                        : sw_fail(e, SW_ERR_NOMEM, "no memory to assign %u sources to ranks", n);

    if (!err) {
        for (uint32_t i = 0; i < n; i++)
            items[i] = (struct item){t, order[i], i};
        qsort(items, n, sizeof(*items), item_compare);
        for (uint32_t i = 0, k; i < n; i += k) {
            for (k = 1; i + k < n && !holders_compare(&items[i], &items[i + k]);)
                k++;
            assign_group(t, items + i, k, loads, scratch);
        }
    }
    free(items);
    free(loads);
    free(scratch);
    return err;
}
