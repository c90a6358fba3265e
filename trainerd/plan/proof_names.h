/* SPDX-License-Identifier: Apache-2.0 */
/* The source tensors that programs are proved against, by name. Part of the explicit proof. */
#ifndef SW_TRAINERD_PLAN_PROOF_NAMES_H
#define SW_TRAINERD_PLAN_PROOF_NAMES_H

#include "trainerd/plan/plan.h"

#define SW_PROOF_NONE UINT32_MAX

struct sw_proof_list { /* what a list's tensors are here */
    const struct sw_source_list *list;
    uint32_t *name;    /* by tensor: number of its name */
    uint32_t *by_name; /* tensors, sorted by that */
};

struct sw_proof_names {
    uint32_t n;
    const struct sw_plan_tensor **items; /* by name, each name once */
    uint32_t n_lists;
    struct sw_proof_list *lists;
    uint32_t *list_of; /* by rank position */
};

/* SW_ERR_PLAN when two tensors of one name differ, or one list has a name twice. */
int sw_proof_names_make(const struct sw_plan_rank *ranks, uint32_t n_ranks,
    struct sw_proof_names *out, struct sw_error *e);
void sw_proof_names_free(struct sw_proof_names *n);

/* The number of a name; SW_PROOF_NONE: no rank has it. */
uint32_t sw_proof_name(const struct sw_proof_names *n, const char *name);

/* A rank's tensor of that name; SW_PROOF_NONE: it has none, or nothing of it. */
uint32_t sw_proof_tensor(
    const struct sw_proof_names *n, const struct sw_plan_rank *ranks, uint32_t rank, uint32_t name);

#endif
