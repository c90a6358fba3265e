/* SPDX-License-Identifier: Apache-2.0 */
/* The transport that moves nothing: it counts, and confirms from the loop. For tests and planning.
 */
#include <assert.h>
#include <stdlib.h>
#include "common/error.h"
#include "common/transport/shared.h"

struct path {
    const struct sw_transport *ops;
    struct sw_path_target target;
    uv_async_t async;
    bool busy;
    uint64_t bytes;
    sw_path_done done;
    void *done_arg;
    sw_path_done close_done;
    void *close_arg;
};

struct port {
    const struct sw_transport *ops;
    uv_async_t async;
    bool open;
    struct sw_id window;
    sw_port_closed freed;
    void *freed_arg;
};

static void path_closed(uv_handle_t *h)
{
    struct path *p = h->data;
    const struct sw_error ok = {0};

    p->close_done((struct sw_path *)p, 0, &ok, p->close_arg);
    sw_path_target_clear(&p->target);
    free(p);
}

static void path_tick(uv_async_t *async)
{
    struct path *p = async->data;
    struct sw_error e = {0};

    if (p->busy) {
        p->busy = false;
        if (p->close_done)
            sw_fail(&e, SW_ERR_CLOSED, "%s: closed before it was done", p->target.name);
        p->done((struct sw_path *)p, e.code ? 0 : p->bytes, &e, p->done_arg);
    }
    if (p->close_done && !uv_is_closing((uv_handle_t *)async))
        uv_close((uv_handle_t *)async, path_closed);
}

static int begin(struct path *p, uint64_t bytes, sw_path_done done, void *arg, struct sw_error *e)
{
    if (p->busy || p->close_done)
        return sw_fail(e, SW_ERR_STATE, "%s: it is busy, or being closed", p->target.name);
    p->busy = true;
    p->bytes = bytes;
    p->done = done;
    p->done_arg = arg;
    uv_async_send(&p->async);
    return 0;
}

static int path_open(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e)
{
    struct path *p = calloc(1, sizeof(*p));
    int rc;

    (void)broken;
    if (!p)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a path");
    rc = sw_path_target_init(&p->target, "null", spec, e);
    if (!rc && uv_async_init(loop, &p->async, path_tick) != 0)
        rc = sw_fail(e, SW_ERR_IO, "no event handle for a path");
    if (rc) {
        sw_path_target_clear(&p->target);
        free(p);
        return rc;
    }
    p->ops = &sw_transport_null;
    p->async.data = p;
    begin(p, 0, done, arg, e);
    *out = (struct sw_path *)p;
    return 0;
}

static int path_attach(struct sw_path *path, const struct sw_source_memory *m, sw_path_done done,
    void *arg, struct sw_error *e)
{
    (void)m;
    return begin((struct path *)path, 0, done, arg, e);
}

static int path_job(struct sw_path *path, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e)
{
    struct path *p = (struct path *)path;
    uint64_t bytes;
    int rc = sw_write_job_check(&p->target, job, &bytes, e);

    return rc ? rc : begin(p, bytes, done, arg, e);
}

static void path_close(struct sw_path *path, sw_path_done done, void *arg)
{
    struct path *p = (struct path *)path;

    assert(!p->close_done);
    p->close_done = done;
    p->close_arg = arg;
    uv_async_send(&p->async);
}

static void port_closed(uv_handle_t *h)
{
    struct port *p = h->data;

    p->freed((struct sw_port *)p, 0, p->freed_arg);
    free(p);
}

static int port_new(
    uv_loop_t *loop, const struct sw_port_spec *spec, struct sw_port **out, struct sw_error *e)
{
    struct port *p = calloc(1, sizeof(*p));

    (void)spec;
    if (!p)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a port");
    if (uv_async_init(loop, &p->async, NULL) != 0) {
        free(p);
        return sw_fail(e, SW_ERR_IO, "no event handle for a port");
    }
    p->ops = &sw_transport_null;
    p->async.data = p;
    *out = (struct sw_port *)p;
    return 0;
}

static int port_open(struct sw_port *port, const struct sw_id *window, struct sw_error *e)
{
    struct port *p = (struct port *)port;

    if (p->open || p->freed)
        return sw_fail(e, SW_ERR_STATE, "the write window is open already, or going away");
    if (sw_id_is_none(window))
        return sw_fail(e, SW_ERR_INVALID, "a write window needs an id");
    if (sw_id_equal(window, &p->window))
        return sw_fail(e, SW_ERR_STATE, "this write window was open before: its id is used up");
    p->open = true;
    p->window = *window;
    return 0;
}

static void port_close(struct sw_port *port, sw_port_closed closed, void *arg)
{
    ((struct port *)port)->open = false;
    closed(port, 0, arg);
}

static void port_free(struct sw_port *port, sw_port_closed closed, void *arg)
{
    struct port *p = (struct port *)port;

    assert(!p->freed);
    p->open = false;
    p->freed = closed;
    p->freed_arg = arg;
    uv_close((uv_handle_t *)&p->async, port_closed);
}

const struct sw_transport sw_transport_null = {
    .name = "null",
    .path_open = path_open,
    .path_attach = path_attach,
    .path_write = path_job,
    .path_verify = path_job,
    .path_close = path_close,
    .port_new = port_new,
    .port_open = port_open,
    .port_close = port_close,
    .port_free = port_free,
};
