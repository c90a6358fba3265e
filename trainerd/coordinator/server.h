/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator on the network: proven connections in, actions carried out, the state file kept.
 * Everything runs on the loop's thread, but the disk is written to from libuv's worker threads.
 */
#ifndef SW_TRAINERD_COORDINATOR_SERVER_H
#define SW_TRAINERD_COORDINATOR_SERVER_H

#include "common/conn.h"
#include "trainerd/coordinator/coordinator.h"

struct sw_coordinator_server;

typedef void (*sw_coordinator_log)(int level, const char *text, void *arg);

/*
 * Reads the state file (config->last_version is ignored) and starts. A state file that can't be
 * read or holds no version is an error that says what to do.
 */
int sw_coordinator_server_new(uv_loop_t *loop, const struct sw_coordinator_config *config,
    const char *state_dir, sw_coordinator_log log, void *log_arg,
    struct sw_coordinator_server **out, struct sw_error *e);

/* Takes over a proven connection of a trainerd or an inferd: handlers and life are the server's. */
void sw_coordinator_server_adopt(struct sw_coordinator_server *s, struct sw_conn *conn);

/* A new reference. */
json_t *sw_coordinator_server_status(const struct sw_coordinator_server *s);

/* Closes all connections; `closed` (may be NULL) comes from the loop, and the server is gone. */
void sw_coordinator_server_close(
    struct sw_coordinator_server *s, void (*closed)(void *arg), void *arg);

#endif
