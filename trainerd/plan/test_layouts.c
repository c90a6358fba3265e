/* SPDX-License-Identifier: Apache-2.0 */
/* The project's layout files against what is publicly known of checkpoints, to the last byte. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "trainerd/plan/test_layout_files.h"

struct totals {            /* of what a checkpoint of the model has */
    uint64_t tensors;      /* names, those of block scales included */
    uint64_t plain, draft; /* elements; a tied head counts in neither */
    uint64_t scales;       /* elements */
    uint64_t bytes;
};

static bool seen_before(uint8_t *seen, uint32_t stored)
{
    const bool was = seen[stored];

    seen[stored] = 1;
    return was;
}

static void add_stored(const struct sw_model *m, uint32_t stored, struct totals *t)
{
    struct sw_stored s;
    char name[SW_NAME_MAX + 1], scale_name[SW_NAME_MAX + 16];
    uint32_t scale;

    sw_model_stored_get(m, stored, &s);
    sw_model_stored_name(m, stored, name);
    t->tensors++;
    snprintf(scale_name, sizeof(scale_name), "%s_scale_inv", name);
    if (sw_model_find(m, scale_name, &scale) == SW_KNOWN) {
        struct sw_stored blocks;

        sw_model_stored_get(m, scale, &blocks);
        ck_assert_int_eq(blocks.dtype, SW_F32);
        t->tensors++;
        t->scales += volume(blocks.ndim, blocks.shape);
        t->bytes += volume(s.ndim, s.shape) + 4 * volume(blocks.ndim, blocks.shape);
    } else {
        t->bytes += volume(s.ndim, s.shape) * sw_dtype_bits(s.dtype) / 8;
    }
}

/* Of a checkpoint that stores each tensor in the first way there is. */
static struct totals count(const struct sw_model *m)
{
    struct totals t = {0};
    uint8_t *seen = calloc(sw_model_stored(m) + 1, 1);

    for (uint32_t i = 0; i < sw_model_tensors(m); i++) {
        const struct sw_tensor_role *role = sw_model_role(m, sw_model_role_of(m, i));
        uint64_t origin[SW_MAX_DIMS];
        uint32_t stored;

        if (!sw_model_exists(m, i))
            continue;
        if (role->draft)
            t.draft += volume(role->ndim, role->shape);
        else if (strcmp(role->name, "head") != 0 || !role->optional)
            t.plain += volume(role->ndim, role->shape);
        ck_assert(sw_model_locate(m, i, 0, &stored, origin));
        if (!seen_before(seen, stored))
            add_stored(m, stored, &t);
    }
    free(seen);
    return t;
}

/* ---- totals ---- */

static const struct {
    const char *layout, *config;
    uint64_t plain, with_draft; /* public numbers of parameters */
} models[] = {
    {"qwen3", "Qwen3-0.6B", 596049920, 596049920},
    {"glm4", "GLM-Z1-9B-0414", 9400279040, 9400279040},
    {"deepseek", "Moonlight-16B-A3B", 15960110208, 15960110208},
    {"glm4_moe_lite", "GLM-4.7-Flash", 29943393920, 31221488576},
    {"qwen3_moe", "Qwen3-30B-A3B", 30532122624, 30532122624},
    {"glm4_moe", "GLM-4.5-Air", 106852251264, 110468824832},
    {"qwen3_moe", "Qwen3-235B-A22B", 235093634560, 235093634560},
    {"glm5", "GLM-5", 743911218432, 753864139008},
    {"deepseek", "Kimi-K2", 1026408232448, 1026408232448},
    {"deepseek", "DeepSeek-V3", 671026419200, 684489845504},
};
enum { MODELS = sizeof(models) / sizeof(*models) };

START_TEST(parameters_of_published_models)
{
    for (int kind = SW_ENGINE_SGLANG; kind <= SW_ENGINE_VLLM; kind++) {
        struct sw_model *m =
            open_model(models[_i].layout, models[_i].config, (enum sw_engine_kind)kind);
        const struct totals t = count(m);

        ck_assert_msg(t.plain == models[_i].plain && t.plain + t.draft == models[_i].with_draft,
            "%s: %llu without, %llu with MTP layers", models[_i].config,
            (unsigned long long)t.plain, (unsigned long long)(t.plain + t.draft));
        sw_model_free(m);
    }
}
END_TEST

START_TEST(checkpoint_of_qwen3)
{
    struct sw_model *m = open_model("qwen3", "Qwen3-0.6B", SW_ENGINE_SGLANG);
    const struct totals t = count(m);

    ck_assert_uint_eq(t.tensors, 311);
    ck_assert_uint_eq(t.bytes, 1503264768); /* the tied head is saved too */
    sw_model_free(m);
}
END_TEST

START_TEST(checkpoint_of_qwen3_moe)
{
    struct sw_model *m = open_model("qwen3_moe", "Qwen3-30B-A3B", SW_ENGINE_VLLM);

    ck_assert_uint_eq(count(m).bytes, 61064245248);
    sw_model_free(m);
}
END_TEST

