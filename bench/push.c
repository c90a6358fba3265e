/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage and publish through running daemons, beside a memcpy of the same bytes in the same run: one
 * trainer (this process), one engine of one rank (a child process), parameters of equal size.
 * Rounds are interleaved (memcpy, stage, publish, memcpy, ...); the first round populates memory
 * and is not counted. After each round the engine's memory is compared with what was put. Prints
 * one JSON object.
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
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

#define ROUNDS_MAX 64

struct bench {
    const char *trainerd, *inferd;
    uint64_t parameters, bytes; /* of each */
    unsigned rounds, threads;
    int memfd;
    uint8_t *engine_memory;
    uint8_t *source;  /* all parameters, one after the other */
    uint8_t *scratch; /* target of the memcpy */
    double copy[ROUNDS_MAX], stage[ROUNDS_MAX], write[ROUNDS_MAX], pause[ROUNDS_MAX];
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

    if (sw_trainer_begin(t, 0, 0, NULL, &e))
        fatal("begin", &e);
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

static void publish(struct bench *b, sw_trainer *t, unsigned round)
{
    struct sw_publish_result result;
    struct sw_error e = {0};

    if (sw_trainer_publish(t, 0, &e) || sw_trainer_wait(t, 0, 0, &result, &e))
        fatal("publish", &e);
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

    if (sw_trainer_open(&o, &t, &e))
        fatal("open", &e);
    declare(b, t);
    for (unsigned round = 0; round <= b->rounds; round++) {
        memset(b->source, (int)round + 1, total(b));
        b->source[total(b) - 1] = 0xa5;
        b->copy[round] = (double)bench_copy(b->scratch, b->source, total(b), b->threads);
        stage(b, t, round);
        publish(b, t, round);
    }
    sw_trainer_close(t);
}

static void print(struct bench *b)
{
    double bytes = (double)total(b);
    double copy = bench_median(b->copy + 1, b->rounds),
           stage = bench_median(b->stage + 1, b->rounds);
    double write = bench_median(b->write + 1, b->rounds),
           pause = bench_median(b->pause + 1, b->rounds);

    printf("{\"parameters\": %" PRIu64 ", \"bytes\": %.0f, \"threads\": %u, \"rounds\": %u, "
           "\"transport\": \"%s\", \"memcpy_ns\": %.0f, \"stage_ns\": %.0f, \"write_ns\": %.0f, "
           "\"pause_ns\": %.0f, \"memcpy_gbs\": %.2f, \"stage_gbs\": %.2f, \"write_gbs\": %.2f, "
           "\"stage_ratio\": %.3f, \"write_ratio\": %.3f}\n",
        b->parameters, bytes, b->threads, b->rounds, b->transport, copy, stage, write, pause,
        bytes / copy, bytes / stage, bytes / write, copy / stage, copy / write);
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
        {"threads", 1, NULL, 'j'}, {NULL, 0, NULL, 0}};
    struct bench b = {.parameters = 64, .bytes = 1 << 20, .rounds = 5, .threads = 1};
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
        default:
            return 2;
        }
    }
    if (!b.parameters || !b.bytes || !b.rounds || b.rounds >= ROUNDS_MAX)
        return 2;
    make_memory(&b);
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
