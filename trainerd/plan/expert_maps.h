/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SW_TRAINERD_PLAN_EXPERT_MAPS_H
#define SW_TRAINERD_PLAN_EXPERT_MAPS_H

#include "trainerd/plan/plan.h"

/*
 * Whether the expert maps of an engine's ranks together have every expert of each layer; targets of
 * one engine lie side by side. SW_ERR_PLAN names engine, expert and one of its tensors. Engines
 * without maps are passed over, and so is what has no plan for other reasons.
 */
int sw_expert_maps_check(const struct sw_plan_target *targets, uint32_t n, struct sw_error *e);

#endif
