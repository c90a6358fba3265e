/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a connection: DIALLING (conn_dial.c) -> PROVING -> READY -> ENDED. An accepted one starts
 * with PROVING.
 *
 * sw_conn_end is the only way to ENDED, from any state: it closes the socket, lets go of the poll
 * handle and of a running name lookup (both are heap objects of their own, which the loop ends
 * later), and closes the timer, in whose close callback `closed` is called and the memory freed.
 * Hence nothing is freed under a handler that is still running.
 */
#include "common/conn_internal.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/error.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define KEEP_IDLE_S 10
#define KEEP_INTERVAL_S 5

/* ---- watching ---- */

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct sw_poller *poller = (struct sw_poller *)handle;

    if (!poller->conn)
        return;
    if (poller->conn->state == SW_CONN_DIALLING)
        sw_conn_connecting(poller->conn, status);
    else
        sw_conn_events(poller->conn, status, events);
}

static void on_poller_closed(uv_handle_t *handle)
{
    free(handle);
}

int sw_conn_watch(struct sw_conn *c, int fd, int events, struct sw_error *e)
{
    struct sw_poller *poller = calloc(1, sizeof(*poller));
    int rc;

    assert(!c->poller);
    if (!poller)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to watch a socket");
    rc = uv_poll_init(c->loop, &poller->handle, fd);
    if (rc) {
        free(poller);
        return sw_fail_errno(e, SW_ERR_IO, -rc, "watching a socket");
    }
    poller->conn = c;
    c->poller = poller;
    c->fd = fd;
    c->events = 0;
    sw_conn_want(c, events);
    return 0;
}

void sw_conn_unwatch(struct sw_conn *c)
{
    if (!c->poller)
        return;
    c->poller->conn = NULL;
    uv_close((uv_handle_t *)&c->poller->handle, on_poller_closed);
    c->poller = NULL;
}

void sw_conn_want(struct sw_conn *c, int events)
{
    if (!c->poller || c->events == events)
        return;
    c->events = events;
    uv_poll_start(&c->poller->handle, events, on_poll);
}

/* ---- beginning ---- */

struct sw_conn *sw_conn_new(uv_loop_t *loop, const struct sw_identity *self)
{
    struct sw_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->splitter = sw_splitter_new();
    if (!c->splitter) {
        free(c);
        return NULL;
    }
    c->loop = loop;
    c->self = self;
    c->fd = -1;
    c->pidfd = -1;
    c->pid = -1;
    c->uid = (uid_t)-1;
    uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    return c;
}

static void on_deadline(uv_timer_t *timer)
{
    struct sw_conn *c = timer->data;
    struct sw_error e = {0};

    if (c->state == SW_CONN_DIALLING)
        sw_fail(&e, SW_ERR_TIMEOUT, "no connection within the time allowed (%s)",
            c->resolve ? "the name lookup does not answer" : "the host does not answer");
    else
        sw_fail(&e, SW_ERR_TIMEOUT, "no answer in the handshake within the time allowed");
    sw_conn_end(c, &e, c->state == SW_CONN_PROVING);
}

void sw_conn_deadline(struct sw_conn *c, uint32_t timeout_ms)
{
    uv_update_time(c->loop); /* or what the loop did since its last turn would count, too */
    uv_timer_start(&c->timer, on_deadline, timeout_ms ? timeout_ms : SW_HANDSHAKE_MS, 0);
}

/* Small messages go at once; a host that vanished is noticed. A refused option is no reason to
 * refuse the connection. */
static void tune_tcp(int fd)
{
    const int one = 1, idle = KEEP_IDLE_S, interval = KEEP_INTERVAL_S,
              count = (SW_TCP_SILENT_MS / 1000 - KEEP_IDLE_S) / KEEP_INTERVAL_S;
    const unsigned silent = SW_TCP_SILENT_MS;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent, sizeof(silent));
}

