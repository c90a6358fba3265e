/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing, and waiting for what came of it. A publish of ours is answered by a RESULT of its
 * own, which wait takes; for versions that others published, wait asks by itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/options.h"
#include "client/trainer_impl.h"
#include "common/error.h"
#include "common/limits.h"

static void forget(struct trainer_request *r)
{
    sw_msg_free(r->result);
    *r = (struct trainer_request){0};
}

void trainer_forget_results(struct sw_trainer *t)
{
    forget(&t->published);
    forget(&t->waited);
}

void trainer_take_result(struct sw_trainer *t, struct sw_msg *msg)
{
    const uint64_t number = msg->u.result.request;
    struct trainer_request *r = NULL;

    if (number && number == t->published.number)
        r = &t->published;
    else if (number && number == t->waited.number)
        r = &t->waited;
    if (!r || r->result) {
        sw_msg_free(msg); /* of an earlier question */
        return;
    }
    r->result = msg;
}

/* Asks; the request's number is set when it is on its way. */
static int ask(struct sw_trainer *t, struct trainer_request *r, uint64_t version, bool wait_only,
    uint64_t deadline, struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PUBLISH);
    int rc;

    if (msg) {
        msg->u.publish.request = ++t->requests;
        msg->u.publish.version = version;
        msg->u.publish.wait_only = wait_only;
    }
    rc = trainer_post(t, msg, deadline, e);
    if (rc)
        return rc;
    forget(r);
    r->number = t->requests;
    r->version = version;
    return 0;
}

int sw_trainer_publish(sw_trainer *t, uint64_t version, struct sw_error *e)
{
    const uint64_t use = version ? version : t->version;
    int rc = trainer_enter(t, e);

    if (!rc)
        rc = ask(t, &t->published, use, false, sw_deadline_in(SW_CLIENT_MS), e);
    if (!rc && t->state == TRAINER_STAGED && use == t->version)
        t->state = TRAINER_PUBLISHED;
    return rc;
}

/* ---- wait ---- */

static bool published_done(const struct sw_trainer *t)
{
    return t->published.result || t->over.code;
}

static bool waited_done(const struct sw_trainer *t)
{
    return t->waited.result || t->over.code;
}

static int fill_result(
    struct sw_trainer *t, const struct sw_result *in, struct sw_publish_result *out)
{
    t->statuses = calloc(in->n + 1ull, sizeof(*t->statuses));
    if (!t->statuses)
        return SW_ERR_NOMEM;
    for (uint32_t i = 0; i < in->n; i++) {
        const struct sw_engine_result *r = &in->engines[i];

        t->statuses[i] = (struct sw_engine_status){.engine = r->engine,
            .live = r->live != 0,
            .version = r->version,
            .state = r->state,
            .reason = r->reason,
            .transport = r->transport,
            .drain_ns = r->drain_ns,
            .pause_ns = r->pause_ns,
            .write_ns = r->write_ns,
            .post_ns = r->post_ns,
            .bytes = r->bytes};
    }
    *out = (struct sw_publish_result){.version = in->version,
        .stage_ns = in->stage_ns,
        .stage_bytes = in->stage_bytes,
        .n_engines = in->n,
        .engines = t->statuses};
    return 0;
}

/* Gives out what came. An answer that says nothing of engines is given out once only. */
static int conclude(struct sw_trainer *t, struct trainer_request *r,
    struct sw_publish_result *result, struct sw_error *e)
{
    const struct sw_result *in = &r->result->u.result;
    int code = in->error.code <= 0 ? in->error.code : SW_ERR_INVALID;

    if (code)
        sw_fail(e, code, "%s", in->error.reason[0] ? in->error.reason : sw_code_name(code));
    if (code && code != SW_ERR_PARTIAL) {
        forget(r);
        return code;
    }
    if (result && fill_result(t, in, result))
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the states of %u engines", in->n);
    return code;
}

/* The request whose RESULT answers for this version: one is made if there is none. */
static int find_request(struct sw_trainer *t, uint64_t version, uint64_t deadline,
    struct trainer_request **request, struct sw_error *e)
{
    int rc = 0;

    if (t->published.number && t->published.version == version) {
        *request = &t->published;
        return 0;
    }
    if (!t->waited.number || t->waited.version != version)
        rc = ask(t, &t->waited, version, true, deadline, e);
    if (!rc)
        *request = &t->waited;
    return rc;
}

int sw_trainer_wait(sw_trainer *t, uint64_t version, uint32_t timeout_ms,
    struct sw_publish_result *result, struct sw_error *e)
{
    const uint64_t deadline = trainer_deadline(timeout_ms);
    const uint64_t use = version ? version : t->version;
    struct trainer_request *request = NULL;
    char what[96];
    int rc;

    if (result)
        *result = (struct sw_publish_result){0};
    rc = trainer_enter(t, e);
    if (!rc)
        rc = find_request(t, use, deadline, &request, e);
    if (rc)
        return rc;
    snprintf(what, sizeof(what), "the engines to be live at version %" PRIu64, use);
    rc = trainer_await(
        t, request == &t->published ? published_done : waited_done, deadline, what, e);
    if (rc)
        return rc;
    if (request->result)
        return conclude(t, request, result, e);
    return trainer_take_over(t, e);
}
