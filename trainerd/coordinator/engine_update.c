/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine's way through an update, from arm to live. Each step asks something of every rank (its
 * inferd) or of every writer (a trainerd and a target), and is over when all have answered; it has
 * one deadline. A failure before the resume asks the inferds to end the update (they know whether
 * the engine is old or torn) and waits for their word, with a deadline again.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

#define V(x) ((unsigned long long)(x))
#define BIT(step) (1u << (step))
#define FAILS BIT(STEP_ENDING)

enum asks { ASKS_NOBODY, ASKS_RANKS, ASKS_WRITERS };

static const struct {
    const char *name;
    enum asks asks;
    enum sw_phase phase; /* of a step that asks ranks */
    size_t deadline;     /* offset of its deadline in the configuration */
    unsigned next;       /* bits of the steps that may follow */
    const char *advice;
} steps[STEP_COUNT] = {
#define CONFIG(field) offsetof(struct sw_coordinator_config, field)
    [STEP_NEW] = {"new", ASKS_NOBODY, 0, 0, BIT(STEP_ARM), ""},
    [STEP_ARM] = {"arm", ASKS_RANKS, SW_PHASE_ARM, CONFIG(connect_ns), BIT(STEP_CONNECT) | FAILS,
        "look at that inferd and its host"},
    [STEP_CONNECT] = {"connect", ASKS_WRITERS, 0, CONFIG(connect_ns), BIT(STEP_PAUSE) | FAILS,
        "look at the network between these hosts and at inferd's data port"},
    [STEP_PAUSE] = {"pause", ASKS_RANKS, SW_PHASE_PAUSE, CONFIG(pause_ns),
        BIT(STEP_PREPARE) | FAILS,
        "is the engine process stopped or busy? Raise the pause deadline if draining takes long"},
    [STEP_PREPARE] = {"prepare", ASKS_RANKS, SW_PHASE_PREPARE, CONFIG(pause_ns),
        BIT(STEP_OPEN) | FAILS, "look at the engine process and its prepare hook"},
    [STEP_OPEN] = {"open the window", ASKS_RANKS, SW_PHASE_OPEN, CONFIG(window_ns),
        BIT(STEP_WRITE) | FAILS, "look at that inferd and its host"},
    [STEP_WRITE] = {"write", ASKS_WRITERS, 0, CONFIG(write_ns), BIT(STEP_CLOSE) | FAILS,
        "look at the network between these hosts, or raise the write deadline"},
    [STEP_CLOSE] = {"close the window", ASKS_RANKS, SW_PHASE_CLOSE, CONFIG(window_ns),
        BIT(STEP_POST) | FAILS, "look at that inferd and its host"},
    [STEP_POST] = {"post-process", ASKS_RANKS, SW_PHASE_POST, CONFIG(post_ns),
        BIT(STEP_ACTIVATE) | FAILS, "look at the engine process, or raise the post deadline"},
    [STEP_ACTIVATE] = {"activate", ASKS_RANKS, SW_PHASE_ACTIVATE, CONFIG(activate_ns),
        BIT(STEP_RESUME) | FAILS, "look at the engine process"},
    [STEP_RESUME] = {"resume", ASKS_RANKS, SW_PHASE_RESUME, CONFIG(activate_ns),
        BIT(STEP_LIVE) | BIT(STEP_FAILED), "look at the engine process"},
    [STEP_LIVE] = {"live", ASKS_NOBODY, 0, 0, 0, ""},
    [STEP_ENDING] = {"end the update", ASKS_RANKS, SW_PHASE_ABORT, CONFIG(window_ns),
        BIT(STEP_FAILED), "look at that inferd and its host"},
    [STEP_FAILED] = {"failed", ASKS_NOBODY, 0, 0, 0, ""},
#undef CONFIG
};

bool sw_coord_step_over(enum step step)
{
    return step == STEP_LIVE || step == STEP_FAILED;
}

const char *sw_coord_step_name(enum step step)
{
    return steps[step].name;
}

