/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of a small model's parameters. The oracle is what an engine's loader would do: each
 * element of a parameter is told apart by tensor, row and column, worked out from the engine's
 * side.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/test_suite.h"
#include "trainerd/plan/model.h"
#include "trainerd/plan/test_small_model.h"

static struct sw_model *m;
static struct sw_pieces pieces;

static void setup(void)
{
    struct sw_error e = {0};

    ck_assert_msg(!test_make_model(test_small_rules, test_small_config, SW_ENGINE_SGLANG, &m, &e),
        "%s", e.text);
}

static void teardown(void)
{
    sw_pieces_free(&pieces);
    sw_model_free(m);
}

static uint32_t tensor(const char *name, int64_t layer, int64_t expert)
{
    for (uint32_t i = 0; i < sw_model_roles(m); i++) {
        const struct sw_tensor_role *r = sw_model_role(m, i);

        if (strcmp(r->name, name) != 0)
            continue;
        if (r->n_variables > 0)
            layer -= r->from[0];
        return r->first_tensor + (r->n_variables == 2 ? (uint32_t)(layer * r->count[1] + expert)
                                     : r->n_variables ? (uint32_t)layer
                                                      : 0);
    }
    ck_abort_msg("no role %s", name);
}

static struct sw_parameter declare(
    const char *name, enum sw_dtype dtype, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c)
{
    return (struct sw_parameter){.name = name, .dtype = dtype, .ndim = ndim, .shape = {a, b, c}};
}

static void make(const struct sw_placement *at, struct sw_parameter p)
{
    struct sw_error e = {0};

    ck_assert_msg(!sw_model_pieces(m, at, &p, &pieces, &e), "%s", e.text);
}

/* ---- filling a parameter with the places that its elements come from ---- */

struct element {
    uint32_t tensor; /* UINT32_MAX - 1: constant zero; UINT32_MAX: nothing yet */
    uint32_t row, column;
};

#define NOTHING UINT32_MAX
#define ZERO (UINT32_MAX - 1)

struct filled {
    struct sw_parameter p;
    uint64_t rows, columns; /* of a slot */
    uint64_t n;
    struct element *e;
};

static void put(struct filled *f, const struct sw_piece *piece, uint64_t row, uint64_t column)
{
    const uint32_t more = f->p.ndim - piece->from.ndim;
    const uint64_t at = (more ? piece->to[0] : 0) * f->rows * f->columns +
                        (piece->to[more] + row) * f->columns +
                        (piece->from.ndim > 1 ? piece->to[more + 1] + column : 0);

    /* An assertion for each element would be slow. */
    if (at >= f->n || f->e[at].tensor != NOTHING)
        ck_abort_msg("%s: element %llu twice, or outside", f->p.name, (unsigned long long)at);
    f->e[at] = (struct element){piece->kind == SW_PIECE_ZERO ? ZERO : piece->tensor,
        (uint32_t)(piece->from.lo[0] + row),
        (uint32_t)(piece->from.ndim > 1 ? piece->from.lo[1] + column : 0)};
}

static struct filled fill(const struct sw_placement *at, struct sw_parameter p)
{
    struct filled f = {.p = p, .n = 1};

    for (uint32_t d = 0; d < p.ndim; d++)
        f.n *= p.shape[d];
    f.columns = p.ndim == 1 ? 1 : p.shape[p.ndim - 1];
    f.rows = p.ndim == 1 ? p.shape[0] : p.shape[p.ndim - 2];
    f.e = malloc(f.n * sizeof(*f.e));
    ck_assert_ptr_nonnull(f.e);
    memset(f.e, 0xff, f.n * sizeof(*f.e));
    make(at, p);
    for (uint32_t i = 0; i < pieces.n; i++) {
        const struct sw_piece *piece = &pieces.items[i];

        ck_assert_uint_ge(p.ndim, piece->from.ndim);
        for (uint64_t r = 0; r < piece->from.len[0]; r++)
            for (uint64_t c = 0; c < (piece->from.ndim > 1 ? piece->from.len[1] : 1); c++)
                put(&f, piece, r, c);
    }
    for (uint64_t i = 0; i < f.n; i++)
        if (f.e[i].tensor == NOTHING)
            ck_abort_msg("%s: element %llu is missing", p.name, (unsigned long long)i);
    return f;
}

