/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FP8 blocks: which ranks need a block's maximum, and who can't tell it alone. A rank needs the
 * blocks that its cells touch. A block is shared when some rank that needs it does not hold all of
 * it; then all that need it reduce their maxima.
 *
 * Equal tensors that are cut and held equally (layers, experts) are of one class, and what is found
 * out about one of them holds for all. In each rank's maxima the grids follow each other by class,
 * then by tensor: so those that the same ranks share make long runs.
 */
#ifndef SW_TRAINERD_PLAN_GRIDS_H
#define SW_TRAINERD_PLAN_GRIDS_H

#include "trainerd/plan/compact.h"

struct sw_grid_class {
    uint32_t entry; /* its first tensor */
    uint32_t block[2];
    enum sw_scale_format scale;
    uint32_t first_use, n_uses;   /* in sw_grids.uses */
    uint32_t first_item, n_items; /* in sw_grids.items */
};

struct sw_grids {
    uint32_t n_classes, n_items;
    struct sw_grid_class *classes; /* in the order of their first tensors */
    uint32_t *uses;                /* the FP8 slabs of one of a class's tensors */
    uint32_t *items;               /* tensors (catalogue entries) by class; a tensor with blocks of
                                    * two kinds is in two classes */
    uint32_t *item_of;             /* by slab: index into items; SW_NONE when it is not FP8 */
};

/* SW_ERR_NOMEM, or SW_ERR_PLAN when a format has no block. */
int sw_grids_make(const struct sw_compact *c, struct sw_grids *out, struct sw_error *e);
void sw_grids_free(struct sw_grids *g);

struct sw_touch { /* a cell of a class's slabs; in blocks of the whole tensor */
    uint32_t rank;
    struct sw_box blocks; /* that it touches */
    struct sw_box whole;  /* that its rank holds whole */
};

struct sw_touches { /* reused from class to call; zeroed at first */
    uint32_t n, size;
    struct sw_touch *items;
};

/* All cells of a class. SW_ERR_NOMEM. */
int sw_grids_touches(const struct sw_compact *c, const struct sw_grids *g,
    const struct sw_grid_class *class, struct sw_touches *t, struct sw_error *e);
void sw_touches_free(struct sw_touches *t);

/* Whether a rank needs blocks of these, and whether one of them is shared. */
void sw_touches_need(const struct sw_touches *t, uint32_t rank, bool *needs, bool *shared);

/* The blocks that a box of elements touches: the shape of a rank's grid. */
void sw_grid_span(const struct sw_box *box, const uint32_t block[2], struct sw_box *blocks);
uint64_t sw_grid_count(const struct sw_box *blocks);
bool sw_grid_contains(const struct sw_box *outer, const struct sw_box *inner);

/* The box of a tensor that a rank (position) holds; NULL = none. */
const struct sw_box *sw_grid_held(const struct sw_compact *c, uint32_t entry, uint32_t rank);

#endif
