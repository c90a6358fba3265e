/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scene: trainers and engines of the usual kinds, made up from a few numbers, to plan for what is
 * not there (shardctl plan, benchmarks, tests). Pure.
 *
 * Trainer ranks are numbered as Megatron does: tensor-parallel fastest, pipeline stages slowest; a
 * stage has world / pp ranks. Layers go to stages in contiguous, nearly equal parts (the first
 * stages have one more); tensors before the layers in the layout file to the first stage, those
 * after them (and draft layers) to the last. Ranks, and targets, fill hosts in order; a rank's NIC
 * is its place on its host.
 */
#ifndef SW_TRAINERD_PLAN_SCENE_H
#define SW_TRAINERD_PLAN_SCENE_H

#include "common/arena.h"
#include "trainerd/plan/plan.h"

enum sw_trainer_holds {
    SW_HOLDS_GATHERED = 0, /* every rank all tensors of its stage: after TP and EP all-gathers */
    SW_HOLDS_SHARDS = 1,   /* its Megatron shard: TP rows or columns, EP experts */
    SW_HOLDS_FSDP = 2,     /* its rows of every tensor of its stage: FSDP2's Shard(0) */
};

struct sw_trainer_spec {
    enum sw_trainer_holds holds;
    uint32_t world;
    uint32_t tp, pp, ep; /* 0 = 1 */
    uint32_t per_host;   /* ranks of a host; 0 = 8 */
    bool packed;         /* experts as Transformers 5 packs them */
    bool draft;          /* draft (MTP) layers are there */
    bool fp8; /* with an FP8 config.json: as its checkpoint has them, with their scales */
};

struct sw_engine_spec {
    enum sw_engine_kind kind;
    uint32_t engines;        /* how many equal ones; 0 = 1 */
    uint32_t tp, ep, pp, dp; /* of one engine; 0 = 1. SGLang: dp is attention's, within tp. vLLM:
                              * dp x tp x pp ranks, ep is 1 or dp x tp */
    enum sw_scale_format scale;
    uint32_t block[2]; /* with a scale format: FP8 */
    uint32_t fused_shared_experts;
    uint32_t mlp_tp, head_tp; /* of dense MLP, of lm_head; 0 = as docs/layouts.md says */
    uint32_t per_host;        /* ranks of a host; 0 = 8 */
    bool draft;
};

/* Ranks of one engine, and where its rank stands. SW_ERR_INVALID as above. */
int sw_scene_engine_world(const struct sw_engine_spec *spec, uint32_t *world, struct sw_error *e);
int sw_scene_place(
    const struct sw_engine_spec *spec, uint32_t rank, struct sw_placement *out, struct sw_error *e);

struct sw_scene {
    uint32_t n_ranks, n_targets;
    struct sw_plan_rank *ranks;
    struct sw_plan_target *targets;
    struct sw_arena arena; /* holds all of it */
};

/*
 * SW_ERR_INVALID names numbers that don't fit each other (world % pp, tp % ep, ...); errors of the
 * model are passed on. The model must outlive the scene. `engine` NULL: trainers only.
 */
int sw_scene_make(const struct sw_model *model, const struct sw_trainer_spec *trainer,
    const struct sw_engine_spec *engine, struct sw_scene *scene, struct sw_error *e);
void sw_scene_clear(struct sw_scene *s);

#endif