static void expect(const struct filled *f, uint64_t slot, uint64_t row, uint64_t column,
    uint32_t from, uint64_t from_row, uint64_t from_column)
{
    const struct element *e = &f->e[(slot * f->rows + row) * f->columns + column];

    if (e->tensor != from || (from != ZERO && (e->row != from_row || e->column != from_column)))
        ck_abort_msg("%s[%llu, %llu, %llu] is %u[%u, %u], not %u[%llu, %llu]", f->p.name,
            (unsigned long long)slot, (unsigned long long)row, (unsigned long long)column,
            e->tensor, e->row, e->column, from, (unsigned long long)from_row,
            (unsigned long long)from_column);
}

/* ---- values ---- */

/* 4 heads, 2 KV heads of 16: with tp 4 two ranks share each KV head. */
START_TEST(query_key_and_value_are_one)
{
    for (uint32_t tp = 1; tp <= 4; tp *= 2)
        for (uint32_t rank = 0; rank < tp; rank++) {
            const struct sw_placement at = test_place(SW_ENGINE_SGLANG, tp, rank, 1, 0, 1);
            const uint32_t q = 64 / tp, kv = tp <= 2 ? 32 / tp : 16;
            const uint32_t kv_first = tp <= 2 ? rank * kv : rank / 2 * 16;
            struct filled f = fill(&at,
                declare("model.layers.1.self_attn.qkv_proj.weight", SW_BF16, 2, q + 2 * kv, 64, 0));

            for (uint32_t r = 0; r < q + 2 * kv; r++)
                for (uint32_t c = 0; c < 64; c++)
                    expect(&f, 0, r, c,
                        tensor(r < q        ? "q"
                               : r < q + kv ? "k"
                                            : "v",
                            1, 0),
                        r < q        ? rank * q + r
                        : r < q + kv ? kv_first + r - q
                                     : kv_first + r - q - kv,
                        c);
            ck_assert(!pieces.expert && !pieces.quantised && !pieces.derived);
            free(f.e);
        }
}
END_TEST

START_TEST(columns_are_split)
{
    const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 4, 3, 1, 0, 1);
    struct filled f =
        fill(&at, declare("model.layers.0.mlp.down_proj.weight", SW_F16, 2, 64, 24, 0));

    for (uint32_t r = 0; r < 64; r++)
        for (uint32_t c = 0; c < 24; c++)
            expect(&f, 0, r, c, tensor("down", 0, 0), r, 72 + c);
    free(f.e);
}
END_TEST

/* 100 rows are padded to 128. */
START_TEST(vocabulary_is_padded_with_zeros)
{
    for (uint32_t rank = 0; rank < 8; rank++) {
        const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 8, rank, 1, 0, 1);
        struct filled f = fill(&at, declare("model.embed_tokens.weight", SW_BF16, 2, 16, 64, 0));

        for (uint32_t r = 0; r < 16; r++)
            for (uint32_t c = 0; c < 64; c++)
                expect(&f, 0, r, c, rank * 16 + r < 100 ? tensor("embed", 0, 0) : ZERO,
                    rank * 16 + r, c);
        ck_assert_uint_eq(pieces.n, rank == 6 ? 2 : 1);
        free(f.e);
    }
}
END_TEST

static void check_experts(const struct sw_placement *at, uint64_t slots, const uint32_t *experts)
{
    const struct sw_group *tp = &at->at.of[SW_GROUP_MOE_TP];
    const uint32_t half = 32 / tp->size, first = tp->rank * half;
    struct filled f =
        fill(at, declare("model.layers.2.mlp.experts.w13_weight", SW_BF16, 3, slots, 2 * half, 64));

    ck_assert(pieces.expert);
    for (uint32_t s = 0; s < slots; s++)
        for (uint32_t r = 0; r < 2 * half; r++)
            for (uint32_t c = 0; c < 64; c++)
                expect(&f, s, r, c,
                    experts[s] == UINT32_MAX
                        ? tensor(r < half ? "shared_gate" : "shared_up", 2, 0)
                        : tensor(r < half ? "expert_gate" : "expert_up", 2, experts[s]),
                    first + r % half, c);
    free(f.e);
    f = fill(at, declare("model.layers.2.mlp.experts.w2_weight", SW_BF16, 3, slots, 64, half));
    for (uint32_t s = 0; s < slots; s++)
        for (uint32_t r = 0; r < 64; r++)
            for (uint32_t c = 0; c < half; c++)
                expect(&f, s, r, c,
                    experts[s] == UINT32_MAX ? tensor("shared_down", 2, 0)
                                             : tensor("expert_down", 2, experts[s]),
                    r, first + c);
    free(f.e);
}

