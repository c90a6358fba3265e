/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inferd on the network: sockets, mappings, ports and processes around the registry, which decides.
 * Everything runs on the loop's thread.
 */
#ifndef SW_INFERD_SERVER_H
#define SW_INFERD_SERVER_H

#include <uv.h>
#include "common/handshake.h"
#include <shardwire/error.h>

struct sw_server_config { /* strings are borrowed and must outlive the server */
    const char *group;
    const char *host; /* this host's name, for messages */
    const char *socket;
    const char *socket_group; /* NULL or "" = leave */
    uint32_t socket_mode;
    const char *listen;       /* address of both TCP ports */
    uint32_t port, data_port; /* 0 = any free one */
    const char *advertise;    /* NULL or "" = the address that the coordinator sees */
    const char *coordinator;
    uint32_t coordinator_port;
    const uint8_t *secret; /* NULL = none: `listen` must be a loopback address */
    size_t secret_bytes;
    uint64_t lease_ms, token_ms, manifest_ms;
    unsigned data_threads; /* 0 = chosen by the transport */
};

struct sw_server;

/* Listens, and goes on dialling the coordinator until it answers. */
int sw_server_start(uv_loop_t *loop, const struct sw_server_config *config, struct sw_server **out,
    struct sw_error *e);

/* Closes windows, connections and mappings; then `stopped`, once, and the server is freed. What an
 * engine process still copies is waited for, for SW_WINDOW_MS at most: then it is left behind, and
 * the process has to end (*clean = false). */
void sw_server_stop(struct sw_server *s, void (*stopped)(bool clean, void *arg), void *arg);

uint32_t sw_server_port(const struct sw_server *s);
uint32_t sw_server_data_port(const struct sw_server *s);

#endif
