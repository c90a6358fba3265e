/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each byte of a parameter should be: by the model's rules, or by name. Part of the explicit
 * proof.
 */
#ifndef SW_TRAINERD_PLAN_PROOF_ORIGIN_H
#define SW_TRAINERD_PLAN_PROOF_ORIGIN_H

#include "trainerd/plan/proof_value.h"

struct sw_proof_piece { /* a value and where in the parameter it lies */
    struct sw_proof_value value;
    uint64_t to[SW_MAX_DIMS], len[SW_MAX_DIMS]; /* of the parameter's shape, as below */
};

struct sw_proof_origin { /* of one parameter; reused from call to call, zeroed at first */
    bool derived;        /* the engine makes it itself */
    bool unknown; /* no source has what it is made of; identity: or that one is another tensor */
    uint32_t n, size;
    struct sw_proof_piece *pieces;
    uint32_t ndim;               /* of the parameter, at least 1 */
    uint64_t shape[SW_MAX_DIMS]; /* bits along the last dimension */
    uint32_t last;               /* the piece that was found last */
};

struct sw_proof_origins { /* what all parameters need; zeroed at first but for `names` */
    const struct sw_proof_names *names;
    const struct sw_model *model; /* whose stored tensors `held` is about */
    uint32_t *held;               /* by stored tensor: name; SW_PROOF_NONE */
    struct sw_pieces pieces;
};

/* SW_ERR_PLAN when the model can't say, or nobody holds what it says. */
int sw_proof_origin(struct sw_proof_origins *o, const struct sw_plan_target *t,
    const struct sw_parameter *p, struct sw_proof_origin *out, struct sw_error *e);
void sw_proof_origin_free(struct sw_proof_origin *origin);
void sw_proof_origins_free(struct sw_proof_origins *o);

/* The piece that holds the parameter's place `at`; NULL = none. */
const struct sw_proof_piece *sw_proof_piece_at(struct sw_proof_origin *origin, const uint64_t *at);

#endif