void sw_coord_engine_check(const struct update *u, const struct engine_update *eu)
{
    uint32_t waiting = 0;

    for (uint32_t i = 0; i < eu->n_targets; i++) {
        const struct target *t = &eu->targets[i];

        waiting += t->waiting;
        for (uint32_t k = 0; k < t->n_links; k++) {
            waiting += t->links[k].waiting;
            assert(eu->step == STEP_ENDING || eu->step == STEP_FAILED || eu->step <= STEP_WRITE ||
                   t->links[k].written);
        }
        if (eu->step >= STEP_POST && eu->step <= STEP_LIVE)
            assert(t->closed);
        if (eu->step == STEP_RESUME || eu->step == STEP_LIVE)
            assert(t->active && t->version == u->version);
    }
    assert(sw_coord_step_over(eu->step) ? waiting == 0 : waiting > 0);
    assert(eu->result.live == (eu->step == STEP_LIVE));
}

static void move(struct engine_update *eu, enum step to, uint64_t now)
{
    assert(steps[eu->step].next & BIT(to));
    eu->step = to;
    eu->since = now;
}

/* ---- messages out ---- */

static int fill_writers(struct sw_coordinator *c, struct sw_msg *m, const struct target *t)
{
    struct sw_writer_ref *writers = sw_coord_array(c, m, t->n_links, sizeof(*writers));

    if (!writers)
        return -1;
    for (uint32_t i = 0; i < t->n_links; i++)
        writers[i] = (struct sw_writer_ref){t->links[i].trainerd, c->config.tcp_connections};
    m->u.phase.n = t->n_links;
    m->u.phase.writers = writers;
    return 0;
}

static void send_phase(struct sw_coordinator *c, const struct update *u,
    const struct engine_update *eu, const struct target *t)
{
    const enum sw_phase phase = steps[eu->step].phase;
    struct sw_msg *m = sw_coord_message(SW_MSG_PHASE);

    if (m) {
        m->u.phase = (struct sw_phase_msg){.phase = phase,
            .update = u->version,
            .version = u->version,
            .layout_epoch = u->layout_epoch,
            .membership_epoch = u->membership_epoch,
            .rank = t->rank,
            .instance = t->instance};
        m->u.phase.engine = sw_coord_text(c, m, eu->engine);
        m->u.phase.reason = sw_coord_text(c, m, phase == SW_PHASE_ABORT ? eu->reason : "");
        if (phase == SW_PHASE_OPEN)
            m->u.phase.expected_bytes = t->bytes;
        if (phase == SW_PHASE_ARM && t->n_links)
            fill_writers(c, m, t);
    }
    sw_coord_send(c, t->member, m);
}

static void send_connect(
    struct sw_coordinator *c, const struct update *u, const struct target *t, struct link *link)
{
    struct sw_msg *m = sw_coord_message(SW_MSG_CONNECT);

    if (m) {
        m->u.connect = (struct sw_connect){.update = u->version,
            .version = u->version,
            .layout_epoch = u->layout_epoch,
            .membership_epoch = u->membership_epoch,
            .target = t->number,
            .n = link->n_tokens};
        if (link->n_tokens) {
            m->u.connect.tokens =
                sw_coord_array(c, m, link->n_tokens, sizeof(*m->u.connect.tokens));
            if (m->u.connect.tokens)
                memcpy(m->u.connect.tokens, link->tokens,
                    link->n_tokens * sizeof(*m->u.connect.tokens));
        }
    }
    sw_coord_send(c, link->member, m);
}

static void send_write(struct sw_coordinator *c, const struct update *u, const struct target *t,
    const struct link *link)
{
    struct sw_msg *m = sw_coord_message(SW_MSG_WRITE);

    if (m)
        m->u.write = (struct sw_write){
            .update = u->version, .version = u->version, .target = t->number, .window = t->window};
    sw_coord_send(c, link->member, m);
}

/* Each writer hears once that nothing more will be asked for a target. */
static void send_update_end(
    struct sw_coordinator *c, const struct update *u, const struct engine_update *eu)
{
    for (uint32_t i = 0; i < eu->n_targets; i++)
        for (uint32_t k = 0; k < eu->targets[i].n_links; k++) {
            struct sw_msg *m = sw_coord_message(SW_MSG_UPDATE_END);

            if (m)
                m->u.update_end = (struct sw_update_end){u->version, eu->targets[i].number};
            sw_coord_send(c, eu->targets[i].links[k].member, m);
        }
}

