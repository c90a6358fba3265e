/* SPDX-License-Identifier: Apache-2.0 */
/* What server.c, sessions.c, buffers.c and reductions.c share: trainerd's thin I/O. */
#ifndef SW_TRAINERD_INTERNAL_H
#define SW_TRAINERD_INTERNAL_H

#include "common/link.h"
#include "common/log.h"
#include "trainerd/coordinator/server.h"
#include "trainerd/host/host.h"
#include "trainerd/layouts.h"
#include "trainerd/replica/replica.h"
#include "trainerd/server.h"
#include "trainerd/writer/writer.h"

struct session { /* a trainer process or a client */
    struct session *next;
    struct sw_trainerd *d;
    uint64_t id;
    struct sw_conn *conn; /* NULL once it ended */
    uv_poll_t process;    /* on a pidfd: readable when the process is dead */
    int pidfd;            /* -1 = not watched (any more) */
    bool closing;         /* of the poll handle */
};

struct sw_trainerd {
    uv_loop_t *loop;
    const struct sw_trainerd_config *config;
    struct sw_trainerd_handlers handlers;
    char host_name[256];
    struct sw_identity identity;
    struct sw_traffic traffic;
    uint8_t *secret;
    struct sw_listener *local, *control;
    struct sw_link *link; /* to the coordinator */
    struct sw_coordinator_server *coordinator;
    struct sw_layouts *layouts; /* the coordinator's; NULL = none */
    struct sw_host *host;
    struct sw_replica *replica;
    struct sw_writer *writer;
    struct sw_io_pool *pool;
    uv_timer_t timer; /* the host machine's deadline */
    bool timer_open;
    struct session *sessions;
    uint64_t next_session;
    struct allocation *allocations; /* the first one runs on a worker thread, the others wait */
    bool allocating;                /* it does */
    unsigned reductions;            /* that run on worker threads */
    bool ready, closing, writer_open;
};

/* server.c */
void trainerd_event(struct sw_trainerd *d, const struct sw_host_event *event);
void trainerd_finish(struct sw_trainerd *d); /* ends when closing and nothing is left */
json_t *trainerd_status(const struct sw_trainerd *d);

/* sessions.c: trainer processes and clients on the UNIX socket, clients on the control port */
int sessions_listen(struct sw_trainerd *d, struct sw_error *e);
void sessions_send(struct sw_trainerd *d, uint64_t session, struct sw_msg *msg);
void sessions_drop(struct sw_trainerd *d, uint64_t session, const char *why);
/* Forgets processes that had left and whose buffers nobody uses any more. */
void sessions_unwatch(struct sw_trainerd *d);
void sessions_close(struct sw_trainerd *d);

/* buffers.c: allocation on worker threads */
void buffers_allocate(struct sw_trainerd *d, const struct sw_host_action *a);

/* reductions.c: block maxima that ranks share, on worker threads. Takes the action's shares. */
void reductions_start(struct sw_trainerd *d, struct sw_host_action *a);

#endif
