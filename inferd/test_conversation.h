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
#ifndef SW_INFERD_TEST_CONVERSATION_H
#define SW_INFERD_TEST_CONVERSATION_H

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
    char engine[20];
    uint32_t rank;
} who[SESSIONS];
static struct sw_id window[SESSIONS];
static char errors[4096]; /* refusal texts and logged errors of the last event */
static struct sw_token tokens[8];
static uint32_t n_tokens;

/* Tests of one file use only some of these. */
#pragma GCC diagnostic ignored "-Wunused-function"

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

static void note(const char *text)
{
    size_t n = strlen(errors);

    snprintf(errors + n, sizeof(errors) - n, "%s", text);
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
        note(m->u.registered.error.reason);
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
    note(d->error.reason);
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
            note(a.text);
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
                note(a.text);
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

/* The words of a line. */
struct words {
    char text[8][20];
    int n;
};

static struct words split(const char *line)
{
    struct words w = {.n = 0};

    while (w.n < 8 && *line) {
        size_t length = strcspn(line, " ");

        ck_assert_uint_lt(length, sizeof(w.text[0]));
        memcpy(w.text[w.n++], line, length);
        line += length;
        line += strspn(line, " ");
    }
    ck_assert_msg(!*line, "too many words: %s", line);
    return w;
}

static uint32_t word_number(const struct words *w, int i)
{
    return (uint32_t)strtoul(w->text[i], NULL, 10);
}

static void give_register(const struct words *w)
{
    static const struct declared weight = {"w", 0, 64, NULL};
    uint32_t s = word_number(w, 1), rank = word_number(w, 3);
    const char *engine = w->text[2];
    struct sw_msg *msg;

    ck_assert_int_ge(w->n, 5);
    snprintf(who[s].engine, sizeof(who[s].engine), "%s", engine);
    who[s].rank = rank;
    msg = make_engine_rank(engine, rank, word_number(w, 4), (uint8_t)s, 64, 1, -1);
    for (int i = 5; i < w->n; i++) {
        if (w->text[i][0] == 'v')
            msg->u.engine_rank.version = strtoul(w->text[i] + 1, NULL, 10);
        else
            msg->u.engine_rank.torn = strcmp(w->text[i], "torn") == 0;
    }
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

static void give_ack(const struct words *w)
{
    uint32_t s = word_number(w, 1);
    struct sw_msg *msg = make_phase_done(phase_named(w->text[2]), word_number(w, 3), who[s].engine,
        who[s].rank, (uint8_t)s, w->n > 4 ? SW_ERR_STATE : 0);

    ck_assert_int_ge(w->n, 4);
    give((struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = s, .message = msg});
}

static void give_phase(enum sw_phase phase, const struct words *w)
{
    uint32_t s = word_number(w, 1);
    struct sw_msg *msg = make_phase(
        phase, word_number(w, 2), word_number(w, 3), who[s].engine, who[s].rank, (uint8_t)s, 64);

    ck_assert_int_ge(w->n, 3);
    give((struct sw_registry_event){SW_REG_COORDINATOR_MESSAGE, .message = msg});
}

static bool give_session(const struct words *w)
{
    static const struct {
        const char *verb;
        enum sw_registry_event_kind kind;
    } verbs[] = {{"up", SW_REG_ENGINE_UP}, {"down", SW_REG_ENGINE_DOWN}, {"mapped", SW_REG_MAPPED},
        {"opened", SW_REG_WINDOW_OPENED}, {"closed", SW_REG_WINDOW_CLOSED},
        {"released", SW_REG_RELEASED}};
    uint32_t s = word_number(w, 1);
    bool failed = strcmp(w->text[2], "fail") == 0;

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(w->text[0], verbs[i].verb) != 0)
            continue;
        give((struct sw_registry_event){verbs[i].kind, .session = s,
            .instance = make_id((uint8_t)s, 'e'), .pid = 1000 + s,
            .bytes = failed ? 0 : word_number(w, 2), .code = failed ? SW_ERR_NOMEM : 0,
            .text = failed ? "no memory" : ""});
        return true;
    }
    return false;
}

static void give_line(const char *line)
{
    struct words w = split(line);
    const char *verb = w.text[0];

    if (give_session(&w))
        return;
    if (strcmp(verb, "reg") == 0) {
        give_register(&w);
    } else if (strcmp(verb, "ack") == 0) {
        give_ack(&w);
    } else if (strcmp(verb, "coord") == 0) {
        give((struct sw_registry_event){
            SW_REG_COORDINATOR_UP, .instance = make_id((uint8_t)word_number(&w, 1), 'c')});
    } else if (strcmp(verb, "nocoord") == 0) {
        give((struct sw_registry_event){SW_REG_COORDINATOR_DOWN});
    } else if (strcmp(verb, "tick") == 0) {
        now += word_number(&w, 1) * MS;
        give((struct sw_registry_event){SW_REG_TICK});
    } else {
        ck_assert_msg(phase_named(verb) != 0, "unknown event '%s'", line);
        give_phase(phase_named(verb), &w);
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

#endif
