/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer for tests that does what lines on standard input say, and can be held in the middle of
 * a put: the second half of the value lies in pages that may not be read until the line `go`, so
 * that libshardwire's copy faults there and waits in the handler.
 *
 *     slow_trainer SOCKET GROUP RANK WORLD DIR
 *
 * Commands: open, declare, begin V, put NAME, put-rest (all not put yet), hold NAME, guard NAME (a
 * put, after which the value may not be read: who reads it again is held), spoil NAME INDEX BITS (a
 * put with an element of the box changed), ghost (a put of an undeclared tensor), end MS, publish
 * V, wait V MS, abort, close. Each is answered by `ok COMMAND` or `error COMMAND: TEXT`; who is
 * held says `holding` first.
 *
 * Before declare: rows (this rank's part of the rows of every tensor), box NAME FIRST COUNT (other
 * rows of one), as NAME DTYPE, skip NAME.
 */
#include <signal.h>
#include <stdbool.h>
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

struct held { /* what this rank holds of a tensor */
    bool skipped;
    enum sw_dtype dtype; /* as it is declared */
    uint64_t first, rows;
};

struct slow {
    struct sw_trainer_options options;
    struct sw_checkpoint *checkpoint;
    const struct sw_checkpoint_tensor *tensors;
    size_t n;
    struct held *held; /* by tensor */
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

/* ---- what it holds ---- */

static size_t find(const struct slow *s, const char *name)
{
    const struct sw_checkpoint_tensor *t = sw_checkpoint_find(s->checkpoint, name);

    if (!t)
        abort();
    return (size_t)(t - s->tensors);
}

static void hold_all(struct slow *s)
{
    s->tensors = sw_checkpoint_tensors(s->checkpoint, &s->n);
    s->held = calloc(s->n + 1, sizeof(*s->held));
    if (!s->held)
        abort();
    for (size_t i = 0; i < s->n; i++)
        s->held[i] = (struct held){.dtype = s->tensors[i].dtype, .rows = s->tensors[i].shape[0]};
}

static void hold_rows(struct slow *s)
{
    const uint64_t rank = s->options.rank, world = s->options.world;

    for (size_t i = 0; i < s->n; i++) {
        const uint64_t all = s->tensors[i].shape[0];

        s->held[i].first = all * rank / world;
        s->held[i].rows = all * (rank + 1) / world - s->held[i].first;
        s->held[i].skipped = !s->held[i].rows;
    }
}

static int declare(struct slow *s, struct sw_error *e)
{
    struct sw_source_tensor *sources = calloc(s->n + 1, sizeof(*sources));
    size_t n = 0;
    int code;

    if (!sources)
        abort();
    for (size_t i = 0; i < s->n; i++) {
        const struct sw_checkpoint_tensor *t = &s->tensors[i];
        struct sw_source_tensor *source = &sources[n];

        if (s->held[i].skipped)
            continue;
        source->name = t->name;
        source->dtype = s->held[i].dtype;
        source->ndim = t->ndim;
        memcpy(source->shape, t->shape, sizeof(source->shape));
        memcpy(source->box_len, t->shape, sizeof(source->box_len));
        source->box_lo[0] = s->held[i].first;
        source->box_len[0] = s->held[i].rows;
        n++;
    }
    code = sw_trainer_declare(s->trainer, sources, n, e);
    free(sources);
    return code;
}

/* ---- puts ---- */

/* The bytes of the rows that it holds, and where they begin. */
static size_t part_of(const struct slow *s, size_t i, const char **data)
{
    const struct sw_checkpoint_tensor *t = &s->tensors[i];
    const size_t row = t->ndim && t->shape[0] ? t->bytes / t->shape[0] : t->bytes;

    *data = t->data ? (const char *)t->data + s->held[i].first * row : NULL;
    return t->ndim ? s->held[i].rows * row : t->bytes;
}

static int put(struct slow *s, size_t i, const void *data, struct sw_error *e)
{
    const struct sw_checkpoint_tensor *t = &s->tensors[i];
    struct sw_tensor value = {.data = data, .dtype = t->dtype, .ndim = t->ndim};

    memcpy(value.shape, t->shape, sizeof(value.shape));
    if (t->ndim)
        value.shape[0] = s->held[i].rows;
    return sw_trainer_put(s->trainer, t->name, &value, e);
}

static int put_one(struct slow *s, size_t i, struct sw_error *e)
{
    const char *data;

    part_of(s, i, &data);
    return put(s, i, data, e);
}

static int put_rest(struct slow *s, struct sw_error *e)
{
    int code = 0;

    for (size_t i = 0; i < s->n && (!code || code == SW_ERR_EXISTS); i++)
        if (!s->held[i].skipped)
            code = put_one(s, i, e);
    return code == SW_ERR_EXISTS ? 0 : code;
}

/* A copy of a value in pages of its own. */
static char *copy_of(const struct slow *s, size_t i, size_t *bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const char *data;
    const size_t used = part_of(s, i, &data);
    char *copy;

    *bytes = (used + page - 1) / page * page;
    copy = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        abort();
    if (data)
        memcpy(copy, data, used);
    return copy;
}

static void forbid(char *start, size_t bytes)
{
    forbidden.start = start;
    forbidden.bytes = bytes;
    if (mprotect(start, bytes, PROT_NONE) < 0)
        abort();
}

/* Stops in the middle of the copy. */
static int hold(struct slow *s, size_t i, struct sw_error *e)
{
    size_t bytes;
    char *copy = copy_of(s, i, &bytes);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), half = bytes / 2 / page * page;
    int code;

