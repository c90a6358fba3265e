/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of an update in one engine rank: what the coordinator asks, what the engine process
 * answers. A step is refused, and changes nothing, unless the one before it is done.
 */
#include "inferd/registry_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"

/* Fills what every PHASE_DONE carries. NULL = no memory. */
static struct sw_msg *done_message(const char *engine, uint32_t rank, const struct sw_id *instance,
    enum sw_phase phase, uint64_t update, enum sw_rank_state state, int code, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE_DONE);
    struct sw_phase_done *out;

    if (!msg)
        return NULL;
    out = &msg->u.phase_done;
    out->phase = phase;
    out->update = update;
    out->rank = rank;
    out->instance = *instance;
    out->state = state;
    out->error.code = code;
    out->engine = sw_arena_strdup(&msg->arena, engine);
    out->error.reason = sw_arena_strdup(&msg->arena, reason ? reason : "");
    if (!out->engine || !out->error.reason) {
        sw_msg_free(msg);
        return NULL;
    }
    return msg;
}

static struct sw_msg *rank_done(
    struct sw_rank *k, enum sw_phase phase, uint64_t update, int code, const char *reason)
{
    k->told = sw_step_state(k->step, k->torn);
    return done_message(k->manifest.engine, k->manifest.rank, &k->manifest.instance, phase, update,
        k->told, code, reason);
}

void sw_phase_reply(struct sw_registry *r, struct sw_rank *k, enum sw_phase phase, uint64_t update,
    int code, const char *reason)
{
    sw_out_coordinator(r, rank_done(k, phase, update, code, reason));
}

/* ---- refusals ---- */

static struct sw_rank *find_rank(struct sw_registry *r, const struct sw_phase_msg *p)
{
    for (struct sw_rank *k = r->ranks; k; k = k->next)
        if (sw_step_registered(k->step) && sw_id_equal(&k->manifest.instance, &p->instance) &&
            k->manifest.rank == p->rank && strcmp(k->manifest.engine, p->engine) == 0)
            return k;
    return NULL;
}

static int check_update(const struct sw_registry *r, const struct sw_engine *g,
    const struct sw_phase_msg *p, struct sw_error *e)
{
    if (p->update == 0)
        return sw_fail(e, SW_ERR_INVALID, "update 0 is none");
    if (p->update < g->last_update)
        return sw_fail(e, SW_ERR_STATE,
            "update %" PRIu64 " is older than update %" PRIu64 ", the last one of engine %s here",
            p->update, g->last_update, g->name);
    if (g->update && g->armed_by != r->generation)
        return sw_fail(e, SW_ERR_STATE,
            "update %" PRIu64
            " was armed over another connection: it can't be driven over this one",
            g->update);
    return 0;
}

/* The question belongs to the running update, with all its numbers. */
static int check_running(const struct sw_engine *g, const struct sw_rank *k,
    const struct sw_phase_msg *p, struct sw_error *e)
{
    if (g->update != p->update || !k->member)
        return sw_fail(e, SW_ERR_STATE,
            "update %" PRIu64 " is not under way in " SW_RANK_FMT
            ": it is over, or was not armed%s%s",
            p->update, SW_RANK_ARGS(k), k->reason[0] ? "; last change: " : "", k->reason);
    if (p->version != g->version || p->layout_epoch != g->layout_epoch ||
        p->membership_epoch != g->membership_epoch)
        return sw_fail(e, SW_ERR_STATE,
            "update %" PRIu64 " was armed for version %" PRIu64 ", epochs %" PRIu64 "/%" PRIu64
            "; this message is of version %" PRIu64 ", epochs %" PRIu64 "/%" PRIu64,
            p->update, g->version, g->layout_epoch, g->membership_epoch, p->version,
            p->layout_epoch, p->membership_epoch);
    return 0;
}

static int check_order(const struct sw_rank *k, const struct sw_phase_msg *p, struct sw_error *e)
{
    if (k->failed)
        return sw_fail(e, SW_ERR_STATE,
            SW_RANK_FMT " failed in update %" PRIu64 " (%.300s); only abort is possible",
            SW_RANK_ARGS(k), p->update, k->reason);
    if (k->asked)
        return sw_fail(e, SW_ERR_STATE, "%s of " SW_RANK_FMT " has not been answered yet",
            sw_phase_name(k->asked), SW_RANK_ARGS(k));
    if (p->phase != k->done + 1)
        return sw_fail(e, SW_ERR_STATE, "%s of " SW_RANK_FMT " is out of order: it is %s",
            sw_phase_name(p->phase), SW_RANK_ARGS(k), sw_step_name(k->step));
    if (p->phase == SW_PHASE_POST && k->placed_bytes != k->expected_bytes)
        return sw_fail(e, SW_ERR_STATE,
            SW_RANK_FMT " was given %" PRIu64 " bytes, %" PRIu64 " were planned", SW_RANK_ARGS(k),
            k->placed_bytes, k->expected_bytes);
    return 0;
}

