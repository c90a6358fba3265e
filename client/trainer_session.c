/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trainerd says, in whatever state the trainer is. Messages of other versions than the one at
 * hand are late and ignored; programs and buffers are always taken, since they are sent once.
 *
 * A begin that was given up may be answered or not. A late grant is answered by ABORT, so that
 * nobody waits for this rank.
 */
#include <inttypes.h>
#include <stdlib.h>
#include "client/options.h"
#include "client/trainer_impl.h"
#include "common/error.h"
#include "common/limits.h"

#define LOOKED_MAX 65536u /* messages taken in one call after its time is up */

bool trainer_staging(const struct sw_trainer *t)
{
    return t->state == TRAINER_STAGING || t->state == TRAINER_SHARING || t->state == TRAINER_ENDING;
}

uint64_t trainer_deadline(uint32_t timeout_ms)
{
    return sw_deadline_in(timeout_ms ? timeout_ms : SW_CLIENT_BACKSTOP_MS);
}

int trainer_post(struct sw_trainer *t, struct sw_msg *msg, uint64_t deadline, struct sw_error *e)
{
    struct sw_error why;
    int rc;

    if (!msg)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a message to trainerd");
    rc = sw_channel_send(t->channel, msg, NULL, 0, deadline, &why);
    sw_msg_free(msg);
    if (!rc)
        return 0;
    if (rc != SW_ERR_TIMEOUT && t->declared && sw_channel_broken(t->channel))
        rc = SW_ERR_CLOSED; /* what an ERROR was about no longer matters */
    return sw_fail(e, rc, "%s", why.text);
}

void trainer_send_abort(struct sw_trainer *t, uint64_t version, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ABORT);

    if (msg) {
        msg->u.abort.rank = t->rank;
        msg->u.abort.version = version;
        msg->u.abort.reason = reason;
    }
    trainer_post(t, msg, sw_deadline_in(SW_CLIENT_MS), NULL);
}

void trainer_bury(struct sw_trainer *t, uint64_t version)
{
    if (version > t->dead)
        t->dead = version;
}

void trainer_uncheck(struct sw_trainer *t)
{
    sw_executor_free(t->executor);
    t->executor = NULL;
    free(t->unused);
    t->unused = NULL;
    t->n_unused = 0;
    t->checked = false;
}

/* ---- messages ---- */

static void set_over(struct sw_trainer *t, const char *reason)
{
    if (t->over.code)
        return;
    sw_fail(&t->over, SW_ERR_ABORTED, "version %" PRIu64 " was aborted: %.900s", t->version,
        reason[0] ? reason : "no reason was given");
    atomic_store(&t->trouble, true);
}

static void set_reply(struct sw_trainer *t, const struct sw_rank_reply *r)
{
    t->replied = true;
    t->reply = *r;
    t->reply.error.reason = NULL; /* lives in the message */
    t->outcome.code = 0;
    if (r->error.code)
        sw_fail(&t->outcome, r->error.code < 0 ? r->error.code : SW_ERR_INVALID, "%s",
            r->error.reason[0] ? r->error.reason : sw_code_name(r->error.code));
}

/*
 * Is this the answer to the BEGIN that waits? An answer names the version asked for; of a begin of
 * the next version (0) it names the one begun, or none. So an earlier begin's answer can be told
 * apart, but for two of the next version in a row: there "aborted", of no version, is what became
 * of the first, and a late grant shows when the second comes (take_begin_done).
 */
static bool begin_matches(struct sw_trainer *t, const struct sw_rank_reply *r)
{
    if (t->asked)
        return r->version == t->asked || (r->version == 0 && r->error.code);
    if (t->stale_begins && r->error.code && r->version == t->stale_asked &&
        (r->version || r->error.code == SW_ERR_ABORTED)) {
        t->stale_begins--;
        return false;
    }
    return r->version == 0 || r->version > t->dead;
}

