/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs of small plans, counted anew from what was given: random tensors, each held whole by a
 * random subset of ranks, and engines that want all of them under their own names.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/cost.h"

#define RANKS 6u
#define TENSORS 24u
#define TARGETS 3u

struct world {
    char names[TENSORS][16];
    struct sw_plan_tensor tensors[TENSORS];
    uint32_t group[TENSORS];
    uint32_t holders[TENSORS]; /* bits: ranks */
    struct sw_source_list list;
    struct sw_box boxes[RANKS][TENSORS];
    struct sw_plan_rank ranks[RANKS];
    struct sw_parameter parameters[TENSORS];
    uint64_t region;
    struct sw_plan_target targets[TARGETS];
    struct sw_layout *layout;
    struct sw_writes *writes;
    struct sw_cost cost;
};

static uint32_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void give_tensor(struct world *w, uint32_t i)
{
    const uint64_t n = 1 + below(100000);

    snprintf(w->names[i], sizeof(w->names[i]), "tensor%u", i);
    w->tensors[i] =
        (struct sw_plan_tensor){.name = w->names[i], .dtype = SW_U8, .ndim = 1, .shape = {n}};
    w->group[i] = i;
    w->holders[i] = 1 + below((1u << RANKS) - 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        w->boxes[r][i] = (struct sw_box){.ndim = 1};
        w->boxes[r][i].len[0] = w->holders[i] >> r & 1 ? n : 0;
    }
    w->parameters[i] = (struct sw_parameter){
        .name = w->names[i], .dtype = SW_U8, .ndim = 1, .shape = {n}, .offset = w->region};
    w->region += n;
}

/* Two ranks share each NIC when `shared`. */
static void make(struct world *w, bool shared)
{
    const struct sw_machine m = {.nic = 10, .pcie = 20, .stage = 5, .host = 1000};
    const struct sw_plan_options options = {0};
    struct sw_plan_notes notes;
    struct sw_error e = {0};

    memset(w, 0, sizeof(*w));
    for (uint32_t i = 0; i < TENSORS; i++)
        give_tensor(w, i);
    w->list = (struct sw_source_list){TENSORS, TENSORS, w->tensors, w->group};
    for (uint32_t r = 0; r < RANKS; r++)
        w->ranks[r] = (struct sw_plan_rank){.rank = r,
            .host = r / 3,
            .nic = shared ? r % 3 / 2 : r % 3,
            .list = &w->list,
            .boxes = w->boxes[r]};
    for (uint32_t t = 0; t < TARGETS; t++)
        w->targets[t] = (struct sw_plan_target){.target = t,
            .engine = "engine",
            .engine_rank = t,
            .host = 9,
            .nic = t,
            .n_regions = 1,
            .region_bytes = &w->region,
            .n_parameters = TENSORS,
            .parameters = w->parameters};
    ck_assert_msg(
        !sw_layout_make(w->ranks, RANKS, w->targets, TARGETS, &options, &w->layout, &notes, &e),
        "%s", e.text);
    ck_assert_msg(!sw_writes_make(w->layout, w->targets, TARGETS, &w->writes, &e), "%s", e.text);
    ck_assert_msg(
        !sw_cost_make(w->layout, w->writes, w->ranks, RANKS, w->targets, TARGETS, &m, &w->cost, &e),
        "%s", e.text);
}

static void clear(struct world *w)
{
    sw_cost_clear(&w->cost);
    sw_writes_free(w->writes);
    sw_layout_free(w->layout);
}

static uint64_t sum(const struct sw_cost_place *p, uint32_t n)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += p[i].moved;
    return total;
}

