/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path: a connection is adopted and becomes a member with a number of its own; each message
 * goes into the machine; what it wants done is done at once; its deadline is one timer. PERSIST
 * runs on a worker thread, one at a time; what is asked for meanwhile is stored next. Failure
 * modes: a connection ends (MEMBER_DOWN, once); the disk says no (PERSISTED with the error); close
 * while the disk is written to (it is waited for).
 */
#include "trainerd/coordinator/server.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/coordinator/state.h"

struct peer { /* an adopted connection */
    struct peer *next;
    struct sw_coordinator_server *server;
    struct sw_conn *conn;
    uint64_t number;
};

struct sw_coordinator_server {
    uv_loop_t *loop;
    struct sw_coordinator *machine;
    sw_coordinator_log log;
    void *log_arg;
    struct peer *peers;
    uint64_t last_number;
    uv_timer_t timer;
    bool timer_open;
    /* the state file */
    char *path;
    uv_work_t work;
    bool working;
    uint64_t storing, wanted; /* by the work under way; after it (0 = nothing) */
    struct sw_error outcome;
    /* the end */
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

static void perform(struct sw_coordinator_server *s);

static void feed(struct sw_coordinator_server *s, const struct sw_coordinator_event *event)
{
    if (s->closing) {
        if (event->kind == SW_COORD_MESSAGE)
            sw_msg_free(event->message);
        return;
    }
    sw_coordinator_handle(s->machine, event, uv_hrtime());
    perform(s);
}

static void maybe_gone(struct sw_coordinator_server *s)
{
    void (*closed)(void *arg) = s->closed;
    void *arg = s->closed_arg;

    if (!s->closing || s->peers || s->working || s->timer_open)
        return;
    sw_coordinator_free(s->machine);
    free(s->path);
    free(s);
    if (closed)
        closed(arg);
}

/* ---- the state file ---- */

static void on_store(uv_work_t *work)
{
    struct sw_coordinator_server *s = work->data;

    if (!sw_state_store(s->path, s->storing, &s->outcome))
        s->outcome.code = 0;
}

static void store_next(struct sw_coordinator_server *s);

static void on_stored(uv_work_t *work, int status)
{
    struct sw_coordinator_server *s = work->data;
    struct sw_coordinator_event event = {
        .kind = SW_COORD_PERSISTED, .version = s->storing, .text = s->outcome.text};

    s->working = false;
    event.code = s->outcome.code;
    if (status)
        event.code = sw_fail(&s->outcome, SW_ERR_IO, "%s", uv_strerror(status));
    store_next(s);
    feed(s, &event);
    maybe_gone(s);
}

static void store_next(struct sw_coordinator_server *s)
{
    int err;

    if (s->working || s->wanted == 0 || s->closing)
        return;
    s->storing = s->wanted;
    s->wanted = 0;
    s->work.data = s;
    err = uv_queue_work(s->loop, &s->work, on_store, on_stored);
    if (err) { /* only for a NULL callback; the begin that waits has its deadline */
        s->log(3, uv_strerror(err), s->log_arg);
        return;
    }
    s->working = true;
}

/* ---- actions ---- */

static struct peer *find(const struct sw_coordinator_server *s, uint64_t number)
{
    for (struct peer *p = s->peers; p; p = p->next)
        if (p->number == number)
            return p;
    return NULL;
}

static void close_peer(struct peer *p, const char *why)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ERROR);

    if (m) {
        m->u.error.code = SW_ERR_PROTOCOL;
        m->u.error.reason = sw_arena_strdup(&m->arena, why);
        sw_conn_send(p->conn, m);
    }
    sw_conn_close(p->conn, why);
}

static void on_timer(uv_timer_t *timer)
{
    feed(timer->data, &(struct sw_coordinator_event){.kind = SW_COORD_TICK});
}

static void set_timer(struct sw_coordinator_server *s)
{
    const uint64_t at = sw_coordinator_deadline(s->machine), now = uv_hrtime();

    if (at == UINT64_MAX) {
        uv_timer_stop(&s->timer);
        return;
    }
    uv_update_time(s->loop); /* the timer counts from the loop's own time, which may be old */
    uv_timer_start(&s->timer, on_timer, at > now ? (at - now) / 1000000 + 1 : 0, 0);
}

