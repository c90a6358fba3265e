/* SPDX-License-Identifier: Apache-2.0 */
/* What conn.c, conn_io.c, conn_dial.c and listener.c share about a connection. Private to them. */
#ifndef SW_COMMON_CONN_INTERNAL_H
#define SW_COMMON_CONN_INTERNAL_H

#include "common/conn.h"
#include "common/conn_fds.h"
#include "common/frame.h"

#define SW_CONN_PLACE_MAX 256
#define SW_CONN_NAME_MAX (SW_LABEL_MAX * 4 + SW_CONN_PLACE_MAX + 32)

/* An encoded frame on its way out. */
struct sw_out {
    struct sw_out *next;
    uint8_t header[SW_FRAME_HEADER];
    uint8_t *payload;
    size_t length; /* of the payload */
    size_t sent;   /* bytes of header and payload that the kernel took */
    uint32_t n_fds;
    int fds[];
};

struct sw_out_queue {
    struct sw_out *head, *tail;
    size_t bytes;  /* not sent yet */
    size_t memory; /* that the frames take: small ones take much more than their bytes */
};

struct sw_bytes { /* a growing buffer of a filter */
    uint8_t *data;
    size_t n, used;
};

enum sw_conn_state {
    SW_CONN_DIALLING, /* resolving or connecting */
    SW_CONN_PROVING,
    SW_CONN_READY,
    SW_CONN_ENDED, /* only memory is left, until the loop has called `closed` */
};

/* uv_poll_t on the heap, so that each connection attempt can have one of its own. */
struct sw_poller {
    uv_poll_t handle;
    struct sw_conn *conn; /* NULL once the connection has let go of it */
};

struct sw_resolve; /* a running name lookup (conn_dial.c) */
struct sw_attempts;

struct sw_conn {
    uv_loop_t *loop;
    uv_timer_t timer; /* deadline of dialling and handshake; its close callback frees everything */
    struct sw_poller *poller;
    int fd;
    int events; /* that the poller waits for */
    bool is_unix, accepted;
    enum sw_conn_state state;

    struct sw_conn_handlers handlers;
    void *arg;
    struct sw_error why;

    const struct sw_identity *self;
    struct sw_handshake *handshake;
    struct sw_peer peer;
    char name[SW_CONN_NAME_MAX];
    char address[64];
    char place[SW_CONN_PLACE_MAX]; /* where the socket leads: "1.2.3.4:555", a path */
    pid_t pid;
    uid_t uid;
    int pidfd;

    struct sw_splitter *splitter;
    struct sw_fd_queue received;
    size_t unfed;                  /* bytes read behind the message that is being handled */
    size_t early_bytes;            /* bytes read before the peer was proven */
    struct sw_out_queue out, held; /* `held` waits for the end of the handshake */

    struct sw_filter filter;
    bool has_filter;
    struct sw_bytes wire; /* wrapped bytes on their way out */

    /* dialling */
    struct sw_id expect;
    bool has_expect;
    struct sw_resolve *resolve;
    struct sw_attempts *attempts;

    /* accepted connections are in their listener's list as long as it lives */
    struct sw_listener *listener;
    struct sw_conn *next, **link;
};

/* conn.c */
struct sw_conn *sw_conn_new(uv_loop_t *loop, const struct sw_identity *self);
/* Takes over a connected socket and starts the handshake: `handshake` is owned from here on. */
int sw_conn_start(struct sw_conn *c, int fd, struct sw_handshake *handshake, struct sw_error *e);
int sw_conn_watch(struct sw_conn *c, int fd, int events, struct sw_error *e);
void sw_conn_unwatch(struct sw_conn *c);
void sw_conn_want(struct sw_conn *c, int events);
void sw_conn_deadline(struct sw_conn *c, uint32_t timeout_ms);
/* Ends the connection. The text of `why` gets the peer's name in front unless it is an orderly end.
 * With `tell` the peer is sent an ERROR, if the kernel takes it. */
void sw_conn_end(struct sw_conn *c, const struct sw_error *why, bool tell);
bool sw_conn_ended(const struct sw_conn *c);
void sw_conn_handle(struct sw_conn *c, struct sw_msg *msg);

/* conn_io.c */
int sw_conn_queue(struct sw_conn *c, struct sw_out_queue *to, const struct sw_msg *msg,
    struct sw_error *e); /* takes the descriptors only on success */
void sw_conn_flush(struct sw_conn *c, struct sw_error *e); /* sets e->code when the socket fails */
void sw_conn_events(struct sw_conn *c, int status, int events);
void sw_out_queue_clear(struct sw_out_queue *q);

/* conn_dial.c */
void sw_conn_connecting(struct sw_conn *c, int status);
void sw_conn_dial_clear(struct sw_conn *c);

/* listener.c */
void sw_listener_proven(struct sw_conn *c); /* the handshake of an accepted connection is done */
void sw_listener_forget(struct sw_conn *c, const struct sw_error *why); /* it ended */

#endif
