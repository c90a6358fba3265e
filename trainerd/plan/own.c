/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/own.h"

#include <stdlib.h>

#include "common/error.h"

int sw_own_make(const struct sw_compact *c, uint32_t rank, struct sw_own *out, struct sw_error *e)
{
    struct sw_own own = {.first = calloc((size_t)c->n_splits + 1, sizeof(*own.first))};
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_cells; i++)
        n += c->cells[i].rank == rank;
    own.cells = calloc((size_t)n + 1, sizeof(*own.cells));
    if (!own.first || !own.cells) {
        sw_own_free(&own);
        return sw_fail(e, SW_ERR_NOMEM, "no memory to write a plan of %u splits out", c->n_splits);
    }
    n = 0;
    for (uint32_t s = 0; s < c->n_splits; s++) {
        own.first[s] = n;
        for (uint32_t i = 0; i < c->splits[s].n; i++)
            if (c->cells[c->splits[s].first + i].rank == rank)
                own.cells[n++] = c->splits[s].first + i;
    }
    own.first[c->n_splits] = n;
    *out = own;
    return 0;
}

void sw_own_free(struct sw_own *own)
{
    free(own->first);
    free(own->cells);
    *own = (struct sw_own){0};
}