/* ---- the result ---- */

static void name_transports(struct engine_update *eu)
{
    for (uint32_t i = 0; i < eu->n_targets; i++)
        for (uint32_t k = 0; k < eu->targets[i].n_links; k++) {
            const char *name = eu->targets[i].links[k].transport;
            const size_t used = strlen(eu->transport);

            if (name[0] && !strstr(eu->transport, name))
                snprintf(eu->transport + used, sizeof(eu->transport) - used, "%s%s",
                    used ? "+" : "", name);
        }
}

/* The worst that any rank is in. */
static void name_state(struct engine_update *eu)
{
    static const enum sw_rank_state worst[] = {SW_RANK_TORN, SW_RANK_OPEN, SW_RANK_CLOSED,
        SW_RANK_ACTIVE, SW_RANK_PAUSED, SW_RANK_PAUSING, SW_RANK_SERVING};
    const char *state = NULL;

    for (uint32_t i = 0; i < eu->n_targets && !state; i++)
        if (eu->targets[i].lost && !eu->targets[i].unknown)
            state = "gone";
    for (uint32_t i = 0; i < eu->n_targets && !state; i++)
        if (eu->targets[i].state == 0 || eu->targets[i].lost)
            state = "unknown";
    for (size_t s = 0; s < sizeof(worst) / sizeof(worst[0]) && !state; s++)
        for (uint32_t i = 0; i < eu->n_targets && !state; i++)
            if (eu->targets[i].state == worst[s])
                state = sw_rank_state_name(worst[s]);
    snprintf(eu->state, sizeof(eu->state), "%s", state ? state : "unknown");
}

static void finish(struct sw_coordinator *c, struct update *u, struct engine_update *eu,
    enum step to, uint64_t now)
{
    move(eu, to, now);
    eu->deadline = UINT64_MAX;
    eu->result.live = to == STEP_LIVE;
    for (uint32_t i = 0; i < eu->n_targets; i++) {
        struct target *t = &eu->targets[i];
        const struct registration *reg = sw_coord_target_reg(c, t);

        t->waiting = false;
        for (uint32_t k = 0; k < t->n_links; k++) {
            t->links[k].waiting = false;
            free(t->links[k].tokens);
            t->links[k].tokens = NULL;
            t->links[k].n_tokens = 0;
        }
        if (to == STEP_LIVE)
            eu->result.bytes += t->bytes;
        else if (reg && reg->version < eu->result.version)
            eu->result.version = reg->version;
    }
    name_transports(eu);
    name_state(eu);
    if (to == STEP_LIVE) {
        eu->result.version = u->version;
        c->live_version = u->version > c->live_version ? u->version : c->live_version;
        send_update_end(c, u, eu);
        sw_coord_log(c, eu->reason[0] ? LEVEL_WARNING : LEVEL_INFO,
            "engine %s is live at version %llu: drain %.3f s, pause %.3f s, %llu bytes%s%s",
            eu->engine, V(u->version), (double)eu->result.drain_ns / 1e9,
            (double)eu->result.pause_ns / 1e9, V(eu->result.bytes), eu->reason[0] ? ", but " : "",
            eu->reason);
    } else {
        sw_coord_log(c, LEVEL_INFO, "engine %s is %s after the failed update to version %llu",
            eu->engine, eu->state, V(u->version));
    }
}

/* ---- failure ---- */

static void fail(struct sw_coordinator *c, struct update *u, struct engine_update *eu, uint64_t now,
    const char *reason)
{
    uint32_t asked = 0;

    assert(eu->step >= STEP_ARM && eu->step <= STEP_ACTIVATE);
    snprintf(eu->reason, sizeof(eu->reason), "%s", reason);
    sw_coord_log(c, LEVEL_ERROR, "engine %s, update to version %llu: %s", eu->engine, V(u->version),
        eu->reason);
    send_update_end(c, u, eu);
    move(eu, STEP_ENDING, now);
    eu->deadline = now + c->config.window_ns;
    for (uint32_t i = 0; i < eu->n_targets; i++) {
        struct target *t = &eu->targets[i];

        for (uint32_t k = 0; k < t->n_links; k++)
            t->links[k].waiting = false;
        t->waiting = !t->lost;
        t->state = 0; /* until its inferd says what it has come to */
        if (t->lost)
            continue;
        send_phase(c, u, eu, t);
        asked++;
    }
    if (asked == 0)
        finish(c, u, eu, STEP_FAILED, now);
}