START_TEST(experts_lie_by_rank)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};

    for (uint32_t ep = 1; ep <= 4; ep *= 2)
        for (uint32_t rank = 0; rank < 4; rank++) {
            const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 4, rank, ep, 0, 1);

            check_experts(&at, 8 / ep, all + rank / (4 / ep) * (8 / ep));
        }
}
END_TEST

START_TEST(experts_lie_by_a_map)
{
    /* layer 0 has no experts; redundant copies */
    static const uint32_t map[3][5] = {{0}, {1, 2, 3, 4, 5}, {7, 0, 0, 3, 7}};
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 2, 1, 2, 0, 1);

    at.map = map[0];
    at.map_layers = 3;
    at.map_slots = 5;
    check_experts(&at, 5, map[2]);
    at.map = map[2];
    at.map_layers = 1;
    check_experts(&at, 5, map[2]);
}
END_TEST

START_TEST(a_shared_expert_has_a_slot_of_its_own)
{
    static const uint32_t slots[] = {4, 5, 6, 7, UINT32_MAX};
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 4, 3, 2, 0, 1);

    at.fused_shared_experts = 1;
    check_experts(&at, 5, slots);
}
END_TEST

START_TEST(a_tied_head_has_a_second_choice)
{
    const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 2, 0, 1, 0, 1);

    make(&at, declare("lm_head.weight", SW_BF16, 2, 64, 64, 0));
    ck_assert_uint_eq(pieces.n, 1);
    ck_assert_uint_eq(pieces.items[0].tensor, tensor("head", 0, 0));
    ck_assert_uint_eq(pieces.items[0].others, 1);
    ck_assert_uint_eq(pieces.others[0], tensor("embed", 0, 0));
}
END_TEST

START_TEST(what_is_derived_has_no_pieces)
{
    const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 1);

    make(&at, declare("model.layers.2.self_attn.w_kc", SW_BF16, 3, 4, 16, 64));
    ck_assert(pieces.derived);
    ck_assert_uint_eq(pieces.n, 0);
    make(&at, declare("model.norm.weight", SW_F32, 1, 64, 0, 0));
    ck_assert(!pieces.derived);
    ck_assert_uint_eq(pieces.n, 1);
    ck_assert(strncmp(pieces.rule, "rules:", 6) == 0);
}
END_TEST

/* ---- FP8 ---- */

static struct sw_placement place_fp8(uint32_t tp, uint32_t rank, uint32_t ep, uint32_t block)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, tp, rank, ep, 0, 1);

    at.block[0] = at.block[1] = block;
    at.scale = SW_SCALE_FP32;
    return at;
}

START_TEST(scales_are_counted_in_blocks)
{
    const struct sw_placement at = place_fp8(4, 3, 2, 16);
    struct filled f;

    make(&at, declare("model.layers.1.mlp.experts.w13_weight", SW_F8_E4M3, 3, 4, 32, 64));
    ck_assert(pieces.quantised);
    f = fill(&at, declare("model.layers.1.mlp.experts.w13_weight_scale_inv", SW_F32, 3, 4, 2, 4));
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t r = 0; r < 2; r++)
            for (uint32_t c = 0; c < 4; c++)
                expect(&f, s, r, c, tensor(r ? "expert_up" : "expert_gate", 1, 4 + s), 1, c);
    ck_assert_int_eq(pieces.items[0].kind, SW_PIECE_SCALES);
    ck_assert(pieces.expert);
    free(f.e);
}
END_TEST

