/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start: secret, identity, listeners, then (as coordinator) the coordinator's server, and the link
 * to the coordinator, which is this daemon's own control port in that case: it is a member like any
 * other. Stop: listeners and sessions close, the writer lets go of its buffers, then memory goes.
 */
#include "trainerd/server.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/error.h"
#include "common/memory.h"
#include "common/status.h"
#include "trainerd/internal.h"

#define MS 1000000ull

/* ---- host machine ---- */

static void act(struct sw_trainerd *d, struct sw_host_action *a)
{
    struct sw_replica_buffer *b;

    switch (a->kind) {
    case SW_HOST_TO_SESSION:
        /* Planning, long ago in this version, left much of the heap free. */
        if (a->message->kind == SW_MSG_END_DONE)
            sw_memory_trim();
        sessions_send(d, a->session, a->message);
        break;
    case SW_HOST_TO_COORDINATOR:
        if (d->link)
            sw_link_send(d->link, a->message);
        else
            sw_msg_free(a->message);
        break;
    case SW_HOST_DROP_SESSION:
        sessions_drop(d, a->session, a->text);
        break;
    case SW_HOST_ALLOCATE:
        buffers_allocate(d, a);
        sessions_unwatch(d);
        break;
    case SW_HOST_RESET:
        b = sw_replica_get(d->replica, a->rank, a->buffer);
        if (b)
            memset(sw_replica_buffer_counters(b), 0, sw_replica_buffer_spec_of(b)->counter_bytes);
        break;
    case SW_HOST_TO_WRITER:
        sw_writer_handle(d->writer, a->message);
        break;
    case SW_HOST_REDUCE:
        reductions_start(d, a);
        break;
    case SW_HOST_RELEASE:
        for (uint32_t i = 0; i < SW_HOST_BUFFERS; i++)
            sw_replica_drop(d->replica, a->rank, i);
        sessions_unwatch(d);
        break;
    case SW_HOST_LOG:
        sw_log((enum sw_log_level)a->level, "%s", a->text);
        break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct sw_host_event tick = {.kind = SW_HOST_TICK};

    trainerd_event(timer->data, &tick);
}

static void arm_timer(struct sw_trainerd *d)
{
    uint64_t at = sw_host_deadline(d->host), now = uv_hrtime();

    if (at == UINT64_MAX || d->closing)
        uv_timer_stop(&d->timer);
    else
        uv_timer_start(&d->timer, on_timer, at > now ? (at - now + MS - 1) / MS : 0, 0);
}

void trainerd_event(struct sw_trainerd *d, const struct sw_host_event *event)
{
    struct sw_host_action a;

    sw_host_handle(d->host, event, uv_hrtime());
    while (sw_host_next(d->host, &a))
        act(d, &a);
    if (!d->closing)
        arm_timer(d);
}

static const uint64_t *counters(uint32_t rank, uint32_t buffer, void *arg)
{
    struct sw_trainerd *d = arg;
    struct sw_replica_buffer *b = sw_replica_get(d->replica, rank, buffer);

    return b ? sw_replica_buffer_counters(b) : NULL;
}

static bool busy(uint32_t rank, uint32_t buffer, void *arg)
{
    struct sw_trainerd *d = arg;
    struct sw_replica_buffer *b = sw_replica_get(d->replica, rank, buffer);

    return b && sw_replica_buffer_busy(b);
}

/* ---- writer ---- */

static struct sw_replica_buffer *live_buffer(uint32_t rank, uint64_t version, void *arg)
{
    struct sw_trainerd *d = arg;
    int index = sw_host_live_buffer(d->host, rank, version);

    return index < 0 ? NULL : sw_replica_get(d->replica, rank, (uint32_t)index);
}

static void writer_report(struct sw_msg *msg, void *arg)
{
    struct sw_trainerd *d = arg;

    if (d->link)
        sw_link_send(d->link, msg);
    else
        sw_msg_free(msg);
}

static void log_text(int level, const char *text, void *arg)
{
    sw_log((enum sw_log_level)level, "%s", text);
}

/* ---- coordinator link ---- */

static void link_up(struct sw_link *l, void *arg)
{
    struct sw_trainerd *d = arg;
    struct sw_host_event event = {.kind = SW_HOST_COORDINATOR_UP};

    sw_log(SW_LOG_INFO, "connected to the coordinator at %s", sw_link_name(l));
    trainerd_event(d, &event);
    if (!d->ready && d->coordinator) {
        d->ready = true;
        d->handlers.ready(d->handlers.arg);
    }
}

static void link_message(struct sw_link *l, struct sw_msg *msg, void *arg)
{
    struct sw_host_event event = {.kind = SW_HOST_COORDINATOR_MESSAGE, .message = msg};

    trainerd_event(arg, &event);
}

static void link_down(
    struct sw_link *l, const struct sw_error *why, bool was_up, bool first, void *arg)
{
    struct sw_trainerd *d = arg;
    struct sw_host_event event = {.kind = SW_HOST_COORDINATOR_DOWN, .text = why->text};

    if (first || was_up)
        sw_log(SW_LOG_ERROR, "no connection to the coordinator at %s: %s (trying on)",
            sw_link_name(l), why->text);
    if (was_up) {
        trainerd_event(d, &event);
        sw_writer_reset(d->writer);
    }
}

static const char *own_address(const char *listen)
{
    if (!strcmp(listen, "0.0.0.0"))
        return "127.0.0.1";
    return strcmp(listen, "::") ? listen : "::1";
}

static int open_link(struct sw_trainerd *d, struct sw_error *e)
{
    static const struct sw_link_handlers handlers = {link_up, link_message, link_down};
    struct sw_link_config config = {.loop = d->loop,
        .host = d->coordinator ? own_address(d->config->listen) : d->config->coordinator.host,
        .port = d->coordinator ? sw_listener_port(d->control) : d->config->coordinator.port,
        .self = &d->identity,
        .timeout_ms = d->config->handshake_ms,
        .expect = SW_ROLE_TRAINERD};

    return sw_link_open(&config, &handlers, d, &d->link, e);
}

/* ---- start ---- */

static int identify(struct sw_trainerd *d, struct sw_error *e)
{
    const struct sw_trainerd_config *c = d->config;
    int r;

    if (gethostname(d->host_name, sizeof(d->host_name) - 1))
        snprintf(d->host_name, sizeof(d->host_name), "unknown");
    if (c->secret_file && c->secret_file[0]) {
        r = sw_secret_load(c->secret_file, &d->secret, &d->identity.secret_bytes, e);
        if (r)
            return r;
        d->identity.secret = d->secret;
    }
    r = sw_daemon_check_listen(c->listen, d->secret != NULL, e);
    if (r)
        return r;
    d->identity.group = c->group;
    d->identity.role = SW_ROLE_TRAINERD;
    d->identity.traffic = &d->traffic;
    d->identity.host = d->host_name;
    return sw_id_random(&d->identity.instance);
}

static int make_parts(struct sw_trainerd *d, struct sw_error *e)
{
    const struct sw_trainerd_config *c = d->config;
    struct sw_host_config host = {.instance = d->identity.instance,
        .name = d->host_name,
        .advertise = c->advertise,
        .drain_ns = c->drain_ms * MS,
        .manifest_ns = c->manifest_ms * MS,
        .counters = counters,
        .busy = busy,
        .arg = d};
    struct sw_writer_config writer = {.loop = d->loop,
        .self = &d->identity,
        .transport = (enum sw_writer_transport)c->transport,
        .chunk_bytes = (uint32_t)c->chunk,
        .connect_ms = c->connect_ms,
        .buffer = live_buffer,
        .report = writer_report,
        .log = log_text,
        .arg = d};
    int r = sw_io_pool_new(c->tcp_threads, &d->pool, e);

    if (r)
        return r;
    writer.pool = d->pool;
    d->host = sw_host_new(&host);
    d->replica = sw_replica_new();
    d->writer = sw_writer_new(&writer);
    d->writer_open = d->writer != NULL;
    if (!d->host || !d->replica || !d->writer)
        return sw_fail(e, SW_ERR_NOMEM, "trainerd is out of memory");
    return 0;
}

/* Without the folder of an installation, as in a build tree, the identity layout is enough to start
 * with; one that somebody named must be there. */
static int read_layouts(struct sw_trainerd *d, struct sw_error *e)
{
    const char *folder = d->config->layouts;
    int r;

    if (!strcmp(folder, SW_LAYOUTS_DIR) && access(folder, F_OK)) {
        sw_log(SW_LOG_INFO,
            "no folder %s: only the identity layout is known (see the option layouts)", folder);
        return 0;
    }
    r = sw_layouts_read(folder, &d->layouts, e);
    if (!r)
        sw_log(SW_LOG_INFO, "%u layout%s in %s", sw_layouts_count(d->layouts),
            sw_layouts_count(d->layouts) == 1 ? "" : "s", folder);
    return r;
}

static int make_coordinator(struct sw_trainerd *d, struct sw_error *e)
{
    const struct sw_trainerd_config *c = d->config;
    struct sw_coordinator_config config = {.group = c->group,
        .instance = d->identity.instance,
        .tcp_connections = c->tcp_connections,
        .begin_ns = c->begin_ms * MS,
        .stage_ns = c->stage_ms * MS,
        .connect_ns = c->connect_ms * MS,
        .pause_ns = c->pause_ms * MS,
        .window_ns = c->window_ms * MS,
        .write_ns = c->write_ms * MS,
        .post_ns = c->post_ms * MS,
        .activate_ns = c->activate_ms * MS,
        .manifest_ns = c->manifest_ms * MS};
    int r;

    if (c->coordinator.host)
        return 0;
    r = read_layouts(d, e);
    if (r)
        return r;
    config.layouts = d->layouts;
    return sw_coordinator_server_new(
        d->loop, &config, c->state_dir, log_text, d, &d->coordinator, e);
}

int sw_trainerd_open(uv_loop_t *loop, const struct sw_trainerd_config *config,
    const struct sw_trainerd_handlers *handlers, struct sw_trainerd **out, struct sw_error *e)
{
    struct sw_trainerd *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return sw_fail(e, SW_ERR_NOMEM, "trainerd is out of memory");
    d->loop = loop;
    d->config = config;
    d->handlers = *handlers;
    uv_timer_init(loop, &d->timer);
    d->timer.data = d;
    d->timer_open = true;
    *out = d;
    r = identify(d, e);
    if (!r)
        r = make_parts(d, e);
    if (!r)
        r = make_coordinator(d, e);
    if (!r)
        r = sessions_listen(d, e);
    if (!r)
        r = open_link(d, e);
    if (r)
        return r;
    sw_log(SW_LOG_INFO, "trainers: %s; control port: %s:%u; group %s; coordinator: %s",
        config->socket, config->listen, sw_listener_port(d->control), config->group,
        d->coordinator ? "this daemon" : sw_link_name(d->link));
    if (!d->coordinator) { /* the coordinator may be far away, or not there yet: that is no failure
                            */
        d->ready = true;
        handlers->ready(handlers->arg);
    }
    return 0;
}

/* ---- stop ---- */

static void timer_closed(uv_handle_t *handle)
{
    struct sw_trainerd *d = handle->data;

    d->timer_open = false;
    trainerd_finish(d);
}

static void writer_closed(void *arg)
{
    struct sw_trainerd *d = arg;

    d->writer_open = false;
    d->writer = NULL;
    trainerd_finish(d);
}

static void coordinator_closed(void *arg)
{
    struct sw_trainerd *d = arg;

    d->coordinator = NULL;
    trainerd_finish(d);
}

void trainerd_finish(struct sw_trainerd *d)
{
    if (!d->closing || d->timer_open || d->writer_open || d->coordinator || d->sessions ||
        d->allocations || d->reductions)
        return;
    sw_host_free(d->host);
    sw_replica_free(d->replica);
    sw_layouts_free(d->layouts);
    sw_io_pool_unref(d->pool);
    if (d->secret)
        explicit_bzero(d->secret, d->identity.secret_bytes);
    free(d->secret);
    d->handlers.closed(d->handlers.arg);
    free(d);
}

void sw_trainerd_close(struct sw_trainerd *d)
{
    if (d->closing)
        return;
    d->closing = true;
    if (d->local)
        sw_listener_close(d->local);
    if (d->control)
        sw_listener_close(d->control);
    sessions_close(d);
    sw_link_close(d->link);
    d->link = NULL;
    uv_close((uv_handle_t *)&d->timer, timer_closed);
    if (d->coordinator)
        sw_coordinator_server_close(d->coordinator, coordinator_closed, d);
    if (d->writer)
        sw_writer_close(d->writer, writer_closed, d);
}

/* ---- status ---- */

json_t *trainerd_status(const struct sw_trainerd *d)
{
    uint64_t now = uv_hrtime();
    char id[17];
    json_t *s = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:b, s:o, s:o, s:o}", "daemon",
        "trainerd", "software", SW_VERSION, "group", d->config->group, "host", d->host_name,
        "instance", sw_id_short(&d->identity.instance, id), "pid", (json_int_t)getpid(), "socket",
        d->config->socket, "coordinator", d->link ? sw_link_name(d->link) : "", "is_coordinator",
        d->coordinator != NULL, "host_ranks", sw_host_status(d->host, now), "replica",
        sw_replica_status(d->replica), "writer",
        d->writer ? sw_writer_status(d->writer) : json_null());

    if (s)
        json_object_set_new(s, "control_messages", sw_status_traffic(&d->traffic));
    if (s && d->coordinator)
        json_object_set_new(s, "group_state", sw_coordinator_server_status(d->coordinator));
    return s;
}
