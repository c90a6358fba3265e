/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of an engine have by the project's layout files: every parameter is made of pieces
 * that fill it, the ranks together take every tensor whole, and numbers and bytes are as published
 * or as counted by a reading of the files of its own.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/test_layout_files.h"

/* ---- which boxes of which tensors were taken ---- */

struct taken_box {
    uint32_t tensor; /* + 1; 0 = free */
    struct sw_box box;
};

struct taken {
    uint64_t *elements; /* by tensor: of distinct boxes */
    uint32_t n, size;   /* size: a power of two */
    struct taken_box *boxes;
};

static uint64_t hash(uint32_t tensor, const struct sw_box *b)
{
    uint64_t h = tensor * 0x9e3779b97f4a7c15u;

    for (uint32_t d = 0; d < b->ndim; d++)
        h = (h ^ (b->lo[d] + 31 * b->len[d])) * 0xff51afd7ed558ccdu;
    return h ^ (h >> 32);
}

static bool same_box(const struct sw_box *a, const struct sw_box *b)
{
    return a->ndim == b->ndim && memcmp(a->lo, b->lo, a->ndim * sizeof(*a->lo)) == 0 &&
           memcmp(a->len, b->len, a->ndim * sizeof(*a->len)) == 0;
}

static void take(struct taken *t, uint32_t tensor, const struct sw_box *b);

static void grow(struct taken *t)
{
    struct taken_box *old = t->boxes;
    const uint32_t size = t->size;

    t->size = size ? size * 2 : 1024;
    t->boxes = calloc(t->size, sizeof(*t->boxes));
    t->n = 0;
    ck_assert_ptr_nonnull(t->boxes);
    for (uint32_t i = 0; i < size; i++)
        if (old[i].tensor) {
            const uint32_t tensor = old[i].tensor - 1;

            t->elements[tensor] -= volume(old[i].box.ndim, old[i].box.len);
            take(t, tensor, &old[i].box);
        }
    free(old);
}

static void take(struct taken *t, uint32_t tensor, const struct sw_box *b)
{
    uint64_t i;

    if (t->n * 2 >= t->size)
        grow(t);
    for (i = hash(tensor, b) & (t->size - 1); t->boxes[i].tensor; i = (i + 1) & (t->size - 1))
        if (t->boxes[i].tensor == tensor + 1 && same_box(&t->boxes[i].box, b))
            return;
    t->boxes[i] = (struct taken_box){tensor + 1, *b};
    t->n++;
    t->elements[tensor] += volume(b->ndim, b->len);
}

/* ---- a rank's parameters ---- */

struct rank_sum {
    const struct sw_model *m;
    const struct sw_placement *at;
    struct sw_pieces pieces;
    struct taken *taken;
    uint64_t parameters, plain_bytes; /* without MTP layers */
    uint64_t bytes;
    bool broken;
};

static void check_piece(struct rank_sum *s, const struct sw_model_parameter *p,
    const struct sw_piece *piece)
{
    const uint32_t outer = p->ndim - piece->from.ndim;

    ck_assert_uint_le(piece->from.ndim, p->ndim);
    for (uint32_t d = 0; d < p->ndim; d++)
        ck_assert_msg(piece->to[d] + (d < outer ? 1 : piece->from.len[d - outer]) <= p->shape[d],
            "%s: a piece ends outside of it", p->name);
    if (piece->kind != SW_PIECE_VALUES)
        return;
    ck_assert_msg(piece->tensor < sw_model_tensors(s->m), "%s: no tensor", p->name);
    ck_assert(sw_model_exists(s->m, piece->tensor));
    take(s->taken, piece->tensor, &piece->from);
}

