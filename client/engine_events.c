/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of an update as the engine process sees them. What inferd asks is checked against what
 * this process knows of its own memory: memory is written only while paused and prepared, and
 * after this process wrote to it only an activation lets it resume.
 */
#include <inttypes.h>
#include "client/engine_impl.h"
#include "common/error.h"
#include "common/limits.h"

#define IGNORED_MAX 4096u /* messages handled in one call after its time is up */

static int lose(struct sw_engine *en, int rc, const struct sw_error *why, struct sw_error *e)
{
    sw_fail(&en->lost, SW_ERR_CLOSED, "%.960s", why->text);
    engine_disconnect(en);
    return sw_fail(
        e, rc == SW_ERR_NOMEM ? rc : SW_ERR_CLOSED, "%s (register again)", en->lost.text);
}

static int check_connected(const struct sw_engine *en, struct sw_error *e)
{
    if (en->registered)
        return 0;
    if (en->lost.code)
        return sw_fail(e, SW_ERR_CLOSED, "%s (register again)", en->lost.text);
    return sw_fail(e, SW_ERR_STATE, "engine %s rank %u is not registered", en->name, en->rank);
}

/* Sends a message (owned; NULL = no memory). */
static int post(struct sw_engine *en, struct sw_msg *msg, struct sw_error *e)
{
    struct sw_error why;
    int rc;

    if (!msg)
        rc = sw_fail(&why, SW_ERR_NOMEM, "no memory for an answer to inferd");
    else
        rc = sw_channel_send(en->channel, msg, NULL, 0, sw_deadline_in(SW_CLIENT_MS), &why);
    sw_msg_free(msg);
    return rc ? lose(en, rc, &why, e) : 0;
}

static int answer(struct sw_engine *en, enum sw_phase phase, uint64_t update, int code,
    const char *reason, struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE_DONE);

    if (msg) {
        msg->u.phase_done = (struct sw_phase_done){.phase = phase,
            .update = update,
            .engine = en->name,
            .rank = en->rank,
            .instance = en->instance,
            .error = {.code = code, .reason = reason},
            .state = SW_RANK_SERVING};
    }
    return post(en, msg, e);
}

/* ---- events ---- */

static const struct {
    enum sw_event_kind event;
    const char *name;
} events[] = {
    [SW_PHASE_PAUSE] = {SW_EVENT_PAUSE, "pause"},
    [SW_PHASE_PREPARE] = {SW_EVENT_PREPARE, "prepare"},
    [SW_PHASE_POST] = {SW_EVENT_POST, "post-process"},
    [SW_PHASE_ACTIVATE] = {SW_EVENT_ACTIVATE, "activate"},
    [SW_PHASE_RESUME] = {SW_EVENT_RESUME, "resume"},
};

static enum sw_phase phase_of(enum sw_event_kind kind)
{
    for (unsigned p = 0; p < sizeof(events) / sizeof(events[0]); p++)
        if (events[p].event == kind && events[p].name)
            return (enum sw_phase)p;
    return 0;
}

/* Why this phase can't be now; NULL = it can. */
static const char *objection(const struct sw_engine *en, const struct sw_phase_msg *p)
{
    if (!sw_id_equal(&p->instance, &en->instance))
        return "it is for another instance of this engine rank";
    switch (p->phase) {
    case SW_PHASE_PAUSE:
        return NULL;
    case SW_PHASE_PREPARE:
        return en->paused ? NULL : "the engine is not paused";
    case SW_PHASE_POST:
    case SW_PHASE_ACTIVATE:
        return en->paused && en->prepared ? NULL : "the engine is not paused and prepared";
    case SW_PHASE_RESUME:
        return en->written ? "its weights were written and not activated: it is torn" : NULL;
    default:
        return "an engine process knows no such phase";
    }
}

static void give(struct sw_engine *en, const struct sw_event *event, bool own, struct sw_event *out)
{
    en->event = *event;
    en->own = own;
    if (event->kind == SW_EVENT_PAUSE)
        en->paused = true;
    *out = *event;
}

static int take_phase(
    struct sw_engine *en, const struct sw_phase_msg *p, struct sw_event *out, struct sw_error *e)
{
    const char *why = objection(en, p);
    struct sw_event event = {.update = p->update, .version = p->version};

    if (why)
        return answer(en, p->phase, p->update, SW_ERR_STATE, why, e);
    event.kind = events[p->phase].event;
    give(en, &event, false, out);
    return 0;
}

/* ---- local copies ---- */

static struct sw_msg *refuse_copy(const struct sw_local_copy *c)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_LOCAL_DONE);

    if (msg)
        msg->u.local_done = (struct sw_local_done){.copy = c->copy,
            .error = {.code = SW_ERR_STATE, .reason = "the engine is not paused and prepared"}};
    return msg;
}

