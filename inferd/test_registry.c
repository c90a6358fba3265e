/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations with the registry, as text: an event a line, and the actions that it must cause.
 *
 *   up S | down S | mapped S [fail] | opened S [fail] | closed S BYTES | released S
 *   reg S ENGINE RANK WORLD [vN] [torn]     ENGINE_RANK and one parameter of 64 bytes
 *   coord N | nocoord | tick MS | status
 *   arm|pause|prepare|open|close|post|activate|resume|abort S UPDATE VERSION
 *   ack S PHASE UPDATE [fail]
 *
 * Actions: map1 open1 close1 release1 drop1; E1:pause/7 (to the process of session 1);
 * C:pause:A/0:ok:paused (PHASE_DONE), C:=A/0:torn:v3 (RANK_STATE), C:rank:A/0:v3, C:params:A/0.
 */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include "inferd/registry_impl.h"
#include "inferd/test_support.h"

#define SESSIONS 8

struct line {
    const char *event, *actions;
};

static struct sw_registry *r;
static uint64_t now, seed;
static struct { /* what a session registered as */
    char engine[16];
    uint32_t rank;
} who[SESSIONS];
static struct sw_id window[SESSIONS];
static char errors[4096]; /* refusal texts and logged errors of the last event */
static struct sw_token tokens[8];
static uint32_t n_tokens;

static void setup(void)
{
    struct sw_registry_config config = make_config(&seed);

    seed = 1;
    now = MS;
    r = sw_registry_new(&config);
    ck_assert_ptr_nonnull(r);
}

static void teardown(void)
{
    sw_registry_free(r);
    r = NULL;
}

/* ---- actions as text ---- */

static const char *code_text(int code)
{
    return code == 0 ? "ok" : sw_code_name(code);
}

static void add(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *out, const char *format, ...)
{
    va_list args;
    size_t n = strlen(out);

    if (n)
        out[n++] = ' ';
    va_start(args, format);
    vsnprintf(out + n, 4000 - n, format, args);
    va_end(args);
}

static void render_engine(char *out, uint64_t session, const struct sw_msg *m)
{
    const struct sw_phase_msg *p = &m->u.phase;

    if (m->kind == SW_MSG_REGISTERED) {
        add(out, "E%d:registered:%s", (int)session, code_text(m->u.registered.error.code));
        strcat(errors, m->u.registered.error.reason);
        return;
    }
    ck_assert_int_eq(m->kind, SW_MSG_PHASE);
    ck_assert_uint_eq(p->n, 0);
    if (p->phase == SW_PHASE_RESUME)
        add(out, "E%d:resume/%d:v%d", (int)session, (int)p->update, (int)p->version);
    else
        add(out, "E%d:%s/%d", (int)session, sw_phase_name(p->phase), (int)p->update);
}

static void render_done(char *out, const struct sw_phase_done *d)
{
    add(out, "C:%s:%s/%u:%s:%s", sw_phase_name(d->phase), d->engine, d->rank,
        code_text(d->error.code), sw_rank_state_name(d->state));
    strcat(errors, d->error.reason);
    ck_assert((d->error.code == 0) == (d->error.reason[0] == '\0'));
    if (d->bytes)
        add(out, "%d", (int)d->bytes);
    if (d->phase == SW_PHASE_OPEN && !d->error.code) {
        bool known = false;
        for (int i = 0; i < SESSIONS; i++)
            known = known || (sw_id_equal(&window[i], &d->window) && !sw_id_is_none(&d->window));
        ck_assert(known);
    }
    n_tokens = 0;
    for (uint32_t i = 0; d->phase == SW_PHASE_ARM && i < d->n; i++)
        for (uint32_t j = 0; j < d->issued[i].n; j++)
            tokens[n_tokens++] = d->issued[i].tokens[j];
}

static void render_coordinator(char *out, const struct sw_msg *m)
{
    switch (m->kind) {
    case SW_MSG_PHASE_DONE:
        render_done(out, &m->u.phase_done);
        break;
    case SW_MSG_ENGINE_RANK:
        ck_assert_uint_eq(m->n_fds, 0);
        ck_assert_uint_gt(m->u.engine_rank.pid, 0);
        add(out, "C:rank:%s/%u:v%d%s", m->u.engine_rank.engine, m->u.engine_rank.rank,
            (int)m->u.engine_rank.version, m->u.engine_rank.torn ? ":torn" : "");
        break;
    case SW_MSG_PARAMETERS:
        add(out, "C:params:%s/%u", m->u.parameters.engine, m->u.parameters.rank);
        break;
    default:
        ck_assert_int_eq(m->kind, SW_MSG_RANK_STATE);
        add(out, "C:=%s/%u:%s:v%d", m->u.rank_state.engine, m->u.rank_state.rank,
            sw_rank_state_name(m->u.rank_state.state), (int)m->u.rank_state.version);
        break;
    }
}

