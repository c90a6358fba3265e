/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happy path of a delivery: CONNECT -> paths opened (or kept ones taken), each leg's buffer held
 * and attached -> CONNECTED; WRITE -> a job for each leg -> WRITTEN; UPDATE_END -> buffers
 * released, paths kept. Failure modes: local can't be proved (tcp is taken, with the reason); a
 * path can't be made, or breaks (reported at once, closed, made anew next time); UPDATE_END while
 * something is under way (its path is closed, the buffers are released when that is done); the
 * coordinator goes away (all of that at once).
 */
#include "trainerd/writer/writer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/writer/program.h"

#define SHARED UINT32_MAX /* link.rank of a path that all legs use */
#define WHY_MAX 256

enum link_state { LINK_OPENING, LINK_IDLE, LINK_BUSY, LINK_CLOSING };

struct delivery;

struct link { /* a path to a target */
    struct link *next;
    struct sw_writer *w;
    struct sw_id engine;
    char engine_name[SW_LABEL_MAX + 1];
    uint32_t engine_rank;
    uint32_t rank; /* trainer rank that uses it, or SHARED */
    uint64_t layout_epoch;
    const struct sw_transport *transport;
    struct sw_path *path;
    enum link_state state;
    bool broken;
    struct delivery *user;
    struct leg *leg; /* whose attach or job runs */
    uint64_t bytes;  /* confirmed in its life */
    char why[WHY_MAX];
};

struct leg {
    const struct sw_program *program;
    struct link *link;
    struct sw_replica_buffer *buffer; /* held */
    bool attached, written;
};

enum delivery_state { CONNECTING, CONNECTED, WRITING, FINISHED };

struct delivery {
    struct delivery *next;
    struct sw_writer *w;
    uint64_t update, version, layout_epoch;
    struct sw_programs *programs;
    struct sw_token *tokens;
    uint32_t n_tokens;
    const struct sw_transport *transport;
    char why[WHY_MAX];
    enum delivery_state state;
    bool ended;
    struct sw_error failure; /* code 0 = none */
    uint32_t n;
    struct leg *legs;
    struct sw_id window;
    uint64_t bytes, start_ns;
};

struct sw_writer {
    struct sw_writer_config config;
    struct sw_identity self; /* as SW_ROLE_WRITER */
    struct sw_program_table table;
    struct link *links;
    struct delivery *deliveries;
    uint64_t deliveries_done, failures;
    void (*closed)(void *arg);
    void *closed_arg;
};

static void connect_step(struct delivery *d);
static void write_step(struct delivery *d);
static void sweep(struct sw_writer *w);

struct sw_writer *sw_writer_new(const struct sw_writer_config *config)
{
    struct sw_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->config = *config;
    w->self = *config->self;
    w->self.role = SW_ROLE_WRITER;
    w->config.self = &w->self;
    return w;
}

/* ---- reports ---- */

/* Also when a path breaks that was reported as made: better known before the engine pauses. */
static void report_connected(struct delivery *d, const struct sw_error *e)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_CONNECTED);

    d->state = e ? FINISHED : CONNECTED;
    if (e)
        d->w->failures++;
    if (!m)
        return;
    m->u.connected.update = d->update;
    m->u.connected.target = d->programs->target.target;
    m->u.connected.transport = d->transport ? d->transport->name : "";
    m->u.connected.why = sw_arena_strdup(&m->arena, d->why);
    if (e) {
        m->u.connected.error.code = e->code;
        m->u.connected.error.reason = sw_arena_strdup(&m->arena, e->text);
    }
    d->w->config.report(m, d->w->config.arg);
}

static void report_written(struct delivery *d, const struct sw_error *e)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_WRITTEN);

    d->state = FINISHED;
    if (e)
        d->w->failures++;
    else
        d->w->deliveries_done++;
    if (!m)
        return;
    m->u.written.update = d->update;
    m->u.written.target = d->programs->target.target;
    m->u.written.bytes = d->bytes;
    m->u.written.ns = uv_hrtime() - d->start_ns;
    if (e) {
        m->u.written.error.code = e->code;
        m->u.written.error.reason = sw_arena_strdup(&m->arena, e->text);
    }
    d->w->config.report(m, d->w->config.arg);
}

