/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: plans of a small model (3 layers, 8 experts, hidden 16, inner 32, 60 words), of which
 * an engine may be any size. What fails, fails the test. */
#ifndef SW_TRAINERD_PLAN_SMALL_PLAN_H
#define SW_TRAINERD_PLAN_SMALL_PLAN_H

#include "trainerd/plan/compact.h"
#include "trainerd/plan/scene.h"

/* The start of its config.json, and what makes it FP8. */
#define SMALL                                                                                      \
    "{\"architectures\": [\"Small\"], \"torch_dtype\": \"bfloat16\", \"layers\": 3, "              \
    "\"num_hidden_layers\": 3, \"experts\": 8, \"hidden\": 16, \"inner\": 32, \"vocab\": 60"
#define FP8                                                                                        \
    ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [16, 16]}"

/* A test's fixture makes and frees it. */
extern struct sw_model *model;

struct made {
    struct sw_scene trainers, engines[2];
    struct sw_plan_rank *ranks;
    struct sw_plan_target *targets;
    uint32_t n_ranks, n_targets;
    struct sw_layout *layout;
    struct sw_writes *writes;
    struct sw_plan_notes notes;
    const struct sw_compact *c;
};

struct sw_model *make_model(const char *json);
void set_up(void);
void tear_down(void);
/* Trainers, and one or two kinds of engines; nothing planned yet. */
struct made scene(const struct sw_trainer_spec *t, const struct sw_engine_spec *a,
    const struct sw_engine_spec *b);
int try_plan(struct made *m, const struct sw_plan_options *options, struct sw_error *e);
void plan(struct made *m, const struct sw_plan_options *options);
void clear(struct made *m);
/* Bytes of a slab in all replicas together. */
uint64_t staged(const struct sw_compact *c, uint32_t slab);
/* Where a slab's cell lies in its rank's replica. */
uint64_t tile_at(const struct sw_compact *c, uint32_t slab, uint32_t cell);
/* Slabs of a source in a transform, in the order of their boxes; how many. */
uint32_t slabs_of(const struct sw_compact *c, const char *name, enum sw_transform transform,
    uint32_t *out, uint32_t most);

#endif
