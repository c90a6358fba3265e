/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/error.h"
#include "common/memory.h"

#define DEADLINE_MS 20000

struct sw_stage {
    struct sw_stage_config config;
    uv_loop_t loop;
    uv_timer_t deadline;
    bool late;
    struct sw_listener *listener;
    char socket[108];
    struct sw_identity self, inferd;
    struct sw_target target;
    uint64_t region_bytes[SW_STAGE_REGIONS];
    uint8_t *regions[SW_STAGE_REGIONS];
    struct sw_io_pool *source_pool, *target_pool;
    struct sw_port *port;
    struct sw_local_engine *engine;
    struct sw_source_memory source;
    uint8_t *source_bytes;
    int source_fd;
    uint64_t windows;
    bool engine_has_copy;
};

static void check(bool good, const char *what, const struct sw_error *e)
{
    if (good)
        return;
    fprintf(stderr, "stage: %s: %s\n", what, e ? e->text : "");
    abort();
}

/* ---- the engine process ---- */

struct engine_work {
    uv_work_t work;
    struct sw_stage *stage;
    struct sw_msg *msg, *reply;
};

static void engine_run(uv_work_t *w)
{
    struct engine_work *k = w->data;

    k->reply = sw_local_engine_handle(k->stage->engine, k->msg);
}

static void engine_after(uv_work_t *w, int status)
{
    struct engine_work *k = w->data;

    (void)status;
    sw_msg_free(k->msg);
    if (k->stage->port)
        sw_local_port_from_engine(k->stage->port, k->reply);
    else
        sw_msg_free(k->reply);
    free(k);
}

/* One worker thread (UV_THREADPOOL_SIZE=1) keeps the order, like a connection does. */
static void to_engine(struct sw_msg *msg, void *arg)
{
    struct sw_stage *s = arg;
    struct engine_work *k = calloc(1, sizeof(*k));

    if (msg->kind == SW_MSG_LOCAL_COPY && s->config.mute_engine) {
        s->engine_has_copy = true;
        sw_msg_free(msg);
        free(k);
        return;
    }
    check(k, "memory", NULL);
    k->work.data = k;
    k->stage = s;
    k->msg = msg;
    uv_queue_work(&s->loop, &k->work, engine_run, engine_after);
}

/* ---- inferd ---- */

static void writer_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct sw_stage *s = arg;
    const bool local = msg->u.path_open.local;
    struct sw_error e = {0};
    int fd;

    check(msg->kind == SW_MSG_PATH_OPEN, "PATH_OPEN", NULL);
    sw_msg_free(msg);
    if (!s->port) {
        sw_conn_close(c, "no port");
        return;
    }
    sw_conn_send(c, sw_msg_new(SW_MSG_PATH_DONE));
    if (local) {
        sw_local_port_adopt(s->port, c);
        return;
    }
    fd = sw_conn_detach(c);
    check(fd >= 0, "detach", NULL);
    check(sw_tcp_port_adopt(s->port, fd, "writer", &e) == 0, "adopt", &e);
}

static void writer_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    (void)c;
    (void)why;
    (void)arg;
}

static void writer_accepted(struct sw_conn *c, void *arg)
{
    static const struct sw_conn_handlers handlers = {NULL, writer_message, writer_closed};

    sw_conn_set_handlers(c, &handlers, arg);
}

static void writer_refused(const struct sw_error *why, void *arg)
{
    (void)arg;
    check(false, "refused", why);
}

static void listen_here(struct sw_stage *s)
{
    static const struct sw_listener_handlers handlers = {writer_accepted, writer_refused};
    const bool local = s->config.transport == &sw_transport_local;
    const struct sw_listen how = {
        .host = local ? NULL : "127.0.0.1",
        .path = local ? s->socket : NULL,
        .mode = 0600,
        .fd = -1,
        .self = &s->inferd,
        .roles = 1u << SW_ROLE_WRITER,
        .timeout_ms = DEADLINE_MS,
        .max_connections = 1024,
    };
    struct sw_error e = {0};

    check(sw_listener_open(&s->loop, &how, &handlers, s, &s->listener, &e) == 0, "listen", &e);
    s->target.address = "127.0.0.1";
    s->target.data_port = local ? 0 : sw_listener_port(s->listener);
    s->target.unix_path = s->socket;
}

/* ---- the stage ---- */

static void make_identities(struct sw_stage *s)
{
    s->self = (struct sw_identity){.group = "test", .role = SW_ROLE_WRITER, .host = "source"};
    s->inferd = (struct sw_identity){.group = "test", .role = SW_ROLE_INFERD, .host = "target"};
    s->self.instance.bytes[0] = 1;
    s->inferd.instance.bytes[0] = 2;
    s->target.engine = "engine";
    s->target.inferd = s->inferd.instance;
    s->target.region_bytes = s->region_bytes;
    snprintf(s->socket, sizeof(s->socket), "/tmp/sw-stage-%d.sock", (int)getpid());
}