/* ---- steps ---- */

static void note_times(struct engine_update *eu, enum step done, uint64_t now)
{
    switch (done) {
    case STEP_PAUSE:
        eu->paused = now;
        eu->result.drain_ns = now - eu->pause_asked;
        break;
    case STEP_WRITE:
        eu->result.write_ns = now - eu->write_asked;
        break;
    case STEP_CLOSE:
        eu->closed_at = now;
        break;
    case STEP_POST:
        eu->result.post_ns = now - eu->closed_at;
        break;
    default:
        break;
    }
}

/* Starts a step; the number of answers that it waits for. */
static uint32_t ask(struct sw_coordinator *c, struct update *u, struct engine_update *eu,
    enum step step, uint64_t now)
{
    uint32_t asked = 0;

    move(eu, step, now);
    eu->deadline = now + *(const uint64_t *)((const char *)&c->config + steps[step].deadline);
    if (step == STEP_PAUSE)
        eu->pause_asked = now;
    if (step == STEP_WRITE)
        eu->write_asked = now;
    if (step == STEP_RESUME) {
        eu->resume_sent = now;
        eu->result.pause_ns = now - eu->paused;
    }
    for (uint32_t i = 0; i < eu->n_targets; i++) {
        struct target *t = &eu->targets[i];

        if (steps[step].asks == ASKS_RANKS) {
            t->waiting = true;
            send_phase(c, u, eu, t);
            asked++;
        }
        for (uint32_t k = 0; k < t->n_links && steps[step].asks == ASKS_WRITERS; k++) {
            t->links[k].waiting = true;
            if (step == STEP_CONNECT)
                send_connect(c, u, t, &t->links[k]);
            else
                send_write(c, u, t, &t->links[k]);
            asked++;
        }
    }
    return asked;
}

static bool all_answered(const struct engine_update *eu)
{
    for (uint32_t i = 0; i < eu->n_targets; i++) {
        if (eu->targets[i].waiting)
            return false;
        for (uint32_t k = 0; k < eu->targets[i].n_links; k++)
            if (eu->targets[i].links[k].waiting)
                return false;
    }
    return true;
}

/* Goes on as far as nothing is waited for. */
static void advance(
    struct sw_coordinator *c, struct update *u, struct engine_update *eu, uint64_t now)
{
    if (!all_answered(eu))
        return;
    if (eu->step == STEP_RESUME) {
        finish(c, u, eu, STEP_LIVE, now);
    } else if (eu->step == STEP_ENDING) {
        finish(c, u, eu, STEP_FAILED, now);
    } else {
        do { /* an engine to which nothing is written skips connect and write */
            note_times(eu, eu->step, now);
        } while (ask(c, u, eu, eu->step + 1, now) == 0);
    }
}

void sw_coord_engine_start(
    struct sw_coordinator *c, struct update *u, struct engine_update *eu, uint64_t now)
{
    for (uint32_t i = 0; i < eu->n_targets; i++) {
        const struct registration *reg = sw_coord_target_reg(c, &eu->targets[i]);

        assert(reg);
        eu->targets[i].state = reg->state;
        eu->targets[i].version = reg->version;
        eu->targets[i].was_torn = reg->state == SW_RANK_TORN;
    }
    ask(c, u, eu, STEP_ARM, now);
}

/* ---- answers of ranks ---- */

static struct engine_update *find_engine(const struct sw_coordinator *c, const char *name)
{
    struct update *u = c->publishing;

    for (uint32_t i = 0; u && i < u->n_engines; i++)
        if (!strcmp(u->engines[i].engine, name))
            return &u->engines[i];
    return NULL;
}

static struct target *find_target(
    struct engine_update *eu, uint64_t member, uint32_t rank, const struct sw_id *instance)
{
    struct target *t = rank < eu->n_targets ? &eu->targets[rank] : NULL;

