/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds: engine ranks with equal parameters and equal placement, whatever their addresses. */
#ifndef SW_TRAINERD_PLAN_KINDS_H
#define SW_TRAINERD_PLAN_KINDS_H

#include "trainerd/plan/layout.h"

/*
 * Finds the kinds of these targets: the layout's c.kinds (their targets) and `known`, and for each
 * target its kind into `kind_of`. Checks the storages of every target that isn't the first of its
 * kind. `single`: each target is a kind of its own.
 */
int sw_kinds_make(struct sw_layout *l, const struct sw_plan_target *targets, uint32_t n_targets,
    bool single, uint32_t *kind_of, struct sw_error *e);

void sw_kind_clear(struct sw_layout_kind *k);

#endif
