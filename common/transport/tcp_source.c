/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source side of tcp: a path is several data connections to one target.
 *
 * Opening: one control connection for each token shakes hands and presents it; its socket then
 * becomes a stream (tcp_stream.h). All that happens is noted in the path or its hub, and tick()
 * draws the conclusions, on the loop, one callback at a time. A stream that breaks breaks the path:
 * the others are stopped, and when all of them have acknowledged it, so that nobody reads source
 * memory, the job under way is done. Closing goes the same way.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/error.h"
#include "common/transport/shared.h"
#include "common/transport/tcp_stream.h"

enum operation { NONE, OPEN, ATTACH, WRITE, VERIFY };

struct dial {
    struct path *path;
    struct sw_conn *conn; /* NULL: none, or closed */
    struct sw_token token;
    int fd; /* the data connection, not yet a stream's; -1 = none */
};

struct path {
    const struct sw_transport *ops;
    struct sw_path_target target;
    struct sw_stream_hub hub;
    struct sw_io_pool *pool;
    uv_timer_t timer;
    uint32_t timeout_ms;
    unsigned n_handles; /* hub.async and timer */
    unsigned n_conns;   /* control connections that are not closed yet */
    unsigned n_streams;
    enum operation operation;
    sw_path_done done;
    void *done_arg;
    uint64_t job_bytes;
    sw_path_broken broken;
    void *broken_arg;
    bool failed;   /* the path cannot be used any more, because of: */
    bool stopping; /* streams and control connections were told to stop */
    bool told;     /* the owner knows that it failed */
    struct sw_error error;
    sw_path_done close_done; /* set: path_close was called */
    void *close_arg;
    unsigned n;
    struct sw_stream **streams;
    struct dial dials[];
};

static void tick(struct path *p);

/* ---- ends ---- */

static void path_fail(struct path *p, const struct sw_error *why)
{
    if (p->failed)
        return;
    p->failed = true;
    p->error = *why;
    sw_error_context(&p->error, why->code, "%s", p->target.name);
}

static void path_free(struct path *p)
{
    for (unsigned i = 0; p->streams && i < p->n_streams; i++)
        sw_stream_free(p->streams[i]);
    for (unsigned i = 0; i < p->n; i++) {
        if (p->dials[i].fd >= 0)
            close(p->dials[i].fd);
    }
    explicit_bzero(p->dials, p->n * sizeof(p->dials[0]));
    sw_io_pool_unref(p->pool);
    sw_path_target_clear(&p->target);
    pthread_mutex_destroy(&p->hub.lock);
    free(p->streams);
    free(p);
}

static void handle_closed(uv_handle_t *h)
{
    struct path *p = h->data;
    const struct sw_error ok = {0};

    if (--p->n_handles > 0)
        return;
    p->close_done((struct sw_path *)p, 0, &ok, p->close_arg);
    path_free(p);
}

static void stop_all(struct path *p)
{
    p->stopping = true;
    uv_timer_stop(&p->timer);
    for (unsigned i = 0; i < p->n_streams; i++)
        sw_stream_stop(p->streams[i]);
    for (unsigned i = 0; i < p->n; i++) {
        if (p->dials[i].conn)
            sw_conn_close(p->dials[i].conn, "the path is not needed any more");
    }
}

/* ---- conclusions ---- */

static void complete(struct path *p, uint64_t bytes, const struct sw_error *e)
{
    const sw_path_done done = p->done;

    p->operation = NONE;
    done((struct sw_path *)p, bytes, e, p->done_arg);
}

static void job_complete(struct path *p)
{
    const struct sw_stream_hub *h = &p->hub;
    struct sw_error e = {0};

    if (h->differs) {
        const struct sw_extent *x = &h->extents[h->diff_extent];

        sw_fail(&e, SW_ERR_IO,
            "%s: region %" PRIu32 ", offset %" PRIu64 ": the target holds another byte than the "
            "source (the first difference)",
            p->target.name, x->region, x->dst + h->diff_offset);
    } else if (h->bytes != p->job_bytes) {
        sw_fail(&e, SW_ERR_IO, "%s: the target counted %" PRIu64 " bytes of %" PRIu64,
            p->target.name, h->bytes, p->job_bytes);
    }
    complete(p, h->bytes, &e);
}

/* All sockets are there: they become streams. */
static void start_streams(struct path *p)
{
    const struct sw_error ok = {0};
    struct sw_error e;

    uv_timer_stop(&p->timer);
    while (p->n_streams < p->n) {
        const int fd = p->dials[p->n_streams].fd;

        p->dials[p->n_streams].fd = -1;
        if (sw_tcp_socket_prepare(fd)) {
            close(fd);
            sw_fail(&e, SW_ERR_IO, "a data connection cannot be set up");
            path_fail(p, &e);
            return;
        }
        p->streams[p->n_streams] = sw_stream_new(&p->hub, sw_io_pool_pick(p->pool), fd);
        if (!p->streams[p->n_streams]) {
            sw_fail(&e, SW_ERR_NOMEM, "no memory for a data connection");
            path_fail(p, &e);
            return;
        }
        p->n_streams++;
    }
    complete(p, 0, &ok);
}