/* Fused parameters: each part begins a new block, the last one may end inside one. */
START_TEST(parts_begin_new_blocks)
{
    static const char rules[] = "[tensor a]\nshape = 48, 40\nstored = a\n"
                                "[tensor b]\nshape = 20, 40\nstored = b\n"
                                "[parameter ab]\npart = a\n  b\nquantise = yes\n"
                                "[parameter ba]\npart = b\n  a\nquantise = yes\n";
    const struct sw_placement at = place_fp8(2, 1, 1, 16);
    struct sw_parameter p = declare("ab", SW_F8_E4M3, 2, 68, 40, 0);
    struct sw_error e = {0};

    sw_model_free(m);
    ck_assert_int_eq(test_make_model(rules, "{}", SW_ENGINE_SGLANG, &m, &e), 0);
    make(&at, p);
    make(&at, declare("ab_scale_inv", SW_F32, 2, 5, 3, 0)); /* 3 + 2 rows, 3 columns */
    ck_assert_uint_eq(pieces.n, 2);
    ck_assert_uint_eq(pieces.items[1].to[0], 3);
    ck_assert_uint_eq(pieces.items[1].from.len[0], 2);
    ck_assert_uint_eq(pieces.items[1].from.len[1], 3);
    p.name = "ba";
    ck_assert_int_eq(sw_model_pieces(m, &at, &p, &pieces, &e), SW_ERR_PLAN);
    ck_assert_msg(strstr(e.text, "tensor 'b'") && strstr(e.text, "20 rows"), "%s", e.text);
    p.dtype = SW_BF16; /* plain values have no blocks */
    make(&at, p);
}
END_TEST

/* ---- what is refused ---- */

static void check_refused(const struct sw_placement *at, struct sw_parameter p, const char *message)
{
    struct sw_error e = {0};

    ck_assert_msg(sw_model_pieces(m, at, &p, &pieces, &e) == SW_ERR_PLAN, "%s: %s", p.name, e.text);
    ck_assert_msg(strstr(e.text, p.name), "%s: not named in: %s", p.name, e.text);
    ck_assert_msg(strstr(e.text, message), "%s: %s\nnot: %s", p.name, e.text, message);
}

#define QKV "model.layers.1.self_attn.qkv_proj.weight"
#define W13 "model.layers.1.mlp.experts.w13_weight"

START_TEST(what_contradicts_a_rule_is_refused)
{
    const struct sw_placement one = test_place(SW_ENGINE_SGLANG, 2, 1, 1, 0, 1);
    const struct sw_placement six = test_place(SW_ENGINE_SGLANG, 6, 1, 1, 0, 1);
    const struct sw_placement eight = test_place(SW_ENGINE_SGLANG, 8, 1, 8, 0, 1);
    struct sw_placement fused = one;

    fused.fused_shared_experts = 2;
    check_refused(&one, declare("model.layers.1.foo", SW_BF16, 1, 1, 0, 0), "no rule");
    check_refused(&one, declare("model.layers.3.input_layernorm.weight", SW_BF16, 1, 64, 0, 0),
        "does not have this one");
    check_refused(&one, declare("model.layers.1.mlp.gate_up_proj.weight", SW_BF16, 2, 96, 64, 0),
        "does not have this one");
    check_refused(
        &one, declare(QKV, SW_BF16, 2, 63, 64, 0), "expected shape [64, 64] at tp 1 of 2");
    check_refused(&one, declare(QKV, SW_BF16, 1, 64, 0, 0), "found [64]");
    check_refused(&one, declare(QKV, SW_BF16, 3, 64, 64, 1), "found [64, 64, 1]");
    check_refused(
        &one, declare(QKV, SW_I32, 2, 64, 64, 0), "expected BF16, F16 or F32, or F8_E4M3");
    check_refused(&one, declare(QKV, SW_F8_E5M2, 2, 64, 64, 0), "found F8_E5M2");
    check_refused(&one, declare("model.norm.weight", SW_F8_E4M3, 1, 64, 0, 0), "found F8_E4M3");
    check_refused(&one, declare(QKV, SW_F8_E4M3, 2, 64, 64, 0), "block size and scale format");
    check_refused(&one, declare(QKV "_scale_inv", SW_BF16, 2, 4, 4, 0), "expected F32, found BF16");
    check_refused(
        &one, declare("model.norm.weight_scale_inv", SW_F32, 1, 1, 0, 0), "no `quantise`");
    check_refused(&six, declare(QKV, SW_BF16, 2, 64, 64, 0), "tensor 'q' has 4 units");
    check_refused(&eight, declare(QKV, SW_BF16, 2, 64, 64, 0), "tensor 'q' has 4 units");
    check_refused(&six, declare("model.embed_tokens.weight", SW_BF16, 2, 1, 64, 0),
        "tensor 'embed' has 128 rows, which embed_tp 6 does not divide");
    check_refused(&fused, declare(W13, SW_BF16, 3, 8, 32, 64), "fuses 2 shared experts");
}
END_TEST

