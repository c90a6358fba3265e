/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan decides: how boxes are cut and shared, who sends what, in what order, and where it
 * lies. That bytes arrive is test_plan_random.c's affair; each plan here is proved as it is made.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/test_suite.h"
#include "trainerd/plan/compact.h"
#include "trainerd/plan/scene.h"

/* ---- a small model ---- */

static const char rules_text[] = "[layout]\n"
                                 "architectures = Small\n"
                                 "[tensor embed]\n"
                                 "stored = embed.weight\n"
                                 "shape = vocab, hidden\n"
                                 "trainer = rows\n"
                                 "[tensor norm]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stored = l.{layer}.norm.weight\n"
                                 "shape = hidden\n"
                                 "[tensor up]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stored = l.{layer}.up.weight\n"
                                 "shape = inner, hidden\n"
                                 "trainer = rows\n"
                                 "[tensor down]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stored = l.{layer}.down.weight\n"
                                 "shape = hidden, inner\n"
                                 "trainer = columns\n"
                                 "[tensor expert]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "    expert from 0 to experts - 1\n"
                                 "shape = inner, hidden\n"
                                 "stored = l.{layer}.e.{expert}.weight\n"
                                 "    l.{layer}.e.weight [experts, inner, hidden] at expert, 0, 0\n"
                                 "[parameter embed.weight]\n"
                                 "part = embed, rows over embed_tp padded to 8 * embed_tp\n"
                                 "[parameter l.{layer}.norm.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "part = norm\n"
                                 "[parameter l.{layer}.up.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "part = up, rows over mlp_tp\n"
                                 "quantise = yes\n"
                                 "[parameter l.{layer}.down.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "part = down, columns over mlp_tp\n"
                                 "quantise = yes\n"
                                 "[parameter l.{layer}.experts.weight]\n"
                                 "for = layer from 0 to layers - 1\n"
                                 "stack = expert from 0 to experts - 1 over ep\n"
                                 "part = expert\n"
                                 "quantise = yes\n"
                                 "[derived]\n"
                                 "parameter = l.{layer}.absorbed\n"
                                 "[skip]\n"
                                 "tensor = l.{layer}.inv_freq\n";

static struct sw_model *make_model(const char *json)
{
    struct sw_rules *rules;
    struct sw_config *config;
    struct sw_model *model;
    struct sw_error e;

    ck_assert_msg(!sw_rules_parse("small", rules_text, strlen(rules_text), NULL, NULL, &rules, &e),
        "%s", e.text);
    ck_assert_msg(!sw_config_parse(json, strlen(json), &config, &e), "%s", e.text);
    ck_assert_msg(!sw_model_make(rules, config, SW_ENGINE_SGLANG, &model, &e), "%s", e.text);
    sw_rules_free(rules);
    sw_config_free(config);
    return model;
}

#define SMALL                                                                                      \
    "{\"architectures\": [\"Small\"], \"torch_dtype\": \"bfloat16\", \"layers\": 3, "              \
    "\"num_hidden_layers\": 3, \"experts\": 8, \"hidden\": 16, \"inner\": 32, \"vocab\": 60"
#define FP8                                                                                        \
    ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [16, 16]}"

static struct sw_model *model;

static void set_up(void)
{
    model = make_model(SMALL "}");
}

static void tear_down(void)
{
    sw_model_free(model);
}

/* ---- plans ---- */

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

static struct made scene(
    const struct sw_trainer_spec *t, const struct sw_engine_spec *a, const struct sw_engine_spec *b)
{
    const struct sw_engine_spec *specs[] = {a, b};
    struct made m = {0};
    struct sw_error e;

    ck_assert_msg(!sw_scene_make(model, t, NULL, &m.trainers, &e), "%s", e.text);
    m.ranks = m.trainers.ranks;
    m.n_ranks = m.trainers.n_ranks;
    for (int i = 0; i < 2 && specs[i]; i++) {
        struct sw_scene *s = &m.engines[i];

        ck_assert_msg(!sw_scene_make(model, t, specs[i], s, &e), "%s", e.text);
        m.targets = realloc(m.targets, (m.n_targets + s->n_targets) * sizeof(*m.targets));
        ck_assert_ptr_nonnull(m.targets);
        for (uint32_t k = 0; k < s->n_targets; k++) {
            m.targets[m.n_targets] = s->targets[k];
            m.targets[m.n_targets].target = m.n_targets;
            m.n_targets++;
        }
    }
    return m;
}

static int try_plan(struct made *m, const struct sw_plan_options *options, struct sw_error *e)
{
    int err = sw_layout_make(
        m->ranks, m->n_ranks, m->targets, m->n_targets, options, &m->layout, &m->notes, e);

    if (!err) {
        m->c = sw_layout_compact(m->layout);
        err = sw_writes_make(m->layout, m->targets, m->n_targets, &m->writes, e);
    }
    return err;
}