static bool all_dialled(const struct path *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        if (p->dials[i].fd < 0)
            return false;
    }
    return true;
}

/* Everybody has stopped: whoever waits is told. */
static void tick_stopped(struct path *p)
{
    struct sw_error e;

    if (p->operation != NONE) {
        e = p->error;
        if (!p->failed)
            sw_fail(&e, SW_ERR_CLOSED, "%s: closed before it was done", p->target.name);
        p->told = true;
        complete(p, 0, &e);
    }
    if (p->failed && !p->told && !p->close_done) {
        p->told = true;
        p->broken((struct sw_path *)p, &p->error, p->broken_arg);
    }
    if (p->close_done && p->n_conns == 0 && !uv_is_closing((uv_handle_t *)&p->timer)) {
        uv_close((uv_handle_t *)&p->timer, handle_closed);
        uv_close((uv_handle_t *)&p->hub.async, handle_closed);
    }
}

static void tick(struct path *p)
{
    const struct sw_error ok = {0};
    unsigned finished, stopped;

    pthread_mutex_lock(&p->hub.lock);
    finished = p->hub.finished;
    stopped = p->hub.stopped;
    if (p->hub.failed)
        path_fail(p, &p->hub.error);
    pthread_mutex_unlock(&p->hub.lock);

    if (!p->failed && !p->close_done) {
        if (p->operation == OPEN && all_dialled(p))
            start_streams(p);
        else if (p->operation == ATTACH)
            complete(p, 0, &ok);
        else if ((p->operation == WRITE || p->operation == VERIFY) && finished == p->n_streams)
            job_complete(p);
    }
    if ((p->failed || p->close_done) && !p->stopping)
        stop_all(p);
    if (p->stopping && stopped == p->n_streams)
        tick_stopped(p);
}

static void on_async(uv_async_t *async)
{
    tick(async->data);
}

static void on_timer(uv_timer_t *timer)
{
    struct path *p = timer->data;
    struct sw_error e;

    sw_fail(&e, SW_ERR_TIMEOUT, "inferd did not answer within %" PRIu32 " ms", p->timeout_ms);
    path_fail(p, &e);
    tick(p);
}

/* ---- opening ---- */

static void dial_ready(struct sw_conn *c, void *arg)
{
    struct dial *d = arg;
    struct sw_msg *m = sw_path_target_ask(&d->path->target, false, &d->token);
    struct sw_error e;

    if (m) {
        sw_conn_send(c, m);
        return;
    }
    sw_fail(&e, SW_ERR_NOMEM, "no memory for PATH_OPEN");
    path_fail(d->path, &e);
    tick(d->path);
}

static void dial_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct dial *d = arg;
    struct path *p = d->path;
    struct sw_error e;

    if (msg->kind == SW_MSG_PATH_DONE && msg->u.path_done.error.code == 0 && d->fd < 0) {
        d->fd = sw_conn_detach(c);
        if (d->fd < 0) {
            sw_fail(&e, SW_ERR_PROTOCOL, "inferd sent more than PATH_DONE");
            path_fail(p, &e);
        }
    } else if (msg->kind == SW_MSG_PATH_DONE || msg->kind == SW_MSG_ERROR) {
        const struct sw_failure *f =
            msg->kind == SW_MSG_ERROR ? &msg->u.error : &msg->u.path_done.error;

        sw_fail(&e, f->code < 0 ? f->code : SW_ERR_PROTOCOL, "refused by inferd: %s",
            f->reason ? f->reason : "");
        path_fail(p, &e);
    } else {
        sw_fail(&e, SW_ERR_PROTOCOL, "inferd sent %s instead of PATH_DONE",
            sw_msg_kind_name(msg->kind));
        path_fail(p, &e);
    }
    sw_msg_free(msg);
    tick(p);
}

static void dial_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct dial *d = arg;
    struct path *p = d->path;

    (void)c;
    d->conn = NULL;
    p->n_conns--;
    if (p->operation == OPEN && d->fd < 0)
        path_fail(p, why);
    tick(p);
}

static void dial_all(struct path *p, const struct sw_path_spec *spec)
{
    static const struct sw_conn_handlers handlers = {dial_ready, dial_message, dial_closed};
    struct sw_error e;

    for (unsigned i = 0; i < p->n; i++) {
        const struct sw_dial how = {
            .host = spec->target->address,
            .port = spec->target->data_port,
            .fd = -1,
            .self = spec->self,
            .expect = &p->target.inferd,
            .timeout_ms = spec->timeout_ms,
        };

        if (sw_conn_dial(p->timer.loop, &how, &handlers, &p->dials[i], &p->dials[i].conn, &e)) {
            path_fail(p, &e); /* others may be under way: told from the loop */
            uv_async_send(&p->hub.async);
            return;
        }
        p->n_conns++;
    }
}

