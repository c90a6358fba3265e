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
 * A parameter is matched to sources by rules; for now there is one rule, identity: the source of
 * the same name, dtype and shape, whole. Parameters that are exact aliases of each other form one
 * storage; every source that names a member of the storage is an alias source, and must hold equal
 * bytes (struct sw_alias_check).
 */
#ifndef SW_TRAINERD_PLAN_H
#define SW_TRAINERD_PLAN_H

#include <stddef.h>

#include <shardwire/error.h>
#include "common/program.h"

struct sw_plan_rank { /* a trainer rank; borrowed */
    uint32_t rank;
    uint32_t n_sources;
    const struct sw_source *sources;
};

struct sw_plan_target { /* an engine rank; borrowed */
    uint32_t target;
    const char *engine;
    uint32_t engine_rank;
    uint32_t n_regions;
    const uint64_t *region_bytes;
    uint32_t n_parameters;
    const struct sw_parameter *parameters;
};

struct sw_load_plan { /* of one trainer rank */
    uint32_t rank;
    uint64_t replica_bytes;
    uint32_t n_templates, n_loads, n_checks, n_tiles;
    struct sw_load_template *templates;
    struct sw_load *loads;
    struct sw_alias_check *checks;
    struct sw_tile *tiles;
};

struct sw_write_plan { /* of one (trainer rank, target) */
    uint32_t rank, target;
    uint64_t n;
    struct sw_extent *extents;
    uint64_t bytes;
};

struct sw_layout; /* tiles and load programs of all trainer ranks; immutable once made */

/*
 * Makes the layout for these ranks and targets. SW_ERR_PLAN names the parameter (and engine, rank)
 * that has no source, or another dtype or shape, or is covered twice. *unused counts sources that
 * no engine wants (a warning; the names of the first few go to `unused_names`, a bounded text).
 * Tiles are laid out in the order of the first target's regions and offsets, so that writes merge.
 */
int sw_layout_make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_layout **layout,
    uint32_t *unused, char *unused_names, size_t unused_size, struct sw_error *e);
void sw_layout_free(struct sw_layout *l);

/* The load plan of the i-th rank given (borrowed from the layout). */
const struct sw_load_plan *sw_layout_load(const struct sw_layout *l, uint32_t i);

/* The names of the storages' first sources in an alias set, for messages ("a and b"). */
const char *sw_layout_alias_names(const struct sw_layout *l, uint32_t set);

/* Whether every parameter of this target lies in tiles of the layout; if not, `e` says which one.
 */
int sw_layout_knows(const struct sw_layout *l, const struct sw_plan_target *t, struct sw_error *e);

struct sw_writes; /* write plans of all pairs; immutable */

/* Makes and proves the write plans for these targets (all known to the layout). */
int sw_writes_make(const struct sw_layout *l, const struct sw_plan_target *targets,
    uint32_t n_targets, struct sw_writes **writes, struct sw_error *e);
void sw_writes_free(struct sw_writes *w);
uint32_t sw_writes_count(const struct sw_writes *w);
const struct sw_write_plan *sw_writes_get(
    const struct sw_writes *w, uint32_t i); /* by target, rank */

/*
 * The proof, in its own file (proof.c), sharing no code with the planner: every byte of every
 * declared parameter is written exactly once by the extents, nothing else is; and every tile byte
 * that an extent reads is filled exactly once by the loads. Linear (after sorting) in extents +
 * loads. It also checks, name by name, that the bytes come from the source of the parameter's own
 * storage.
 */
int sw_plan_prove(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    const struct sw_load_plan *const *loads, const struct sw_plan_target *targets,
    uint32_t n_targets, const struct sw_write_plan *const *writes, uint32_t n_writes,
    struct sw_error *e);

#endif
