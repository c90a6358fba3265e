/* SPDX-License-Identifier: Apache-2.0 */
/* Sources that share a storage must be compared. Part of the explicit proof. */
#ifndef SW_TRAINERD_PLAN_PROOF_ALIASES_H
#define SW_TRAINERD_PLAN_PROOF_ALIASES_H

#include "trainerd/plan/proof_names.h"

struct sw_proof_pair { /* names of sources whose bytes must be equal, and who wants that */
    uint32_t a, b;     /* a < b */
    const struct sw_plan_target *target;
    const struct sw_parameter *parameter;
};

struct sw_proof_pairs { /* zeroed at first */
    size_t n, size;
    struct sw_proof_pair *items;
};

/* Adds a pair; equal names need no comparison. SW_ERR_NOMEM. */
int sw_proof_pairs_add(struct sw_proof_pairs *p, uint32_t a, uint32_t b,
    const struct sw_plan_target *target, const struct sw_parameter *parameter, struct sw_error *e);
void sw_proof_pairs_free(struct sw_proof_pairs *p);

/*
 * SW_ERR_PLAN unless every rank that holds some of a pair's source digests it, in one set with all
 * equal boxes of the pair.
 */
int sw_proof_pairs_check(struct sw_proof_pairs *p, const struct sw_proof_names *names,
    const struct sw_plan_rank *ranks, uint32_t n_ranks, const struct sw_load_plan *loads,
    struct sw_error *e);

#endif