/*
 * Steps that need the whole engine: a window opens only when all its ranks here are prepared, and
 * so on. The coordinator waits for that anyway; this does not rely on it.
 */
static int check_engine(const struct sw_registry *r, const struct sw_engine *g,
    const struct sw_phase_msg *p, struct sw_error *e)
{
    if (p->phase != SW_PHASE_OPEN && p->phase != SW_PHASE_POST && p->phase != SW_PHASE_ACTIVATE &&
        p->phase != SW_PHASE_RESUME)
        return 0;
    if (g->broken)
        return sw_fail(e, SW_ERR_STATE,
            "another rank of engine %s went away in update %" PRIu64 ": only abort is possible",
            g->name, g->update);
    for (const struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->engine != g || !sw_step_registered(k->step))
            continue;
        if (!k->member && p->phase == SW_PHASE_OPEN)
            return sw_fail(e, SW_ERR_STATE,
                SW_RANK_FMT " is registered and takes no part in update %" PRIu64
                            ": no window opens beside it",
                SW_RANK_ARGS(k), g->update);
        if (k->member && k->done + 1u < p->phase)
            return sw_fail(e, SW_ERR_STATE, "%s is too early: " SW_RANK_FMT " is still %s",
                sw_phase_name(p->phase), SW_RANK_ARGS(k), sw_step_name(k->step));
    }
    return 0;
}

/* ---- ARM ---- */

static int check_arm(const struct sw_engine *g, const struct sw_rank *k,
    const struct sw_phase_msg *p, struct sw_error *e)
{
    if (p->update == g->last_update && g->update != p->update)
        return sw_fail(e, SW_ERR_STATE, "update %" PRIu64 " of engine %s is over; %s", p->update,
            g->name, k->reason);
    if (k->step == SW_STEP_TEARING)
        return sw_fail(e, SW_ERR_STATE,
            "the write window of " SW_RANK_FMT " is still being closed; try again",
            SW_RANK_ARGS(k));
    if (p->version == 0 || (p->version < k->version && !k->torn))
        return sw_fail(e, SW_ERR_VERSION,
            SW_RANK_FMT " holds version %" PRIu64 ", %" PRIu64
                        " is not newer; versions only grow: choose one above %" PRIu64,
            SW_RANK_ARGS(k), k->version, p->version, k->version);
    if (g->update != p->update)
        return 0;
    if (g->opened || g->broken)
        return sw_fail(e, SW_ERR_STATE,
            SW_RANK_FMT " can't join update %" PRIu64 ": it is under way in engine %s",
            SW_RANK_ARGS(k), g->update, g->name);
    if (k->member && (k->done != SW_PHASE_ARM || k->asked || k->failed))
        return sw_fail(e, SW_ERR_STATE, "arm of " SW_RANK_FMT " is out of order: it is %s",
            SW_RANK_ARGS(k), sw_step_name(k->step));
    if (p->version != g->version || p->layout_epoch != g->layout_epoch ||
        p->membership_epoch != g->membership_epoch)
        return sw_fail(e, SW_ERR_STATE,
            "update %" PRIu64 " of engine %s was armed with another version or epoch", p->update,
            g->name);
    return 0;
}

static int issue_tokens(struct sw_registry *r, struct sw_rank *k, const struct sw_phase_msg *p,
    struct sw_msg *reply, uint64_t now_ns, struct sw_error *e)
{
    struct sw_phase_done *out = &reply->u.phase_done;

    out->issued = sw_arena_array(&reply->arena, p->n, sizeof(*out->issued));
    if (!out->issued)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the tokens of %u writers", p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct sw_writer_ref *w = &p->writers[i];
        struct sw_issued *issued = &out->issued[i];
        uint32_t n = w->connections;
        int rc;

        issued->trainerd = w->trainerd;
        issued->tokens = n <= SW_TCP_CONNECTIONS_MAX
                             ? sw_arena_array(&reply->arena, n, sizeof(*issued->tokens))
                             : NULL;
        if (!issued->tokens && n <= SW_TCP_CONNECTIONS_MAX)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for %u data tokens", n);
        rc = sw_tokens_issue(&k->tokens, &w->trainerd, n, p->layout_epoch,
            now_ns + r->config.token_ns, r->config.random, r->config.random_arg, issued->tokens, e);
        if (rc)
            return sw_error_context(e, rc, SW_RANK_FMT, SW_RANK_ARGS(k));
        issued->n = n;
        out->n = i + 1;
    }
    return 0;
}

