/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of trainer processes and clients. A trainer's process is watched by its pidfd beyond
 * its connection's end: only its death says that it writes to its buffer no more.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/error.h"
#include "common/status.h"
#include "trainerd/internal.h"

static struct session *find(const struct sw_trainerd *d, uint64_t id)
{
    struct session *s = d->sessions;

    while (s && s->id != id)
        s = s->next;
    return s;
}

static void session_free(struct session *s)
{
    struct sw_trainerd *d = s->d;

    for (struct session **at = &d->sessions; *at; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    free(s);
    trainerd_finish(d);
}

static void process_closed(uv_handle_t *handle)
{
    struct session *s = handle->data;

    close(s->pidfd);
    s->pidfd = -1;
    if (!s->conn)
        session_free(s);
}

static void unwatch(struct session *s)
{
    if (s->pidfd >= 0 && !s->closing) {
        s->closing = true;
        uv_close((uv_handle_t *)&s->process, process_closed);
    }
}

static void on_process(uv_poll_t *poll, int status, int events)
{
    struct session *s = poll->data;
    struct sw_host_event event = {.kind = SW_HOST_PROCESS_DIED, .session = s->id};

    if (status == 0) /* else nobody knows: what it may write to will be replaced */
        trainerd_event(s->d, &event);
    unwatch(s);
}

static void watch(struct session *s)
{
    int pidfd = sw_conn_pidfd(s->conn);

    s->pidfd = pidfd >= 0 ? fcntl(pidfd, F_DUPFD_CLOEXEC, 0) : -1;
    if (s->pidfd < 0)
        return;
    if (uv_poll_init(s->d->loop, &s->process, s->pidfd)) {
        close(s->pidfd);
        s->pidfd = -1;
        return;
    }
    s->process.data = s;
    uv_poll_start(&s->process, UV_READABLE, on_process);
}

static void refuse(struct sw_conn *c, const char *why)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ERROR);

    if (m) {
        m->u.error.code = SW_ERR_UNSUPPORTED;
        m->u.error.reason = why;
        sw_conn_send(c, m);
    }
    sw_conn_close(c, why);
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct session *s = arg;
    struct sw_host_event event = {
        .kind = SW_HOST_SESSION_MESSAGE, .session = s->id, .message = msg};

    if (msg->kind == SW_MSG_STATUS) {
        sw_status_send(c, msg->u.status.request, trainerd_status(s->d));
        sw_msg_free(msg);
    } else if (!sw_conn_is_unix(c)) {
        refuse(c, "the control port answers status only: use the UNIX socket on that host");
        sw_msg_free(msg);
    } else {
        trainerd_event(s->d, &event);
    }
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct session *s = arg;
    struct sw_host_event event = {
        .kind = SW_HOST_SESSION_DOWN, .session = s->id, .text = why->text};

    s->conn = NULL;
    if (sw_conn_peer(c)->role == SW_ROLE_TRAINER)
        sw_log(why->code == SW_ERR_CLOSED ? SW_LOG_DEBUG : SW_LOG_WARNING, "%s: %s",
            sw_conn_name(c), why->text);
    trainerd_event(s->d, &event);
    if (s->d->closing || !sw_host_awaits_death(s->d->host, s->id))
        unwatch(s);
    if (s->pidfd < 0)
        session_free(s);
}