static void fail(struct delivery *d, struct sw_error *e)
{
    const struct sw_target *t = &d->programs->target;

    sw_error_context(e, e->code, "update %llu, version %llu, engine %s rank %u",
        (unsigned long long)d->update, (unsigned long long)d->version, t->engine, t->engine_rank);
    d->w->config.log(3, e->text, d->w->config.arg);
    d->failure = *e;
    if (d->state == CONNECTING || d->state == CONNECTED)
        report_connected(d, e);
    else if (d->state == WRITING)
        report_written(d, e);
}

/* ---- links ---- */

static void link_closed(struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *arg)
{
    struct link *l = arg;
    struct sw_writer *w = l->w;

    for (struct link **at = &w->links; *at; at = &(*at)->next) {
        if (*at == l) {
            *at = l->next;
            break;
        }
    }
    for (struct delivery *d = w->deliveries; d; d = d->next) {
        for (uint32_t i = 0; i < d->n; i++) {
            if (d->legs[i].link != l)
                continue;
            d->legs[i].link = NULL;
            if (e->code) /* nobody knows when the engine process has done with reading */
                sw_replica_buffer_spoil(d->legs[i].buffer);
        }
    }
    if (e->code)
        w->config.log(4, e->text, w->config.arg);
    free(l);
    sweep(w);
}

static void link_close(struct link *l)
{
    if (l->state == LINK_CLOSING)
        return;
    l->state = LINK_CLOSING;
    l->transport->path_close(l->path, link_closed, l);
}

static void close_links_of(struct delivery *d)
{
    for (struct link *l = d->w->links, *next; l; l = next) {
        next = l->next;
        if (l->user == d)
            link_close(l);
    }
}

static void on_broken(struct sw_path *p, const struct sw_error *why, void *arg)
{
    struct link *l = arg;
    struct delivery *d = l->user;
    struct sw_error e = *why;

    l->broken = true;
    if (d && d->state == CONNECTED)
        fail(d, &e);
    link_close(l);
}

/* local could not be had: go on with tcp, and say why. */
static bool fall_back(struct delivery *d, const struct sw_error *e)
{
    if (d->w->config.transport != SW_WRITER_AUTO || d->transport != &sw_transport_local)
        return false;
    close_links_of(d);
    for (uint32_t i = 0; i < d->n; i++)
        d->legs[i].link = NULL;
    d->transport = &sw_transport_tcp;
    snprintf(d->why, sizeof(d->why), "not local: %.200s", e->text);
    return true;
}

static void connect_failed(struct delivery *d, const struct sw_error *why)
{
    struct sw_error e = *why;

    if (d->state != CONNECTING)
        return;
    if (!d->ended && fall_back(d, why)) {
        connect_step(d);
        return;
    }
    fail(d, &e);
    close_links_of(d);
}

static void on_opened(struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *arg)
{
    struct link *l = arg;
    struct delivery *d = l->user;

    if (l->state == LINK_CLOSING)
        return;
    if (e->code) {
        link_close(l);
        if (d)
            connect_failed(d, e);
        return;
    }
    l->state = LINK_IDLE;
    if (d)
        connect_step(d);
}

static struct link *link_find(struct sw_writer *w, const struct delivery *d, uint32_t rank)
{
    for (struct link *l = w->links; l; l = l->next)
        if (sw_id_equal(&l->engine, &d->programs->target.engine_instance) && l->rank == rank &&
            l->transport == d->transport && l->state != LINK_CLOSING && !l->broken &&
            l->layout_epoch == d->layout_epoch && (!l->user || l->user == d))
            return l;
    return NULL;
}

