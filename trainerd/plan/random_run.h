/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: executes a plan as slowly and plainly as can be. Each element that a load writes and
 * each byte that an extent moves is looked at on its own; what is written twice, read without
 * having been written, or lies outside is an error.
 */
#ifndef SW_TRAINERD_PLAN_RANDOM_RUN_H
#define SW_TRAINERD_PLAN_RANDOM_RUN_H

#include "trainerd/plan/plan.h"

/* Bytes of a source tensor (whole, dense, C order) by its name. */
typedef const uint8_t *run_values(void *arg, const char *name);

struct run_memory { /* bytes, and whether each was written */
    uint64_t bytes;
    uint8_t *data, *written;
};

struct run {
    uint32_t n_ranks, n_targets;
    struct sw_load_plan *loads;  /* by rank */
    struct run_memory *replicas; /* by rank */
    float **maxima;              /* by rank: those that are shared */
    struct run_memory **regions; /* by target: its regions */
    uint32_t n_writes;
    struct sw_write_plan *writes;
};

/* All ranks must be of host 0. Fails by ck_assert. */
void run_plan(struct run *run, const struct sw_layout *l, const struct sw_plan_rank *ranks,
    uint32_t n_ranks, const struct sw_plan_target *targets, uint32_t n_targets, run_values *values,
    void *arg);
void run_clear(struct run *run, const struct sw_plan_target *targets);

#endif