static void make_memory(struct sw_stage *s, struct sw_port_region *regions)
{
    const struct sw_stage_config *c = &s->config;
    struct sw_error e = {0};
    void *base;
    int fd;

    check(sw_memory_create("source", c->source_bytes, false, 1, &fd, NULL, &e) == 0, "source", &e);
    check(sw_memory_map(fd, c->source_bytes, true, SW_FILL_NEW, 1, &base, &e) == 0, "map", &e);
    check(sw_memory_reopen_readonly(fd, &s->source_fd, &e) == 0, "reopen", &e);
    close(fd);
    s->source_bytes = base;
    for (uint64_t i = 0; i < c->source_bytes; i++)
        s->source_bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    s->source = (struct sw_source_memory){base, c->source_bytes, s->source_fd, 1};
    for (uint32_t i = 0; i < SW_STAGE_REGIONS && c->region_bytes[i]; i++) {
        s->region_bytes[i] = c->region_bytes[i];
        s->regions[i] = malloc(c->region_bytes[i]);
        check(s->regions[i], "memory", NULL);
        memset(s->regions[i], 0xee, c->region_bytes[i]);
        regions[i] = (struct sw_port_region){s->regions[i], c->region_bytes[i]};
        s->target.n_regions = i + 1;
    }
}

static void on_late(uv_timer_t *t)
{
    ((struct sw_stage *)t->data)->late = true;
}

struct sw_stage *sw_stage_new(const struct sw_stage_config *c)
{
    struct sw_stage *s = calloc(1, sizeof(*s));
    struct sw_port_region regions[SW_STAGE_REGIONS] = {{0}};
    struct sw_port_spec spec = {.regions = regions, .runs = c->runs, .n_runs = c->n_runs};
    struct sw_local_relay relay = {to_engine, s};
    struct sw_error e = {0};

    check(s, "memory", NULL);
    setenv("UV_THREADPOOL_SIZE", "1", 1);
    s->config = *c;
    uv_loop_init(&s->loop);
    uv_timer_init(&s->loop, &s->deadline);
    s->deadline.data = s;
    make_identities(s);
    make_memory(s, regions);
    check(sw_io_pool_new(c->threads, &s->source_pool, &e) == 0, "pool", &e);
    check(sw_io_pool_new(c->threads, &s->target_pool, &e) == 0, "pool", &e);
    spec.n_regions = s->target.n_regions;
    spec.pool = s->target_pool;
    check(c->transport->port_new(&s->loop, &spec, &s->port, &e) == 0, "port", &e);
    s->engine = sw_local_engine_new(&spec, c->threads);
    check(s->engine, "engine", NULL);
    if (c->transport == &sw_transport_local)
        sw_local_port_relay(s->port, &relay);
    if (c->transport != &sw_transport_null)
        listen_here(s);
    return s;
}