static void ask_credentials(struct sw_conn *c)
{
    struct ucred cred;
    socklen_t size = sizeof(cred);

    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &size))
        return;
    c->pid = cred.pid;
    c->uid = cred.uid;
    /* The kernel's own pidfd can't be of a process that got the number later. */
    size = sizeof(c->pidfd);
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERPIDFD, &c->pidfd, &size))
        c->pidfd = cred.pid > 0 ? (int)syscall(SYS_pidfd_open, cred.pid, 0) : -1;
}

static void name_tcp(struct sw_conn *c, const struct sockaddr_storage *peer)
{
    struct sockaddr_in four = {0};
    struct sockaddr_in6 six = {0};
    uint16_t port = 0;

    if (peer->ss_family == AF_INET) {
        memcpy(&four, peer, sizeof(four));
        inet_ntop(AF_INET, &four.sin_addr, c->address, sizeof(c->address));
        port = ntohs(four.sin_port);
    } else if (peer->ss_family == AF_INET6) {
        memcpy(&six, peer, sizeof(six));
        if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
            inet_ntop(AF_INET, &six.sin6_addr.s6_addr[12], c->address, sizeof(c->address));
        else
            inet_ntop(AF_INET6, &six.sin6_addr, c->address, sizeof(c->address));
        port = ntohs(six.sin6_port);
    }
    snprintf(c->place, sizeof(c->place), strchr(c->address, ':') ? "[%s]:%u" : "%s:%u", c->address,
        port);
}

/* Fills in what the socket tells about the other side. */
static int know_socket(struct sw_conn *c, struct sw_error *e)
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof(peer);

    if (getpeername(c->fd, (struct sockaddr *)&peer, &size))
        return sw_fail_errno(e, SW_ERR_IO, errno, "the socket's other end");
    c->is_unix = peer.ss_family == AF_UNIX;
    if (c->is_unix) {
        ask_credentials(c);
        snprintf(c->place, sizeof(c->place), "pid %d", (int)c->pid);
    } else {
        tune_tcp(c->fd);
        name_tcp(c, &peer);
    }
    snprintf(c->name, sizeof(c->name), "%s", c->place);
    return 0;
}

static int send_hello(struct sw_conn *c, struct sw_error *e)
{
    struct sw_msg *hello = sw_handshake_start(c->handshake);
    int rc;

    if (!hello)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the handshake");
    rc = sw_conn_queue(c, &c->out, hello, e);
    sw_msg_free(hello);
    if (rc == 0)
        sw_conn_want(c, UV_READABLE | UV_WRITABLE);
    return rc;
}

int sw_conn_start(struct sw_conn *c, int fd, struct sw_handshake *handshake, struct sw_error *e)
{
    int rc = 0;

    sw_handshake_free(c->handshake);
    c->handshake = handshake;
    c->state = SW_CONN_PROVING;
    if (!handshake)
        rc = sw_fail(e, SW_ERR_NOMEM, "no memory or no random numbers for the handshake");
    if (rc == 0 && !c->poller)
        rc = sw_conn_watch(c, fd, UV_READABLE, e);
    if (rc == 0)
        rc = know_socket(c, e);
    if (rc == 0 && !c->accepted)
        rc = send_hello(c, e);
    else if (rc == 0)
        sw_conn_want(c, UV_READABLE);
    return rc;
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct sw_conn *c = handle->data;

    if (c->handlers.closed)
        c->handlers.closed(c, &c->why, c->arg);
    if (c->pidfd >= 0)
        close(c->pidfd); /* not before: `closed` may want to know whether the process lives on */
    free(c);
}

/* The peer is told why, as its last message. */
static void tell_peer(struct sw_conn *c, const struct sw_error *why)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);
    struct sw_error ignored;

    if (!msg)
        return;
    msg->u.error.code = why->code;
    msg->u.error.reason = why->text;
    if (sw_conn_queue(c, &c->out, msg, &ignored) == 0)
        sw_conn_flush(c, &ignored);
    sw_msg_free(msg);
}

