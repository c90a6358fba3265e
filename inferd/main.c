/* SPDX-License-Identifier: Apache-2.0 */
/* inferd: lets trainerds write new weights into the engines of this host, and nobody else. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>
#include "common/daemon.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/options.h"
#include "inferd/server.h"

struct config {
    char *group, *socket, *socket_group, *socket_mode, *listen, *advertise, *secret_file;
    uint32_t port, data_port, data_threads;
    struct sw_host_port coordinator;
    uint64_t lease_ms, token_ms, manifest_ms;
    int log_level;
};

#define FIELD(member) SW_FIELD(struct config, member)
#define HOUR_MS 3600000u

static const struct sw_option options[] = {
    {.name = "group",
        .type = SW_OPTION_STRING,
        FIELD(group),
        .min = 1,
        .max = SW_LABEL_MAX,
        .text = SW_GROUP_DEFAULT,
        .help = "name of the training job and its engines"},
    {.name = "coordinator",
        .type = SW_OPTION_HOST_PORT,
        FIELD(coordinator),
        .number = SW_TRAINERD_PORT,
        .text = "127.0.0.1",
        .help = "control port of the trainerd that coordinates the group"},
    {.name = "secret-file",
        .type = SW_OPTION_PATH,
        FIELD(secret_file),
        .flags = SW_OPTION_MAY_EMPTY,
        .help = "file with the group's shared secret; without it, only loopback is listened on"},
    {.name = "log-level",
        .type = SW_OPTION_ENUM,
        FIELD(log_level),
        .number = SW_LOG_INFO - SW_LOG_LEVEL_FIRST,
        .names = sw_log_level_names,
        .help = "least important kind of line that is logged"},
    {.heading = "Where engines, trainerds and shardctl connect",
        .name = "socket",
        .type = SW_OPTION_PATH,
        FIELD(socket),
        .min = 1,
        .max = 107,
        .text = SW_INFERD_SOCKET,
        .help = "UNIX socket for engine processes, trainerds of this host, and status"},
    {.name = "socket-group",
        .type = SW_OPTION_STRING,
        FIELD(socket_group),
        .flags = SW_OPTION_MAY_EMPTY,
        .max = SW_LABEL_MAX,
        .help = "group that owns the socket's file"},
    {.name = "socket-mode",
        .type = SW_OPTION_STRING,
        FIELD(socket_mode),
        .min = 3,
        .max = 4,
        .text = "0660",
        .help = "permissions of the socket's file, in octal"},
    {.name = "listen",
        .type = SW_OPTION_STRING,
        FIELD(listen),
        .min = 1,
        .max = 255,
        .text = "127.0.0.1",
        .help = "address of the control port and the data port"},
    {.name = "port",
        .letter = 'p',
        .type = SW_OPTION_UINT,
        FIELD(port),
        .max = 65535,
        .number = SW_INFERD_PORT,
        .help = "control port (status); 0 takes any free one"},
    {.name = "data-port",
        .type = SW_OPTION_UINT,
        FIELD(data_port),
        .max = 65535,
        .number = SW_INFERD_DATA_PORT,
        .help = "port for weights; 0 takes any free one"},
    {.name = "advertise",
        .type = SW_OPTION_STRING,
        FIELD(advertise),
        .flags = SW_OPTION_MAY_EMPTY,
        .max = 255,
        .help = "address at which trainerds reach the data port; else the one that the "
                "coordinator sees"},
    {.name = "data-threads",
        .type = SW_OPTION_UINT,
        FIELD(data_threads),
        .max = 64,
        .unit = "threads",
        .help = "that receive weights over tcp; 0 = at most 4, by CPUs"},
    {.heading = "Deadlines",
        .name = "lease",
        .type = SW_OPTION_DURATION,
        FIELD(lease_ms),
        .min = 100,
        .max = 24 * HOUR_MS,
        .number = SW_LEASE_MS,
        .help = "longest time for which an engine stays paused for one update"},
    {.name = "token",
        .type = SW_OPTION_DURATION,
        FIELD(token_ms),
        .min = 100,
        .max = HOUR_MS,
        .number = SW_TOKEN_MS,
        .help = "how long a data token is good"},
    {.name = "manifest",
        .type = SW_OPTION_DURATION,
        FIELD(manifest_ms),
        .min = 100,
        .max = HOUR_MS,
        .number = SW_MANIFEST_MS,
        .help = "from the first part of an engine's manifest to its last"},
};

static const struct sw_program program = {.name = "inferd",
    .version = SW_VERSION,
    .about = "Lets the trainerds of its group write new weights into the engines of this host, in "
             "write windows that it opens and closes.",
    .config_dir = SW_CONFIG_DIR,
    .options = options,
    .count = sizeof(options) / sizeof(options[0])};

struct process {
    uv_loop_t loop;
    struct sw_daemon daemon;
    struct sw_server *server;
    bool stopped;
    int code;
};

static void on_stopped(bool clean, void *arg)
{
    struct process *d = arg;

    if (!clean)
        exit(1); /* what is left is in other processes' hands */
    d->stopped = true;
    sw_daemon_unwatch(&d->daemon);
}

