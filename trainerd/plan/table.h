/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The distinct source tensors of all trainer ranks, by name: what each is, which ranks hold it and,
 * once planned, where its tile lies. Names and shapes are copies.
 */
#ifndef SW_TRAINERD_PLAN_TABLE_H
#define SW_TRAINERD_PLAN_TABLE_H

#include "common/arena.h"
#include "trainerd/plan/plan.h"
#include "trainerd/plan/storage.h"

#define SW_NONE UINT32_MAX

struct sw_entry {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t bytes;
    bool partial;                     /* some rank holds only a box of it */
    bool wanted;                      /* some parameter's bytes come from it: it has a tile */
    uint32_t first_holder, n_holders; /* in the table's holder arrays */
    uint32_t rank, tile; /* position of the rank that stages it, and the tile there; or SW_NONE */
    uint32_t set;        /* alias set, or SW_NONE */
};

struct sw_table {
    struct sw_arena arena;
    uint32_t n;
    struct sw_entry *entries; /* by name */
    uint32_t n_ranks;
    uint32_t *rank_numbers;  /* by position */
    uint32_t *n_sources;     /* by position */
    uint32_t **sources;      /* by position: the entry of each declared source */
    uint32_t *holder_rank;   /* position of the rank; ascending for each entry */
    uint32_t *holder_source; /* index among that rank's declared sources */
};

int sw_table_make(
    const struct sw_plan_rank *ranks, uint32_t n_ranks, struct sw_table *out, struct sw_error *e);
void sw_table_free(struct sw_table *t);

/* The entry of this name; NULL = no source has it. */
struct sw_entry *sw_table_find(const struct sw_table *t, const char *name);

/* The source of a parameter: NULL without error when there is none of that name; SW_ERR_PLAN when
 * dtype or shape differ, SW_ERR_UNSUPPORTED when only parts of it are held. */
int sw_table_match(const struct sw_table *t, const struct sw_plan_target *target,
    const struct sw_parameter *p, struct sw_entry **out, struct sw_error *e);

/* "no source for": the error for a storage none of whose names is a source. */
int sw_table_no_source(const struct sw_plan_target *target, const struct sw_storages *s,
    const struct sw_storage *storage, struct sw_error *e);

#endif
