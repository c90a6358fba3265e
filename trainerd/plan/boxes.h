/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: a pool that keeps each distinct one once, and their arithmetic. */
#ifndef SW_TRAINERD_PLAN_BOXES_H
#define SW_TRAINERD_PLAN_BOXES_H

#include "trainerd/plan/compact.h"
#include "trainerd/plan/index.h"

struct sw_boxes { /* empty when zero-initialised */
    uint32_t n, size;
    struct sw_box *items;
    struct sw_index index;
};

/* Its number; SW_NONE without memory. */
uint32_t sw_boxes_add(struct sw_boxes *b, const struct sw_box *box);
/* SW_NONE when it is not there. */
uint32_t sw_boxes_find(const struct sw_boxes *b, const struct sw_box *box);
void sw_boxes_free(struct sw_boxes *b);

bool sw_box_equal(const struct sw_box *a, const struct sw_box *b);

/* Elements; 1 without dimensions. */
uint64_t sw_box_volume(const struct sw_box *box);

/* Bytes of a box's elements. */
uint64_t sw_box_bytes(const struct sw_box *box, enum sw_dtype dtype);

/* Whether `inner` lies in `outer`, dimension by dimension. */
bool sw_box_contains(const struct sw_box *outer, const struct sw_box *inner);

/* What both have; false when that is nothing. */
bool sw_box_intersect(const struct sw_box *a, const struct sw_box *b, struct sw_box *out);

/* The elements of a box of FP8 blocks, as far as the tensor goes. */
void sw_box_of_blocks(const struct sw_box *blocks, const uint32_t block[2], const uint64_t *shape,
    struct sw_box *elements);

/* The side of a block along dimension d of `ndim`: the last two are cut into blocks. */
uint64_t sw_block_side(const uint32_t block[2], uint32_t ndim, uint32_t d);

/* "[0:16, 32:64]" into `text`; returns it. */
const char *sw_box_text(const struct sw_box *box, char *text, size_t size);

/* "BF16 [2, 3]" into `text`; returns it. */
const char *sw_tensor_text(
    enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape, char *text, size_t size);

#endif
