/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "trainerd/plan/compact.h"

/* ---- making input ---- */

static struct sw_source source(
    const char *name, enum sw_dtype dtype, uint32_t ndim, uint64_t a, uint64_t b)
{
    struct sw_source s = {.name = name, .dtype = dtype, .ndim = ndim, .shape = {a, b}};

    s.box.ndim = ndim;
    memcpy(s.box.len, s.shape, sizeof(s.shape));
    return s;
}

static struct sw_parameter parameter(const struct sw_source *s, uint32_t region, uint64_t offset)
{
    struct sw_parameter p = {
        .name = s->name, .dtype = s->dtype, .ndim = s->ndim, .region = region, .offset = offset};

    memcpy(p.shape, s->shape, sizeof(p.shape));
    return p;
}

struct declared { /* what a trainer rank declares */
    uint32_t rank, n;
    const struct sw_source *sources;
};

struct plan {
    struct sw_fold *fold;
    struct sw_layout *layout;
    struct sw_writes *writes;
    struct sw_plan_notes notes;
};

static void clear(struct plan *p)
{
    sw_writes_free(p->writes);
    sw_layout_free(p->layout);
    sw_fold_free(p->fold);
    *p = (struct plan){0};
}

static int make(struct plan *p, const struct declared *ranks, uint32_t n_ranks,
    const struct sw_plan_target *targets, uint32_t n_targets, struct sw_error *e)
{
    const struct sw_plan_rank *folded;
    uint32_t n;
    int err = 0;

    *p = (struct plan){.fold = sw_fold_new()};
    ck_assert_ptr_nonnull(p->fold);
    for (uint32_t i = 0; !err && i < n_ranks; i++)
        err = sw_fold_add(p->fold, ranks[i].rank, 0, ranks[i].n, ranks[i].sources, e);
    if (!err)
        err = sw_fold_ranks(p->fold, &folded, &n, e);
    if (!err)
        err = sw_layout_make(folded, n, targets, n_targets, NULL, &p->layout, &p->notes, e);
    if (!err)
        err = sw_writes_make(p->layout, targets, n_targets, &p->writes, e);
    if (err)
        clear(p);
    return err;
}

static struct sw_load_plan load_of(const struct plan *p, uint32_t rank)
{
    struct sw_load_plan load;
    struct sw_error e;

    ck_assert_msg(sw_layout_load(p->layout, rank, &load, &e) == 0, "%s", e.text);
    return load;
}

static struct sw_write_plan write_of(const struct plan *p, uint32_t pair)
{
    struct sw_write_plan write;
    struct sw_error e;

    ck_assert_msg(sw_writes_get(p->writes, pair, &write, &e) == 0, "%s", e.text);
    return write;
}

static const uint64_t region_1k[] = {1024, 1024};

static struct sw_plan_target target(
    uint32_t number, const struct sw_parameter *parameters, uint32_t n)
{
    return (struct sw_plan_target){.target = number,
        .engine = "A",
        .engine_rank = number,
        .n_regions = 2,
        .region_bytes = region_1k,
        .n_parameters = n,
        .parameters = parameters};
}

static void expect_extent(const struct sw_write_plan *p, uint64_t i, uint64_t src, uint64_t dst,
    uint64_t length, uint32_t region)
{
    ck_assert_uint_lt(i, p->n);
    ck_assert_uint_eq(p->extents[i].src, src);
    ck_assert_uint_eq(p->extents[i].dst, dst);
    ck_assert_uint_eq(p->extents[i].length, length);
    ck_assert_uint_eq(p->extents[i].region, region);
}

/* ---- by hand ---- */

