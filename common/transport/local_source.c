/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source side of local: one connection to inferd's UNIX socket, over which the engine process
 * gets a read-only descriptor of the replica and, for each job, a sealed memfd with the extents.
 *
 * The engine process reads source memory from the moment a copy is asked for until LOCAL_DONE. So
 * closing a path waits for that answer; if the connection breaks before it came, nobody can tell
 * when the reading ends, and the close is done with an error that says so.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/error.h"
#include "common/transport/shared.h"

enum operation { NONE, OPEN, ATTACH, WRITE, VERIFY };

struct path {
    const struct sw_transport *ops;
    struct sw_path_target target;
    uv_async_t async;
    uv_timer_t timer;
    uint32_t timeout_ms;
    unsigned n_handles;
    struct sw_conn *conn; /* NULL: closed */
    enum operation operation;
    sw_path_done done;
    void *done_arg;
    sw_path_broken broken;
    void *broken_arg;
    uint64_t attaching, attached; /* ids of source memory; 0 = none yet */
    bool has_source;
    uint64_t copy; /* number of the job under way, or of the last */
    uint64_t job_bytes;
    bool reading;  /* a copy was asked for and not answered */
    bool answered; /* the operation's answer came, and is: */
    uint64_t answer_bytes;
    struct sw_error answer;
    bool failed, told;
    struct sw_error error;
    sw_path_done close_done;
    void *close_arg;
};

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
    sw_path_target_clear(&p->target);
    free(p);
}

static void handle_closed(uv_handle_t *h)
{
    struct path *p = h->data;
    struct sw_error e = {0};

    if (--p->n_handles > 0)
        return;
    if (p->reading) {
        sw_fail(&e, SW_ERR_CLOSED,
            "%s: the connection broke before the engine process had answered: it may still read "
            "the source memory, which must not be used again",
            p->target.name);
    }
    p->close_done((struct sw_path *)p, 0, &e, p->close_arg);
    path_free(p);
}

static void complete(struct path *p, uint64_t bytes, const struct sw_error *e)
{
    const sw_path_done done = p->done;

    p->operation = NONE;
    p->answered = false;
    done((struct sw_path *)p, bytes, e, p->done_arg);
}

/* The operation can be ended now: with what came, or because the path ends. */
static void tick_operation(struct path *p)
{
    struct sw_error e;

    if (p->operation == NONE)
        return;
    if (p->answered && !p->close_done) {
        e = p->answer;
        complete(p, p->answer_bytes, &e);
    } else if (p->failed && (!p->conn || !p->reading)) {
        e = p->error;
        p->told = true;
        complete(p, 0, &e);
    } else if (p->close_done && !p->reading) {
        sw_fail(&e, SW_ERR_CLOSED, "%s: closed before it was done", p->target.name);
        complete(p, 0, &e);
    }
}