static void act(struct sw_coordinator_server *s, struct sw_coordinator_action *a)
{
    struct peer *p;

    switch (a->kind) {
    case SW_COORD_SEND:
        p = find(s, a->member);
        if (p)
            sw_conn_send(p->conn, a->message);
        else
            sw_msg_free(a->message);
        break;
    case SW_COORD_CLOSE:
        p = find(s, a->member);
        if (p)
            close_peer(p, a->text);
        break;
    case SW_COORD_PERSIST:
        s->wanted = a->version;
        store_next(s);
        break;
    case SW_COORD_LOG:
        s->log(a->level, a->text, s->log_arg);
        break;
    }
}

static void perform(struct sw_coordinator_server *s)
{
    struct sw_coordinator_action action;

    while (sw_coordinator_next(s->machine, &action))
        act(s, &action);
    set_timer(s);
}

/* ---- connections ---- */

static void on_message(struct sw_conn *conn, struct sw_msg *msg, void *arg)
{
    struct peer *p = arg;

    (void)conn;
    feed(p->server, &(struct sw_coordinator_event){
                        .kind = SW_COORD_MESSAGE, .member = p->number, .message = msg});
}

static void on_closed(struct sw_conn *conn, const struct sw_error *why, void *arg)
{
    struct peer *p = arg;
    struct sw_coordinator_server *s = p->server;
    const uint64_t number = p->number;

    (void)conn;
    for (struct peer **at = &s->peers; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    free(p);
    feed(s, &(struct sw_coordinator_event){
                .kind = SW_COORD_MEMBER_DOWN, .member = number, .text = why->text});
    maybe_gone(s);
}

static void orphan_message(struct sw_conn *conn, struct sw_msg *msg, void *arg)
{
    (void)conn;
    (void)arg;
    sw_msg_free(msg);
}

static void orphan_closed(struct sw_conn *conn, const struct sw_error *why, void *arg)
{
    (void)conn;
    (void)why;
    (void)arg;
}

void sw_coordinator_server_adopt(struct sw_coordinator_server *s, struct sw_conn *conn)
{
    static const struct sw_conn_handlers handlers = {.message = on_message, .closed = on_closed};
    static const struct sw_conn_handlers orphan = {
        .message = orphan_message, .closed = orphan_closed};
    const struct sw_peer *who = sw_conn_peer(conn);
    struct peer *p = s->closing ? NULL : calloc(1, sizeof(*p));

    if (!p) {
        sw_conn_set_handlers(conn, &orphan, NULL);
        sw_conn_close(conn, "the coordinator can't take it");
        return;
    }
    *p = (struct peer){.next = s->peers, .server = s, .conn = conn, .number = ++s->last_number};
    s->peers = p;
    sw_conn_set_handlers(conn, &handlers, p);
    feed(s, &(struct sw_coordinator_event){.kind = SW_COORD_MEMBER_UP,
                .member = p->number,
                .role = who->role,
                .instance = who->instance,
                .name = who->host,
                .address = sw_conn_address(conn)});
}

/* ---- life ---- */

int sw_coordinator_server_new(uv_loop_t *loop, const struct sw_coordinator_config *config,
    const char *state_dir, sw_coordinator_log log, void *log_arg,
    struct sw_coordinator_server **out, struct sw_error *e)
{
    struct sw_coordinator_server *s = calloc(1, sizeof(*s));
    struct sw_coordinator_config own = *config;
    int err = s ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory for the coordinator");

    if (!err)
        err = sw_state_path(state_dir, config->group, &s->path, e);
    if (!err)
        err = sw_state_load(s->path, &own.last_version, e);
    if (!err) {
        s->machine = sw_coordinator_new(&own);
        if (!s->machine)
            err = sw_fail(e, SW_ERR_NOMEM, "no memory for the coordinator");
    }
    if (err) {
        free(s ? s->path : NULL);
        free(s);
        return err;
    }
    s->loop = loop;
    s->log = log;
    s->log_arg = log_arg;
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    s->timer_open = true;
    *out = s;
    feed(s, &(struct sw_coordinator_event){.kind = SW_COORD_TICK}); /* its time begins */
    return 0;
}

json_t *sw_coordinator_server_status(const struct sw_coordinator_server *s)
{
    return sw_coordinator_status(s->machine, uv_hrtime());
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct sw_coordinator_server *s = handle->data;

    s->timer_open = false;
    maybe_gone(s);
}

void sw_coordinator_server_close(
    struct sw_coordinator_server *s, void (*closed)(void *arg), void *arg)
{
    if (s->closing)
        return;
    s->closing = true;
    s->closed = closed;
    s->closed_arg = arg;
    for (struct peer *p = s->peers; p; p = p->next)
        sw_conn_close(p->conn, "the coordinator shuts down");
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}
