/* SPDX-License-Identifier: Apache-2.0 */
/* Single parameters as the engines' sources have them: shapes, types, what lies where in them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/test_layout_files.h"

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
        {"model.layers.39.self_attn.qkv_proj.bias", 1, {1280}, SW_BF16,
            false}}, /* 8 + 1 + 1 heads */
    {{"glm4", "GLM-Z1-9B-0414", SGLANG, 4, 1, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.0.self_attn.o_proj.bias", 0, {0}, SW_BF16, false}},
    {{"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 1, 1, 1, 0, 0, true, {0}, 0},
        {"model.layers.1.mlp.experts.w2_weight", 3, {129, 4096, 176}, SW_BF16, false}},
    {{"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 1, 1, 1, 0, 0, true, {0}, 0},
        {"model.layers.1.mlp.shared_experts.down_proj.weight", 0, {0}, SW_BF16, false}},
    {{"glm4_moe", "GLM-4.5-Air", VLLM, 8, 1, 1, 1, 0, 0, false, {0}, 0},
        {"model.layers.1.mlp.gate.weight", 2, {128, 4096}, SW_F32, false}},
    {{"glm5", "GLM-5", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0},
        {"model.layers.3.self_attn.indexer.wk_weights_proj.weight", 2, {160, 6144}, SW_BF16,
            false}},
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

/* ---- what lies where ---- */

/* "gate 0+64 @0, up 0+64 @64": rows of the tensor, and where they begin in the parameter. */
static void describe(const struct sw_model *m, const struct sw_pieces *pieces, uint32_t ndim,
    char *text, size_t size)
{
    size_t n = 0;

    for (uint32_t i = 0; i < pieces->n && i < 3; i++) {
        const struct sw_piece *p = &pieces->items[i];
        const uint32_t outer = ndim - p->from.ndim;

        n += (size_t)snprintf(text + n, size - n, "%s%s %llu+%llu @", i ? ", " : "",
            p->kind == SW_PIECE_ZERO ? "zero"
                                     : sw_model_role(m, sw_model_role_of(m, p->tensor))->name,
            (unsigned long long)p->from.lo[0], (unsigned long long)p->from.len[0]);
        for (uint32_t d = 0; d <= outer; d++)
            n += (size_t)snprintf(
                text + n, size - n, "%s%llu", d ? "." : "", (unsigned long long)p->to[d]);
    }
}

static const struct {
    struct engine_case engine;
    uint32_t rank;
    struct wanted parameter;
    const char *pieces; /* the first three */
} places[] = {
    {{"glm4", "GLM-Z1-9B-0414", SGLANG, 4, 1, 1, 1, 0, 0, false, {0}, 0}, 3,
        {"model.layers.0.mlp.gate_up_proj.weight", 2, {6848, 4096}, SW_BF16, false},
        "gate 10272+3424 @0, up 10272+3424 @3424"},
    {{"glm4", "GLM-Z1-9B-0414", VLLM, 4, 1, 1, 1, 0, 0, false, {0}, 0}, 1, /* 2 KV heads */
        {"model.layers.0.self_attn.qkv_proj.weight", 2, {1280, 4096}, SW_BF16, false},
        "q 1024+1024 @0, k 0+128 @1024, v 0+128 @1152"},
    {{"qwen3_moe", "Qwen3-30B-A3B", VLLM, 8, 8, 1, 1, 0, 0, false, {0}, 0}, 7,
        {"model.layers.0.mlp.experts.routed_experts.w13_weight", 3, {16, 1536, 2048}, SW_BF16,
            false},
        "expert_gate 0+768 @0.0, expert_up 0+768 @0.768, expert_gate 0+768 @1.0"},
    {{"qwen3_moe", "Qwen3-30B-A3B", VLLM, 8, 8, 1, 1, 0, 0, false, {0}, 0}, 7, /* older vLLM */
        {"model.layers.0.mlp.experts.w2_weight", 3, {16, 2048, 768}, SW_BF16, false},
        "expert_down 0+2048 @0.0, expert_down 0+2048 @1.0, expert_down 0+2048 @2.0"},
    {{"deepseek", "DeepSeek-V3", SGLANG, 8, 8, 1, 1, 0, 128, false, {0}, 0}, 5,
        {"model.layers.9.self_attn.fused_qkv_a_proj_with_mqa.weight_scale_inv", 2, {17, 56}, SW_F32,
            false},
        "q_a 0+12 @0, kv_a 0+5 @12"},
    {{"deepseek", "DeepSeek-V3", VLLM, 8, 8, 1, 1, 0, 0, false, {0}, 0}, 5,
        {"draft/model.layers.61.mtp_block.self_attn.kv_b_proj.weight", 2, {4096, 512}, SW_BF16,
            false},
        "mtp_kv_b 20480+4096 @0"},
    {{"glm5", "GLM-5", SGLANG, 8, 8, 1, 1, 0, 0, false, {0}, 0}, 5,
        {"model.layers.9.self_attn.indexer.wk_weights_proj.weight", 2, {160, 6144}, SW_BF16, false},
        "index_wk 0+128 @0, index_weights 0+32 @128"},
    {{"glm4_moe", "GLM-4.5-Air", SGLANG, 8, 1, 1, 1, 0, 0, false, {0}, 0}, 7,
        {"draft/lm_head.weight", 2, {18944, 4096}, SW_BF16, false}, "head 132608+18944 @0"},
};
enum { PLACES = sizeof(places) / sizeof(*places) };

START_TEST(pieces_in_their_places)
{
    const struct engine_case *c = &places[_i].engine;
    const struct wanted *w = &places[_i].parameter;
    struct sw_model *m = open_model(c->layout, c->config, c->kind);
    const struct sw_placement at = place(c, places[_i].rank, 0);
    const struct sw_parameter declared = {.name = w->name,
        .dtype = w->dtype,
        .ndim = w->ndim,
        .shape = {w->shape[0], w->shape[1], w->shape[2]}};
    struct sw_pieces pieces = {0};
    struct sw_error e = {0};
    char text[400];

    ck_assert_msg(sw_model_pieces(m, &at, &declared, &pieces, &e) == 0, "%s", e.text);
    describe(m, &pieces, w->ndim, text, sizeof(text));
    ck_assert_str_eq(text, places[_i].pieces);
    sw_pieces_free(&pieces);
    sw_model_free(m);
}
END_TEST

START_TEST(derived_parameters_are_known)
{
    static const struct sw_parameter derived[] = {
        {.name = "model.layers.3.self_attn.w_kc", .dtype = SW_BF16, .ndim = 1, .shape = {8}},
        {.name = "model.layers.60.self_attn.attn_mqa.k_scale", .dtype = SW_F32},
        {.name = "draft/model.decoder.self_attn.w_vc", .dtype = SW_BF16, .ndim = 1, .shape = {8}},
    };
    const struct engine_case c = {.kind = SGLANG, .tp = 8, .ep = 8, .pp = 1, .dp = 1};
    struct sw_model *m = open_model("deepseek", "DeepSeek-V3", SGLANG);
    const struct sw_placement at = place(&c, 0, 0);
    struct sw_pieces pieces = {0};
    struct sw_error e = {0};

    for (size_t i = 0; i < sizeof(derived) / sizeof(*derived); i++) {
        ck_assert_msg(sw_model_pieces(m, &at, &derived[i], &pieces, &e) == 0, "%s", e.text);
        ck_assert(pieces.derived && pieces.n == 0);
    }
    sw_pieces_free(&pieces);
    sw_model_free(m);
}
END_TEST

#define SMALL                                                                                      \
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_attention_heads\": 4,"                 \
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

/* 100 rows are 128 in the engine: the last ones are zero. SGLang pads to 64 for each of 3 ranks. */
START_TEST(padded_vocabulary)
{
    static const struct {
        uint32_t tp, rank;
        uint64_t rows;
        const char *pieces;
    } cases[] = {
        {2, 0, 64, "embed 0+64 @0"},
        {2, 1, 64, "embed 64+36 @0, zero 0+28 @36"},
        {3, 1, 64, "embed 64+36 @0, zero 0+28 @36"},
        {3, 2, 64, "zero 0+64 @0"},
    };
    struct sw_model *m = make_model("qwen2", "{" SMALL "}", SGLANG);
    struct sw_pieces pieces = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct engine_case c = {.kind = SGLANG, .tp = cases[i].tp, .ep = 1, .pp = 1, .dp = 1};
        const struct sw_placement at = place(&c, cases[i].rank, 0);
        const struct sw_parameter p = {.name = "model.embed_tokens.weight",
            .dtype = SW_BF16,
            .ndim = 2,
            .shape = {cases[i].rows, 64}};
        struct sw_error e = {0};
        char text[200] = "";

        ck_assert_msg(sw_model_pieces(m, &at, &p, &pieces, &e) == 0, "%s", e.text);
        describe(m, &pieces, 2, text, sizeof(text));
        ck_assert_str_eq(text, cases[i].pieces);
    }
    sw_pieces_free(&pieces);
    sw_model_free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout-facts");
    TCase *t = tcase_create("facts");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, single_parameters, 0, FACTS);
    tcase_add_loop_test(t, pieces_in_their_places, 0, PLACES);
    tcase_add_test(t, derived_parameters_are_known);
    tcase_add_test(t, biases_of_llama_and_qwen2);
    tcase_add_test(t, padded_vocabulary);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