    if (!t || t->member != member || !sw_id_equal(&t->instance, instance))
        return NULL;
    return t;
}

/* Tokens for each writer, as many as were asked for (a local path needs none of them). */
static int keep_tokens(struct target *t, const struct sw_phase_done *msg)
{
    for (uint32_t i = 0; i < msg->n; i++)
        for (uint32_t k = 0; k < t->n_links; k++) {
            struct link *link = &t->links[k];

            if (!sw_id_equal(&link->trainerd, &msg->issued[i].trainerd) || link->tokens)
                continue;
            link->tokens = calloc((size_t)msg->issued[i].n + 1, sizeof(*link->tokens));
            if (!link->tokens)
                return -1;
            link->n_tokens = msg->issued[i].n;
            if (link->n_tokens)
                memcpy(link->tokens, msg->issued[i].tokens, link->n_tokens * sizeof(*link->tokens));
        }
    return 0;
}

static bool is_active(enum sw_rank_state state)
{
    return state == SW_RANK_ACTIVE || state == SW_RANK_SERVING;
}

/* What an answer without an error must hold. False: `why` says what it does not. */
static bool take_answer(struct sw_coordinator *c, struct update *u, struct target *t,
    const struct sw_phase_done *msg, char *why, size_t size)
{
    struct registration *reg = sw_coord_target_reg(c, t);

    switch (msg->phase) {
    case SW_PHASE_ARM:
        if (keep_tokens(t, msg)) {
            snprintf(why, size, "the coordinator has no memory for its tokens");
            return false;
        }
        break;
    case SW_PHASE_OPEN:
        t->window = msg->window;
        if (sw_id_is_none(&t->window)) {
            snprintf(why, size, "the window it opened has no number");
            return false;
        }
        break;
    case SW_PHASE_CLOSE:
        if (msg->bytes != t->bytes) {
            snprintf(why, size,
                "%llu bytes were placed while its window was open, and %llu planned", V(msg->bytes),
                V(t->bytes));
            return false;
        }
        t->closed = true;
        break;
    case SW_PHASE_ACTIVATE:
        if (!is_active(msg->state)) {
            snprintf(why, size, "it answered activate, but is %s", sw_rank_state_name(msg->state));
            return false;
        }
        t->active = true;
        t->version = u->version;
        if (reg)
            reg->version = u->version;
        break;
    default:
        break;
    }
    return true;
}

static void rank_text(const struct target *t, char *out, size_t size)
{
    snprintf(out, size, "rank %u on %s (process %u)", t->rank, t->host, t->pid);
}

static void append_reason(struct engine_update *eu, const char *text)
{
    const size_t used = strlen(eu->reason);

    snprintf(eu->reason + used, sizeof(eu->reason) - used, "%s%s", used ? "; " : "", text);
}

static void rank_failed(struct sw_coordinator *c, struct update *u, struct engine_update *eu,
    const struct target *t, const char *why, uint64_t now)
{
    char who[128], text[SW_TEXT_MAX + 1];

    rank_text(t, who, sizeof(who));
    snprintf(text, sizeof(text), "%s: %s: %.700s", steps[eu->step].name, who, why);
    if (eu->step == STEP_RESUME || eu->step == STEP_ENDING) {
        append_reason(eu, text);
        advance(c, u, eu, now);
    } else {
        fail(c, u, eu, now, text);
    }
}

void sw_coord_phase_done(
    struct sw_coordinator *c, uint64_t member, const struct sw_phase_done *msg, uint64_t now)
{
    struct update *u = c->publishing;
    struct engine_update *eu = find_engine(c, msg->engine);
    struct target *t = eu ? find_target(eu, member, msg->rank, &msg->instance) : NULL;
    struct registration *reg = sw_coord_find_reg(c, member, msg->engine, msg->rank, &msg->instance);
    char why[256];

    /* An answer tells the state even when it is late: inferd takes it as told. */
    if (reg && msg->state != SW_RANK_GONE)
        reg->state = msg->state;
    /* Answers to an older update, to a step that is over, or from a process that was replaced. */
    if (!t || msg->update != u->version || !t->waiting || steps[eu->step].asks != ASKS_RANKS ||
        steps[eu->step].phase != msg->phase)
        return;
    t->waiting = false;
    t->state = msg->state;
    if (msg->error.code)
        rank_failed(c, u, eu, t, msg->error.reason, now);
    else if (take_answer(c, u, t, msg, why, sizeof(why)))
        advance(c, u, eu, now);
    else
        rank_failed(c, u, eu, t, why, now);
}

