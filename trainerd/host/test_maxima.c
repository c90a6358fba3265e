/* SPDX-License-Identifier: Apache-2.0 */
/* Shares and their reduction; then two ranks of a host that share FP8 blocks. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/host/shares.h"
#include "trainerd/host/talk.h"

#define RUN(t, ...)                                                                                \
    do {                                                                                           \
        static const struct talk_step steps[] = {__VA_ARGS__};                                     \
        talk_run(t, steps, sizeof(steps) / sizeof(steps[0]));                                      \
    } while (0)

/* ---- shares ---- */

static struct sw_error e;

static void said(const char *text)
{
    ck_assert_msg(strstr(e.text, text) != NULL, "\"%s\" lacks \"%s\"", e.text, text);
}

static uint64_t random64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Random programs against the plainest way to say it: float by float. */
START_TEST(reduces)
{
    enum { RANKS = 5, EACH = 9000, SHARES = 4 };
    float *maxima[RANKS], *expected[RANKS];
    struct sw_share shares[SHARES];
    struct sw_share_member members[SHARES * RANKS];
    struct sw_maxima_program p = {.shares = shares, .members = members};
    struct sw_shares *s = NULL;
    uint64_t state = (uint64_t)_i, next[RANKS] = {0};

    for (int r = 0; r < RANKS; r++) {
        maxima[r] = malloc(EACH * sizeof(float));
        expected[r] = malloc(EACH * sizeof(float));
        for (int i = 0; i < EACH; i++)
            maxima[r][i] = expected[r][i] = (float)(random64(&state) % 1000) / 7;
    }
    for (uint32_t i = 0; i < SHARES; i++, p.n_shares++) {
        shares[i] =
            (struct sw_share){.count = 1 + random64(&state) % 2200, .first_member = p.n_members};
        for (uint32_t r = 0; r < RANKS; r++)
            if (r == i || random64(&state) % 3) {
                members[p.n_members++] = (struct sw_share_member){r, next[r]};
                next[r] += shares[i].count;
                shares[i].n_members++;
            }
        for (uint64_t k = 0; k < shares[i].count; k++) {
            float most = 0;

            for (uint32_t m = shares[i].first_member; m < p.n_members; m++)
                if (maxima[members[m].rank][members[m].first + k] > most)
                    most = maxima[members[m].rank][members[m].first + k];
            for (uint32_t m = shares[i].first_member; m < p.n_members; m++)
                expected[members[m].rank][members[m].first + k] = most;
        }
    }
    p.total_shares = p.n_shares;
    p.total_members = p.n_members;
    ck_assert_int_eq(sw_shares_add(&s, &p, &e), 0);
    ck_assert(sw_shares_whole(s));
    ck_assert_uint_ge(sw_shares_ranks(s), SHARES);
    for (int again = 0; again < 2; again++) {
        sw_shares_reduce(s, maxima);
        for (int r = 0; r < RANKS; r++)
            ck_assert_mem_eq(maxima[r], expected[r], EACH * sizeof(float));
    }
    for (int r = 0; r < RANKS; r++) {
        free(maxima[r]);
        free(expected[r]);
    }
    sw_shares_release(s);
}
END_TEST

static uint64_t thousand(uint32_t rank, void *arg)
{
    (void)arg;
    return rank < 2 ? 1000 : 0;
}

