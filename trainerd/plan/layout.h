/* SPDX-License-Identifier: Apache-2.0 */
/* What a layout is, for the files of the planner. */
#ifndef SW_TRAINERD_PLAN_LAYOUT_H
#define SW_TRAINERD_PLAN_LAYOUT_H

#include "trainerd/plan/table.h"

struct sw_layout {
    struct sw_table table;
    struct sw_load_plan *loads; /* by rank position */
    uint32_t n_sets;
    char **set_names; /* "a and b" */
};

/* The source whose tile holds this storage's bytes; `e` says why there is none. NULL for a storage
 * without bytes. */
int sw_layout_source(const struct sw_layout *l, const struct sw_plan_target *t,
    const struct sw_storages *s, const struct sw_storage *storage, const struct sw_entry **source,
    struct sw_error *e);

#endif
