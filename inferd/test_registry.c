/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/test_conversation.h"

/* ---- registration ---- */

START_TEST(claims)
{
    PLAY(REGISTER_ONE, {"up 2", ""}, {"reg 2 A 0 1", "E2:registered:exists"});
    SAID("process 1001");
    PLAY({"reg 2 A 1 2", "E2:registered:invalid"});
    SAID("says 1");
    PLAY({"reg 2 B 0 1", "map2"}, {"mapped 2 fail", "E2:registered:no memory"},
        {"reg 2 B 0 1", "map2"}, {"reg 2 B 0 1", "drop2"}, {"down 2", "release2"},
        {"released 2", ""});
    /* A claim counts from its first message on. */
    PLAY({"up 3", ""}, {"up 4", ""}, {"reg 3 C 0 2", "map3"},
        {"reg 4 C 0 2", "E4:registered:exists"}, {"reg 4 C 1 2", "map4"},
        {"mapped 4", "E4:registered:ok C:rank:C/1:v0 C:params:C/1 C:=C/1:serving:v0"});
}
END_TEST

START_TEST(same_instance_twice)
{
    struct sw_msg *msg;
    char actions[4096] = "";

    PLAY(REGISTER_ONE, {"up 2", ""});
    msg = make_engine_rank("B", 0, 1, 1, 64, 1, -1);
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 2, .message = msg});
    drain(actions);
    ck_assert_str_eq(actions, "E2:registered:exists");
}
END_TEST

START_TEST(registered_torn)
{
    PLAY({"coord 1", ""}, {"up 1", ""}, {"reg 1 A 0 1 v3 torn", "map1"},
        {"mapped 1", "E1:registered:ok C:rank:A/0:v3:torn C:params:A/0 C:=A/0:torn:v3"},
        {"arm 1 7 4", "C:arm:A/0:ok:torn"}, {"pause 1 7 4", "C:pause:A/0:ok:torn"});
    ck_assert_uint_eq(sw_registry_deadline(r), now + 1000 * MS);
    PLAY({"tick 1000", ""}, {"arm 1 8 4", "C:arm:A/0:ok:torn"},
        {"pause 1 8 4", "C:pause:A/0:ok:torn"}, {"prepare 1 8 4", "E1:prepare/8"},
        {"ack 1 prepare 8", "C:prepare:A/0:ok:torn"}, {"open 1 8 4", "open1"},
        {"opened 1", "C:open:A/0:ok:open"}, {"close 1 8 4", "close1"},
        {"closed 1 64", "C:close:A/0:ok:closed 64"}, {"post 1 8 4", "E1:post/8"},
        {"ack 1 post 8", "C:post:A/0:ok:closed"}, {"activate 1 8 4", "E1:activate/8"},
        {"ack 1 activate 8", "C:activate:A/0:ok:active"},
        {"tick 1000", "E1:resume/8:v4 C:=A/0:serving:v4"});
}
END_TEST

/* One rank of an engine lost its connection in an update; the other was never paused. */
START_TEST(torn_beside_a_serving_rank)
{
    PLAY({"coord 1", ""}, {"up 1", ""}, {"up 2", ""}, {"reg 1 A 0 2 v3 torn", "map1"},
        {"mapped 1", "E1:registered:ok C:rank:A/0:v3:torn C:params:A/0 C:=A/0:torn:v3"},
        {"reg 2 A 1 2 v3", "map2"},
        {"mapped 2", "E2:registered:ok C:rank:A/1:v3 C:params:A/1 C:=A/1:serving:v3"},
        {"arm 1 7 4", "C:arm:A/0:ok:torn"}, {"arm 2 7 4", "C:arm:A/1:ok:serving"},
        {"pause 1 7 4", "C:pause:A/0:ok:torn"}, {"pause 2 7 4", "E2:pause/7"},
        {"abort 2 7", "C:pause:A/1:aborted:torn C:abort:A/1:ok:torn"},
        {"ack 2 pause 7", ""}, /* late, and no RESUME */
        {"arm 2 8 4", "C:arm:A/1:ok:torn"}, {"pause 2 8 4", "C:pause:A/1:ok:torn"});
}
END_TEST