static void take_begin_done(struct sw_trainer *t, const struct sw_rank_reply *r)
{
    if (t->state == TRAINER_BEGINNING && !t->replied && begin_matches(t, r)) {
        t->stale_begins = 0; /* answers come in order */
        set_reply(t, r);
        if (!r->error.code && r->version == t->aborted)
            t->outcome = t->aborted_why;
        return;
    }
    if (t->stale_begins)
        t->stale_begins--;
    if (r->error.code || r->version <= t->dead)
        return;
    if (trainer_staging(t) && r->version == t->version)
        return;
    trainer_bury(t, r->version);
    trainer_send_abort(t, r->version, "this begin was given up: its deadline had passed");
    if (trainer_staging(t)) /* the grant that this version went by was the one given up */
        set_over(t, "trainerd began another version in its place");
}

static void take_abort(struct sw_trainer *t, const struct sw_abort *a)
{
    struct sw_rank_reply r = {
        .version = a->version, .error = {.code = SW_ERR_ABORTED, .reason = a->reason}};

    if (t->state == TRAINER_BEGINNING) {
        if (t->asked && a->version == t->asked && !t->replied) {
            t->stale_begins++;
            t->stale_asked = t->asked;
            set_reply(t, &r);
        } else if (!t->asked && a->version > t->dead) {
            t->aborted = a->version;
            sw_fail(&t->aborted_why, SW_ERR_ABORTED, "version %" PRIu64 " was aborted: %.900s",
                a->version, a->reason);
        }
        return;
    }
    if (t->state >= TRAINER_STAGING && a->version == t->version)
        set_over(t, a->reason);
}

static int take_program(
    struct sw_trainer *t, const struct sw_load_program *part, struct sw_error *e)
{
    const bool first = !part->first_template && !part->first_load && !part->first_grid &&
                       !part->first_check && !part->first_tile;
    int rc;

    if (part->rank != t->rank)
        return sw_fail(e, SW_ERR_PROTOCOL, "trainerd sent rank %u's load program to rank %u",
            part->rank, t->rank);
    if (first) {
        sw_loads_free(t->coming);
        t->coming = sw_loads_new();
    }
    if (!t->coming)
        return first ? sw_fail(e, SW_ERR_NOMEM, "no memory for a load program")
                     : sw_fail(e, SW_ERR_PROTOCOL, "a load program from trainerd has no start");
    rc = sw_loads_add(t->coming, part, e);
    if (rc || !sw_loads_whole(t->coming))
        return rc;
    trainer_uncheck(t);
    sw_loads_free(t->loads);
    t->loads = t->coming;
    t->coming = NULL;
    return 0;
}

static int take_buffer(struct sw_trainer *t, struct sw_msg *msg, struct sw_error *e)
{
    if (msg->u.buffer.rank != t->rank)
        return sw_fail(e, SW_ERR_PROTOCOL, "trainerd sent rank %u's buffer to rank %u",
            msg->u.buffer.rank, t->rank);
    return sw_buffers_take(t->buffers, msg, e);
}

