/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target side of tcp: a port is one engine rank's memory and window; its connections are spread
 * over the pool's threads, which place the bytes.
 *
 * A connection goes RECORD -> (TABLE) -> PAYLOAD -> RECORD ..., or RECORD -> REPLY -> RECORD. Every
 * step that touches the target's memory is one non-blocking call inside the window. What comes
 * wrong, or for a window that is not open, ends the connection, with a REFUSED record if the socket
 * takes it at once; the loop then frees the object. While a reply waits for a slow reader nothing
 * more is read, so a connection never needs more memory than its own struct.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/error.h"
#include "common/transport/io_thread.h"
#include "common/transport/shared.h"
#include "common/transport/tcp_wire.h"
#include "common/transport/window.h"

#define CONNECTIONS_MAX 4096u
#define STEPS_MAX 16 /* calls for one connection before the others get their turn */

enum state { RECORD, TABLE, PAYLOAD, REPLY };
enum { DEAD = -1, WAIT = 0, MORE = 1 }; /* what a step came to */

struct target_conn {
    struct sw_io_watch watch;
    struct sw_io_task start, stop;
    struct sw_io_thread *thread;
    struct port *port;
    struct target_conn *next; /* the loop's */
    bool stopping;            /* the loop's: stop was posted */
    bool closed;              /* the thread's: the socket is closed */
    bool gone, stopped;       /* under port->lock: ended by itself; stop has run */
    enum state state;
    struct sw_wire_record record;
    uint32_t at_extent; /* cursor in the payload, or in the reply's payload */
    uint64_t at_offset;
    uint64_t left;         /* bytes of payload still to come, or to be sent */
    struct sw_id counting; /* the window that `counted` is about */
    uint64_t counted;
    size_t got;  /* bytes in in[], or of the table */
    size_t sent; /* bytes of out[] that went */
    uint8_t in[SW_WIRE_RECORD], out[SW_WIRE_RECORD];
    uint8_t table[SW_WIRE_TABLE];
    struct sw_wire_extent extents[SW_WIRE_EXTENTS];
};

struct port {
    const struct sw_transport *ops;
    struct sw_window *window;
    struct sw_io_pool *pool;
    uv_async_t async;
    pthread_mutex_t lock;
    struct target_conn *conns;
    atomic_uint live;
    sw_port_closed freed; /* set: port_free was called */
    void *freed_arg;
    uint64_t freed_bytes;
};

/* ---- ends ---- */

/* The thread's last word on a connection: under the lock, so that the loop does not free the port
 * between the flag and the wake-up. */
static void tell_loop(struct target_conn *c, bool *flag)
{
    struct port *p = c->port;

    pthread_mutex_lock(&p->lock);
    *flag = true;
    uv_async_send(&p->async);
    pthread_mutex_unlock(&p->lock);
}

static void close_socket(struct target_conn *c)
{
    if (c->closed)
        return;
    sw_io_thread_unwatch(c->thread, &c->watch);
    close(c->watch.fd);
    c->closed = true;
    atomic_fetch_sub(&c->port->live, 1);
}

/* Ends the connection; `why` goes to the writer if there is room in its socket. The loop may free
 * it at once: return DEAD and touch nothing. */
static int drop(struct target_conn *c, const struct sw_error *why)
{
    if (why && c->state != REPLY) {
        const size_t text = strnlen(why->text, SW_WIRE_TEXT);
        struct sw_wire_record r = {
            .kind = SW_WIRE_REFUSED, .code = why->code, .window = c->record.window, .bytes = text};
        uint8_t out[SW_WIRE_RECORD + SW_WIRE_TEXT];

        sw_wire_put_record(out, &r);
        memcpy(out + SW_WIRE_RECORD, why->text, text);
        (void)!send(c->watch.fd, out, SW_WIRE_RECORD + text, MSG_DONTWAIT | MSG_NOSIGNAL);
        shutdown(c->watch.fd, SHUT_WR);
    }
    close_socket(c);
    tell_loop(c, &c->gone);
    return DEAD;
}

static int drop_closed_window(struct target_conn *c)
{
    struct sw_error e;
    char id[17];

    sw_fail(&e, SW_ERR_STATE, "write window %s is not open", sw_id_short(&c->record.window, id));
    return drop(c, &e);
}

/* ---- payload ---- */

