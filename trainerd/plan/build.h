/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of sw_layout_make hand on to each other. */
#ifndef SW_TRAINERD_PLAN_BUILD_H
#define SW_TRAINERD_PLAN_BUILD_H

#include "trainerd/plan/choices.h"
#include "trainerd/plan/wants.h"

struct sw_slab_key { /* what makes a slab */
    uint32_t entry, format, box;
    uint32_t source; /* SW_ASSIGN_LMSYS: the choice that its targets are bound to; else SW_NONE */
};

struct sw_slab_set { /* distinct slabs; empty when zero-initialised */
    uint32_t n, size;
    struct sw_slab_key *items;
    struct sw_index index;
};

/* Its number; SW_NONE without memory. */
uint32_t sw_slab_set_add(struct sw_slab_set *s, const struct sw_slab_key *key);
/* SW_NONE when it is not there. */
uint32_t sw_slab_set_find(const struct sw_slab_set *s, const struct sw_slab_key *key);
void sw_slab_set_free(struct sw_slab_set *s);

struct sw_build {
    struct sw_layout *l;
    const struct sw_plan_target *targets;
    uint32_t n_targets;
    struct sw_plan_options options;
    struct sw_wanting w;
    uint32_t *kind_of;      /* by target */
    uint32_t *kind_targets; /* by kind: how many targets */
    uint32_t *kind_raw;     /* by kind: where its raw wants begin; one more at the end */
    struct sw_slab_set slabs;
    struct sw_choices choices;
    /* By slab: */
    uint32_t *dests;      /* how often its bytes are sent */
    uint32_t *first_want; /* the first want in the first kind that wants it, by place there */
    uint32_t *audience;   /* equal numbers: wanted by the same kinds */
    uint32_t *place;      /* its place in the order of first wants: kind, region, offset */
    uint32_t *choice, *variant;
};

/* slabs.c: raw wants -> slabs and wants, with all that is kept by slab but the choice. */
int sw_build_slabs(struct sw_build *b, struct sw_error *e);

/* cuts.c: how raw slabs are cut. Raw slab i becomes pieces[first[i]] .. pieces[first[i + 1] - 1],
 * in order, each a number in `boxes`. */
struct sw_cuts {
    uint32_t *first; /* NULL: nothing is cut */
    uint32_t n, size;
    uint32_t *pieces;
};
int sw_cuts_make(struct sw_build *b, const struct sw_slab_set *raw, const uint32_t *dests,
    struct sw_cuts *cuts, struct sw_error *e);
void sw_cuts_free(struct sw_cuts *cuts);

/* places.c: the order of slabs' first wants. */
int sw_build_places(struct sw_build *b, struct sw_error *e);

/* The kind that a want belongs to. */
uint32_t sw_build_kind_of(const struct sw_compact *c, uint64_t want);

/* assign.c: for each slab its choice and variant. */
int sw_build_assign(struct sw_build *b, struct sw_error *e);

/* lmsys.c: binds each raw want's slab to the choice that the mapping gives its kind. */
int sw_build_lmsys(
    struct sw_build *b, struct sw_slab_set *raw, uint32_t *raw_slab, struct sw_error *e);

struct sw_order {         /* a slab, and what it is sorted by */
    uint32_t mesh, class; /* class: expert or not, then cut or not */
    uint32_t owner;       /* the rank, or the split of a slab that is cut */
    uint32_t place, slab;
};

/* order.c: the order of slabs in replicas (malloc'd); b->variant becomes the split. */
int sw_build_order(struct sw_build *b, struct sw_order **order, struct sw_error *e);

/* runs.c: the slabs in this order, their runs, and where in replicas these lie. */
int sw_build_runs(struct sw_build *b, const struct sw_order *order, struct sw_error *e);

/* alias.c: numbers the alias sets of more than one source. */
int sw_build_aliases(struct sw_build *b, struct sw_error *e);

/* Bytes of a slab's box, as final bytes. */
uint64_t sw_build_bytes(const struct sw_build *b, const struct sw_slab_key *slab);

/* The choice of a slab (choices.h), whose error names a parameter that wants it. */
int sw_build_choice(
    struct sw_build *b, const struct sw_slab_key *slab, uint32_t *choice, struct sw_error *e);

#endif