static int path_new(const struct sw_path_spec *spec, struct path **out, struct sw_error *e)
{
    const unsigned n = spec->n_tokens;
    struct path *p;
    int rc;

    if (n < 1 || n > SW_TCP_CONNECTIONS_MAX) {
        return sw_fail(e, SW_ERR_INVALID, "a tcp path with %u tokens: 1 to %u are good", n,
            SW_TCP_CONNECTIONS_MAX);
    }
    p = calloc(1, sizeof(*p) + n * sizeof(p->dials[0]));
    if (!p)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a path");
    pthread_mutex_init(&p->hub.lock, NULL);
    p->n = n;
    for (unsigned i = 0; i < n; i++)
        p->dials[i] = (struct dial){.path = p, .token = spec->tokens[i], .fd = -1};
    p->streams = calloc(n, sizeof(*p->streams));
    rc = p->streams ? sw_path_target_init(&p->target, "tcp", spec, e)
                    : sw_fail(e, SW_ERR_NOMEM, "no memory for a path");
    if (!rc && spec->pool)
        p->pool = sw_io_pool_ref(spec->pool);
    else if (!rc)
        rc = sw_io_pool_new(0, &p->pool, e);
    if (rc) {
        path_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

int sw_tcp_path_open(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e)
{
    struct path *p = NULL;
    int rc = path_new(spec, &p, e);

    if (rc)
        return rc;
    if (uv_async_init(loop, &p->hub.async, on_async) != 0) {
        path_free(p);
        return sw_fail(e, SW_ERR_IO, "no event handle for a path");
    }
    uv_timer_init(loop, &p->timer);
    p->hub.async.data = p->timer.data = p;
    p->n_handles = 2;
    p->ops = &sw_transport_tcp;
    p->timeout_ms = spec->timeout_ms;
    p->hub.chunk_bytes = spec->chunk_bytes ? spec->chunk_bytes : SW_CHUNK_BYTES;
    p->broken = broken;
    p->operation = OPEN;
    p->done = done;
    p->broken_arg = p->done_arg = arg;
    uv_timer_start(&p->timer, on_timer, spec->timeout_ms, 0);
    dial_all(p, spec);
    *out = (struct sw_path *)p;
    return 0;
}

/* ---- jobs ---- */

static int begin(
    struct path *p, enum operation operation, sw_path_done done, void *arg, struct sw_error *e)
{
    if (p->failed)
        return sw_fail(e, SW_ERR_CLOSED, "the path broke before: %.900s", p->error.text);
    if (p->close_done || p->operation != NONE)
        return sw_fail(e, SW_ERR_STATE, "%s: %s", p->target.name,
            p->close_done ? "it is being closed" : "it is busy");
    p->operation = operation;
    p->done = done;
    p->done_arg = arg;
    return 0;
}

int sw_tcp_path_attach(struct sw_path *path, const struct sw_source_memory *m, sw_path_done done,
    void *arg, struct sw_error *e)
{
    struct path *p = (struct path *)path;
    int rc = begin(p, ATTACH, done, arg, e);

    (void)m; /* sent from where it is */
    if (!rc)
        uv_async_send(&p->hub.async);
    return rc;
}

static int start_job(struct sw_path *path, const struct sw_write_job *job, enum operation operation,
    sw_path_done done, void *arg, struct sw_error *e)
{
    struct path *p = (struct path *)path;
    struct sw_stream_hub *h = &p->hub;
    uint64_t bytes;
    int rc = sw_write_job_check(&p->target, job, &bytes, e);

    if (!rc)
        rc = begin(p, operation, done, arg, e);
    if (rc)
        return rc;
    p->job_bytes = bytes;
    pthread_mutex_lock(&h->lock);
    h->verify = operation == VERIFY;
    h->window = job->window;
    h->base = job->memory->base;
    h->extents = job->extents;
    h->n = job->n;
    h->at_extent = h->at_offset = h->bytes = 0;
    h->differs = false;
    h->finished = 0;
    pthread_mutex_unlock(&h->lock);
    for (unsigned i = 0; i < p->n_streams; i++)
        sw_stream_start(p->streams[i]);
    return 0;
}

int sw_tcp_path_write(struct sw_path *path, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e)
{
    return start_job(path, job, WRITE, done, arg, e);
}

int sw_tcp_path_verify(struct sw_path *path, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e)
{
    return start_job(path, job, VERIFY, done, arg, e);
}

void sw_tcp_path_close(struct sw_path *path, sw_path_done done, void *arg)
{
    struct path *p = (struct path *)path;

    assert(!p->close_done);
    p->close_done = done;
    p->close_arg = arg;
    uv_async_send(&p->hub.async);
}
