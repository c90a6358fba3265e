/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainerd on its loop: sockets, timers and threads around the host machine, the replica, the
 * writer and, where this daemon has that role, the coordinator.
 */
#ifndef SW_TRAINERD_SERVER_H
#define SW_TRAINERD_SERVER_H

#include <uv.h>
#include <shardwire/error.h>
#include "trainerd/config.h"

struct sw_trainerd;

struct sw_trainerd_handlers {
    void (*ready)(void *arg);  /* once: sockets listen, and an own coordinator is connected */
    void (*closed)(void *arg); /* after sw_trainerd_close; memory is freed when it returns */
    void *arg;
};

/* Listens and starts. The configuration is borrowed. On an error nothing is left behind but handles
 * that a run of the loop closes. */
int sw_trainerd_open(uv_loop_t *loop, const struct sw_trainerd_config *config,
    const struct sw_trainerd_handlers *handlers, struct sw_trainerd **out, struct sw_error *e);
void sw_trainerd_close(struct sw_trainerd *d);

#endif
