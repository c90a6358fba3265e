/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: engine ranks of a random model, with the bytes that each parameter must have. Told
 * from the engine's side, slice by slice.
 */
#ifndef SW_TRAINERD_PLAN_RANDOM_ENGINE_H
#define SW_TRAINERD_PLAN_RANDOM_ENGINE_H

#include "trainerd/plan/random_model.h"

#define ENGINE_PARAMETERS_MAX 96

struct engine_rank {
    struct sw_plan_target target;
    struct sw_placement placement;
    uint32_t map[LAYERS_MAX * (EXPERTS_MAX + 2)];
    uint64_t region_bytes[2];
    struct sw_parameter parameters[ENGINE_PARAMETERS_MAX];
    char names[ENGINE_PARAMETERS_MAX][40];
    uint8_t *expected[ENGINE_PARAMETERS_MAX]; /* NULL: derived, must not be written */
    uint64_t bytes[ENGINE_PARAMETERS_MAX];
};

struct engine { /* how one is set up; every rank of it */
    char name[8];
    uint32_t tp, attn_tp, ep, mlp_tp, pp;
    uint32_t fused, slots, map_layers; /* slots 0: no map */
    bool fp8;
    uint32_t block[2];
    enum sw_scale_format scale;
    enum sw_dtype scale_dtype, dtype;
    uint32_t n;
    struct engine_rank *ranks;
};

/* Targets get numbers from *target on. */
void random_engine_make(struct engine *g, struct random_model *m, const struct sw_model *model,
    uint32_t number, uint32_t *target);
void random_engine_clear(struct engine *g);

#endif
