/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FP8 loads: one grid over one value. The box is cut into panels, each small enough for a cache,
 * and a panel is worked on by one thread. Panels are independent: different threads may take
 * different ones of the same step.
 */
#ifndef SW_CLIENT_FP8_H
#define SW_CLIENT_FP8_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/error.h>
#include "client/grid.h"
#include "client/isa.h"
#include "client/loads.h"

/* Of the source: no panel is larger, and a larger block is not done at once. */
#define SW_FP8_BLOCK_BYTES (256u << 10)

enum sw_fp8_step {
    SW_FP8_AT_ONCE, /* maxima, values and scales of each panel: whole blocks */
    SW_FP8_MAXIMA,  /* raises the maxima, which begin at 0 */
    SW_FP8_VALUES,  /* values and scales by the maxima */
};

/* What to do. Pointers are borrowed. */
struct sw_fp8 {
    const struct sw_loads *loads;
    const struct sw_source *source;
    const struct sw_grid *grid;
    const uint32_t *order; /* numbers of the loads with this grid */
    uint32_t n;
    const void *data; /* the value, as it was put */
    int64_t stride[SW_MAX_DIMS];
    char *replica;
    float *maxima; /* of the grid's blocks; NULL when done at once */
    enum sw_isa isa;
};

/* How an axis of the area is cut. Pieces don't cross multiples of `unit`, counted like blocks, and
 * have at most `step` elements. */
struct sw_fp8_cut {
    struct sw_grid_axis axis;
    uint64_t unit, step, per_unit;
    uint64_t first, n; /* pieces */
};

struct sw_fp8_work {
    struct sw_fp8 what;
    enum sw_fp8_step step;
    unsigned size;            /* bytes of a source element */
    uint32_t outer;           /* dimensions before rows and columns */
    uint64_t lo[SW_MAX_DIMS]; /* the area that the outer dimensions cover */
    uint64_t len[SW_MAX_DIMS];
    struct sw_fp8_cut rows, columns;
    int64_t row_stride, column_stride; /* of the value */
    uint64_t panels;
    uint64_t bytes; /* of the source, about, for who divides the work */
};

/* Whether a grid can be done at once: not shared, and its blocks fit in a cache. */
bool sw_fp8_at_once(const struct sw_source *s, const struct sw_grid *g);

/* Covers what the loads want; all of the box for SW_FP8_MAXIMA of a shared grid. */
void sw_fp8_plan(struct sw_fp8_work *w, const struct sw_fp8 *what, enum sw_fp8_step step);

/* Elements [*from, *to) of the box that a piece of an axis has: some. */
void sw_fp8_piece(const struct sw_fp8_cut *c, uint64_t i, uint64_t *from, uint64_t *to);

/* Does the panels [first, last). SW_ERR_INVALID: a value is not finite (in SW_FP8_VALUES: a
 * maximum). SW_ERR_NOMEM. */
int sw_fp8_run(const struct sw_fp8_work *w, uint64_t first, uint64_t last);

#endif