static int add_parameter(void *arg, const struct sw_model_parameter *p)
{
    struct rank_sum *s = arg;
    const struct sw_parameter declared = {.name = p->name,
        .dtype = p->dtype,
        .ndim = p->ndim,
        .shape = {p->shape[0], p->shape[1], p->shape[2], p->shape[3]},
        .alias_of = p->alias_of};
    const uint64_t elements = volume(p->ndim, p->shape);
    uint64_t filled = 0;
    struct sw_error e = {0};

    ck_assert_msg(
        sw_model_pieces(s->m, s->at, &declared, &s->pieces, &e) == 0, "%s: %s", p->name, e.text);
    ck_assert_msg(!s->pieces.derived && s->pieces.expert == p->expert, "%s", p->name);
    for (uint32_t i = 0; i < s->pieces.n; i++) {
        check_piece(s, p, &s->pieces.items[i]);
        filled += volume(s->pieces.items[i].from.ndim, s->pieces.items[i].from.len);
    }
    ck_assert_msg(filled == elements, "%s: pieces fill %llu of %llu elements", p->name,
        (unsigned long long)filled, (unsigned long long)elements);
    s->parameters++;
    if (p->alias_of)
        return 0;
    s->bytes += elements * sw_dtype_bits(p->dtype) / 8;
    if (!p->draft)
        s->plain_bytes += elements * sw_dtype_bits(p->dtype) / 8;
    return 0;
}

/* ---- engines ---- */

struct engine_case {
    const char *layout, *config;
    enum sw_engine_kind kind;
    uint32_t tp, ep, pp, dp;
    uint32_t alone; /* groups of size 1, as bits: head_tp, shared_tp, ... */
    uint32_t block; /* FP8 blocks; 0 = BF16 */
    bool fused;
    uint32_t parameters[2]; /* of the first and the last stage, MTP layers included; 0 = any */
    double gb;              /* published bytes of a rank without MTP layers; 0 = none */
};

#define ALONE(group) (1u << SW_GROUP_##group)
#define SGLANG SW_ENGINE_SGLANG
#define VLLM SW_ENGINE_VLLM