START_TEST(torn_before_its_pause_was_acknowledged)
{
    PLAY({"coord 1", ""}, {"up 1", ""}, {"up 2", ""}, {"reg 1 A 0 2 v3 torn", "map1"},
        {"mapped 1", "E1:registered:ok C:rank:A/0:v3:torn C:params:A/0 C:=A/0:torn:v3"},
        {"reg 2 A 1 2 v3", "map2"},
        {"mapped 2", "E2:registered:ok C:rank:A/1:v3 C:params:A/1 C:=A/1:serving:v3"},
        {"arm 2 7 4", "C:arm:A/1:ok:serving"}, {"pause 2 7 4", "E2:pause/7"},
        {"abort 2 7", "C:pause:A/1:aborted:torn C:abort:A/1:ok:torn"},
        {"arm 2 8 4", "C:arm:A/1:ok:torn"}, {"pause 2 8 4", "E2:pause/8"}, {"ack 2 pause 7", ""},
        {"ack 2 pause 8", "C:pause:A/1:ok:torn"});
}
END_TEST

START_TEST(manifest_deadline)
{
    struct sw_msg *msg = make_engine_rank("A", 0, 1, 1, 64, 2, -1);

    PLAY({"up 1", ""});
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 1, .message = msg});
    ck_assert_uint_eq(sw_registry_deadline(r), now + 100 * MS);
    PLAY({"tick 99", ""}, {"tick 1", "drop1"});
    SAID("only 0 of 2 parameters came within 100 ms");
    PLAY({"reg 1 A 0 1", ""}, {"down 1", ""}, {"up 2", ""}, {"reg 2 A 0 1", "map2"});
}
END_TEST

/* Parts of a refused manifest that are still on their way are no new error. */
START_TEST(parts_after_a_refusal)
{
    static const struct declared big = {"w", 0, 65, NULL}, other = {"x", 0, 1, NULL};
    struct sw_msg *msg = make_engine_rank("A", 0, 1, 1, 64, 3, -1);
    char actions[4096] = "";

    PLAY({"up 1", ""});
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 1, .message = msg});
    msg = make_parameters("A", 0, 1, 0, 3, &big, 1);
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 1, .message = msg});
    msg = make_parameters("A", 0, 1, 1, 3, &other, 1);
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 1, .message = msg});
    drain(actions);
    ck_assert_str_eq(actions, "E1:registered:invalid");
    SAID("do not fit");
    PLAY({"reg 1 A 0 1", "map1"});
}
END_TEST

START_TEST(what_an_engine_process_may_not_send)
{
    static const struct declared weight = {"w", 0, 64, NULL};
    char actions[4096] = "";

    PLAY({"up 1", ""}, {"up 2", ""}, {"up 3", ""});
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 1,
        .message = make_parameters("A", 0, 1, 0, 1, &weight, 1)});
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 2,
        .message = make_phase_done(SW_PHASE_PAUSE, 7, "A", 0, 2, 0)});
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = 3,
        .message = make_phase(SW_PHASE_OPEN, 7, 4, "A", 0, 3, 64)});
    drain(actions);
    ck_assert_str_eq(actions, "drop1 drop2 drop3");
}
END_TEST

/* Acknowledgements that nobody asked for move nothing. */
START_TEST(answers_that_lie)
{
    static const struct line states[][48] = {{REGISTER_ONE}, {REGISTER_ONE, ARM},
        {REGISTER_ONE, PAUSE}, {REGISTER_ONE, PREPARE}, {REGISTER_ONE, OPEN}, {REGISTER_ONE, CLOSE},
        {REGISTER_ONE, POST}, {REGISTER_ONE, ACTIVATE}};
    char line[64];

    play(states[_i]);
    for (int p = SW_PHASE_ARM; p <= SW_PHASE_ABORT; p++)
        for (int update = 6; update <= 8; update++) {
            snprintf(line, sizeof(line), "ack 1 %s %d", sw_phase_name(p), update);
            PLAY({line, ""});
        }
}
END_TEST