static int arm(struct sw_registry *r, struct sw_rank *k, const struct sw_phase_msg *p,
    uint64_t now_ns, struct sw_error *e)
{
    struct sw_engine *g = k->engine;
    struct sw_msg *reply;
    int rc;

    /* The coordinator went on to another update without ending this one. */
    if (g->update && p->update > g->update)
        sw_update_end(r, g, SW_LOG_WARNING, "the coordinator armed a newer update");
    rc = check_arm(g, k, p, e);
    if (rc)
        return rc;
    reply = rank_done(k, SW_PHASE_ARM, p->update, 0, "");
    if (!reply)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to arm " SW_RANK_FMT, SW_RANK_ARGS(k));
    if (!k->member)
        sw_tokens_clear(&k->tokens);
    rc = issue_tokens(r, k, p, reply, now_ns, e);
    if (rc) {
        sw_tokens_clear(&k->tokens);
        sw_msg_free(reply);
        return rc;
    }
    if (!g->update)
        sw_update_begin(r, g, p);
    k->member = true;
    k->failed = false;
    k->done = SW_PHASE_ARM;
    k->layout_epoch = p->layout_epoch;
    k->expected_bytes = k->placed_bytes = 0;
    sw_out_coordinator(r, reply);
    return 0;
}

/* ---- the other steps ---- */

static void finish(struct sw_registry *r, struct sw_rank *k, enum sw_phase phase)
{
    k->done = phase;
    k->asked = 0;
    sw_phase_reply(r, k, phase, k->engine->update, 0, "");
}

/* The step failed: the coordinator hears why, and only ABORT goes on. */
static void fail(
    struct sw_registry *r, struct sw_rank *k, enum sw_phase phase, int code, const char *reason)
{
    bool asked = k->asked == phase;

    k->failed = true;
    k->asked = 0;
    snprintf(k->reason, sizeof(k->reason), "%s failed: %.900s", sw_phase_name(phase), reason);
    sw_out_log(r, SW_LOG_ERROR, SW_RANK_FMT ", update %" PRIu64 ": %.900s", SW_RANK_ARGS(k),
        k->engine->update, k->reason);
    if (asked)
        sw_phase_reply(r, k, phase, k->engine->update, code, reason);
}

static void pause_rank(
    struct sw_registry *r, struct sw_rank *k, struct sw_msg *msg, uint64_t now_ns)
{
    if (k->step == SW_STEP_TORN && k->paused) {
        sw_rank_go(k, SW_STEP_PAUSED);
        k->awaited = 0;
        sw_update_start_lease(r, k->engine, now_ns);
        finish(r, k, SW_PHASE_PAUSE);
        sw_msg_free(msg);
        return;
    }
    sw_rank_go(k, SW_STEP_PAUSING);
    sw_out_engine(r, k, msg);
}

static void open_window(struct sw_registry *r, struct sw_rank *k, const struct sw_phase_msg *p)
{
    do
        r->config.random(k->window.bytes, sizeof(k->window.bytes), r->config.random_arg);
    while (sw_id_is_none(&k->window));
    k->expected_bytes = p->expected_bytes;
    k->placed_bytes = 0;
    k->engine->opened = true;
    sw_rank_go(k, SW_STEP_OPENING);
    k->want |= SW_WANT_OPEN;
}

/* Carries out a step that was found to be in order. Owns msg. */
static void start(struct sw_registry *r, struct sw_rank *k, struct sw_msg *msg, uint64_t now_ns)
{
    const struct sw_phase_msg *p = &msg->u.phase;

    k->asked = p->phase;
    switch (p->phase) {
    case SW_PHASE_OPEN:
        open_window(r, k, p);
        sw_msg_free(msg);
        return;
    case SW_PHASE_CLOSE:
        sw_rank_go(k, SW_STEP_CLOSING);
        k->want |= SW_WANT_CLOSE;
        sw_msg_free(msg);
        return;
    default:
        break;
    }
    k->awaited = p->phase;
    k->awaited_update = p->update;
    switch (p->phase) {
    case SW_PHASE_PAUSE:
        pause_rank(r, k, msg, now_ns);
        return;
    case SW_PHASE_PREPARE:
        sw_rank_go(k, SW_STEP_PREPARING);
        break;
    case SW_PHASE_POST:
        sw_rank_go(k, SW_STEP_POSTING);
        break;
    case SW_PHASE_ACTIVATE:
        sw_rank_go(k, SW_STEP_ACTIVATING);
        break;
    default:
        assert(p->phase == SW_PHASE_RESUME);
        sw_rank_go(k, SW_STEP_RESUMING);
        k->paused = false;
        break;
    }
    sw_out_engine(r, k, msg);
}