static void release(struct sw_conn *c)
{
    sw_conn_dial_clear(c);
    sw_conn_unwatch(c);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    sw_out_queue_clear(&c->out);
    sw_out_queue_clear(&c->held);
    sw_fd_queue_clear(&c->received);
    sw_splitter_free(c->splitter);
    sw_handshake_free(c->handshake);
    c->splitter = NULL;
    c->handshake = NULL;
    free(c->wire.data);
    c->wire = (struct sw_bytes){0};
    if (c->has_filter && c->filter.free)
        c->filter.free(c->filter.state);
    c->has_filter = false;
}

void sw_conn_end(struct sw_conn *c, const struct sw_error *why, bool tell)
{
    struct sw_error ignored;

    if (c->state == SW_CONN_ENDED)
        return;
    c->why = *why;
    if (c->why.code == 0)
        c->why.code = SW_ERR_CLOSED;
    if (c->poller && c->state != SW_CONN_DIALLING) {
        if (tell)
            tell_peer(c, why);
        else
            sw_conn_flush(c, &ignored);
    }
    sw_error_context(&c->why, c->why.code, "%s", c->name);
    c->state = SW_CONN_ENDED;
    sw_listener_forget(c, &c->why);
    release(c);
    uv_close((uv_handle_t *)&c->timer, on_closed);
}

bool sw_conn_ended(const struct sw_conn *c)
{
    return c->state == SW_CONN_ENDED;
}

void sw_conn_close(struct sw_conn *c, const char *reason)
{
    struct sw_error e = {0};

    sw_fail(&e, SW_ERR_CLOSED, "%s", reason ? reason : "closed");
    sw_conn_end(c, &e, false);
}

int sw_conn_detach(struct sw_conn *c)
{
    struct sw_error e = {0};
    int fd;

    if (c->state != SW_CONN_READY || c->has_filter)
        return -1;
    sw_conn_flush(c, &e);
    if (e.code || c->out.head || c->held.head || c->unfed || sw_splitter_partial(c->splitter) ||
        !sw_fd_queue_empty(&c->received))
        return -1;
    fd = c->fd;
    sw_conn_unwatch(c); /* the loop has let go of the descriptor when this returns */
    c->fd = -1;
    sw_fail(&e, SW_ERR_CLOSED, "detached");
    sw_conn_end(c, &e, false);
    return fd;
}

/* ---- messages ---- */

static void become_ready(struct sw_conn *c)
{
    uv_timer_stop(&c->timer);
    c->state = SW_CONN_READY;
    snprintf(
        c->name, sizeof(c->name), "%s@%s (%s)", sw_role_name(c->peer.role), c->peer.host, c->place);
    /* What was queued before goes behind the handshake. */
    if (c->held.head) {
        if (c->out.tail)
            c->out.tail->next = c->held.head;
        else
            c->out.head = c->held.head;
        c->out.tail = c->held.tail;
        c->out.bytes += c->held.bytes;
        c->out.memory += c->held.memory;
        c->held = (struct sw_out_queue){0};
    }
    if (c->out.head)
        sw_conn_want(c, UV_READABLE | UV_WRITABLE);
    if (c->accepted)
        sw_listener_proven(c);
    else if (c->handlers.ready)
        c->handlers.ready(c, c->arg);
}

static void handshake_message(struct sw_conn *c, struct sw_msg *msg)
{
    struct sw_error e = {0}, ignored;
    struct sw_msg *reply;
    bool done;
    int rc = sw_handshake_step(c->handshake, msg, &reply, &done, &c->peer, &e);

    sw_msg_free(msg);
    if (reply && sw_conn_queue(c, &c->out, reply, rc ? &ignored : &e) && !rc)
        rc = e.code;
    sw_msg_free(reply);
    if (rc) {
        sw_conn_end(c, &e, false); /* with the reply, which says it, in the queue */
        return;
    }
    if (c->out.head)
        sw_conn_want(c, UV_READABLE | UV_WRITABLE);
    if (done)
        become_ready(c);
}

