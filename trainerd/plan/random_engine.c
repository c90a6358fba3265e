/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/random_engine.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICES_MAX (3 * (EXPERTS_MAX + 3))

struct slice { /* of one tensor: lies below those before it in the parameter */
    enum role role;
    uint32_t layer, expert;
    uint64_t row, rows, column, columns;
};

struct build {
    const struct random_model *m;
    const struct engine *g;
    struct engine_rank *rank;
    uint64_t *state;
    uint64_t ends[2]; /* of the regions */
    uint32_t layer;
    /* the parameter at hand */
    struct slice slices[SLICES_MAX];
    uint32_t n;
};

static uint32_t rank_of(const struct build *b, enum sw_group_kind kind)
{
    return b->rank->placement.at.of[kind].rank;
}

static uint32_t size_of(const struct build *b, enum sw_group_kind kind)
{
    return b->rank->placement.at.of[kind].size;
}

/* ---- slices ---- */

static void slice(struct build *b, enum role role, uint32_t expert, uint64_t row, uint64_t rows,
    uint64_t column, uint64_t columns)
{
    random_must(b->n < SLICES_MAX);
    b->slices[b->n++] = (struct slice){role, b->layer, expert, row, rows, column, columns};
}

static void whole(struct build *b, enum role role)
{
    slice(b, role, 0, 0, b->m->rows[role], 0, b->m->columns[role]);
}

static void rows_of(struct build *b, enum role role, uint32_t expert, enum sw_group_kind group)
{
    const uint64_t rows = b->m->rows[role] / size_of(b, group);

    slice(b, role, expert, rank_of(b, group) * rows, rows, 0, b->m->columns[role]);
}

static void columns_of(struct build *b, enum role role, uint32_t expert, enum sw_group_kind group)
{
    const uint64_t columns = b->m->columns[role] / size_of(b, group);

    slice(b, role, expert, 0, b->m->rows[role], rank_of(b, group) * columns, columns);
}

/* KV heads: a contiguous part, or one that several ranks share. */
static void heads_of(struct build *b, enum role role)
{
    const uint32_t tp = size_of(b, SW_GROUP_ATTN_TP), r = rank_of(b, SW_GROUP_ATTN_TP);
    const uint32_t kv = b->m->kv, n = kv >= tp ? kv / tp : 1;
    const uint32_t first = kv >= tp ? r * n : r / (tp / kv);

    slice(b, role, 0, 8ull * first, 8ull * n, 0, b->m->columns[role]);
}

static void vocabulary_of(struct build *b, enum role role)
{
    const uint32_t padded = (b->m->vocab + b->m->pad - 1) / b->m->pad * b->m->pad;
    const uint32_t rows = padded / size_of(b, SW_GROUP_EMBED_TP);

    slice(b, role, 0, rank_of(b, SW_GROUP_EMBED_TP) * rows, rows, 0, b->m->columns[role]);
}

/* ---- parameters ---- */

