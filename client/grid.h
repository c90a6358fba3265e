/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the FP8 blocks of a declared box lie (struct sw_grid). Pure arithmetic; block coordinates
 * count from the block in which the box begins.
 */
#ifndef SW_CLIENT_GRID_H
#define SW_CLIENT_GRID_H

#include <stdbool.h>
#include <stdint.h>
#include "common/program.h"

struct sw_grid_axis { /* rows, or columns */
    uint64_t length;  /* elements of the box */
    uint64_t block;   /* elements of a block */
    uint64_t phase;   /* elements of the first block that lie before the box */
    uint64_t blocks;  /* that the box touches */
};

/* A vector is one row. False when the source is a scalar, or `block` has a 0. */
bool sw_grid_axes(const struct sw_grid *g, const struct sw_source *s, struct sw_grid_axis *rows,
    struct sw_grid_axis *columns);

/* The grid's shape, of as many dimensions as the source: outer dimensions, block rows, block
 * columns; a vector's has block columns only. *count gets the number of blocks; false as above, or
 * when there are more than fit in 60 bits. */
bool sw_grid_shape(
    const struct sw_grid *g, const struct sw_source *s, uint64_t *shape, uint64_t *count);

#endif
