/* SPDX-License-Identifier: Apache-2.0 */
/* Wants of a target whose kind a layout doesn't have, in slabs that it has. */
#ifndef SW_TRAINERD_PLAN_LOOKUP_H
#define SW_TRAINERD_PLAN_LOOKUP_H

#include "trainerd/plan/layout.h"

struct sw_lookup; /* finds slabs of a layout; made when first needed, freed by the caller */
void sw_lookup_free(struct sw_lookup *k);

/*
 * The target's wants in slabs of the layout, by parameter and offset (malloc'd), and which of its
 * parameters are stacks (malloc'd, or NULL). SW_ERR_PLAN names a parameter whose bytes are in no
 * tile. *lookup is made if it is NULL.
 */
int sw_lookup_wants(const struct sw_layout *l, struct sw_lookup **lookup,
    const struct sw_plan_target *t, struct sw_want **wants, uint64_t *n, uint8_t **expert,
    struct sw_error *e);

#endif
