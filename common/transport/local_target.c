/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target side of local: inferd relays between writers (trainerds of this host) and the engine
 * process, which does the copying. Every writer has a slot; the numbers that the engine process
 * sees are slot << 32 | counter, so that it knows what replaces what. A LOCAL_SOURCE of 0 bytes
 * without descriptor tells it to unmap what a slot has.
 *
 * A writer has at most one source and one copy outstanding. The object of a writer whose connection
 * is gone stays until the engine process has answered: until then its memory is written.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/transport/shared.h"

#define WRITERS_MAX 1024u
#define CLOSERS_MAX 4u

struct writer {
    struct port *port;
    struct writer *next;
    struct sw_conn *conn; /* NULL: gone */
    uint32_t slot;        /* >= 1 */
    uint32_t counter;
    uint64_t their_source, our_source;
    bool source_asked; /* LOCAL_SOURCE went to the engine process, no answer yet */
    bool source_sent;  /* it may have something mapped for this slot */
    bool mapped;
    uint64_t their_copy, our_copy;
    bool copy_asked;
    enum sw_local_mode mode;
};

struct closer {
    sw_port_closed closed;
    void *arg;
};

struct port {
    const struct sw_transport *ops;
    uv_async_t async;
    struct sw_local_relay relay;
    struct writer *writers;
    bool open, died;
    struct sw_id window;
    uint64_t bytes; /* placed in this window */
    struct closer closers[CLOSERS_MAX];
    unsigned n_closers;
    struct closer freed; /* .closed set: port_free was called */
};

static void port_tick(struct port *p);

static bool copying(const struct port *p)
{
    for (const struct writer *w = p->writers; w; w = w->next) {
        if (w->copy_asked)
            return true;
    }
    return false;
}

static uint64_t next_number(struct writer *w)
{
    if (++w->counter == 0)
        w->counter = 1; /* 0 is the number of a release */
    return (uint64_t)w->slot << 32 | w->counter;
}

/* ---- answers to a writer ---- */

static void answer(
    struct writer *w, enum sw_msg_kind kind, uint64_t number, int code, const char *reason)
{
    struct sw_msg *m;
    struct sw_failure *f;

    if (!w->conn)
        return;
    m = sw_msg_new(kind);
    if (!m) {
        sw_conn_close(w->conn, "no memory for an answer");
        return;
    }
    if (kind == SW_MSG_LOCAL_DONE) {
        m->u.local_done.copy = number;
        f = &m->u.local_done.error;
    } else {
        m->u.local_mapped.source = number;
        f = &m->u.local_mapped.error;
    }
    f->code = code;
    f->reason = reason; /* a literal */
    sw_conn_send(w->conn, m);
}

static void to_engine(struct port *p, struct sw_msg *msg)
{
    if (p->relay.to_engine && !p->died)
        p->relay.to_engine(msg, p->relay.arg);
    else
        sw_msg_free(msg);
}

/* ---- from a writer ---- */

static void writer_source(struct writer *w, struct sw_msg *msg)
{
    struct port *p = w->port;
    const uint64_t number = msg->u.local_source.source;

    if (w->source_asked || w->copy_asked || msg->n_fds != 1 || msg->u.local_source.bytes == 0) {
        sw_conn_close(w->conn, "LOCAL_SOURCE out of turn, or without memory");
        sw_msg_free(msg);
        return;
    }
    if (p->died || !p->relay.to_engine) {
        answer(w, SW_MSG_LOCAL_MAPPED, number, SW_ERR_CLOSED, "the engine process is gone");
        sw_msg_free(msg);
        return;
    }
    w->their_source = number;
    w->our_source = next_number(w);
    w->mapped = false;
    w->source_asked = w->source_sent = true;
    msg->u.local_source.source = w->our_source;
    to_engine(p, msg);
}