static void drain(char *out)
{
    struct sw_registry_action a;

    while (sw_registry_next(r, &a)) {
        int s = (int)a.session;

        switch (a.kind) {
        case SW_REG_TO_ENGINE:
            render_engine(out, a.session, a.message);
            break;
        case SW_REG_TO_COORDINATOR:
            render_coordinator(out, a.message);
            break;
        case SW_REG_DROP_ENGINE:
            add(out, "drop%d", s);
            strcat(errors, a.text);
            break;
        case SW_REG_MAP:
            add(out, "map%d", s);
            break;
        case SW_REG_WINDOW_OPEN:
            add(out, "open%d", s);
            window[s] = a.window;
            break;
        case SW_REG_WINDOW_CLOSE:
            add(out, "close%d", s);
            break;
        case SW_REG_RELEASE:
            add(out, "release%d", s);
            break;
        case SW_REG_LOG:
            if (a.level <= SW_LOG_WARNING)
                strcat(errors, a.text);
            break;
        }
        sw_msg_free(a.message);
    }
}

/* ---- events from text ---- */

static void give(struct sw_registry_event event)
{
    sw_registry_handle(r, &event, now);
}

static void give_register(const char *args)
{
    static const struct declared weight = {"w", 0, 64, NULL};
    char engine[16], version[16] = "", torn[16] = "";
    unsigned s, rank, world;
    struct sw_msg *msg;

    ck_assert_int_ge(
        sscanf(args, "%u %15s %u %u %15s %15s", &s, engine, &rank, &world, version, torn), 4);
    strcpy(who[s].engine, engine);
    who[s].rank = rank;
    msg = make_engine_rank(engine, rank, world, (uint8_t)s, 64, 1, -1);
    if (version[0] == 'v')
        msg->u.engine_rank.version = (uint64_t)atoi(version + 1);
    msg->u.engine_rank.torn = strcmp(torn, "torn") == 0;
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = s, .message = msg});
    msg = make_parameters(engine, rank, (uint8_t)s, 0, 1, &weight, 1);
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = s, .message = msg});
}

static enum sw_phase phase_named(const char *name)
{
    for (int p = SW_PHASE_ARM; p <= SW_PHASE_ABORT; p++)
        if (strcmp(name, sw_phase_name(p)) == 0)
            return p;
    return 0;
}

static void give_ack(const char *args)
{
    unsigned s, update;
    char phase[16], fail[16] = "";
    struct sw_msg *msg;

    ck_assert_int_ge(sscanf(args, "%u %15s %u %15s", &s, phase, &update, fail), 3);
    msg = make_phase_done(phase_named(phase), update, who[s].engine, who[s].rank, (uint8_t)s,
        fail[0] ? SW_ERR_STATE : 0);
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = s, .message = msg});
}

static void give_phase(enum sw_phase phase, const char *args)
{
    unsigned s, update, version = 0;
    struct sw_msg *msg;

    ck_assert_int_ge(sscanf(args, "%u %u %u", &s, &update, &version), 2);
    msg = make_phase(phase, update, version, who[s].engine, who[s].rank, (uint8_t)s, 64);
    give((struct sw_registry_event){SW_REG_COORDINATOR_MESSAGE, .message = msg});
}

static bool give_session(const char *verb, const char *args)
{
    static const struct {
        const char *verb;
        enum sw_registry_event_kind kind;
    } verbs[] = {{"up", SW_REG_ENGINE_UP}, {"down", SW_REG_ENGINE_DOWN}, {"mapped", SW_REG_MAPPED},
        {"opened", SW_REG_WINDOW_OPENED}, {"closed", SW_REG_WINDOW_CLOSED},
        {"released", SW_REG_RELEASED}};
    unsigned s = 0, bytes = 0;
    bool failed = strstr(args, "fail") != NULL;

    sscanf(args, "%u %u", &s, &bytes);
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verb, verbs[i].verb) != 0)
            continue;
        give((struct sw_registry_event){verbs[i].kind, .session = s,
            .instance = make_id((uint8_t)s, 'e'), .pid = 1000 + s, .bytes = bytes,
            .code = failed ? SW_ERR_NOMEM : 0, .text = failed ? "no memory" : ""});
        return true;
    }
    return false;
}