static const struct engine_case engines[] = {
    /* the published comparison */
    {"glm4", "GLM-Z1-9B-0414", SGLANG, 4, 1, 1, 1, 0, 0, false, {363}, 4.74},
    {"glm4", "GLM-Z1-9B-0414", VLLM, 4, 1, 1, 1, 0, 0, false, {363}, 4.74},
    {"deepseek", "Moonlight-16B-A3B", SGLANG, 8, 8, 1, 1, 0, 0, false, {350}, 4.05},
    {"deepseek", "Moonlight-16B-A3B", VLLM, 8, 8, 1, 1, 0, 0, false, {350}, 4.05},
    {"glm4_moe_lite", "GLM-4.7-Flash", SGLANG, 4, 4, 1, 1, 0, 0, false, {677}, 15.2},
    {"glm4_moe_lite", "GLM-4.7-Flash", VLLM, 4, 4, 1, 1, 0, 0, false, {678}, 15.2},
    {"qwen3_moe", "Qwen3-30B-A3B", SGLANG, 8, 8, 1, 1, 0, 0, false, {435}, 7.68},
    {"qwen3_moe", "Qwen3-30B-A3B", VLLM, 8, 8, 1, 1, 0, 0, false, {435}, 7.68},
    {"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 8, 1, 1, 0, 0, false, {522}, 26.8},
    {"glm4_moe", "GLM-4.5-Air", VLLM, 8, 8, 1, 1, 0, 0, false, {523}, 26.8},
    {"qwen3_moe", "Qwen3-235B-A22B", SGLANG, 32, 32, 1, 1, 0, 0, false, {849}, 15.0},
    {"qwen3_moe", "Qwen3-235B-A22B", VLLM, 32, 32, 1, 1, 0, 0, false, {849}, 15.0},
    {"glm5", "GLM-5", SGLANG, 64, 64, 1, 1, 0, 0, false, {1419}, 27.4},
    {"glm5", "GLM-5", VLLM, 64, 64, 1, 1, 0, 0, false, {1420}, 27.4},
    /* DP attention, head and dense MLP whole on each rank */
    {"glm5", "GLM-5", SGLANG, 64, 64, 1, 64, ALONE(HEAD_TP) | ALONE(MLP_TP), 0, false, {1419}, 55.3},
    {"deepseek", "Kimi-K2", SGLANG, 32, 32, 1, 1, 0, 64, false, {0}, 33.4},
    {"deepseek", "Kimi-K2", VLLM, 32, 32, 1, 1, 0, 64, false, {0}, 33.4},
    {"deepseek", "Kimi-K2", SGLANG, 32, 32, 1, 8, 0, 64, false, {0}, 0},
    /* others */
    {"qwen3", "Qwen3-0.6B", SGLANG, 1, 1, 1, 1, 0, 0, false, {227}, 0},
    {"qwen3", "Qwen3-0.6B", SGLANG, 16, 1, 1, 1, 0, 0, false, {227}, 0}, /* 8 KV heads */
    {"qwen3", "Qwen3-0.6B", SGLANG, 8, 1, 1, 2, 0, 0, false, {227}, 0},
    {"qwen3", "Qwen3-0.6B", SGLANG, 2, 1, 2, 1, 0, 0, false, {113, 114}, 0},
    {"qwen3", "Qwen3-0.6B", VLLM, 2, 1, 2, 1, 0, 0, false, {113, 115}, 0},
    {"qwen3", "Qwen3-0.6B", SGLANG, 2, 1, 1, 1, 0, 128, false, {0}, 0},
    {"qwen3_moe", "Qwen3-30B-A3B", SGLANG, 8, 2, 2, 4, ALONE(HEAD_TP), 0, false, {0}, 0},
    {"qwen3_moe", "Qwen3-30B-A3B", VLLM, 4, 4, 5, 1, 0, 128, false, {0}, 0},
    {"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 1, 1, 1, 0, 0, true, {0}, 0},
    {"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 8, 4, 8, ALONE(SHARED_TP), 0, false, {0}, 0},
    {"glm4_moe", "GLM-4.5-Air", VLLM, 4, 2, 4, 1, 0, 0, false, {0}, 0},
    {"glm4_moe_lite", "GLM-4.7-Flash", SGLANG, 4, 2, 1, 2, 0, 0, true, {0}, 0},
    {"deepseek", "DeepSeek-V3", SGLANG, 16, 16, 2, 1, 0, 128, false, {0}, 0},
    {"deepseek", "DeepSeek-V3", SGLANG, 16, 16, 2, 1, 0, 0, false, {409, 456}, 0},
    {"deepseek", "DeepSeek-V3", VLLM, 16, 16, 2, 1, 0, 0, false, {423, 443}, 0},
    {"deepseek", "DeepSeek-V3", VLLM, 8, 8, 4, 1, 0, 128, false, {0}, 0},
};
enum { ENGINES = sizeof(engines) / sizeof(*engines) };

static struct sw_placement place(const struct engine_case *c, uint32_t tp, uint32_t pp)
{
    struct sw_placement at = {.kind = c->kind,
        .scale = c->block ? SW_SCALE_FP32 : SW_SCALE_NONE,
        .block = {c->block, c->block},
        .fused_shared_experts = c->fused};
    struct sw_group *of = at.at.of;
    struct sw_error e = {0};

    of[SW_GROUP_PP] = (struct sw_group){pp, c->pp};
    of[SW_GROUP_TP] = (struct sw_group){tp, c->tp};
    of[SW_GROUP_EP] = (struct sw_group){tp / (c->tp / c->ep), c->ep};
    of[SW_GROUP_DP] = (struct sw_group){tp / (c->tp / c->dp), c->dp};
    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        if (c->alone & (1u << g))
            of[g] = (struct sw_group){0, 1};
    ck_assert_msg(sw_coordinates_complete(&at.at, c->kind, &e) == 0, "%s", e.text);
    return at;
}

static void check_rank(const struct engine_case *c, const struct sw_model *m, uint32_t tp,
    uint32_t pp, struct taken *taken)
{
    const struct sw_placement at = place(c, tp, pp);
    const uint32_t expected = c->parameters[pp == 0 ? 0 : 1];
    struct rank_sum s = {.m = m, .at = &at, .taken = taken};
    struct sw_error e = {0};
    double off;

    ck_assert_msg(sw_model_list(m, &at, true, add_parameter, &s, &e) == 0, "%s", e.text);
    if (expected && (pp == 0 || pp == c->pp - 1))
        ck_assert_uint_eq(s.parameters, expected);
    off = (double)s.plain_bytes / 1e9 - c->gb;
    /* published with three digits */
    ck_assert_msg(c->gb == 0 || (off < c->gb * 0.0034 && -off < c->gb * 0.0034),
        "%llu bytes of parameters, published: %.2f GB", (unsigned long long)s.plain_bytes, c->gb);
    sw_pieces_free(&s.pieces);
}

/* What MTP layers repeat, engines share with the target; a tied head is the embedding. */
static bool may_be_left(const struct sw_role *role)
{
    return role->optional;
}

START_TEST(ranks_take_every_tensor_whole)
{
    const struct engine_case *c = &engines[_i];
    struct sw_model *m = open_model(c->layout, c->config, c->kind);
    struct taken taken = {.elements = calloc(sw_model_tensors(m), sizeof(*taken.elements))};

    for (uint32_t pp = 0; pp < c->pp; pp++)
        for (uint32_t tp = 0; tp < c->tp; tp++)
            check_rank(c, m, tp, pp, &taken);
    for (uint32_t i = 0; i < sw_model_tensors(m); i++) {
        const struct sw_role *role = sw_model_role(m, sw_model_role_of(m, i));

        if (sw_model_exists(m, i) && !may_be_left(role))
            ck_assert_msg(taken.elements[i] == volume(role->ndim, role->shape),
                "%s: tensor %u of [tensor %s]: %llu elements taken", c->config,
                i - role->first_tensor, role->name, (unsigned long long)taken.elements[i]);
    }
    free(taken.boxes);
    free(taken.elements);
    sw_model_free(m);
}
END_TEST

/* ---- single facts ---- */

struct wanted {
    const char *name;
    uint32_t ndim;
    uint64_t shape[SW_MAX_DIMS];
    enum sw_dtype dtype;
    bool found;
};

static int look(void *arg, const struct sw_model_parameter *p)
{
    struct wanted *w = arg;

    if (strcmp(p->name, w->name) != 0)
        return 0;
    w->found = true;
    ck_assert_msg(p->ndim == w->ndim && p->dtype == w->dtype &&
                      memcmp(p->shape, w->shape, p->ndim * sizeof(*p->shape)) == 0,
        "%s: %s [%llu, %llu, ...]", p->name, sw_dtype_name(p->dtype),
        (unsigned long long)p->shape[0], (unsigned long long)p->shape[1]);
    return 0;
}

static const struct {
    struct engine_case engine;
    struct wanted wanted; /* ndim 0: not there */
} facts[] = {
    /* 12 + 5 block rows: 576 / 128 is 4.5 */
    {{"deepseek", "DeepSeek-V3", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"model.layers.0.self_attn.fused_qkv_a_proj_with_mqa.weight_scale_inv", 2, {17, 56}, SW_F32,
            false}},
    {{"deepseek", "DeepSeek-V3", VLLM, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"model.layers.0.self_attn.fused_qkv_a_proj.weight", 2, {2112, 7168}, SW_F8_E4M3, false}},
    {{"deepseek", "DeepSeek-V3", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"model.layers.60.mlp.experts.w13_weight_scale_inv", 3, {32, 32, 56}, SW_F32, false}},
    {{"deepseek", "DeepSeek-V3", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"draft/model.eh_proj.weight", 2, {7168, 14336}, SW_BF16, false}},
    {{"deepseek", "Moonlight-16B-A3B", SGLANG, 8, 8, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.0.self_attn.q_proj.weight", 2, {384, 2048}, SW_BF16, false}},
    {{"deepseek", "Moonlight-16B-A3B", SGLANG, 8, 8, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.0.self_attn.q_a_layernorm.weight", 0, {0}, SW_BF16, false}},
    {{"glm4", "GLM-Z1-9B-0414", VLLM, 4, 1, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.39.self_attn.qkv_proj.bias", 1, {1280}, SW_BF16, false}}, /* 8 + 1 + 1 heads */
    {{"glm4", "GLM-Z1-9B-0414", SGLANG, 4, 1, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.0.self_attn.o_proj.bias", 0, {0}, SW_BF16, false}},
    {{"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 1, 1, 1, 0, 0, true, {0}, 0},
        {"model.layers.1.mlp.experts.w2_weight", 3, {129, 4096, 176}, SW_BF16, false}},
    {{"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 1, 1, 1, 0, 0, true, {0}, 0},
        {"model.layers.1.mlp.shared_experts.down_proj.weight", 0, {0}, SW_BF16, false}},
    {{"glm4_moe", "GLM-4.5-Air", VLLM, 8, 1, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.1.mlp.gate.weight", 2, {128, 4096}, SW_F32, false}},
    {{"glm5", "GLM-5", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"model.layers.3.self_attn.indexer.wk_weights_proj.weight", 2, {160, 6144}, SW_BF16, false}},
    {{"glm5", "GLM-5", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"model.layers.3.self_attn.indexer.k_norm.bias", 1, {128}, SW_F32, false}},
    {{"glm5", "GLM-5", VLLM, 8, 8, 1, 1, 0, 0, false, {0}, 0},
        {"draft/model.layers.78.mtp_block.mlp.experts.routed_experts.w13_weight", 3,
            {32, 4096, 6144}, SW_BF16, false}},
};
enum { FACTS = sizeof(facts) / sizeof(*facts) };

START_TEST(single_parameters)
{
    const struct engine_case *c = &facts[_i].engine;
    struct sw_model *m = open_model(c->layout, c->config, c->kind);
    const struct sw_placement at = place(c, 0, 0);
    struct wanted w = facts[_i].wanted;
    struct sw_error e = {0};

    ck_assert_msg(sw_model_list(m, &at, true, look, &w, &e) == 0, "%s", e.text);
    ck_assert_msg(w.found == (w.ndim > 0), "%s", w.name);
    sw_model_free(m);
}
END_TEST

#define SMALL \
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_attention_heads\": 4," \
    "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"vocab_size\": 100"

/* Families that no published row has: their biases. */
START_TEST(biases_of_llama_and_qwen2)
{
    static const struct {
        const char *layout, *json;
        enum sw_engine_kind kind;
        const char *name;
        uint64_t length; /* 0: not there */
    } cases[] = {
        {"llama", "{" SMALL "}", SGLANG, "model.layers.1.self_attn.qkv_proj.bias", 0},
        {"llama", "{" SMALL ", \"attention_bias\": true}", VLLM,
            "model.layers.1.self_attn.o_proj.bias", 64},
        {"qwen2", "{" SMALL "}", VLLM, "model.layers.1.self_attn.qkv_proj.bias", 64},
        {"qwen2", "{" SMALL "}", SGLANG, "model.layers.1.self_attn.o_proj.bias", 0},
        {"qwen3", "{" SMALL ", \"attention_bias\": true}", SGLANG,
            "model.layers.1.self_attn.o_proj.bias", 64},
        {"qwen3", "{" SMALL ", \"attention_bias\": true}", VLLM,
            "model.layers.1.self_attn.o_proj.bias", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct engine_case c = {.kind = cases[i].kind, .tp = 2, .ep = 1, .pp = 1, .dp = 1};
        struct sw_model *m = make_model(cases[i].layout, cases[i].json, c.kind);
        const struct sw_placement at = place(&c, 1, 0);
        struct wanted w = {cases[i].name, 1, {cases[i].length}, SW_BF16, false};
        struct sw_error e = {0};

        ck_assert_msg(sw_model_list(m, &at, false, look, &w, &e) == 0, "%s", e.text);
        ck_assert_msg(w.found == (cases[i].length > 0), "%s: %s", cases[i].layout, w.name);
        sw_model_free(m);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout-ranks");
    TCase *t = tcase_create("engines"), *f = tcase_create("facts");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, ranks_take_every_tensor_whole, 0, ENGINES);
    suite_add_tcase(s, t);
    tcase_set_timeout(f, 60);
    tcase_add_loop_test(f, single_parameters, 0, FACTS);
    tcase_add_test(f, biases_of_llama_and_qwen2);
    suite_add_tcase(s, f);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
