/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/test_conversation.h"

/* ---- the table of the protocol, row by row ---- */

START_TEST(an_update)
{
    json_t *status, *rank;

    PLAY(REGISTER_ONE, RESUME);
    status = sw_registry_status(r, now);
    rank = json_array_get(json_object_get(status, "ranks"), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(rank, "version")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(rank, "bytes_total")), 64);
    ck_assert_str_eq(json_string_value(json_object_get(rank, "state")), "serving");
    ck_assert(json_is_null(json_object_get(rank, "lease_ms")));
    json_decref(status);
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
    /* And the next one. */
    PLAY({"arm 1 8 5", "C:arm:A/0:ok:serving"}, {"pause 1 8 5", "E1:pause/8"},
        {"ack 1 pause 8", "C:pause:A/0:ok:paused"},
        {"abort 1 8", "E1:resume/8:v4 "
                      "C:abort:A/0:ok:serving"},
        {"ack 1 resume 8", ""});
}
END_TEST

START_TEST(two_ranks_go_in_step)
{
    PLAY(TWO_ARMED, {"pause 1 7 4", "E1:pause/7"}, {"ack 1 pause 7", "C:pause:A/0:ok:paused"},
        {"prepare 1 7 4", "E1:prepare/7"}, {"ack 1 prepare 7", "C:prepare:A/0:ok:paused"},
        {"open 1 7 4", "C:open:A/0:state:paused"});
    SAID("too early");
    PLAY({"pause 2 7 4", "E2:pause/7"}, {"open 1 7 4", "C:open:A/0:state:paused"},
        {"ack 2 pause 7", "C:pause:A/1:ok:paused"}, {"open 1 7 4", "C:open:A/0:state:paused"},
        {"prepare 2 7 4", "E2:prepare/7"}, {"ack 2 prepare 7", "C:prepare:A/1:ok:paused"},
        {"open 1 7 4", "open1"}, {"opened 1", "C:open:A/0:ok:open"}, {"close 1 7 4", "close1"},
        {"closed 1 64", "C:close:A/0:ok:closed 64"}, {"post 1 7 4", "C:post:A/0:state:closed"},
        {"open 2 7 4", "open2"}, {"opened 2", "C:open:A/1:ok:open"}, {"close 2 7 4", "close2"},
        {"closed 2 64", "C:close:A/1:ok:closed 64"}, {"post 1 7 4", "E1:post/7"},
        {"ack 1 post 7", "C:post:A/0:ok:closed"}, {"activate 1 7 4", "C:activate:A/0:state:closed"},
        {"post 2 7 4", "E2:post/7"}, {"ack 2 post 7", "C:post:A/1:ok:closed"},
        {"activate 1 7 4", "E1:activate/7"}, {"ack 1 activate 7", "C:activate:A/0:ok:active"},
        {"resume 1 7 4", "C:resume:A/0:state:active"}, {"activate 2 7 4", "E2:activate/7"},
        {"ack 2 activate 7", "C:activate:A/1:ok:active"}, {"resume 1 7 4", "E1:resume/7:v4"},
        {"resume 2 7 4", "E2:resume/7:v4"}, {"ack 1 resume 7", "C:resume:A/0:ok:serving"},
        {"ack 2 resume 7", "C:resume:A/1:ok:serving"});
}
END_TEST

/* Each step out of its order is refused and changes nothing: the right one goes on after it. */
START_TEST(order)
{
    static const char *const steps[] = {
        "arm", "pause", "prepare", "open", "close", "post", "activate", "resume"};
    static const struct line beginnings[][40] = {{REGISTER_ONE}, {REGISTER_ONE, ARM},
        {REGISTER_ONE, PAUSE}, {REGISTER_ONE, PREPARE}, {REGISTER_ONE, OPEN}, {REGISTER_ONE, CLOSE},
        {REGISTER_ONE, POST}, {REGISTER_ONE, ACTIVATE}, {REGISTER_ONE, RESUME}};
    char line[32], actions[4096], prefix[32];

    play(beginnings[_i]);
    for (int s = 0; s < 8; s++) {
        if (s == _i || (s == 0 && _i == 1)) /* the right one; arming again is fine */
            continue;
        snprintf(line, sizeof(line), "%s 1 7 4", steps[s]);
        snprintf(prefix, sizeof(prefix), "C:%s:A/0:state:", steps[s]);
        actions[0] = '\0';
        give_line(line);
        drain(actions);
        ck_assert_msg(strncmp(actions, prefix, strlen(prefix)) == 0, "%s: %s", line, actions);
        ck_assert_ptr_null(strchr(actions, ' '));
    }
    if (_i < 8) {
        snprintf(line, sizeof(line), "%s 1 7 4", steps[_i]);
        actions[0] = '\0';
        give_line(line);
        drain(actions);
        ck_assert_ptr_null(strstr(actions, ":state:"));
    }
}
END_TEST