/* Takes a message (owned). Non-zero: the session is over. */
static int take(struct sw_trainer *t, struct sw_msg *msg, struct sw_error *e)
{
    int rc = 0;

    switch (msg->kind) {
    case SW_MSG_SOURCES_DONE:
        if (t->state == TRAINER_DECLARING && !t->replied)
            set_reply(t, &msg->u.rank_reply);
        break;
    case SW_MSG_BEGIN_DONE:
        take_begin_done(t, &msg->u.rank_reply);
        break;
    case SW_MSG_MAXIMA_DONE:
        if (t->state == TRAINER_SHARING && msg->u.rank_reply.version == t->version)
            set_reply(t, &msg->u.rank_reply);
        break;
    case SW_MSG_END_DONE:
        if (t->state == TRAINER_ENDING && msg->u.rank_reply.version == t->version)
            set_reply(t, &msg->u.rank_reply);
        break;
    case SW_MSG_ABORT:
        take_abort(t, &msg->u.abort);
        break;
    case SW_MSG_RESULT:
        trainer_take_result(t, msg);
        return 0;
    case SW_MSG_LOAD_PROGRAM:
    case SW_MSG_BUFFER:
        if (trainer_staging(t)) /* puts go by them */
            rc = sw_fail(e, SW_ERR_PROTOCOL, "trainerd sent %s while version %" PRIu64 " is staged",
                sw_msg_kind_name(msg->kind), t->version);
        else if (msg->kind == SW_MSG_BUFFER)
            rc = take_buffer(t, msg, e);
        else
            rc = take_program(t, &msg->u.load_program, e);
        break;
    case SW_MSG_ERROR:
        rc = sw_fail(e, t->declared || msg->u.error.code >= 0 ? SW_ERR_CLOSED : msg->u.error.code,
            "trainerd ended the session: %.900s", msg->u.error.reason);
        break;
    default:
        rc = sw_fail(e, SW_ERR_PROTOCOL, "trainerd sent %s, which no trainer expects",
            sw_msg_kind_name(msg->kind));
    }
    sw_msg_free(msg);
    return rc;
}

/* ---- receiving ---- */

/* The first call that hears of it gets the code of the cause. */
int trainer_closed(struct sw_trainer *t, struct sw_error *e)
{
    const int code = t->fault.code;

    t->fault.code = SW_ERR_CLOSED;
    return sw_fail(e, code, "%s (close this trainer and open another one)", t->fault.text);
}

/* One message. Everything but SW_ERR_TIMEOUT ends the session. */
static int receive(struct sw_trainer *t, uint64_t deadline, const char *what, struct sw_error *e)
{
    struct sw_error why = {0};
    struct sw_msg *msg;
    int rc;

    if (t->fault.code)
        return trainer_closed(t, e);
    rc = sw_channel_receive(t->channel, deadline, what, &msg, &why);
    if (!rc)
        rc = take(t, msg, &why);
    if (!rc)
        return 0;
    if (rc == SW_ERR_TIMEOUT)
        return sw_fail(e, rc, "%s", why.text);
    sw_fail(&t->fault, rc, "%.960s", why.text);
    atomic_store(&t->trouble, true);
    return e ? trainer_closed(t, e) : rc;
}

void trainer_look(struct sw_trainer *t)
{
    uint32_t n = 0;

    while (n++ < LOOKED_MAX && receive(t, SW_NO_WAIT, "nothing", NULL) == 0)
        ;
}

int trainer_await(struct sw_trainer *t, bool (*done)(const struct sw_trainer *t), uint64_t deadline,
    const char *what, struct sw_error *e)
{
    uint32_t late = 0;

    while (!done(t)) {
        int rc = receive(t, deadline, what, e);

        if (rc)
            return rc;
        if (sw_clock_ns() > deadline && ++late > LOOKED_MAX)
            return sw_fail(e, SW_ERR_TIMEOUT,
                "trainerd answers everything but what we waited for: "
                "%s",
                what);
    }
    return 0;
}

int trainer_take_over(struct sw_trainer *t, struct sw_error *e)
{
    /* No put runs now: trainerd may use the buffer again. */
    if (trainer_staging(t) && !t->fault.code)
        trainer_send_abort(t, t->version, t->over.text);
    t->state = TRAINER_IDLE;
    trainer_bury(t, t->version);
    if (e)
        *e = t->over;
    t->over.code = 0;
    atomic_store(&t->trouble, t->fault.code != 0);
    return SW_ERR_ABORTED;
}

int trainer_enter(struct sw_trainer *t, struct sw_error *e)
{
    trainer_look(t);
    free(t->statuses);
    t->statuses = NULL;
    if (t->over.code)
        return trainer_take_over(t, e);
    if (t->fault.code)
        return trainer_closed(t, e);
    return 0;
}