/* ---- answers of writers ---- */

/* The link of a trainerd to a target of the running update, whatever the engine's step. */
static struct link *find_link(struct sw_coordinator *c, uint64_t member, uint64_t update,
    uint32_t target, struct engine_update **eu, struct target **t)
{
    struct update *u = c->publishing;

    if (!u || u->version != update)
        return NULL;
    for (uint32_t i = 0; i < u->n_engines; i++)
        for (uint32_t j = 0; j < u->engines[i].n_targets; j++) {
            *eu = &u->engines[i];
            *t = &u->engines[i].targets[j];
            if ((*t)->number != target)
                continue;
            for (uint32_t k = 0; k < (*t)->n_links; k++)
                if ((*t)->links[k].member == member)
                    return &(*t)->links[k];
        }
    return NULL;
}

static void link_failed(struct sw_coordinator *c, struct engine_update *eu, const struct target *t,
    const struct link *link, const char *why, uint64_t now)
{
    char who[128], text[SW_TEXT_MAX + 1];

    rank_text(t, who, sizeof(who));
    snprintf(text, sizeof(text), "%s: trainerd %s to %s: %.600s", steps[eu->step].name, link->host,
        who, why);
    fail(c, c->publishing, eu, now, text);
}

void sw_coord_connected(
    struct sw_coordinator *c, uint64_t member, const struct sw_connected *msg, uint64_t now)
{
    struct engine_update *eu;
    struct target *t;
    struct link *link = find_link(c, member, msg->update, msg->target, &eu, &t);

    if (!link)
        return;
    /* A path that breaks before anything was written: the engine need not be torn for it. */
    if (msg->error.code && (eu->step == STEP_PAUSE || eu->step == STEP_PREPARE)) {
        link_failed(c, eu, t, link, msg->error.reason, now);
        return;
    }
    if (eu->step != STEP_CONNECT || !link->waiting)
        return;
    link->waiting = false;
    snprintf(link->transport, sizeof(link->transport), "%s", msg->transport);
    snprintf(link->why, sizeof(link->why), "%s", msg->why);
    if (msg->error.code)
        link_failed(c, eu, t, link, msg->error.reason, now);
    else
        advance(c, c->publishing, eu, now);
}

void sw_coord_written(
    struct sw_coordinator *c, uint64_t member, const struct sw_written *msg, uint64_t now)
{
    struct engine_update *eu;
    struct target *t;
    struct link *link = find_link(c, member, msg->update, msg->target, &eu, &t);
    char why[160];

    if (!link || eu->step != STEP_WRITE || !link->waiting)
        return;
    link->waiting = false;
    if (msg->error.code) {
        link_failed(c, eu, t, link, msg->error.reason, now);
    } else if (msg->bytes != link->bytes) {
        snprintf(why, sizeof(why), "%llu bytes were confirmed, and %llu planned", V(msg->bytes),
            V(link->bytes));
        link_failed(c, eu, t, link, why, now);
    } else {
        link->written = true;
        advance(c, c->publishing, eu, now);
    }
}

/* ---- what happens by itself ---- */

void sw_coord_engine_process_lost(struct sw_coordinator *c, const struct registration *reg,
    bool unknown, const char *why, uint64_t now)
{
    struct update *u = c->publishing;
    struct engine_update *eu = find_engine(c, reg->engine);
    struct target *t = eu ? find_target(eu, reg->member, reg->rank, &reg->instance) : NULL;
    char text[SW_TEXT_MAX + 1], who[128];

    if (!t || t->lost || sw_coord_step_over(eu->step))
        return;
    t->lost = true;
    t->unknown = unknown;
    t->waiting = false;
    if (eu->step == STEP_ENDING) {
        advance(c, u, eu, now);
    } else if (eu->step == STEP_RESUME) {
        rank_text(t, who, sizeof(who));
        snprintf(text, sizeof(text), "resume: %s: %.700s", who, why);
        append_reason(eu, text);
        send_update_end(c, u, eu);
        finish(c, u, eu, STEP_FAILED, now);
    } else {
        rank_failed(c, u, eu, t, why, now);
    }
}

