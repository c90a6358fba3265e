/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box, cut at the boundaries of what ranks hold of it into a grid of cells, each with the ranks
 * that hold it whole.
 */
#ifndef SW_TRAINERD_PLAN_GRID_H
#define SW_TRAINERD_PLAN_GRID_H

#include "trainerd/plan/compact.h"

#define SW_GRID_CELLS_MAX (1u << 22)

struct sw_grid_cut {
    uint32_t ndim;
    uint32_t n[SW_MAX_DIMS];     /* cells along each dimension */
    uint64_t *ends[SW_MAX_DIMS]; /* n + 1 boundaries each, the first 0: relative to the box */
    uint32_t n_cells;
    uint32_t *first; /* by cell, in C order: its ranks in `ranks`; one more at the end */
    uint32_t *ranks;
    uint32_t most; /* ranks of the cell that has the most */
};

/* Cuts `box`. Cells that nobody holds have no ranks. SW_ERR_LIMIT: too many cells. */
int sw_grid_make(const struct sw_holder *holders, uint32_t n, const struct sw_box *box,
    struct sw_grid_cut *grid, struct sw_error *e);
void sw_grid_free(struct sw_grid_cut *grid);

/* The i-th cell's box, relative to the box that was cut. */
void sw_grid_cell(const struct sw_grid_cut *grid, uint32_t i, struct sw_box *cell);

#endif
