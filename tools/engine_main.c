/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shardwire-engine: one rank of the reference engine. It "generates" by checking that its weights
 * do not change (tools/guard.h), and follows updates: pause -> (memory is written) -> resume. When
 * inferd goes away it registers again with back-off, and generates on meanwhile.
 *
 * One thread talks to libshardwire, waits for signals and lines, and prints; the guard has its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
#include <shardwire/engine.h>
#include "common/limits.h"
#include "tools/engine_layout.h"
#include "tools/guard.h"
#include "tools/weights.h"

#define EXIT_CHANGED 3

struct process {
    struct sw_engine_arguments args;
    sw_engine *engine;
    struct sw_engine_layout layout;
    struct sw_weights weights;
    struct sw_guard *guard;
    int signals;               /* signalfd */
    bool input_open;           /* standard input is still read */
    char line[64];             /* of it, unfinished */
    size_t line_used;          /* sizeof(line) = too long, ignored up to its end */
    bool paused;               /* as the guard knows it */
    bool activated;            /* since the last pause */
    bool asked;                /* digests are being made */
    bool ask_again;            /* and were asked for meanwhile */
    bool hold[SW_EVENT_KINDS]; /* the next event of this kind waits for a line `go` */
    bool go;                   /* that line came */
    bool ended;                /* with this status: */
    int status;
};

static void end(struct process *p, int status)
{
    if (!p->ended)
        p->status = status;
    p->ended = true;
}

static void complain(const struct process *p, const char *what, const struct sw_error *e)
{
    fprintf(stderr, "shardwire-engine %s/%u: %s: %s\n", p->args.name, p->args.rank, what, e->text);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void ask_digests(struct process *p)
{
    if (p->asked)
        p->ask_again = true;
    else
        sw_guard_request(p->guard);
    p->asked = true;
    if (p->paused)
        printf("digests wait: paused\n");
}

static void on_signals(struct process *p)
{
    struct signalfd_siginfo info;

    while (read(p->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGUSR1)
            ask_digests(p);
        else
            end(p, 0);
    }
}

/* Commands, one a line. */
static void on_line(struct process *p, const char *line)
{
    const int kind = strncmp(line, "hold ", 5) == 0 ? sw_event_find(line + 5) : -1;

    if (strcmp(line, "digests") == 0)
        ask_digests(p);
    else if (strcmp(line, "go") == 0)
        p->go = true;
    else if (kind >= 0)
        p->hold[kind] = true;
    else
        fprintf(stderr, "shardwire-engine: unknown command; known: digests, hold PHASE, go\n");
}

static void on_input(struct process *p)
{
    char bytes[256];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

    if (n <= 0 && !(n < 0 && (errno == EINTR || errno == EAGAIN)))
        p->input_open = false;
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (p->line_used < sizeof(p->line))
                p->line[p->line_used++] = bytes[i];
            continue;
        }
        p->line[p->line_used < sizeof(p->line) ? p->line_used : 0] = '\0';
        on_line(p, p->line);
        p->line_used = 0;
    }
}

static int print_digests(const struct process *p, const struct sw_guard_report *r, FILE *out)
{
    for (size_t i = 0; i < p->weights.n; i++)
        fprintf(out, "%s %s\n", r->hex[i], p->weights.items[i].name);
    fprintf(out, "end %" PRIu64 "\n", r->version);
    return fflush(out) || ferror(out) ? -1 : 0;
}

