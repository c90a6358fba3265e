/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a version in this rank. Where its FP8 blocks lie partly in other ranks of the host,
 * trainerd first makes one maximum of all for each; then what was held is quantised, and only then
 * this rank has ended.
 */
#include <inttypes.h>
#include <stdio.h>
#include "client/trainer_impl.h"
#include "common/error.h"

#define NAMES_SHOWN 5u

static bool replied_or_over(const struct sw_trainer *t)
{
    return t->replied || t->over.code;
}

/* trainerd would find it too, after its drain deadline. */
static int check_missing(const struct sw_trainer *t, struct sw_error *e)
{
    uint32_t first[NAMES_SHOWN];
    const uint32_t missing = sw_executor_missing(t->executor, first, NAMES_SHOWN);
    char names[SW_ERROR_TEXT / 2];
    size_t used = 0;

    if (!missing)
        return 0;
    for (uint32_t i = 0; i < missing && i < NAMES_SHOWN && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%.80s", i ? ", " : "",
            t->declared->sources[first[i]].name);
    return sw_fail(e, SW_ERR_STATE,
        "end of version %" PRIu64 ": %u of %u tensors are missing: %s%s; put them and end again",
        t->version, missing, t->declared->n - t->n_unused, names,
        missing > NAMES_SHOWN ? ", ..." : "");
}

static int send_end(struct sw_trainer *t, uint64_t deadline, struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_END);

    if (msg) {
        msg->u.end.rank = t->rank;
        msg->u.end.version = t->version;
        msg->u.end.bytes = sw_executor_bytes(t->executor);
        msg->u.end.stage_ns = sw_clock_ns() - t->granted_ns;
        msg->u.end.digests =
            sw_arena_array(&msg->arena, t->loads->n_checks, sizeof(*msg->u.end.digests));
        if (msg->u.end.digests) {
            msg->u.end.n = sw_executor_digests(t->executor, msg->u.end.digests);
        } else {
            sw_msg_free(msg);
            msg = NULL;
        }
    }
    return trainer_post(t, msg, deadline, e);
}

/* ---- shared block maxima ---- */

static int send_maxima(struct sw_trainer *t, uint64_t deadline, struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_MAXIMA);
    int rc;

    if (msg) {
        msg->u.maxima.rank = t->rank;
        msg->u.maxima.version = t->version;
    }
    rc = trainer_post(t, msg, deadline, e);
    if (!rc) {
        t->state = TRAINER_SHARING;
        t->replied = false;
    }
    return rc;
}

/* An answer that was no success. The version goes on when the state was wrong, or something was
 * missing; else it is over. */
static int take_refusal(struct sw_trainer *t, bool goes_on, struct sw_error *e)
{
    if (goes_on) {
        t->state = TRAINER_STAGING;
    } else {
        t->state = TRAINER_IDLE;
        trainer_bury(t, t->version);
        t->over.code = 0; /* the same news, if it came twice */
        atomic_store(&t->trouble, t->fault.code != 0);
    }
    return sw_fail(e, t->outcome.code, "%s", t->outcome.text);
}

static int await_maxima(struct sw_trainer *t, uint64_t deadline, struct sw_error *e)
{
    char what[112];
    int rc;

    snprintf(what, sizeof(what),
        "the block maxima of this host's other trainer ranks in version %" PRIu64, t->version);
    rc = trainer_await(t, replied_or_over, deadline, what, e);
    if (rc)
        return rc;
    if (!t->replied)
        return trainer_take_over(t, e);
    if (t->outcome.code)
        return take_refusal(t, t->outcome.code != SW_ERR_ABORTED, e);
    t->state = TRAINER_STAGING;
    t->shared = true;
    return 0;
}

/* ---- end ---- */

/* Everything was put, and shared where it must be. */
static int finish(struct sw_trainer *t, uint64_t deadline, struct sw_error *e)
{
    int rc = sw_executor_finish(t->executor, e);

    if (!rc)
        rc = send_end(t, deadline, e);
    if (rc)
        return rc;
    t->state = TRAINER_ENDING;
    t->replied = false;
    return 0;
}

/* As far as END; a call that timed out goes on where it was. */
static int come_to_end(struct sw_trainer *t, uint64_t deadline, struct sw_error *e)
{
    int rc = 0;

    if (t->state == TRAINER_STAGING) {
        rc = check_missing(t, e);
        if (!rc && sw_executor_needs_maxima(t->executor) && !t->shared)
            rc = send_maxima(t, deadline, e);
    }
    if (!rc && t->state == TRAINER_SHARING)
        rc = await_maxima(t, deadline, e);
    if (!rc && t->state == TRAINER_STAGING)
        rc = finish(t, deadline, e);
    return rc;
}

int sw_trainer_end(sw_trainer *t, uint32_t timeout_ms, struct sw_error *e)
{
    const uint64_t deadline = trainer_deadline(timeout_ms);
    char what[96];
    int rc = trainer_enter(t, e);

    if (rc)
        return rc;
    if (!trainer_staging(t))
        return sw_fail(e, SW_ERR_STATE, "end: no version is begun; call sw_trainer_begin");
    rc = come_to_end(t, deadline, e);
    if (rc)
        return rc;
    snprintf(what, sizeof(what), "the other trainer ranks to end version %" PRIu64, t->version);
    rc = trainer_await(t, replied_or_over, deadline, what, e);
    if (rc)
        return rc;
    if (!t->replied)
        return trainer_take_over(t, e);
    if (t->outcome.code)
        return take_refusal(t, t->outcome.code == SW_ERR_STATE, e);
    t->state = TRAINER_STAGED;
    return 0;
}
