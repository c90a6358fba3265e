/* SPDX-License-Identifier: Apache-2.0 */
/* The lower bound of the busiest source NIC's bytes; what it is: struct sw_cost. Private to cost.c.
 */
#ifndef SW_TRAINERD_PLAN_BOUND_H
#define SW_TRAINERD_PLAN_BOUND_H

#include "trainerd/plan/plan.h"

int sw_bound_make(const struct sw_layout *l, const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, uint64_t *bound, struct sw_error *e);

#endif