static void tick(struct path *p)
{
    tick_operation(p);
    if ((p->failed || p->close_done) && p->operation == NONE && p->conn) {
        sw_conn_close(p->conn, "the path is not needed any more");
        return;
    }
    if (p->failed && !p->told && p->operation == NONE && !p->close_done) {
        p->told = true;
        p->broken((struct sw_path *)p, &p->error, p->broken_arg);
    }
    if (p->close_done && !p->conn && p->operation == NONE &&
        !uv_is_closing((uv_handle_t *)&p->timer)) {
        uv_close((uv_handle_t *)&p->timer, handle_closed);
        uv_close((uv_handle_t *)&p->async, handle_closed);
    }
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

/* ---- messages ---- */

static void answer(struct path *p, uint64_t bytes, const struct sw_failure *f)
{
    p->answered = true;
    p->answer_bytes = bytes;
    p->answer = (struct sw_error){0};
    if (f->code != 0) {
        sw_fail(&p->answer, f->code < 0 ? f->code : SW_ERR_PROTOCOL, "%s: %s", p->target.name,
            f->reason ? f->reason : "");
    }
}

static void on_ready(struct sw_conn *c, void *arg)
{
    struct path *p = arg;
    struct sw_msg *m = sw_path_target_ask(&p->target, true, NULL);
    struct sw_error e;

    if (m) {
        sw_conn_send(c, m);
        return;
    }
    sw_fail(&e, SW_ERR_NOMEM, "no memory for PATH_OPEN");
    path_fail(p, &e);
    tick(p);
}

static void on_done(struct path *p, const struct sw_local_done *d)
{
    const bool good = d->error.code == 0;
    struct sw_failure short_count = {SW_ERR_IO, "the engine counted fewer bytes than were asked"};

    p->reading = false;
    answer(p, d->bytes, good && d->bytes != p->job_bytes ? &short_count : &d->error);
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct path *p = arg;
    struct sw_error e;

    (void)c;
    if (msg->kind == SW_MSG_PATH_DONE && p->operation == OPEN && !p->answered) {
        uv_timer_stop(&p->timer);
        answer(p, 0, &msg->u.path_done.error);
        if (p->answer.code)
            path_fail(p, &p->answer);
    } else if (msg->kind == SW_MSG_LOCAL_MAPPED && p->operation == ATTACH && !p->answered &&
               msg->u.local_mapped.source == p->attaching) {
        answer(p, 0, &msg->u.local_mapped.error);
        if (!p->answer.code) {
            p->has_source = true;
            p->attached = p->attaching;
        }
    } else if (msg->kind == SW_MSG_LOCAL_DONE && p->reading && msg->u.local_done.copy == p->copy) {
        on_done(p, &msg->u.local_done);
    } else if (msg->kind == SW_MSG_ERROR) {
        sw_fail(&e, msg->u.error.code < 0 ? msg->u.error.code : SW_ERR_PROTOCOL,
            "refused by inferd: %s", msg->u.error.reason ? msg->u.error.reason : "");
        path_fail(p, &e);
    } else {
        sw_fail(&e, SW_ERR_PROTOCOL, "inferd sent %s, which nobody waits for",
            sw_msg_kind_name(msg->kind));
        path_fail(p, &e);
    }
    sw_msg_free(msg);
    tick(p);
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct path *p = arg;

    (void)c;
    p->conn = NULL;
    uv_timer_stop(&p->timer);
    path_fail(p, why);
    tick(p);
}

/* ---- the table's functions ---- */

int sw_local_path_open(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e)
{
    static const struct sw_conn_handlers handlers = {on_ready, on_message, on_closed};
    const struct sw_dial how = {
        .path = spec->target->unix_path,
        .fd = -1,
        .self = spec->self,
        .expect = &spec->target->inferd,
        .timeout_ms = spec->timeout_ms,
    };
    struct path *p;
    int rc;

    if (!how.path || !how.path[0])
        return sw_fail(e, SW_ERR_UNSUPPORTED, "inferd has no UNIX socket");
    p = calloc(1, sizeof(*p));
    if (!p)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a path");
    rc = sw_path_target_init(&p->target, "local", spec, e);
    if (!rc && uv_async_init(loop, &p->async, on_async) != 0)
        rc = sw_fail(e, SW_ERR_IO, "no event handle for a path");
    if (rc) {
        path_free(p);
        return rc;
    }
    uv_timer_init(loop, &p->timer);
    p->async.data = p->timer.data = p;
    p->n_handles = 2;
    p->ops = &sw_transport_local;
    p->timeout_ms = spec->timeout_ms;
    p->operation = OPEN;
    p->broken = broken;
    p->done = done;
    p->broken_arg = p->done_arg = arg;
    uv_timer_start(&p->timer, on_timer, spec->timeout_ms, 0);
    if (sw_conn_dial(loop, &how, &handlers, p, &p->conn, &p->answer)) {
        p->conn = NULL;
        path_fail(p, &p->answer);
        uv_async_send(&p->async);
    }
    *out = (struct sw_path *)p;
    return 0;
}

static int check_idle(const struct path *p, struct sw_error *e)
{
    if (p->failed)
        return sw_fail(e, SW_ERR_CLOSED, "the path broke before: %.900s", p->error.text);
    if (p->close_done || p->operation != NONE)
        return sw_fail(e, SW_ERR_STATE, "%s: %s", p->target.name,
            p->close_done ? "it is being closed" : "it is busy");
    return 0;
}

static void begin(struct path *p, enum operation operation, sw_path_done done, void *arg)
{
    p->operation = operation;
    p->answered = false;
    p->done = done;
    p->done_arg = arg;
}

int sw_local_path_attach(struct sw_path *path, const struct sw_source_memory *m, sw_path_done done,
    void *arg, struct sw_error *e)
{
    struct path *p = (struct path *)path;
    const struct sw_failure ok = {0};
    struct sw_msg *msg;

    if (check_idle(p, e))
        return e ? e->code : SW_ERR_STATE;
    if (p->has_source && p->attached == m->id) {
        begin(p, ATTACH, done, arg);
        answer(p, 0, &ok);
        uv_async_send(&p->async);
        return 0;
    }
    if (m->bytes == 0)
        return sw_fail(e, SW_ERR_INVALID, "%s: source memory of 0 bytes", p->target.name);
    msg = sw_msg_new(SW_MSG_LOCAL_SOURCE);
    if (!msg)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for LOCAL_SOURCE");
    msg->fds[0] = fcntl(m->fd, F_DUPFD_CLOEXEC, 3);
    if (msg->fds[0] < 0) {
        int err = errno;

        sw_msg_free(msg);
        return sw_fail_errno(e, SW_ERR_IO, err, "%s: the source's descriptor", p->target.name);
    }
    msg->n_fds = 1;
    msg->u.local_source.source = p->attaching = m->id;
    msg->u.local_source.bytes = m->bytes;
    p->has_source = false; /* the other end replaces what it has */
    begin(p, ATTACH, done, arg);
    sw_conn_send(p->conn, msg);
    return 0;
}

/* A memfd that nobody can change any more, with the extents. */
static int extents_memfd(const struct sw_extent *extents, uint64_t n, int *out, struct sw_error *e)
{
    const size_t bytes = (size_t)n * sizeof(*extents);
    int fd = memfd_create("shardwire-extents", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t at = 0;

    while (fd >= 0 && at < bytes) {
        ssize_t k = write(fd, (const char *)extents + at, bytes - at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            break;
        at += (size_t)k;
    }
    if (fd < 0 || at < bytes ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        int err = errno;

        if (fd >= 0)
            close(fd);
        return sw_fail_errno(e, err == ENOSPC || err == ENOMEM ? SW_ERR_NOMEM : SW_ERR_IO, err,
            "a memfd for %" PRIu64 " extents", n);
    }
    *out = fd;
    return 0;
}

static int start_job(struct sw_path *path, const struct sw_write_job *job, enum operation operation,
    sw_path_done done, void *arg, struct sw_error *e)
{
    struct path *p = (struct path *)path;
    struct sw_msg *msg;
    uint64_t bytes;
    int rc = sw_write_job_check(&p->target, job, &bytes, e), fd = -1;

    if (!rc)
        rc = check_idle(p, e);
    if (rc)
        return rc;
    if (!p->has_source || p->attached != job->memory->id) {
        return sw_fail(e, SW_ERR_STATE, "%s: this source memory was not attached", p->target.name);
    }
    rc = extents_memfd(job->extents, job->n, &fd, e);
    if (rc)
        return rc;
    msg = sw_msg_new(SW_MSG_LOCAL_COPY);
    if (!msg) {
        close(fd);
        return sw_fail(e, SW_ERR_NOMEM, "no memory for LOCAL_COPY");
    }
    msg->fds[0] = fd;
    msg->n_fds = 1;
    msg->u.local_copy.copy = ++p->copy;
    msg->u.local_copy.source = p->attached;
    msg->u.local_copy.window = job->window;
    msg->u.local_copy.mode = operation == VERIFY ? SW_LOCAL_VERIFY : SW_LOCAL_WRITE;
    msg->u.local_copy.n = job->n;
    p->job_bytes = bytes;
    p->reading = true;
    begin(p, operation, done, arg);
    sw_conn_send(p->conn, msg);
    return 0;
}

int sw_local_path_write(struct sw_path *path, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e)
{
    return start_job(path, job, WRITE, done, arg, e);
}

int sw_local_path_verify(struct sw_path *path, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e)
{
    return start_job(path, job, VERIFY, done, arg, e);
}

void sw_local_path_close(struct sw_path *path, sw_path_done done, void *arg)
{
    struct path *p = (struct path *)path;

    assert(!p->close_done);
    p->close_done = done;
    p->close_arg = arg;
    uv_timer_stop(&p->timer);
    uv_async_send(&p->async);
}