START_TEST(parts_and_limits)
{
    struct sw_share shares[2] = {{10, 0, 2}, {5, 2, 2}};
    struct sw_share_member members[4] = {{0, 0}, {1, 0}, {0, 10}, {1, 995}};
    struct sw_maxima_program one = {.layout_epoch = 7,
                                 .total_shares = 2,
                                 .total_members = 4,
                                 .n_shares = 2,
                                 .shares = shares,
                                 .n_members = 1,
                                 .members = members},
                             two = one;
    struct sw_shares *s = NULL, *held;

    two.n_shares = 0;
    two.first_share = 2;
    two.first_member = 1;
    two.n_members = 3;
    two.members = members + 1;
    ck_assert_int_eq(sw_shares_add(&s, &two, &e), SW_ERR_PROTOCOL);
    said("no start");
    ck_assert(!sw_shares_whole(NULL));
    ck_assert_int_eq(sw_shares_add(&s, &one, &e), 0);
    ck_assert(!sw_shares_whole(s));
    ck_assert_uint_eq(sw_shares_epoch(s), 7);
    held = sw_shares_hold(s);
    ck_assert_int_eq(sw_shares_add(&s, &two, &e), 0);
    ck_assert(sw_shares_whole(s));
    ck_assert_int_eq(sw_shares_check(s, thousand, NULL, &e), 0);
    ck_assert_int_eq(sw_shares_add(&s, &two, &e), SW_ERR_PROTOCOL);
    said("goes on after its end");
    ck_assert_ptr_null(s);
    ck_assert(sw_shares_whole(held)); /* who holds it keeps it */
    sw_shares_release(held);

    members[3].first = 996;
    ck_assert_int_eq(sw_shares_add(&s, &one, &e), 0);
    ck_assert_int_eq(sw_shares_add(&s, &two, &e), 0);
    ck_assert_int_eq(sw_shares_check(s, thousand, NULL, &e), SW_ERR_PROTOCOL);
    said("share 1 takes 5 maxima from 996 on of trainer rank 1, which has 1000");
    members[3] = (struct sw_share_member){2, 0};
    ck_assert_int_eq(sw_shares_add(&s, &one, &e), 0);
    ck_assert_int_eq(sw_shares_add(&s, &two, &e), 0);
    ck_assert_int_eq(sw_shares_check(s, thousand, NULL, &e), SW_ERR_PROTOCOL);
    said("rank 2, which has 0");
    sw_shares_release(s);
}
END_TEST

START_TEST(parts_that_do_not_join)
{
    struct sw_share shares[2] = {{10, 0, 2}, {5, 2, 2}};
    struct sw_share_member members[4] = {{0, 0}, {1, 0}, {0, 10}, {1, 10}};
    struct sw_maxima_program p = {.total_shares = 2,
        .total_members = 4,
        .n_shares = 2,
        .shares = shares,
        .n_members = 4,
        .members = members};
    struct sw_shares *s = NULL;

    switch (_i) {
    case 0:
        p.n_members = 5;
        break;
    case 1:
        p.n_shares = 1; /* members before the last share */
        break;
    case 2:
        shares[1].first_member = 3;
        break;
    case 3:
        shares[0].count = 0;
        break;
    case 4:
        shares[0].n_members = 0;
        break;
    case 5:
        p.n_shares = p.n_members = 0;
        break;
    case 6:
        p.total_members = SW_EXTENTS_MAX + 1;
        break;
    case 7:
        members[3].rank = SW_WORLD_MAX;
        break;
    default:
        p.first_share = 1;
        p.n_shares = 1;
        break;
    }
    ck_assert_int_eq(sw_shares_add(&s, &p, &e), SW_ERR_PROTOCOL);
    ck_assert_ptr_null(s);
}
END_TEST

/* ---- the machine ---- */

