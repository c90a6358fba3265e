/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine process as inferd's I/O sees it. The connection and the process may end in any order;
 * the object lives until both the connection is closed and the memory is released, which for local
 * copies waits for the process's answer or death.
 */
#include "inferd/server_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "common/error.h"
#include "common/memory.h"

#define MAP_THREADS 4

static const struct sw_transport *const transports[SW_INFERD_TRANSPORTS] = {
    &sw_transport_tcp, &sw_transport_local};

struct sw_session *sw_session_find(struct sw_server *s, uint64_t number)
{
    for (struct sw_session *k = s->sessions; k; k = k->next)
        if (k->number == number)
            return k;
    return NULL;
}

struct sw_port *sw_session_tcp_port(struct sw_session *k)
{
    return k->releasing ? NULL : k->ports[0];
}

struct sw_port *sw_session_local_port(struct sw_session *k)
{
    return k->releasing ? NULL : k->ports[1];
}

static void give(struct sw_session *k, enum sw_registry_event_kind kind, uint64_t bytes,
    const struct sw_error *e)
{
    sw_server_feed(k->server, (struct sw_registry_event){.kind = kind,
                                  .session = k->number,
                                  .bytes = bytes,
                                  .code = e ? e->code : 0,
                                  .text = e ? e->text : ""});
}

/* ---- the end ---- */

static void free_if_done(struct sw_session *k)
{
    struct sw_session **link = &k->server->sessions;
    struct sw_server *s = k->server;

    if (k->conn || k->polling || k->working || k->closing || k->freeing ||
        (k->n_regions && !k->released))
        return;
    while (*link != k)
        link = &(*link)->next;
    *link = k->next;
    free(k);
    sw_server_check_stopped(s);
}

static void poll_closed(uv_handle_t *h)
{
    struct sw_session *k = h->data;

    close(k->pidfd);
    k->polling = false;
    free_if_done(k);
}

static void stop_polling(struct sw_session *k)
{
    if (!k->polling || k->poll_closing)
        return;
    k->poll_closing = true;
    uv_close((uv_handle_t *)&k->poll, poll_closed);
}

/* Nothing is left that the process's death could tell. */
static void settle(struct sw_session *k)
{
    if (!k->conn && !k->working && !k->freeing && (!k->n_regions || k->released))
        stop_polling(k);
    free_if_done(k);
}

void sw_session_end(struct sw_session *k, int code, const char *reason)
{
    if (!k->conn || k->ending)
        return;
    k->ending = true;
    sw_server_refuse(k->conn, code, reason);
}

/* Nothing is read or written by that process any more. */
static void process_over(struct sw_session *k)
{
    if (k->died)
        return;
    k->died = true;
    if (k->ports[1])
        sw_local_port_engine_died(k->ports[1]);
}

static void process_died(uv_poll_t *poll, int status, int events)
{
    struct sw_session *k = poll->data;

    stop_polling(k);
    process_over(k);
    if (k->conn && !k->ending) {
        k->ending = true;
        sw_conn_close(k->conn, "the engine process has died");
    }
}

/* ---- mapping ---- */

/* Memory that is not there yet would be allocated here, by a write, and its lack be a signal. */
static int check_allocated(int fd, uint64_t bytes, struct sw_error *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "fstat");
    if ((uint64_t)st.st_blocks * 512 < bytes)
        return sw_fail(e, SW_ERR_INVALID,
            "only %llu of %llu bytes are allocated: call posix_fallocate before registering",
            (unsigned long long)st.st_blocks * 512, (unsigned long long)bytes);
    return 0;
}

static int map_region(struct sw_session *k, uint32_t i, struct sw_error *e)
{
    uint64_t bytes = k->memory.region_bytes[i];
    int rc = sw_memory_check(k->memory.fds[i], bytes, true, NULL, e);

    if (!rc)
        rc = check_allocated(k->memory.fds[i], bytes, e);
    if (!rc)
        rc = sw_memory_map(
            k->memory.fds[i], bytes, true, SW_FILL_USED, MAP_THREADS, &k->regions[i].base, e);
    if (rc)
        return sw_error_context(e, rc, "region %u", i);
    k->regions[i].bytes = bytes;
    return 0;
}

static void map_work(uv_work_t *work)
{
    struct sw_session *k = work->data;
    int rc = 0;

    for (uint32_t i = 0; !rc && i < k->n_regions; i++)
        rc = map_region(k, i, &k->map_error);
}

