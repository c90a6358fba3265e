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
};

static void check_piece(
    struct rank_sum *s, const struct sw_model_parameter *p, const struct sw_piece *piece)
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
    if (!p->alias_of && !p->draft)
        s->plain_bytes += elements * sw_dtype_bits(p->dtype) / 8;
    return 0;
}

/* ---- engines ---- */

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
    /* DP attention, head likewise, dense MLP whole on each rank */
    {"glm5", "GLM-5", SGLANG, 64, 64, 1, 64, ALONE(MLP_TP), 0, false, {1419}, 55.3, true},
    {"deepseek", "Kimi-K2", SGLANG, 32, 32, 1, 1, 0, 64, false, {0}, 33.4},
    {"deepseek", "Kimi-K2", VLLM, 32, 32, 1, 1, 0, 64, false, {0}, 33.4},
    {"deepseek", "Kimi-K2", SGLANG, 32, 32, 1, 8, ALONE(MLP_TP), 64, false, {0}, 36.0, true},
    /* others */
    {"qwen3", "Qwen3-0.6B", SGLANG, 1, 1, 1, 1, 0, 0, false, {227}, 0},
    {"qwen3", "Qwen3-0.6B", SGLANG, 16, 1, 1, 1, 0, 0, false, {227}, 0}, /* 8 KV heads */
    {"qwen3", "Qwen3-0.6B", SGLANG, 8, 1, 1, 2, 0, 0, false, {227}, 0},
    {"qwen3", "Qwen3-0.6B", SGLANG, 2, 1, 2, 1, 0, 0, false, {113, 114}, 0},
    {"qwen3", "Qwen3-0.6B", VLLM, 2, 1, 2, 1, 0, 0, false, {113, 115}, 0},
    {"qwen3", "Qwen3-0.6B", SGLANG, 2, 1, 1, 1, 0, 128, false, {0}, 0},
    {"qwen3_moe", "Qwen3-30B-A3B", SGLANG, 8, 2, 2, 4, 0, 0, false, {0}, 0, true},
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

START_TEST(ranks_take_every_tensor_whole)
{
    const struct engine_case *c = &engines[_i];
    struct sw_model *m = open_model(c->layout, c->config, c->kind);
    struct taken taken = {.elements = calloc(sw_model_tensors(m), sizeof(*taken.elements))};

    for (uint32_t pp = 0; pp < c->pp; pp++)
        for (uint32_t tp = 0; tp < c->tp; tp++)
            check_rank(c, m, tp, pp, &taken);
    for (uint32_t i = 0; i < sw_model_tensors(m); i++) {
        const struct sw_tensor_role *role = sw_model_role(m, sw_model_role_of(m, i));

        /* Optional are what MTP layers repeat of the target model, and a tied head. */
        if (sw_model_exists(m, i) && !role->optional)
            ck_assert_msg(taken.elements[i] == volume(role->ndim, role->shape),
                "%s: tensor %u of [tensor %s]: %llu elements taken", c->config,
                i - role->first_tensor, role->name, (unsigned long long)taken.elements[i]);
    }
    free(taken.boxes);
    free(taken.elements);
    sw_model_free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout-ranks");
    TCase *t = tcase_create("engines");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, ranks_take_every_tensor_whole, 0, ENGINES);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
