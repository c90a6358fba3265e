/* SPDX-License-Identifier: Apache-2.0 */
/* What the load program of a rank puts where in its replica. Part of the explicit proof. */
#ifndef SW_TRAINERD_PLAN_PROOF_FILLS_H
#define SW_TRAINERD_PLAN_PROOF_FILLS_H

#include "trainerd/plan/proof_value.h"

struct sw_proof_fill { /* replica bytes that one load writes */
    uint64_t start, end;
    uint32_t load;
};

struct sw_proof_fills { /* of one rank, sorted */
    const struct sw_plan_rank *rank;
    const struct sw_load_plan *plan;
    const uint32_t *names; /* by tensor of the rank's list */
    uint32_t n;
    struct sw_proof_fill *items;
};

/*
 * SW_ERR_PLAN when loads do not fill each tile exactly once, take what the rank does not hold, or
 * quantise blocks that they can't know.
 */
int sw_proof_fills_make(const struct sw_proof_names *names, const struct sw_plan_rank *rank,
    uint32_t position, const struct sw_load_plan *plan, struct sw_proof_fills *out,
    struct sw_error *e);
void sw_proof_fills_free(struct sw_proof_fills *f);

/* The fill that holds a replica byte; NULL = none. */
const struct sw_proof_fill *sw_proof_fill_at(const struct sw_proof_fills *f, uint64_t at);

/* What a fill is: a dense box. */
void sw_proof_fill_value(
    const struct sw_proof_fills *f, const struct sw_proof_fill *fill, struct sw_proof_value *out);

#endif
