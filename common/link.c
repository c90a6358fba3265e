/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"

struct sw_link {
    struct sw_link_config config;
    struct sw_link_handlers handlers;
    void *arg;
    char host[256];
    char name[300];
    struct sw_conn *conn;
    uv_timer_t timer; /* the next try; its close callback frees */
    uint32_t back_off_ms;
    unsigned failures; /* in a row */
    uint64_t up_ms;    /* since when it is up */
    bool up, closing, timer_closed;
};

static void try_again(struct sw_link *l);

static void free_when_done(struct sw_link *l)
{
    if (l->closing && l->timer_closed && !l->conn)
        free(l);
}

static void failed(struct sw_link *l, const struct sw_error *why, bool was_up)
{
    l->failures++;
    l->handlers.down(l, why, was_up, l->failures == 1, l->arg);
    try_again(l);
}

static void on_ready(struct sw_conn *c, void *arg)
{
    struct sw_link *l = arg;

    if (l->closing)
        return;
    if (sw_conn_peer(c)->role != l->config.expect) {
        sw_conn_close(c, "another kind of daemon answered");
        return;
    }
    l->up = true;
    l->up_ms = uv_now(l->config.loop);
    l->handlers.up(l, l->arg);
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct sw_link *l = arg;

    if (l->closing || !l->up)
        sw_msg_free(msg);
    else
        l->handlers.message(l, msg, l->arg);
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct sw_link *l = arg;
    bool was_up = l->up;

    l->conn = NULL;
    l->up = false;
    /* One that accepts and hangs up at once is not tried again and again without a pause. */
    if (was_up && uv_now(l->config.loop) - l->up_ms >= SW_RECONNECT_MAX_MS) {
        l->failures = 0;
        l->back_off_ms = SW_RECONNECT_MIN_MS;
    }
    if (l->closing)
        free_when_done(l);
    else
        failed(l, why, was_up);
}

static void dial(struct sw_link *l)
{
    static const struct sw_conn_handlers handlers = {on_ready, on_message, on_closed};
    const struct sw_dial how = {.host = l->host,
        .port = l->config.port,
        .fd = -1,
        .self = l->config.self,
        .timeout_ms = l->config.timeout_ms};
    struct sw_error e;

    if (sw_conn_dial(l->config.loop, &how, &handlers, l, &l->conn, &e)) {
        l->conn = NULL;
        failed(l, &e, false);
    }
}

static void on_timer(uv_timer_t *timer)
{
    dial(timer->data);
}

static void try_again(struct sw_link *l)
{
    if (l->closing)
        return;
    uv_timer_start(&l->timer, on_timer, l->back_off_ms, 0);
    l->back_off_ms *= 2;
    if (l->back_off_ms > SW_RECONNECT_MAX_MS)
        l->back_off_ms = SW_RECONNECT_MAX_MS;
}

int sw_link_open(const struct sw_link_config *config, const struct sw_link_handlers *handlers,
    void *arg, struct sw_link **out, struct sw_error *e)
{
    struct sw_link *l = calloc(1, sizeof(*l));

    if (!l)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a link to %s", config->host);
    l->config = *config;
    l->handlers = *handlers;
    l->arg = arg;
    snprintf(l->host, sizeof(l->host), "%s", config->host);
    snprintf(l->name, sizeof(l->name), "%s:%u", l->host, config->port);
    l->back_off_ms = SW_RECONNECT_MIN_MS;
    uv_timer_init(config->loop, &l->timer);
    l->timer.data = l;
    uv_timer_start(&l->timer, on_timer, 0, 0);
    *out = l;
    return 0;
}

void sw_link_send(struct sw_link *l, struct sw_msg *msg)
{
    if (l->up)
        sw_conn_send(l->conn, msg);
    else
        sw_msg_free(msg);
}

bool sw_link_is_up(const struct sw_link *l)
{
    return l->up;
}

struct sw_conn *sw_link_conn(const struct sw_link *l)
{
    return l->up ? l->conn : NULL;
}

const char *sw_link_name(const struct sw_link *l)
{
    return l->name;
}

static void timer_closed(uv_handle_t *handle)
{
    struct sw_link *l = handle->data;

    l->timer_closed = true;
    free_when_done(l);
}

void sw_link_close(struct sw_link *l)
{
    if (!l || l->closing)
        return;
    l->closing = true;
    l->up = false;
    uv_close((uv_handle_t *)&l->timer, timer_closed);
    if (l->conn)
        sw_conn_close(l->conn, "shutting down");
}
