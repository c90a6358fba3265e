/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/registry_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sw_out *append(struct sw_registry *r, enum sw_registry_action_kind kind)
{
    struct sw_out *out = calloc(1, sizeof(*out));

    if (!out)
        return NULL;
    out->action.kind = kind;
    *r->last = out;
    r->last = &out->next;
    return out;
}

void sw_out_clear(struct sw_registry *r)
{
    struct sw_out *next;

    for (struct sw_out *out = r->first; out; out = next) {
        next = out->next;
        sw_msg_free(out->action.message);
        free(out);
    }
    r->first = NULL;
    r->last = &r->first;
}

/* What was meant for a coordinator that is gone must not reach the next one. */
void sw_out_purge_coordinator(struct sw_registry *r)
{
    struct sw_out **link = &r->first;

    while (*link) {
        struct sw_out *out = *link;

        if (out->action.kind != SW_REG_TO_COORDINATOR) {
            link = &out->next;
            continue;
        }
        *link = out->next;
        sw_msg_free(out->action.message);
        free(out);
    }
    r->last = link;
}

void sw_out_engine(struct sw_registry *r, struct sw_rank *k, struct sw_msg *msg)
{
    struct sw_out *out = msg ? append(r, SW_REG_TO_ENGINE) : NULL;

    if (!out) {
        sw_msg_free(msg);
        sw_out_drop(k, "inferd has no memory for a message to this engine process");
        return;
    }
    out->action.session = k->session;
    out->action.message = msg;
}

void sw_out_coordinator(struct sw_registry *r, struct sw_msg *msg)
{
    struct sw_out *out = msg && r->coordinator_up ? append(r, SW_REG_TO_COORDINATOR) : NULL;

    if (out)
        out->action.message = msg;
    else
        sw_msg_free(msg);
}

void sw_out_log(struct sw_registry *r, int level, const char *format, ...)
{
    struct sw_out *out = append(r, SW_REG_LOG);
    va_list args;

    if (!out)
        return;
    out->action.level = level;
    va_start(args, format);
    vsnprintf(out->action.text, sizeof(out->action.text), format, args);
    va_end(args);
}

void sw_out_drop(struct sw_rank *k, const char *format, ...)
{
    va_list args;

    if (k->dropped)
        return;
    k->dropped = true;
    k->want |= SW_WANT_DROP;
    va_start(args, format);
    vsnprintf(k->drop_text, sizeof(k->drop_text), format, args);
    va_end(args);
}

/* The actions that lie in a rank, in the order in which they make sense. */
static bool take_wanted(struct sw_rank *k, struct sw_registry_action *action)
{
    static const struct {
        uint32_t want;
        enum sw_registry_action_kind kind;
    } order[] = {{SW_WANT_MAP, SW_REG_MAP}, {SW_WANT_OPEN, SW_REG_WINDOW_OPEN},
        {SW_WANT_CLOSE, SW_REG_WINDOW_CLOSE}, {SW_WANT_RELEASE, SW_REG_RELEASE}};

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (!(k->want & order[i].want))
            continue;
        k->want &= ~order[i].want;
        action->kind = order[i].kind;
        action->session = k->session;
        action->window = k->window;
        return true;
    }
    return false;
}

static bool take_message(struct sw_registry *r, struct sw_registry_action *action)
{
    struct sw_out *out = r->first;

    if (!out)
        return false;
    r->first = out->next;
    if (!r->first)
        r->last = &r->first;
    *action = out->action;
    free(out);
    return true;
}

static bool take_drop(struct sw_rank *k, struct sw_registry_action *action)
{
    if (!(k->want & SW_WANT_DROP))
        return false;
    k->want &= ~(uint32_t)SW_WANT_DROP;
    action->kind = SW_REG_DROP_ENGINE;
    action->session = k->session;
    snprintf(action->text, sizeof(action->text), "%s", k->drop_text);
    return true;
}

