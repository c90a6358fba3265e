/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that wants to be a data path. It says PATH_OPEN within SW_HANDSHAKE_MS; the registry
 * admits it or not; then a port owns it: the connection object for local, the bare socket for tcp.
 */
#include "inferd/server_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/error.h"

static void handle_closed(uv_handle_t *h)
{
    struct sw_writer *w = h->data;
    struct sw_server *s = w->server;
    struct sw_writer **link = &s->writers;

    if (--w->handles)
        return;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    free(w);
    sw_server_check_stopped(s);
}

/* The connection is over, or somebody else's. */
static void forget(struct sw_writer *w)
{
    w->conn = NULL;
    if (w->closing)
        return;
    w->closing = true;
    uv_close((uv_handle_t *)&w->deadline, handle_closed);
    uv_close((uv_handle_t *)&w->flush, handle_closed);
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    forget(arg);
}

void sw_writer_end(struct sw_writer *w, const char *reason)
{
    if (w->conn)
        sw_conn_close(w->conn, reason);
}

static void answer(struct sw_writer *w, const struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PATH_DONE);

    if (msg) {
        msg->u.path_done.error.code = e->code;
        msg->u.path_done.error.reason = sw_arena_strdup(&msg->arena, e->text);
    }
    if (msg)
        sw_conn_send(w->conn, msg);
    if (!msg || e->code)
        sw_conn_close(w->conn, e->code ? e->text : "no memory for an answer");
}

static void ignore_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
}

static void ignore_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    sw_msg_free(msg);
}

/* Hands the socket to the tcp port once PATH_DONE is with the kernel. */
static bool hand_over(struct sw_writer *w)
{
    static const struct sw_conn_handlers none = {NULL, ignore_message, ignore_closed};
    struct sw_session *k = sw_session_find(w->server, w->session);
    struct sw_port *port = k ? sw_session_tcp_port(k) : NULL;
    struct sw_conn *c = w->conn;
    struct sw_error e = {0};
    char name[256];
    int fd;

    if (!port) {
        sw_conn_close(c, "the engine rank has gone");
        return true;
    }
    snprintf(name, sizeof(name), "%s", sw_conn_name(c));
    fd = sw_conn_detach(c); /* sends what is queued, and fails if the kernel does not take it */
    if (fd < 0)
        return false;
    sw_conn_set_handlers(c, &none, NULL);
    forget(w);
    if (sw_tcp_port_adopt(port, fd, name, &e))
        sw_log(SW_LOG_ERROR, "data path of %s: %s", name, e.text);
    return true;
}

static void on_flush(uv_check_t *check)
{
    struct sw_writer *w = check->data;

    if (!w->conn || hand_over(w))
        uv_check_stop(check);
}

static int admit(struct sw_writer *w, const struct sw_path_open *open, struct sw_error *e)
{
    struct sw_session *k;
    int rc;

    if ((open->local != 0) != sw_conn_is_unix(w->conn))
        return sw_fail(e, SW_ERR_INVALID, "%s",
            open->local ? "a local path needs inferd's UNIX socket: host names and addresses prove "
                          "nothing"
                        : "a tcp path needs inferd's data port");
    rc = sw_registry_admit(
        w->server->registry, &sw_conn_peer(w->conn)->instance, open, uv_hrtime(), &w->session, e);
    if (rc)
        return rc;
    k = sw_session_find(w->server, w->session);
    if (!k || !sw_session_tcp_port(k) || (open->local && (k->died || k->ending)))
        return sw_fail(e, SW_ERR_CLOSED, "the engine process is gone");
    return 0;
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct sw_writer *w = arg;
    struct sw_error e = {0};
    bool local;

    if (msg->kind != SW_MSG_PATH_OPEN || w->session) {
        sw_server_refuse(c, SW_ERR_PROTOCOL, "a writer sends PATH_OPEN, once");
        sw_msg_free(msg);
        return;
    }
    local = msg->u.path_open.local != 0;
    if (admit(w, &msg->u.path_open, &e)) {
        sw_log(SW_LOG_ERROR, "refused a data path of %s: %s", sw_conn_name(c), e.text);
        w->session = UINT64_MAX; /* nothing more is listened to */
    }
    sw_msg_free(msg);
    answer(w, &e);
    if (e.code)
        return;
    if (local) {
        struct sw_session *k = sw_session_find(w->server, w->session);

        forget(w);
        sw_local_port_adopt(sw_session_local_port(k), c);
    } else if (!hand_over(w)) {
        uv_check_start(&w->flush, on_flush);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct sw_writer *w = timer->data;

    if (w->conn)
        sw_server_refuse(w->conn, SW_ERR_TIMEOUT, "no PATH_OPEN came in time");
}

void sw_writer_accept(struct sw_server *s, struct sw_conn *c)
{
    static const struct sw_conn_handlers handlers = {NULL, on_message, on_closed};
    struct sw_writer *w = calloc(1, sizeof(*w));

    if (!w) {
        sw_conn_close(c, "no memory for a data path");
        return;
    }
    w->server = s;
    w->conn = c;
    w->next = s->writers;
    s->writers = w;
    uv_timer_init(s->loop, &w->deadline); /* these two can't fail */
    uv_check_init(s->loop, &w->flush);
    w->deadline.data = w->flush.data = w;
    w->handles = 2;
    sw_conn_set_handlers(c, &handlers, w);
    uv_timer_start(&w->deadline, on_deadline, SW_HANDSHAKE_MS, 0);
}