START_TEST(wrong_numbers)
{
    struct sw_msg *msg;

    PLAY(REGISTER_ONE, PREPARE, {"open 1 6 4", "C:open:A/0:state:paused"});
    SAID("older than update 7");
    PLAY({"open 1 8 4", "C:open:A/0:state:paused"}, {"open 1 7 5", "C:open:A/0:state:paused"},
        {"arm 1 6 4", "C:arm:A/0:state:paused"}, {"abort 1 6", "C:abort:A/0:state:paused"},
        {"open 1 0 4", "C:open:A/0:invalid:paused"});
    for (int i = 0; i < 5; i++) {
        char actions[4096] = "";

        msg = make_phase(SW_PHASE_OPEN, 7, 4, "A", 0, 1, 64);
        msg->u.phase.layout_epoch += i == 0;
        msg->u.phase.membership_epoch += i == 1;
        msg->u.phase.instance.bytes[9] += i == 2;
        msg->u.phase.rank += i == 3;
        msg->u.phase.engine = i == 4 ? "B" : "A";
        give((struct sw_registry_event){SW_REG_COORDINATOR_MESSAGE, .message = msg});
        drain(actions);
        ck_assert_msg(strstr(actions, i < 2 ? ":state:paused" : ":not found:gone"), "%s", actions);
    }
    PLAY({"open 1 7 4", "open1"}, {"open 1 7 4", "C:open:A/0:state:open"});
    SAID("not been answered");
}
END_TEST

/* A rank that failed is not made whole by arming it again. */
START_TEST(armed_again_after_a_failure)
{
    PLAY(REGISTER_ONE, PAUSE_ASKED, {"ack 1 pause 7 fail", "C:pause:A/0:state:paused"},
        {"arm 1 7 4", "C:arm:A/0:state:paused"}, {"pause 1 7 4", "C:pause:A/0:state:paused"},
        {"abort 1 7", "E1:resume/7:v3 C:abort:A/0:ok:serving"});
}
END_TEST

/* A pause that inferd acknowledged itself leaves nothing to acknowledge. */
START_TEST(torn_answers_twice)
{
    PLAY({"coord 1", ""}, {"up 1", ""}, {"reg 1 A 0 1 v3 torn", "map1"},
        {"mapped 1", "E1:registered:ok C:rank:A/0:v3:torn C:params:A/0 C:=A/0:torn:v3"},
        {"arm 1 7 4", "C:arm:A/0:ok:torn"}, {"pause 1 7 4", "C:pause:A/0:ok:torn"},
        {"ack 1 pause 7 fail", ""}, {"prepare 1 7 4", "E1:prepare/7"});
}
END_TEST

START_TEST(versions_only_grow)
{
    PLAY(REGISTER_ONE, {"arm 1 7 2", "C:arm:A/0:version:serving"});
    SAID("holds version 3, 2 is not newer");
    PLAY({"arm 1 7 0", "C:arm:A/0:version:serving"}, {"arm 1 7 3", "C:arm:A/0:ok:serving"});
}
END_TEST

/* ---- aborts and leases, in every state ---- */

struct ending {
    struct line before[48];
    const char *actions; /* of the lease's end, or of the abort without its own answer */
    const char *state;   /* in the abort's answer */
    struct line after[8];
};