/* ---- the coordinator's connection ---- */

START_TEST(announced_when_it_connects)
{
    PLAY({"up 1", ""}, {"reg 1 A 0 2 v3", "map1"}, {"mapped 1", "E1:registered:ok"}, {"up 2", ""},
        {"reg 2 A 1 2", "map2"}, {"mapped 2", "E2:registered:ok"}, {"up 3", ""},
        {"coord 1", "C:rank:A/0:v3 C:params:A/0 C:=A/0:serving:v3 C:rank:A/1:v0 C:params:A/1 "
                    "C:=A/1:serving:v0"},
        {"nocoord", ""}, {"down 1", "release1"}, {"released 1", ""},
        {"coord 1", "C:rank:A/1:v0 C:params:A/1 C:=A/1:serving:v0"});
}
END_TEST

START_TEST(manifests_are_held_back)
{
    struct sw_registry_action a;

    PLAY({"up 1", ""}, {"reg 1 A 0 2", "map1"}, {"mapped 1", "E1:registered:ok"});
    sw_registry_hold(r, true);
    PLAY({"coord 1", ""});
    sw_registry_hold(r, false);
    ck_assert(sw_registry_next(r, &a));
    ck_assert_int_eq(a.message->kind, SW_MSG_ENGINE_RANK);
    sw_msg_free(a.message);
    sw_registry_hold(r, true);
    PLAY({"tick 1", ""}, {"down 1", "release1 C:=A/0:gone:v0"}, {"released 1", ""});
    ck_assert_ptr_null(r->ranks);
}
END_TEST

/* What was said for one connection does not reach the next. */
START_TEST(nothing_left_over_for_the_next_connection)
{
    char actions[4096] = "";

    PLAY(REGISTER_ONE, PREPARE);
    give_line("open 1 7 4");
    give_line("opened 1");
    give_line("nocoord");
    give_line("coord 1");
    drain(actions);
    ck_assert_str_eq(actions, "open1 close1 C:rank:A/0:v3:torn C:params:A/0 C:=A/0:open:v3");
}
END_TEST

START_TEST(not_for_an_inferd)
{
    PLAY(REGISTER_ONE);
    give((struct sw_registry_event){
        SW_REG_COORDINATOR_MESSAGE, .message = sw_msg_new(SW_MSG_WRITTEN)});
    PLAY({"tick 1", ""});
    SAID("WRITTEN");
}
END_TEST

/* ---- data paths ---- */

static int admit(uint8_t writer, struct sw_path_open open, uint64_t *session)
{
    struct sw_id id = make_id(writer, 'w');
    struct sw_error e = {0};
    int rc = sw_registry_admit(r, &id, &open, now, session, &e);

    snprintf(errors, sizeof(errors), "%s", e.text);
    return rc;
}

static struct sw_path_open path(uint32_t token)
{
    return (struct sw_path_open){.engine = "A",
        .engine_instance = make_id(1, 'e'),
        .layout_epoch = 10,
        .token = tokens[token]};
}

START_TEST(data_paths)
{
    struct sw_path_open open;
    uint64_t session = 0;

    PLAY(REGISTER_ONE, ARM);
    ck_assert_uint_eq(n_tokens, 3);
    open = path(0);
    open.engine_instance = make_id(9, 'e');
    ck_assert_int_eq(admit(1, open, &session), SW_ERR_NOT_FOUND);
    open = path(0);
    open.engine = "B";
    ck_assert_int_eq(admit(1, open, &session), SW_ERR_NOT_FOUND);
    ck_assert_int_eq(admit(2, path(0), &session), SW_ERR_AUTH);
    ck_assert_int_eq(admit(1, path(1), &session), 0);
    ck_assert_uint_eq(session, 1);
    ck_assert_int_eq(admit(1, path(1), &session), SW_ERR_AUTH);
    now += 300 * MS;
    ck_assert_int_eq(admit(2, path(2), &session), SW_ERR_AUTH);
    SAID("expired");
    PLAY(ARM); /* again, before the pause: new tokens */
    ck_assert_int_eq(admit(2, path(2), &session), 0);
    open = path(0);
    PLAY(ARM);
    ck_assert_int_eq(admit(1, open, &session), SW_ERR_AUTH);
    open = path(0);
    PLAY({"abort 1 7", "C:abort:A/0:ok:serving"}); /* and none outlives its update */
    ck_assert_int_eq(admit(1, open, &session), SW_ERR_AUTH);
}
END_TEST

