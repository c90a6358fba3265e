/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan decides: how boxes are cut and shared, what can't be planned, what a layout knows.
 * That bytes arrive is test_plan_random.c's affair; each plan here is proved as it is made.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/test_suite.h"
#include "trainerd/plan/small_plan.h"

static uint64_t all_staged(const struct sw_compact *c)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->n_slabs; i++)
        bytes += staged(c, i);
    return bytes;
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
    tcase_add_test(c, an_engine_of_known_slabs_needs_no_new_layout);
    tcase_add_test(c, a_new_expert_map_changes_destinations_only);
    suite_add_tcase(suite, c);
    return test_suite_run(suite);
}
