/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue: the tensors of all lists, once each, and who holds which boxes of them. */
#ifndef SW_TRAINERD_PLAN_CATALOGUE_H
#define SW_TRAINERD_PLAN_CATALOGUE_H

#include "trainerd/plan/index.h"
#include "trainerd/plan/layout.h"

/*
 * Fills in the layout's ranks, lists, entries and holders. SW_ERR_PLAN names a tensor that a list
 * has twice, or that two lists describe differently, and a box outside its tensor.
 */
int sw_catalogue_make(
    struct sw_layout *l, const struct sw_plan_rank *ranks, uint32_t n_ranks, struct sw_error *e);

/* An index of the entries' names; freed with sw_index_free. */
int sw_catalogue_index(const struct sw_layout *l, struct sw_index *names, struct sw_error *e);

/* The entry of this name; SW_NONE when there is none. */
uint32_t sw_catalogue_find(
    const struct sw_layout *l, const struct sw_index *names, const char *name);

#endif