static uint64_t parts(uint64_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Writes what the slices give: values, or with `scales` the scales of their blocks. */
static void write_expected(
    const struct build *b, const struct sw_parameter *p, bool quantised, bool scales, uint8_t *out)
{
    const struct engine *g = b->g;
    const uint64_t size = sw_dtype_bits(p->dtype) / 8;
    const uint32_t step[] = {scales ? g->block[0] : 1, scales ? g->block[1] : 1};

    for (uint32_t i = 0; i < b->n; i++) {
        const struct slice *s = &b->slices[i];

        for (uint64_t r = 0; r < s->rows; r += step[0])
            for (uint64_t c = 0; c < s->columns; c += step[1], out += size) {
                const uint64_t row = s->row + r, column = s->column + c;
                const struct where *w = &b->m->where[s->role][s->layer][s->expert];
                float scale = 1;

                if (quantised && b->m->fp8) { /* as it is */
                    memcpy(out,
                        scales ? random_model_stored_scale(b->m, w, s->role, row, column)
                               : random_model_byte(b->m, w, s->role, row, column),
                        size);
                    continue;
                }
                if (quantised)
                    scale = random_model_scale(
                        b->m, s->role, s->layer, s->expert, row, column, g->block, g->scale);
                if (scales)
                    value_write_scale(p->dtype, out, scale);
                else if (quantised)
                    *out = value_quantise(
                        random_model_value(b->m, s->role, s->layer, s->expert, row, column), scale);
                else
                    value_write(p->dtype, out,
                        random_model_value(b->m, s->role, s->layer, s->expert, row, column));
            }
    }
}

/* Puts a parameter somewhere in a region, and what it must hold beside it. */
static struct sw_parameter *place(struct build *b, const char *name, const char *suffix,
    enum sw_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    struct sw_plan_target *t = &b->rank->target;
    const uint32_t i = t->n_parameters++, region = (uint32_t)random_below(b->state, 2);
    struct sw_parameter *p = &b->rank->parameters[i];

    ck_assert_uint_lt(i, ENGINE_PARAMETERS_MAX);
    snprintf(b->rank->names[i], sizeof(b->rank->names[i]), "%s%s", name, suffix);
    *p = (struct sw_parameter){
        .name = b->rank->names[i], .dtype = dtype, .ndim = ndim, .region = region};
    memcpy(p->shape, shape, ndim * sizeof(*shape));
    ck_assert_int_eq(sw_tensor_bytes(dtype, ndim, shape, &b->rank->bytes[i]), 0);
    if (random_below(b->state, 3) == 0) /* a gap */
        b->ends[region] += 16 * (1 + random_below(b->state, 3));
    p->offset = b->ends[region];
    b->ends[region] += b->rank->bytes[i];
    return p;
}

static void expect(struct build *b, const struct sw_parameter *p, bool quantised, bool scales)
{
    const uint32_t i = (uint32_t)(p - b->rank->parameters);
    uint8_t *out = calloc(b->rank->bytes[i] + 1, 1);

    ck_assert_ptr_nonnull(out);
    write_expected(b, p, quantised, scales, out);
    b->rank->expected[i] = out;
}

/* Rows of all slices, or block rows. */
static uint64_t all_rows(const struct build *b, uint32_t block)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < b->n; i++)
        rows += parts(b->slices[i].rows, block);
    return rows;
}

/* A parameter of the slices at hand, below each other; `slots` of them are experts' when not 0. */
static void parameter(struct build *b, const char *name, uint64_t slots, bool quantise)
{
    const bool quantised = quantise && b->g->fp8;
    const uint64_t columns = b->slices[0].columns;
    const bool vector = b->m->columns[b->slices[0].role] == 1;
    const enum sw_dtype dtype = quantised ? SW_F8_E4M3 : b->g->dtype;
    const uint64_t stack = slots ? slots : 1;
    const uint64_t shape[] = {stack, all_rows(b, 1) / stack, columns};
    const uint64_t grid[] = {
        stack, all_rows(b, b->g->block[0]) / stack, parts(columns, b->g->block[1])};
    const uint32_t skip = slots ? 0 : 1, ndim = slots ? 3 : vector ? 1 : 2;

    expect(b, place(b, name, "", dtype, ndim, shape + skip), quantised, false);
    if (quantised)
        expect(b, place(b, name, "_scale_inv", b->g->scale_dtype, ndim, grid + skip), true, true);
    b->n = 0;
}

static void experts(struct build *b, const char *prefix)
{
    const struct engine *g = b->g;
    const uint32_t slots = g->slots ? g->slots : b->m->experts / g->ep, total = slots + g->fused;
    const uint32_t first = rank_of(b, SW_GROUP_EP) * slots;
    char name[40];

    for (uint32_t i = 0; i < total; i++) {
        const bool extra = i == slots;
        const uint32_t expert = extra      ? 0
                                : g->slots ? b->rank->map[b->layer % g->map_layers * slots + i]
                                           : first + i;

        rows_of(b, extra ? R_SG : R_EG, expert, SW_GROUP_MOE_TP);
        rows_of(b, extra ? R_SU : R_EU, expert, SW_GROUP_MOE_TP);
    }
    snprintf(name, sizeof(name), "%sw13", prefix);
    parameter(b, name, total, true);
    for (uint32_t i = 0; i < total; i++) {
        const bool extra = i == slots;
        const uint32_t expert = extra      ? 0
                                : g->slots ? b->rank->map[b->layer % g->map_layers * slots + i]
                                           : first + i;

        columns_of(b, extra ? R_SD : R_ED, expert, SW_GROUP_MOE_TP);
    }
    snprintf(name, sizeof(name), "%sw2", prefix);
    parameter(b, name, total, true);
}