static void give_line(const char *line)
{
    char verb[16];
    const char *args;
    int n = 0;

    sscanf(line, "%15s%n", verb, &n);
    args = line + n;
    if (give_session(verb, args))
        return;
    if (strcmp(verb, "reg") == 0)
        give_register(args);
    else if (strcmp(verb, "ack") == 0)
        give_ack(args);
    else if (strcmp(verb, "coord") == 0)
        give((struct sw_registry_event){
            SW_REG_COORDINATOR_UP, .instance = make_id((uint8_t)atoi(args), 'c')});
    else if (strcmp(verb, "nocoord") == 0)
        give((struct sw_registry_event){SW_REG_COORDINATOR_DOWN});
    else if (strcmp(verb, "tick") == 0) {
        now += (uint64_t)atoi(args) * MS;
        give((struct sw_registry_event){SW_REG_TICK});
    } else {
        ck_assert_msg(phase_named(verb) != 0, "unknown event '%s'", line);
        give_phase(phase_named(verb), args);
    }
}

static void play(const struct line *lines)
{
    for (int i = 0; lines[i].event; i++) {
        char actions[4096] = "";

        errors[0] = '\0';
        give_line(lines[i].event);
        drain(actions);
        ck_assert_msg(strcmp(actions, lines[i].actions) == 0,
            "line %d, '%s':\n  got      %s\n  expected %s\n  %s", i, lines[i].event, actions,
            lines[i].actions, errors);
    }
}

#define PLAY(...) play((const struct line[]){__VA_ARGS__, {NULL, NULL}})
#define SAID(part) ck_assert_msg(strstr(errors, (part)) != NULL, "'%s' lacks '%s'", errors, (part))

/* ---- often used beginnings ---- */

#define REGISTER_ONE                                                                               \
    {"coord 1", ""}, {"up 1", ""}, {"reg 1 A 0 1 v3", "map1"},                                     \
    {                                                                                              \
        "mapped 1", "E1:registered:ok C:rank:A/0:v3 C:params:A/0 C:=A/0:serving:v3"                \
    }
#define ARM                                                                                        \
    {                                                                                              \
        "arm 1 7 4", "C:arm:A/0:ok:serving"                                                        \
    }
#define PAUSE_ASKED                                                                                \
    ARM,                                                                                           \
    {                                                                                              \
        "pause 1 7 4", "E1:pause/7"                                                                \
    }
#define PAUSE                                                                                      \
    PAUSE_ASKED,                                                                                   \
    {                                                                                              \
        "ack 1 pause 7", "C:pause:A/0:ok:paused"                                                   \
    }
#define PREPARE                                                                                    \
    PAUSE, {"prepare 1 7 4", "E1:prepare/7"},                                                      \
    {                                                                                              \
        "ack 1 prepare 7", "C:prepare:A/0:ok:paused"                                               \
    }
#define OPEN                                                                                       \
    PREPARE, {"open 1 7 4", "open1"},                                                              \
    {                                                                                              \
        "opened 1", "C:open:A/0:ok:open"                                                           \
    }
#define CLOSE                                                                                      \
    OPEN, {"close 1 7 4", "close1"},                                                               \
    {                                                                                              \
        "closed 1 64", "C:close:A/0:ok:closed 64"                                                  \
    }
#define POST                                                                                       \
    CLOSE, {"post 1 7 4", "E1:post/7"},                                                            \
    {                                                                                              \
        "ack 1 post 7", "C:post:A/0:ok:closed"                                                     \
    }
#define ACTIVATE                                                                                   \
    POST, {"activate 1 7 4", "E1:activate/7"},                                                     \
    {                                                                                              \
        "ack 1 activate 7", "C:activate:A/0:ok:active"                                             \
    }
#define RESUME                                                                                     \
    ACTIVATE, {"resume 1 7 4", "E1:resume/7:v4"},                                                  \
    {                                                                                              \
        "ack 1 resume 7", "C:resume:A/0:ok:serving"                                                \
    }

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

