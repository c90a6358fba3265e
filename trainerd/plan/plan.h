/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: from what trainer ranks hold and what engine ranks want to tiles, load programs and
 * write programs. Pure functions; nothing here does I/O or keeps state between calls.
 *
 * Two steps, because they change at different times:
 *   layout  (layout epoch)     sources + parameters -> tiles of each trainer rank, load programs
 *   writes  (membership epoch) layout + the engines there are -> write program for each
 *                              (trainer rank, target)
 *
 * A target without a model is matched by identity: the source of the same name, dtype and shape.
 * With one, its parameters are made of the tensors that the layout rules name (model.h), taken from
 * whichever ranks hold the boxes. Parameters that are exact aliases of each other form one
 * storage; every source that names a member of the storage is an alias source, and must hold equal
 * bytes (struct sw_alias_check).
 *
 * Inside, a plan is kept in the compact form of compact.h: equal layers and experts are said once.
 * Programs are written out one at a time, on request.
 */
#ifndef SW_TRAINERD_PLAN_H
#define SW_TRAINERD_PLAN_H

#include <stddef.h>

#include <shardwire/error.h>
#include "common/placement.h"
#include "common/program.h"
#include "trainerd/plan/model.h"

#define SW_PROVE_EXTENTS 100000u /* larger plans are proved in their compact form only */

/* ---- what is given; all of it borrowed ---- */

struct sw_plan_tensor {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS]; /* global, in elements */
};

/* Tensors that some ranks hold, each rank its own boxes of them. Tensors of one group have equal
 * shapes, and in every rank with this list equal boxes. */
struct sw_source_list {
    uint32_t n, n_groups;
    const struct sw_plan_tensor *tensors;
    const uint32_t *group; /* by tensor */
};

struct sw_plan_rank { /* a trainer rank */
    uint32_t rank;
    uint32_t host, nic; /* numbers of its training host, and of the NIC there; for balance */
    uint32_t mesh;      /* mesh group: staged in this order */
    const struct sw_source_list *list; /* may be shared with other ranks */
    const struct sw_box *boxes;        /* by group: what this rank holds (len 0: nothing) */
};

struct sw_plan_target { /* an engine rank */
    const char *engine;
    uint32_t target, engine_rank;
    uint32_t host, nic;                   /* numbers of its inference host, and of the NIC there */
    const struct sw_model *model;         /* NULL = identity */
    const struct sw_placement *placement; /* NULL with identity */
    uint32_t n_regions, n_parameters;
    const uint64_t *region_bytes;
    const struct sw_parameter *parameters; /* the same array for several targets saves time */
};

enum sw_assignment {
    SW_ASSIGN_BALANCED = 0, /* by bytes, with few pairs */
    SW_ASSIGN_LMSYS = 1,    /* the mapping of the LMSYS post: engine by engine, round-robin */
};

struct sw_plan_options {
    enum sw_assignment assignment;
    uint64_t replica_limit; /* bytes of one rank's replica; 0 = none. With less than its tiles take
                             * they pass in waves, for planning only */
};

/* Folds ranks that came one by one, with a source for each tensor, into lists and boxes. */
struct sw_fold;
struct sw_fold *sw_fold_new(void); /* NULL = no memory */
void sw_fold_free(struct sw_fold *f);
/* Names are borrowed until sw_fold_free. Ranks are numbered by `rank`; SW_ERR_PLAN names a tensor
 * that comes twice, or with another dtype or shape than in another rank. */
int sw_fold_add(struct sw_fold *f, uint32_t rank, uint32_t host, uint32_t n,
    const struct sw_source *sources, struct sw_error *e);
/* All of them, in the order in which they were added; borrowed from the fold. No more can be added
 * then (SW_ERR_STATE). */
int sw_fold_ranks(
    struct sw_fold *f, const struct sw_plan_rank **ranks, uint32_t *n, struct sw_error *e);

/* ---- what comes out ---- */

struct sw_load_plan { /* of one trainer rank, written out */
    uint64_t replica_bytes;
    uint64_t n_maxima; /* block maxima that this rank shares with others (floats) */
    uint32_t rank, n_templates, n_loads, n_grids, n_checks, n_tiles;
    struct sw_load_template *templates;
    struct sw_load *loads;
    struct sw_grid *grids;
    struct sw_alias_check *checks;
    struct sw_tile *tiles;
};
void sw_load_plan_clear(struct sw_load_plan *p);