#define OLD_AFTER                                                                                  \
    {                                                                                              \
        {"ack 1 resume 7", ""},                                                                    \
        {                                                                                          \
            "arm 1 8 5", "C:arm:A/0:ok:serving"                                                    \
        }                                                                                          \
    }
#define TORN_AFTER                                                                                 \
    {                                                                                              \
        {"resume 1 7 4", "C:resume:A/0:state:torn"}, {"arm 1 8 5", "C:arm:A/0:ok:torn"},           \
            {"pause 1 8 5", "C:pause:A/0:ok:torn"}, {"prepare 1 8 5", "E1:prepare/8"},             \
            {"ack 1 prepare 8", "C:prepare:A/0:ok:torn"}, {"open 1 8 5", "open1"},                 \
        {                                                                                          \
            "opened 1", "C:open:A/0:ok:open"                                                       \
        }                                                                                          \
    }

static const struct ending aborts[] = {
    {{REGISTER_ONE}, "", "serving", {{"arm 1 7 4", "C:arm:A/0:state:serving"}}},
    {{REGISTER_ONE, ARM}, "", "serving", {{"pause 1 7 4", "C:pause:A/0:state:serving"}}},
    /* The acknowledgement comes after the end. */
    {{REGISTER_ONE, PAUSE_ASKED}, "C:pause:A/0:aborted:pausing", "pausing",
        {{"ack 1 pause 7", "E1:resume/7:v3 C:=A/0:serving:v3"}, {"ack 1 resume 7", ""}}},
    /* It never comes, and the next update asks again. */
    {{REGISTER_ONE, PAUSE_ASKED}, "C:pause:A/0:aborted:pausing", "pausing",
        {{"arm 1 8 5", "C:arm:A/0:ok:pausing"}, {"pause 1 8 5", "E1:pause/8"},
            {"ack 1 pause 7", ""}, {"ack 1 pause 8", "C:pause:A/0:ok:paused"}}},
    {{REGISTER_ONE, PAUSE_ASKED, {"ack 1 pause 7 fail", "C:pause:A/0:state:paused"}},
        "E1:resume/7:v3", "serving", OLD_AFTER},
    {{REGISTER_ONE, PAUSE}, "E1:resume/7:v3", "serving", OLD_AFTER},
    {{REGISTER_ONE, PAUSE, {"prepare 1 7 4", "E1:prepare/7"}},
        "E1:resume/7:v3 C:prepare:A/0:aborted:serving", "serving",
        {{"ack 1 prepare 7", ""}, {"ack 1 resume 7", ""}}},
    {{REGISTER_ONE, PAUSE, {"prepare 1 7 4", "E1:prepare/7"},
         {"ack 1 prepare 7 fail", "C:prepare:A/0:state:paused"}},
        "E1:resume/7:v3", "serving", OLD_AFTER},
    {{REGISTER_ONE, PREPARE}, "E1:resume/7:v3", "serving", OLD_AFTER},
    {{REGISTER_ONE, PREPARE, {"open 1 7 4", "open1"}}, "close1 C:open:A/0:aborted:open", "torn",
        TORN_AFTER},
    {{REGISTER_ONE, PREPARE, {"open 1 7 4", "open1"},
         {"opened 1 fail", "close1 C:open:A/0:no memory:open"}, {"closed 1 0", "C:=A/0:closed:v3"}},
        "", "torn", TORN_AFTER},
    {{REGISTER_ONE, OPEN}, "close1", "torn", TORN_AFTER},
    {{REGISTER_ONE, OPEN, {"close 1 7 4", "close1"}}, "C:close:A/0:aborted:open", "torn",
        TORN_AFTER},
    {{REGISTER_ONE, OPEN, {"close 1 7 4", "close1"}, {"closed 1 63", "C:close:A/0:state:closed 63"},
         {"post 1 7 4", "C:post:A/0:state:closed"}},
        "", "torn", TORN_AFTER},
    {{REGISTER_ONE, CLOSE}, "", "torn", TORN_AFTER},
    {{REGISTER_ONE, CLOSE, {"post 1 7 4", "E1:post/7"}}, "C:post:A/0:aborted:torn", "torn",
        {{"ack 1 post 7", ""}, {"activate 1 7 4", "C:activate:A/0:state:torn"}}},
    {{REGISTER_ONE, CLOSE, {"post 1 7 4", "E1:post/7"},
         {"ack 1 post 7 fail", "C:post:A/0:state:closed"},
         {"activate 1 7 4", "C:activate:A/0:state:closed"}},
        "", "torn", TORN_AFTER},
    {{REGISTER_ONE, POST}, "", "torn", TORN_AFTER},
    {{REGISTER_ONE, POST, {"activate 1 7 4", "E1:activate/7"}}, "C:activate:A/0:aborted:torn",
        "torn", {{"ack 1 activate 7", ""}}},
    {{REGISTER_ONE, POST, {"activate 1 7 4", "E1:activate/7"},
         {"ack 1 activate 7 fail", "C:activate:A/0:state:closed"}},
        "", "torn", TORN_AFTER},
    {{REGISTER_ONE, ACTIVATE}, "E1:resume/7:v4", "serving", OLD_AFTER},
    {{REGISTER_ONE, ACTIVATE, {"resume 1 7 4", "E1:resume/7:v4"}}, "C:resume:A/0:aborted:serving",
        "serving", OLD_AFTER},
    {{REGISTER_ONE, RESUME}, "", "serving", {{"arm 1 8 5", "C:arm:A/0:ok:serving"}}},
};

