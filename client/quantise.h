/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FP8 block quantisation of panels in memory. Each block has a scale s by its largest magnitude
 * (amax), and a value x becomes
 *
 *     e4m3fn(clamp(x * (1 / s), -448, 448))
 *
 * in single precision, to nearest, ties to even. Scales:
 *
 *     FP32    s = max(amax, 1e-10) / 448
 *     UE8M0   s = 2^ceil(log2(max(amax, 1e-4) / 448))
 *
 * Pure. The thread must round to nearest (sw_quantise_enter sees to it).
 */
#ifndef SW_CLIENT_QUANTISE_H
#define SW_CLIENT_QUANTISE_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include "client/isa.h"
#include "common/placement.h"

#define SW_PANEL_BLOCKS 32u /* of one panel */

/* Rows of a source, cut into blocks along the columns: one row of blocks, or a part of one. */
struct sw_panel {
    const char *src;
    int64_t stride;   /* bytes from row to row; columns lie side by side */
    uint64_t rows;    /* > 0 */
    uint64_t columns; /* > 0 */
    uint64_t first;   /* columns of the first block, at most `block` */
    uint64_t block;   /* columns of the next ones; the last may have less */
    const char *next; /* a panel of the same shape that comes next; NULL: none */
};

struct sw_quantiser {
    /* amax[i] becomes the largest magnitude of block i. False: some value is NaN or infinite. */
    bool (*maxima)(const struct sw_panel *p, float *amax);
    /* Values of block i by inverse[i] = 1 / its scale. With `stream` stores go past the caches:
     * sw_isa_fence then. Non-finite values give any bits. The next panel, if there is one, is
     * fetched into the cache meanwhile; with `amax` its maxima are found on the way, so that memory
     * is never idle. False: these are not finite. */
    bool (*values)(const struct sw_panel *p, const float *inverse, char *dst, int64_t dst_stride,
        bool stream, float *amax);
};

/* From BF16, F16 or F32. NULL: another type, or the machine has no such instructions. */
const struct sw_quantiser *sw_quantiser_find(enum sw_isa isa, enum sw_dtype from);

/* Blocks of a panel. */
static inline uint32_t sw_panel_blocks(const struct sw_panel *p)
{
    return p->columns <= p->first
               ? 1
               : (uint32_t)(1 + (p->columns - p->first + p->block - 1) / p->block);
}

/* The scale of a block. `amax` is finite and not negative. */
float sw_scale_of(enum sw_scale_format format, float amax);
/* A UE8M0 scale as F8_E8M0 keeps it. */
uint8_t sw_scale_e8m0(float scale);

/* Rounding to nearest from here on; what comes out is for sw_quantise_leave, which restores. */
int sw_quantise_enter(void);
void sw_quantise_leave(int before);

#endif