static void plan(struct made *m, const struct sw_plan_options *options)
{
    struct sw_error e;

    ck_assert_msg(try_plan(m, options, &e) == 0, "%s", e.text);
}

static void clear(struct made *m)
{
    sw_writes_free(m->writes);
    sw_layout_free(m->layout);
    sw_scene_clear(&m->trainers);
    sw_scene_clear(&m->engines[0]);
    sw_scene_clear(&m->engines[1]);
    free(m->targets);
    *m = (struct made){0};
}

static uint64_t staged(const struct sw_compact *c, uint32_t slab)
{
    const struct sw_split *s = &c->splits[c->slabs[slab].split];
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->n; i++)
        bytes += c->cells[s->first + i].bytes;
    return bytes;
}

static uint64_t all_staged(const struct sw_compact *c)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->n_slabs; i++)
        bytes += staged(c, i);
    return bytes;
}

static uint64_t tile_at(const struct sw_compact *c, uint32_t slab, uint32_t cell)
{
    const struct sw_slab *s = &c->slabs[slab];

    return c->bases[c->runs[s->run].first + cell] +
           s->at * c->cells[c->splits[s->split].first + cell].bytes;
}

static uint32_t find_entry(const struct sw_compact *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_entries; i++)
        if (!strcmp(c->entries[i].name, name))
            return i;
    ck_abort_msg("no source %s", name);
    return 0;
}

/* Slabs of a source in a transform, in the order of their boxes. */
static uint32_t slabs_of(const struct sw_compact *c, const char *name, enum sw_transform transform,
    uint32_t *out, uint32_t most)
{
    const uint32_t entry = find_entry(c, name);
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_slabs; i++) {
        uint32_t k;

        if (c->slabs[i].source != entry || c->formats[c->slabs[i].format].transform != transform)
            continue;
        ck_assert_uint_lt(n, most);
        for (k = n++;
             k > 0 && c->boxes[c->slabs[out[k - 1]].box].lo[0] > c->boxes[c->slabs[i].box].lo[0];
             k--)
            out[k] = out[k - 1];
        out[k] = i;
    }
    return n;
}

static void expect_cell(
    const struct sw_compact *c, uint32_t slab, uint32_t i, uint32_t rank, uint64_t lo, uint64_t len)
{
    const struct sw_split *s = &c->splits[c->slabs[slab].split];
    const struct sw_cell *cell = &c->cells[s->first + i];

    ck_assert_uint_lt(i, s->n);
    ck_assert_uint_eq(cell->rank, rank);
    ck_assert_uint_eq(cell->box.lo[0], lo);
    ck_assert_uint_eq(cell->box.len[0], len);
}

/* What each rank sends to all targets. */
static void sent(const struct made *m, uint64_t *bytes)
{
    memset(bytes, 0, m->n_ranks * sizeof(*bytes));
    for (uint32_t i = 0; i < sw_writes_count(m->writes); i++) {
        const struct sw_pair *p = sw_writes_pair(m->writes, i);

        bytes[p->rank] += p->bytes;
    }
}

/* ---- cutting and sharing ---- */

START_TEST(equal_layers_and_experts_share_splits_and_runs)
{
    struct made m = scene(&(struct sw_trainer_spec){.holds = SW_HOLDS_FSDP, .world = 4},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    uint32_t a[4], b[4];

    plan(&m, NULL);
    ck_assert_uint_eq(slabs_of(m.c, "l.0.e.0.weight", SW_TRANSFORM_COPY, a, 4), 1);
    ck_assert_uint_eq(slabs_of(m.c, "l.2.e.7.weight", SW_TRANSFORM_COPY, b, 4), 1);
    ck_assert_uint_eq(m.c->slabs[a[0]].split, m.c->slabs[b[0]].split);
    ck_assert_uint_eq(m.c->slabs[a[0]].run, m.c->slabs[b[0]].run);
    ck_assert_uint_eq(m.c->runs[m.c->slabs[a[0]].run].n, 24);
    for (uint32_t i = 0; i < 4; i++)
        expect_cell(m.c, a[0], i, i, 8ull * i, 8);
    ck_assert_uint_eq(tile_at(m.c, b[0], 3) % 256, 0); /* 8 rows of 32 bytes each */
    clear(&m);
}
END_TEST

START_TEST(engines_of_other_sizes_share_common_bytes)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 1},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 4, .ep = 4});
    uint32_t s[8];

    plan(&m, NULL);
    /* rows: the halves are cut where the quarters end */
    ck_assert_uint_eq(slabs_of(m.c, "l.1.up.weight", SW_TRANSFORM_COPY, s, 8), 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(m.c->boxes[m.c->slabs[s[i]].box].len[0], 8);
    /* columns: quarters and halves are staged both */
    ck_assert_uint_eq(slabs_of(m.c, "l.1.down.weight", SW_TRANSFORM_COPY, s, 8), 6);
    clear(&m);
}
END_TEST

