/* SPDX-License-Identifier: Apache-2.0 */
/* What both daemons' mains do alike: signals that end, the watchdog, the secret, a socket's mode.
 */
#ifndef SW_COMMON_DAEMON_H
#define SW_COMMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include <shardwire/error.h>

struct sw_daemon { /* the caller's, zeroed; lives until its handles are closed */
    uv_signal_t signals[2];
    uv_timer_t watchdog;
    void (*stop)(void *arg); /* SIGTERM or SIGINT came (logged already) */
    void *arg;
};

/* Watches on this loop: SIGTERM, SIGINT, and the service manager's watchdog; ignores SIGPIPE. */
int sw_daemon_watch(
    struct sw_daemon *d, uv_loop_t *loop, void (*stop)(void *arg), void *arg, struct sw_error *e);
void sw_daemon_unwatch(struct sw_daemon *d);

/* Without a shared secret only loopback addresses are listened on: SW_ERR_AUTH says what to do. */
int sw_daemon_check_listen(const char *listen, bool has_secret, struct sw_error *e);

/* "0660" -> 0660. */
int sw_daemon_socket_mode(const char *text, uint32_t *mode, struct sw_error *e);

#endif