START_TEST(neighbours_become_one_extent_and_gaps_are_never_crossed)
{
    /* declared in another order than they lie */
    const struct sw_source s[] = {source("c", SW_BF16, 2, 4, 8), source("a", SW_BF16, 1, 16, 0),
        source("b", SW_F32, 1, 8, 0), source("d", SW_U8, 1, 10, 0)};
    const struct sw_parameter p[] = {parameter(&s[0], 0, 64), parameter(&s[3], 1, 7),
        parameter(&s[1], 0, 0), parameter(&s[2], 0, 32)};
    const struct sw_parameter q[] = {parameter(&s[2], 0, 0), parameter(&s[0], 0, 512)};
    const struct declared rank = {0, 4, s};
    const struct sw_plan_target t[] = {target(0, p, 4), target(1, q, 2)};
    struct plan plan;
    struct sw_error e;
    struct sw_load_plan load;
    struct sw_write_plan w[2];

    ck_assert_int_eq(make(&plan, &rank, 1, t, 2, &e), 0);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.n_tiles, 4);
    ck_assert_uint_eq(load.replica_bytes, SW_REPLICA_ALIGN);
    ck_assert_uint_eq(load.n_templates, 4);
    ck_assert_uint_eq(load.n_checks, 0);
    ck_assert_uint_eq(load.loads[0].source, 1); /* a is the first in region 0 */
    ck_assert_uint_eq(load.tiles[0].offset, 0);
    ck_assert_uint_eq(load.tiles[1].offset, 32);
    ck_assert_uint_eq(load.tiles[2].offset, 64);
    ck_assert_uint_eq(load.tiles[2].bytes, 64);
    ck_assert_uint_eq(load.tiles[3].offset, 256); /* another region */
    ck_assert_uint_eq(load.tiles[3].bytes, 10);
    ck_assert_uint_eq(sw_writes_count(plan.writes), 2);
    w[0] = write_of(&plan, 0);
    w[1] = write_of(&plan, 1);
    ck_assert_uint_eq(w[0].n, 2);
    ck_assert_uint_eq(w[0].bytes, 138);
    expect_extent(&w[0], 0, 0, 0, 128, 0);
    expect_extent(&w[0], 1, 256, 7, 10, 1);
    ck_assert_uint_eq(w[1].target, 1);
    ck_assert_uint_eq(w[1].n, 2);
    expect_extent(&w[1], 0, 32, 0, 32, 0);
    expect_extent(&w[1], 1, 64, 512, 64, 0);
    ck_assert_ptr_null(sw_writes_pair(plan.writes, 2));
    ck_assert_int_eq(sw_writes_get(plan.writes, 2, &w[0], &e), SW_ERR_INVALID);
    sw_write_plan_clear(&w[0]);
    sw_write_plan_clear(&w[1]);
    sw_load_plan_clear(&load);
    clear(&plan);
}
END_TEST

START_TEST(templates_describe_dense_copies)
{
    const struct sw_source s[] = {source("a", SW_BF16, 2, 3, 5), source("b", SW_BF16, 2, 3, 5),
        source("c", SW_F4, 2, 3, 6), source("d", SW_F32, 0, 0, 0)};
    const struct sw_parameter p[] = {parameter(&s[0], 0, 0), parameter(&s[1], 0, 30),
        parameter(&s[2], 0, 60), parameter(&s[3], 0, 69)};
    const struct declared rank = {0, 4, s};
    const struct sw_plan_target t = target(0, p, 4);
    struct plan plan;
    struct sw_error e;
    struct sw_load_plan load;
    struct sw_write_plan w;
    const struct sw_load_template *tmpl;

    ck_assert_int_eq(make(&plan, &rank, 1, &t, 1, &e), 0);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.n_templates, 3);
    ck_assert_uint_eq(load.loads[0].tmpl, load.loads[1].tmpl);
    tmpl = &load.templates[load.loads[0].tmpl];
    ck_assert_uint_eq(tmpl->ndim, 2);
    ck_assert_uint_eq(tmpl->len[0], 3);
    ck_assert_uint_eq(tmpl->len[1], 5);
    ck_assert_uint_eq(tmpl->dst_stride[0], 10);
    ck_assert_uint_eq(tmpl->dst_stride[1], 2);
    tmpl = &load.templates[load.loads[2].tmpl];
    ck_assert_uint_eq(tmpl->dst_stride[0], 3);
    ck_assert_uint_eq(tmpl->dst_stride[1], 0); /* half bytes: the row is dense */
    ck_assert_uint_eq(load.templates[load.loads[3].tmpl].ndim, 0);
    w = write_of(&plan, 0);
    ck_assert_uint_eq(w.n, 1);
    expect_extent(&w, 0, 0, 0, 73, 0);
    sw_write_plan_clear(&w);
    sw_load_plan_clear(&load);
    clear(&plan);
}
END_TEST