static void on_stop(void *arg)
{
    struct process *d = arg;

    sw_server_stop(d->server, on_stopped, d);
}

static int serve(struct process *d, const struct sw_server_config *config)
{
    struct sw_error e = {0};

    if (uv_loop_init(&d->loop)) {
        sw_log(SW_LOG_ERROR, "no event loop: out of memory or descriptors");
        return 1;
    }
    if (sw_daemon_watch(&d->daemon, &d->loop, on_stop, d, &e) ||
        sw_server_start(&d->loop, config, &d->server, &e)) {
        sw_log(SW_LOG_ERROR, "inferd can't start: %s", e.text);
        sw_daemon_unwatch(&d->daemon);
        d->code = 1;
    } else {
        sw_log(SW_LOG_INFO,
            "serving group %s on %s, control port %u, data port %u, coordinator %s:%u",
            config->group, config->socket, sw_server_port(d->server),
            sw_server_data_port(d->server), config->coordinator, config->coordinator_port);
        sw_notify_ready("serving");
    }
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
    return d->code;
}

static int run(const struct config *c)
{
    struct process d = {0};
    struct sw_error e = {0};
    uint8_t *secret = NULL;
    char host[SW_LABEL_MAX * 4 + 1] = "";
    struct sw_server_config config = {.group = c->group,
        .host = host,
        .socket = c->socket,
        .socket_group = c->socket_group,
        .listen = c->listen,
        .port = c->port,
        .data_port = c->data_port,
        .advertise = c->advertise,
        .coordinator = c->coordinator.host,
        .coordinator_port = c->coordinator.port,
        .lease_ms = c->lease_ms,
        .token_ms = c->token_ms,
        .manifest_ms = c->manifest_ms,
        .data_threads = c->data_threads};
    int rc = sw_daemon_socket_mode(c->socket_mode, &config.socket_mode, &e);

    gethostname(host, sizeof(host) - 1);
    if (!rc && c->secret_file)
        rc = sw_secret_load(c->secret_file, &secret, &config.secret_bytes, &e);
    if (rc) {
        sw_log(SW_LOG_ERROR, "inferd can't start: %s", e.text);
        return rc == SW_ERR_INVALID ? 2 : 1;
    }
    config.secret = secret;
    rc = serve(&d, &config);
    if (secret)
        explicit_bzero(secret, config.secret_bytes);
    free(secret);
    return rc;
}

int main(int argc, char **argv)
{
    struct config config;
    struct sw_options_outcome outcome;
    int code = sw_options_main(&program, argc, argv, &config, &outcome);

    if (code >= 0)
        return code;
    sw_log_open("inferd", (enum sw_log_level)(config.log_level + SW_LOG_LEVEL_FIRST));
    code = run(&config);
    sw_options_outcome_clear(&outcome);
    sw_options_free(&program, &config);
    return code;
}