static void to_engine(struct sw_msg *msg, void *arg)
{
    struct sw_session *k = arg;

    if (k->conn && !k->ending)
        sw_conn_send(k->conn, msg);
    else
        sw_msg_free(msg);
}

static int make_ports(struct sw_session *k, struct sw_error *e)
{
    const struct sw_port_spec spec = {.n_regions = k->n_regions,
        .regions = k->regions,
        .n_runs = k->memory.n_runs,
        .runs = k->memory.runs,
        .pool = k->server->pool};
    const struct sw_local_relay relay = {to_engine, k};

    for (int i = 0; i < SW_INFERD_TRANSPORTS; i++) {
        int rc = transports[i]->port_new(k->server->loop, &spec, &k->ports[i], e);

        if (rc)
            return sw_error_context(e, rc, "%s port", transports[i]->name);
    }
    sw_local_port_relay(k->ports[1], &relay);
    if (k->died)
        sw_local_port_engine_died(k->ports[1]);
    return 0;
}

static void begin_release(struct sw_session *k);

static void mapped(uv_work_t *work, int status)
{
    struct sw_session *k = work->data;

    k->working = false;
    if (!k->map_error.code && !k->release_wanted)
        make_ports(k, &k->map_error);
    if (k->map_error.code || k->release_wanted)
        begin_release(k);
    else
        give(k, SW_REG_MAPPED, 0, NULL);
}

void sw_session_map(struct sw_session *k)
{
    int rc = sw_registry_memory(k->server->registry, k->number, &k->memory);

    memset(&k->map_error, 0, sizeof(k->map_error));
    k->n_regions = 0;
    k->released = false;
    if (!rc) {
        k->n_regions = k->memory.n_regions;
        memset(k->regions, 0, sizeof(k->regions));
        k->work.data = k;
        rc = uv_queue_work(k->server->loop, &k->work, map_work, mapped);
    }
    k->working = rc == 0;
    if (rc) {
        k->n_regions = 0;
        sw_fail(&k->map_error, SW_ERR_NOMEM, "mapping could not be started");
        give(k, SW_REG_MAPPED, 0, &k->map_error);
    }
}

/* ---- windows ---- */

void sw_session_open_window(struct sw_session *k, const struct sw_id *window)
{
    struct sw_error e = {0};
    int rc = k->releasing ? sw_fail(&e, SW_ERR_STATE, "its memory is being released") : 0;

    for (int i = 0; !rc && i < SW_INFERD_TRANSPORTS; i++) {
        rc = transports[i]->port_open(k->ports[i], window, &e);
        k->opened[i] = rc == 0;
        if (rc)
            sw_error_context(&e, rc, "%s port", transports[i]->name);
    }
    give(k, SW_REG_WINDOW_OPENED, 0, rc ? &e : NULL);
}

static void one_closed(struct sw_session *k, uint64_t bytes)
{
    k->placed += bytes;
    if (--k->closing)
        return;
    give(k, SW_REG_WINDOW_CLOSED, k->placed, NULL);
    settle(k);
}

static void port_closed(struct sw_port *p, uint64_t bytes, void *arg)
{
    one_closed(arg, bytes);
}

void sw_session_close_window(struct sw_session *k)
{
    k->placed = 0;
    k->closing = 1; /* so that ports that answer at once don't end it too early */
    for (int i = 0; i < SW_INFERD_TRANSPORTS; i++) {
        if (!k->opened[i] || k->releasing)
            continue;
        k->opened[i] = false;
        k->closing++;
        transports[i]->port_close(k->ports[i], port_closed, k);
    }
    one_closed(k, 0);
}

/* ---- release ---- */

static void unmap_work(uv_work_t *work)
{
    struct sw_session *k = work->data;

    for (uint32_t i = 0; i < k->n_regions; i++) {
        sw_memory_unmap(k->regions[i].base, k->regions[i].bytes);
        k->regions[i].base = NULL;
    }
}

static void unmapped(uv_work_t *work, int status)
{
    struct sw_session *k = work->data;
    struct sw_error e = k->map_error;

    k->working = k->releasing = false;
    k->released = true;
    k->n_regions = 0;
    k->map_error.code = 0;
    if (e.code && !k->release_wanted)
        give(k, SW_REG_MAPPED, 0, &e);
    else
        give(k, SW_REG_RELEASED, 0, NULL);
    settle(k);
}