START_TEST(more_engines_change_destinations_only)
{
    const struct sw_trainer_spec t = {.world = 4, .tp = 2};
    struct made one =
        scene(&t, &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    struct made five = scene(&t,
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2, .engines = 5}, NULL);

    plan(&one, NULL);
    plan(&five, NULL);
    ck_assert_uint_eq(one.c->n_slabs, five.c->n_slabs);
    ck_assert_uint_eq(one.c->n_wants, five.c->n_wants);
    ck_assert_uint_eq(all_staged(one.c), all_staged(five.c));
    ck_assert_uint_eq(five.c->n_kinds, 2);
    clear(&one);
    clear(&five);
}
END_TEST

START_TEST(padding_is_zeros_staged_once)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1, .engines = 3}, NULL);
    uint32_t zeros = 0;

    plan(&m, NULL); /* 60 rows, padded to 64 */
    for (uint32_t i = 0; i < m.c->n_slabs; i++)
        if (m.c->slabs[i].source == SW_NONE) {
            zeros++;
            ck_assert_uint_eq(staged(m.c, i), 4 * 16 * 2);
        }
    ck_assert_uint_eq(zeros, 1);
    clear(&m);
}
END_TEST

START_TEST(packed_experts_are_taken_from_their_place)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 2, .packed = true},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    uint32_t s[8];

    plan(&m, NULL);
    ck_assert_uint_eq(slabs_of(m.c, "l.0.e.weight", SW_TRANSFORM_COPY, s, 8), 8);
    for (uint32_t i = 0; i < 8; i++) {
        const struct sw_box *box = &m.c->boxes[m.c->slabs[s[i]].box];

        ck_assert_uint_eq(box->ndim, 3);
        ck_assert_uint_eq(box->lo[0], i);
        ck_assert_uint_eq(box->len[0], 1);
        ck_assert_uint_eq(box->len[1], 32);
    }
    ck_assert_uint_eq(m.notes.unused, 0);
    clear(&m);
}
END_TEST

/* ---- FP8 ---- */

START_TEST(scales_go_to_the_rank_with_the_first_row)
{
    /* 32 rows over 4 ranks, blocks of 16: two ranks share each row of blocks */
    struct made m = scene(&(struct sw_trainer_spec){.holds = SW_HOLDS_FSDP, .world = 4},
        &(struct sw_engine_spec){
            .kind = SW_ENGINE_SGLANG, .tp = 1, .scale = SW_SCALE_FP32, .block = {16, 16}},
        NULL);
    uint32_t v[2], s[2];

    plan(&m, NULL);
    ck_assert_uint_eq(slabs_of(m.c, "l.0.up.weight", SW_TRANSFORM_FP8_VALUES, v, 2), 1);
    ck_assert_uint_eq(slabs_of(m.c, "l.0.up.weight", SW_TRANSFORM_FP8_SCALES, s, 2), 1);
    for (uint32_t i = 0; i < 4; i++)
        expect_cell(m.c, v[0], i, i, 8ull * i, 8);
    ck_assert_uint_eq(m.c->splits[m.c->slabs[s[0]].split].n, 2);
    expect_cell(m.c, s[0], 0, 0, 0, 1);
    expect_cell(m.c, s[0], 1, 2, 1, 1);
    ck_assert_uint_eq(staged(m.c, v[0]), 32 * 16);
    ck_assert_uint_eq(staged(m.c, s[0]), 2 * 1 * 4);
    clear(&m);
}
END_TEST

START_TEST(scales_are_sent_by_who_sends_the_values)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 6},
        &(struct sw_engine_spec){
            .kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2, .scale = SW_SCALE_FP32, .block = {16, 16}},
        NULL);

    plan(&m, NULL);
    for (uint32_t i = 0; i < m.c->n_slabs; i++) {
        const char *name;
        uint32_t v[4], n;

        if (m.c->formats[m.c->slabs[i].format].transform != SW_TRANSFORM_FP8_SCALES)
            continue;
        name = m.c->entries[m.c->slabs[i].source].name;
        n = slabs_of(m.c, name, SW_TRANSFORM_FP8_VALUES, v, 4);
        for (uint32_t k = 0; k < n; k++) {
            const struct sw_box *values = &m.c->boxes[m.c->slabs[v[k]].box];
            const struct sw_box *scales = &m.c->boxes[m.c->slabs[i].box];

            if (values->lo[0] == scales->lo[0] * 16 && values->lo[1] == scales->lo[1] * 16)
                ck_assert_uint_eq(m.c->cells[m.c->splits[m.c->slabs[v[k]].split].first].rank,
                    m.c->cells[m.c->splits[m.c->slabs[i].split].first].rank);
        }
    }
    clear(&m);
}
END_TEST

