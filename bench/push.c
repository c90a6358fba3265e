/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage and publish through running daemons, beside a memcpy of the same bytes in the same run (and
 * with --connections beside plain send and recv over loopback): one trainer (this process), one
 * engine of one rank (a child process), parameters of equal size. Rounds are interleaved (memcpy,
 * loopback, stage, publish, memcpy, ...); the first two rounds populate both buffers, and are told
 * apart. After each round the engine's memory is compared with what was put. Prints one JSON
 * object. With --gate it stops around the last publish ("publish", then "published"; each waits for
 * a line), so that somebody can look at the daemons.
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <shardwire/engine.h>
#include <shardwire/trainer.h>

#include "bench/copy.h"
#include "bench/loopback.h"
#include "common/limits.h"

#define ROUNDS_MAX 64
#define WARM 2u /* rounds until both buffers of the replica were written */

struct bench {
    const char *trainerd, *inferd;
    uint64_t parameters, bytes; /* of each */
    unsigned rounds, threads, connections, tcp_threads;
    bool gate;
    int memfd;
    struct bench_loopback loopback;
    uint8_t *engine_memory;
    uint8_t *source;  /* all parameters, one after the other */
    uint8_t *scratch; /* target of the memcpy */
    double copy[ROUNDS_MAX], plain[ROUNDS_MAX], stage[ROUNDS_MAX], write[ROUNDS_MAX];
    double pause[ROUNDS_MAX], whole[ROUNDS_MAX]; /* whole: from publish to the result */
    double declare, begin;                       /* the first, with plan and replica */
    char transport[32];
};

static void fatal(const char *what, const struct sw_error *e)
{
    fprintf(stderr, "bench-push: %s: %s\n", what, e ? e->text : "failed");
    exit(1);
}

static uint64_t total(const struct bench *b)
{
    return b->parameters * b->bytes;
}

/* ---- the engine ---- */

static void engine_run(const struct bench *b)
{
    struct sw_engine_options o = {
        .size = sizeof(o), .socket = b->inferd, .engine = "bench", .threads = b->threads};
    struct sw_engine_options *options = &o;
    sw_engine *en = NULL;
    struct sw_error e = {0};
    uint32_t region;
    char name[64];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sw_engine_open(options, &en, &e) ||
        sw_engine_region(en, b->memfd, b->engine_memory, total(b), &region, &e))
        fatal("engine", &e);
    for (uint64_t i = 0; i < b->parameters; i++) {
        snprintf(name, sizeof(name), "layers.%" PRIu64 ".weight", i);
        if (sw_engine_parameter(en, name, SW_U8, 1, &b->bytes, region, i * b->bytes, &e))
            fatal("parameter", &e);
    }
    if (sw_engine_register(en, &e))
        fatal("register", &e);
    for (;;) {
        struct sw_event event;

        if (sw_engine_next_event(en, 60000, &event, &e))
            fatal("event", &e);
        if (event.kind != SW_EVENT_NONE && sw_engine_ack(en, &event, 0, NULL, &e))
            fatal("ack", &e);
    }
}

/* ---- the trainer ---- */

static void declare(const struct bench *b, sw_trainer *t)
{
    struct sw_source_tensor *tensors = calloc(b->parameters, sizeof(*tensors));
    char(*names)[64] = calloc(b->parameters, sizeof(*names));
    struct sw_error e = {0};

    if (!tensors || !names)
        fatal("declare", NULL);
    for (uint64_t i = 0; i < b->parameters; i++) {
        snprintf(names[i], sizeof(names[i]), "layers.%" PRIu64 ".weight", i);
        tensors[i] = (struct sw_source_tensor){
            .name = names[i], .dtype = SW_U8, .ndim = 1, .shape = {b->bytes}};
    }
    if (sw_trainer_declare(t, tensors, b->parameters, &e))
        fatal("declare", &e);
    free(tensors);
    free(names);
}

static void stage(struct bench *b, sw_trainer *t, unsigned round)
{
    struct sw_error e = {0};
    uint64_t start;
    char name[64];

    start = bench_now();
    if (sw_trainer_begin(t, 0, 0, NULL, &e))
        fatal("begin", &e);
    if (!round)
        b->begin = (double)(bench_now() - start);
    start = bench_now();
    for (uint64_t i = 0; i < b->parameters; i++) {
        struct sw_tensor value = {
            .data = b->source + i * b->bytes, .dtype = SW_U8, .ndim = 1, .shape = {b->bytes}};

        snprintf(name, sizeof(name), "layers.%" PRIu64 ".weight", i);
        if (sw_trainer_put(t, name, &value, &e))
            fatal("put", &e);
    }
    if (sw_trainer_end(t, 0, &e))
        fatal("end", &e);
    b->stage[round] = (double)(bench_now() - start);
}

static void gate(const struct bench *b, unsigned round, const char *word)
{
    char line[16];

    if (!b->gate || round + 1 != WARM + b->rounds)
        return;
    puts(word);
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        fatal("the gate is closed", NULL);
}