static bool window_closes(const char *actions, const struct line *before)
{
    int last = 0;

    while (before[last + 1].event)
        last++;
    return strncmp(actions, "close1", 6) == 0 || strcmp(before[last].actions, "close1") == 0;
}

START_TEST(aborted)
{
    const struct ending *c = &aborts[_i];
    char expected[256], reply[64];
    bool closes = window_closes(c->actions, c->before);

    snprintf(reply, sizeof(reply), "C:abort:A/0:ok:%s", c->state);
    snprintf(expected, sizeof(expected), "%s%s%s", c->actions, c->actions[0] && !closes ? " " : "",
        closes ? "" : reply);
    play(c->before);
    PLAY({"abort 1 7", expected});
    if (closes) /* the answer waits for the window */
        PLAY({"arm 1 8 5", "C:arm:A/0:state:open"}, {"closed 1 10", reply});
    PLAY({"abort 1 7", reply}); /* again: nothing more happens */
    play(c->after);
}
END_TEST

/* The same decision without a coordinator. */
START_TEST(lease_ended)
{
    const struct ending *c = &aborts[_i];
    char actions[4096] = "", line[64];
    bool closes = window_closes(c->actions, c->before);
    bool leased;

    play(c->before);
    leased = sw_registry_deadline(r) != UINT64_MAX;
    PLAY({"tick 999", ""});
    give_line("tick 1");
    drain(actions);
    if (!leased) {
        ck_assert_str_eq(actions, "");
        return;
    }
    ck_assert_msg(strncmp(actions, c->actions, strlen(c->actions)) == 0, "%s", actions);
    snprintf(line, sizeof(line), "C:=A/0:%s:v%s", c->state,
        strstr(c->actions, "v4") || strstr(c->actions, "resume:A/0") ? "4" : "3");
    if (closes) {
        PLAY({"closed 1 10", line});
    } else if (!strstr(c->actions, "C:")) { /* else the refused question told of it */
        ck_assert_msg(strstr(actions, line) != NULL, "'%s' lacks '%s'", actions, line);
        SAID("lease of 1000 ms is over");
    }
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
    PLAY({"tick 5000", ""});
    play(c->after);
}
END_TEST