/* Tensors by hand, all whole in one rank. */
struct hand {
    struct sw_plan_tensor tensors[16];
    struct sw_box boxes[16];
    uint32_t group[16], n;
    struct sw_source_list list;
    struct sw_plan_rank rank;
};

static void hold(struct hand *h, const char *name, enum sw_dtype dtype, uint64_t a, uint64_t b)
{
    h->tensors[h->n] = (struct sw_plan_tensor){name, dtype, b ? 2 : 1, {a, b}};
    h->boxes[h->n] = (struct sw_box){.ndim = b ? 2 : 1, .len = {a, b}};
    h->group[h->n] = h->n;
    h->n++;
    h->list = (struct sw_source_list){h->n, h->n, h->tensors, h->group};
    h->rank = (struct sw_plan_rank){.rank = 5, .list = &h->list, .boxes = h->boxes};
}

static struct sw_placement placed(void)
{
    struct sw_placement at = {.kind = SW_ENGINE_SGLANG, .scale = SW_SCALE_FP32, .block = {16, 16}};
    struct sw_error e;

    ck_assert_int_eq(sw_coordinates_complete(&at.at, SW_ENGINE_SGLANG, &e), 0);
    return at;
}

static const uint64_t region = 1 << 20;

static struct sw_plan_target by_hand(
    const struct sw_placement *at, const struct sw_parameter *p, uint32_t n)
{
    return (struct sw_plan_target){.engine = "E",
        .engine_rank = 3,
        .model = model,
        .placement = at,
        .n_regions = 1,
        .region_bytes = &region,
        .n_parameters = n,
        .parameters = p};
}

static int plan_by_hand(const struct hand *h, const struct sw_plan_target *t, struct sw_layout **l,
    struct sw_plan_notes *notes, struct sw_error *e)
{
    *e = (struct sw_error){0};
    return sw_layout_make(&h->rank, 1, t, 1, NULL, l, notes, e);
}

