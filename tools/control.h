/* SPDX-License-Identifier: Apache-2.0 */
/* A client's conversation with a daemon, over its UNIX socket or its control port. Blocking. */
#ifndef SW_TOOLS_CONTROL_H
#define SW_TOOLS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include "common/message.h"
#include <shardwire/error.h>

struct sw_control;

struct sw_control_where {
    const char *path;        /* UNIX socket; or: */
    const char *host;        /* "HOST:PORT", "[v6]:PORT" */
    const char *daemon;      /* for messages: "trainerd" */
    const char *secret_file; /* NULL = none; TCP only */
    const char *group;
    uint32_t timeout_ms; /* of connect and handshake, and of a status */
};

int sw_control_open(
    const struct sw_control_where *where, struct sw_control **control, struct sw_error *e);

/* The status document's text; the caller frees *text. */
int sw_control_status(struct sw_control *c, char **text, struct sw_error *e);

/*
 * Asks inferd for its engines: `take` gets each ENGINE_RANK, followed by its PARAMETERS (borrowed);
 * non-zero ends it. *n is how many ranks inferd says it told.
 */
typedef int sw_control_take(void *arg, const struct sw_msg *msg, struct sw_error *e);
int sw_control_engines(
    struct sw_control *c, sw_control_take *take, void *arg, uint32_t *n, struct sw_error *e);

/* Publishes a version (0 = newest staged) and waits for the RESULT, at most timeout_ms; the caller
 * owns *result. 0 also when the result tells of a failure: see its `error`. */
int sw_control_publish(struct sw_control *c, uint64_t version, uint32_t timeout_ms,
    struct sw_msg **result, struct sw_error *e);

void sw_control_close(struct sw_control *c); /* accepts NULL */

/* Splits "HOST:PORT" or "[HOST]:PORT" into host (of 256 bytes) and port. */
int sw_control_split_host(const char *text, char host[256], char port[6], struct sw_error *e);

#endif
