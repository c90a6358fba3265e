/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/server_impl.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "common/daemon.h"
#include "common/error.h"

#define HOLD_BYTES (8u << 20) /* queued for the coordinator: no more manifests for now */
#define HOLD_LOOK_MS 10

/* ---- the registry ---- */

static void fill_random(void *bytes, size_t n, void *arg)
{
    uint8_t *out = bytes;

    while (n) {
        ssize_t got = getrandom(out, n, 0);

        if (got <= 0)
            continue; /* interrupted: the kernel's source itself does not fail */
        out += got;
        n -= (size_t)got;
    }
}

static void perform(struct sw_server *s, struct sw_registry_action *a)
{
    struct sw_session *k = a->session ? sw_session_find(s, a->session) : NULL;

    if (a->kind == SW_REG_LOG) {
        sw_log(a->level, "%s", a->text);
    } else if (a->kind == SW_REG_TO_COORDINATOR) {
        if (s->link) {
            sw_link_send(s->link, a->message);
            a->message = NULL;
        }
    } else if (k) {
        switch (a->kind) {
        case SW_REG_TO_ENGINE:
            if (k->conn && !k->ending) {
                sw_conn_send(k->conn, a->message);
                a->message = NULL;
            }
            break;
        case SW_REG_DROP_ENGINE:
            sw_log(SW_LOG_WARNING, "engine process %d dropped: %s", (int)k->pid, a->text);
            sw_session_end(k, SW_ERR_PROTOCOL, a->text);
            break;
        case SW_REG_MAP:
            sw_session_map(k);
            break;
        case SW_REG_WINDOW_OPEN:
            sw_session_open_window(k, &a->window);
            break;
        case SW_REG_WINDOW_CLOSE:
            sw_session_close_window(k);
            break;
        case SW_REG_RELEASE:
            sw_session_release(k);
            break;
        default:
            break;
        }
    }
    sw_msg_free(a->message);
}

static void on_deadline(uv_timer_t *timer)
{
    sw_server_feed(timer->data, (struct sw_registry_event){.kind = SW_REG_TICK});
}

static void set_deadline(struct sw_server *s)
{
    uint64_t at = sw_registry_deadline(s->registry), now = uv_hrtime();

    if (s->stopping || at == UINT64_MAX) {
        uv_timer_stop(&s->deadline);
        return;
    }
    uv_update_time(s->loop);
    uv_timer_start(&s->deadline, on_deadline, at > now ? (at - now) / 1000000 + 1 : 0, 0);
}

static void pump(struct sw_server *s);

static void on_flow(uv_timer_t *timer)
{
    pump(timer->data);
}

/* A coordinator that reads slowly, or a million parameters: manifests wait, all else goes. */
static void set_hold(struct sw_server *s)
{
    struct sw_conn *c = s->link ? sw_link_conn(s->link) : NULL;
    bool hold = c && sw_conn_queued(c) > HOLD_BYTES;

    sw_registry_hold(s->registry, hold);
    if (hold && !s->stopping)
        uv_timer_start(&s->flow, on_flow, HOLD_LOOK_MS, 0);
}

static void pump(struct sw_server *s)
{
    struct sw_registry_action action;

    if (s->pumping)
        return;
    s->pumping = true;
    set_hold(s);
    while (sw_registry_next(s->registry, &action)) {
        perform(s, &action);
        set_hold(s);
    }
    s->pumping = false;
    set_deadline(s);
}

void sw_server_feed(struct sw_server *s, struct sw_registry_event event)
{
    sw_registry_handle(s->registry, &event, uv_hrtime());
    pump(s);
}

void sw_server_refuse(struct sw_conn *c, int code, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);

    if (msg) {
        msg->u.error.code = code;
        msg->u.error.reason = sw_arena_strdup(&msg->arena, reason);
        sw_conn_send(c, msg);
    }
    sw_conn_close(c, reason);
}

/* ---- the coordinator ---- */

static void send_member(struct sw_server *s)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_MEMBER);
    struct sw_member *m;

    if (!msg) {
        sw_conn_close(sw_link_conn(s->link), "no memory to present this host");
        return;
    }
    m = &msg->u.member;
    m->name = sw_arena_strdup(&msg->arena, s->config.host ? s->config.host : "");
    m->advertise = sw_arena_strdup(&msg->arena, s->config.advertise ? s->config.advertise : "");
    m->unix_path = sw_arena_strdup(&msg->arena, s->config.socket);
    m->data_port = sw_listener_port(s->data);
    memcpy(m->host_nonce, s->host_nonce, sizeof(m->host_nonce));
    sw_link_send(s->link, msg);
}