static int take_local(struct sw_engine *en, struct sw_msg *msg, struct sw_error *e)
{
    const bool copy = msg->kind == SW_MSG_LOCAL_COPY;

    if (copy && !(en->paused && en->prepared))
        return post(en, refuse_copy(&msg->u.local_copy), e);
    if (copy && msg->u.local_copy.mode == SW_LOCAL_WRITE)
        en->written = true;
    return post(en, sw_local_engine_handle(en->local, msg), e);
}

/* ---- next event ---- */

/* Takes a message (owned); out->kind tells whether it was an event. */
static int take(struct sw_engine *en, struct sw_msg *msg, struct sw_event *out, struct sw_error *e)
{
    struct sw_error why;
    int rc;

    switch (msg->kind) {
    case SW_MSG_PHASE:
        rc = take_phase(en, &msg->u.phase, out, e);
        break;
    case SW_MSG_LOCAL_SOURCE:
    case SW_MSG_LOCAL_COPY:
        rc = take_local(en, msg, e);
        break;
    case SW_MSG_ERROR:
        sw_fail(&why, SW_ERR_CLOSED, "inferd ended the session: %.900s", msg->u.error.reason);
        rc = lose(en, SW_ERR_CLOSED, &why, e);
        break;
    default:
        sw_fail(&why, SW_ERR_PROTOCOL, "inferd sent %s, which no engine expects",
            sw_msg_kind_name(msg->kind));
        rc = lose(en, SW_ERR_PROTOCOL, &why, e);
    }
    sw_msg_free(msg);
    return rc;
}

int sw_engine_next_event(
    sw_engine *en, uint32_t timeout_ms, struct sw_event *event, struct sw_error *e)
{
    const uint64_t deadline = timeout_ms ? sw_deadline_in(timeout_ms) : SW_NO_WAIT;
    struct sw_event out = {.kind = SW_EVENT_NONE};
    uint32_t late = 0;
    int rc = check_connected(en, e);

    *event = out;
    if (rc)
        return rc;
    if (en->event.kind != SW_EVENT_NONE)
        return sw_fail(e, SW_ERR_STATE, "%s of update %" PRIu64 " is not acknowledged yet",
            events[phase_of(en->event.kind)].name, en->event.update);
    if (en->resume_due) {
        out = (struct sw_event){.kind = SW_EVENT_RESUME, .version = en->version};
        en->resume_due = false;
        give(en, &out, true, event);
        return 0;
    }
    while (out.kind == SW_EVENT_NONE) {
        struct sw_error why;
        struct sw_msg *msg;

        rc = sw_channel_receive(en->channel, deadline, "an event", &msg, &why);
        if (rc == SW_ERR_TIMEOUT)
            return 0;
        rc = rc ? lose(en, rc, &why, e) : take(en, msg, &out, e);
        if (rc)
            return rc;
        if (sw_clock_ns() > deadline && ++late > IGNORED_MAX)
            return 0;
    }
    *event = out;
    return 0;
}

/* ---- acknowledging ---- */

/* What an acknowledgement means, whether inferd hears of it or not. A successful prepare counts
 * before it is sent: from then on memory may be written. */
static void settle(struct sw_engine *en, const struct sw_event *event, int code)
{
    if (code)
        return;
    switch (event->kind) {
    case SW_EVENT_PREPARE:
        en->prepared = true;
        break;
    case SW_EVENT_ACTIVATE:
        en->version = event->version;
        en->prepared = en->written = false;
        break;
    case SW_EVENT_RESUME:
        en->paused = en->prepared = false;
        break;
    default:
        break;
    }
}

int sw_engine_ack(
    sw_engine *en, const struct sw_event *event, int code, const char *reason, struct sw_error *e)
{
    const struct sw_event given = en->event;
    int rc;

    if (given.kind == SW_EVENT_NONE) {
        rc = check_connected(en, e);
        return rc ? rc : sw_fail(e, SW_ERR_STATE, "no event waits for an acknowledgement");
    }
    if (event->kind != given.kind || event->update != given.update)
        return sw_fail(e, SW_ERR_STATE,
            "%s of update %" PRIu64 " waits for an acknowledgement, not that of update %" PRIu64,
            events[phase_of(given.kind)].name, given.update, event->update);
    en->event.kind = SW_EVENT_NONE;
    settle(en, &given, code);
    if (en->own)
        return 0;
    rc = check_connected(en, e);
    if (rc)
        return rc;
    return answer(en, phase_of(given.kind), given.update,
        code < 0 ? code
        : code   ? SW_ERR_INVALID
                 : 0,
        code ? (reason && reason[0] ? reason : "the engine gave no reason") : "", e);
}