static void on_accepted(struct sw_conn *c, void *arg)
{
    static const struct sw_conn_handlers handlers = {NULL, on_message, on_closed};
    struct sw_trainerd *d = arg;
    const struct sw_peer *peer = sw_conn_peer(c);
    struct sw_host_event event = {.kind = SW_HOST_SESSION_UP,
        .role = peer->role,
        .instance = peer->instance,
        .pid = sw_conn_pid(c) > 0 ? (uint32_t)sw_conn_pid(c) : 0};
    struct session *s;

    if (peer->role == SW_ROLE_TRAINERD || peer->role == SW_ROLE_INFERD) {
        if (d->coordinator)
            sw_coordinator_server_adopt(d->coordinator, c);
        else
            sw_conn_close(c, "this trainerd is not the coordinator (see its option `coordinator`)");
        return;
    }
    s = d->closing ? NULL : calloc(1, sizeof(*s));
    if (!s) {
        sw_conn_close(c, d->closing ? "shutting down" : "trainerd is out of memory");
        return;
    }
    s->d = d;
    s->id = ++d->next_session;
    s->conn = c;
    s->pidfd = -1;
    s->next = d->sessions;
    d->sessions = s;
    sw_conn_set_handlers(c, &handlers, s);
    if (peer->role == SW_ROLE_TRAINER)
        watch(s);
    event.session = s->id;
    trainerd_event(d, &event);
}

static void on_refused(const struct sw_error *why, void *arg)
{
    sw_log(SW_LOG_WARNING, "connection refused: %s", why->text);
}

int sessions_listen(struct sw_trainerd *d, struct sw_error *e)
{
    static const struct sw_listener_handlers handlers = {
        .accepted = on_accepted, .refused = on_refused};
    struct sw_listen how = {.path = d->config->socket,
        .owner_group = d->config->socket_group,
        .fd = -1,
        .self = &d->identity,
        .roles = 1u << SW_ROLE_TRAINER | 1u << SW_ROLE_CLIENT,
        .timeout_ms = d->config->handshake_ms,
        .max_connections = SW_CONNECTIONS_MAX};
    int r = sw_daemon_socket_mode(d->config->socket_mode, &how.mode, e);

    if (!r)
        r = sw_listener_open(d->loop, &how, &handlers, d, &d->local, e);
    if (r)
        return r;
    how.path = NULL;
    how.host = d->config->listen;
    how.port = d->config->port;
    how.roles = 1u << SW_ROLE_CLIENT;
    if (d->coordinator)
        how.roles |= 1u << SW_ROLE_TRAINERD | 1u << SW_ROLE_INFERD;
    return sw_listener_open(d->loop, &how, &handlers, d, &d->control, e);
}

static int attach_descriptors(struct sw_trainerd *d, struct sw_msg *msg, struct sw_error *e)
{
    struct sw_replica_buffer *b =
        sw_replica_get(d->replica, msg->u.buffer.rank, msg->u.buffer.index);

    return b ? sw_replica_buffer_descriptors(b, msg->fds, &msg->n_fds, e)
             : sw_fail(e, SW_ERR_STATE, "the replica buffer is gone");
}

void sessions_send(struct sw_trainerd *d, uint64_t session, struct sw_msg *msg)
{
    struct session *s = find(d, session);
    struct sw_error e;

    if (!s || !s->conn) {
        sw_msg_free(msg);
    } else if (msg->kind == SW_MSG_BUFFER && attach_descriptors(d, msg, &e)) {
        sw_log(SW_LOG_ERROR, "%s: %s", sw_conn_name(s->conn), e.text);
        sw_conn_close(s->conn, e.text);
        sw_msg_free(msg);
    } else {
        sw_conn_send(s->conn, msg);
    }
}

void sessions_drop(struct sw_trainerd *d, uint64_t session, const char *why)
{
    struct session *s = find(d, session);

    if (s && s->conn) {
        sw_log(SW_LOG_WARNING, "%s is dropped: %s", sw_conn_name(s->conn), why);
        sw_conn_close(s->conn, why);
    }
}

void sessions_unwatch(struct sw_trainerd *d)
{
    for (struct session *s = d->sessions; s; s = s->next)
        if (!s->conn && !sw_host_awaits_death(d->host, s->id))
            unwatch(s);
}

void sessions_close(struct sw_trainerd *d)
{
    for (struct session *s = d->sessions; s; s = s->next) {
        if (s->conn)
            sw_conn_close(s->conn, "trainerd is shutting down");
        else
            unwatch(s);
    }
}