START_TEST(local_paths)
{
    struct sw_path_open open = path(0);
    uint64_t session = 0;

    open.local = 1;
    memset(open.host_nonce, 7, sizeof(open.host_nonce));
    PLAY(REGISTER_ONE);
    ck_assert_int_eq(admit(5, open, &session), SW_ERR_AUTH);
    PLAY(ARM);
    ck_assert_int_eq(admit(5, open, &session), 0);
    ck_assert_uint_eq(session, 1);
    open.host_nonce[31]++;
    ck_assert_int_eq(admit(5, open, &session), SW_ERR_AUTH);
    open.host_nonce[31]--;
    open.layout_epoch = 11;
    ck_assert_int_eq(admit(5, open, &session), SW_ERR_AUTH);
    open.layout_epoch = 10;
    PLAY({"down 1", "release1 C:=A/0:gone:v3"});
    ck_assert_int_eq(admit(5, open, &session), SW_ERR_NOT_FOUND);
}
END_TEST

START_TEST(too_many_tokens)
{
    struct sw_msg *msg = make_phase(SW_PHASE_ARM, 7, 4, "A", 0, 1, 64);
    char actions[4096] = "";

    PLAY(REGISTER_ONE);
    msg->u.phase.writers[1].connections = SW_TCP_CONNECTIONS_MAX + 1;
    give((struct sw_registry_event){SW_REG_COORDINATOR_MESSAGE, .message = msg});
    drain(actions);
    ck_assert_str_eq(actions, "C:arm:A/0:limit:serving");
    ck_assert_uint_eq(r->ranks->tokens.n, 0);
    PLAY({"pause 1 7 4", "C:pause:A/0:state:serving"}, ARM);
}
END_TEST

/* ---- for MAP ---- */

START_TEST(memory_for_map)
{
    struct sw_registry_memory memory;

    PLAY({"up 1", ""}, {"reg 1 A 0 1", "map1"});
    ck_assert_int_eq(sw_registry_memory(r, 1, &memory), 0);
    ck_assert_uint_eq(memory.n_regions, 1);
    ck_assert_uint_eq(memory.region_bytes[0], 64);
    ck_assert_uint_eq(memory.n_runs, 1);
    ck_assert_uint_eq(memory.runs[0].length, 64);
    ck_assert_int_eq(sw_registry_memory(r, 2, &memory), SW_ERR_NOT_FOUND);
    /* The process goes while its memory is being mapped: descriptors and runs stay till RELEASED.
     */
    PLAY({"down 1", "release1"});
    ck_assert_int_eq(sw_registry_memory(r, 1, &memory), 0);
    PLAY({"released 1", ""});
    ck_assert_int_eq(sw_registry_memory(r, 1, &memory), SW_ERR_NOT_FOUND);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *suite = suite_create("registry");
    TCase *tc = tcase_create("registry");
    SRunner *runner = srunner_create(suite);
    int failed;
    const TTest *const tests[] = {claims, same_instance_twice, registered_torn,
        torn_beside_a_serving_rank, torn_before_its_pause_was_acknowledged, manifest_deadline,
        parts_after_a_refusal, what_an_engine_process_may_not_send, announced_when_it_connects,
        manifests_are_held_back, nothing_left_over_for_the_next_connection, not_for_an_inferd,
        data_paths, local_paths, too_many_tokens, memory_for_map};

    tcase_add_checked_fixture(tc, setup, teardown);
    for (int i = 0; i < COUNT(tests); i++)
        tcase_add_test(tc, tests[i]);
    tcase_add_loop_test(tc, answers_that_lie, 0, 8);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