START_TEST(an_extra_slot_is_made_of_as_many_parts)
{
    static const char rules[] =
        "[tensor a]\nfor = expert from 0 to 1\nshape = 4, 4\nstored = a.{expert}\n"
        "[tensor s]\nshape = 4, 4\nstored = s\n[tensor t]\nshape = 8, 4\nstored = t\n"
        "[parameter p]\nstack = expert from 0 to 1 over ep\npart = a\n  a\nextra = t\n"
        "[parameter q]\nstack = expert from 0 to 1 over ep\npart = a\nextra = t\n"
        "[parameter r]\nstack = expert from 0 to 1 over ep\npart = a\nextra = s\n";
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 1);

    sw_model_free(m);
    ck_assert_int_eq(test_make_model(rules, "{}", SW_ENGINE_SGLANG, &m, NULL), 0);
    at.fused_shared_experts = 1;
    check_refused(&at, declare("p", SW_BF16, 3, 3, 8, 4), "a line 'extra' for each 'part'");
    check_refused(
        &at, declare("q", SW_BF16, 3, 3, 4, 4), "parts 'a' and 't' to have equal lengths");
    make(&at, declare("r", SW_BF16, 3, 3, 4, 4));
    ck_assert_uint_eq(pieces.n, 3);
}
END_TEST

START_TEST(groups_that_experts_do_not_fit_are_refused)
{
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 3, 1, 3, 0, 1);

    check_refused(&at, declare(W13, SW_BF16, 3, 3, 64, 64), "8 of 'expert', which ep 3");
    at.at.of[SW_GROUP_EP] = (struct sw_group){4, 4};
    check_refused(&at, declare(W13, SW_BF16, 3, 2, 64, 64), "rank 4 of 4");
}
END_TEST

START_TEST(holes_in_an_expert_map_are_refused)
{
    uint32_t map[3][4] = {{0}, {1, UINT32_MAX, 3, 4}, {0, 1, 8, 2}};
    struct sw_placement at = test_place(SW_ENGINE_SGLANG, 2, 1, 2, 0, 1);

    at.map = map[0];
    at.map_layers = 3;
    at.map_slots = 4;
    check_refused(
        &at, declare(W13, SW_BF16, 3, 4, 64, 64), "a hole, 4294967295 in layer 1, slot 1");
    check_refused(&at, declare("model.layers.2.mlp.experts.w2_weight", SW_BF16, 3, 4, 64, 32),
        "has 8 in layer 2, slot 2: expected an expert from 0 to 7");
    at.map_layers = 2;
    check_refused(&at, declare("model.layers.2.mlp.experts.w2_weight", SW_BF16, 3, 4, 64, 32),
        "2 layers: expected one for layer 2");
    check_refused(&at, declare(W13, SW_BF16, 3, 3, 64, 64), "expected shape [4, 64, 64]");
}
END_TEST

START_TEST(a_cut_block_is_refused_with_the_numbers)
{
    const struct sw_placement rows = place_fp8(2, 0, 1, 32), columns = place_fp8(4, 1, 1, 16);

    check_refused(&rows,
        declare("model.layers.0.mlp.gate_up_proj.weight", SW_F8_E4M3, 2, 96, 64, 0),
        "tensor 'gate': mlp_tp 2 splits it and puts 48 rows into blocks of 32x32, so that a "
        "boundary lies inside a block; blocks of 16x16 would divide");
    check_refused(&columns,
        declare("model.layers.0.mlp.down_proj.weight", SW_F8_E4M3, 2, 64, 24, 0),
        "puts 24 columns into blocks of 16x16");
}
END_TEST