/* Into a file beside, then renamed: who reads it sees all or the last one. */
static int write_digests(const struct process *p, const struct sw_guard_report *r)
{
    char path[4096];
    FILE *out;
    int code;

    if ((size_t)snprintf(path, sizeof(path), "%s.new", p->args.digests) >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    out = fopen(path, "we");
    if (!out)
        return -1;
    code = print_digests(p, r, out);
    if (fclose(out) || code || rename(path, p->args.digests) < 0)
        return -1;
    printf("digests version=%" PRIu64 " file=%s\n", r->version, p->args.digests);
    return 0;
}

static void on_changed(struct process *p, const struct sw_guard_report *r)
{
    const uint8_t *block = p->weights.regions[r->region].base + r->offset;
    const struct sw_weight *w = sw_weights_at(&p->weights, block);

    fprintf(stderr,
        "shardwire-engine %s/%u: WEIGHTS CHANGED while not paused: in %" PRIu64 " bytes at %" PRIu64
        " of region %zu (there: %s), version %" PRIu64 "\n",
        p->args.name, p->args.rank, r->bytes, r->offset, r->region, w ? w->name : "padding",
        r->version);
    printf("changed version=%" PRIu64 " region=%zu offset=%" PRIu64 "\n", r->version, r->region,
        r->offset);
    end(p, EXIT_CHANGED);
}

static void on_news(struct process *p)
{
    struct sw_guard_report r;

    sw_guard_take(p->guard, &r);
    if (r.news == SW_GUARD_CHANGED) {
        on_changed(p, &r);
        return;
    }
    if (r.news == SW_GUARD_NOTHING)
        return;
    if (r.news == SW_GUARD_FAILED)
        complain(p, "digests", &r.error);
    else if ((strcmp(p->args.digests, "-") == 0 ? print_digests(p, &r, stdout)
                                                : write_digests(p, &r)) < 0)
        fprintf(stderr, "shardwire-engine: write digests to %s: %s\n", p->args.digests,
            strerror(errno));
    p->asked = false;
    if (p->ask_again) {
        p->ask_again = false;
        ask_digests(p);
    }
}

/* Waits for signals, lines, news and (engine = true) libshardwire; at most timeout_ms, -1 = without
 * end. */
static void wait_for_something(struct process *p, bool engine, int timeout_ms)
{
    struct pollfd fds[] = {
        {.fd = p->signals, .events = POLLIN},
        {.fd = sw_guard_fd(p->guard), .events = POLLIN},
        {.fd = p->input_open ? STDIN_FILENO : -1, .events = POLLIN},
        {.fd = engine ? sw_engine_fd(p->engine) : -1, .events = POLLIN},
    };

    if (poll(fds, sizeof(fds) / sizeof(fds[0]), timeout_ms) <= 0)
        return;
    if (fds[0].revents)
        on_signals(p);
    if (fds[1].revents)
        on_news(p);
    if (fds[2].revents)
        on_input(p);
}

static void wait_ms(struct process *p, uint32_t ms)
{
    const uint64_t until = now_ms() + ms;

    for (uint64_t now = now_ms(); !p->ended && now < until; now = now_ms())
        wait_for_something(p, false, (int)(until - now));
}

/* What the engine itself does at an event, before it acknowledges. */
static void act(struct process *p, const struct sw_event *event)
{
    switch (event->kind) {
    case SW_EVENT_PAUSE:
        sw_guard_pause(p->guard);
        p->paused = true;
        p->activated = false;
        printf("paused update=%" PRIu64 " version=%" PRIu64 "\n", event->update,
            sw_engine_version(p->engine, NULL));
        break;
    case SW_EVENT_PREPARE:
        printf("prepared update=%" PRIu64 "\n", event->update);
        break;
    case SW_EVENT_POST:
        printf("post update=%" PRIu64 "\n", event->update);
        break;
    case SW_EVENT_ACTIVATE:
        p->activated = true;
        printf("activated update=%" PRIu64 " version=%" PRIu64 "\n", event->update, event->version);
        break;
    case SW_EVENT_RESUME:
        /* Without an activation the bytes must be those of before: the guard compares them. */
        sw_guard_resume(p->guard, event->version, p->activated);
        p->paused = p->activated = false;
        printf("live version=%" PRIu64 " update=%" PRIu64 "\n", event->version, event->update);
        break;
    default:
        break;
    }
}

/* Until a line `go`, or the end of input. */
static void hold(struct process *p, enum sw_event_kind kind)
{
    p->hold[kind] = p->go = false;
    printf("holding phase=%s\n", sw_event_name(kind));
    while (!p->go && !p->ended && p->input_open)
        wait_for_something(p, false, -1);
}

static int on_event(struct process *p, const struct sw_event *event, struct sw_error *e)
{
    const char *name = sw_event_name(event->kind), *fail = p->args.inject[event->kind].fail;

    if (p->args.inject[event->kind].die) {
        printf("dying at %s\n", name);
        raise(SIGKILL);
    }
    if (p->args.inject[event->kind].delay_ms) {
        printf("delay phase=%s ms=%u\n", name, p->args.inject[event->kind].delay_ms);
        wait_ms(p, p->args.inject[event->kind].delay_ms);
    }
    if (p->hold[event->kind])
        hold(p, event->kind);
    if (p->ended)
        return 0;
    if (fail) {
        printf("failing phase=%s update=%" PRIu64 "\n", name, event->update);
        if (p->args.inject[event->kind].fail_once)
            p->args.inject[event->kind].fail = NULL;
        return sw_engine_ack(p->engine, event, SW_ERR_STATE, fail, e);
    }
    act(p, event);
    return sw_engine_ack(p->engine, event, 0, NULL, e);
}

/* All events that are there. */
static int follow(struct process *p, struct sw_error *e)
{
    struct sw_event event = {0};

    while (!p->ended) {
        int code = sw_engine_next_event(p->engine, 0, &event, e);
        if (!code && event.kind != SW_EVENT_NONE)
            code = on_event(p, &event, e);
        if (code || event.kind == SW_EVENT_NONE)
            return code;
    }
    return 0;
}

/* Trying again can't help with these. */
static bool final(int code)
{
    return code == SW_ERR_INVALID || code == SW_ERR_EXISTS || code == SW_ERR_AUTH ||
           code == SW_ERR_LIMIT || code == SW_ERR_UNSUPPORTED;
}

static void announce(const struct process *p, const char *what)
{
    printf("%s engine=%s rank=%u world=%u parameters=%zu bytes=%" PRIu64 " version=%" PRIu64
           " pid=%d\n",
        what, p->args.name, p->args.rank, p->args.world, p->weights.n, p->weights.bytes,
        sw_engine_version(p->engine, NULL), (int)getpid());
}

/* inferd is gone: registers again, with back-off, until it succeeds or the process is to end. */
static void register_again(struct process *p, struct sw_error *e)
{
    uint32_t back_off = SW_RECONNECT_MIN_MS;
    int code;

    printf("lost inferd: %s\n", e->text);
    while (!p->ended) {
        wait_ms(p, back_off);
        if (p->ended)
            return;
        code = sw_engine_register(p->engine, e);
        if (!code) {
            int paused = 0;
            const uint64_t version = sw_engine_version(p->engine, &paused);
            announce(p, "registered");
            if (p->paused && !paused) { /* the library decided that the update is over */
                sw_guard_resume(p->guard, version, p->activated);
                p->paused = p->activated = false;
                printf("live version=%" PRIu64 " update=0\n", version);
            }
            return;
        }
        if (final(code)) {
            complain(p, "register again", e);
            end(p, EXIT_FAILURE);
        }
        back_off = back_off * 2 < SW_RECONNECT_MAX_MS ? back_off * 2 : SW_RECONNECT_MAX_MS;
    }
}

static void serve(struct process *p)
{
    struct sw_error e = {0};

    while (!p->ended) {
        const int code = follow(p, &e);
        if (code)
            register_again(p, &e);
        else if (!p->ended)
            wait_for_something(p, true, -1);
    }
}

static int start(struct process *p, struct sw_error *e)
{
    struct sw_engine_options options = {.size = sizeof(options),
        .socket = p->args.socket,
        .group = p->args.group,
        .engine = p->args.name,
        .rank = p->args.rank,
        .world = p->args.world,
        .threads = p->args.threads};
    int code = sw_engine_layout_read(&p->args, &p->layout, e);

    if (!code) {
        sw_engine_layout_tell(&p->args, &p->layout, &options);
        code = sw_engine_open(&options, &p->engine, e);
    }
    if (!code)
        code = sw_weights_declare(
            p->engine, &p->layout.parameters, p->args.region_bytes, &p->weights, e);
    if (!code)
        code = sw_guard_new(&p->weights, p->args.threads, p->args.check_interval_ms, &p->guard, e);
    if (!code)
        code = sw_engine_register(p->engine, e);
    if (code)
        return code;
    sw_guard_resume(p->guard, 0, true);
    announce(p, "registered");
    return 0;
}

/* Before any thread: they all leave these signals to the signalfd. */
static int take_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
    struct process p = {.input_open = true};
    struct sw_error e = {0};
    int code = sw_engine_arguments_parse(argc, argv, &p.args);

    if (code)
        return code - 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    p.signals = take_signals();
    if (p.signals < 0) {
        perror("shardwire-engine: signals");
        return EXIT_FAILURE;
    }
    code = start(&p, &e);
    if (code) {
        complain(&p, "start", &e);
        end(&p, EXIT_FAILURE);
    }
    serve(&p);
    sw_guard_free(p.guard);
    sw_engine_close(p.engine);
    sw_weights_clear(&p.weights);
    sw_engine_layout_clear(&p.layout);
    close(p.signals);
    return p.status;
}
