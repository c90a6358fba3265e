/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the ranks that hold a source stages it. */
#ifndef SW_TRAINERD_PLAN_ASSIGN_H
#define SW_TRAINERD_PLAN_ASSIGN_H

#include "trainerd/plan/table.h"

/*
 * Sets `rank` of each wanted source with bytes, n of them in `order` (entries, in tile order).
 * Bytes are balanced among the ranks that hold the same sources, and each rank gets neighbours in
 * the order, so that its tiles merge into long extents.
 */
int sw_assign(struct sw_table *t, const uint32_t *order, uint32_t n, struct sw_error *e);

#endif
