/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which engines have slabs: neighbours there are to be neighbours in replicas. */
#include <stdlib.h>

#include "common/error.h"
#include "trainerd/plan/build.h"

struct place {
    uint64_t offset;
    uint32_t kind, region, slab;
};

static int place_compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->slab < y->slab ? -1 : x->slab > y->slab;
}

uint32_t sw_build_kind_of(const struct sw_compact *c, uint64_t want)
{
    uint32_t low = 0, high = c->n_kinds;

    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;

        if (c->kinds[mid].first <= want)
            low = mid;
        else
            high = mid;
    }
    return low;
}

int sw_build_places(struct sw_build *b, struct sw_error *e)
{
    const struct sw_compact *c = &b->l->c;
    const uint32_t n = b->slabs.n;
    struct place *places = malloc(((size_t)n + 1) * sizeof(*places));

    b->place = malloc(((size_t)n + 1) * sizeof(*b->place));
    if (!places || !b->place) {
        free(places);
        return sw_fail(e, SW_ERR_NOMEM, "no memory to order the slabs of a plan");
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_want *want = &c->wants[b->first_want[i]];
        const uint32_t kind = sw_build_kind_of(c, b->first_want[i]);
        const struct sw_parameter *p =
            &b->targets[c->kinds[kind].target].parameters[want->parameter];

        places[i] = (struct place){p->offset + want->offset, kind, p->region, i};
    }
    qsort(places, n, sizeof(*places), place_compare);
    for (uint32_t i = 0; i < n; i++)
        b->place[places[i].slab] = i;
    free(places);
    return 0;
}