START_TEST(fp8_checkpoint_of_kimi)
{
    struct sw_model *m = open_model("deepseek", "Kimi-K2", SW_ENGINE_SGLANG);
    const struct totals t = count(m);
    uint32_t stored;

    /* Rotary frequencies, 56 elements of 2 bytes in each of 61 layers, are skipped. */
    ck_assert_int_eq(
        sw_model_find(m, "model.layers.60.self_attn.rotary_emb.inv_freq", &stored), SW_SKIPPED);
    ck_assert_uint_eq(t.tensors + 61, 139644);
    ck_assert_uint_eq(t.bytes + 61 * 56 * 2, 1029173256720);
    sw_model_free(m);
}
END_TEST

START_TEST(fp8_checkpoint_of_deepseek)
{
    struct sw_model *m = open_model("deepseek", "DeepSeek-V3", SW_ENGINE_SGLANG);
    const struct totals t = count(m);

    ck_assert_uint_eq(t.plain + t.draft + t.scales, 684531386000);
    sw_model_free(m);
}
END_TEST

/* Its indexer's wk is FP8 in the checkpoint, whatever the engine has. */
START_TEST(fp8_checkpoint_of_glm5)
{
    for (int kind = SW_ENGINE_SGLANG; kind <= SW_ENGINE_VLLM; kind++) {
        struct sw_model *m = open_model("glm5", "GLM-5-FP8", (enum sw_engine_kind)kind);

        ck_assert_uint_eq(count(m).bytes, 756162687872);
        sw_model_free(m);
    }
}
END_TEST

/* ---- names ---- */

static void check_name(const struct sw_model *m, uint32_t stored)
{
    char name[SW_NAME_MAX + 1], scale[SW_NAME_MAX + 16], back[SW_NAME_MAX + 1];
    uint32_t found = UINT32_MAX;

    sw_model_stored_name(m, stored, name);
    ck_assert_msg(sw_model_find(m, name, &found) == SW_KNOWN && found == stored,
        "%s: number %u is found as %u", name, stored, found);
    snprintf(scale, sizeof(scale), "%s_scale_inv", name);
    if (sw_model_find(m, scale, &found) != SW_KNOWN)
        return;
    sw_model_stored_name(m, found, back);
    ck_assert_str_eq(back, scale);
}

START_TEST(stored_names_come_back)
{
    struct sw_model *m = open_model(models[_i].layout, models[_i].config, SW_ENGINE_SGLANG);

    for (uint32_t i = 0; i < sw_model_tensors(m); i++) {
        uint64_t origin[SW_MAX_DIMS];
        uint32_t stored;

        for (uint32_t way = 0; sw_model_exists(m, i); way++) {
            if (!sw_model_locate(m, i, way, &stored, origin))
                break;
            check_name(m, stored);
        }
    }
    sw_model_free(m);
}
END_TEST

START_TEST(tensors_lie_within_what_is_stored)
{
    struct sw_model *m = open_model(models[_i].layout, models[_i].config, SW_ENGINE_SGLANG);

    for (uint32_t i = 0; i < sw_model_tensors(m); i++) {
        const struct sw_tensor_role *role = sw_model_role(m, sw_model_role_of(m, i));
        uint64_t origin[SW_MAX_DIMS];
        uint32_t stored;

        for (uint32_t way = 0; sw_model_locate(m, i, way, &stored, origin); way++) {
            struct sw_stored s;

            ck_assert_uint_lt(stored, sw_model_stored(m));
            sw_model_stored_get(m, stored, &s);
            ck_assert_uint_ge(s.ndim, role->ndim);
            for (uint32_t d = 0; d < s.ndim; d++) {
                const uint32_t outer = s.ndim - role->ndim;

                ck_assert_uint_le(origin[d] + (d < outer ? 1 : role->shape[d - outer]), s.shape[d]);
            }
        }
    }
    sw_model_free(m);
}
END_TEST

/* Transformers 5 packs the experts of a layer: [E, 2I, H], gate first, and [E, H, I]. */
START_TEST(packed_experts)
{
    struct sw_model *m = open_model("qwen3_moe", "Qwen3-30B-A3B", SW_ENGINE_SGLANG);
    struct sw_stored s;
    uint64_t origin[SW_MAX_DIMS];
    uint32_t stored, up, packed, down;

    ck_assert_int_eq(
        sw_model_find(m, "model.layers.47.mlp.experts.gate_up_proj", &packed), SW_KNOWN);
    sw_model_stored_get(m, packed, &s);
    ck_assert(s.ndim == 3 && s.shape[0] == 128 && s.shape[1] == 1536 && s.shape[2] == 2048);
    ck_assert_int_eq(sw_model_find(m, "model.layers.47.mlp.experts.down_proj", &down), SW_KNOWN);
    sw_model_stored_get(m, down, &s);
    ck_assert(s.ndim == 3 && s.shape[0] == 128 && s.shape[1] == 2048 && s.shape[2] == 768);
    ck_assert_int_eq(
        sw_model_find(m, "model.layers.47.mlp.experts.127.up_proj.weight", &up), SW_KNOWN);
    for (uint32_t i = 0; i < sw_model_tensors(m); i++)
        if (sw_model_locate(m, i, 0, &stored, origin) && stored == up) {
            ck_assert(sw_model_locate(m, i, 1, &stored, origin));
            ck_assert_uint_eq(stored, packed);
            ck_assert(origin[0] == 127 && origin[1] == 768 && origin[2] == 0);
        }
    sw_model_free(m);
}
END_TEST