static const char *named(char *out, const char *prefix, const char *word)
{
    snprintf(out, 40, "%s%s", prefix, word);
    return out;
}

static void layer(struct build *b)
{
    const uint64_t derived[] = {5};
    char prefix[16], name[40];

    snprintf(prefix, sizeof(prefix), "l.%u.", b->layer);
    whole(b, R_NORM);
    parameter(b, named(name, prefix, "norm"), 0, false);
    rows_of(b, R_Q, 0, SW_GROUP_ATTN_TP);
    heads_of(b, R_K);
    heads_of(b, R_V);
    parameter(b, named(name, prefix, "qkv"), 0, true);
    rows_of(b, R_Q_BIAS, 0, SW_GROUP_ATTN_TP);
    parameter(b, named(name, prefix, "q_bias"), 0, false);
    columns_of(b, R_O, 0, SW_GROUP_ATTN_TP);
    parameter(b, named(name, prefix, "o"), 0, true);
    whole(b, R_KVA);
    parameter(b, named(name, prefix, "kva"), 0, true);
    rows_of(b, R_GATE, 0, SW_GROUP_MLP_TP);
    rows_of(b, R_UP, 0, SW_GROUP_MLP_TP);
    parameter(b, named(name, prefix, "gate_up"), 0, true);
    columns_of(b, R_DOWN, 0, SW_GROUP_MLP_TP);
    parameter(b, named(name, prefix, "down"), 0, true);
    whole(b, R_ROUTER);
    parameter(b, named(name, prefix, "router"), 0, false);
    whole(b, R_CORRECTION);
    parameter(b, named(name, prefix, "correction"), 0, false);
    experts(b, prefix);
    if (random_below(b->state, 2))
        place(b, named(name, prefix, "derived"), "", SW_F32, 1, derived);
}

static void head(struct build *b, const struct sw_parameter *embed)
{
    struct sw_parameter *p;

    vocabulary_of(b, b->m->where[R_HEAD][0][0].stored ? R_HEAD : R_EMBED);
    if (!embed || !b->m->tied) {
        parameter(b, "head", 0, false);
        return;
    }
    p = place(b, "head", "", embed->dtype, embed->ndim, embed->shape);
    expect(b, p, false, false);
    p->region = embed->region;
    p->offset = embed->offset;
    p->alias_of = "embed";
    b->n = 0;
}

/* ---- ranks ---- */

static void set_placement(const struct engine *g, struct engine_rank *r, uint32_t i)
{
    const uint32_t t = i % g->tp, moe_tp = g->tp / g->ep;
    const struct sw_group attn = {t % g->attn_tp, g->attn_tp};
    const struct sw_group mlp = {g->mlp_tp == 1 ? 0 : t, g->mlp_tp};

    r->placement = (struct sw_placement){.kind = SW_ENGINE_SGLANG,
        .scale = g->fp8 ? g->scale : SW_SCALE_NONE,
        .fused_shared_experts = g->fused,
        .map_version = g->slots ? 1 : 0,
        .map_layers = g->slots ? g->map_layers : 0,
        .map_slots = g->slots,
        .map = g->slots ? r->map : NULL};
    if (g->fp8)
        memcpy(r->placement.block, g->block, sizeof(g->block));
    r->placement.at = (struct sw_coordinates){{[SW_GROUP_PP] = {i / g->tp, g->pp},
        [SW_GROUP_TP] = {t, g->tp},
        [SW_GROUP_EP] = {t / moe_tp, g->ep},
        [SW_GROUP_DP] = {t / g->attn_tp, g->tp / g->attn_tp},
        [SW_GROUP_ATTN_TP] = attn,
        [SW_GROUP_MOE_TP] = {t % moe_tp, moe_tp},
        [SW_GROUP_MLP_TP] = mlp,
        [SW_GROUP_SHARED_TP] = mlp,
        [SW_GROUP_EMBED_TP] = attn,
        [SW_GROUP_HEAD_TP] = attn}};
}

