/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: trainer ranks that hold given tensors in a random way, whole or in parts. */
#ifndef SW_TRAINERD_PLAN_RANDOM_TRAINER_H
#define SW_TRAINERD_PLAN_RANDOM_TRAINER_H

#include "trainerd/plan/plan.h"

struct held_tensor {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint32_t pattern; /* below 32: those with equal numbers are held alike, most of the time */
};

/* Ranks 0 to world - 1, all of host 0. The names must outlive the fold. */
struct sw_fold *random_trainer(
    uint64_t *state, uint32_t world, const struct held_tensor *tensors, uint32_t n);

#endif