static int link_open(struct delivery *d, uint32_t rank, struct link **out, struct sw_error *e)
{
    struct sw_writer *w = d->w;
    const struct sw_target *t = &d->programs->target;
    struct link *l = calloc(1, sizeof(*l));
    struct sw_path_spec spec = {.target = t,
        .layout_epoch = d->layout_epoch,
        .n_tokens = d->n_tokens,
        .tokens = d->tokens,
        .self = w->config.self,
        .chunk_bytes = w->config.chunk_bytes,
        .timeout_ms = w->config.connect_ms,
        .pool = w->config.pool};
    int r;

    if (!l)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a path");
    l->w = w;
    l->engine = t->engine_instance;
    snprintf(l->engine_name, sizeof(l->engine_name), "%s", t->engine);
    l->engine_rank = t->engine_rank;
    l->rank = rank;
    l->layout_epoch = d->layout_epoch;
    l->transport = d->transport;
    l->user = d;
    snprintf(l->why, sizeof(l->why), "%s", d->why);
    r = d->transport->path_open(w->config.loop, &spec, on_broken, on_opened, l, &l->path, e);
    if (r) {
        free(l);
        return r;
    }
    l->next = w->links;
    w->links = l;
    *out = l;
    return 0;
}

/* ---- connecting ---- */

static void on_attached(struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *arg)
{
    struct link *l = arg;
    struct delivery *d = l->user;
    struct leg *leg = l->leg;

    l->leg = NULL;
    if (l->state == LINK_CLOSING)
        return;
    l->state = LINK_IDLE;
    if (!d)
        return;
    if (e->code) {
        link_close(l);
        connect_failed(d, e);
        return;
    }
    leg->attached = true;
    connect_step(d);
}

static int leg_link(struct delivery *d, struct leg *leg, struct sw_error *e)
{
    uint32_t rank = d->transport == &sw_transport_local ? leg->program->rank : SHARED;
    struct link *l = link_find(d->w, d, rank);

    if (!l) {
        int r = link_open(d, rank, &l, e);

        if (r)
            return r;
    }
    l->user = d;
    leg->link = l;
    leg->attached = false;
    return 0;
}

static int leg_attach(struct leg *leg, struct sw_error *e)
{
    struct link *l = leg->link;
    int r = l->transport->path_attach(
        l->path, sw_replica_buffer_memory(leg->buffer), on_attached, l, e);

    if (r)
        return r;
    l->state = LINK_BUSY;
    l->leg = leg;
    return 0;
}

/* Does what can be done now: each leg gets a link; an idle link attaches its next leg. */
static void connect_step(struct delivery *d)
{
    struct sw_error e = {0};
    bool all = true;

    for (uint32_t i = 0; i < d->n && d->state == CONNECTING; i++) {
        struct leg *leg = &d->legs[i];
        int r = leg->link ? 0 : leg_link(d, leg, &e);

        if (!r && !leg->attached && leg->link->state == LINK_IDLE)
            r = leg_attach(leg, &e);
        if (r) {
            connect_failed(d, &e);
            return;
        }
        all = all && leg->attached;
    }
    if (all && d->state == CONNECTING)
        report_connected(d, NULL);
}

static int hold_buffers(struct delivery *d, struct sw_error *e)
{
    for (uint32_t i = 0; i < d->n; i++) {
        struct leg *leg = &d->legs[i];
        struct sw_replica_buffer *b;

        leg->program = &d->programs->items[i];
        b = d->w->config.buffer(leg->program->rank, d->version, d->w->config.arg);
        if (!b)
            return sw_fail(e, SW_ERR_NOT_FOUND,
                "the replica of trainer rank %u does not hold version %llu", leg->program->rank,
                (unsigned long long)d->version);
        sw_replica_buffer_hold(b);
        leg->buffer = b;
        for (uint64_t k = 0; k < leg->program->n; k++) {
            const struct sw_extent *x = &leg->program->extents[k];

            if (sw_range_exceeds(x->src, x->length, sw_replica_buffer_memory(b)->bytes))
                return sw_fail(e, SW_ERR_PLAN,
                    "extent %llu of trainer rank %u ends outside its replica",
                    (unsigned long long)k, leg->program->rank);
        }
    }
    return 0;
}

