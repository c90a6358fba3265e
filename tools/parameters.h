/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of one engine rank: those of a checkpoint, whole, or those that a model's layout
 * rules give a rank at its place. Names, shapes and dtypes; no memory. */
#ifndef SW_TOOLS_PARAMETERS_H
#define SW_TOOLS_PARAMETERS_H

#include <stddef.h>
#include <shardwire/dtype.h>
#include "common/arena.h"
#include "trainerd/plan/model.h"

struct sw_rank_parameter {
    const char *name;
    enum sw_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    uint64_t bytes;
    size_t same_as; /* number of the parameter whose storage it has; its own number = none */
};

struct sw_rank_parameters {
    size_t n;
    struct sw_rank_parameter *items;
    struct sw_arena arena;
};

/* Of a checkpoint folder, headers only. An lm_head that config.json ties to the embedding shares
 * its storage; SW_ERR_INVALID when they differ in shape or dtype. */
int sw_rank_parameters_checkpoint(
    const char *folder, struct sw_rank_parameters *out, struct sw_error *e);

int sw_rank_parameters_model(const struct sw_model *model, const struct sw_placement *at,
    bool draft, struct sw_rank_parameters *out, struct sw_error *e);

void sw_rank_parameters_clear(struct sw_rank_parameters *p);

#endif
