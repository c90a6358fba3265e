/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts connections and hands them out once they are proven. When no descriptor is left, it stops
 * accepting for a moment instead of spinning on a socket that stays readable.
 */
#include "common/conn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/codec.h"
#include "common/error.h"
#include "common/listener_socket.h"

#define ACCEPTS 64 /* for each wakeup */
#define PAUSE_MS 200

struct sw_listener {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t pause;
    int open_handles;
    struct sw_listen_socket socket;
    struct sw_listener_handlers handlers;
    void *arg;
    const struct sw_identity *self;
    uint32_t roles, timeout_ms, max_connections;
    uint32_t n_connections;
    struct sw_conn *connections;
    bool exhausted; /* told once, until a connection could be accepted again */
};

static void refuse(struct sw_listener *l, const struct sw_error *why)
{
    if (l->handlers.refused)
        l->handlers.refused(why, l->arg);
}

/* ---- its connections ---- */

static void adopt_conn(struct sw_listener *l, struct sw_conn *c)
{
    c->listener = l;
    c->next = l->connections;
    c->link = &l->connections;
    if (c->next)
        c->next->link = &c->next;
    l->connections = c;
    l->n_connections++;
}

static void drop_conn(struct sw_conn *c)
{
    struct sw_listener *l = c->listener;

    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    c->listener = NULL;
    l->n_connections--;
}

void sw_listener_proven(struct sw_conn *c)
{
    struct sw_listener *l = c->listener;

    if (l && l->handlers.accepted)
        l->handlers.accepted(c, l->arg);
    if (!sw_conn_ended(c) && !c->handlers.message && !c->handlers.closed)
        sw_conn_close(c, "nobody takes this connection");
}

void sw_listener_forget(struct sw_conn *c, const struct sw_error *why)
{
    struct sw_listener *l = c->listener;

    if (!l)
        return;
    drop_conn(c);
    /* `closed` tells of a connection that has handlers. */
    if (c->peer.role == 0)
        refuse(l, why);
}

/* ---- accepting ---- */

/* Says why, as far as the kernel takes it at once, and closes. */
static void turn_away(struct sw_listener *l, int fd)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);
    struct sw_error e = {0};
    uint8_t *bytes = NULL, header[SW_FRAME_HEADER];
    size_t length;

    sw_fail(&e, SW_ERR_LIMIT, "%u connections are open, which is the limit (max_connections)",
        l->max_connections);
    if (msg) {
        msg->u.error.code = e.code;
        msg->u.error.reason = e.text;
        if (sw_codec_encode(msg, &bytes, &length, NULL) == 0) {
            sw_frame_header(header, (uint32_t)length, 0);
            if (send(fd, header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) > 0)
                (void)!send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    free(bytes);
    sw_msg_free(msg);
    close(fd);
    refuse(l, &e);
}

static void welcome(struct sw_listener *l, int fd)
{
    struct sw_conn *c = sw_conn_new(l->loop, l->self);
    struct sw_error e = {0};

    if (!c) {
        close(fd);
        sw_fail(&e, SW_ERR_NOMEM, "no memory for a connection");
        refuse(l, &e);
        return;
    }
    c->accepted = true;
    adopt_conn(l, c);
    snprintf(c->name, sizeof(c->name), "a new connection");
    if (sw_conn_start(c, fd, sw_handshake_listen(l->self, !l->socket.is_unix, l->roles), &e)) {
        if (c->fd != fd)
            close(fd);
        sw_conn_end(c, &e, false);
        return;
    }
    sw_conn_deadline(c, l->timeout_ms);
    if (l->handlers.connected)
        l->handlers.connected(c, l->arg);
}

static void on_acceptable(uv_poll_t *handle, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct sw_listener *l = timer->data;

    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

static void pause_accepting(struct sw_listener *l, int err)
{
    struct sw_error e = {0};

    uv_poll_stop(&l->poll);
    uv_timer_start(&l->pause, on_pause_over, PAUSE_MS, 0);
    if (l->exhausted)
        return;
    l->exhausted = true;
    sw_fail_errno(&e, SW_ERR_LIMIT, err,
        "new connections have to wait, %u are open: raise LimitNOFILE or end some",
        l->n_connections);
    refuse(l, &e);
}

/* False = no more for now. */
static bool accept_one(struct sw_listener *l)
{
    const int fd = accept4(l->socket.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        l->exhausted = false;
        if (l->n_connections >= l->max_connections)
            turn_away(l, fd);
        else
            welcome(l, fd);
        return true;
    }
    switch (errno) {
    case EAGAIN:
        return false;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        pause_accepting(l, errno);
        return false;
    default: /* EINTR, or a connection that failed before it was accepted */
        return true;
    }
}

static void on_acceptable(uv_poll_t *handle, int status, int events)
{
    struct sw_listener *l = handle->data;

    for (int i = 0; i < ACCEPTS && !uv_is_closing((uv_handle_t *)handle); i++)
        if (!accept_one(l))
            return;
}

/* ---- open and close ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct sw_listener *l = handle->data;

    if (--l->open_handles == 0)
        free(l);
}

int sw_listener_open(uv_loop_t *loop, const struct sw_listen *how,
    const struct sw_listener_handlers *handlers, void *arg, struct sw_listener **out,
    struct sw_error *e)
{
    struct sw_listener *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a listener");
    l->loop = loop;
    l->handlers = *handlers;
    l->arg = arg;
    l->self = how->self;
    l->roles = how->roles;
    l->timeout_ms = how->timeout_ms;
    l->max_connections = how->max_connections ? how->max_connections : SW_CONNECTIONS_MAX;
    rc = sw_listen_socket_open(how, &l->socket, e);
    if (rc) {
        free(l);
        return rc;
    }
    rc = uv_poll_init(loop, &l->poll, l->socket.fd);
    if (rc) {
        sw_listen_socket_close(&l->socket);
        free(l);
        return sw_fail_errno(e, SW_ERR_IO, -rc, "watching a listening socket");
    }
    uv_timer_init(loop, &l->pause);
    l->poll.data = l;
    l->pause.data = l;
    l->open_handles = 2;
    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
    *out = l;
    return 0;
}

uint32_t sw_listener_port(const struct sw_listener *l)
{
    return l->socket.port;
}

void sw_listener_close(struct sw_listener *l)
{
    struct sw_conn *next;

    if (!l || uv_is_closing((uv_handle_t *)&l->poll))
        return;
    uv_close((uv_handle_t *)&l->poll, on_handle_closed);
    uv_close((uv_handle_t *)&l->pause, on_handle_closed);
    sw_listen_socket_close(&l->socket);
    l->handlers = (struct sw_listener_handlers){0};
    for (struct sw_conn *c = l->connections; c; c = next) {
        next = c->next;
        drop_conn(c);
        if (c->state != SW_CONN_READY)
            sw_conn_close(c, "the daemon is ending");
    }
}