/* The coordinator goes, the lease decides; one that comes back ends at once what it can't drive. */
START_TEST(coordinator_lost)
{
    const struct ending *c = &aborts[_i];
    char actions[4096] = "", want[64];
    bool closes = window_closes(c->actions, c->before);

    play(c->before);
    PLAY({"nocoord", ""}, {"tick 500", ""});
    give_line("coord 2");
    drain(actions);
    if (strncmp(c->actions, "E1", 2) == 0)
        ck_assert(strncmp(actions, "E1:resume", 9) == 0);
    snprintf(want, sizeof(want), "C:=A/0:%s:", closes ? "open" : c->state);
    ck_assert_msg(strstr(actions, want) != NULL, "'%s' lacks '%s'", actions, want);
    snprintf(want, sizeof(want), "C:rank:A/0:v%s", strstr(actions, "v4") ? "4" : "3");
    ck_assert_msg(strstr(actions, want) != NULL, "'%s' lacks '%s'", actions, want);
    ck_assert_ptr_null(strstr(actions, "C:abort"));
    if (closes)
        PLAY({"closed 1 10", "C:=A/0:torn:v3"});
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
    /* What it did not arm, it can't drive; it counts for itself. */
    PLAY({"nocoord", ""});
    give_line("coord 2");
    drain(actions);
    for (int p = SW_PHASE_PAUSE; p <= SW_PHASE_RESUME; p++) {
        char line[32], refused[64];

        actions[0] = '\0';
        snprintf(line, sizeof(line), "%s 1 7 4", sw_phase_name(p));
        snprintf(refused, sizeof(refused), "C:%s:A/0:state:%s", sw_phase_name(p), c->state);
        give_line(line);
        drain(actions);
        ck_assert_str_eq(actions, refused);
    }
    actions[0] = '\0';
    give_line("arm 1 1 5");
    drain(actions);
    snprintf(want, sizeof(want), "C:arm:A/0:ok:%s", c->state);
    ck_assert_str_eq(actions, want);
}
END_TEST

START_TEST(lease_without_a_coordinator)
{
    PLAY(REGISTER_ONE, OPEN, {"nocoord", ""}, {"tick 1000", "close1"}, {"closed 1 5", ""},
        {"coord 1", "C:rank:A/0:v3:torn C:params:A/0 C:=A/0:torn:v3"},
        {"open 1 7 4", "C:open:A/0:state:torn"}, {"arm 1 7 4", "C:arm:A/0:state:torn"});
    SAID("update 7 of engine A is over");
}
END_TEST

START_TEST(the_lease_starts_with_the_first_rank_paused)
{
    PLAY(TWO_ARMED, BOTH_ASKED("pause"), {"tick 700", ""});
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
    PLAY({"ack 2 pause 7", "C:pause:A/1:ok:paused"});
    ck_assert_uint_eq(sw_registry_deadline(r), now + 1000 * MS);
    PLAY({"tick 600", ""}, {"ack 1 pause 7", "C:pause:A/0:ok:paused"}, {"tick 399", ""},
        {"tick 1", "E1:resume/7:v3 E2:resume/7:v3 C:=A/0:serving:v3 C:=A/1:serving:v3"});
}
END_TEST

/* Any event finds a lease that is over, not only a tick. */
START_TEST(lease_before_phase)
{
    PLAY(REGISTER_ONE, POST, {"ack 1 activate 7", ""});
    now += 1000 * MS;
    PLAY({"activate 1 7 4", "C:activate:A/0:state:torn"});
}
END_TEST

START_TEST(a_newer_update_ends_the_old_one)
{
    PLAY(REGISTER_ONE, PREPARE, {"arm 1 8 5", "E1:resume/7:v3 C:arm:A/0:ok:serving"},
        {"open 1 7 4", "C:open:A/0:state:serving"}, {"pause 1 8 5", "E1:pause/8"},
        {"ack 1 resume 7", ""}, {"ack 1 pause 8", "C:pause:A/0:ok:paused"},
        {"abort 1 9", "E1:resume/8:v3 C:abort:A/0:ok:serving"},
        {"arm 1 8 5", "C:arm:A/0:state:serving"});
}
END_TEST

/* ---- several ranks ---- */