struct sw_share_plan { /* which block maxima are the same block's, written out */
    uint32_t n;
    struct sw_share *items;
    struct sw_share_member *members; /* of all items, one after another */
    uint32_t n_members;
};
void sw_share_plan_clear(struct sw_share_plan *p);

struct sw_write_plan { /* of one (trainer rank, target), written out */
    uint32_t rank, target;
    uint64_t n;
    struct sw_extent *extents; /* sorted by expert or not, region, dst; merged */
    uint64_t bytes;
};
void sw_write_plan_clear(struct sw_write_plan *p);

struct sw_plan_notes { /* what a person may want to know */
    uint32_t unused;   /* sources that no engine wants, draft layers and skipped ones not counted */
    char unused_names[256];
    uint32_t derived; /* declared parameters that the engine makes itself */
};

struct sw_layout; /* immutable once made. The ranks' lists and boxes, and the models, must outlive
                   * it; targets and their parameters need not */
struct sw_compact;

/*
 * Makes and proves the layout. SW_ERR_PLAN names parameter, engine and rank, and what is missing or
 * contradicts: no source, another dtype or shape, a box that no rank holds, covered twice.
 */
int sw_layout_make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, const struct sw_plan_options *options,
    struct sw_layout **layout, struct sw_plan_notes *notes, struct sw_error *e);
void sw_layout_free(struct sw_layout *l);

const struct sw_compact *sw_layout_compact(const struct sw_layout *l);

/* Writes out the load program of the i-th rank given. Source numbers are positions in its list. */
int sw_layout_load(
    const struct sw_layout *l, uint32_t i, struct sw_load_plan *out, struct sw_error *e);

/*
 * Writes out which block maxima the ranks of one host share among each other. *elsewhere counts
 * blocks that ranks of other hosts share too.
 */
int sw_layout_shares(const struct sw_layout *l, uint32_t host, struct sw_share_plan *out,
    uint64_t *elsewhere, struct sw_error *e);

/* The names of an alias set's sources, for messages ("a and b"). */
const char *sw_layout_alias_names(const struct sw_layout *l, uint32_t set);

/* Whether every parameter of this target lies in tiles of the layout; if not, `e` says which one.
 */
int sw_layout_knows(const struct sw_layout *l, const struct sw_plan_target *t, struct sw_error *e);

struct sw_writes; /* what each (trainer rank, target) moves; immutable. The layout, and the
                   * targets' arrays, must outlive it. */

/* Makes and proves the writes of these targets (all known to the layout). */
int sw_writes_make(const struct sw_layout *l, const struct sw_plan_target *targets,
    uint32_t n_targets, struct sw_writes **writes, struct sw_error *e);
void sw_writes_free(struct sw_writes *w);

struct sw_pair { /* a trainer rank (position) and a target (position) with something to move */
    uint32_t rank, target;
    uint64_t bytes;
    uint32_t order; /* the rank's targets are served in this order, rotated over ranks */
};
uint32_t sw_writes_count(const struct sw_writes *w);
const struct sw_pair *sw_writes_pair(const struct sw_writes *w, uint32_t i); /* by rank, target */

/* Writes out the i-th pair's program. */
int sw_writes_get(
    const struct sw_writes *w, uint32_t i, struct sw_write_plan *out, struct sw_error *e);

/*
 * The proofs, in their own files, sharing no code with the planner.
 *
 * sw_compact_prove: on every plan, in its compact form; for each kind every byte of every declared
 * parameter is in exactly one want (derived ones in none); each split cuts its slabs exactly; every
 * cell lies in a box that its rank declared; tiles do not overlap; storages and regions neither.
 *
 * sw_plan_prove: on programs written out: every byte of every declared parameter is written exactly
 * once, nothing else is; every replica byte that is read is filled exactly once by the loads; and
 * it comes from where the wants say. The coordinator runs it on plans of up to SW_PROVE_EXTENTS.
 */
int sw_compact_prove(const struct sw_compact *c, const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_error *e);

int sw_plan_prove(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_load_plan *loads, const struct sw_plan_target *targets, uint32_t n_targets,
    const struct sw_write_plan *writes, uint32_t n_writes, struct sw_error *e);

#endif
