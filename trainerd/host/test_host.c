/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/host/talk.h"

#define RUN(t, ...)                                                                                \
    do {                                                                                           \
        static const struct talk_step steps[] = {__VA_ARGS__};                                     \
        talk_run(t, steps, sizeof(steps) / sizeof(steps[0]));                                      \
    } while (0)

/* Where conversations start from. */
#define DECLARED                                                                                   \
    {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/1", "c<TRAINER_OPEN 0/1"},                     \
        {"1 sources 0+2/2", "c<SOURCES 0 0+2"},                                                    \
    {                                                                                              \
        "co sources_done 0", "s1<SOURCES_DONE 0"                                                   \
    }
#define GRANTED "reset 0.0; s1<LOAD_PROGRAM; s1<BUFFER b0 g1; s1<BEGIN_DONE 0 v1 b0"
#define PLANNED                                                                                    \
    DECLARED, {"1 begin 1", "c<BEGIN 0 v1"},                                                       \
        {"co program 0 e1", "alloc 0.0 g1 8192; alloc 0.1 g2 8192"}, {"done 0.0 g1", ""},          \
    {                                                                                              \
        "done 0.1 g2", "c<PLAN_DONE e1"                                                            \
    }
#define BEGUN                                                                                      \
    PLANNED,                                                                                       \
    {                                                                                              \
        "co begin_done 0 v1 e1", GRANTED                                                           \
    }
#define STAGED                                                                                     \
    BEGUN, {"full 0.0", ""}, {"1 end 1", "c<END 0 v1 201"},                                        \
    {                                                                                              \
        "co end_done 0 v1", "s1<END_DONE 0 v1"                                                     \
    }
#define LIVE                                                                                       \
    STAGED,                                                                                        \
    {                                                                                              \
        "co connect 0 v1 e1", "w<CONNECT"                                                          \
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

START_TEST(test_happy)
{
    RUN(&t, LIVE);
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 2), -1);
    RUN(&t, {"1 begin 2", "c<BEGIN 0 v2"},
        {"co begin_done 0 v2 e1", "reset 0.1; s1<BUFFER b1 g2; s1<BEGIN_DONE 0 v2 b1"},
        {"full 0.1", ""}, {"1 end 2", "c<END 0 v2 201"}, {"co end_done 0 v2", "s1<END_DONE 0 v2"},
        {"co connect 0 v2 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 2), 1);
    /* Both buffers and the program are known to this process: nothing is sent twice. */
    RUN(&t, {"1 begin 3", "c<BEGIN 0 v3"},
        {"co begin_done 0 v3 e1", "reset 0.0; s1<BEGIN_DONE 0 v3 b0"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 2), 1);
    ck_assert(sw_host_awaits_death(t.host, 1));
}
END_TEST

START_TEST(test_open_refusals)
{
    RUN(&t, DECLARED, {"up 2", ""}, {"2 open 1/1", "s2<ERROR !invalid; drop 2"}, {"down 2", ""},
        {"up 3", ""}, {"3 open 0/0", "s3<ERROR !invalid; drop 3"}, {"down 3", ""}, {"up 4", ""},
        {"4 open 0/1", "s4<ERROR !exists; drop 4"}, {"down 4", ""});
    RUN(&t, {"up 5", ""}, {"5 open 0/1", "s5<ERROR !exists; drop 5"});
    ck_assert_ptr_nonnull(strstr(t.text, "process 1001"));
    RUN(&t, {"down 5", ""}, {"up 6", ""}, {"6 open 0/2", "s6<ERROR !exists; drop 6"},
        {"down 6", ""}, {"up 7", ""}, {"7 open 1/2", "s7<ERROR !exists; drop 7"});
    ck_assert_ptr_nonnull(strstr(t.text, "world of 1"));
    RUN(&t, {"1 open 0/1", "s1<ERROR !invalid; drop 1"});
}
END_TEST

START_TEST(test_out_of_turn)
{
    RUN(&t, {"up 1", ""}, {"1 begin 1", "s1<ERROR !protocol; drop 1"}, {"down 1", ""},
        {"client 2", ""}, {"2 open 0/1", "s2<ERROR !protocol; drop 2"}, {"down 2", ""},
        {"up 3", ""}, {"3 open 0/1", ""}, {"3 phase", "s3<ERROR !protocol; drop 3"}, {"down 3", ""},
        {"9 begin 1", ""} /* nobody */);
    RUN(&t, {"co up", "c<MEMBER"}, {"up 4", ""}, {"4 open 0/1", "c<TRAINER_OPEN 0/1"},
        {"4 begin 1", "s4<BEGIN_DONE 0 v1 !state"}, {"4 end 1", "s4<END_DONE 0 v1 !state"},
        {"4 sources 0+2/2", "c<SOURCES 0 0+2"}, {"4 begin 1", "s4<BEGIN_DONE 0 v1 !state"},
        {"co sources_done 0", "s4<SOURCES_DONE 0"}, {"4 begin 1", "c<BEGIN 0 v1"},
        {"4 begin 1", "s4<BEGIN_DONE 0 v1 !state"}, {"4 sources 0+2/2", "s4<SOURCES_DONE 0 !state"},
        {"4 sources 1+1/2", ""}, {"4 end 1", "s4<END_DONE 0 v1 !state"});
}
END_TEST

START_TEST(test_wrong_end)
{
    RUN(&t, BEGUN, {"1 end 2", "s1<END_DONE 0 v2 !state"}, {"full 0.0", ""},
        {"1 end 1", "c<END 0 v1 201"}, {"1 end 1", "s1<END_DONE 0 v1 !state"});
    ck_assert_ptr_nonnull(strstr(t.text, "ended"));
    RUN(&t, {"co end_done 0 v2", ""}, {"co end_done 0 v1", "s1<END_DONE 0 v1"});
}
END_TEST

START_TEST(test_manifest_parts)
{
    RUN(&t, {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/1", "c<TRAINER_OPEN 0/1"},
        {"1 sources 0+2/5", ""}, {"1 sources 2+2/5", ""},
        {"1 sources 4+1/5", "c<SOURCES 0 0+2; c<SOURCES 0 2+2; c<SOURCES 0 4+1"},
        {"co sources_done 0 !", "s1<SOURCES_DONE 0 !aborted"});
    /* What was refused is not told to another coordinator. */
    RUN(&t, {"co down", ""}, {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1"});
    /* Anew from the first part, at any time. */
    RUN(&t, {"1 sources 0+1/5", ""}, {"1 sources 0+2/2", "c<SOURCES 0 0+2"},
        {"co sources_done 0", "s1<SOURCES_DONE 0"}, {"co sources_done 0", ""});
}
END_TEST

START_TEST(test_manifest_parts_that_do_not_join)
{
    static const char *const wrong[] = {
        "1 sources 3+1/5", "1 sources 1+1/5", "1 sources 2+1/6", "1 sources 2+0/5"};

    RUN(&t, {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/1", "c<TRAINER_OPEN 0/1"},
        {"1 sources 0+2/5", ""});
    talk_say(&t, wrong[_i]);
    ck_assert_str_eq(t.actions, "s1<ERROR !protocol; drop 1");
    RUN(&t, {"down 1", "c<RANK_GONE 0"}, {"co down", ""}, {"co up", "c<MEMBER"});
}
END_TEST

START_TEST(test_manifest_deadline)
{
    RUN(&t, {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/1", "c<TRAINER_OPEN 0/1"},
        {"1 sources 0+2/5", ""}, {"time 29999", ""});
    ck_assert_uint_eq(sw_host_deadline(t.host), t.now + 1000000);
    RUN(&t, {"time 1", "s1<SOURCES_DONE 0 !timeout"}, {"1 sources 2+3/5", ""});
    ck_assert_uint_eq(sw_host_deadline(t.host), UINT64_MAX);
    RUN(&t, {"co down", ""}, {"1 sources 0+2/2", ""}, {"time 30000", "s1<SOURCES_DONE 0 !timeout"});
    ck_assert_ptr_nonnull(strstr(t.text, "coordinator"));
}
END_TEST

START_TEST(test_hostile_parts)
{
    unsigned taken = 0;

    RUN(&t, {"up 1", ""}, {"1 open 0/1", ""});
    for (uint32_t i = 0; i < 1000; i++) {
        talk_message(&t, 1, talk_sources(i, 1, 1000));
        if (t.actions[0])
            break;
        taken++;
    }
    ck_assert_uint_lt(taken, 200);
    ck_assert_str_eq(t.actions, "s1<ERROR !protocol; drop 1");
}
END_TEST

START_TEST(test_host_tensor_limit)
{
    RUN(&t, {"up 1", ""}, {"1 open 0/3", ""}, {"up 2", ""}, {"2 open 1/3", ""});
    talk_message(&t, 1, talk_sources(0, 1, SW_HOST_TENSORS_MAX - 1));
    ck_assert_str_eq(t.actions, "");
    RUN(&t, {"2 sources 0+1/2", "s2<SOURCES_DONE 1 !limit"}, {"2 sources 1+1/2", ""},
        {"2 sources 0+1/1", ""});
}
END_TEST

/* ---- programs ---- */

static void to_begin(void)
{
    RUN(&t, DECLARED, {"1 begin 1", "c<BEGIN 0 v1"});
}

START_TEST(test_program_in_parts)
{
    struct sw_msg *a = talk_program(0, 1, 8192), *b = talk_program(0, 1, 8192);

    to_begin();
    a->u.load_program.n_tiles = 1;
    b->u.load_program.first_tile = 1;
    b->u.load_program.n_tiles = 1;
    b->u.load_program.first_load = 2;
    b->u.load_program.n_loads = 0;
    talk_message(&t, 0, a);
    ck_assert_str_eq(t.actions, "");
    talk_message(&t, 0, b);
    ck_assert_str_eq(t.actions, "alloc 0.0 g1 8192; alloc 0.1 g2 8192");
    RUN(&t, {"done 0.1 g2", ""}, {"done 0.0 g1", "c<PLAN_DONE e1"},
        {"co begin_done 0 v1 e1", "reset 0.0; s1<LOAD_PROGRAM; s1<LOAD_PROGRAM; s1<BUFFER b0 g1; "
                                  "s1<BEGIN_DONE 0 v1 b0"});
}
END_TEST

START_TEST(test_program_parts_that_do_not_join)
{
    struct sw_msg *a = talk_program(0, 1, 8192), *b = talk_program(0, 1, 8192);
    struct sw_load_program *p = &b->u.load_program;

    to_begin();
    a->u.load_program.n_tiles = 1;
    p->first_tile = p->n_tiles = 1;
    p->first_load = 2;
    p->n_loads = 0;
    switch (_i) {
    case 0:
        p->first_tile = 2;
        p->n_tiles = 0;
        break;
    case 1:
        p->first_load = 1;
        p->n_loads = 1;
        break;
    case 2:
        p->total_tiles = 3;
        break;
    case 3:
        p->layout_epoch = 2;
        break;
    case 4:
        p->replica_bytes++;
        break;
    case 5:
        p->n_tiles = 0;
        break;
    case 6:
        p->tiles[0].offset = UINT64_MAX - 5;
        break;
    }
    talk_message(&t, 0, a);
    talk_message(&t, 0, b);
    ck_assert_str_eq(t.actions, _i == 6   ? "c<PLAN_DONE e1 !plan"
                                : _i == 3 ? "c<PLAN_DONE e2 !protocol"
                                          : "c<PLAN_DONE e1 !protocol");
    /* The rest of it is not complained about again. */
    b = talk_program(0, _i == 3 ? 2 : 1, 8192);
    b->u.load_program.first_tile = 1;
    b->u.load_program.n_tiles = 1;
    talk_message(&t, 0, b);
    ck_assert_str_eq(t.actions, "");
    RUN(&t, {"co begin_done 0 v1 e1 !", "s1<BEGIN_DONE 0 v1 !aborted"},
        {"1 begin 2", "c<BEGIN 0 v2"}, {"co program 0 e3", "alloc 0.0 g1 8192; alloc 0.1 g2 8192"});
}
END_TEST

START_TEST(test_program_of_nobody)
{
    struct sw_msg *m = talk_program(0, 0, 8192);

    to_begin();
    RUN(&t, {"co program 3 e1", "c<PLAN_DONE e1 !not found"},
        {"co program 0 e2", "alloc 0.0 g1 8192; alloc 0.1 g2 8192"},
        {"co down", "s1<BEGIN_DONE 0 v1 !closed"},
        {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+2"});
    /* Not the rest of anything, though its epoch is that of no program. */
    m->u.load_program.first_tile = 2;
    m->u.load_program.total_tiles = 4;
    talk_message(&t, 0, m);
    ck_assert_int_eq(strncmp(t.actions, "alloc", 5) != 0, 1);
}
END_TEST

START_TEST(test_empty_program)
{
    struct sw_msg *m = talk_program(0, 1, 0);

    m->u.load_program.total_tiles = m->u.load_program.n_tiles = 0;
    m->u.load_program.total_loads = m->u.load_program.n_loads = 0;
    to_begin();
    talk_message(&t, 0, m);
    ck_assert_str_eq(t.actions, "alloc 0.0 g1 4096; alloc 0.1 g2 4096");
    RUN(&t, {"done 0.0 g1", ""}, {"done 0.1 g2", "c<PLAN_DONE e1"},
        {"co begin_done 0 v1 e1", GRANTED}, {"1 end 1", "c<END 0 v1 0"});
}
END_TEST

START_TEST(test_allocation_fails_in_plan)
{
    to_begin();
    RUN(&t, {"co program 0 e1", "alloc 0.0 g1 8192; alloc 0.1 g2 8192"},
        {"fail 0.0 g1", "c<PLAN_DONE e1 !no memory"}, {"done 0.1 g2", ""},
        {"co begin_done 0 v1 !", "s1<BEGIN_DONE 0 v1 !aborted"});
    ck_assert_uint_eq(t.logs, 1);
    /* The next plan asks for what is missing, and keeps what fits. */
    RUN(&t, {"1 begin 2", "c<BEGIN 0 v2"}, {"co program 0 e2", "alloc 0.0 g3 8192"},
        {"done 0.0 g3", "c<PLAN_DONE e2"});
}
END_TEST

START_TEST(test_buffers_kept_over_plans)
{
    RUN(&t, LIVE, {"1 begin 2", "c<BEGIN 0 v2"}, {"co program 0 e2 4000", "c<PLAN_DONE e2"},
        {"co begin_done 0 v2 e2", "reset 0.0; s1<LOAD_PROGRAM; s1<BEGIN_DONE 0 v2 b0"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
    RUN(&t, {"full 0.0", ""}, {"1 end 2", "c<END 0 v2 201"},
        {"co end_done 0 v2", "s1<END_DONE 0 v2"}, {"1 begin 3", "c<BEGIN 0 v3"},
        {"co program 0 e3 9000", "alloc 0.0 g3 12288; alloc 0.1 g4 12288"}, {"done 0.1 g2", ""},
        {"done 0.0 g3", ""}, {"done 0.1 g4", "c<PLAN_DONE e3"},
        {"co begin_done 0 v3 e3",
            "reset 0.0; s1<LOAD_PROGRAM; s1<BUFFER b0 g3; s1<BEGIN_DONE 0 v3 b0"});
}
END_TEST

START_TEST(test_wanted_buffers)
{
    RUN(&t, PLANNED);
    ck_assert(!sw_host_wants(t.host, 0, 0, 1)); /* has its place already */
    RUN(&t, {"co program 0 e3 9000", "alloc 0.0 g3 12288; alloc 0.1 g4 12288"});
    ck_assert(sw_host_wants(t.host, 0, 0, 3));
    ck_assert(!sw_host_wants(t.host, 0, 0, 1));
    ck_assert(!sw_host_wants(t.host, 0, 1, 3));
    ck_assert(!sw_host_wants(t.host, 1, 0, 3));
    ck_assert(!sw_host_wants(t.host, 0, 2, 3));
    RUN(&t, {"down 1", "c<RANK_GONE 0"}, {"up 2", ""},
        {"2 open 0/2", "release 0; c<TRAINER_OPEN 0/2"});
    ck_assert(!sw_host_wants(t.host, 0, 0, 3));
    RUN(&t, {"done 0.0 g3", ""});
}
END_TEST

/* A rank whose process has gone (and is now on another host) does not hold up the plan. */
START_TEST(test_plan_without_a_rank_that_left)
{
    RUN(&t, {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/2", "c<TRAINER_OPEN 0/2"},
        {"1 sources 0+2/2", "c<SOURCES 0 0+2"}, {"co sources_done 0", "s1<SOURCES_DONE 0"},
        {"up 2", ""}, {"2 open 1/2", "c<TRAINER_OPEN 1/2"}, {"2 sources 0+2/2", "c<SOURCES 1 0+2"},
        {"co sources_done 1", "s2<SOURCES_DONE 1"}, {"down 2", "c<RANK_GONE 1"},
        {"1 begin 1", "c<BEGIN 0 v1"}, {"co program 0 e1", "alloc 0.0 g1 8192; alloc 0.1 g2 8192"},
        {"done 0.0 g1", ""}, {"done 0.1 g2", "c<PLAN_DONE e1"});
}
END_TEST

START_TEST(test_plan_of_two_ranks)
{
    RUN(&t, {"co up", "c<MEMBER"}, {"up 1", ""}, {"1 open 0/2", "c<TRAINER_OPEN 0/2"},
        {"1 sources 0+2/2", "c<SOURCES 0 0+2"}, {"co sources_done 0", "s1<SOURCES_DONE 0"},
        {"up 2", ""}, {"2 open 1/2", "c<TRAINER_OPEN 1/2"}, {"2 sources 0+2/2", "c<SOURCES 1 0+2"},
        {"co sources_done 1", "s2<SOURCES_DONE 1"}, {"1 begin 1", "c<BEGIN 0 v1"},
        {"2 begin 1", "c<BEGIN 1 v1"}, {"co program 0 e1", "alloc 0.0 g1 8192; alloc 0.1 g2 8192"},
        {"done 0.0 g1", ""}, {"done 0.1 g2", ""},
        {"co program 1 e1", "alloc 1.0 g3 8192; alloc 1.1 g4 8192"}, {"done 1.0 g3", ""},
        {"done 1.1 g4", "c<PLAN_DONE e1"}, {"co begin_done 0 v1 e1", GRANTED},
        {"co begin_done 1 v1 e1",
            "reset 1.0; s2<LOAD_PROGRAM; s2<BUFFER b0 g3; s2<BEGIN_DONE 1 v1 b0"},
        {"full 0.0", ""}, {"full 1.0", ""}, {"1 end 1", "c<END 0 v1 201"},
        /* The stage deadline: only who has not ended is dropped. */
        {"co end_done 0 v1 !", "s1<END_DONE 0 v1 !aborted"},
        {"co abort 99 v1", "s2<ABORT 1 v1; drop 2"});
}
END_TEST

START_TEST(test_grant_of_another_epoch)
{
    RUN(&t, PLANNED, {"co begin_done 0 v1 e2", "c<ABORT 0 v1; s1<BEGIN_DONE 0 v1 !state"},
        {"1 begin 2", "c<BEGIN 0 v2"});
}
END_TEST

/* ---- unsafe buffers ---- */

START_TEST(test_late_writer)
{
    RUN(&t, BEGUN, {"down 1", "c<ABORT 0 v1; c<RANK_GONE 0"});
    ck_assert(sw_host_awaits_death(t.host, 1));
    RUN(&t, {"up 2", ""}, {"2 open 0/1", "c<TRAINER_OPEN 0/1"},
        {"2 sources 0+2/2", "c<SOURCES 0 0+2"}, {"co sources_done 0", "s2<SOURCES_DONE 0"},
        {"2 begin 2", "c<BEGIN 0 v2"}, {"co begin_done 0 v2 e1", "alloc 0.0 g3 8192"},
        {"2 begin 2", "s2<BEGIN_DONE 0 v2 !state"}, {"done 0.0 g1", ""});
    ck_assert(!sw_host_awaits_death(t.host, 1)); /* nobody uses what it writes to */
    RUN(&t, {"done 0.0 g3", "reset 0.0; s2<LOAD_PROGRAM; s2<BUFFER b0 g3; s2<BEGIN_DONE 0 v2 b0"});
}
END_TEST

START_TEST(test_late_writer_dies)
{
    RUN(&t, BEGUN, {"down 1", "c<ABORT 0 v1; c<RANK_GONE 0"}, {"died 1", ""}, {"up 2", ""},
        {"2 open 0/1", "c<TRAINER_OPEN 0/1"}, {"2 sources 0+2/2", "c<SOURCES 0 0+2"},
        {"co sources_done 0", "s2<SOURCES_DONE 0"}, {"2 begin 2", "c<BEGIN 0 v2"},
        {"co begin_done 0 v2 e1",
            "reset 0.0; s2<LOAD_PROGRAM; s2<BUFFER b0 g1; s2<BEGIN_DONE 0 v2 b0"});
}
END_TEST

START_TEST(test_who_says_abort_writes_no_more)
{
    RUN(&t, BEGUN, {"1 abort 1", "c<ABORT 0 v1"}, {"1 begin 2", "c<BEGIN 0 v2"},
        {"co begin_done 0 v2 e1", "reset 0.0; s1<BEGIN_DONE 0 v2 b0"},
        /* The version was lost with the coordinator; that the trainer begins says enough. */
        {"co down", "s1<ABORT 0 v2"}, {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+2"},
        {"1 begin 3", "c<BEGIN 0 v3"}, {"co program 0 e3", "c<PLAN_DONE e3"},
        {"co begin_done 0 v3 e3", "reset 0.0; s1<LOAD_PROGRAM; s1<BEGIN_DONE 0 v3 b0"},
        /* Out of turn it says nothing. */
        {"1 begin 4", "s1<BEGIN_DONE 0 v4 !state"});
    ck_assert(sw_host_awaits_death(t.host, 1));
}
END_TEST

START_TEST(test_busy_buffer_is_replaced)
{
    RUN(&t, LIVE, {"1 begin 2", "c<BEGIN 0 v2"}, {"busy 0.1 1", ""},
        {"co begin_done 0 v2 e1", "alloc 0.1 g3 8192"},
        {"done 0.1 g3", "reset 0.1; s1<BUFFER b1 g3; s1<BEGIN_DONE 0 v2 b1"}, {"full 0.1", ""},
        {"1 end 2", "c<END 0 v2 201"}, {"co end_done 0 v2", "s1<END_DONE 0 v2"},
        {"co connect 0 v2 e1", "w<CONNECT"}, {"busy 0.0 1", ""}, {"1 begin 3", "c<BEGIN 0 v3"},
        {"co begin_done 0 v3 e1", "alloc 0.0 g4 8192"},
        {"fail 0.0 g4", "c<ABORT 0 v3; s1<BEGIN_DONE 0 v3 !no memory"},
        {"1 begin 4", "c<BEGIN 0 v4"}, {"co begin_done 0 v4 e1", "alloc 0.0 g5 8192"},
        {"1 abort 4", "c<ABORT 0 v4; s1<BEGIN_DONE 0 v4 !aborted"}, {"done 0.0 g5", ""});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 2), 1);
}
END_TEST

START_TEST(test_leaves_while_preparing)
{
    RUN(&t, LIVE, {"1 begin 2", "c<BEGIN 0 v2"}, {"busy 0.1 1", ""},
        {"co begin_done 0 v2 e1", "alloc 0.1 g3 8192"}, {"down 1", "c<ABORT 0 v2; c<RANK_GONE 0"},
        {"done 0.1 g3", ""});
}
END_TEST

/* ---- draining ---- */

START_TEST(test_drain)
{
    RUN(&t, BEGUN, {"count 0.0 0 100", ""}, {"count 0.0 1 60", ""}, {"1 end 1", ""});
    ck_assert_uint_le(sw_host_deadline(t.host), t.now + 2000000);
    RUN(&t, {"time 4999", ""}, {"time 1", "s1<END_DONE 0 v1 !state"});
    ck_assert_ptr_nonnull(strstr(t.text, "1 of 2 tiles are not complete: t1 (60 of 101 bytes)"));
    ck_assert_uint_eq(sw_host_deadline(t.host), UINT64_MAX);
    RUN(&t, {"1 end 1", ""}, {"time 100", ""}, {"count 0.0 1 101", ""},
        {"time 1", "c<END 0 v1 201"}, {"co end_done 0 v1", "s1<END_DONE 0 v1"});
}
END_TEST

START_TEST(test_drain_without_a_buffer)
{
    RUN(&t, BEGUN, {"gone 0.0 1", ""}, {"1 end 1", ""}, {"time 5000", "s1<END_DONE 0 v1 !state"});
    ck_assert_ptr_nonnull(strstr(t.text, "gone"));
}
END_TEST

/* The coordinator misses digests: the version stays staging. */
START_TEST(test_end_again)
{
    RUN(&t, BEGUN, {"full 0.0", ""}, {"1 end 1", "c<END 0 v1 201"},
        {"co end_done 0 v1 !state", "s1<END_DONE 0 v1 !state"});
    ck_assert(sw_host_awaits_death(t.host, 1));
    RUN(&t, {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
    RUN(&t, {"1 end 1", "c<END 0 v1 201"}, {"co end_done 0 v1", "s1<END_DONE 0 v1"},
        {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
}
END_TEST

/* ---- who gives up, and when ---- */

START_TEST(test_coordinator_aborts)
{
    RUN(&t, BEGUN, {"co abort 3 v1", "s1<ABORT 0 v1"}, {"1 end 1", "s1<END_DONE 0 v1 !state"},
        {"1 abort 1", "c<ABORT 0 v1"}, {"1 begin 2", "c<BEGIN 0 v2"}, {"co abort 99 v2", ""},
        {"co begin_done 0 v2 e1", "reset 0.0; s1<BEGIN_DONE 0 v2 b0"}, {"1 end 2", ""},
        {"co abort 99 v2", "s1<END_DONE 0 v2 !aborted; drop 1"}, {"1 begin 3", "c<BEGIN 0 v3"},
        {"busy 0.0 1", ""}, {"co begin_done 0 v3 e1", "alloc 0.0 g3 8192"},
        {"co abort 99 v3", "s1<BEGIN_DONE 0 v3 !aborted"}, {"done 0.0 g3", ""},
        {"1 begin 4", "c<BEGIN 0 v4"},
        {"co begin_done 0 v4 e1", "reset 0.0; s1<BUFFER b0 g3; s1<BEGIN_DONE 0 v4 b0"},
        {"full 0.0", ""}, {"1 end 4", "c<END 0 v4 201"},
        {"co abort 99 v4", "s1<END_DONE 0 v4 !aborted"}, {"co end_done 0 v4", ""},
        {"co connect 0 v4 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 4), -1);
}
END_TEST

/* Alias digests differ, say: what was staged is not published any more. */
START_TEST(test_staged_version_aborted)
{
    RUN(&t, STAGED, {"co abort 99 v1", ""}, {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
}
END_TEST

START_TEST(test_trainer_aborts)
{
    RUN(&t, STAGED, {"1 abort 1", "c<ABORT 0 v1"}, {"1 abort 9", ""},
        {"co connect 0 v1 e1", "w<CONNECT"});
    /* The coordinator was publishing already. */
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
    RUN(&t, {"1 begin 2", "c<BEGIN 0 v2"},
        {"1 abort 2", "c<ABORT 0 v2; s1<BEGIN_DONE 0 v2 !aborted"}, {"co begin_done 0 v2 !", ""},
        {"1 begin 3", "c<BEGIN 0 v3"}, {"1 abort 2", ""},
        {"co begin_done 0 v3 e1", "reset 0.1; s1<BUFFER b1 g2; s1<BEGIN_DONE 0 v3 b1"},
        {"1 end 3", ""}, {"1 abort 3", "c<ABORT 0 v3"}, {"time 6000", ""},
        {"1 begin 4", "c<BEGIN 0 v4"},
        {"co begin_done 0 v4 e1", "reset 0.1; s1<BEGIN_DONE 0 v4 b1"}, {"full 0.1", ""},
        {"1 end 4", "c<END 0 v4 201"}, {"1 abort 4", "c<ABORT 0 v4"}, {"co end_done 0 v4", ""});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
}
END_TEST

/* A begin that is given up and asked for again gets its own answer. */
START_TEST(test_same_begin_again)
{
    RUN(&t, DECLARED, {"1 begin 1", "c<BEGIN 0 v1"},
        {"1 abort 1", "c<ABORT 0 v1; s1<BEGIN_DONE 0 v1 !aborted"}, {"1 begin 1", "c<BEGIN 0 v1"},
        {"1 abort 1", "c<ABORT 0 v1; s1<BEGIN_DONE 0 v1 !aborted"}, {"1 begin 1", "c<BEGIN 0 v1"},
        {"co begin_done 0 v1 !", ""}, {"co begin_done 0 v1 !", ""},
        {"co begin_done 0 v1 !", "s1<BEGIN_DONE 0 v1 !aborted"}, {"1 begin 2", "c<BEGIN 0 v2"},
        {"1 abort 2", "c<ABORT 0 v2; s1<BEGIN_DONE 0 v2 !aborted"}, {"1 begin 3", "c<BEGIN 0 v3"},
        {"co begin_done 0 v2 e1", "c<ABORT 0 v2"},
        {"co begin_done 0 v3 !", "s1<BEGIN_DONE 0 v3 !aborted"});
    /* who asks for the next version has no number to know the late answer by */
    RUN(&t, {"1 begin 0", "c<BEGIN 0 v0"}, {"1 abort 0", "c<ABORT 0 v0; s1<BEGIN_DONE 0 !aborted"},
        {"1 begin 0", "c<BEGIN 0 v0"}, {"co begin_done 0 v4 !", ""},
        {"co begin_done 0 v4 !", "s1<BEGIN_DONE 0 v4 !aborted"});
}
END_TEST

START_TEST(test_trainer_leaves)
{
    static const struct {
        const char *say[4], *down;
    } cases[] = {
        {{"1 sources 0+1/2"}, "c<RANK_GONE 0"},
        {{"1 begin 2"}, "c<RANK_GONE 0"},
        {{"1 begin 2", "co begin_done 0 v2 e1"}, "c<ABORT 0 v2; c<RANK_GONE 0"},
        {{"1 begin 2", "co begin_done 0 v2 e1", "1 end 2"}, "c<ABORT 0 v2; c<RANK_GONE 0"},
        {{"1 begin 2", "co begin_done 0 v2 e1", "full 0.1", "1 end 2"}, "c<RANK_GONE 0"},
    };

    RUN(&t, LIVE);
    for (unsigned i = 0; i < 4 && cases[_i].say[i]; i++)
        talk_say(&t, cases[_i].say[i]);
    talk_say(&t, "down 1");
    ck_assert_str_eq(t.actions, cases[_i].down);
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
    RUN(&t, {"co end_done 0 v2", ""}, {"co connect 0 v2 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 2), _i == 4 ? 1 : -1);
    /* A grant that was on its way must not keep the others waiting. */
    RUN(&t, {"co begin_done 0 v3 e1", "c<ABORT 0 v3"}, {"co begin_done 0 v3 !", ""},
        {"co begin_done 3 v3 e1", "c<ABORT 3 v3"});
}
END_TEST

/* A begin that fails, or whose trainer leaves, costs nothing that was staged before. */
START_TEST(test_staged_version_survives_a_begin)
{
    RUN(&t, STAGED, {"1 begin 2", "c<BEGIN 0 v2"},
        {"1 abort 2", "c<ABORT 0 v2; s1<BEGIN_DONE 0 v2 !aborted"}, {"co begin_done 0 v2 !", ""},
        {"1 begin 3", "c<BEGIN 0 v3"}, {"down 1", "c<RANK_GONE 0"},
        {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
}
END_TEST

START_TEST(test_dead_process_with_open_connection)
{
    RUN(&t, BEGUN, {"died 1", ""}, {"full 0.0", ""}, {"1 end 1", "c<END 0 v1 201"},
        {"time 199", ""}, {"time 1", "c<RANK_GONE 0; drop 1"});
    ck_assert_uint_eq(sw_host_deadline(t.host), UINT64_MAX);
    RUN(&t, {"down 1", ""});
}
END_TEST

START_TEST(test_dead_process_gives_way)
{
    RUN(&t, BEGUN, {"died 1", ""}, {"died 1", ""}, {"up 2", ""},
        {"2 open 0/1", "c<ABORT 0 v1; c<RANK_GONE 0; drop 1; c<TRAINER_OPEN 0/1"},
        {"1 begin 9", "s1<ERROR !protocol; drop 1"}, {"time 500", ""}, {"down 1", ""},
        {"died 7", ""});
}
END_TEST

/* ---- the coordinator comes and goes ---- */

START_TEST(test_coordinator_lost)
{
    static const struct {
        const char *say[3], *down;
    } cases[] = {
        {{"1 begin 2"}, "s1<BEGIN_DONE 0 v2 !closed"},
        {{"1 begin 2", "busy 0.1 1", "co begin_done 0 v2 e1"}, "s1<BEGIN_DONE 0 v2 !closed"},
        {{"1 begin 2", "co begin_done 0 v2 e1"}, "s1<ABORT 0 v2"},
        {{"1 begin 2", "co begin_done 0 v2 e1", "1 end 2"}, "s1<END_DONE 0 v2 !aborted"},
        {{NULL}, ""},
    };

    RUN(&t, LIVE);
    for (unsigned i = 0; i < 3 && cases[_i].say[i]; i++)
        talk_say(&t, cases[_i].say[i]);
    talk_say(&t, "co down");
    ck_assert_str_eq(t.actions, cases[_i].down);
    RUN(&t, {"co down", ""}, {"1 begin 3", "s1<BEGIN_DONE 0 v3 !closed"},
        {"co begin_done 0 v3 e1", ""} /* nobody is there to say it */,
        {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+2"}, {"co sources_done 0", ""},
        {"1 begin 3", "c<BEGIN 0 v3"},
        /* The program of the old epoch is forgotten, whatever its number. */
        {"co begin_done 0 v3 e1", "c<ABORT 0 v3; s1<BEGIN_DONE 0 v3 !state"});
}
END_TEST

START_TEST(test_coordinator_lost_when_ended)
{
    RUN(&t, BEGUN, {"full 0.0", ""}, {"1 end 1", "c<END 0 v1 201"},
        {"co down", "s1<END_DONE 0 v1 !aborted"},
        {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+2"},
        {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
}
END_TEST

START_TEST(test_program_sent_again)
{
    RUN(&t, STAGED, {"co down", ""}, {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+2"},
        {"1 begin 2", "c<BEGIN 0 v2"}, {"co program 0 e1", "c<PLAN_DONE e1"},
        {"co begin_done 0 v2 e1", "reset 0.0; s1<LOAD_PROGRAM; s1<BEGIN_DONE 0 v2 b0"});
}
END_TEST

START_TEST(test_declares_without_a_coordinator)
{
    RUN(&t, {"up 1", ""}, {"1 open 0/1", ""}, {"1 sources 0+1/2", ""}, {"1 sources 1+1/2", ""},
        {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+1; c<SOURCES 0 1+1"},
        {"co sources_done 0", "s1<SOURCES_DONE 0"}, {"down 1", "c<RANK_GONE 0"}, {"co down", ""},
        {"co up", "c<MEMBER; c<TRAINER_OPEN 0/1; c<SOURCES 0 0+1; c<SOURCES 0 1+1; c<RANK_GONE 0"});
}
END_TEST

START_TEST(test_new_layout_while_staging)
{
    static const char *const before[] = {"1 abort 9", "1 end 1", "full 0.0"};
    static const char *const after[] = {"s1<ABORT 0 v1; c<PLAN_DONE e5",
        "s1<END_DONE 0 v1 !aborted; c<PLAN_DONE e5", "s1<END_DONE 0 v1 !aborted; c<PLAN_DONE e5"};

    RUN(&t, BEGUN);
    talk_say(&t, before[_i]);
    if (_i == 2)
        talk_say(&t, "1 end 1");
    talk_say(&t, "co program 0 e5");
    ck_assert_str_eq(t.actions, after[_i]);
    RUN(&t, {"co connect 0 v1 e5", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
}
END_TEST

START_TEST(test_unexpected_from_the_coordinator)
{
    RUN(&t, {"co up", "c<MEMBER"}, {"co member 0", ""}, {"co write 0", "w<WRITE"},
        {"co targets 0", "w<TARGETS"}, {"co write_program 0", "w<WRITE_PROGRAM"},
        {"co update_end 0", "w<UPDATE_END"}, {"co sources_done 3", ""}, {"co end_done 3 v1", ""},
        {"co abort 99 v3", ""}, {"co result 17", ""});
    ck_assert_uint_eq(t.logs, 1);
}
END_TEST

/* ---- publish ---- */

START_TEST(test_publish)
{
    RUN(&t, {"client 1", ""}, {"1 publish q7 v3", "s1<RESULT q7 !closed"}, {"co up", "c<MEMBER"},
        {"1 publish q7 v3", "c<PUBLISH q1 v3"}, {"client 2", ""},
        {"2 publish q7 v0", "c<PUBLISH q2 v0"}, {"up 3", ""},
        {"3 publish q9 v3", "c<PUBLISH q3 v3"}, {"co result 2", "s2<RESULT q7"},
        {"co result 2", ""}, {"down 1", ""}, {"co result 1", ""},
        {"co result 3 !", "s3<RESULT q9 !aborted"}, {"2 publish q8 v4", "c<PUBLISH q4 v4"},
        {"co down", "s2<RESULT q8 !closed"}, {"co up", "c<MEMBER"}, {"co result 4", ""});
}
END_TEST

/* Also those whose asker has left count: the coordinator keeps them. */
START_TEST(test_publish_limit)
{
    char event[32];

    RUN(&t, {"co up", "c<MEMBER"});
    for (unsigned i = 1; i <= 4096; i++) {
        talk_say(&t, "client 1");
        snprintf(event, sizeof(event), "1 publish q%u v1", i);
        talk_say(&t, event);
        ck_assert_int_eq(strncmp(t.actions, "c<PUBLISH", 9), 0);
        talk_say(&t, "down 1");
    }
    RUN(&t, {"client 2", ""}, {"2 publish q1 v1", "s2<RESULT q1 !limit"}, {"co result 5", ""},
        {"2 publish q1 v1", "c<PUBLISH q4097 v1"});
}
END_TEST

/* ---- flip ---- */

START_TEST(test_flip)
{
    RUN(&t, BEGUN, {"co connect 0 v1 e1", "w<CONNECT"}); /* not whole */
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
    RUN(&t, {"full 0.0", ""}, {"died 1", ""}, {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1); /* nobody writes, still not whole */
    RUN(&t, {"1 end 1", "c<END 0 v1 201"}, {"co connect 0 v1 e9", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1); /* another layout */
    RUN(&t, {"co connect 0 v1 e1", "w<CONNECT"}, {"co connect 0 v1 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 0), -1);
    ck_assert_int_eq(sw_host_live_buffer(t.host, 1, 1), -1);
}
END_TEST

/* The newest begin wins; what was staged and not published goes. */
START_TEST(test_latest_wins)
{
    RUN(&t, LIVE, {"1 begin 2", "c<BEGIN 0 v2"},
        {"co begin_done 0 v2 e1", "reset 0.1; s1<BUFFER b1 g2; s1<BEGIN_DONE 0 v2 b1"},
        {"full 0.1", ""}, {"1 end 2", "c<END 0 v2 201"}, {"co end_done 0 v2", "s1<END_DONE 0 v2"},
        {"co abort 99 v2", ""}, {"1 begin 3", "c<BEGIN 0 v3"},
        {"co begin_done 0 v3 e1", "reset 0.1; s1<BEGIN_DONE 0 v3 b1"},
        {"co connect 0 v2 e1", "w<CONNECT"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 2), -1);
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0);
}
END_TEST

START_TEST(test_other_world)
{
    RUN(&t, LIVE, {"down 1", "c<RANK_GONE 0"}, {"up 2", ""},
        {"2 open 1/2", "release 0; c<TRAINER_OPEN 1/2"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), -1);
    RUN(&t, {"co program 0 e2", "c<PLAN_DONE e2 !not found"});
}
END_TEST

START_TEST(test_same_process_declares_something_else)
{
    RUN(&t, LIVE, {"1 sources 0+1/1", "c<SOURCES 0 0+1"},
        {"co sources_done 0", "s1<SOURCES_DONE 0"});
    ck_assert_int_eq(sw_host_live_buffer(t.host, 0, 1), 0); /* until the next layout */
}
END_TEST

START_TEST(test_status)
{
    json_t *s, *rank;

    RUN(&t, LIVE);
    s = sw_host_status(t.host, t.now + 1500000000);
    ck_assert_ptr_nonnull(s);
    rank = json_array_get(json_object_get(s, "trainer_ranks"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(rank, "state")), "idle");
    ck_assert(json_real_value(json_object_get(rank, "state_seconds")) > 1.4);
    ck_assert_int_eq(json_integer_value(json_object_get(rank, "live_version")), 1);
    json_decref(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host");
    TCase *c = tcase_create("conversations");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, test_happy);
    tcase_add_test(c, test_open_refusals);
    tcase_add_test(c, test_out_of_turn);
    tcase_add_test(c, test_wrong_end);
    tcase_add_test(c, test_manifest_parts);
    tcase_add_loop_test(c, test_manifest_parts_that_do_not_join, 0, 4);
    tcase_add_test(c, test_manifest_deadline);
    tcase_add_test(c, test_hostile_parts);
    tcase_add_test(c, test_host_tensor_limit);
    tcase_add_test(c, test_program_in_parts);
    tcase_add_loop_test(c, test_program_parts_that_do_not_join, 0, 7);
    tcase_add_test(c, test_program_of_nobody);
    tcase_add_test(c, test_empty_program);
    tcase_add_test(c, test_allocation_fails_in_plan);
    tcase_add_test(c, test_buffers_kept_over_plans);
    tcase_add_test(c, test_wanted_buffers);
    tcase_add_test(c, test_plan_without_a_rank_that_left);
    tcase_add_test(c, test_plan_of_two_ranks);
    tcase_add_test(c, test_grant_of_another_epoch);
    tcase_add_test(c, test_late_writer);
    tcase_add_test(c, test_late_writer_dies);
    tcase_add_test(c, test_who_says_abort_writes_no_more);
    tcase_add_test(c, test_busy_buffer_is_replaced);
    tcase_add_test(c, test_leaves_while_preparing);
    tcase_add_test(c, test_drain);
    tcase_add_test(c, test_drain_without_a_buffer);
    tcase_add_test(c, test_end_again);
    tcase_add_test(c, test_coordinator_aborts);
    tcase_add_test(c, test_staged_version_aborted);
    tcase_add_test(c, test_trainer_aborts);
    tcase_add_test(c, test_same_begin_again);
    tcase_add_loop_test(c, test_trainer_leaves, 0, 5);
    tcase_add_test(c, test_staged_version_survives_a_begin);
    tcase_add_test(c, test_dead_process_with_open_connection);
    tcase_add_test(c, test_dead_process_gives_way);
    tcase_add_loop_test(c, test_coordinator_lost, 0, 5);
    tcase_add_test(c, test_coordinator_lost_when_ended);
    tcase_add_test(c, test_program_sent_again);
    tcase_add_test(c, test_declares_without_a_coordinator);
    tcase_add_loop_test(c, test_new_layout_while_staging, 0, 3);
    tcase_add_test(c, test_unexpected_from_the_coordinator);
    tcase_add_test(c, test_publish);
    tcase_add_test(c, test_publish_limit);
    tcase_add_test(c, test_flip);
    tcase_add_test(c, test_latest_wins);
    tcase_add_test(c, test_other_world);
    tcase_add_test(c, test_same_process_declares_something_else);
    tcase_add_test(c, test_status);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
