/* SPDX-License-Identifier: Apache-2.0 */
/* The cells that one rank has in each split: what writing out a rank's part begins with. */
#ifndef SW_TRAINERD_PLAN_OWN_H
#define SW_TRAINERD_PLAN_OWN_H

#include "trainerd/plan/compact.h"

struct sw_own {
    uint32_t *first; /* by split, and one more: where in `cells` its cells begin */
    uint32_t *cells; /* indexes into sw_compact.cells */
};

/* `rank` is a position. SW_ERR_NOMEM. */
int sw_own_make(const struct sw_compact *c, uint32_t rank, struct sw_own *out, struct sw_error *e);
void sw_own_free(struct sw_own *own);

#endif
