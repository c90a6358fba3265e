/* SPDX-License-Identifier: Apache-2.0 */
/* What a layout is inside. Private to trainerd/plan. */
#ifndef SW_TRAINERD_PLAN_LAYOUT_H
#define SW_TRAINERD_PLAN_LAYOUT_H

#include "trainerd/plan/compact.h"
#include "trainerd/plan/grids.h"

struct sw_layout_list { /* a source list that ranks share, and what its tensors are here */
    const struct sw_source_list *list;
    uint32_t *entry; /* by tensor: catalogue entry */
};

struct sw_layout_kind { /* what makes a kind, to know it again without its target's arrays */
    uint64_t digest[2]; /* of the parameters' names, types, shapes and aliases */
    uint32_t n;         /* parameters */
    bool has_placement;
    const struct sw_model *model;
    struct sw_placement placement; /* its map is owned here */
    uint8_t *expert; /* by parameter: it has a stack, and goes after the others; NULL: none has */
    /* With SW_ASSIGN_LMSYS each target is a kind of its own: this engine's rank. */
    bool single;
    uint32_t target;
};

struct sw_layout {
    struct sw_compact c;
    uint32_t n_ranks, n_lists;
    struct sw_plan_rank *ranks; /* copied; lists and boxes borrowed */
    uint32_t *rank_list;        /* by rank: index into lists */
    struct sw_layout_list *lists;
    struct sw_layout_kind *known; /* c.n_kinds of them */
    struct sw_grids grids;        /* of c: what writing out FP8 loads and shares begins with */
    /* Alias sets: sources that must hold equal bytes. */
    uint32_t n_sets;
    uint32_t *set;    /* by catalogue entry: its set, or SW_NONE; NULL without sets */
    char **set_names; /* "a and b" */
};

/* The kind of a target in this layout; SW_NONE when there is none. */
uint32_t sw_layout_kind_of(const struct sw_layout *l, const struct sw_plan_target *t);

#endif
