/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as the planner keeps it and the proof reads it: plain values, in which whatever is equal
 * is said once. Written out for 256 FSDP ranks a 1T model has 17.7 million pieces; here it has as
 * many slabs as if one rank held everything, and a few dozen splits.
 *
 *   slab    a box of final bytes that some parameter wants: a source tensor's box, transformed.
 *           Distinct: who wants equal bytes shares the slab.
 *   split   how slabs are cut into cells, and which trainer rank has each cell. Equal tensors
 *           (layers, experts) share one. A slab held whole by its rank has one cell.
 *   tile    a slab's cell in the replica of the cell's rank: dense, in C order of the cell's box.
 *   run     slabs of one split that follow each other in the replica: in each rank of the split the
 *           i-th slab's tile lies at base[rank] + i * the cell's bytes.
 *   kind    engine ranks with equal parameters and equal placement; only their regions and offsets
 *           differ. What they want is said once.
 *   want    a slab -> where in which parameter of which kind.
 */
#ifndef SW_TRAINERD_PLAN_COMPACT_H
#define SW_TRAINERD_PLAN_COMPACT_H

#include "trainerd/plan/plan.h"

#define SW_NONE UINT32_MAX

struct sw_format { /* how a source tensor's elements become final bytes; shared by slabs */
    enum sw_transform transform;
    enum sw_dtype src_dtype, dst_dtype; /* ZERO: src_dtype is SW_DTYPE_INVALID */
    uint32_t block[2];                  /* FP8: rows and columns of a block */
    enum sw_scale_format scale;
};

struct sw_catalogue_entry { /* a source tensor, once however many ranks hold some of it */
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    uint32_t holders; /* index of the pattern of ranks and boxes, which equal tensors share */
};

struct sw_holder { /* `box` of a tensor is held by a rank (position among the ranks given) */
    uint32_t rank;
    struct sw_box box;
};

struct sw_holders {
    uint32_t first, n; /* in sw_compact.holder_items, by rank */
};

struct sw_slab {
    uint32_t source; /* catalogue entry; SW_NONE: constant zero */
    uint32_t format;
    uint32_t box; /* in sw_compact.boxes: elements of the source tensor (FP8_SCALE: blocks) */
    uint32_t split;
    uint32_t run, at; /* the at-th of its run */
    uint32_t wave;    /* 0 unless the replica is limited */
};

struct sw_cell {
    uint32_t rank;     /* position among the ranks given */
    struct sw_box box; /* within the slab: lo 0 is the slab's first element */
    uint64_t bytes;    /* final */
};

struct sw_split {      /* for slabs of equal box lengths and format */
    uint32_t first, n; /* in sw_compact.cells, in the order of their boxes; a rank may come twice */
};

struct sw_slab_run {
    uint32_t split, wave;
    uint32_t n;     /* slabs */
    uint64_t first; /* in sw_compact.bases: one base for each cell of the split, bytes from the
                     * start of the replica of the cell's rank */
};

struct sw_want { /* sorted by kind, parameter, offset */
    uint32_t slab, parameter;
    uint64_t offset; /* bytes from the parameter's start to the slab box's first element */
    /* Rows of the box lie as the parameter's strides say: the last dimensions are the box's. Where
     * the box has more (packed experts), these have length 1. An alias has no wants: its root's are
     * its own. */
};

struct sw_kind {
    uint32_t target; /* position of the first target of this kind: its parameters are the kind's */
    uint64_t first, n; /* wants */
};

struct sw_compact {
    uint32_t n_entries, n_holders, n_formats, n_boxes, n_slabs, n_splits, n_runs, n_kinds;
    uint64_t n_wants, n_bases;
    uint32_t n_cells, n_holder_items;
    struct sw_catalogue_entry *entries;
    struct sw_holders *holders;
    struct sw_holder *holder_items;
    struct sw_format *formats;
    struct sw_box *boxes;
    struct sw_slab *slabs;
    struct sw_split *splits;
    struct sw_cell *cells;
    struct sw_slab_run *runs;
    uint64_t *bases;
    struct sw_want *wants;
    struct sw_kind *kinds;
    uint64_t *replica_bytes; /* by rank position */
};

#endif