    if (!half)
        abort();
    forbid(copy + half, bytes - half);
    code = put(s, i, copy, e);
    forbidden.start = NULL;
    munmap(copy, bytes);
    return code;
}

/* Stops who reads the value once more, which end does with one of shared FP8 blocks. */
static int guard(struct slow *s, size_t i, struct sw_error *e)
{
    size_t bytes;
    char *copy = copy_of(s, i, &bytes);
    const int code = put(s, i, copy, e);

    forbid(copy, bytes);
    return code;
}

static int spoil(struct slow *s, size_t i, const char *index, const char *bits, struct sw_error *e)
{
    const unsigned size = sw_dtype_bits(s->tensors[i].dtype) / 8;
    const unsigned long long value = strtoull(bits, NULL, 16);
    size_t bytes;
    char *copy = copy_of(s, i, &bytes);
    int code;

    memcpy(copy + strtoull(index, NULL, 10) * size, &value, size); /* little endian */
    code = put(s, i, copy, e);
    munmap(copy, bytes);
    return code;
}

static int ghost(struct slow *s, struct sw_error *e)
{
    const float data[4] = {0};
    const struct sw_tensor value = {.data = data, .dtype = SW_F32, .ndim = 1, .shape = {4}};

    return sw_trainer_put(s->trainer, "ghost.weight", &value, e);
}

/* Commands about one tensor; 1 = it is none of them. */
static int act_on(struct slow *s, const char *command, char words[3][LINE], struct sw_error *e)
{
    static const char *const commands[] = {
        "put", "hold", "guard", "spoil", "box", "as", "skip", NULL};
    const char *const *known = commands;
    struct held *h;
    size_t i;

    while (*known && strcmp(command, *known) != 0)
        known++;
    if (!*known)
        return 1;
    i = find(s, words[0]);
    h = &s->held[i];
    switch (known - commands) {
    case 0:
        return put_one(s, i, e);
    case 1:
        return hold(s, i, e);
    case 2:
        return guard(s, i, e);
    case 3:
        return spoil(s, i, words[1], words[2], e);
    case 4:
        h->first = strtoull(words[1], NULL, 10);
        h->rows = strtoull(words[2], NULL, 10);
        h->skipped = false;
        return 0;
    case 5:
        h->dtype = sw_dtype_from_name(words[1]);
        return 0;
    default:
        h->skipped = true;
        return 0;
    }
}

static int act(struct slow *s, const char *command, char words[3][LINE], struct sw_error *e)
{
    const unsigned long number = strtoul(words[0], NULL, 10), ms = strtoul(words[1], NULL, 10);
    const int code = act_on(s, command, words, e);

    if (code != 1)
        return code;
    if (strcmp(command, "rows") == 0) {
        hold_rows(s);
        return 0;
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
    char line[LINE], command[LINE], words[3][LINE];

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
    hold_all(&s);
    while (read_line(line) == 0) {
        memset(words, 0, sizeof(words));
        if (sscanf(line, "%511s %511s %511s %511s", command, words[0], words[1], words[2]) < 1)
            continue;
        if (act(&s, command, words, &e))
            printf("error %s: %s\n", command, e.text);
        else
            printf("ok %s\n", command);
    }
    sw_trainer_close(s.trainer);
    sw_checkpoint_close(s.checkpoint);
    free(s.held);
    return 0;
}