static void make_rank(struct engine *g, struct random_model *m, const struct sw_model *model,
    uint32_t i, uint32_t target)
{
    struct engine_rank *r = &g->ranks[i];
    struct build *b = calloc(1, sizeof(*b));
    const uint32_t stage = i / g->tp;

    ck_assert_ptr_nonnull(b);
    *b = (struct build){.m = m, .g = g, .rank = r, .state = &m->state};
    r->target = (struct sw_plan_target){.target = target,
        .engine = g->name,
        .engine_rank = i,
        .host = i / 4,
        .nic = i % 4,
        .model = model,
        .placement = &r->placement,
        .n_regions = 2,
        .region_bytes = r->region_bytes,
        .parameters = r->parameters};
    if (stage == 0) {
        vocabulary_of(b, R_EMBED);
        parameter(b, "embed", 0, false);
    }
    for (b->layer = stage * m->layers / g->pp; b->layer < (stage + 1) * m->layers / g->pp;
         b->layer++)
        layer(b);
    b->layer = 0;
    if (stage == g->pp - 1)
        head(b, stage == 0 ? &r->parameters[0] : NULL);
    r->region_bytes[0] = b->ends[0] + 8;
    r->region_bytes[1] = b->ends[1];
    free(b);
}

/* The same experts on all ranks of a tensor-parallel group; all experts are somewhere. */
static void make_maps(struct engine *g, struct random_model *m)
{
    const uint32_t each = m->experts / g->ep, moe_tp = g->tp / g->ep;

    for (uint32_t row = 0; row < g->map_layers; row++) {
        uint32_t order[EXPERTS_MAX] = {0};

        for (uint32_t i = 0; i < m->experts; i++) {
            const uint32_t k = (uint32_t)random_below(&m->state, i + 1);

            order[i] = order[k];
            order[k] = i;
        }
        for (uint32_t e = 0; e < g->ep; e++)
            for (uint32_t s = 0; s < g->slots; s++) {
                const uint32_t expert =
                    s < each ? order[e * each + s] : (uint32_t)random_below(&m->state, m->experts);

                for (uint32_t i = 0; i < g->n; i++)
                    if (i % g->tp / moe_tp == e)
                        g->ranks[i].map[row * g->slots + s] = expert;
            }
    }
}

void random_engine_make(struct engine *g, struct random_model *m, const struct sw_model *model,
    uint32_t number, uint32_t *target)
{
    uint64_t *s = &m->state;

    *g = (struct engine){.tp = 1u << random_below(s, 3), .pp = 1 + (uint32_t)random_below(s, 2)};
    snprintf(g->name, sizeof(g->name), "%c", (char)('A' + number));
    g->attn_tp = g->tp >> random_below(s, 2);
    g->attn_tp = g->attn_tp ? g->attn_tp : 1;
    g->ep = g->tp >> random_below(s, 3);
    g->ep = g->ep ? g->ep : 1;
    g->mlp_tp = random_below(s, 3) ? g->tp : 1;
    g->fused = (uint32_t)random_below(s, 2);
    g->fp8 = random_below(s, 2);
    g->block[0] = 2u << random_below(s, 3);
    g->block[1] = 4u << random_below(s, 2);
    g->scale = random_below(s, 2) ? SW_SCALE_FP32 : SW_SCALE_UE8M0;
    g->scale_dtype = g->scale == SW_SCALE_UE8M0 && random_below(s, 2) ? SW_F8_E8M0 : SW_F32;
    g->dtype = random_below(s, 3) ? SW_BF16 : SW_F32;
    g->n = g->tp * g->pp;
    g->ranks = calloc(g->n, sizeof(*g->ranks));
    ck_assert_ptr_nonnull(g->ranks);
    if (m->fp8) { /* nothing else can be made of it */
        g->fp8 = true;
        memcpy(g->block, m->block, sizeof(g->block));
        g->scale = SW_SCALE_FP32;
        g->scale_dtype = SW_F32;
    }
    if (random_below(s, 2)) {
        g->slots = m->experts / g->ep + (uint32_t)random_below(s, 2);
        g->map_layers = random_below(s, 2) ? 1 : m->layers;
        make_maps(g, m);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        set_placement(g, &g->ranks[i], i);
        make_rank(g, m, model, i, (*target)++);
    }
}

void random_engine_clear(struct engine *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t k = 0; k < ENGINE_PARAMETERS_MAX; k++)
            free(g->ranks[i].expected[k]);
    free(g->ranks);
}