START_TEST(aliases_are_one_tile_and_are_compared)
{
    const struct sw_source s[] = {source("lm_head", SW_BF16, 2, 8, 4),
        source("embed", SW_BF16, 2, 8, 4), source("norm", SW_BF16, 1, 4, 0)};
    struct sw_parameter tied[] = {
        parameter(&s[1], 0, 0), parameter(&s[0], 0, 0), parameter(&s[2], 0, 64)};
    struct sw_parameter again[] = {parameter(&s[0], 1, 0), parameter(&s[1], 1, 0)};
    const struct sw_parameter only[] = {parameter(&s[0], 0, 0)};
    const struct declared rank = {0, 3, s}, without = {0, 2, s + 1};
    struct sw_plan_target t = target(0, tied, 3), u = target(1, again, 2), v = target(2, only, 1);
    const struct sw_plan_target both[] = {t, u};
    struct plan plan;
    struct sw_error e;
    struct sw_load_plan load;

    tied[1].alias_of = "embed";
    again[1].alias_of = "lm_head"; /* the other is the root there */
    ck_assert_int_eq(make(&plan, &rank, 1, both, 2, &e), 0);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.n_tiles, 2);
    ck_assert_uint_eq(load.n_checks, 2);
    ck_assert_uint_eq(load.checks[0].source + load.checks[1].source, 1);
    ck_assert_uint_eq(load.checks[0].set, load.checks[1].set);
    ck_assert_str_eq(sw_layout_alias_names(plan.layout, load.checks[0].set), "embed and lm_head");
    ck_assert_uint_eq(sw_writes_pair(plan.writes, 0)->bytes, 72);
    ck_assert_uint_eq(sw_writes_pair(plan.writes, 1)->bytes, 64);
    ck_assert_int_eq(sw_layout_knows(plan.layout, &u, &e), 0);
    ck_assert_int_eq(sw_layout_knows(plan.layout, &v, &e), SW_ERR_PLAN); /* untied: no tile */
    ck_assert_ptr_nonnull(strstr(e.text, "lm_head"));
    sw_load_plan_clear(&load);
    clear(&plan);

    /* a checkpoint that does not save the alias needs no check */
    ck_assert_int_eq(make(&plan, &without, 1, &t, 1, &e), 0);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.n_checks, 0);
    ck_assert_str_eq(sw_layout_alias_names(plan.layout, 0), "?");
    sw_load_plan_clear(&load);
    clear(&plan);

    /* an untied engine's layout cannot serve a tied one: the names were not compared */
    t = target(0, only, 1);
    ck_assert_int_eq(make(&plan, &rank, 1, &t, 1, &e), 0);
    ck_assert_int_eq(sw_layout_knows(plan.layout, &u, &e), SW_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(e.text, "aliases"));
    ck_assert_int_eq(sw_layout_knows(plan.layout, &v, &e), 0);
    clear(&plan);
}
END_TEST

