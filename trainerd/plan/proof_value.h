/* SPDX-License-Identifier: Apache-2.0 */
/* What bytes are: a box of a source tensor in final form. Part of the explicit proof. */
#ifndef SW_TRAINERD_PLAN_PROOF_VALUE_H
#define SW_TRAINERD_PLAN_PROOF_VALUE_H

#include "trainerd/plan/proof_names.h"

struct sw_proof_value {
    uint32_t name; /* SW_PROOF_NONE: zeros */
    enum sw_transform transform;
    enum sw_dtype from, to;
    uint32_t block[2]; /* FP8 */
    enum sw_scale_format scale;
    /* Of the whole tensor; scales: of its blocks. At least one dimension; along the last one bits
     * of the final form are counted, since some elements are no whole bytes. */
    uint32_t ndim;
    uint64_t lo[SW_MAX_DIMS], len[SW_MAX_DIMS];
};

/* Whether they are made of the same tensor in the same way; NULL, or what differs. */
const char *sw_proof_value_differs(const struct sw_proof_value *a, const struct sw_proof_value *b);

/* Fills in transform, block and scale for values, or scales, of a tensor of dtype v->from in v->to;
 * false when there is no way. */
bool sw_proof_value_form(
    struct sw_proof_value *v, bool scales, bool quantised, const struct sw_placement *at);

bool sw_proof_is_float(enum sw_dtype dtype); /* among which casts are done */

/* The side of a block along dimension d of ndim. */
uint64_t sw_proof_side(const uint32_t block[2], uint32_t ndim, uint32_t d);

#endif