static void choose(struct delivery *d)
{
    const struct sw_target *t = &d->programs->target;
    static const struct sw_transport *const forced[] = {
        [SW_WRITER_TCP] = &sw_transport_tcp, [SW_WRITER_LOCAL] = &sw_transport_local};

    if (d->w->config.transport != SW_WRITER_AUTO) {
        d->transport = forced[d->w->config.transport];
        snprintf(d->why, sizeof(d->why), "option transport=%s", d->transport->name);
        return;
    }
    for (const struct link *l = d->w->links; l; l = l->next) {
        if (!l->broken && l->state != LINK_CLOSING && !l->user &&
            l->layout_epoch == d->layout_epoch && sw_id_equal(&l->engine, &t->engine_instance)) {
            d->transport = l->transport;
            snprintf(d->why, sizeof(d->why), "%s", l->why);
            return;
        }
    }
    d->transport = t->unix_path[0] ? &sw_transport_local : &sw_transport_tcp;
    snprintf(d->why, sizeof(d->why), "%s",
        t->unix_path[0] ? "same host: inferd answered on its UNIX socket and knew the nonce"
                        : "inferd named no UNIX socket");
}

static struct delivery *delivery_find(struct sw_writer *w, uint64_t update, uint32_t target)
{
    for (struct delivery *d = w->deliveries; d; d = d->next)
        if (d->update == update && d->programs->target.target == target && !d->ended)
            return d;
    return NULL;
}

static void order_connect(struct sw_writer *w, const struct sw_msg *msg)
{
    const struct sw_connect *c = &msg->u.connect;
    struct delivery *d = calloc(1, sizeof(*d));
    struct sw_programs *p = NULL;
    struct sw_msg *m;
    struct sw_error e = {0};

    if (!d)
        sw_fail(&e, SW_ERR_NOMEM, "trainerd is out of memory");
    else if (delivery_find(w, c->update, c->target))
        sw_fail(&e, SW_ERR_STATE, "update %llu has connected to target %u before",
            (unsigned long long)c->update, c->target);
    else if (c->membership_epoch != w->table.membership_epoch ||
             c->layout_epoch != w->table.layout_epoch)
        sw_fail(&e, SW_ERR_STATE,
            "connect of membership epoch %llu, layout epoch %llu: the write programs are of %llu "
            "and %llu",
            (unsigned long long)c->membership_epoch, (unsigned long long)c->layout_epoch,
            (unsigned long long)w->table.membership_epoch,
            (unsigned long long)w->table.layout_epoch);
    else
        p = sw_program_table_find(&w->table, c->target, &e);
    if (!p) {
        free(d);
        m = sw_msg_new(SW_MSG_CONNECTED);
        if (m) {
            m->u.connected.update = c->update;
            m->u.connected.target = c->target;
            m->u.connected.error.code = e.code;
            m->u.connected.error.reason = sw_arena_strdup(&m->arena, e.text);
            w->config.report(m, w->config.arg);
        }
        return;
    }
    d->w = w;
    d->update = c->update;
    d->version = c->version;
    d->layout_epoch = c->layout_epoch;
    d->programs = sw_programs_hold(p);
    d->n = p->n;
    d->legs = calloc(d->n ? d->n : 1, sizeof(*d->legs));
    d->tokens = calloc(c->n ? c->n : 1, sizeof(*d->tokens));
    d->next = w->deliveries;
    w->deliveries = d;
    if (!d->legs || !d->tokens) {
        d->n = 0;
        sw_fail(&e, SW_ERR_NOMEM, "trainerd is out of memory");
        fail(d, &e);
        return;
    }
    d->n_tokens = c->n;
    for (uint32_t i = 0; i < c->n; i++)
        d->tokens[i] = c->tokens[i];
    if (hold_buffers(d, &e)) {
        fail(d, &e);
        return;
    }
    choose(d);
    connect_step(d);
}

/* ---- writing ---- */

