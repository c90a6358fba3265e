/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "common/log.h"
#include "common/notify.h"
#include "trainerd/server.h"

struct process {
    uv_signal_t term, interrupt;
    struct sw_trainerd *daemon;
};

static void on_ready(void *arg)
{
    sw_notify_ready("serving");
    sw_log(SW_LOG_INFO, "ready");
}

static void on_closed(void *arg)
{
    struct process *p = arg;

    uv_close((uv_handle_t *)&p->term, NULL);
    uv_close((uv_handle_t *)&p->interrupt, NULL);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct process *p = signal->data;

    sw_log(SW_LOG_INFO, "signal %d: shutting down", number);
    sw_notify_stopping("signal");
    sw_trainerd_close(p->daemon);
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
    uv_signal_init(&loop, &p.term);
    uv_signal_init(&loop, &p.interrupt);
    p.term.data = p.interrupt.data = &p;
    uv_signal_start(&p.term, on_signal, SIGTERM);
    uv_signal_start(&p.interrupt, on_signal, SIGINT);
    code = sw_trainerd_open(&loop, config, &handlers, &p.daemon, &e);
    if (code) {
        sw_log(SW_LOG_ERROR, "%s", e.text);
        if (p.daemon)
            sw_trainerd_close(p.daemon);
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
    signal(SIGPIPE, SIG_IGN);
    sw_log_open("trainerd", (enum sw_log_level)(config.log_level + SW_LOG_LEVEL_FIRST));
    code = serve(&config);
    sw_options_outcome_clear(&outcome);
    sw_options_free(&sw_trainerd_program, &config);
    return code;
}