START_TEST(a_source_in_fp8_brings_its_own_scales)
{
    const struct sw_parameter p[] = {
        {.name = "l.0.up.weight", .dtype = SW_F8_E4M3, .ndim = 2, .shape = {32, 16}},
        {.name = "l.0.up.weight_scale_inv",
            .dtype = SW_F32,
            .ndim = 2,
            .shape = {2, 1},
            .offset = 512}};
    const struct sw_placement at = placed();
    struct sw_plan_target t = by_hand(&at, p, 2);
    struct hand h = {0};
    struct sw_layout *l;
    struct sw_plan_notes notes;
    struct sw_error e;
    uint32_t s[2];

    hold(&h, "l.0.up.weight", SW_F8_E4M3, 32, 16);
    ck_assert_int_eq(plan_by_hand(&h, &t, &l, &notes, &e), SW_ERR_PLAN);
    ck_assert_msg(strstr(e.text, "config.json"), "%s", e.text);
    sw_model_free(model);
    model = make_model(SMALL FP8 "}");
    t.model = model;
    ck_assert_int_eq(plan_by_hand(&h, &t, &l, &notes, &e), SW_ERR_PLAN);
    ck_assert_msg(strstr(e.text, "engine E rank 3: parameter l.0.up.weight_scale_inv") &&
                      strstr(e.text, "_scale_inv, are held by no"),
        "%s", e.text);
    hold(&h, "l.0.up.weight_scale_inv", SW_F32, 4, 1);
    ck_assert_int_eq(plan_by_hand(&h, &t, &l, &notes, &e), SW_ERR_PLAN);
    ck_assert_msg(strstr(e.text, "16x16") && strstr(e.text, "[2, 1]") && strstr(e.text, "[4, 1]"),
        "%s", e.text);
    h.tensors[1].shape[0] = h.boxes[1].len[0] = 2;
    ck_assert_msg(plan_by_hand(&h, &t, &l, &notes, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(slabs_of(sw_layout_compact(l), "l.0.up.weight", SW_TRANSFORM_COPY, s, 2), 1);
    ck_assert_uint_eq(
        slabs_of(sw_layout_compact(l), "l.0.up.weight_scale_inv", SW_TRANSFORM_COPY, s, 2), 1);
    ck_assert_uint_eq(notes.unused, 0);
    sw_layout_free(l);
}
END_TEST

/* ---- refusals ---- */

struct refusal {
    const char *tensor;
    enum sw_dtype held;
    uint64_t rows;
    struct sw_parameter p;
    const char *names[3];
};

START_TEST(what_rules_cannot_make_is_refused_by_name)
{
    const struct sw_parameter norm = {
        .name = "l.0.norm.weight", .dtype = SW_BF16, .ndim = 1, .shape = {16}};
    const struct sw_parameter whole = {
        .name = "l.0.norm.weight", .dtype = SW_I32, .ndim = 1, .shape = {16}};
    const struct sw_parameter fp8 = {
        .name = "l.0.norm.weight", .dtype = SW_F8_E4M3, .ndim = 1, .shape = {16}};
    const struct sw_parameter unknown = {
        .name = "l.0.what", .dtype = SW_BF16, .ndim = 1, .shape = {16}};
    const struct refusal cases[] = {
        {"other", SW_BF16, 16, norm, {"l.0.norm.weight", "small:", "no trainer rank holds"}},
        {"l.0.norm.weight", SW_BF16, 15, norm, {"BF16 [15]", "[16]", "config.json"}},
        {"l.0.norm.weight", SW_BF16, 16, whole, {"expected BF16", "I32", "small:"}},
        {"l.0.norm.weight", SW_F8_E5M2, 16, norm, {"is F8_E5M2", "is BF16", "small:"}},
        {"l.0.norm.weight", SW_BF16, 16, fp8, {"l.0.norm.weight", "F8_E4M3", ""}},
        {"l.0.norm.weight", SW_BF16, 16, unknown, {"l.0.what", "", ""}},
    };
    const struct sw_placement at = placed();

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct sw_plan_target t = by_hand(&at, &cases[i].p, 1);
        struct hand h = {0};
        struct sw_layout *l;
        struct sw_plan_notes notes;
        struct sw_error e;

        hold(&h, cases[i].tensor, cases[i].held, cases[i].rows, 0);
        ck_assert_msg(
            plan_by_hand(&h, &t, &l, &notes, &e) == SW_ERR_PLAN, "%zu: %d %s", i, e.code, e.text);
        ck_assert_msg(strstr(e.text, "engine E rank 3"), "%zu: %s", i, e.text);
        for (int k = 0; k < 3; k++)
            ck_assert_msg(strstr(e.text, cases[i].names[k]), "%zu: %s", i, e.text);
    }
}
END_TEST

START_TEST(what_is_derived_or_skipped_is_counted_apart)
{
    const struct sw_parameter p[] = {
        {.name = "l.0.norm.weight", .dtype = SW_F32, .ndim = 1, .shape = {16}},
        {.name = "l.0.absorbed", .dtype = SW_BF16, .ndim = 1, .shape = {8}, .offset = 64}};
    const struct sw_placement at = placed();
    const struct sw_plan_target t = by_hand(&at, p, 2);
    struct hand h = {0};
    struct sw_layout *l;
    struct sw_plan_notes notes;
    struct sw_error e;

    hold(&h, "l.0.norm.weight", SW_BF16, 16, 0);
    hold(&h, "l.0.inv_freq", SW_F32, 8, 0);
    hold(&h, "l.1.norm.weight", SW_BF16, 16, 0);
    ck_assert_msg(plan_by_hand(&h, &t, &l, &notes, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(notes.derived, 1);
    ck_assert_uint_eq(notes.unused, 1);
    ck_assert_str_eq(notes.unused_names, "l.1.norm.weight");
    ck_assert_uint_eq(sw_layout_compact(l)->n_wants, 1);
    ck_assert_int_eq(sw_layout_compact(l)->formats[0].transform, SW_TRANSFORM_CAST);
    sw_layout_free(l);
}
END_TEST

/* ---- who sends what ---- */

START_TEST(nics_are_balanced_before_ranks)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 3},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    uint64_t bytes[3], total;

    m.ranks[1].nic = m.ranks[0].nic; /* two ranks on one NIC */
    plan(&m, NULL);
    sent(&m, bytes);
    total = bytes[0] + bytes[1] + bytes[2];
    ck_assert_uint_ge(bytes[2], total / 2 - total / 20);
    ck_assert_uint_le(bytes[2], total / 2 + total / 20);
    ck_assert_uint_ge(bytes[0], total / 4 - total / 20);
    ck_assert_uint_le(bytes[0], total / 4 + total / 20);
    clear(&m);
}
END_TEST

/* Ranks 0 and 1 hold halves, and so do 2 and 3: each slab is taken from one of the pairs. */
START_TEST(replicas_of_shards_share_the_work)
{
    struct made m = scene(&(struct sw_trainer_spec){.holds = SW_HOLDS_FSDP, .world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1}, NULL);
    struct sw_plan_rank ranks[4] = {m.ranks[0], m.ranks[1], m.ranks[0], m.ranks[1]};
    uint64_t bytes[4], total = 0;

    for (uint32_t r = 0; r < 4; r++) {
        ranks[r].rank = r;
        ranks[r].nic = r;
    }
    m.ranks = ranks;
    m.n_ranks = 4;
    plan(&m, NULL);
    sent(&m, bytes);
    for (uint32_t r = 0; r < 4; r++)
        total += bytes[r];
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_ge(bytes[r], total / 4 - total / 20);
        ck_assert_uint_le(bytes[r], total / 4 + total / 20);
    }
    for (uint32_t i = 0; i < m.c->n_splits; i++)
        for (uint32_t k = 1; k < m.c->splits[i].n; k++) /* never from both pairs */
            ck_assert_uint_eq(m.c->cells[m.c->splits[i].first].rank / 2,
                m.c->cells[m.c->splits[i].first + k].rank / 2);
    clear(&m);
}
END_TEST