static void on_written(struct sw_path *p, uint64_t bytes, const struct sw_error *why, void *arg)
{
    struct link *l = arg;
    struct delivery *d = l->user;
    struct leg *leg = l->leg;
    struct sw_error e = *why;

    l->leg = NULL;
    if (!d)
        return;
    if (!e.code && bytes != leg->program->bytes)
        sw_fail(&e, SW_ERR_IO, "the target confirmed %llu of %llu bytes of trainer rank %u",
            (unsigned long long)bytes, (unsigned long long)leg->program->bytes, leg->program->rank);
    if (e.code) {
        link_close(l);
        if (d->state == WRITING)
            fail(d, &e);
        return;
    }
    if (l->state != LINK_CLOSING)
        l->state = LINK_IDLE;
    l->bytes += bytes;
    d->bytes += bytes;
    leg->written = true;
    write_step(d);
}

/* Starts what can start (one job at a time on each link); reports when all legs are written. */
static void write_step(struct delivery *d)
{
    struct sw_error e = {0};
    bool all = true;

    for (uint32_t i = 0; i < d->n && d->state == WRITING; i++) {
        struct leg *leg = &d->legs[i];
        struct link *l = leg->link;
        struct sw_write_job job = {.window = d->window,
            .memory = sw_replica_buffer_memory(leg->buffer),
            .extents = leg->program->extents,
            .n = leg->program->n};

        all = all && leg->written;
        if (leg->written)
            continue;
        if (!l || l->state == LINK_CLOSING) {
            sw_fail(&e, SW_ERR_CLOSED, "the path of trainer rank %u is gone", leg->program->rank);
            fail(d, &e);
            return;
        }
        if (l->state != LINK_IDLE)
            continue;
        if (l->transport->path_write(l->path, &job, on_written, l, &e)) {
            fail(d, &e);
            return;
        }
        l->state = LINK_BUSY;
        l->leg = leg;
    }
    if (all && d->state == WRITING)
        report_written(d, NULL);
}

static void order_write(struct sw_writer *w, const struct sw_write *order)
{
    struct delivery *d = delivery_find(w, order->update, order->target);
    struct sw_msg *m;

    if (d && d->state == CONNECTED && d->version == order->version) {
        d->state = WRITING;
        d->window = order->window;
        d->start_ns = uv_hrtime();
        write_step(d);
        return;
    }
    m = sw_msg_new(SW_MSG_WRITTEN);
    if (!m)
        return;
    m->u.written.update = order->update;
    m->u.written.target = order->target;
    m->u.written.error.code = SW_ERR_STATE;
    if (d && d->failure.code) {
        m->u.written.error.code = d->failure.code;
        m->u.written.error.reason = sw_arena_strdup(&m->arena, d->failure.text);
    } else {
        m->u.written.error.reason = d ? "write came to a target that is not connected for it"
                                      : "write came for a target that this update does not have";
    }
    w->config.report(m, w->config.arg);
}

/* ---- ending ---- */

static void delivery_free(struct delivery *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        sw_replica_buffer_release(d->legs[i].buffer);
    free(d->legs);
    if (d->tokens)
        explicit_bzero(d->tokens, d->n_tokens * sizeof(*d->tokens));
    free(d->tokens);
    sw_programs_release(d->programs);
    free(d);
}

/* Frees ended deliveries that no link works for any more; ends the writer when it may. */
static void sweep(struct sw_writer *w)
{
    for (struct delivery **at = &w->deliveries; *at;) {
        struct delivery *d = *at;
        bool used = !d->ended;

        for (const struct link *l = w->links; l && !used; l = l->next)
            used = l->user == d && l->state != LINK_IDLE;
        if (used) {
            at = &d->next;
            continue;
        }
        for (struct link *l = w->links; l; l = l->next)
            if (l->user == d)
                l->user = NULL;
        *at = d->next;
        delivery_free(d);
    }
    if (w->closed && !w->links && !w->deliveries) {
        void (*closed)(void *arg) = w->closed;
        void *arg = w->closed_arg;

        sw_program_table_clear(&w->table);
        free(w);
        closed(arg);
    }
}