static void publish(struct bench *b, sw_trainer *t, unsigned round)
{
    struct sw_publish_result result;
    struct sw_error e = {0};
    uint64_t start;

    gate(b, round, "publish");
    start = bench_now();
    if (sw_trainer_publish(t, 0, &e) || sw_trainer_wait(t, 0, 0, &result, &e))
        fatal("publish", &e);
    b->whole[round] = (double)(bench_now() - start);
    gate(b, round, "published");
    b->write[round] = (double)result.engines[0].write_ns;
    b->pause[round] = (double)result.engines[0].pause_ns;
    snprintf(b->transport, sizeof(b->transport), "%s", result.engines[0].transport);
    if (memcmp(b->engine_memory, b->source, total(b)) != 0)
        fatal("the engine's memory differs from what was put", NULL);
}

static void run(struct bench *b)
{
    struct sw_trainer_options o = {.size = sizeof(o), .socket = b->trainerd, .threads = b->threads};
    sw_trainer *t = NULL;
    struct sw_error e = {0};
    uint64_t start;

    if (sw_trainer_open(&o, &t, &e))
        fatal("open", &e);
    start = bench_now();
    declare(b, t);
    b->declare = (double)(bench_now() - start);
    for (unsigned round = 0; round < WARM + b->rounds; round++) {
        memset(b->source, (int)round + 1, total(b));
        b->source[total(b) - 1] = 0xa5;
        b->copy[round] = (double)bench_copy(b->scratch, b->source, total(b), b->threads);
        if (b->connections)
            b->plain[round] = (double)bench_loopback_run(
                &b->loopback, b->scratch, b->source, total(b), SW_CHUNK_BYTES, b->tcp_threads);
        stage(b, t, round);
        publish(b, t, round);
    }
    sw_trainer_close(t);
}

static void print_series(const struct bench *b, const char *name, const double *values)
{
    printf(", \"%s\": [", name);
    for (unsigned i = 0; i < b->rounds; i++)
        printf("%s%.0f", i ? ", " : "", values[WARM + i]);
    printf("]");
}

/* All times in nanoseconds, one for each round. */
static void print(const struct bench *b)
{
    printf("{\"parameters\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"threads\": %u, "
           "\"transport\": \"%s\", \"connections\": %u, \"tcp_threads\": %u",
        b->parameters, total(b), b->threads, b->transport, b->connections, b->tcp_threads);
    print_series(b, "memcpy", b->copy);
    if (b->connections)
        print_series(b, "loopback", b->plain);
    print_series(b, "stage", b->stage);
    print_series(b, "write", b->write);
    print_series(b, "pause", b->pause);
    print_series(b, "publish", b->whole);
    printf(", \"first\": {\"declare\": %.0f, \"begin\": %.0f, \"stage\": %.0f, "
           "\"publish\": %.0f}}\n",
        b->declare, b->begin, b->stage[0], b->whole[0]);
}

static void *memory(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        fatal("no memory", NULL);
    memset(p, 1, bytes);
    return p;
}

static void make_memory(struct bench *b)
{
    b->memfd = memfd_create("bench-engine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (b->memfd < 0 || ftruncate(b->memfd, (off_t)total(b)) ||
        fcntl(b->memfd, F_ADD_SEALS, F_SEAL_SHRINK))
        fatal("memfd", NULL);
    b->engine_memory =
        mmap(NULL, total(b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, b->memfd, 0);
    if (b->engine_memory == MAP_FAILED)
        fatal("no memory", NULL);
    b->source = memory(total(b));
    b->scratch = memory(total(b));
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"trainerd", 1, NULL, 't'}, {"inferd", 1, NULL, 'i'},
        {"parameters", 1, NULL, 'p'}, {"bytes", 1, NULL, 'b'}, {"rounds", 1, NULL, 'r'},
        {"threads", 1, NULL, 'j'}, {"connections", 1, NULL, 'c'}, {"tcp-threads", 1, NULL, 'T'},
        {"gate", 0, NULL, 'g'}, {NULL, 0, NULL, 0}};
    struct bench b = {
        .parameters = 64, .bytes = 1 << 20, .rounds = 5, .threads = 1, .tcp_threads = 1};
    pid_t child;

    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case 't':
            b.trainerd = optarg;
            break;
        case 'i':
            b.inferd = optarg;
            break;
        case 'p':
            b.parameters = strtoull(optarg, NULL, 10);
            break;
        case 'b':
            b.bytes = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            b.rounds = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'j':
            b.threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            b.connections = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'T':
            b.tcp_threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'g':
            b.gate = true;
            break;
        default:
            return 2;
        }
    }
    if (!b.parameters || !b.bytes || !b.rounds || b.rounds > ROUNDS_MAX - WARM || !b.tcp_threads)
        return 2;
    make_memory(&b);
    if (b.connections)
        bench_loopback_open(&b.loopback, b.connections);
    child = fork();
    if (child == 0)
        engine_run(&b);
    if (child < 0)
        fatal("fork", NULL);
    run(&b);
    print(&b);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
