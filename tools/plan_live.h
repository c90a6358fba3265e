/* SPDX-License-Identifier: Apache-2.0 */
/* The engines that a live inferd has, as targets of a plan. */
#ifndef SW_TOOLS_PLAN_LIVE_H
#define SW_TOOLS_PLAN_LIVE_H

#include "tools/live_engines.h"
#include "tools/model_files.h"
#include "trainerd/plan/plan.h"

struct sw_plan_live {
    struct sw_live_engines *engines;
    uint32_t n_models;
    struct sw_model_files *models; /* of ranks that say the same: one */
    struct sw_placement *places;   /* by rank */
    uint32_t n_targets;
    struct sw_plan_target *targets;
};

/* Asks inferd, and makes the models of its ranks with the layout files of `folder`.
 * SW_ERR_NOT_FOUND when nothing is registered there. Free with sw_plan_live_clear. */
int sw_plan_live_ask(const struct sw_control_where *where, const char *folder,
    struct sw_plan_live *live, struct sw_error *e);
void sw_plan_live_clear(struct sw_plan_live *live);

#endif