START_TEST(parameters_without_elements_have_no_tile)
{
    const struct sw_source s[] = {source("empty", SW_BF16, 2, 0, 4), source("a", SW_U8, 1, 4, 0)};
    const struct sw_parameter p[] = {
        parameter(&s[0], 0, 4), parameter(&s[1], 0, 4), parameter(&s[0], 0, 2)};
    struct sw_parameter other = parameter(&s[0], 0, 0);
    const struct declared rank = {0, 2, s};
    struct sw_plan_target t = target(0, p, 3);
    struct plan plan;
    struct sw_error e;
    struct sw_load_plan load;

    ck_assert_int_eq(make(&plan, &rank, 1, &t, 1, &e), 0);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.n_tiles, 1);
    ck_assert_uint_eq(plan.notes.unused, 0);
    ck_assert_uint_eq(sw_writes_pair(plan.writes, 0)->bytes, 4);
    ck_assert_int_eq(sw_layout_knows(plan.layout, &t, &e), 0);
    sw_load_plan_clear(&load);
    clear(&plan);
    t = target(0, p, 1); /* nothing at all to write */
    ck_assert_int_eq(make(&plan, &rank, 1, &t, 1, &e), 0);
    ck_assert_uint_eq(sw_writes_count(plan.writes), 0);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.replica_bytes, 0);
    sw_load_plan_clear(&load);
    clear(&plan);
    other.shape[1] = 5; /* a wrong shape is wrong without bytes too */
    t = target(0, &other, 1);
    ck_assert_int_eq(make(&plan, &rank, 1, &t, 1, &e), SW_ERR_PLAN);
}
END_TEST

START_TEST(ranks_that_hold_the_same_share_the_work)
{
    struct sw_source s[64];
    struct sw_parameter p[64];
    char names[64][8];
    struct declared ranks[4];
    const uint64_t bytes = 64 * 4;
    const struct sw_plan_target t = {
        .engine = "A", .n_regions = 1, .region_bytes = &bytes, .n_parameters = 64, .parameters = p};
    struct plan plan;
    struct sw_error e;

    for (uint32_t i = 0; i < 64; i++) {
        snprintf(names[i], sizeof(names[i]), "t%02u", i);
        s[i] = source(names[i], SW_F32, 1, 1, 0);
        p[i] = parameter(&s[i], 0, 4 * i);
    }
    /* rank 3 is alone with the first 16; the others share 48 */
    for (uint32_t r = 0; r < 4; r++)
        ranks[r] = (struct declared){10 + r, r == 3 ? 16 : 48, r == 3 ? s : s + 16};
    ck_assert_int_eq(make(&plan, ranks, 4, &t, 1, &e), 0);
    ck_assert_uint_eq(sw_writes_count(plan.writes), 4);
    for (uint32_t r = 0; r < 4; r++) {
        struct sw_load_plan load = load_of(&plan, r);
        struct sw_write_plan w = write_of(&plan, r);

        ck_assert_uint_eq(load.n_tiles, 16);
        ck_assert_uint_eq(w.rank, 10 + r);
        ck_assert_uint_eq(w.n, 1); /* neighbours went to one rank */
        ck_assert_uint_eq(w.bytes, 64);
        sw_load_plan_clear(&load);
        sw_write_plan_clear(&w);
    }
    clear(&plan);
}
END_TEST

START_TEST(unused_sources_are_counted_and_named)
{
    const struct sw_source s[] = {source("x", SW_U8, 1, 1, 0), source("a", SW_U8, 1, 1, 0),
        source("w", SW_U8, 1, 1, 0), source("z", SW_U8, 1, 1, 0), source("v", SW_U8, 1, 1, 0)};
    const struct sw_parameter p[] = {parameter(&s[1], 0, 0)};
    const struct declared ranks[] = {{0, 5, s}, {1, 5, s}};
    const struct sw_plan_target t = target(0, p, 1);
    struct plan plan;
    struct sw_error e;

    ck_assert_int_eq(make(&plan, ranks, 2, &t, 1, &e), 0);
    ck_assert_uint_eq(plan.notes.unused, 4);
    ck_assert_str_eq(plan.notes.unused_names, "v, w, x");
    ck_assert_uint_eq(plan.notes.derived, 0);
    clear(&plan);
}
END_TEST

/* ---- refusals ---- */

struct refusal {
    const char *what;
    struct sw_source sources[2];
    struct sw_parameter parameters[2];
    const char *alias_of; /* of the second parameter */
    int code;
    const char *names[3]; /* in the text */
};