/* Ranks whose rows overlap: 0 to 19 and 12 to 31. */
START_TEST(overlapping_holders_are_no_contradiction)
{
    struct made m = scene(&(struct sw_trainer_spec){.holds = SW_HOLDS_FSDP, .world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1}, NULL);
    struct sw_box boxes[2][16];
    uint32_t s[2];

    for (uint32_t r = 0; r < 2; r++) {
        ck_assert_uint_le(m.ranks[r].list->n_groups, 16);
        for (uint32_t g = 0; g < m.ranks[r].list->n_groups; g++) {
            boxes[r][g] = m.ranks[r].boxes[g];
            if (boxes[r][g].len[0] == 16 && boxes[r][g].len[1] == 16) /* rows of 32 */
                boxes[r][g].lo[0] = r ? 12 : 0, boxes[r][g].len[0] = 20;
        }
        m.ranks[r].boxes = boxes[r];
    }
    plan(&m, NULL);
    ck_assert_uint_eq(slabs_of(m.c, "l.0.up.weight", SW_TRANSFORM_COPY, s, 2), 1);
    ck_assert_uint_eq(m.c->splits[m.c->slabs[s[0]].split].n, 2);
    ck_assert_uint_eq(staged(m.c, s[0]), 32 * 16 * 2);
    clear(&m);
}
END_TEST

/* The example of the post: four sources, two engines of three ranks. */
START_TEST(lmsys_maps_as_in_the_post)
{
    static const uint32_t sources[] = {0, 1, 2, 3, 1, 2};
    struct made m = scene(&(struct sw_trainer_spec){.world = 4},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1, .engines = 6}, NULL);
    uint32_t seen = 0;

    for (uint32_t t = 0; t < 6; t++) {
        m.targets[t].engine = t < 3 ? "A" : "B";
        m.targets[t].engine_rank = t % 3;
    }
    plan(&m, &(struct sw_plan_options){.assignment = SW_ASSIGN_LMSYS});
    ck_assert_uint_eq(sw_writes_count(m.writes), 6);
    for (uint32_t i = 0; i < 6; i++) {
        const struct sw_pair *p = sw_writes_pair(m.writes, i);

        ck_assert_uint_eq(p->rank, sources[p->target]);
        seen |= 1u << p->target;
    }
    ck_assert_uint_eq(seen, 63);
    ck_assert_uint_eq(m.c->n_kinds, 6);
    clear(&m);
}
END_TEST

/* ---- order ---- */

static uint32_t order_of(const struct made *m, uint32_t rank, uint32_t target)
{
    for (uint32_t i = 0; i < sw_writes_count(m->writes); i++) {
        const struct sw_pair *p = sw_writes_pair(m->writes, i);

        if (p->rank == rank && p->target == target)
            return p->order;
    }
    ck_abort_msg("rank %u sends nothing to target %u", rank, target);
    return 0;
}

START_TEST(ranks_begin_with_different_targets)
{
    struct made m = scene(&(struct sw_trainer_spec){.holds = SW_HOLDS_FSDP, .world = 8},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1, .engines = 4}, NULL);
    uint32_t first[4] = {0};

    for (uint32_t t = 0; t < 4; t++) /* one NIC for all targets: these are the bottleneck */
        m.targets[t].host = m.targets[t].nic = 0;
    plan(&m, NULL);
    for (uint32_t r = 0; r < 8; r++)
        for (uint32_t t = 0; t < 4; t++)
            first[t] += order_of(&m, r, t) == 0;
    for (uint32_t t = 0; t < 4; t++)
        ck_assert_uint_eq(first[t], 2);
    clear(&m);
}
END_TEST