/* ABORT always succeeds for a rank that is here, and may be repeated. */
static int abort_update(
    struct sw_registry *r, struct sw_rank *k, const struct sw_phase_msg *p, struct sw_error *e)
{
    struct sw_engine *g = k->engine;
    char why[SW_TEXT_MAX + 1];

    if (g->update) {
        snprintf(why, sizeof(why), "aborted by the coordinator%s%.800s",
            p->reason && p->reason[0] ? ": " : "", p->reason ? p->reason : "");
        sw_update_end(r, g, SW_LOG_WARNING, why);
    }
    g->last_update = p->update;
    if (k->step == SW_STEP_TEARING)
        k->abort_update = p->update;
    else
        sw_phase_reply(r, k, SW_PHASE_ABORT, p->update, 0, "");
    return 0;
}

void sw_phase_handle(struct sw_registry *r, struct sw_msg *msg, uint64_t now_ns)
{
    struct sw_phase_msg *p = &msg->u.phase;
    struct sw_rank *k = find_rank(r, p);
    struct sw_error e = {0};
    char id[17];
    int rc;

    if (!k) {
        rc = sw_fail(&e, SW_ERR_NOT_FOUND,
            "no engine %s rank %u of instance %s here: its process is gone, or registered again",
            p->engine, p->rank, sw_id_short(&p->instance, id));
        goto refuse;
    }
    rc = check_update(r, k->engine, p, &e);
    if (!rc && p->phase == SW_PHASE_ARM)
        rc = arm(r, k, p, now_ns, &e);
    else if (!rc && p->phase == SW_PHASE_ABORT)
        rc = abort_update(r, k, p, &e);
    else if (!rc) {
        rc = check_running(k->engine, k, p, &e);
        if (!rc)
            rc = check_order(k, p, &e);
        if (!rc)
            rc = check_engine(r, k->engine, p, &e);
        if (!rc) {
            p->n = 0; /* writers are for ARM only: nobody else's business */
            start(r, k, msg, now_ns);
            return;
        }
    }
    if (!rc) {
        sw_msg_free(msg);
        return;
    }
refuse:
    sw_out_log(r, SW_LOG_WARNING, "refused %s of update %" PRIu64 ": %s", sw_phase_name(p->phase),
        p->update, e.text);
    if (k)
        sw_phase_reply(r, k, p->phase, p->update, rc, e.text);
    else
        sw_out_coordinator(r, done_message(p->engine, p->rank, &p->instance, p->phase, p->update,
                                  SW_RANK_GONE, rc, e.text));
    sw_msg_free(msg);
}

/* ---- answers of the engine process ---- */

/* A pause acknowledged after the update's end. */
static void paused_late(struct sw_registry *r, struct sw_rank *k, uint64_t update)
{
    if (k->step == SW_STEP_TORN)
        k->paused = true;
    else
        sw_update_send_resume(r, k, update, k->version);
}

static void resumed(struct sw_registry *r, struct sw_rank *k, int code, const char *reason)
{
    struct sw_engine *g = k->engine;

    sw_rank_go(k, SW_STEP_SERVING);
    if (code)
        sw_out_log(
            r, SW_LOG_ERROR, SW_RANK_FMT " could not resume: %.800s", SW_RANK_ARGS(k), reason);
    if (!k->member)
        return;
    k->done = SW_PHASE_RESUME;
    if (k->asked) {
        k->asked = 0;
        sw_phase_reply(r, k, SW_PHASE_RESUME, g->update, code, reason);
    }
    sw_update_finish(r, g);
}

static void step_failed(
    struct sw_registry *r, struct sw_rank *k, enum sw_phase phase, int code, const char *reason)
{
    /* A failed pause may have paused some of it: it is resumed in the end as any other. */
    static const enum sw_step back[] = {[SW_PHASE_PAUSE] = SW_STEP_PAUSED,
        [SW_PHASE_PREPARE] = SW_STEP_PAUSED,
        [SW_PHASE_POST] = SW_STEP_CLOSED,
        [SW_PHASE_ACTIVATE] = SW_STEP_POSTED};

    sw_rank_go(k, back[phase]);
    fail(r, k, phase, code, reason);
}

