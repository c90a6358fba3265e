/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sources a rank digests, because they must be equal to others of their alias set. Only equal
 * boxes can be compared, so each box of a set has a number of its own: set + n_sets * k, where k
 * counts the set's distinct boxes (0 when all hold the whole).
 */
#ifndef SW_TRAINERD_PLAN_CHECKS_H
#define SW_TRAINERD_PLAN_CHECKS_H

#include "trainerd/plan/layout.h"

/* The checks of the rank at a position; the caller frees *checks. SW_ERR_NOMEM, SW_ERR_LIMIT. */
int sw_checks_make(const struct sw_layout *l, uint32_t rank, struct sw_alias_check **checks,
    uint32_t *n, struct sw_error *e);

/* Sources that share a storage are compared box by box: SW_ERR_PLAN names those of which trainer
 * ranks hold different boxes. There is a plan for them, but nothing would tell that they differ. */
int sw_checks_possible(const struct sw_layout *l, struct sw_error *e);

#endif
