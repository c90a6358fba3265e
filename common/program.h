/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: what a plan tells others to do, as plain values. The plan makes them (trainerd/plan),
 * the codec carries them (common/codec), executors run them (client, common/transport).
 */
#ifndef SW_COMMON_PROGRAM_H
#define SW_COMMON_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/dtype.h>
#include "common/placement.h"

/* A sub-block of a tensor: lo[d] <= index < lo[d] + len[d], in elements. */
struct sw_box {
    uint32_t ndim;
    uint64_t lo[SW_MAX_DIMS];
    uint64_t len[SW_MAX_DIMS];
};

/* A source tensor as one trainer rank declares it: global shape, and the box that this rank holds.
 */
struct sw_source {
    const char *name; /* checkpoint (Hugging Face) name */
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS]; /* global, in elements */
    struct sw_box box;           /* box.ndim == ndim */
};

/* A parameter as one engine rank declares it. It is dense (C order) in its region. */
struct sw_parameter {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS]; /* local, in elements */
    uint32_t region;             /* index among the rank's regions */
    uint64_t offset;             /* bytes from the region's start */
    const char *alias_of;        /* the parameter whose storage this one is, exactly; else NULL */
};

enum sw_transform {
    SW_TRANSFORM_COPY = 1,
    SW_TRANSFORM_CAST = 2,       /* among F32, BF16, F16: to nearest, ties to even */
    SW_TRANSFORM_FP8_VALUES = 3, /* to F8_E4M3, by the scale of each block */
    SW_TRANSFORM_FP8_SCALES = 4, /* the scales themselves: F32, or F8_E8M0 with UE8M0 */
    SW_TRANSFORM_ZERO = 5,       /* no source (sw_load.source is UINT32_MAX): zeros */
};

/*
 * How a box of a source tensor goes into a tile: loops over `len`, reading the put value through
 * its own strides and writing at dst_stride. Equal tensors share one template. Elements that are no
 * whole bytes are dense along the last dimension, whose dst_stride is 0 then.
 */
struct sw_load_template {
    enum sw_transform transform;
    enum sw_dtype src_dtype;
    enum sw_dtype dst_dtype;
    uint32_t ndim;
    uint64_t lo[SW_MAX_DIMS];  /* start, in elements, relative to the box that the rank declared */
    uint64_t len[SW_MAX_DIMS]; /* elements */
    uint64_t dst_stride[SW_MAX_DIMS]; /* bytes between neighbours of a dimension in the tile */
};

/* One step of a load program: source tensor -> tile, through a template. */
struct sw_load {
    uint32_t source; /* index into the rank's declared sources */
    uint32_t tmpl;   /* index into the program's templates */
    uint32_t tile;   /* index into the rank's tiles */
    uint32_t grid;   /* FP8: index into the program's grids; else UINT32_MAX */
    uint64_t offset; /* bytes from the tile's start, where the box begins */
};

/*
 * The FP8 blocks of one source as one rank sees it: those that its declared box touches, over the
 * last two dimensions (a vector is one row). Blocks begin at the tensor's origin, so the first may
 * begin before the box. Dimensions before the last two count as they are: the grid's shape is
 * [box.len..., block rows, block columns], and FP8_SCALES templates have `lo` and `len` in it.
 *
 * A shared grid's blocks are spread over several ranks: their maxima lie, in C order, in the rank's
 * maxima from `first` on; all sharing ranks reduce them between `end` and quantisation.
 */
struct sw_grid {
    uint32_t source;
    uint32_t block[2];
    enum sw_scale_format scale;
    uint32_t shared; /* 1: after the reduction; 0: as soon as it is put */
    uint64_t first;
};

/* `count` block maxima that several ranks of a host hold parts of: each becomes their maximum. */
struct sw_share_member {
    uint32_t rank;
    uint64_t first; /* in that rank's maxima */
};
struct sw_share {
    uint64_t count;
    uint32_t first_member, n_members;
};

/*
 * A source whose bytes must equal those of the other sources of its alias set: one engine storage,
 * several checkpoint names. Its digest travels with `end`; the coordinator compares.
 */
struct sw_alias_check {
    uint32_t source;
    uint32_t set;
};

struct sw_tile {
    uint64_t offset; /* bytes from the start of the rank's replica */
    uint64_t bytes;  /* final bytes; also the value its completion counter reaches */
};

/* One contiguous copy: replica of a trainer rank -> region of a target. */
struct sw_extent {
    uint64_t src;    /* bytes from the start of the rank's replica */
    uint64_t dst;    /* bytes from the start of the region */
    uint64_t length; /* bytes, > 0 */
    uint32_t region; /* index among the target's regions */
    uint32_t zero;   /* always 0: the struct has no hidden padding, so that it can lie in a memfd */
};

/* A run of declared bytes in a region; sorted and disjoint where a list of them is asked for. */
struct sw_run {
    uint32_t region;
    uint64_t offset;
    uint64_t length;
};

/* Whether an extent lies wholly inside one of the n sorted, merged runs. */
bool sw_runs_contain(
    const struct sw_run *runs, uint32_t n, uint32_t region, uint64_t offset, uint64_t length);

/* Sorts and merges runs in place (touching ones become one); returns the new count. */
uint32_t sw_runs_merge(struct sw_run *runs, uint32_t n);

/* True when a + b overflows or exceeds `limit`. */
static inline bool sw_range_exceeds(uint64_t a, uint64_t b, uint64_t limit)
{
    return a > limit || b > limit - a;
}

#endif