static struct sw_msg *rank_state_message(const struct sw_rank *k)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_RANK_STATE);
    struct sw_rank_state_msg *out;

    if (!msg)
        return NULL;
    out = &msg->u.rank_state;
    out->engine = sw_arena_strdup(&msg->arena, k->manifest.engine);
    out->reason = sw_arena_strdup(&msg->arena, k->reason);
    if (!out->engine || !out->reason) {
        sw_msg_free(msg);
        return NULL;
    }
    out->rank = k->manifest.rank;
    out->instance = k->manifest.instance;
    out->state = sw_step_state(k->step, k->torn);
    out->version = k->version;
    return msg;
}

/* The next message that presents a rank: ENGINE_RANK, then PARAMETERS, then RANK_STATE. */
static struct sw_msg *announce(struct sw_rank *k)
{
    struct sw_msg *msg;

    if (k->announce == SW_ANNOUNCE_DUE) {
        msg = sw_manifest_rank_message(&k->manifest, k->pid);
        if (msg) {
            msg->u.engine_rank.version = k->version;
            msg->u.engine_rank.torn = k->torn;
            k->announce = SW_ANNOUNCE_PARTS;
            k->announce_next = 0;
        }
    } else if (k->announce_next < k->manifest.n) {
        msg = sw_manifest_part(&k->manifest, k->announce_next, &k->announce_next);
    } else {
        msg = rank_state_message(k);
        if (msg) {
            k->announce = SW_ANNOUNCE_DONE;
            k->told = msg->u.rank_state.state;
        }
    }
    return msg;
}

/* A state that changed without a question of the coordinator that is still to be answered. */
static bool has_news(const struct sw_rank *k)
{
    enum sw_rank_state state = sw_step_state(k->step, k->torn);

    if (state == SW_RANK_GONE)
        return k->announce >= SW_ANNOUNCE_PARTS && k->told != SW_RANK_GONE;
    return k->announce == SW_ANNOUNCE_DONE && !k->asked && !k->abort_update && k->told != state;
}

static bool tell_coordinator(struct sw_registry *r, struct sw_registry_action *action)
{
    struct sw_rank *due = NULL;
    struct sw_msg *msg = NULL;

    if (!r->coordinator_up)
        return false;
    for (struct sw_rank *k = r->ranks; k && !msg; k = k->next) {
        if (has_news(k)) {
            msg = rank_state_message(k);
            if (msg)
                k->told = msg->u.rank_state.state;
        } else if (k->step != SW_STEP_GONE && !r->hold &&
                   (k->announce == SW_ANNOUNCE_PARTS || (k->announce == SW_ANNOUNCE_DUE && !due))) {
            due = k; /* one that has begun goes on before another begins */
        }
    }
    if (!msg && due)
        msg = announce(due);
    if (!msg)
        return false;
    action->kind = SW_REG_TO_COORDINATOR;
    action->message = msg;
    return true;
}

/* Ranks whose memory is released and whose end the coordinator knows. */
static void reap(struct sw_registry *r)
{
    struct sw_rank **link = &r->ranks;

    while (*link) {
        struct sw_rank *k = *link;
        bool wanted = k->want || (r->coordinator_up && has_news(k));

        if (k->step != SW_STEP_GONE || !k->released || wanted) {
            link = &k->next;
            continue;
        }
        *link = k->next;
        sw_rank_free(k);
    }
}

bool sw_registry_next(struct sw_registry *r, struct sw_registry_action *action)
{
    bool found = false;

    memset(action, 0, offsetof(struct sw_registry_action, text));
    action->text[0] = '\0';
    for (struct sw_rank *k = r->ranks; k && !found; k = k->next)
        found = take_wanted(k, action);
    if (!found)
        found = take_message(r, action);
    for (struct sw_rank *k = r->ranks; k && !found; k = k->next)
        found = take_drop(k, action);
    if (!found)
        found = tell_coordinator(r, action);
    if (!found)
        reap(r);
    return found;
}

void sw_registry_hold(struct sw_registry *r, bool hold)
{
    r->hold = hold;
}
