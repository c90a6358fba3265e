/* SPDX-License-Identifier: Apache-2.0 */
/* Who sends what to whom, in what order, and where it lies until then. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/test_suite.h"
#include "trainerd/plan/small_plan.h"

/* What each rank sends to all targets. */
static void sent(const struct made *m, uint64_t *bytes)
{
    memset(bytes, 0, m->n_ranks * sizeof(*bytes));
    for (uint32_t i = 0; i < sw_writes_count(m->writes); i++) {
        const struct sw_pair *p = sw_writes_pair(m->writes, i);

        bytes[p->rank] += p->bytes;
    }
}
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

int main(void)
{
    Suite *suite = suite_create("assign");
    TCase *c = tcase_create("assign");

    tcase_add_checked_fixture(c, set_up, tear_down);
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
    suite_add_tcase(suite, c);
    return test_suite_run(suite);
}