#define TWO                                                                                        \
    {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/2", "c<TRAINER_OPEN 0/2"},                     \
        {"1 sources 0+2/2", "c<SOURCES 0 0+2"}, {"co sources_done 0", "s1<SOURCES_DONE 0"},        \
        {"up 2", ""}, {"2 open 1/2", "c<TRAINER_OPEN 1/2"},                                        \
        {"2 sources 0+2/2", "c<SOURCES 1 0+2"}, {"co sources_done 1", "s2<SOURCES_DONE 1"},        \
        {"1 begin 1", "c<BEGIN 0 v1"},                                                             \
    {                                                                                              \
        "2 begin 1", "c<BEGIN 1 v1"                                                                \
    }
#define PLANNED                                                                                    \
    TWO, {"co maxima 2 e1 2000", ""},                                                              \
        {"co program 0 e1 8192 m2000",                                                             \
            "alloc 0.0 g1 8192 maxima 8192; alloc 0.1 g2 8192 maxima 8192"},                       \
        {"co program 1 e1 8192 m3000",                                                             \
            "alloc 1.0 g3 8192 maxima 12288; alloc 1.1 g4 8192 maxima 12288"},                     \
        {"done 0.0 g1", ""}, {"done 0.1 g2", ""}, {"done 1.0 g3", ""},                             \
    {                                                                                              \
        "done 1.1 g4", "c<PLAN_DONE e1"                                                            \
    }
#define BEGUN                                                                                      \
    PLANNED,                                                                                       \
        {"co begin_done 0 v1 e1", "reset 0.0; s1<LOAD_PROGRAM; s1<BUFFER b0 g1; "                  \
                                  "s1<BEGIN_DONE 0 v1 b0"},                                        \
    {                                                                                              \
        "co begin_done 1 v1 e1", "reset 1.0; s2<LOAD_PROGRAM; s2<BUFFER b0 g3; "                   \
                                 "s2<BEGIN_DONE 1 v1 b0"                                           \
    }
#define REDUCED                                                                                    \
    BEGUN, {"1 maxima 1", ""}, {"2 maxima 1", "reduce g5 0.0 1.0"},                                \
    {                                                                                              \
        "reduced g5", "s2<MAXIMA_DONE 1 v1; s1<MAXIMA_DONE 0 v1"                                   \
    }

static struct talk t;

static void setup(void)
{
    talk_start(&t);
}

static void teardown(void)
{
    talk_end(&t);
}

static void told(const char *text)
{
    ck_assert_msg(strstr(t.text, text) != NULL, "\"%s\" lacks \"%s\"", t.text, text);
}

static void third_descriptor(const struct sw_host_action *a, void *arg)
{
    if (a->kind == SW_HOST_TO_SESSION && a->message->kind == SW_MSG_BUFFER)
        *(uint64_t *)arg = a->message->u.buffer.maxima_bytes;
}

START_TEST(whole_way)
{
    uint64_t bytes = 0;

    t.look = third_descriptor;
    t.arg = &bytes;
    RUN(&t, REDUCED, {"full 0.0", ""}, {"full 1.0", ""}, {"1 end 1", "c<END 0 v1 201"},
        {"2 end 1", "c<END 1 v1 201"}, {"co end_done 0 v1", "s1<END_DONE 0 v1"},
        {"co end_done 1 v1", "s2<END_DONE 1 v1"}, {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_uint_eq(bytes, 12288);
    ck_assert_int_eq(sw_host_maxima_buffer(t.host, 0), -1);
    /* the next version shares anew, in the other buffers */
    RUN(&t, {"1 begin 2", "c<BEGIN 0 v2"}, {"2 begin 2", "c<BEGIN 1 v2"},
        {"co begin_done 0 v2 e1", "reset 0.1; s1<BUFFER b1 g2; s1<BEGIN_DONE 0 v2 b1"},
        {"co begin_done 1 v2 e1", "reset 1.1; s2<BUFFER b1 g4; s2<BEGIN_DONE 1 v2 b1"},
        {"2 maxima 2", ""}, {"1 maxima 2", "reduce g6 0.1 1.1"},
        {"reduced g6", "s2<MAXIMA_DONE 1 v2; s1<MAXIMA_DONE 0 v2"},
        {"1 maxima 2", "s1<MAXIMA_DONE 0 v2"} /* again: there is nothing to wait for */);
}
END_TEST

START_TEST(out_of_turn)
{
    RUN(&t, PLANNED, {"1 maxima 1", "s1<MAXIMA_DONE 0 v1 !state"});
    told("is beginning");
    RUN(&t,
        {"co begin_done 0 v1 e1",
            "reset 0.0; s1<LOAD_PROGRAM; s1<BUFFER b0 g1; s1<BEGIN_DONE 0 v1 b0"},
        {"1 maxima 2", "s1<MAXIMA_DONE 0 v2 !state"}, {"full 0.0", ""},
        {"1 end 1", "s1<END_DONE 0 v1 !state"});
    told("has not sent MAXIMA");
    RUN(&t, {"1 maxima 1", ""}, {"1 maxima 1", "s1<MAXIMA_DONE 0 v1 !state"});
    told("is sharing");
    RUN(&t, {"1 end 1", "s1<END_DONE 0 v1 !state"}, {"reduced g1", ""});
}
END_TEST

/* The stage deadline: who shares is told for whom it waited; who was behind is dropped. */
START_TEST(names_who_is_missing)
{
    RUN(&t, BEGUN, {"2 maxima 1", ""},
        {"co abort 99 v1", "s2<MAXIMA_DONE 1 v1 !aborted; s1<ABORT 0 v1; drop 1"});
    RUN(&t, {"down 1", "c<RANK_GONE 0"}, {"2 begin 2", "c<BEGIN 1 v2"});
}
END_TEST

static void keep_reason(const struct sw_host_action *a, void *arg)
{
    if (a->kind == SW_HOST_TO_SESSION && a->message->kind == SW_MSG_MAXIMA_DONE)
        snprintf(arg, 200, "%s", a->message->u.rank_reply.error.reason);
}

START_TEST(reasons)
{
    char reason[200] = "";

    t.look = keep_reason;
    t.arg = reason;
    RUN(&t, BEGUN, {"2 maxima 1", ""},
        {"co abort 0 v1", "s2<MAXIMA_DONE 1 v1 !aborted; s1<ABORT 0 v1"});
    ck_assert_msg(
        strstr(reason, "because (what it waited for: block maxima of trainer rank 0)") != NULL,
        "%s", reason);
}
END_TEST

/* A rank that leaves or gives up: its version is aborted, and the others wait for that. */
START_TEST(leaves)
{
    RUN(&t, BEGUN, {"1 maxima 1", ""});
    if (_i == 0)
        RUN(&t, {"down 1", "c<ABORT 0 v1; c<RANK_GONE 0"});
    else
        RUN(&t, {"1 abort 1", "c<ABORT 0 v1"});
    RUN(&t, {"2 maxima 1", ""}, {"co abort 0 v1", "s2<MAXIMA_DONE 1 v1 !aborted"});
    told("trainer rank 0)");
}
END_TEST

/* The version is over while a worker reduces: its answer is late, and the next begin does not stage
 * where it may still write. */
START_TEST(aborted_while_reducing)
{
    RUN(&t, BEGUN, {"1 maxima 1", ""}, {"2 maxima 1", "reduce g5 0.0 1.0"}, {"busy 0.0 1", ""},
        {"busy 1.0 1", ""}, {"1 abort 1", "c<ABORT 0 v1"},
        {"co abort 0 v1", "s2<MAXIMA_DONE 1 v1 !aborted"}, {"2 abort 1", "c<ABORT 1 v1"},
        {"1 begin 2", "c<BEGIN 0 v2"}, {"2 begin 2", "c<BEGIN 1 v2"},
        {"co begin_done 0 v2 e1", "alloc 0.0 g6 8192 maxima 8192"}, {"reduced g5", ""},
        {"done 0.0 g6", "reset 0.0; s1<BUFFER b0 g6; s1<BEGIN_DONE 0 v2 b0"});
}
END_TEST

START_TEST(reduction_fails)
{
    RUN(&t, BEGUN, {"1 maxima 1", ""}, {"2 maxima 1", "reduce g5 0.0 1.0"}, {"reduced g4", ""},
        {"reduced g5 !", "s2<MAXIMA_DONE 1 v1 !no memory; s1<MAXIMA_DONE 0 v1 !no memory"});
    told("no memory for it");
    RUN(&t, {"1 end 1", "s1<END_DONE 0 v1 !state"}, {"1 maxima 1", ""},
        {"2 maxima 1", "reduce g6 0.0 1.0"},
        {"reduced g6", "s2<MAXIMA_DONE 1 v1; s1<MAXIMA_DONE 0 v1"});
}
END_TEST

START_TEST(coordinator_lost)
{
    RUN(&t, BEGUN, {"1 maxima 1", ""}, {"co down", "s2<ABORT 1 v1; s1<MAXIMA_DONE 0 v1 !aborted"},
        {"reduced g5", ""},
        {"co up", "c<MEMBER; c<TRAINER_OPEN 1/2; c<SOURCES 1 0+2; c<TRAINER_OPEN 0/2; "
                  "c<SOURCES 0 0+2"});
}
END_TEST

START_TEST(new_layout_meanwhile)
{
    RUN(&t, BEGUN, {"1 maxima 1", ""}, {"co maxima 2 e2 10", ""},
        {"2 maxima 1", "s2<MAXIMA_DONE 1 v1 !state"},
        {"co program 0 e2 8192 m10", "s1<MAXIMA_DONE 0 v1 !aborted"},
        {"co program 1 e2 8192 m10", "s2<ABORT 1 v1; c<PLAN_DONE e2"});
}
END_TEST

/* ---- plans that are refused ---- */

START_TEST(no_maxima_program)
{
    RUN(&t, TWO,
        {"co program 0 e1 8192 m2000",
            "alloc 0.0 g1 8192 maxima 8192; alloc 0.1 g2 8192 maxima 8192"},
        {"co program 1 e1", "alloc 1.0 g3 8192; alloc 1.1 g4 8192"}, {"done 0.0 g1", ""},
        {"done 0.1 g2", ""}, {"done 1.0 g3", ""}, {"done 1.1 g4", "c<PLAN_DONE e1 !protocol"});
    told("no whole maxima program");
}
END_TEST

START_TEST(maxima_beyond_the_rank)
{
    RUN(&t, TWO, {"co maxima 2 e1 2001", ""},
        {"co program 0 e1 8192 m2000",
            "alloc 0.0 g1 8192 maxima 8192; alloc 0.1 g2 8192 maxima 8192"},
        {"co program 1 e1 8192 m2001",
            "alloc 1.0 g3 8192 maxima 8192; alloc 1.1 g4 8192 maxima 8192"},
        {"done 0.0 g1", ""}, {"done 0.1 g2", ""}, {"done 1.0 g3", ""},
        {"done 1.1 g4", "c<PLAN_DONE e1 !protocol"});
    told("2001 maxima from 0 on of trainer rank 0, which has 2000");
}
END_TEST

START_TEST(broken_maxima_program)
{
    struct sw_msg *m = talk_maxima(1, 2, 10);

    RUN(&t, TWO);
    m->u.maxima_program.n_members = 3;
    talk_message(&t, 0, m);
    ck_assert_str_eq(t.actions, "c<PLAN_DONE e1 !protocol");
    m = talk_maxima(1, 2, 10); /* the rest of it */
    m->u.maxima_program.first_share = 1;
    m->u.maxima_program.n_shares = 0;
    talk_message(&t, 0, m);
    ck_assert_str_eq(t.actions, "");
}
END_TEST

/* Buffers are kept over plans while their maxima fit, too. */
START_TEST(buffers_grow)
{
    RUN(&t, PLANNED, {"co maxima 2 e2 2000", ""}, {"co program 0 e2 8192 m2048", ""},
        {"co program 1 e2 8192 m3000", "c<PLAN_DONE e2"}, {"co maxima 2 e3 2000", ""},
        {"co program 0 e3 8192 m2049",
            "alloc 0.0 g5 8192 maxima 12288; alloc 0.1 g6 8192 maxima 12288"});
}
END_TEST

int main(void)
{
    Suite *s = suite_create("maxima");
    TCase *c = tcase_create("shares");
    SRunner *r;
    int failed;

    tcase_add_loop_test(c, reduces, 0, 20);
    tcase_add_test(c, parts_and_limits);
    tcase_add_loop_test(c, parts_that_do_not_join, 0, 9);
    suite_add_tcase(s, c);
    c = tcase_create("machine");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, whole_way);
    tcase_add_test(c, out_of_turn);
    tcase_add_test(c, names_who_is_missing);
    tcase_add_test(c, reasons);
    tcase_add_loop_test(c, leaves, 0, 2);
    tcase_add_test(c, aborted_while_reducing);
    tcase_add_test(c, reduction_fails);
    tcase_add_test(c, coordinator_lost);
    tcase_add_test(c, new_layout_meanwhile);
    tcase_add_test(c, no_maxima_program);
    tcase_add_test(c, maxima_beyond_the_rank);
    tcase_add_test(c, broken_maxima_program);
    tcase_add_test(c, buffers_grow);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