START_TEST(engines_follow_each_other_when_sources_are_the_bottleneck)
{
    struct made m = scene(&(struct sw_trainer_spec){.holds = SW_HOLDS_FSDP, .world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2, .engines = 4}, NULL);

    plan(&m, NULL);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t t = 0; t < 8; t++)
            ck_assert_uint_eq(order_of(&m, r, t) / 2, t / 2);
    ck_assert_uint_ne(order_of(&m, 0, 0), order_of(&m, 1, 0));
    clear(&m);
}
END_TEST

START_TEST(experts_lie_behind_the_others)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    uint64_t first_expert[2] = {UINT64_MAX, UINT64_MAX}, last_other[2] = {0};

    plan(&m, NULL);
    for (uint32_t i = 0; i < m.c->n_slabs; i++) {
        const struct sw_slab *s = &m.c->slabs[i];
        const uint32_t rank = m.c->cells[m.c->splits[s->split].first].rank;
        const uint64_t at = tile_at(m.c, i, 0);

        if (s->source != SW_NONE && strstr(m.c->entries[s->source].name, ".e.")) {
            if (at < first_expert[rank])
                first_expert[rank] = at;
        } else if (at > last_other[rank]) {
            last_other[rank] = at;
        }
    }
    for (uint32_t r = 0; r < 2; r++) {
        ck_assert_uint_lt(last_other[r], first_expert[r]);
        ck_assert_uint_ne(first_expert[r], UINT64_MAX);
    }
    clear(&m);
}
END_TEST

START_TEST(mesh_groups_are_staged_in_order)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 4},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    uint32_t mesh = 0;

    m.ranks[0].mesh = m.ranks[1].mesh = 1;
    plan(&m, NULL);
    for (uint32_t i = 0; i < m.c->n_slabs; i++) {
        const uint32_t rank = m.c->cells[m.c->splits[m.c->slabs[i].split].first].rank;

        ck_assert_uint_ge(m.ranks[rank].mesh, mesh);
        mesh = m.ranks[rank].mesh;
    }
    ck_assert_uint_eq(mesh, 1);
    clear(&m);
}
END_TEST

/* ---- waves ---- */

static void expect_waves(enum sw_trainer_holds holds, uint64_t limit)
{
    struct made m = scene(&(struct sw_trainer_spec){.holds = holds, .world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1}, NULL);
    uint32_t last = 0;
    bool begins[64] = {false};

    plan(&m, &(struct sw_plan_options){.replica_limit = limit});
    for (uint32_t i = 0; i < m.c->n_slabs; i++) {
        const struct sw_split *s = &m.c->splits[m.c->slabs[i].split];
        const uint32_t wave = m.c->slabs[i].wave;

        ck_assert_uint_lt(wave, 64);
        last = wave > last ? wave : last;
        for (uint32_t k = 0; k < s->n; k++) {
            ck_assert_uint_le(tile_at(m.c, i, k) + m.c->cells[s->first + k].bytes, limit);
            begins[wave] |= tile_at(m.c, i, k) == 0;
        }
    }
    ck_assert_uint_gt(last, 3);
    for (uint32_t i = 0; i <= last; i++)
        ck_assert(begins[i]);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_uint_le(m.c->replica_bytes[r], SW_REPLICA_ALIGN);
    clear(&m);
}

START_TEST(a_small_replica_takes_waves)
{
    expect_waves(SW_HOLDS_GATHERED, 4096);
    expect_waves(SW_HOLDS_FSDP, 2048);
}
END_TEST

START_TEST(a_tile_over_the_limit_is_refused)
{
    static const enum sw_trainer_holds holds[] = {SW_HOLDS_GATHERED, SW_HOLDS_FSDP};
    static const char *const bytes[] = {"1024 bytes of embed.weight", "896 bytes of embed.weight"};

    for (int i = 0; i < 2; i++) {
        struct made m = scene(&(struct sw_trainer_spec){.holds = holds[i], .world = 2},
            &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
        struct sw_error e = {0};

        ck_assert_int_eq(
            try_plan(&m, &(struct sw_plan_options){.replica_limit = 512 + 256u * i}, &e),
            SW_ERR_LIMIT);
        ck_assert_msg(strstr(e.text, bytes[i]) && strstr(e.text, i ? "768" : "512"), "%s", e.text);
        clear(&m);
    }
}
END_TEST

/* ---- who comes later ---- */

static uint32_t redundant_map[] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 3};

