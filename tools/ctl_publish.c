/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/control.h"
#include "tools/shardctl.h"

/* Longer than the coordinator's own default deadlines together, which end it first. */
#define PUBLISH_MS 900000

static void convert(const struct sw_engine_result *in, struct sw_engine_status *out)
{
    *out = (struct sw_engine_status){.engine = in->engine,
        .live = (int)in->live,
        .version = in->version,
        .state = in->state,
        .reason = in->reason,
        .transport = in->transport,
        .drain_ns = in->drain_ns,
        .pause_ns = in->pause_ns,
        .write_ns = in->write_ns,
        .post_ns = in->post_ns,
        .bytes = in->bytes};
}

/* Prints what the message says; its error is the command's, too. */
static int show(const struct sw_result *r)
{
    struct sw_engine_status *engines = calloc(r->n + 1u, sizeof(*engines));
    struct sw_publish_result result = {.version = r->version,
        .stage_ns = r->stage_ns,
        .stage_bytes = r->stage_bytes,
        .n_engines = r->n,
        .engines = engines};
    struct sw_error e = {0};
    int status = r->error.code ? SW_CTL_FAILED : SW_CTL_OK;

    if (!engines) {
        sw_fail(&e, SW_ERR_NOMEM, "no memory for %u engines", r->n);
        return sw_ctl_fail("publish", &e);
    }
    for (uint32_t i = 0; i < r->n; i++)
        convert(&r->engines[i], &engines[i]);
    if (r->n)
        status = sw_ctl_print_result(&result);
    if (r->error.code) {
        sw_fail(&e, r->error.code, "%s", r->error.reason);
        sw_ctl_fail("publish", &e);
        if (r->error.code != SW_ERR_PARTIAL)
            status = SW_CTL_FAILED;
    }
    free(engines);
    return status;
}

int sw_ctl_publish(const struct sw_ctl *ctl)
{
    const struct sw_control_where where = {.path = ctl->socket ? ctl->socket : SW_TRAINERD_SOCKET,
        .daemon = "trainerd",
        .group = ctl->group,
        .timeout_ms = ctl->timeout_ms ? ctl->timeout_ms : SW_CLIENT_MS};
    struct sw_control *control;
    struct sw_msg *result;
    struct sw_error e = {0};
    int code = sw_control_open(&where, &control, &e);

    if (code)
        return sw_ctl_fail("publish", &e);
    code = sw_control_publish(
        control, ctl->version, ctl->timeout_ms ? ctl->timeout_ms : PUBLISH_MS, &result, &e);
    sw_control_close(control);
    if (code)
        return sw_ctl_fail("publish", &e);
    code = show(&result->u.result);
    sw_msg_free(result);
    return code;
}
