/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/control.h"
#include "tools/document.h"
#include "tools/shardctl.h"

static int ask(const struct sw_control_where *where, json_t **document, struct sw_error *e)
{
    struct sw_control *control;
    json_error_t why;
    char *text;
    int code = sw_control_open(where, &control, e);

    if (code)
        return code;
    code = sw_control_status(control, &text, e);
    sw_control_close(control);
    if (code)
        return code;
    *document = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!json_is_object(*document)) {
        json_decref(*document);
        return sw_fail(e, SW_ERR_PROTOCOL, "the daemon's status is no JSON object: %s", why.text);
    }
    return 0;
}

int sw_ctl_get_status(const struct sw_ctl *ctl, json_t **document, struct sw_error *e)
{
    struct sw_control_where where = {.path = ctl->socket ? ctl->socket : SW_TRAINERD_SOCKET,
        .host = ctl->host,
        .daemon = ctl->socket ? "the daemon" : "trainerd",
        .secret_file = ctl->secret_file,
        .group = ctl->group,
        .timeout_ms = ctl->timeout_ms ? ctl->timeout_ms : SW_CLIENT_MS};
    struct sw_error second = {0};
    int code = ask(&where, document, e);

    if (code != SW_ERR_CLOSED || ctl->socket || ctl->host)
        return code;
    where.path = SW_INFERD_SOCKET;
    where.daemon = "inferd";
    code = ask(&where, document, &second);
    if (code == SW_ERR_CLOSED) { /* neither runs: both are named */
        const struct sw_error first = *e;
        return sw_fail(e, code, "%.500s; %.500s", first.text, second.text);
    }
    if (code)
        *e = second;
    return code;
}

int sw_ctl_status(const struct sw_ctl *ctl)
{
    struct sw_error e = {0};
    json_t *document;

    if (sw_ctl_get_status(ctl, &document, &e))
        return sw_ctl_fail("status", &e);
    if (ctl->json) {
        json_dumpf(document, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        putchar('\n');
    } else {
        sw_document_print(document, stdout);
    }
    json_decref(document);
    return SW_CTL_OK;
}

const json_t *sw_ctl_group_state(const json_t *document, struct sw_error *e)
{
    const json_t *state = json_object_get(document, "group_state");
    const json_t *who = json_object_get(document, "coordinator");

    if (json_is_object(state))
        return state;
    if (json_is_object(who)) /* inferd's document */
        sw_fail(e, SW_ERR_STATE,
            "this daemon does not coordinate the group; ask trainerd at %.255s, port "
            "%" JSON_INTEGER_FORMAT,
            json_string_value(json_object_get(who, "host")),
            json_integer_value(json_object_get(who, "port")));
    else
        sw_fail(e, SW_ERR_STATE, "this daemon does not coordinate the group; ask %.255s",
            json_string_length(who) ? json_string_value(who) : "its coordinator");
    return NULL;
}
