/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the server share; nobody else includes it.
 *
 *   server.c    listeners, the coordinator's connection, the registry's actions, start and stop
 *   session.c   an engine process: its connection, mapping, ports and death
 *   writer.c    data paths: PATH_OPEN, and handing the connection to a port
 *   status.c    clients that ask for status
 */
#ifndef SW_INFERD_SERVER_IMPL_H
#define SW_INFERD_SERVER_IMPL_H

#include "common/conn.h"
#include "common/link.h"
#include "common/log.h"
#include "common/transport.h"
#include "inferd/registry.h"
#include "inferd/server.h"

#define SW_INFERD_TRANSPORTS 2 /* tcp and local */

struct sw_session { /* an engine process */
    struct sw_session *next;
    struct sw_server *server;
    uint64_t number; /* the registry's name for it */
    struct sw_id instance;
    pid_t pid;
    char engine[SW_LABEL_MAX + 1]; /* what it last wanted to register; "" = nothing yet */
    uint32_t rank;
    bool ending;          /* sw_conn_close was called */
    struct sw_conn *conn; /* NULL = ended */

    /* The process's death. */
    uv_poll_t poll;
    int pidfd;
    bool polling, poll_closing, died;

    /* Its memory. */
    bool working; /* work runs; the registry keeps descriptors and runs until it hears of it */
    uv_work_t work;
    struct sw_registry_memory memory;
    struct sw_error map_error; /* code != 0: the mapping failed, or is being undone */
    uint32_t n_regions;
    struct sw_port_region regions[SW_FRAME_FDS_MAX];
    struct sw_port *ports[SW_INFERD_TRANSPORTS];
    bool opened[SW_INFERD_TRANSPORTS];

    /* The window's closing, and the release: answers still to come. */
    unsigned closing, freeing;
    uint64_t placed;
    bool release_wanted, releasing, released;
};

struct sw_writer { /* a connection that will be a data path */
    struct sw_writer *next;
    struct sw_server *server;
    struct sw_conn *conn;
    uv_timer_t deadline;
    uv_check_t flush;
    unsigned handles; /* open ones */
    uint64_t session; /* admitted to this one; 0 = not yet */
    bool closing;
};

struct sw_client {
    struct sw_client *next;
    struct sw_server *server;
    struct sw_conn *conn;
};

struct sw_server {
    uv_loop_t *loop;
    struct sw_server_config config;
    struct sw_identity self;
    struct sw_traffic traffic;
    uint8_t host_nonce[SW_NONCE_BYTES];
    struct sw_registry *registry;
    struct sw_io_pool *pool;
    struct sw_listener *local, *control, *data;
    struct sw_session *sessions;
    struct sw_writer *writers;
    struct sw_client *clients;
    uint64_t last_session;
    bool pumping;

    struct sw_link *link;       /* to the coordinator */
    char coordinator_name[256]; /* the last one that was there */

    uv_timer_t deadline, flow;
    unsigned handles;  /* open ones */
    uint64_t refusals; /* connections that failed before they were proven */

    bool stopping;
    uv_timer_t stop_deadline;
    void (*stopped)(bool clean, void *arg);
    void *stopped_arg;
};

/* Gives an event to the registry and carries out what it asks for. */
void sw_server_feed(struct sw_server *s, struct sw_registry_event event);
/* Looks whether a server that is being stopped has nothing left. */
void sw_server_check_stopped(struct sw_server *s);
/* ERROR, then the end of the connection. */
void sw_server_refuse(struct sw_conn *c, int code, const char *reason);

/* ---- session.c ---- */
void sw_session_accept(struct sw_server *s, struct sw_conn *c);
struct sw_session *sw_session_find(struct sw_server *s, uint64_t number);
void sw_session_map(struct sw_session *k);
void sw_session_open_window(struct sw_session *k, const struct sw_id *window);
void sw_session_close_window(struct sw_session *k);
void sw_session_release(struct sw_session *k);
void sw_session_end(struct sw_session *k, int code, const char *reason);
struct sw_port *sw_session_tcp_port(struct sw_session *k);
struct sw_port *sw_session_local_port(struct sw_session *k);

/* ---- writer.c ---- */
void sw_writer_accept(struct sw_server *s, struct sw_conn *c);
void sw_writer_end(struct sw_writer *w, const char *reason);

/* ---- status.c ---- */
void sw_client_accept(struct sw_server *s, struct sw_conn *c);

#endif
