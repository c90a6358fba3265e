/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer for tests that does what lines on standard input say, and can be held in the middle of
 * a put: the second half of the value lies in pages that may not be read until the line `go`, so
 * that libshardwire's copy faults there and waits in the handler.
 *
 *     slow_trainer SOCKET GROUP RANK WORLD DIR
 *
 * Commands: open, declare, begin V, put NAME, put-rest (all not put yet), hold NAME, ghost (a put
 * of an undeclared tensor), end MS, publish V, wait V MS, abort, close. Each is answered by `ok
 * COMMAND` or `error COMMAND: TEXT`; hold says `holding` first.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <shardwire/trainer.h>
#include "tools/checkpoint.h"

#define LINE 512

static struct {
    void *start;
    size_t bytes;
} forbidden;

struct slow {
    struct sw_trainer_options options;
    struct sw_checkpoint *checkpoint;
    sw_trainer *trainer;
};

/* Without a buffer: the handler reads, too. -1 = end of input. */
static int read_line(char *line)
{
    size_t n = 0;
    char c;

    while (read(STDIN_FILENO, &c, 1) == 1) {
        if (c == '\n') {
            line[n] = '\0';
            return 0;
        }
        if (n + 1 < LINE)
            line[n++] = c;
    }
    return -1;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    static const char text[] = "holding\n";
    char line[LINE];
    const char *at = info->si_addr, *start = forbidden.start;

    if (!start || at < start || at >= start + forbidden.bytes)
        abort();
    if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 || read_line(line) < 0)
        _exit(1);
    if (mprotect(forbidden.start, forbidden.bytes, PROT_READ) < 0)
        _exit(1);
}

static int declare(struct slow *s, struct sw_error *e)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(s->checkpoint, &n);
    struct sw_source_tensor *sources = calloc(n + 1, sizeof(*sources));
    int code;

    if (!sources)
        abort();
    for (size_t i = 0; i < n; i++) {
        sources[i].name = t[i].name;
        sources[i].dtype = t[i].dtype;
        sources[i].ndim = t[i].ndim;
        memcpy(sources[i].shape, t[i].shape, sizeof(sources[i].shape));
    }
    code = sw_trainer_declare(s->trainer, sources, n, e);
    free(sources);
    return code;
}

static int put(
    struct slow *s, const struct sw_checkpoint_tensor *t, const void *data, struct sw_error *e)
{
    struct sw_tensor value = {.data = data, .dtype = t->dtype, .ndim = t->ndim};

    memcpy(value.shape, t->shape, sizeof(value.shape));
    return sw_trainer_put(s->trainer, t->name, &value, e);
}

static int put_rest(struct slow *s, struct sw_error *e)
{
    size_t n;
    const struct sw_checkpoint_tensor *t = sw_checkpoint_tensors(s->checkpoint, &n);
    int code = 0;

    for (size_t i = 0; i < n && (!code || code == SW_ERR_EXISTS); i++)
        code = put(s, &t[i], t[i].data, e);
    return code == SW_ERR_EXISTS ? 0 : code;
}

/* Stops in the middle of the copy. */
static int hold(struct slow *s, const struct sw_checkpoint_tensor *t, struct sw_error *e)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), half = t->bytes / 2 / page * page;
    const size_t bytes = (t->bytes + page - 1) / page * page;
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int code;

    if (copy == MAP_FAILED || !half)
        abort();
    memcpy(copy, t->data, t->bytes);
    forbidden.start = copy + half;
    forbidden.bytes = bytes - half;
    if (mprotect(forbidden.start, forbidden.bytes, PROT_NONE) < 0)
        abort();
    code = put(s, t, copy, e);
    forbidden.start = NULL;
    munmap(copy, bytes);
    return code;
}

static int ghost(struct slow *s, struct sw_error *e)
{
    const float data[4] = {0};
    const struct sw_tensor value = {.data = data, .dtype = SW_F32, .ndim = 1, .shape = {4}};

    return sw_trainer_put(s->trainer, "ghost.weight", &value, e);
}

static int act(
    struct slow *s, const char *command, const char *a, const char *b, struct sw_error *e)
{
    const unsigned long number = strtoul(a, NULL, 10), ms = strtoul(b, NULL, 10);

    if (strcmp(command, "put") == 0 || strcmp(command, "hold") == 0) {
        const struct sw_checkpoint_tensor *t = sw_checkpoint_find(s->checkpoint, a);

        if (!t)
            abort();
        return command[0] == 'p' ? put(s, t, t->data, e) : hold(s, t, e);
    }
    if (strcmp(command, "open") == 0)
        return sw_trainer_open(&s->options, &s->trainer, e);
    if (strcmp(command, "declare") == 0)
        return declare(s, e);
    if (strcmp(command, "begin") == 0)
        return sw_trainer_begin(s->trainer, number, 0, NULL, e);
    if (strcmp(command, "put-rest") == 0)
        return put_rest(s, e);
    if (strcmp(command, "ghost") == 0)
        return ghost(s, e);
    if (strcmp(command, "end") == 0)
        return sw_trainer_end(s->trainer, (uint32_t)number, e);
    if (strcmp(command, "publish") == 0)
        return sw_trainer_publish(s->trainer, number, e);
    if (strcmp(command, "wait") == 0)
        return sw_trainer_wait(s->trainer, number, (uint32_t)ms, NULL, e);
    if (strcmp(command, "abort") == 0)
        return sw_trainer_abort(s->trainer, "the test says so", e);
    if (strcmp(command, "close") != 0)
        abort();
    sw_trainer_close(s->trainer);
    s->trainer = NULL;
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    struct slow s = {0};
    struct sw_error e = {0};
    char line[LINE], command[LINE], a[LINE], b[LINE];

    if (argc != 6)
        return 2;
    s.options = (struct sw_trainer_options){.size = sizeof(s.options),
        .socket = argv[1],
        .group = argv[2],
        .rank = (uint32_t)strtoul(argv[3], NULL, 10),
        .world = (uint32_t)strtoul(argv[4], NULL, 10)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sigaction(SIGSEGV, &action, NULL) < 0)
        return 1;
    if (sw_checkpoint_open(argv[5], SW_CHECKPOINT_DATA, &s.checkpoint, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    while (read_line(line) == 0) {
        a[0] = b[0] = '\0';
        if (sscanf(line, "%511s %511s %511s", command, a, b) < 1)
            continue;
        if (act(&s, command, a, b, &e))
            printf("error %s: %s\n", command, e.text);
        else
            printf("ok %s\n", command);
    }
    sw_trainer_close(s.trainer);
    sw_checkpoint_close(s.checkpoint);
    return 0;
}
