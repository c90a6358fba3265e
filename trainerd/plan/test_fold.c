/* SPDX-License-Identifier: Apache-2.0 */
/* Folding loses nothing: every rank's boxes come out as they were declared, in few groups. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/test_suite.h"
#include "trainerd/plan/plan.h"

#define TENSORS 40
#define RANKS 12

static uint64_t seed;

static uint32_t pick(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % n;
}

static struct sw_source whole(const char *name, enum sw_dtype dtype, uint64_t a, uint64_t b)
{
    return (struct sw_source){.name = name,
        .dtype = dtype,
        .ndim = 2,
        .shape = {a, b},
        .box = {.ndim = 2, .len = {a, b}}};
}

static struct sw_source rows(struct sw_source s, uint64_t lo, uint64_t n)
{
    s.box.lo[0] = lo;
    s.box.len[0] = n;
    return s;
}

static const struct sw_plan_rank *take(struct sw_fold *f, uint32_t expected)
{
    const struct sw_plan_rank *ranks;
    struct sw_error e;
    uint32_t n;

    ck_assert_int_eq(sw_fold_ranks(f, &ranks, &n, &e), 0);
    ck_assert_uint_eq(n, expected);
    return ranks;
}

static void expect_declared(
    const struct sw_plan_rank *rank, uint32_t n, const struct sw_source *declared)
{
    ck_assert_uint_eq(rank->list->n, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_plan_tensor *t = &rank->list->tensors[i];
        const struct sw_source *s = &declared[i];
        const struct sw_box *box = &rank->boxes[rank->list->group[i]];

        ck_assert_uint_lt(rank->list->group[i], rank->list->n_groups);
        ck_assert_str_eq(t->name, s->name);
        ck_assert_int_eq(t->dtype, s->dtype);
        ck_assert_uint_eq(t->ndim, s->ndim);
        ck_assert_uint_eq(box->ndim, s->ndim);
        for (uint32_t d = 0; d < s->ndim; d++) {
            ck_assert_uint_eq(t->shape[d], s->shape[d]);
            ck_assert_uint_eq(box->lo[d], s->box.lo[d]);
            ck_assert_uint_eq(box->len[d], s->box.len[d]);
        }
    }
}

START_TEST(ranks_with_equal_tensors_share_a_list)
{
    struct sw_source a[3], b[3], c[2];
    struct sw_fold *f = sw_fold_new();
    const struct sw_plan_rank *ranks;
    struct sw_error e;

    a[0] = rows(whole("x", SW_BF16, 8, 4), 0, 4);
    a[1] = rows(whole("y", SW_F32, 8, 4), 0, 4);
    a[2] = whole("z", SW_BF16, 8, 2);
    b[0] = rows(a[0], 4, 4);
    b[1] = rows(a[1], 4, 4);
    b[2] = a[2];
    c[0] = whole("y", SW_F32, 8, 4);
    c[1] = whole("other", SW_F32, 8, 4);
    ck_assert_int_eq(sw_fold_add(f, 7, 1, 3, a, &e), 0);
    ck_assert_int_eq(sw_fold_add(f, 3, 2, 2, c, &e), 0);
    ck_assert_int_eq(sw_fold_add(f, 8, 1, 3, b, &e), 0);
    ranks = take(f, 3);
    expect_declared(&ranks[0], 3, a);
    expect_declared(&ranks[1], 2, c);
    expect_declared(&ranks[2], 3, b);
    ck_assert_uint_eq(ranks[0].rank, 7);
    ck_assert_uint_eq(ranks[1].host, 2);
    ck_assert_ptr_eq(ranks[0].list, ranks[2].list);
    ck_assert_ptr_ne(ranks[0].list, ranks[1].list);
    ck_assert_uint_eq(ranks[0].list->n_groups, 2); /* x and y are held alike, z is another shape */
    ck_assert_uint_eq(ranks[1].list->n_groups, 1);
    ck_assert_int_eq(sw_fold_add(f, 9, 1, 3, b, &e), SW_ERR_STATE);
    sw_fold_free(f);
    sw_fold_free(NULL);
}
END_TEST

START_TEST(a_later_rank_splits_a_group)
{
    struct sw_source a[4], b[4];
    struct sw_fold *f = sw_fold_new();
    const struct sw_plan_rank *ranks;
    struct sw_error e;
    static const char *const names[] = {"p", "q", "r", "s"};

    for (int i = 0; i < 4; i++) {
        a[i] = rows(whole(names[i], SW_BF16, 8, 4), 0, 4);
        b[i] = rows(a[i], i % 2 ? 4 : 2, 4);
    }
    ck_assert_int_eq(sw_fold_add(f, 0, 0, 4, a, &e), 0);
    ck_assert_int_eq(sw_fold_add(f, 1, 0, 4, b, &e), 0);
    ck_assert_int_eq(sw_fold_add(f, 2, 0, 4, a, &e), 0);
    ranks = take(f, 3);
    expect_declared(&ranks[0], 4, a);
    expect_declared(&ranks[1], 4, b);
    expect_declared(&ranks[2], 4, a);
    ck_assert_uint_eq(ranks[0].list->n_groups, 2);
    sw_fold_free(f);
}
END_TEST