static void writer_copy(struct writer *w, struct sw_msg *msg)
{
    struct port *p = w->port;
    const struct sw_local_copy *c = &msg->u.local_copy;
    const char *reason = NULL;
    int code = SW_ERR_STATE;

    if (w->copy_asked || msg->n_fds != 1) {
        sw_conn_close(w->conn, "LOCAL_COPY out of turn, or without extents");
        sw_msg_free(msg);
        return;
    }
    if (!p->open || !sw_id_equal(&p->window, &c->window)) {
        reason = "this write window is not open";
    } else if (p->died || !p->relay.to_engine) {
        reason = "the engine process is gone";
        code = SW_ERR_CLOSED;
    } else if (!w->mapped || c->source != w->their_source) {
        reason = "the engine process has not mapped this source memory";
    }
    if (reason) {
        answer(w, SW_MSG_LOCAL_DONE, c->copy, code, reason);
        sw_msg_free(msg);
        return;
    }
    w->their_copy = c->copy;
    w->our_copy = next_number(w);
    w->mode = c->mode;
    w->copy_asked = true;
    msg->u.local_copy.copy = w->our_copy;
    msg->u.local_copy.source = w->our_source;
    to_engine(p, msg);
}

static void writer_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct writer *w = arg;

    if (msg->kind == SW_MSG_LOCAL_SOURCE) {
        writer_source(w, msg);
    } else if (msg->kind == SW_MSG_LOCAL_COPY) {
        writer_copy(w, msg);
    } else {
        sw_conn_close(c, "a message that no writer sends");
        sw_msg_free(msg);
    }
}

static void writer_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct writer *w = arg;

    (void)c;
    (void)why;
    w->conn = NULL;
    port_tick(w->port);
}

/* Tells the engine process to unmap what this writer had, and forgets the writer. */
static void writer_release(struct writer *w)
{
    struct sw_msg *m = w->source_sent ? sw_msg_new(SW_MSG_LOCAL_SOURCE) : NULL;

    if (m) {
        m->u.local_source.source = (uint64_t)w->slot << 32;
        to_engine(w->port, m);
    }
    free(w);
}

/* ---- conclusions ---- */

static void port_destroy(uv_handle_t *h)
{
    struct port *p = h->data;

    p->freed.closed((struct sw_port *)p, p->bytes, p->freed.arg);
    free(p);
}

static void reap(struct port *p)
{
    struct writer **at = &p->writers;

    while (*at) {
        struct writer *w = *at;

        if (!w->conn && !w->copy_asked && !w->source_asked) {
            *at = w->next;
            writer_release(w);
        } else {
            if (w->conn && !w->copy_asked && (p->freed.closed || p->died))
                sw_conn_close(w->conn, "the engine rank is gone");
            at = &w->next;
        }
    }
}

static void port_tick(struct port *p)
{
    reap(p);
    if (!copying(p)) {
        while (p->n_closers > 0) {
            const struct closer c = p->closers[0];

            memmove(p->closers, p->closers + 1, --p->n_closers * sizeof(c));
            c.closed((struct sw_port *)p, p->bytes, c.arg);
        }
    }
    if (p->freed.closed && !p->writers && !uv_is_closing((uv_handle_t *)&p->async))
        uv_close((uv_handle_t *)&p->async, port_destroy);
}

static void on_async(uv_async_t *async)
{
    port_tick(async->data);
}

/* ---- from the engine process ---- */

static struct writer *find(struct port *p, uint64_t number, bool copy)
{
    for (struct writer *w = p->writers; w; w = w->next) {
        if (copy ? w->copy_asked && w->our_copy == number
                 : w->source_asked && w->our_source == number)
            return w;
    }
    return NULL;
}

void sw_local_port_from_engine(struct sw_port *port, struct sw_msg *msg)
{
    struct port *p = (struct port *)port;
    struct writer *w = NULL;

    if (msg->kind == SW_MSG_LOCAL_MAPPED) {
        w = find(p, msg->u.local_mapped.source, false);
        if (w) {
            w->source_asked = false;
            w->mapped = msg->u.local_mapped.error.code == 0;
            msg->u.local_mapped.source = w->their_source;
        }
    } else if (msg->kind == SW_MSG_LOCAL_DONE) {
        w = find(p, msg->u.local_done.copy, true);
        if (w) {
            w->copy_asked = false;
            if (w->mode == SW_LOCAL_WRITE)
                p->bytes += msg->u.local_done.bytes;
            msg->u.local_done.copy = w->their_copy;
        }
    }
    if (w && w->conn)
        sw_conn_send(w->conn, msg);
    else
        sw_msg_free(msg); /* the writer is gone, or it was the answer to a release */
    port_tick(p);
}

