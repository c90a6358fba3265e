/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a model from the project's own layout files and a config.json, and engines of it. */
#ifndef SW_TRAINERD_PLAN_TEST_LAYOUT_FILES_H
#define SW_TRAINERD_PLAN_TEST_LAYOUT_FILES_H

#include "trainerd/plan/model.h"

/* layouts/`layout`.layout for tests/data/configs/`config`.json; fails the test with the message. */
struct sw_model *open_model(const char *layout, const char *config, enum sw_engine_kind kind);

/* The same for the text of a config.json. */
struct sw_model *make_model(const char *layout, const char *json, enum sw_engine_kind kind);

/* ---- engines ---- */

struct engine_case {
    const char *layout, *config;
    enum sw_engine_kind kind;
    uint32_t tp, ep, pp, dp;
    uint32_t alone;         /* groups of size 1, as bits: mlp_tp, shared_tp, ... */
    uint32_t block;         /* FP8 blocks; 0 = BF16 */
    uint32_t fused;         /* 1: shared experts are */
    uint32_t parameters[2]; /* of the first and the last stage, MTP layers included; 0 = any */
    double gb;              /* published bytes of a rank without MTP layers; 0 = none */
    bool head_dp;           /* SGLang: lm_head is split as attention is (enable_dp_lm_head) */
};

#define ALONE(group) (1u << SW_GROUP_##group)
#define SGLANG SW_ENGINE_SGLANG
#define VLLM SW_ENGINE_VLLM

/* Where the rank `tp` of stage `pp` stands, completed. */
struct sw_placement place(const struct engine_case *c, uint32_t tp, uint32_t pp);

uint64_t volume(uint32_t ndim, const uint64_t *shape);

#endif