/* A message in, owned. */
void sw_conn_handle(struct sw_conn *c, struct sw_msg *msg)
{
    struct sw_error e = {0};

    if (c->self->traffic)
        c->self->traffic->received++;
    if (c->state == SW_CONN_PROVING) {
        handshake_message(c, msg);
    } else if (msg->kind == SW_MSG_ERROR) {
        sw_fail(&e, msg->u.error.code ? msg->u.error.code : SW_ERR_PROTOCOL, "%s",
            msg->u.error.reason[0] ? msg->u.error.reason : "an error without a reason");
        sw_msg_free(msg);
        sw_conn_end(c, &e, false);
    } else if (msg->kind <= SW_MSG_HELLO_DONE) {
        sw_fail(&e, SW_ERR_PROTOCOL, "message %s after the handshake", sw_msg_kind_name(msg->kind));
        sw_msg_free(msg);
        sw_conn_end(c, &e, true);
    } else if (c->handlers.message) {
        c->handlers.message(c, msg, c->arg);
    } else {
        sw_msg_free(msg);
    }
}

static size_t queue_memory(const struct sw_conn *c)
{
    return c->out.memory + c->held.memory + c->wire.n;
}

void sw_conn_send(struct sw_conn *c, struct sw_msg *msg)
{
    struct sw_out_queue *to = c->state == SW_CONN_READY ? &c->out : &c->held;
    struct sw_error e = {0};
    int rc;

    if (c->state == SW_CONN_ENDED) {
        sw_msg_free(msg);
        return;
    }
    /* A message that could not be made must not just be missing. */
    rc = msg ? sw_conn_queue(c, to, msg, &e) : sw_fail(&e, SW_ERR_NOMEM, "no memory for a message");
    if (rc == 0)
        msg->n_fds = 0; /* the queue has them */
    sw_msg_free(msg);
    if (rc) {
        sw_conn_end(c, &e, true);
    } else if (queue_memory(c) > SW_SEND_QUEUE_MAX) {
        sw_fail(&e, SW_ERR_LIMIT, "%zu bytes wait for a peer that does not read, the limit is %u",
            queue_memory(c), SW_SEND_QUEUE_MAX);
        sw_conn_end(c, &e, false);
    } else if (c->state == SW_CONN_READY) {
        /* Sent from the loop: what else is queued until then goes in the same call. */
        sw_conn_want(c, UV_READABLE | UV_WRITABLE);
    }
}

/* ---- what is known ---- */

size_t sw_conn_queued(const struct sw_conn *c)
{
    return c->out.bytes + c->held.bytes + (c->wire.n - c->wire.used);
}

void sw_conn_set_filter(struct sw_conn *c, const struct sw_filter *filter)
{
    c->filter = *filter;
    c->has_filter = true;
}

void sw_conn_set_handlers(struct sw_conn *c, const struct sw_conn_handlers *handlers, void *arg)
{
    c->handlers = handlers ? *handlers : (struct sw_conn_handlers){0};
    c->arg = arg;
}

const struct sw_peer *sw_conn_peer(const struct sw_conn *c)
{
    return &c->peer;
}

const char *sw_conn_name(const struct sw_conn *c)
{
    return c->name;
}

const char *sw_conn_address(const struct sw_conn *c)
{
    return c->address;
}

bool sw_conn_is_unix(const struct sw_conn *c)
{
    return c->is_unix;
}

pid_t sw_conn_pid(const struct sw_conn *c)
{
    return c->pid;
}

uid_t sw_conn_uid(const struct sw_conn *c)
{
    return c->uid;
}

int sw_conn_pidfd(const struct sw_conn *c)
{
    return c->pidfd;
}