START_TEST(engine_decides_as_one)
{
    /* One window open tears both. */
    PLAY(TWO_PREPARED, {"open 1 7 4", "open1"}, {"opened 1", "C:open:A/0:ok:open"},
        {"abort 2 7", "close1 C:abort:A/1:ok:torn"}, {"abort 1 7", ""},
        {"closed 1 5", "C:abort:A/0:ok:torn"}, {"arm 1 8 5", "C:arm:A/0:ok:torn"},
        {"arm 2 8 5", "C:arm:A/1:ok:torn"}, {"pause 1 8 5", "C:pause:A/0:ok:torn"},
        /* Nothing was opened in update 8, but torn engines don't resume. */
        {"abort 1 8", "C:abort:A/0:ok:torn"}, {"abort 2 8", "C:abort:A/1:ok:torn"});
}
END_TEST

START_TEST(one_active_one_not)
{
    PLAY(TWO_POSTED, BOTH_ASKED("activate"), {"ack 2 activate 7", "C:activate:A/1:ok:active"},
        {"tick 1000", "C:activate:A/0:aborted:torn C:=A/1:torn:v4"}, {"ack 1 activate 7", ""});
}
END_TEST

START_TEST(all_active)
{
    PLAY(TWO_POSTED, BOTH("activate", "active"), {"resume 2 7 4", "E2:resume/7:v4"},
        {"ack 2 resume 7", "C:resume:A/1:ok:serving"},
        {"tick 1000", "E1:resume/7:v4 C:=A/0:serving:v4"}, {"ack 1 resume 7", ""});
}
END_TEST

START_TEST(two_engines_are_two_updates)
{
    PLAY(REGISTER_ONE, {"up 2", ""}, {"reg 2 B 0 1 v3", "map2"},
        {"mapped 2", "E2:registered:ok C:rank:B/0:v3 C:params:B/0 C:=B/0:serving:v3"}, OPEN,
        {"arm 2 7 4", "C:arm:B/0:ok:serving"}, {"pause 2 7 4", "E2:pause/7"},
        {"ack 2 pause 7", "C:pause:B/0:ok:paused"},
        {"abort 2 7", "E2:resume/7:v3 C:abort:B/0:ok:serving"}, {"close 1 7 4", "close1"},
        {"closed 1 64", "C:close:A/0:ok:closed 64"});
}
END_TEST

START_TEST(a_rank_joins_late)
{
    PLAY(REGISTER_ONE, PREPARE, {"up 2", ""}, {"reg 2 A 0 1", "E2:registered:exists"});
    SAID("process 1001");
    PLAY({"reg 2 A 1 2", "E2:registered:invalid"});
}
END_TEST

/* A rank that is registered but takes no part: nothing is opened beside it. */
START_TEST(bystander)
{
    PLAY(TWO_REGISTERED, {"arm 1 7 4", "C:arm:A/0:ok:serving"}, {"pause 1 7 4", "E1:pause/7"},
        {"ack 1 pause 7", "C:pause:A/0:ok:paused"}, {"prepare 1 7 4", "E1:prepare/7"},
        {"ack 1 prepare 7", "C:prepare:A/0:ok:paused"}, {"open 1 7 4", "C:open:A/0:state:paused"});
    SAID("takes no part");
    PLAY({"abort 2 7", "E1:resume/7:v3 C:abort:A/1:ok:serving C:=A/0:serving:v3"});
}
END_TEST

/* ---- engine processes that go ---- */

START_TEST(process_gone)
{
    static const struct line lives[][48] = {{{"coord 1", ""}, {"up 1", ""}},
        {{"coord 1", ""}, {"up 1", ""}, {"reg 1 A 0 1 v3", "map1"}}, {REGISTER_ONE},
        {REGISTER_ONE, ARM}, {REGISTER_ONE, PAUSE_ASKED}, {REGISTER_ONE, PAUSE},
        {REGISTER_ONE, PREPARE}, {REGISTER_ONE, OPEN},
        {REGISTER_ONE, OPEN, {"close 1 7 4", "close1"}}, {REGISTER_ONE, CLOSE},
        {REGISTER_ONE, POST}, {REGISTER_ONE, ACTIVATE}, {REGISTER_ONE, RESUME},
        {REGISTER_ONE, OPEN, {"abort 1 7", "close1"}}};
    const char *gone = _i == 0               ? ""
                       : _i == 1             ? "release1"
                       : _i >= 11 && _i < 13 ? "release1 C:=A/0:gone:v4"
                                             : "release1 C:=A/0:gone:v3";

    play(lives[_i]);
    PLAY({"down 1", gone}, {"mapped 1", ""}, {"closed 1 64", ""}, {"opened 1", ""},
        {"ack 1 pause 7", ""}, {"down 1", ""}, {"tick 2000", ""});
    ck_assert(r->engines == NULL);
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
    if (_i > 0) { /* the name is free at once, while the memory is still being released */
        PLAY({"up 2", ""}, {"reg 2 A 0 1", "map2"}, {"released 1", ""},
            {"pause 1 7 4", "C:pause:A/0:not found:gone"});
        ck_assert_ptr_null(r->ranks->next);
    }
}
END_TEST