START_TEST(other_formats_are_refused_by_name)
{
    static const struct {
        const char *name;
        enum sw_dtype dtype;
        const char *format;
    } cases[] = {
        {"model.layers.1.mlp.experts.w13_weight_packed", SW_I32, "compressed-tensors"},
        {"model.layers.1.self_attn.qkv_proj.qweight", SW_I32, "AWQ or GPTQ"},
        {"model.layers.1.self_attn.qkv_proj.g_idx", SW_I32, "GPTQ"},
        {"model.layers.1.mlp.experts.w13_weight_scale_2", SW_F32, "NVFP4"},
        {"model.layers.1.mlp.experts.gate_up_proj_blocks", SW_U8, "MXFP4"},
        {"model.layers.1.self_attn.qkv_proj.weight_scale", SW_F32, "whole tensors"},
        {"model.layers.1.self_attn.qkv_proj.input_scale", SW_F32, "static"},
        {QKV, SW_F4, "MXFP4 or NVFP4"},
    };
    const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 2, 1, 1, 0, 1);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_refused(&at, declare(cases[i].name, cases[i].dtype, 2, 64, 64, 0), cases[i].format);
}
END_TEST

START_TEST(a_missing_tensor_is_refused)
{
    static const char rules[] =
        "[tensor a]\nfor = layer from 0 to 3\nwhen = layer != 2\nshape = 4\nstored = a.{layer}\n"
        "[parameter p.{layer}]\nfor = layer from 0 to 3\npart = a(layer + 1)\n"
        "[parameter q.{layer}]\nfor = layer from 0 to 3\npart = a(layer + 1) or a(0)\n";
    const struct sw_placement at = test_place(SW_ENGINE_SGLANG, 1, 0, 1, 0, 1);

    sw_model_free(m);
    ck_assert_int_eq(test_make_model(rules, "{}", SW_ENGINE_SGLANG, &m, NULL), 0);
    make(&at, declare("p.0", SW_BF16, 1, 4, 0, 0));
    ck_assert_uint_eq(pieces.items[0].tensor, 1);
    check_refused(&at, declare("p.1", SW_BF16, 1, 4, 0, 0), "rules:8): expected a tensor a(2)");
    check_refused(&at, declare("p.3", SW_BF16, 1, 4, 0, 0), "a(4), which rules:1 does not have");
    make(&at, declare("q.1", SW_BF16, 1, 4, 0, 0));
    ck_assert_uint_eq(pieces.items[0].tensor, 0);
    ck_assert_uint_eq(pieces.items[0].others, 0);
    make(&at, declare("q.0", SW_BF16, 1, 4, 0, 0));
    ck_assert_uint_eq(pieces.others[pieces.items[0].others - 1], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pieces");
    TCase *tc = tcase_create("pieces");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, query_key_and_value_are_one);
    tcase_add_test(tc, columns_are_split);
    tcase_add_test(tc, vocabulary_is_padded_with_zeros);
    tcase_add_test(tc, experts_lie_by_rank);
    tcase_add_test(tc, experts_lie_by_a_map);
    tcase_add_test(tc, a_shared_expert_has_a_slot_of_its_own);
    tcase_add_test(tc, a_tied_head_has_a_second_choice);
    tcase_add_test(tc, what_is_derived_has_no_pieces);
    tcase_add_test(tc, scales_are_counted_in_blocks);
    tcase_add_test(tc, parts_begin_new_blocks);
    tcase_add_test(tc, what_contradicts_a_rule_is_refused);
    tcase_add_test(tc, an_extra_slot_is_made_of_as_many_parts);
    tcase_add_test(tc, groups_that_experts_do_not_fit_are_refused);
    tcase_add_test(tc, holes_in_an_expert_map_are_refused);
    tcase_add_test(tc, a_cut_block_is_refused_with_the_numbers);
    tcase_add_test(tc, other_formats_are_refused_by_name);
    tcase_add_test(tc, a_missing_tensor_is_refused);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