static void link_up(struct sw_link *l, void *arg)
{
    struct sw_server *s = arg;
    struct sw_conn *c = sw_link_conn(l);

    snprintf(s->coordinator_name, sizeof(s->coordinator_name), "%s", sw_conn_name(c));
    sw_log(SW_LOG_INFO, "connected to the coordinator, %s", s->coordinator_name);
    send_member(s);
    sw_server_feed(s, (struct sw_registry_event){
                          .kind = SW_REG_COORDINATOR_UP, .instance = sw_conn_peer(c)->instance});
}

static void link_message(struct sw_link *l, struct sw_msg *msg, void *arg)
{
    sw_server_feed(
        arg, (struct sw_registry_event){.kind = SW_REG_COORDINATOR_MESSAGE, .message = msg});
}

/* One line for each time that it goes or can't be had, not one for each attempt. */
static void link_down(
    struct sw_link *l, const struct sw_error *why, bool was_up, bool first, void *arg)
{
    if (first)
        sw_log(SW_LOG_WARNING, "no connection to the coordinator at %s: %s; trying on",
            sw_link_name(l), why->text);
    if (was_up)
        sw_server_feed(arg, (struct sw_registry_event){.kind = SW_REG_COORDINATOR_DOWN});
}

static int open_link(struct sw_server *s, struct sw_error *e)
{
    static const struct sw_link_handlers handlers = {link_up, link_message, link_down};
    const struct sw_link_config config = {.loop = s->loop,
        .host = s->config.coordinator,
        .port = s->config.coordinator_port,
        .self = &s->self,
        .timeout_ms = SW_HANDSHAKE_MS,
        .expect = SW_ROLE_TRAINERD};

    return sw_link_open(&config, &handlers, s, &s->link, e);
}

/* ---- listeners ---- */

static void accepted(struct sw_conn *c, void *arg)
{
    struct sw_server *s = arg;

    switch (sw_conn_peer(c)->role) {
    case SW_ROLE_ENGINE:
        sw_session_accept(s, c);
        break;
    case SW_ROLE_WRITER:
        sw_writer_accept(s, c);
        break;
    case SW_ROLE_CLIENT:
        sw_client_accept(s, c);
        break;
    default:
        sw_conn_close(c, "not served here");
        break;
    }
}

static void refused(const struct sw_error *why, void *arg)
{
    struct sw_server *s = arg;

    s->refusals++;
    sw_log(SW_LOG_WARNING, "refused a connection: %s", why->text);
}

static int listen_on(struct sw_server *s, uint32_t port, const char *path, uint32_t roles,
    struct sw_listener **out, struct sw_error *e)
{
    static const struct sw_listener_handlers handlers = {accepted, refused};
    const struct sw_listen how = {.host = path ? NULL : s->config.listen,
        .port = port,
        .path = path,
        .mode = s->config.socket_mode,
        .owner_group = s->config.socket_group,
        .fd = -1,
        .self = &s->self,
        .roles = roles,
        .timeout_ms = SW_HANDSHAKE_MS,
        .max_connections = SW_CONNECTIONS_MAX};

    return sw_listener_open(s->loop, &how, &handlers, s, out, e);
}

static int listen_all(struct sw_server *s, struct sw_error *e)
{
    int rc = listen_on(s, s->config.port, NULL, 1u << SW_ROLE_CLIENT, &s->control, e);

    if (rc)
        return sw_error_context(e, rc, "control port");
    rc = listen_on(s, s->config.data_port, NULL, 1u << SW_ROLE_WRITER, &s->data, e);
    if (rc)
        return sw_error_context(e, rc, "data port");
    return listen_on(s, 0, s->config.socket,
        1u << SW_ROLE_ENGINE | 1u << SW_ROLE_WRITER | 1u << SW_ROLE_CLIENT, &s->local, e);
}

static void close_listeners(struct sw_server *s)
{
    struct sw_listener **all[] = {&s->local, &s->control, &s->data};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (*all[i])
            sw_listener_close(*all[i]);
        *all[i] = NULL;
    }
}

uint32_t sw_server_port(const struct sw_server *s)
{
    return sw_listener_port(s->control);
}

