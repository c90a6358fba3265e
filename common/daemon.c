/* SPDX-License-Identifier: Apache-2.0 */
#include "common/daemon.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/log.h"
#include "common/notify.h"

static void on_signal(uv_signal_t *handle, int number)
{
    struct sw_daemon *d = handle->data;

    sw_log(SW_LOG_INFO, "got %s: ending", number == SIGTERM ? "SIGTERM" : "SIGINT");
    sw_notify_stopping("closing windows and connections");
    d->stop(d->arg);
}

static void on_watchdog(uv_timer_t *timer)
{
    sw_notify_watchdog();
}

int sw_daemon_watch(
    struct sw_daemon *d, uv_loop_t *loop, void (*stop)(void *arg), void *arg, struct sw_error *e)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    uint64_t watchdog_ms = sw_notify_watchdog_ms();
    int failed = 0;

    d->stop = stop;
    d->arg = arg;
    signal(SIGPIPE, SIG_IGN);
    uv_timer_init(loop, &d->watchdog);
    if (watchdog_ms)
        uv_timer_start(&d->watchdog, on_watchdog, watchdog_ms, watchdog_ms);
    for (int i = 0; i < 2; i++) {
        uv_signal_init(loop, &d->signals[i]);
        d->signals[i].data = d;
        if (uv_signal_start(&d->signals[i], on_signal, numbers[i]))
            failed = numbers[i];
    }
    return failed ? sw_fail(e, SW_ERR_IO, "no handler for signal %d", failed) : 0;
}

void sw_daemon_unwatch(struct sw_daemon *d)
{
    uv_close((uv_handle_t *)&d->signals[0], NULL);
    uv_close((uv_handle_t *)&d->signals[1], NULL);
    uv_close((uv_handle_t *)&d->watchdog, NULL);
}

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcmp(address, "localhost") == 0;
}

int sw_daemon_check_listen(const char *listen, bool has_secret, struct sw_error *e)
{
    if (has_secret || is_loopback(listen))
        return 0;
    return sw_fail(e, SW_ERR_AUTH,
        "listen = %s can be reached from other hosts, and there is no shared secret: set "
        "secret-file (the same file on all hosts of the group), or listen on 127.0.0.1",
        listen);
}

int sw_daemon_socket_mode(const char *text, uint32_t *mode, struct sw_error *e)
{
    char *end;
    unsigned long value = strtoul(text, &end, 8);

    if (!*text || *end || value > 0777)
        return sw_fail(
            e, SW_ERR_INVALID, "socket-mode = %s: expected three octal digits, such as 0660", text);
    *mode = (uint32_t)value;
    return 0;
}
