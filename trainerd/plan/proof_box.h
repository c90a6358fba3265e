/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes, as the proof needs them. Not the planner's. */
#ifndef SW_TRAINERD_PLAN_PROOF_BOX_H
#define SW_TRAINERD_PLAN_PROOF_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/program.h"

/* Elements; 0 when some length is 0. Saturates at UINT64_MAX. */
uint64_t sw_proof_box_volume(const struct sw_box *b);

/* Whether lo + len stays within `shape` in each dimension, and no length is 0. */
bool sw_proof_box_fits(const struct sw_box *b, const uint64_t *shape);

bool sw_proof_box_inside(const struct sw_box *inner, const struct sw_box *outer);
bool sw_proof_box_meets(const struct sw_box *a, const struct sw_box *b);

/* A box that begins at `by` more. */
struct sw_box sw_proof_box_moved(const struct sw_box *b, const uint64_t *by);

enum sw_proof_partition {
    SW_PROOF_PARTITION_OK = 0,
    SW_PROOF_PARTITION_OUTSIDE, /* a box is empty, or goes past the whole */
    SW_PROOF_PARTITION_OVERLAP,
    SW_PROOF_PARTITION_HOLE,
    SW_PROOF_PARTITION_NO_MEMORY,
};

/* Whether n boxes of `ndim` dimensions make up [0, shape) exactly. *at: a box that is at fault. */
enum sw_proof_partition sw_proof_box_partition(
    const struct sw_box *boxes, uint32_t n, uint32_t ndim, const uint64_t *shape, uint32_t *at);

/*
 * Whether the union of n boxes (their items lie `stride` bytes apart) covers `region`. 1 or 0; -1
 * without memory, or when the boxes leave more than 100,000 pieces of it while they are taken away.
 */
int sw_proof_box_covers(
    const struct sw_box *boxes, uint32_t n, uint32_t stride, const struct sw_box *region);

/*
 * The elements of a tensor whose FP8 blocks a box touches: the box grown to whole blocks over the
 * last two dimensions, and cut at the tensor's end. With `counts_blocks` the box counts blocks.
 */
struct sw_box sw_proof_box_blocks(const struct sw_box *b, bool counts_blocks,
    const uint32_t block[2], uint32_t ndim, const uint64_t *shape);

/* The shape of a tensor counted in blocks, into grid. */
void sw_proof_box_grid(
    const uint32_t block[2], uint32_t ndim, const uint64_t *shape, uint64_t *grid);

/* The blocks that a box of elements touches. */
struct sw_box sw_proof_box_touched(const struct sw_box *b, const uint32_t block[2]);

#endif