/* GLM-4 dense stores both in one tensor, gate first. */
START_TEST(fused_gate_and_up)
{
    struct sw_model *m = open_model("glm4", "GLM-Z1-9B-0414", SW_ENGINE_VLLM);
    uint32_t found = 0;

    for (uint32_t i = 0; i < sw_model_tensors(m); i++) {
        const char *role = sw_model_role(m, sw_model_role_of(m, i))->name;
        uint64_t origin[SW_MAX_DIMS];
        uint32_t stored;
        struct sw_stored s;

        if (strcmp(role, "gate") != 0 && strcmp(role, "up") != 0)
            continue;
        ck_assert(sw_model_locate(m, i, 0, &stored, origin));
        sw_model_stored_get(m, stored, &s);
        ck_assert(s.ndim == 2 && s.shape[0] == 27392 && s.shape[1] == 4096);
        ck_assert(origin[0] == (role[0] == 'g' ? 0 : 13696) && origin[1] == 0);
        found++;
    }
    ck_assert_uint_eq(found, 80);
    sw_model_free(m);
}
END_TEST

/* ---- trainers ---- */

static enum sw_axis axis_of(const struct sw_model *m, const char *role)
{
    for (uint32_t i = 0; i < sw_model_roles(m); i++)
        if (strcmp(sw_model_role(m, i)->name, role) == 0)
            return sw_model_role(m, i)->trainer;
    ck_abort_msg("no [tensor %s]", role);
    return SW_AXIS_NONE;
}

/* As Megatron does: what a column-parallel layer has by rows, what a row-parallel one by columns;
 * down-projections of latent attention, norms, routers and the indexer are whole. */
START_TEST(split_in_megatron)
{
    static const char *const rows[] = {"embed", "head", "q_b", "kv_b", "gate", "up", "expert_gate",
        "expert_up", "shared_gate", "shared_up", "mtp_eh", "mtp_q_b", "mtp_expert_up"};
    static const char *const columns[] = {
        "o", "down", "expert_down", "shared_down", "mtp_o", "mtp_expert_down", "mtp_shared_down"};
    static const char *const whole[] = {"norm", "input_norm", "q_a", "kv_a", "kv_a_norm", "router",
        "router_bias", "index_wq_b", "index_wk", "mtp_enorm", "mtp_kv_a"};
    struct sw_model *m = open_model("glm5", "GLM-5", SW_ENGINE_SGLANG);

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        ck_assert_msg(axis_of(m, rows[i]) == SW_AXIS_ROWS, "%s", rows[i]);
    for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
        ck_assert_msg(axis_of(m, columns[i]) == SW_AXIS_COLUMNS, "%s", columns[i]);
    for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
        ck_assert_msg(axis_of(m, whole[i]) == SW_AXIS_NONE, "%s", whole[i]);
    sw_model_free(m);
    m = open_model("qwen3", "Qwen3-0.6B", SW_ENGINE_SGLANG);
    ck_assert(axis_of(m, "q") == SW_AXIS_ROWS && axis_of(m, "k") == SW_AXIS_ROWS &&
              axis_of(m, "v") == SW_AXIS_ROWS && axis_of(m, "o") == SW_AXIS_COLUMNS);
    sw_model_free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layouts");
    TCase *t = tcase_create("totals"), *n = tcase_create("names");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, parameters_of_published_models, 0, MODELS);
    tcase_add_test(t, checkpoint_of_qwen3);
    tcase_add_test(t, checkpoint_of_qwen3_moe);
    tcase_add_test(t, fp8_checkpoint_of_kimi);
    tcase_add_test(t, fp8_checkpoint_of_deepseek);
    tcase_add_test(t, fp8_checkpoint_of_glm5);
    suite_add_tcase(s, t);
    tcase_set_timeout(n, 60);
    tcase_add_loop_test(n, stored_names_come_back, 0, MODELS);
    tcase_add_loop_test(n, tensors_lie_within_what_is_stored, 0, MODELS);
    tcase_add_test(n, packed_experts);
    tcase_add_test(n, fused_gate_and_up);
    tcase_add_test(n, split_in_megatron);
    suite_add_tcase(s, n);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