START_TEST(test_totals)
{
    static struct world w;
    uint64_t all = 0;

    seed = (uint32_t)_i;
    make(&w, _i % 2);
    for (uint32_t i = 0; i < TENSORS; i++)
        all += w.tensors[i].shape[0];
    ck_assert_uint_eq(w.cost.distinct, all);
    ck_assert_uint_eq(w.cost.moved, all * TARGETS);
    ck_assert_uint_eq(w.cost.n_source_nics, _i % 2 ? 4 : 6);
    ck_assert_uint_eq(w.cost.n_source_hosts, 2);
    ck_assert_uint_eq(w.cost.n_target_nics, TARGETS);
    ck_assert_uint_eq(sum(w.cost.ranks, RANKS), all * TARGETS);
    ck_assert_uint_eq(sum(w.cost.source_nics, w.cost.n_source_nics), all * TARGETS);
    ck_assert_uint_eq(sum(w.cost.source_hosts, 2), all * TARGETS);
    for (uint32_t t = 0; t < TARGETS; t++)
        ck_assert_uint_eq(w.cost.targets[t].moved, all);
    ck_assert_uint_eq(w.cost.waves, 1);
    ck_assert_uint_eq(w.cost.maxima, 0);
    clear(&w);
}
END_TEST

/* Bytes that only ranks on these NICs hold. */
static uint64_t bound_to(const struct world *w, const uint32_t *nic, uint32_t nics)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < TENSORS; i++) {
        bool inside = true;

        for (uint32_t r = 0; r < RANKS; r++)
            inside = inside && (!(w->holders[i] >> r & 1) || nics >> nic[r] & 1);
        bytes += inside ? w->tensors[i].shape[0] * TARGETS : 0;
    }
    return bytes;
}

/* Never above the best bound over all sets of NICs, nor below what single tensors and the whole ask
 * for; and no plan is below it. */
START_TEST(test_lower_bound)
{
    static struct world w;
    uint32_t nic[RANKS], n;
    uint64_t best = 0, whole;

    seed = 1000u + (uint32_t)_i;
    make(&w, _i % 2);
    n = _i % 2 ? 4 : 6;
    for (uint32_t r = 0; r < RANKS; r++)
        nic[r] = w.ranks[r].host * (n / 2) + w.ranks[r].nic;
    for (uint32_t set = 1; set < 1u << n; set++) {
        const uint32_t size = (uint32_t)__builtin_popcount(set);
        const uint64_t bytes = (bound_to(&w, nic, set) + size - 1) / size;

        best = bytes > best ? bytes : best;
    }
    whole = (w.cost.moved + n - 1) / n;
    ck_assert_uint_le(w.cost.lower_bound, best);
    ck_assert_uint_ge(w.cost.lower_bound, whole);
    ck_assert_uint_ge(w.cost.busiest, w.cost.lower_bound);
    for (uint32_t i = 0; i < TENSORS; i++) {
        uint32_t set = 0;

        for (uint32_t r = 0; r < RANKS; r++)
            set |= (w.holders[i] >> r & 1) << nic[r];
        ck_assert_uint_ge(
            w.cost.lower_bound * (uint32_t)__builtin_popcount(set), bound_to(&w, nic, set));
    }
    clear(&w);
}
END_TEST

START_TEST(test_times_name_what_binds)
{
    static struct world w;

    seed = 77;
    make(&w, false);
    /* 3 targets get all bytes each, at 10 a second; sources have six NICs for three times that. */
    ck_assert_int_eq(w.cost.publish_limit, SW_LIMIT_TARGET_NIC);
    ck_assert_double_eq_tol(
        w.cost.publish_seconds, (double)w.cost.distinct / 10, 1e-6 * w.cost.publish_seconds);
    ck_assert_int_eq(w.cost.stage_limit, SW_LIMIT_STAGE);
    ck_assert_str_eq(sw_limit_name(w.cost.publish_limit), "the NIC of a target");
    clear(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *c = tcase_create("cost");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(c, test_totals, 0, 20);
    tcase_add_loop_test(c, test_lower_bound, 0, 200);
    tcase_add_test(c, test_times_name_what_binds);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