void sw_local_port_engine_died(struct sw_port *port)
{
    struct port *p = (struct port *)port;

    p->died = true;
    for (struct writer *w = p->writers; w; w = w->next) {
        if (w->source_asked)
            answer(w, SW_MSG_LOCAL_MAPPED, w->their_source, SW_ERR_CLOSED,
                "the engine process has died");
        if (w->copy_asked)
            answer(
                w, SW_MSG_LOCAL_DONE, w->their_copy, SW_ERR_CLOSED, "the engine process has died");
        w->source_asked = w->copy_asked = w->mapped = false;
    }
    port_tick(p);
}

/* ---- the port ---- */

void sw_local_port_relay(struct sw_port *port, const struct sw_local_relay *relay)
{
    ((struct port *)port)->relay = *relay;
}

/* The lowest slot that is free; 0 = none. The list is short: slots of one port. */
static uint32_t free_slot(const struct port *p)
{
    for (uint32_t slot = 1; slot <= WRITERS_MAX; slot++) {
        const struct writer *w = p->writers;

        while (w && w->slot != slot)
            w = w->next;
        if (!w)
            return slot;
    }
    return 0;
}

static void drop_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    sw_msg_free(msg);
}

static void drop_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
}

void sw_local_port_adopt(struct sw_port *port, struct sw_conn *conn)
{
    static const struct sw_conn_handlers handlers = {NULL, writer_message, writer_closed};
    static const struct sw_conn_handlers none = {NULL, drop_message, drop_closed};
    struct port *p = (struct port *)port;
    const uint32_t slot = free_slot(p);
    struct writer *w = slot && !p->freed.closed ? calloc(1, sizeof(*w)) : NULL;

    if (!w) {
        sw_conn_set_handlers(conn, &none, NULL);
        sw_conn_close(conn, "no room for another writer");
        return;
    }
    w->port = p;
    w->conn = conn;
    w->slot = slot;
    w->next = p->writers;
    p->writers = w;
    sw_conn_set_handlers(conn, &handlers, w);
}

int sw_local_port_new(
    uv_loop_t *loop, const struct sw_port_spec *spec, struct sw_port **out, struct sw_error *e)
{
    struct port *p = calloc(1, sizeof(*p));

    (void)spec; /* the engine process has the memory and checks the extents */
    if (!p)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a port");
    if (uv_async_init(loop, &p->async, on_async) != 0) {
        free(p);
        return sw_fail(e, SW_ERR_IO, "no event handle for a port");
    }
    p->ops = &sw_transport_local;
    p->async.data = p;
    *out = (struct sw_port *)p;
    return 0;
}

int sw_local_port_open(struct sw_port *port, const struct sw_id *window, struct sw_error *e)
{
    struct port *p = (struct port *)port;

    if (p->open || p->freed.closed || p->n_closers > 0)
        return sw_fail(e, SW_ERR_STATE, "the write window is open already, or being closed");
    if (sw_id_is_none(window))
        return sw_fail(e, SW_ERR_INVALID, "a write window needs an id");
    if (sw_id_equal(window, &p->window))
        return sw_fail(e, SW_ERR_STATE, "this write window was open before: its id is used up");
    p->open = true;
    p->window = *window;
    p->bytes = 0;
    return 0;
}

void sw_local_port_close(struct sw_port *port, sw_port_closed closed, void *arg)
{
    struct port *p = (struct port *)port;

    assert(p->n_closers < CLOSERS_MAX);
    p->open = false;
    p->closers[p->n_closers++] = (struct closer){closed, arg};
    port_tick(p);
}

void sw_local_port_free(struct sw_port *port, sw_port_closed closed, void *arg)
{
    struct port *p = (struct port *)port;

    assert(!p->freed.closed);
    p->open = false;
    p->freed = (struct closer){closed, arg};
    uv_async_send(&p->async);
}