struct declared {
    uint32_t n;
    struct sw_source sources[TENSORS];
};

START_TEST(random_ranks_come_out_as_they_went_in)
{
    static struct declared ranks[RANKS];
    static char names[TENSORS][8];
    struct sw_fold *f = sw_fold_new();
    const struct sw_plan_rank *folded;
    struct sw_error e;

    seed = (uint64_t)_i * 31 + 5;
    for (uint32_t i = 0; i < TENSORS; i++)
        snprintf(names[i], sizeof(names[i]), "t%u", i);
    for (uint32_t r = 0; r < RANKS; r++) {
        const uint32_t skip = pick(3) ? TENSORS : pick(TENSORS), mode = pick(3);

        ranks[r].n = 0;
        for (uint32_t i = 0; i < TENSORS; i++) {
            struct sw_source s = whole(names[i], i % 3 ? SW_BF16 : SW_F32, 6 + i % 4, 3);

            if (i == skip)
                continue;
            if (mode)
                s = rows(s, pick(2 * mode), pick(3));
            ranks[r].sources[ranks[r].n++] = s;
        }
        ck_assert_int_eq(sw_fold_add(f, r, 0, ranks[r].n, ranks[r].sources, &e), 0);
    }
    folded = take(f, RANKS);
    for (uint32_t r = 0; r < RANKS; r++)
        expect_declared(&folded[r], ranks[r].n, ranks[r].sources);
    sw_fold_free(f);
}
END_TEST

START_TEST(many_ranks_need_few_groups)
{
    static struct sw_source s[TENSORS];
    static char names[TENSORS][8];
    struct sw_fold *f = sw_fold_new();
    const struct sw_plan_rank *ranks;
    struct sw_error e;

    for (uint32_t r = 0; r < 64; r++) {
        for (uint32_t i = 0; i < TENSORS; i++) {
            snprintf(names[i], sizeof(names[i]), "t%u", i);
            s[i] = rows(whole(names[i], SW_BF16, 64 * (1 + i % 3), 5), r * (1 + i % 3), 1 + i % 3);
        }
        ck_assert_int_eq(sw_fold_add(f, r, r / 8, TENSORS, s, &e), 0);
    }
    ranks = take(f, 64);
    ck_assert_uint_eq(ranks[0].list->n_groups, 3);
    ck_assert_ptr_eq(ranks[0].list, ranks[63].list);
    expect_declared(&ranks[63], TENSORS, s);
    sw_fold_free(f);
}
END_TEST

static void refuse(const struct sw_source *a, uint32_t n_a, const struct sw_source *b, uint32_t n_b,
    const char *one, const char *two)
{
    struct sw_fold *f = sw_fold_new();
    struct sw_error e = {0};
    int err = sw_fold_add(f, 3, 0, n_a, a, &e);

    if (!err)
        err = sw_fold_add(f, 4, 0, n_b, b, &e);
    ck_assert_int_eq(err, SW_ERR_PLAN);
    ck_assert_msg(strstr(e.text, one) && strstr(e.text, two), "%s", e.text);
    sw_fold_free(f);
}

START_TEST(what_contradicts_is_refused_by_name)
{
    const struct sw_source x = whole("x", SW_BF16, 8, 4), y = whole("y", SW_BF16, 8, 4);
    const struct sw_source twice[] = {x, y, x}, late[] = {y, x, x}, again[] = {x, y, y};
    const struct sw_source typed = whole("x", SW_F16, 8, 4), tall = whole("x", SW_BF16, 9, 4);
    struct sw_source flat = x, deep = x;

    flat.box.ndim = 1;
    deep.ndim = deep.box.ndim = 7;
    refuse(twice, 3, NULL, 0, "rank 3", "source x twice");
    refuse(&y, 1, late, 3, "rank 4", "source x twice");
    refuse(&y, 1, again, 3, "rank 4", "source y twice");
    refuse(&x, 1, &typed, 1, "BF16 [8, 4] on trainer rank 3", "F16 [8, 4] on rank 4");
    refuse(&x, 1, &tall, 1, "BF16 [8, 4] on trainer rank 3", "BF16 [9, 4] on rank 4");
    refuse(&flat, 1, NULL, 0, "source x", "its box has 1");
    refuse(&deep, 1, NULL, 0, "source x", "7 dimensions");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fold");
    TCase *c = tcase_create("fold");

    tcase_add_test(c, ranks_with_equal_tensors_share_a_list);
    tcase_add_test(c, a_later_rank_splits_a_group);
    tcase_add_loop_test(c, random_ranks_come_out_as_they_went_in, 0, 50);
    tcase_add_test(c, many_ranks_need_few_groups);
    tcase_add_test(c, what_contradicts_is_refused_by_name);
    suite_add_tcase(suite, c);
    return test_suite_run(suite);
}
