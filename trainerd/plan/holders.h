/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what. Tensors that are in the same lists, in the same group of each, are held alike;
 * a membership says so, and is found once however many tensors and ranks there are.
 */
#ifndef SW_TRAINERD_PLAN_HOLDERS_H
#define SW_TRAINERD_PLAN_HOLDERS_H

#include "trainerd/plan/index.h"
#include "trainerd/plan/layout.h"

struct sw_member { /* in one more list than its parent */
    uint32_t parent, list, group;
};

struct sw_members { /* empty when zero-initialised */
    uint32_t n, size;
    struct sw_member *items;
    struct sw_index index;
};

/* The membership `before` (SW_NONE: in no list) and then this one. 0, or -1 without memory. */
int sw_members_step(
    struct sw_members *m, uint32_t before, uint32_t list, uint32_t group, uint32_t *after);
void sw_members_free(struct sw_members *m);

/* Turns the entries' `holders` from memberships into patterns of ranks and boxes. */
int sw_holders_make(struct sw_layout *l, const struct sw_members *m, struct sw_error *e);

#endif
