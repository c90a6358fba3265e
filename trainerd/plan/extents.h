/* SPDX-License-Identifier: Apache-2.0 */
/* Writes out what one trainer rank writes to one target. */
#ifndef SW_TRAINERD_PLAN_EXTENTS_H
#define SW_TRAINERD_PLAN_EXTENTS_H

#include "trainerd/plan/layout.h"

/*
 * The write program of a rank (position) for a target of a kind: sorted by expert or not, region,
 * dst, in the longest runs. SW_ERR_LIMIT over SW_EXTENTS_MAX extents, SW_ERR_NOMEM.
 */
int sw_extents_make(const struct sw_layout *l, uint32_t kind, uint32_t rank,
    const struct sw_plan_target *t, struct sw_write_plan *out, struct sw_error *e);

#endif