static void delivery_end(struct delivery *d)
{
    d->ended = true;
    for (struct link *l = d->w->links, *next; l; l = next) {
        next = l->next;
        if (l->user == d && (l->state == LINK_OPENING || l->state == LINK_BUSY))
            link_close(l);
    }
    d->state = FINISHED;
}

static void update_end(struct sw_writer *w, const struct sw_update_end *end)
{
    struct delivery *d = delivery_find(w, end->update, end->target);

    if (d)
        delivery_end(d);
    sweep(w);
}

void sw_writer_reset(struct sw_writer *w)
{
    for (struct delivery *d = w->deliveries; d; d = d->next)
        delivery_end(d);
    for (struct link *l = w->links, *next; l; l = next) {
        next = l->next;
        link_close(l);
    }
    sw_program_table_clear(&w->table);
    sweep(w);
}

void sw_writer_close(struct sw_writer *w, void (*closed)(void *arg), void *arg)
{
    w->closed = closed;
    w->closed_arg = arg;
    sw_writer_reset(w);
}

/* ---- messages ---- */

/* Paths to engine processes that are no target any more lead nowhere. */
static void close_stale(struct sw_writer *w)
{
    for (struct link *l = w->links, *next; l; l = next) {
        bool known = false;

        next = l->next;
        for (uint32_t i = 0; i < w->table.received && !known; i++)
            known = sw_id_equal(&l->engine, &w->table.items[i]->target.engine_instance);
        if (!l->user && (!known || l->layout_epoch != w->table.layout_epoch))
            link_close(l);
    }
}

void sw_writer_handle(struct sw_writer *w, struct sw_msg *msg)
{
    struct sw_error e = {0};

    if (w->closed) { /* nothing new begins */
        sw_msg_free(msg);
        return;
    }
    switch (msg->kind) {
    case SW_MSG_TARGETS:
        if (sw_program_table_targets(&w->table, &msg->u.targets, &e))
            w->config.log(3, e.text, w->config.arg);
        else if (w->table.received == w->table.n)
            close_stale(w);
        break;
    case SW_MSG_WRITE_PROGRAM:
        if (sw_program_table_extents(&w->table, &msg->u.write_program, &e))
            w->config.log(3, e.text, w->config.arg);
        break;
    case SW_MSG_CONNECT:
        order_connect(w, msg);
        break;
    case SW_MSG_WRITE:
        order_write(w, &msg->u.write);
        break;
    case SW_MSG_UPDATE_END:
        update_end(w, &msg->u.update_end);
        break;
    default:
        break;
    }
    sw_msg_free(msg);
}

/* ---- status ---- */

json_t *sw_writer_status(const struct sw_writer *w)
{
    static const char *const link_states[] = {"opening", "idle", "busy", "closing"};
    static const char *const delivery_states[] = {"connecting", "connected", "writing", "finished"};
    json_t *paths = json_array(), *deliveries = json_array();

    for (const struct link *l = w->links; paths && l; l = l->next)
        json_array_append_new(paths,
            json_pack("{s:s, s:I, s:s, s:s, s:s, s:I}", "engine", l->engine_name, "engine_rank",
                (json_int_t)l->engine_rank, "transport", l->transport->name, "why", l->why, "state",
                link_states[l->state], "bytes", (json_int_t)l->bytes));
    for (const struct delivery *d = w->deliveries; deliveries && d; d = d->next)
        json_array_append_new(
            deliveries, json_pack("{s:I, s:I, s:s, s:I, s:s, s:I}", "update", (json_int_t)d->update,
                            "version", (json_int_t)d->version, "engine", d->programs->target.engine,
                            "engine_rank", (json_int_t)d->programs->target.engine_rank, "state",
                            delivery_states[d->state], "bytes", (json_int_t)d->bytes));
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "membership_epoch",
        (json_int_t)w->table.membership_epoch, "delivered", (json_int_t)w->deliveries_done,
        "failed", (json_int_t)w->failures, "paths", paths, "deliveries", deliveries);
}
