/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that a daemon keeps to another one: dialled again, with back-off, whenever it ends.
 * Loop thread only.
 */
#ifndef SW_COMMON_LINK_H
#define SW_COMMON_LINK_H

#include "common/conn.h"

struct sw_link;

struct sw_link_handlers {
    void (*up)(struct sw_link *l, void *arg);
    void (*message)(struct sw_link *l, struct sw_msg *msg, void *arg); /* the handler owns msg */
    /* It ended (after `up`), or could not be made; the next try comes by itself. `first` is set for
     * the first failure in a row (it was never up for long since then): log that one. */
    void (*down)(struct sw_link *l, const struct sw_error *why, bool was_up, bool first, void *arg);
};

struct sw_link_config {
    uv_loop_t *loop;
    const char *host; /* copied */
    uint32_t port;
    const struct sw_identity *self; /* borrowed */
    uint32_t timeout_ms;            /* connect and handshake */
    enum sw_role expect;            /* of the one that answers */
};

/* Starts dialling at once. */
int sw_link_open(const struct sw_link_config *config, const struct sw_link_handlers *handlers,
    void *arg, struct sw_link **out, struct sw_error *e);
/* Sends (the message is owned from here on); it is dropped when the link is down. */
void sw_link_send(struct sw_link *l, struct sw_msg *msg);
bool sw_link_is_up(const struct sw_link *l);
struct sw_conn *sw_link_conn(const struct sw_link *l); /* NULL while it is down */
const char *sw_link_name(const struct sw_link *l);     /* "host:port" */
/* Ends it for good; nothing is called any more; memory goes from the loop. Accepts NULL. */
void sw_link_close(struct sw_link *l);

#endif
