/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "common/error.h"
#include "common/transport/shared.h"

const struct sw_transport sw_transport_tcp = {
    .name = "tcp",
    .path_open = sw_tcp_path_open,
    .path_attach = sw_tcp_path_attach,
    .path_write = sw_tcp_path_write,
    .path_verify = sw_tcp_path_verify,
    .path_close = sw_tcp_path_close,
    .port_new = sw_tcp_port_new,
    .port_open = sw_tcp_port_open,
    .port_close = sw_tcp_port_close,
    .port_free = sw_tcp_port_free,
};

const struct sw_transport sw_transport_local = {
    .name = "local",
    .path_open = sw_local_path_open,
    .path_attach = sw_local_path_attach,
    .path_write = sw_local_path_write,
    .path_verify = sw_local_path_verify,
    .path_close = sw_local_path_close,
    .port_new = sw_local_port_new,
    .port_open = sw_local_port_open,
    .port_close = sw_local_port_close,
    .port_free = sw_local_port_free,
};

const struct sw_transport *sw_transport_find(const char *name)
{
    static const struct sw_transport *const all[] = {
        &sw_transport_tcp, &sw_transport_local, &sw_transport_null};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    }
    return NULL;
}

int sw_path_target_init(struct sw_path_target *t, const char *transport,
    const struct sw_path_spec *spec, struct sw_error *e)
{
    const struct sw_target *from = spec->target;

    memset(t, 0, sizeof(*t));
    t->region_bytes = calloc(from->n_regions + 1ul, sizeof(*t->region_bytes));
    if (!t->region_bytes)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a path to engine %s", from->engine);
    if (from->n_regions) {
        memcpy(t->region_bytes, from->region_bytes, from->n_regions * sizeof(*t->region_bytes));
    }
    t->n_regions = from->n_regions;
    t->inferd = from->inferd;
    t->engine_instance = from->engine_instance;
    t->engine_rank = from->engine_rank;
    t->layout_epoch = spec->layout_epoch;
    memcpy(t->host_nonce, from->host_nonce, sizeof(t->host_nonce));
    snprintf(t->engine, sizeof(t->engine), "%s", from->engine);
    if (strcmp(transport, "tcp") == 0) {
        snprintf(t->name, sizeof(t->name),
            "tcp path to engine %.64s/%" PRIu32 " at %.100s:%" PRIu32, from->engine,
            from->engine_rank, from->address, from->data_port);
    } else {
        snprintf(t->name, sizeof(t->name), "%s path to engine %.64s/%" PRIu32, transport,
            from->engine, from->engine_rank);
    }
    return 0;
}

void sw_path_target_clear(struct sw_path_target *t)
{
    free(t->region_bytes);
    t->region_bytes = NULL;
}

struct sw_msg *sw_path_target_ask(
    const struct sw_path_target *t, bool local, const struct sw_token *token)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PATH_OPEN);

    if (!m)
        return NULL;
    m->u.path_open.engine = sw_arena_strdup(&m->arena, t->engine);
    if (!m->u.path_open.engine) {
        sw_msg_free(m);
        return NULL;
    }
    m->u.path_open.engine_rank = t->engine_rank;
    m->u.path_open.engine_instance = t->engine_instance;
    m->u.path_open.layout_epoch = t->layout_epoch;
    m->u.path_open.local = local;
    if (local)
        memcpy(m->u.path_open.host_nonce, t->host_nonce, SW_NONCE_BYTES);
    if (token)
        m->u.path_open.token = *token;
    return m;
}

int sw_write_job_check(const struct sw_path_target *t, const struct sw_write_job *job,
    uint64_t *bytes, struct sw_error *e)
{
    uint64_t sum = 0;

    if (job->n > SW_EXTENTS_MAX) {
        return sw_fail(e, SW_ERR_LIMIT, "%s: %" PRIu64 " extents, at most %u can be had", t->name,
            job->n, SW_EXTENTS_MAX);
    }
    for (uint64_t i = 0; i < job->n; i++) {
        const struct sw_extent *x = &job->extents[i];

        if (x->length == 0 || sw_range_exceeds(x->src, x->length, job->memory->bytes)) {
            return sw_fail(e, SW_ERR_INVALID,
                "%s: extent %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " of a source of %" PRIu64,
                t->name, i, x->length, x->src, job->memory->bytes);
        }
        if (x->region >= t->n_regions ||
            sw_range_exceeds(x->dst, x->length, t->region_bytes[x->region])) {
            return sw_fail(e, SW_ERR_INVALID,
                "%s: extent %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " of region %" PRIu32
                ", which has %" PRIu64 " bytes",
                t->name, i, x->length, x->dst, x->region,
                x->region < t->n_regions ? t->region_bytes[x->region] : 0);
        }
        if (sw_range_exceeds(sum, x->length, UINT64_MAX)) {
            return sw_fail(e, SW_ERR_LIMIT, "%s: the extents' bytes overflow", t->name);
        }
        sum += x->length;
    }
    *bytes = sum;
    return 0;
}

int sw_tcp_socket_prepare(int fd)
{
    /* A peer whose host vanished is noticed within about two minutes, also when nothing is sent. */
    const int on = 1, idle = 60, interval = 15, count = 4;
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return errno;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    return 0;
}
