/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Framed connections on a libuv loop: TCP and UNIX stream sockets, descriptors over the latter
 * (uv_poll with sendmsg/recvmsg). Handshake included: handlers see proven peers only.
 *
 * Threads: everything here runs on the loop's thread. Memory: a connection is freed after `closed`
 * returned; sw_conn_close makes it come (later, from the loop, never from inside the call).
 */
#ifndef SW_COMMON_CONN_H
#define SW_COMMON_CONN_H

#include <sys/types.h>
#include <uv.h>
#include "common/handshake.h"

struct sw_conn;

struct sw_conn_handlers {
    /* Once, when the peer is proven (and descriptors may flow). Not for an accepted connection:
     * there, sw_listener_handlers.accepted is this moment. */
    void (*ready)(struct sw_conn *c, void *arg);
    /* A message; the handler owns it. */
    void (*message)(struct sw_conn *c, struct sw_msg *msg, void *arg);
    /* Exactly once, last. `why` has code SW_ERR_CLOSED for an orderly end, else what went wrong,
     * with the peer named. */
    void (*closed)(struct sw_conn *c, const struct sw_error *why, void *arg);
};

/*
 * A filter stands between frames and socket (TLS will be one). Each function moves as much as it
 * can and never blocks. NULL filter = bytes as they are.
 */
struct sw_filter {
    void *state;
    /* plain bytes in -> wire bytes out (appended to a malloc'ed buffer that the filter may grow) */
    int (*wrap)(
        void *state, const uint8_t *in, size_t n, uint8_t **out, size_t *out_n, struct sw_error *e);
    int (*unwrap)(
        void *state, const uint8_t *in, size_t n, uint8_t **out, size_t *out_n, struct sw_error *e);
    void (*free)(void *state);
};

struct sw_dial {
    const char *host; /* TCP: name or address ... */
    uint32_t port;    /* ... and port; or: */
    const char *path; /* UNIX socket; NULL = TCP */
    int fd;           /* >= 0: an already connected stream socket (owned by the connection then) */
    const struct sw_identity *self;
    const struct sw_id *expect; /* instance that must answer; NULL = any */
    uint32_t timeout_ms;        /* connect and handshake */
};

/* Dials. Non-zero: nothing will be called. Zero: `closed` comes exactly once. */
int sw_conn_dial(uv_loop_t *loop, const struct sw_dial *how,
    const struct sw_conn_handlers *handlers, void *arg, struct sw_conn **out, struct sw_error *e);

/* Queues a message and takes ownership of it, descriptors included (they are closed after they were
 * sent). Never fails visibly: with a dead or overfull connection, `closed` tells why. */
void sw_conn_send(struct sw_conn *c, struct sw_msg *msg);

/* Bytes queued and not yet taken by the kernel. */
size_t sw_conn_queued(const struct sw_conn *c);

/* Ends the connection: what is queued is sent if the kernel takes it at once, then it is closed.
 * `closed` comes with SW_ERR_CLOSED and `reason`. May be called from handlers, more than once. */
void sw_conn_close(struct sw_conn *c, const char *reason);

/* Takes the socket out (blocking mode unchanged: non-blocking); `closed` comes with SW_ERR_CLOSED.
 * Only when nothing is queued or half-read; -1 otherwise. The caller owns the descriptor. */
int sw_conn_detach(struct sw_conn *c);

/* Puts a filter in (copied; the connection frees its state). Before the first byte: right after
 * sw_conn_dial, or in sw_listener_handlers.connected. Not for connections that carry descriptors.
 */
void sw_conn_set_filter(struct sw_conn *c, const struct sw_filter *filter);

void sw_conn_set_handlers(struct sw_conn *c, const struct sw_conn_handlers *handlers, void *arg);
const struct sw_peer *sw_conn_peer(const struct sw_conn *c);
const char *sw_conn_name(const struct sw_conn *c); /* for messages: "trainerd@host (1.2.3.4:555)" */
const char *sw_conn_address(
    const struct sw_conn *c); /* the peer's IP address; "" on UNIX sockets */
bool sw_conn_is_unix(const struct sw_conn *c);
/* Peer credentials (UNIX sockets; -1 otherwise) and a pidfd of the peer (borrowed, -1 = none). */
pid_t sw_conn_pid(const struct sw_conn *c);
uid_t sw_conn_uid(const struct sw_conn *c);
int sw_conn_pidfd(const struct sw_conn *c);

struct sw_listener;
struct sw_listener_handlers {
    /* A proven peer. Call sw_conn_set_handlers on it now; without handlers it is closed. */
    void (*accepted)(struct sw_conn *c, void *arg);
    /* A connection that failed before it was proven (for the log). */
    void (*refused)(const struct sw_error *why, void *arg);
    /* A socket was accepted, and nothing is known about it: the moment for sw_conn_set_filter. May
     * be NULL. */
    void (*connected)(struct sw_conn *c, void *arg);
};
struct sw_listen {
    const char *host;        /* TCP: address ... */
    uint32_t port;           /* ... and port, 0 = any free one */
    const char *path;        /* UNIX socket: a stale one (nobody listens) is replaced; NULL = TCP */
    uint32_t mode;           /* of the UNIX socket's file */
    const char *owner_group; /* of the UNIX socket's file; NULL or "" = leave */
    int fd;                  /* >= 0: an already listening socket, e.g. from systemd */
    const struct sw_identity *self;
    uint32_t roles; /* bits 1 << role that may come */
    uint32_t timeout_ms;
    uint32_t max_connections;
};
int sw_listener_open(uv_loop_t *loop, const struct sw_listen *how,
    const struct sw_listener_handlers *handlers, void *arg, struct sw_listener **out,
    struct sw_error *e);
uint32_t sw_listener_port(const struct sw_listener *l);
/* Stops accepting, closes connections that are not proven yet; frees itself from the loop. Accepted
 * connections live on. */
void sw_listener_close(struct sw_listener *l);

#endif