START_TEST(one_of_two_gone)
{
    PLAY(TWO_PREPARED, {"down 2", "release2 C:=A/1:gone:v3"}, {"released 2", ""},
        {"open 1 7 4", "C:open:A/0:state:paused"});
    SAID("went away");
    PLAY({"abort 1 7", "E1:resume/7:v3 C:abort:A/0:ok:serving"});
}
END_TEST

START_TEST(one_of_two_gone_with_windows_open)
{
    PLAY(TWO_OPEN, {"down 2", "release2 C:=A/1:gone:v3"}, {"close 1 7 4", "close1"},
        {"closed 1 64", "C:close:A/0:ok:closed 64"}, {"post 1 7 4", "C:post:A/0:state:closed"},
        {"abort 1 7", "C:abort:A/0:ok:torn"});
}
END_TEST

START_TEST(one_of_two_gone_when_active)
{
    PLAY(TWO_POSTED, BOTH("activate", "active"), {"down 2", "release2 C:=A/1:gone:v4"},
        {"resume 1 7 4", "E1:resume/7:v4"}, {"ack 1 resume 7", "C:resume:A/0:ok:serving"});
    ck_assert_uint_eq(r->engines->update, 0);
}
END_TEST

/* All that are left are active, but the engine is not whole. */
START_TEST(one_of_two_gone_while_it_activates)
{
    PLAY(TWO_POSTED, BOTH_ASKED("activate"), {"ack 1 activate 7", "C:activate:A/0:ok:active"},
        {"down 2", "release2 C:=A/1:gone:v3"}, {"resume 1 7 4", "C:resume:A/0:state:active"},
        {"tick 1000", "C:=A/0:torn:v4"});
}
END_TEST

START_TEST(last_one_not_resumed_goes)
{
    PLAY(TWO_POSTED, BOTH("activate", "active"), {"resume 1 7 4", "E1:resume/7:v4"},
        {"ack 1 resume 7", "C:resume:A/0:ok:serving"}, {"down 2", "release2 C:=A/1:gone:v4"});
    ck_assert_uint_eq(r->engines->update, 0);
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *suite = suite_create("update");
    TCase *tc = tcase_create("update");
    SRunner *runner = srunner_create(suite);
    int failed;
    const TTest *const tests[] = {an_update, two_ranks_go_in_step, wrong_numbers,
        armed_again_after_a_failure, torn_answers_twice, versions_only_grow,
        lease_without_a_coordinator, the_lease_starts_with_the_first_rank_paused,
        lease_before_phase, a_newer_update_ends_the_old_one, engine_decides_as_one,
        one_active_one_not, all_active, two_engines_are_two_updates, a_rank_joins_late, bystander,
        one_of_two_gone, one_of_two_gone_with_windows_open, one_of_two_gone_when_active,
        last_one_not_resumed_goes, one_of_two_gone_while_it_activates};

    tcase_add_checked_fixture(tc, setup, teardown);
    for (int i = 0; i < COUNT(tests); i++)
        tcase_add_test(tc, tests[i]);
    tcase_add_loop_test(tc, order, 0, 9);
    tcase_add_loop_test(tc, aborted, 0, COUNT(aborts));
    tcase_add_loop_test(tc, lease_ended, 0, COUNT(aborts));
    tcase_add_loop_test(tc, coordinator_lost, 0, COUNT(aborts));
    tcase_add_loop_test(tc, process_gone, 0, 14);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