uint32_t sw_server_data_port(const struct sw_server *s)
{
    return sw_listener_port(s->data);
}

/* ---- start and stop ---- */

static int make_parts(struct sw_server *s, struct sw_error *e)
{
    struct sw_registry_config config = {.lease_ns = s->config.lease_ms * 1000000,
        .token_ns = s->config.token_ms * 1000000,
        .manifest_ns = s->config.manifest_ms * 1000000,
        .random = fill_random};
    int rc = sw_id_random(&s->self.instance);

    if (rc)
        return sw_fail(e, SW_ERR_IO, "no randomness from the kernel");
    s->self.traffic = &s->traffic;
    fill_random(s->host_nonce, sizeof(s->host_nonce), NULL);
    config.instance = s->self.instance;
    memcpy(config.host_nonce, s->host_nonce, sizeof(config.host_nonce));
    s->registry = sw_registry_new(&config);
    if (!s->registry)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the registry");
    return sw_io_pool_new(s->config.data_threads, &s->pool, e);
}

static void free_parts(struct sw_server *s)
{
    sw_registry_free(s->registry);
    sw_io_pool_unref(s->pool);
    free(s);
}

static void finished(uv_handle_t *h)
{
    struct sw_server *s = h->data;
    void (*stopped)(bool, void *) = s->stopped;
    void *arg = s->stopped_arg;

    if (--s->handles)
        return;
    free_parts(s);
    if (stopped)
        stopped(true, arg);
}

static void close_handles(struct sw_server *s)
{
    uv_timer_t *timers[] = {&s->deadline, &s->flow, &s->stop_deadline};

    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
        if (!uv_is_closing((uv_handle_t *)timers[i]))
            uv_close((uv_handle_t *)timers[i], finished);
}

int sw_server_start(uv_loop_t *loop, const struct sw_server_config *config, struct sw_server **out,
    struct sw_error *e)
{
    struct sw_server *s;
    int rc = sw_daemon_check_listen(config->listen, config->secret != NULL, e);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for inferd");
    s->loop = loop;
    s->config = *config;
    s->self = (struct sw_identity){.group = config->group,
        .role = SW_ROLE_INFERD,
        .host = config->host,
        .secret = config->secret,
        .secret_bytes = config->secret_bytes};
    rc = make_parts(s, e);
    if (!rc)
        rc = listen_all(s, e);
    if (!rc)
        rc = open_link(s, e);
    if (rc) {
        close_listeners(s);
        free_parts(s);
        return rc;
    }
    uv_timer_t *timers[] = {&s->deadline, &s->flow, &s->stop_deadline};
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = s;
        s->handles++;
    }
    *out = s;
    return 0;
}

void sw_server_check_stopped(struct sw_server *s)
{
    if (s->stopping && !s->sessions && !s->writers && !s->clients)
        close_handles(s);
}

/* An engine process neither answers nor ends: only this process's end closes its window for good.
 */
static void on_stop_deadline(uv_timer_t *timer)
{
    struct sw_server *s = timer->data;
    void (*stopped)(bool, void *) = s->stopped;

    for (struct sw_session *k = s->sessions; k; k = k->next)
        sw_log(SW_LOG_ERROR, "engine process %d did not answer within %d ms: ending without it",
            (int)k->pid, SW_WINDOW_MS);
    s->stopped = NULL;
    if (stopped)
        stopped(false, s->stopped_arg);
}

void sw_server_stop(struct sw_server *s, void (*stopped)(bool clean, void *arg), void *arg)
{
    if (s->stopping)
        return;
    s->stopping = true;
    s->stopped = stopped;
    s->stopped_arg = arg;
    close_listeners(s);
    uv_timer_stop(&s->deadline);
    uv_timer_stop(&s->flow);
    uv_timer_start(&s->stop_deadline, on_stop_deadline, SW_WINDOW_MS, 0);
    sw_link_close(s->link);
    s->link = NULL;
    for (struct sw_session *k = s->sessions; k; k = k->next)
        sw_session_end(k, SW_ERR_CLOSED, "inferd ends");
    for (struct sw_writer *w = s->writers; w; w = w->next)
        sw_writer_end(w, "inferd ends");
    for (struct sw_client *c = s->clients; c; c = c->next)
        sw_conn_close(c->conn, "inferd ends");
    sw_server_check_stopped(s);
}