static void step_done(struct sw_registry *r, struct sw_rank *k, enum sw_phase phase)
{
    static const enum sw_step next[] = {[SW_PHASE_PAUSE] = SW_STEP_PAUSED,
        [SW_PHASE_PREPARE] = SW_STEP_PREPARED,
        [SW_PHASE_POST] = SW_STEP_POSTED,
        [SW_PHASE_ACTIVATE] = SW_STEP_ACTIVE};

    sw_rank_go(k, next[phase]);
    if (phase == SW_PHASE_ACTIVATE) {
        k->version = k->engine->version;
        k->torn = false;
        k->updates++;
        k->bytes_total += k->placed_bytes;
        k->reason[0] = '\0';
    }
    finish(r, k, phase);
}

void sw_phase_answer(
    struct sw_registry *r, struct sw_rank *k, const struct sw_phase_done *done, uint64_t now_ns)
{
    enum sw_phase phase = k->awaited;
    uint64_t update = k->awaited_update;
    int code = done->error.code;
    const char *reason = done->error.reason;

    /* Answers that nobody waits for any more are normal after an abort or the lease's end. */
    if (!phase || done->phase != phase || done->update != update ||
        !sw_id_equal(&done->instance, &k->manifest.instance))
        return;
    if (code > 0)
        code = SW_ERR_INVALID;
    if (!code || !reason || !reason[0])
        reason = code ? sw_code_name(code) : "";
    k->awaited = 0;
    if (phase == SW_PHASE_RESUME) {
        resumed(r, k, code, reason);
        return;
    }
    if (!k->member || k->step == SW_STEP_TORN) {
        assert(phase == SW_PHASE_PAUSE);
        paused_late(r, k, update);
        return;
    }
    if (phase == SW_PHASE_PAUSE) {
        k->paused = true;
        sw_update_start_lease(r, k->engine, now_ns);
    }
    if (code)
        step_failed(r, k, phase, code, reason);
    else
        step_done(r, k, phase);
}

/* ---- windows ---- */

void sw_phase_window_opened(struct sw_registry *r, struct sw_rank *k, int code, const char *text)
{
    if (k->step != SW_STEP_OPENING)
        return;
    if (code == 0) {
        struct sw_msg *reply;

        sw_rank_go(k, SW_STEP_OPEN);
        k->done = SW_PHASE_OPEN;
        k->asked = 0;
        reply = rank_done(k, SW_PHASE_OPEN, k->engine->update, 0, "");
        if (reply)
            reply->u.phase_done.window = k->window;
        sw_out_coordinator(r, reply);
        return;
    }
    sw_rank_go(k, SW_STEP_CLOSING); /* some of it may be open */
    k->want |= SW_WANT_CLOSE;
    fail(r, k, SW_PHASE_OPEN, code, text ? text : "the window could not be opened");
}

static void closed(struct sw_registry *r, struct sw_rank *k, uint64_t bytes)
{
    char text[160];
    struct sw_msg *reply;
    int code = 0;

    sw_rank_go(k, SW_STEP_CLOSED);
    k->placed_bytes = bytes;
    if (k->failed) /* it was opened only in part */
        return;
    text[0] = '\0';
    if (bytes != k->expected_bytes) {
        code = SW_ERR_STATE;
        snprintf(text, sizeof(text),
            "the window of " SW_RANK_FMT " was given %" PRIu64 " bytes, %" PRIu64 " were planned",
            SW_RANK_ARGS(k), bytes, k->expected_bytes);
        k->failed = true;
        snprintf(k->reason, sizeof(k->reason), "%s", text);
        sw_out_log(r, SW_LOG_ERROR, "update %" PRIu64 ": %s", k->engine->update, text);
    } else {
        k->done = SW_PHASE_CLOSE;
    }
    if (!k->asked)
        return;
    k->asked = 0;
    reply = rank_done(k, SW_PHASE_CLOSE, k->engine->update, code, text);
    if (reply)
        reply->u.phase_done.bytes = bytes;
    sw_out_coordinator(r, reply);
}

void sw_phase_window_closed(struct sw_registry *r, struct sw_rank *k, uint64_t bytes)
{
    uint64_t aborted = k->abort_update;

    if (k->step != SW_STEP_CLOSING && k->step != SW_STEP_TEARING)
        return;
    memset(&k->window, 0, sizeof(k->window));
    if (k->step == SW_STEP_CLOSING) {
        closed(r, k, bytes);
        return;
    }
    k->placed_bytes = bytes;
    sw_rank_go(k, SW_STEP_TORN);
    k->abort_update = 0;
    if (aborted)
        sw_phase_reply(r, k, SW_PHASE_ABORT, aborted, 0, "");
}
