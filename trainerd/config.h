/* SPDX-License-Identifier: Apache-2.0 */
/* trainerd's options, as one table (common/options.h). */
#ifndef SW_TRAINERD_CONFIG_H
#define SW_TRAINERD_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "common/options.h"

struct sw_trainerd_config {
    char *group, *socket, *socket_group, *socket_mode, *listen, *advertise, *secret_file,
        *state_dir, *layouts;
    uint32_t port;
    struct sw_host_port coordinator; /* host NULL = this daemon is the coordinator */
    int transport;                   /* enum sw_writer_transport */
    uint32_t tcp_connections, tcp_threads, populate_threads;
    uint64_t chunk;
    bool huge_pages;
    uint32_t begin_ms, stage_ms, drain_ms, connect_ms, pause_ms, window_ms, write_ms, post_ms,
        activate_ms, manifest_ms, handshake_ms;
    int log_level;
};

extern const struct sw_program sw_trainerd_program;

#endif