static void refuse(const struct refusal *c)
{
    struct sw_parameter p[2] = {c->parameters[0], c->parameters[1]};
    const struct declared ranks[] = {{3, 1, c->sources}, {4, 1, c->sources + 1}};
    const struct sw_plan_target t = target(0, p, p[1].name ? 2 : 1);
    struct plan plan;
    struct sw_error e = {0};

    p[1].alias_of = c->alias_of;
    ck_assert_msg(
        make(&plan, ranks, 2, &t, 1, &e) == c->code, "%s: %d %s", c->what, e.code, e.text);
    ck_assert_int_eq(e.code, c->code);
    for (int i = 0; i < 3 && c->names[i]; i++)
        ck_assert_msg(strstr(e.text, c->names[i]), "%s: %s", c->what, e.text);
}

START_TEST(what_does_not_fit_is_refused_by_name)
{
    const struct sw_source a = source("a", SW_BF16, 2, 2, 4), b = source("b", SW_BF16, 2, 2, 4);
    const struct sw_source half = source("h", SW_F4, 2, 2, 4);
    struct sw_source shard = a, other = a, outside = a, nibbles[2] = {half, half};
    struct sw_parameter wide = parameter(&a, 0, 0), typed = wide, alias = parameter(&b, 0, 0),
                        far = parameter(&a, 0, 1020), nowhere = parameter(&a, 7, 0);

    shard.box.lo[0] = 1;
    shard.box.len[0] = 1;
    outside.box.lo[1] = 1;
    other.shape[0] = other.box.len[0] = 3;
    nibbles[0].box.len[1] = 3;
    nibbles[1].box.lo[1] = 3;
    nibbles[1].box.len[1] = 1;
    wide.shape[1] = 5;
    typed.dtype = SW_F16;
    {
        const struct refusal cases[] = {
            {"no source", {a, a}, {alias}, NULL, SW_ERR_PLAN, {"engine A rank 0", "parameter b"}},
            {"shape", {a, b}, {wide}, NULL, SW_ERR_PLAN, {"[2, 5]", "[2, 4]", "parameter a"}},
            {"dtype", {a, b}, {typed}, NULL, SW_ERR_PLAN, {"F16", "BF16", "parameter a"}},
            {"a box that nobody holds", {shard, shard}, {parameter(&a, 0, 0)}, NULL, SW_ERR_PLAN,
                {"source a", "[0:1, 0:4]", "engine A rank 0: parameter a"}},
            {"outside", {a, outside}, {parameter(&a, 0, 0)}, NULL, SW_ERR_PLAN,
                {"source a", "rank 4", "[0:2, 1:5]"}},
            {"half a byte", {nibbles[0], nibbles[1]}, {parameter(&half, 0, 0)}, NULL, SW_ERR_PLAN,
                {"source h", "inside a byte", "parameter h"}},
            {"ranks differ", {a, other}, {parameter(&a, 0, 0)}, NULL, SW_ERR_PLAN,
                {"source a", "rank 3", "rank 4"}},
            {"undeclared overlap", {a, b}, {parameter(&a, 0, 0), alias}, NULL, SW_ERR_PLAN,
                {"overlap", "parameters a"}},
            {"partial overlap", {a, b}, {parameter(&a, 0, 0), parameter(&b, 0, 8)}, "a",
                SW_ERR_PLAN, {"overlap"}},
            {"alias of nothing", {a, b}, {parameter(&a, 0, 0), alias}, "zz", SW_ERR_PLAN,
                {"zz", "parameter b"}},
            {"alias elsewhere", {a, b}, {parameter(&a, 0, 0), parameter(&b, 0, 64)}, "a",
                SW_ERR_PLAN, {"alias of a"}},
            {"past the region", {a, b}, {far}, NULL, SW_ERR_PLAN, {"parameter a", "1024"}},
            {"no such region", {a, b}, {nowhere}, NULL, SW_ERR_PLAN, {"region 7"}},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            refuse(&cases[i]);
    }
}
END_TEST

/* A target whose kind is known already is looked at as closely as the first. */
START_TEST(every_target_is_checked)
{
    const struct sw_source s[] = {source("a", SW_BF16, 2, 2, 4), source("b", SW_BF16, 2, 2, 4)};
    const struct sw_parameter p[] = {parameter(&s[0], 0, 0), parameter(&s[1], 0, 16)};
    const struct sw_parameter q[] = {parameter(&s[0], 0, 0), parameter(&s[1], 0, 8)};
    const struct declared rank = {0, 2, s};
    struct sw_plan_target t[] = {target(0, p, 2), target(1, p, 2)};
    const struct sw_plan_target bad = target(1, q, 2);
    static const uint64_t small[] = {24, 24};
    struct plan plan;
    struct sw_error e;

    ck_assert_int_eq(make(&plan, &rank, 1, t, 2, &e), 0);
    ck_assert_uint_eq(sw_layout_compact(plan.layout)->n_kinds, 1);
    ck_assert_int_eq(sw_layout_knows(plan.layout, &bad, &e), SW_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(e.text, "overlap"));
    clear(&plan);
    t[1].region_bytes = small; /* the same array of parameters, but it doesn't fit */
    ck_assert_int_eq(make(&plan, &rank, 1, t, 2, &e), SW_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(e.text, "rank 1: parameter b"));
    t[1] = bad;
    ck_assert_int_eq(make(&plan, &rank, 1, t, 2, &e), SW_ERR_PLAN);
    ck_assert_ptr_nonnull(strstr(e.text, "overlap"));
}
END_TEST

START_TEST(many_small_parameters_become_one_extent)
{
    const uint32_t n = 100000;
    struct sw_source *s = calloc(n, sizeof(*s));
    struct sw_parameter *p = calloc(n, sizeof(*p));
    char(*names)[48] = calloc(n, sizeof(*names));
    const uint64_t region = (uint64_t)n * 1024;
    const struct declared rank = {0, n, s};
    struct sw_plan_target t = {
        .engine = "A", .n_regions = 1, .region_bytes = &region, .n_parameters = n, .parameters = p};
    struct plan plan;
    struct sw_error e;
    struct sw_load_plan load;
    struct sw_write_plan w;

    for (uint32_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "model.layers.%u.weight", i * 7919 % n);
        s[i] = source(names[i], SW_BF16, 2, 16, 32);
        p[i] = parameter(&s[i], 0, (uint64_t)i * 1024);
    }
    ck_assert_int_eq(make(&plan, &rank, 1, &t, 1, &e), 0);
    ck_assert_uint_eq(sw_writes_count(plan.writes), 1);
    w = write_of(&plan, 0);
    ck_assert_uint_eq(w.n, 1);
    load = load_of(&plan, 0);
    ck_assert_uint_eq(load.n_templates, 1);
    ck_assert_uint_eq(sw_layout_compact(plan.layout)->n_runs, 1);
    ck_assert_uint_eq(sw_layout_compact(plan.layout)->n_splits, 1);
    sw_load_plan_clear(&load);
    sw_write_plan_clear(&w);
    clear(&plan);
    free(s);
    free(p);
    free(names);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *by_hand = tcase_create("by hand"), *many = tcase_create("many");
    SRunner *runner;
    int failed;

    tcase_add_test(by_hand, neighbours_become_one_extent_and_gaps_are_never_crossed);
    tcase_add_test(by_hand, templates_describe_dense_copies);
    tcase_add_test(by_hand, aliases_are_one_tile_and_are_compared);
    tcase_add_test(by_hand, parameters_without_elements_have_no_tile);
    tcase_add_test(by_hand, ranks_that_hold_the_same_share_the_work);
    tcase_add_test(by_hand, unused_sources_are_counted_and_named);
    tcase_add_test(by_hand, what_does_not_fit_is_refused_by_name);
    tcase_add_test(by_hand, every_target_is_checked);
    suite_add_tcase(suite, by_hand);
    tcase_add_test(many, many_small_parameters_become_one_extent);
    tcase_set_timeout(many, 60);
    suite_add_tcase(suite, many);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