static void one_freed(struct sw_session *k)
{
    if (--k->freeing)
        return;
    k->working = true;
    k->work.data = k;
    if (uv_queue_work(k->server->loop, &k->work, unmap_work, unmapped)) {
        unmap_work(&k->work); /* slow, but done */
        unmapped(&k->work, 0);
    }
}

static void port_freed(struct sw_port *p, uint64_t bytes, void *arg)
{
    struct sw_session *k = arg;

    /* The process may die while the other port is still being freed: it is told no more. */
    for (int i = 0; i < SW_INFERD_TRANSPORTS; i++)
        if (k->ports[i] == p)
            k->ports[i] = NULL;
    one_freed(k);
}

static void begin_release(struct sw_session *k)
{
    k->releasing = true;
    k->freeing = 1;
    for (int i = 0; i < SW_INFERD_TRANSPORTS; i++) {
        k->opened[i] = false;
        if (!k->ports[i])
            continue;
        k->freeing++;
        transports[i]->port_free(k->ports[i], port_freed, k);
    }
    one_freed(k);
}

void sw_session_release(struct sw_session *k)
{
    k->release_wanted = true;
    if (!k->working && !k->releasing)
        begin_release(k);
}

/* ---- the connection ---- */

/*
 * The library copies on the thread that also connects and registers: a process that registers a
 * rank anew copies no more for the connection that it lost, although nobody can say so over that.
 */
static void note_registration(struct sw_session *k, const struct sw_engine_rank *in)
{
    snprintf(k->engine, sizeof(k->engine), "%s", in->engine);
    k->rank = in->rank;
    for (struct sw_session *old = k->server->sessions; old; old = old->next)
        if (old != k && !old->conn && old->pid == k->pid && old->rank == k->rank &&
            strcmp(old->engine, k->engine) == 0)
            process_over(old);
}

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct sw_session *k = arg;
    struct sw_port *local = sw_session_local_port(k);

    if (k->ending) {
        sw_msg_free(msg);
    } else if (msg->kind == SW_MSG_LOCAL_MAPPED || msg->kind == SW_MSG_LOCAL_DONE) {
        if (local)
            sw_local_port_from_engine(local, msg);
        else
            sw_msg_free(msg);
    } else {
        if (msg->kind == SW_MSG_ENGINE_RANK)
            note_registration(k, &msg->u.engine_rank);
        sw_server_feed(
            k->server, (struct sw_registry_event){
                           .kind = SW_REG_ENGINE_MESSAGE, .session = k->number, .message = msg});
    }
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct sw_session *k = arg;

    k->conn = NULL;
    k->ending = true;
    if (!k->polling)
        process_over(k); /* no pidfd to tell of it: the connection's end has to do */
    give(k, SW_REG_ENGINE_DOWN, 0, why);
    settle(k);
}

static void watch_process(struct sw_session *k)
{
    int fd = sw_conn_pidfd(k->conn);

    k->pidfd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : (int)syscall(SYS_pidfd_open, k->pid, 0);
    if (k->pidfd < 0 || uv_poll_init(k->server->loop, &k->poll, k->pidfd)) {
        sw_log(SW_LOG_WARNING,
            "engine process %d can't be watched (no pidfd): the end of its "
            "connection counts as its end",
            (int)k->pid);
        if (k->pidfd >= 0)
            close(k->pidfd);
        return;
    }
    k->poll.data = k;
    k->polling = true;
    if (uv_poll_start(&k->poll, UV_READABLE, process_died))
        stop_polling(k);
}

void sw_session_accept(struct sw_server *s, struct sw_conn *c)
{
    static const struct sw_conn_handlers handlers = {NULL, on_message, on_closed};
    struct sw_session *k = calloc(1, sizeof(*k));

    if (!k) {
        sw_conn_close(c, "no memory for an engine process");
        return;
    }
    k->server = s;
    k->number = ++s->last_session;
    k->instance = sw_conn_peer(c)->instance;
    k->pid = sw_conn_pid(c);
    k->conn = c;
    k->next = s->sessions;
    s->sessions = k;
    sw_conn_set_handlers(c, &handlers, k);
    watch_process(k);
    sw_server_feed(s, (struct sw_registry_event){.kind = SW_REG_ENGINE_UP,
                          .session = k->number,
                          .instance = k->instance,
                          .pid = (uint32_t)k->pid});
}