/* The pieces of target memory from the cursor on, at most `limit` bytes; *bytes in all. */
static size_t gather(
    const struct target_conn *c, uint64_t limit, struct iovec *iov, uint64_t *bytes)
{
    uint64_t skip = c->at_offset, sum = 0;
    size_t n = 0;

    for (uint32_t i = c->at_extent; i < c->record.n && sum < limit; i++) {
        const struct sw_wire_extent *x = &c->extents[i];
        uint64_t length = x->length - skip;

        if (length > limit - sum)
            length = limit - sum;
        iov[n].iov_base = sw_window_at(c->port->window, x->region, x->offset + skip);
        iov[n++].iov_len = length;
        sum += length;
        skip = 0;
    }
    *bytes = sum;
    return n;
}

static void advance(struct target_conn *c, uint64_t bytes)
{
    c->left -= bytes;
    while (bytes > 0) {
        const uint64_t rest = c->extents[c->at_extent].length - c->at_offset;

        if (bytes < rest) {
            c->at_offset += bytes;
            return;
        }
        bytes -= rest;
        c->at_extent++;
        c->at_offset = 0;
    }
}

/* What a receiving or sending call came to: > 0 bytes, 0 try again later, -1 over. */
static ssize_t outcome(ssize_t n)
{
    if (n > 0)
        return n;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

/* One call: what is left of the payload goes to the target, and the next record comes along. */
static int step_payload(struct target_conn *c)
{
    struct iovec iov[SW_WIRE_EXTENTS + 1];
    struct msghdr m = {.msg_iov = iov};
    uint64_t bytes, placed;
    ssize_t n;

    if (!sw_window_enter(c->port->window, &c->record.window))
        return drop_closed_window(c);
    m.msg_iovlen = gather(c, SW_CHUNK_BYTES, iov, &bytes);
    if (bytes == c->left)
        iov[m.msg_iovlen++] = (struct iovec){c->in, sizeof(c->in)};
    n = outcome(recvmsg(c->watch.fd, &m, MSG_DONTWAIT));
    placed = n < 0 ? 0 : (uint64_t)n < bytes ? (uint64_t)n : bytes;
    sw_window_leave(c->port->window, placed);
    if (n < 0)
        return drop(c, NULL);
    c->counted += placed;
    advance(c, placed);
    if (c->left == 0) {
        c->state = RECORD;
        c->got = (size_t)((uint64_t)n - placed);
    }
    return n > 0 ? MORE : WAIT;
}

/* ---- replies ---- */

static int start_reply(struct target_conn *c, uint32_t kind, uint64_t bytes)
{
    const struct sw_wire_record r = {
        .kind = kind, .n = c->record.n, .window = c->record.window, .bytes = bytes};

    sw_wire_put_record(c->out, &r);
    c->sent = 0;
    c->at_extent = 0;
    c->at_offset = 0;
    c->left = kind == SW_WIRE_READ_REPLY ? bytes : 0;
    c->state = REPLY;
    return MORE;
}

static int step_reply(struct target_conn *c)
{
    struct iovec iov[SW_WIRE_EXTENTS + 1];
    struct msghdr m = {.msg_iov = iov};
    const size_t head = sizeof(c->out) - c->sent;
    uint64_t bytes = 0;
    ssize_t n;

    if (head > 0)
        iov[m.msg_iovlen++] = (struct iovec){c->out + c->sent, head};
    if (c->left > 0) {
        if (!sw_window_enter(c->port->window, &c->record.window))
            return drop(c, NULL); /* in the middle of a reply no refusal can be told */
        m.msg_iovlen += gather(c, SW_CHUNK_BYTES, iov + m.msg_iovlen, &bytes);
    }
    n = outcome(sendmsg(c->watch.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (c->left > 0)
        sw_window_leave(c->port->window, 0);
    if (n < 0)
        return drop(c, NULL);
    if ((size_t)n < head) {
        c->sent += (size_t)n;
    } else {
        c->sent = sizeof(c->out);
        advance(c, (uint64_t)n - head);
    }
    if (c->sent == sizeof(c->out) && c->left == 0) {
        c->state = RECORD;
        c->got = 0;
    }
    return n > 0 ? MORE : WAIT;
}

/* ---- records ---- */

/* All extents are known: are they good, and is the window open? */
static int take_extents(struct target_conn *c)
{
    const struct sw_wire_record *r = &c->record;
    uint64_t sum = 0;
    struct sw_error e;

    for (uint32_t i = 0; i < r->n; i++) {
        const struct sw_wire_extent *x = &c->extents[i];

        if (sw_window_check(c->port->window, x->region, x->offset, x->length, &e))
            return drop(c, &e);
        sum += x->length; /* below 2^46 * SW_WIRE_EXTENTS */
    }
    if (sum != r->bytes || (r->kind == SW_WIRE_READ_ASK && sum > SW_WIRE_READ)) {
        sw_fail(&e, SW_ERR_PROTOCOL, "a record of %" PRIu64 " bytes, its extents have %" PRIu64,
            r->bytes, sum);
        return drop(c, &e);
    }
    if (!sw_window_is_open(c->port->window, &r->window))
        return drop_closed_window(c);
    if (r->kind == SW_WIRE_READ_ASK)
        return start_reply(c, SW_WIRE_READ_REPLY, sum);
    c->at_extent = 0;
    c->at_offset = 0;
    c->left = sum;
    c->state = PAYLOAD;
    return MORE;
}

static int take_flush(struct target_conn *c)
{
    uint64_t counted = c->counted;

    if (!sw_window_is_open(c->port->window, &c->record.window))
        return drop_closed_window(c);
    c->counted = 0;
    return start_reply(c, SW_WIRE_ACK, counted);
}

static int take_record(struct target_conn *c)
{
    struct sw_wire_record *r = &c->record;
    struct sw_error e;

    c->got = 0;
    if (!sw_wire_get_record(c->in, r)) {
        sw_fail(&e, SW_ERR_PROTOCOL, "no record of a data connection");
        return drop(c, &e);
    }
    if (!sw_id_equal(&c->counting, &r->window)) {
        c->counting = r->window;
        c->counted = 0;
    }
    if (r->kind == SW_WIRE_FLUSH)
        return take_flush(c);
    if ((r->kind != SW_WIRE_WRITE && r->kind != SW_WIRE_READ_ASK) || r->n < 1 ||
        r->n > SW_WIRE_EXTENTS) {
        sw_fail(&e, SW_ERR_PROTOCOL, "a record of kind %" PRIu32 " with %" PRIu32 " extents",
            r->kind, r->n);
        return drop(c, &e);
    }
    c->extents[0] = r->first;
    if (r->n > 1) {
        c->state = TABLE;
        return MORE;
    }
    return take_extents(c);
}

static int step_record(struct target_conn *c)
{
    if (c->got < sizeof(c->in)) {
        ssize_t n =
            outcome(recv(c->watch.fd, c->in + c->got, sizeof(c->in) - c->got, MSG_DONTWAIT));

        if (n < 0)
            return drop(c, NULL);
        c->got += (size_t)n;
        if (c->got < sizeof(c->in))
            return n > 0 ? MORE : WAIT;
    }
    return take_record(c);
}

static int step_table(struct target_conn *c)
{
    const size_t whole = (c->record.n - 1ul) * SW_WIRE_EXTENT;
    ssize_t n = outcome(recv(c->watch.fd, c->table + c->got, whole - c->got, MSG_DONTWAIT));

    if (n < 0)
        return drop(c, NULL);
    c->got += (size_t)n;
    if (c->got < whole)
        return n > 0 ? MORE : WAIT;
    for (uint32_t i = 1; i < c->record.n; i++)
        sw_wire_get_extent(c->table + (i - 1ul) * SW_WIRE_EXTENT, &c->extents[i]);
    c->got = 0;
    return take_extents(c);
}

/* One call's worth of work. */
static int step(struct target_conn *c)
{
    switch (c->state) {
    case RECORD:
        return step_record(c);
    case TABLE:
        return step_table(c);
    case PAYLOAD:
        return step_payload(c);
    case REPLY:
        return step_reply(c);
    }
    assert(false);
    return WAIT;
}

static void conn_ready(struct sw_io_watch *w, uint32_t events)
{
    struct target_conn *c = SW_CONTAINER(w, struct target_conn, watch);
    int more = MORE;

    (void)events; /* errors show in the calls */
    for (int i = 0; more == MORE; i++) {
        /* A whole record in the buffer does not wake us again: it is worked on in any case. */
        if (i >= STEPS_MAX && !(c->state == RECORD && c->got == sizeof(c->in)))
            break;
        more = step(c);
    }
    if (more != DEAD &&
        sw_io_thread_change(c->thread, w, c->state == REPLY ? EPOLLOUT : EPOLLIN) != 0)
        drop(c, NULL);
}

static void start_run(struct sw_io_task *t)
{
    struct target_conn *c = SW_CONTAINER(t, struct target_conn, start);

    c->watch.events = EPOLLIN;
    if (sw_io_thread_watch(c->thread, &c->watch))
        drop(c, NULL);
}

static void stop_run(struct sw_io_task *t)
{
    struct target_conn *c = SW_CONTAINER(t, struct target_conn, stop);

    close_socket(c);
    tell_loop(c, &c->stopped);
}

/* ---- the loop's side ---- */

static void port_destroy(uv_handle_t *h)
{
    struct port *p = SW_CONTAINER(h, struct port, async);

    p->freed((struct sw_port *)p, p->freed_bytes, p->freed_arg);
    sw_window_free(p->window);
    sw_io_pool_unref(p->pool);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Frees connections that have ended; the port as well, when it is to go and they were the last. */
static void port_tick(struct port *p)
{
    struct target_conn **at = &p->conns;

    pthread_mutex_lock(&p->lock);
    while (*at) {
        struct target_conn *c = *at;

        if (c->stopping ? c->stopped : c->gone) {
            *at = c->next;
            free(c);
        } else {
            at = &c->next;
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (p->freed && !p->conns && !uv_is_closing((uv_handle_t *)&p->async))
        uv_close((uv_handle_t *)&p->async, port_destroy);
}

static void on_async(uv_async_t *async)
{
    port_tick(SW_CONTAINER(async, struct port, async));
}

int sw_tcp_port_new(
    uv_loop_t *loop, const struct sw_port_spec *spec, struct sw_port **out, struct sw_error *e)
{
    struct port *p = calloc(1, sizeof(*p));
    int rc;

    if (!p)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a tcp port");
    p->ops = &sw_transport_tcp;
    pthread_mutex_init(&p->lock, NULL);
    rc = sw_window_new(spec, &p->window, e);
    if (!rc && spec->pool)
        p->pool = sw_io_pool_ref(spec->pool);
    else if (!rc)
        rc = sw_io_pool_new(0, &p->pool, e);
    if (!rc && uv_async_init(loop, &p->async, on_async) != 0)
        rc = sw_fail(e, SW_ERR_IO, "no event handle for a tcp port");
    if (rc) {
        sw_io_pool_unref(p->pool);
        sw_window_free(p->window);
        pthread_mutex_destroy(&p->lock);
        free(p);
        return rc;
    }
    *out = (struct sw_port *)p;
    return 0;
}

int sw_tcp_port_open(struct sw_port *port, const struct sw_id *window, struct sw_error *e)
{
    struct port *p = (struct port *)port;

    if (p->freed)
        return sw_fail(e, SW_ERR_STATE, "the port is being closed");
    return sw_window_open(p->window, window, e);
}

void sw_tcp_port_close(struct sw_port *port, sw_port_closed closed, void *arg)
{
    closed(port, sw_window_close(((struct port *)port)->window), arg);
}

void sw_tcp_port_free(struct sw_port *port, sw_port_closed closed, void *arg)
{
    struct port *p = (struct port *)port;

    assert(!p->freed);
    p->freed = closed;
    p->freed_arg = arg;
    p->freed_bytes = sw_window_close(p->window);
    for (struct target_conn *c = p->conns; c; c = c->next) {
        c->stopping = true;
        sw_io_thread_post(c->thread, &c->stop);
    }
    uv_async_send(&p->async);
}

int sw_tcp_port_adopt(struct sw_port *port, int fd, const char *peer, struct sw_error *e)
{
    struct port *p = (struct port *)port;
    struct target_conn *c;
    int err, rc;

    assert(p->ops == &sw_transport_tcp);
    if (p->freed || atomic_load(&p->live) >= CONNECTIONS_MAX) {
        close(fd);
        return sw_fail(e, p->freed ? SW_ERR_STATE : SW_ERR_LIMIT,
            "data connection from %s: the port %s", peer,
            p->freed ? "is being closed" : "has too many connections");
    }
    c = calloc(1, sizeof(*c));
    err = c ? sw_tcp_socket_prepare(fd) : ENOMEM;
    if (err) {
        sw_fail_errno(e, c ? SW_ERR_IO : SW_ERR_NOMEM, err, "data connection from %s", peer);
        close(fd);
        rc = c ? SW_ERR_IO : SW_ERR_NOMEM;
        free(c);
        return rc;
    }
    c->watch.fd = fd;
    c->watch.ready = conn_ready;
    c->start.run = start_run;
    c->stop.run = stop_run;
    c->port = p;
    c->thread = sw_io_pool_pick(p->pool);
    c->next = p->conns;
    p->conns = c;
    atomic_fetch_add(&p->live, 1);
    sw_io_thread_post(c->thread, &c->start);
    return 0;
}

uint32_t sw_tcp_port_connections(const struct sw_port *p)
{
    return atomic_load(&((const struct port *)p)->live);
}