/* A step of both ranks of an engine that has two. */
#define BOTH_ASKED(phase)                                                                          \
    {phase " 1 7 4", "E1:" phase "/7"},                                                            \
    {                                                                                              \
        phase " 2 7 4", "E2:" phase "/7"                                                           \
    }
#define BOTH(phase, state)                                                                         \
    BOTH_ASKED(phase), {"ack 1 " phase " 7", "C:" phase ":A/0:ok:" state},                         \
    {                                                                                              \
        "ack 2 " phase " 7", "C:" phase ":A/1:ok:" state                                           \
    }
#define TWO_REGISTERED                                                                             \
    {"coord 1", ""}, {"up 1", ""}, {"up 2", ""}, {"reg 1 A 0 2 v3", "map1"},                       \
        {"mapped 1", "E1:registered:ok C:rank:A/0:v3 C:params:A/0 C:=A/0:serving:v3"},             \
        {"reg 2 A 1 2 v3", "map2"},                                                                \
    {                                                                                              \
        "mapped 2", "E2:registered:ok C:rank:A/1:v3 C:params:A/1 C:=A/1:serving:v3"                \
    }
#define TWO_ARMED                                                                                  \
    TWO_REGISTERED, {"arm 1 7 4", "C:arm:A/0:ok:serving"},                                         \
    {                                                                                              \
        "arm 2 7 4", "C:arm:A/1:ok:serving"                                                        \
    }
#define TWO_PREPARED TWO_ARMED, BOTH("pause", "paused"), BOTH("prepare", "paused")
#define TWO_OPEN                                                                                   \
    TWO_PREPARED, {"open 1 7 4", "open1"}, {"open 2 7 4", "open2"},                                \
        {"opened 1", "C:open:A/0:ok:open"},                                                        \
    {                                                                                              \
        "opened 2", "C:open:A/1:ok:open"                                                           \
    }
#define TWO_CLOSED                                                                                 \
    TWO_OPEN, {"close 1 7 4", "close1"}, {"close 2 7 4", "close2"},                                \
        {"closed 1 64", "C:close:A/0:ok:closed 64"},                                               \
    {                                                                                              \
        "closed 2 64", "C:close:A/1:ok:closed 64"                                                  \
    }
#define TWO_POSTED TWO_CLOSED, BOTH("post", "closed")

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

START_TEST(last_one_not_resumed_goes)
{
    PLAY(TWO_POSTED, BOTH("activate", "active"), {"resume 1 7 4", "E1:resume/7:v4"},
        {"ack 1 resume 7", "C:resume:A/0:ok:serving"}, {"down 2", "release2 C:=A/1:gone:v4"});
    ck_assert_uint_eq(r->engines->update, 0);
    ck_assert_uint_eq(sw_registry_deadline(r), UINT64_MAX);
}
END_TEST

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

    strcpy(errors, e.text);
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
    const TTest *const tests[] = {an_update, two_ranks_go_in_step, wrong_numbers,
        versions_only_grow, lease_without_a_coordinator,
        the_lease_starts_with_the_first_rank_paused, lease_before_phase,
        a_newer_update_ends_the_old_one, engine_decides_as_one, one_active_one_not, all_active,
        two_engines_are_two_updates, a_rank_joins_late, bystander, one_of_two_gone,
        one_of_two_gone_with_windows_open, one_of_two_gone_when_active, last_one_not_resumed_goes,
        claims, same_instance_twice, registered_torn, torn_beside_a_serving_rank,
        torn_before_its_pause_was_acknowledged, manifest_deadline, parts_after_a_refusal,
        what_an_engine_process_may_not_send, announced_when_it_connects, manifests_are_held_back,
        nothing_left_over_for_the_next_connection, not_for_an_inferd, data_paths, local_paths,
        too_many_tokens, memory_for_map};

    tcase_add_checked_fixture(tc, setup, teardown);
    for (int i = 0; i < COUNT(tests); i++)
        tcase_add_test(tc, tests[i]);
    tcase_add_loop_test(tc, order, 0, 9);
    tcase_add_loop_test(tc, aborted, 0, COUNT(aborts));
    tcase_add_loop_test(tc, lease_ended, 0, COUNT(aborts));
    tcase_add_loop_test(tc, coordinator_lost, 0, COUNT(aborts));
    tcase_add_loop_test(tc, process_gone, 0, 14);
    tcase_add_loop_test(tc, answers_that_lie, 0, 8);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