void sw_coord_engine_state(struct sw_coordinator *c, const struct registration *reg,
    enum sw_rank_state state, const char *why, uint64_t now)
{
    struct update *u = c->publishing;
    struct engine_update *eu = find_engine(c, reg->engine);
    struct target *t = eu ? find_target(eu, reg->member, reg->rank, &reg->instance) : NULL;
    bool over;
    char text[SW_TEXT_MAX + 1];

    if (!t || sw_coord_step_over(eu->step))
        return;
    t->state = state;
    if (eu->step < STEP_PAUSE || eu->step > STEP_ACTIVATE)
        return;
    /* Its inferd has ended the update by itself: resumed what it had, or kept it as torn. */
    over = (state == SW_RANK_TORN && !t->was_torn) ||
           (state == SW_RANK_SERVING && eu->step > STEP_PAUSE);
    if (!over)
        return;
    snprintf(text, sizeof(text), "its inferd ended the update by itself (it is %s now)%s%.600s",
        sw_rank_state_name(state), why[0] ? ": " : "", why);
    rank_failed(c, u, eu, t, text, now);
}

void sw_coord_engine_trainerd_lost(
    struct sw_coordinator *c, uint64_t member, const char *why, uint64_t now)
{
    struct update *u = c->publishing;
    char text[400];

    snprintf(text, sizeof(text), "this trainerd is gone (%.300s)", why);
    for (uint32_t i = 0; u && i < u->n_engines; i++) {
        struct engine_update *eu = &u->engines[i];

        for (uint32_t j = 0; j < eu->n_targets && eu->step <= STEP_WRITE; j++)
            for (uint32_t k = 0; k < eu->targets[j].n_links && eu->step <= STEP_WRITE; k++) {
                struct link *link = &eu->targets[j].links[k];

                if (link->member == member && !link->written)
                    link_failed(c, eu, &eu->targets[j], link, text, now);
            }
    }
}

/* ---- time ---- */

static void list_waiting(const struct engine_update *eu, char *out, size_t size)
{
    struct name_list list = {.out = out, .size = size};

    for (uint32_t i = 0; i < eu->n_targets; i++) {
        const struct target *t = &eu->targets[i];

        if (t->waiting)
            sw_coord_list_add(&list, "rank %u on %s (process %u)", t->rank, t->host, t->pid);
        for (uint32_t k = 0; k < t->n_links; k++)
            if (t->links[k].waiting)
                sw_coord_list_add(
                    &list, "trainerd %s to rank %u on %s", t->links[k].host, t->rank, t->host);
    }
    sw_coord_list_end(&list);
}

static void is_late(
    struct sw_coordinator *c, struct update *u, struct engine_update *eu, uint64_t now)
{
    char who[400], text[SW_TEXT_MAX + 1];

    list_waiting(eu, who, sizeof(who));
    snprintf(text, sizeof(text), "%s: no answer in %.1f s from %s; %s", steps[eu->step].name,
        sw_coord_seconds(eu->since, now), who, steps[eu->step].advice);
    if (eu->step == STEP_RESUME || eu->step == STEP_ENDING) {
        append_reason(eu, text);
        finish(c, u, eu, eu->step == STEP_RESUME ? STEP_LIVE : STEP_FAILED, now);
    } else {
        fail(c, u, eu, now, text);
    }
}

void sw_coord_engine_tick(struct sw_coordinator *c, uint64_t now)
{
    struct update *u = c->publishing;

    for (uint32_t i = 0; u && i < u->n_engines; i++)
        if (!sw_coord_step_over(u->engines[i].step) && now >= u->engines[i].deadline)
            is_late(c, u, &u->engines[i], now);
}

uint64_t sw_coord_engine_deadline(const struct sw_coordinator *c)
{
    const struct update *u = c->publishing;
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; u && i < u->n_engines; i++)
        if (!sw_coord_step_over(u->engines[i].step) && u->engines[i].deadline < least)
            least = u->engines[i].deadline;
    return least;
}