void sw_stage_free(struct sw_stage *s)
{
    if (s->port)
        sw_stage_port_free(s);
    if (s->listener)
        sw_listener_close(s->listener);
    uv_close((uv_handle_t *)&s->deadline, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    check(uv_loop_close(&s->loop) == 0, "handles are left", NULL);
    sw_io_pool_unref(s->source_pool);
    sw_io_pool_unref(s->target_pool);
    sw_local_engine_free(s->engine);
    sw_memory_unmap(s->source_bytes, s->config.source_bytes);
    close(s->source_fd);
    for (int i = 0; i < SW_STAGE_REGIONS; i++)
        free(s->regions[i]);
    unlink(s->socket);
    free(s);
}

uv_loop_t *sw_stage_loop(struct sw_stage *s)
{
    return &s->loop;
}

struct sw_port *sw_stage_port(struct sw_stage *s)
{
    return s->port;
}

uint8_t *sw_stage_region(struct sw_stage *s, uint32_t region)
{
    return s->regions[region];
}

struct sw_source_memory *sw_stage_source(struct sw_stage *s)
{
    return &s->source;
}

uint8_t *sw_stage_source_bytes(struct sw_stage *s)
{
    return s->source_bytes;
}

bool sw_stage_wait(struct sw_stage *s, const bool *flag)
{
    s->late = false;
    uv_timer_start(&s->deadline, on_late, DEADLINE_MS, 0);
    while (!*flag && !s->late)
        uv_run(&s->loop, UV_RUN_ONCE);
    uv_timer_stop(&s->deadline);
    return *flag;
}

/* ---- paths ---- */

void sw_stage_path_done(struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *outcome)
{
    struct sw_stage_outcome *o = outcome;

    (void)p;
    check(!o->done, "done twice", e);
    o->done = true;
    o->bytes = bytes;
    o->error = *e;
}

static void path_broken(struct sw_path *p, const struct sw_error *why, void *outcome)
{
    sw_stage_path_done(p, 0, why, outcome);
}

struct sw_path *sw_stage_path(struct sw_stage *s, struct sw_stage_outcome *broken)
{
    static struct sw_stage_outcome nobody; /* a test that does not care */
    const struct sw_token tokens[SW_TCP_CONNECTIONS_MAX] = {{{0}}};
    struct sw_path_spec spec = {
        .target = &s->target,
        .n_tokens = s->config.connections,
        .tokens = tokens,
        .self = &s->self,
        .timeout_ms = DEADLINE_MS,
        .pool = s->source_pool,
    };
    struct sw_stage_outcome *o = broken ? broken : &nobody, attached = {0};
    struct sw_error e = {0};
    struct sw_path *p;

    *o = (struct sw_stage_outcome){0};
    check(s->config.transport->path_open(
              &s->loop, &spec, path_broken, sw_stage_path_done, o, &p, &e) == 0,
        "path_open", &e);
    check(sw_stage_wait(s, &o->done) && o->error.code == 0, "opening the path", &o->error);
    *o = (struct sw_stage_outcome){0};
    check(s->config.transport->path_attach(p, &s->source, sw_stage_path_done, &attached, &e) == 0,
        "path_attach", &e);
    check(
        sw_stage_wait(s, &attached.done) && attached.error.code == 0, "attaching", &attached.error);
    return p;
}

static struct sw_stage_outcome job(struct sw_stage *s, struct sw_path *p,
    const struct sw_id *window, const struct sw_extent *extents, uint64_t n, bool verify)
{
    const struct sw_write_job j = {*window, &s->source, extents, n};
    const struct sw_transport *t = s->config.transport;
    struct sw_stage_outcome o = {0};

    if ((verify ? t->path_verify : t->path_write)(p, &j, sw_stage_path_done, &o, &o.error) == 0)
        check(sw_stage_wait(s, &o.done), "the job is not done in time", NULL);
    return o;
}

struct sw_stage_outcome sw_stage_write(struct sw_stage *s, struct sw_path *p,
    const struct sw_id *window, const struct sw_extent *extents, uint64_t n)
{
    return job(s, p, window, extents, n, false);
}

struct sw_stage_outcome sw_stage_verify(struct sw_stage *s, struct sw_path *p,
    const struct sw_id *window, const struct sw_extent *extents, uint64_t n)
{
    return job(s, p, window, extents, n, true);
}

struct sw_stage_outcome sw_stage_path_close(struct sw_stage *s, struct sw_path *p)
{
    struct sw_stage_outcome o = {0};

    s->config.transport->path_close(p, sw_stage_path_done, &o);
    check(sw_stage_wait(s, &o.done), "path_close", NULL);
    return o;
}

/* ---- the port ---- */

static void port_closed(struct sw_port *p, uint64_t bytes, void *arg)
{
    const struct sw_error ok = {0};

    (void)p;
    sw_stage_path_done(NULL, bytes, &ok, arg);
}

struct freeing {
    struct sw_stage *stage;
    struct sw_stage_outcome outcome;
};

static void port_freed(struct sw_port *p, uint64_t bytes, void *arg)
{
    struct freeing *f = arg;

    f->stage->port = NULL;
    port_closed(p, bytes, &f->outcome);
}

struct sw_id sw_stage_window(struct sw_stage *s)
{
    struct sw_id id = {{0}};
    struct sw_error e = {0};

    s->windows++;
    memcpy(id.bytes, &s->windows, sizeof(s->windows));
    check(s->config.transport->port_open(s->port, &id, &e) == 0, "port_open", &e);
    return id;
}

uint64_t sw_stage_window_close(struct sw_stage *s)
{
    struct sw_stage_outcome o = {0};

    s->config.transport->port_close(s->port, port_closed, &o);
    check(sw_stage_wait(s, &o.done), "port_close", NULL);
    return o.bytes;
}

void sw_stage_port_free(struct sw_stage *s)
{
    struct freeing f = {.stage = s};

    s->config.transport->port_free(s->port, port_freed, &f);
    if (s->config.mute_engine)
        sw_stage_engine_died(s);
    check(sw_stage_wait(s, &f.outcome.done), "port_free", NULL);
}

void sw_stage_engine_died(struct sw_stage *s)
{
    sw_local_port_engine_died(s->port);
}

const bool *sw_stage_engine_has_copy(struct sw_stage *s)
{
    return &s->engine_has_copy;
}

int sw_stage_dial(struct sw_stage *s, const struct sw_conn_handlers *handlers, void *arg,
    struct sw_conn **out, struct sw_error *e)
{
    const struct sw_dial how = {
        .path = s->socket, .fd = -1, .self = &s->self, .timeout_ms = DEADLINE_MS};

    return sw_conn_dial(&s->loop, &how, handlers, arg, out, e);
}

struct sw_msg *sw_stage_path_open(struct sw_stage *s)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PATH_OPEN);

    check(m, "memory", NULL);
    m->u.path_open.engine = s->target.engine;
    m->u.path_open.local = 1;
    return m;
}