START_TEST(an_engine_of_known_slabs_needs_no_new_layout)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 4, .ep = 4}, NULL);
    struct made late = scene(&(struct sw_trainer_spec){.world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 2, .ep = 2}, NULL);
    static struct sw_parameter p[2][32];
    struct sw_writes *w;
    struct sw_error e = {0};
    uint64_t bytes = 0;

    plan(&m, NULL);
    /* halves of columns are not there: only quarters are */
    ck_assert_int_eq(sw_layout_knows(m.layout, &late.targets[0], &e), SW_ERR_PLAN);
    ck_assert_msg(strstr(e.text, "down.weight") && strstr(e.text, "no tile"), "%s", e.text);
    ck_assert_int_eq(sw_writes_make(m.layout, late.targets, late.n_targets, &w, &e), SW_ERR_PLAN);
    for (uint32_t t = 0; t < 2; t++) { /* without these it is made of what there is */
        const struct sw_parameter *all = late.targets[t].parameters;
        uint32_t n = 0;

        for (uint32_t i = 0; i < late.targets[t].n_parameters; i++)
            if (!strstr(all[i].name, "down"))
                p[t][n++] = all[i];
        late.targets[t].parameters = p[t];
        late.targets[t].n_parameters = n;
        ck_assert_msg(sw_layout_knows(m.layout, &late.targets[t], &e) == 0, "%s", e.text);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t size;

            ck_assert_int_eq(sw_tensor_bytes(p[t][i].dtype, p[t][i].ndim, p[t][i].shape, &size), 0);
            bytes += size;
        }
    }
    ck_assert_msg(
        sw_writes_make(m.layout, late.targets, late.n_targets, &w, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < sw_writes_count(w); i++) {
        struct sw_write_plan x;

        ck_assert_int_eq(sw_writes_get(w, i, &x, &e), 0);
        ck_assert_uint_eq(x.bytes, sw_writes_pair(w, i)->bytes);
        bytes -= x.bytes;
        sw_write_plan_clear(&x);
    }
    ck_assert_uint_eq(bytes, 0);
    sw_writes_free(w);
    clear(&late);
    clear(&m);
}
END_TEST

START_TEST(a_new_expert_map_changes_destinations_only)
{
    struct made m = scene(&(struct sw_trainer_spec){.world = 2},
        &(struct sw_engine_spec){.kind = SW_ENGINE_SGLANG, .tp = 1}, NULL);
    struct sw_placement at = *m.targets[0].placement;
    struct sw_parameter p = {
        .name = "l.1.experts.weight", .dtype = SW_BF16, .ndim = 3, .shape = {10, 32, 16}};
    struct sw_plan_target t = m.targets[0];
    struct sw_writes *w;
    struct sw_error e = {0};
    uint64_t bytes = 0;

    plan(&m, NULL);
    at.map = redundant_map;
    at.map_layers = 1;
    at.map_slots = 10;
    at.map_version = 2;
    t.placement = &at;
    t.parameters = &p;
    t.n_parameters = 1;
    ck_assert_msg(sw_layout_knows(m.layout, &t, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_writes_make(m.layout, &t, 1, &w, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < sw_writes_count(w); i++)
        bytes += sw_writes_pair(w, i)->bytes;
    ck_assert_uint_eq(bytes, 10 * 32 * 16 * 2);
    sw_writes_free(w);
    clear(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core");
    TCase *c = tcase_create("core");

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, equal_layers_and_experts_share_splits_and_runs);
    tcase_add_test(c, engines_of_other_sizes_share_common_bytes);
    tcase_add_test(c, more_engines_change_destinations_only);
    tcase_add_test(c, padding_is_zeros_staged_once);
    tcase_add_test(c, packed_experts_are_taken_from_their_place);
    tcase_add_test(c, scales_go_to_the_rank_with_the_first_row);
    tcase_add_test(c, scales_are_sent_by_who_sends_the_values);
    tcase_add_test(c, a_source_in_fp8_brings_its_own_scales);
    tcase_add_test(c, what_rules_cannot_make_is_refused_by_name);
    tcase_add_test(c, what_is_derived_or_skipped_is_counted_apart);
    tcase_add_test(c, nics_are_balanced_before_ranks);
    tcase_add_test(c, replicas_of_shards_share_the_work);
    tcase_add_test(c, overlapping_holders_are_no_contradiction);
    tcase_add_test(c, lmsys_maps_as_in_the_post);
    tcase_add_test(c, ranks_begin_with_different_targets);
    tcase_add_test(c, engines_follow_each_other_when_sources_are_the_bottleneck);
    tcase_add_test(c, experts_lie_behind_the_others);
    tcase_add_test(c, mesh_groups_are_staged_in_order);
    tcase_add_test(c, a_small_replica_takes_waves);
    tcase_add_test(c, a_tile_over_the_limit_is_refused);
    tcase_add_test(c, an_engine_of_known_slabs_needs_no_new_layout);
    tcase_add_test(c, a_new_expert_map_changes_destinations_only);
    suite_add_tcase(suite, c);
    return test_suite_run(suite);
}
