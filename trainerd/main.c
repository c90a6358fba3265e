/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "common/daemon.h"
#include "common/log.h"
#include "common/notify.h"
#include "trainerd/server.h"

struct process {
    struct sw_daemon daemon;
    struct sw_trainerd *trainerd;
};

static void on_ready(void *arg)
{
    sw_notify_ready("serving");
    sw_log(SW_LOG_INFO, "ready");
}

static void on_closed(void *arg)
{
    struct process *p = arg;

    sw_daemon_unwatch(&p->daemon);
}

static void on_stop(void *arg)
{
    struct process *p = arg;

    sw_trainerd_close(p->trainerd);
}

static int serve(const struct sw_trainerd_config *config)
{
    struct process p = {0};
    struct sw_trainerd_handlers handlers = {on_ready, on_closed, &p};
    struct sw_error e = {0};
    uv_loop_t loop;
    int code;

    if (uv_loop_init(&loop)) {
        sw_log(SW_LOG_ERROR, "no event loop");
        return EXIT_FAILURE;
    }
    code = sw_daemon_watch(&p.daemon, &loop, on_stop, &p, &e);
    if (!code)
        code = sw_trainerd_open(&loop, config, &handlers, &p.trainerd, &e);
    if (code) {
        sw_log(SW_LOG_ERROR, "trainerd can't start: %s", e.text);
        if (p.trainerd)
            sw_trainerd_close(p.trainerd);
        else
            on_closed(&p);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return code ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct sw_trainerd_config config;
    struct sw_options_outcome outcome;
    int code = sw_options_main(&sw_trainerd_program, argc, argv, &config, &outcome);

    if (code >= 0)
        return code;
    sw_log_open("trainerd", (enum sw_log_level)(config.log_level + SW_LOG_LEVEL_FIRST));
    code = serve(&config);
    sw_options_outcome_clear(&outcome);
    sw_options_free(&sw_trainerd_program, &config);
    return code;
}
