/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far transports are from what the machine gives, both measured in one run, in turns, medians:
 *   tcp    a write over a path, against plain blocking send and recv with the same connections,
 * call sizes and memory, over loopback: with the same threads, and with one for each connection;
 *   local  a write by the engine side's copier, against memcpy with the same threads.
 * All memory is touched beforehand.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench/copy.h"
#include "bench/loopback.h"
#include "common/transport/testing.h"

#define ROUNDS_MAX 99

struct options {
    uint64_t bytes, extent;
    unsigned connections, threads, rounds;
};

struct run {
    const struct options *o;
    struct sw_stage *stage;
    struct sw_path *path;
    struct sw_extent *extents;
    uint64_t n;
    struct bench_loopback loopback;
};

static void die(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(EXIT_FAILURE);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- ours ---- */

static double publish(struct run *r)
{
    const struct sw_id w = sw_stage_window(r->stage);
    const double start = now();
    struct sw_stage_outcome out = sw_stage_write(r->stage, r->path, &w, r->extents, r->n);
    const double took = now() - start;

    if (out.error.code)
        die(out.error.text);
    sw_stage_window_close(r->stage);
    return took;
}

/* ---- baselines ---- */

static double plain_with(struct run *r, unsigned threads)
{
    return (double)bench_loopback_run(&r->loopback, sw_stage_region(r->stage, 0),
               sw_stage_source_bytes(r->stage), r->o->bytes, SW_CHUNK_BYTES, threads) /
           1e9;
}

static double plain(struct run *r)
{
    return plain_with(r, r->o->threads);
}

static double plain_each(struct run *r)
{
    return plain_with(r, r->o->connections);
}

static double copy(struct run *r)
{
    return (double)bench_copy(sw_stage_region(r->stage, 0), sw_stage_source_bytes(r->stage),
               r->o->bytes, r->o->threads) /
           1e9;
}

/* ---- runs ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof(*values), by_value);
    return values[n / 2];
}

static void compare(struct run *r, const char *name, const char *baseline,
    double (*ours)(struct run *), double (*theirs)(struct run *), double target)
{
    double a[ROUNDS_MAX] = {0}, b[ROUNDS_MAX] = {0}, ratio[ROUNDS_MAX] = {0};
    const double gb = (double)r->o->bytes / 1e9;

    theirs(r); /* one of each to warm up: buffers of sockets grow */
    ours(r);
    for (unsigned i = 0; i < r->o->rounds; i++) {
        a[i] = ours(r);
        b[i] = theirs(r);
        ratio[i] = b[i] / a[i];
    }
    printf("%-6s %6.2f GB/s   %-10s %6.2f GB/s   ratio of medians %.2f   median of ratios %.2f   "
           "(target %.2f)\n",
        name, gb / median(a, r->o->rounds), baseline, gb / median(b, r->o->rounds),
        median(b, r->o->rounds) / median(a, r->o->rounds), median(ratio, r->o->rounds), target);
}

static void bench(const struct options *o, const struct sw_transport *t)
{
    const struct sw_run whole = {0, 0, o->bytes};
    const struct sw_stage_config c = {
        .transport = t,
        .source_bytes = o->bytes,
        .region_bytes = {o->bytes},
        .runs = &whole,
        .n_runs = 1,
        .threads = o->threads,
        .connections = o->connections,
    };
    struct run r = {.o = o, .stage = sw_stage_new(&c)};

    r.n = (o->bytes + o->extent - 1) / o->extent;
    r.extents = calloc(r.n, sizeof(*r.extents));
    if (!r.extents)
        die("memory");
    for (uint64_t i = 0; i < r.n; i++) {
        const uint64_t at = i * o->extent, rest = o->bytes - at;

        r.extents[i] = (struct sw_extent){at, at, rest < o->extent ? rest : o->extent, 0, 0};
    }
    r.path = sw_stage_path(r.stage, NULL);
    if (t == &sw_transport_tcp) {
        bench_loopback_open(&r.loopback, o->connections);
        compare(&r, "tcp", "send/recv", publish, plain, 0.9);
        compare(&r, "tcp", "one each", publish, plain_each, 0.9);
    } else {
        compare(&r, "local", "memcpy", publish, copy, 0.85);
    }
    if (memcmp(sw_stage_source_bytes(r.stage), sw_stage_region(r.stage, 0), o->bytes) != 0)
        die("the bytes differ");
    if (t == &sw_transport_tcp)
        bench_loopback_close(&r.loopback);
    sw_stage_path_close(r.stage, r.path);
    sw_stage_free(r.stage);
    free(r.extents);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    const uint64_t value = strtoull(text, &end, 10);

    if (*end || value < least || value > most) {
        fprintf(
            stderr, "bench: %s is not between %" PRIu64 " and %" PRIu64 "\n", text, least, most);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"bytes", required_argument, NULL, 'b'},
        {"extent", required_argument, NULL, 'e'},
        {"connections", required_argument, NULL, 'c'},
        {"threads", required_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'r'},
        {0},
    };
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct options o = {
        1ull << 30, 16ull << 20, SW_TCP_CONNECTIONS, cpus > 4 ? 4 : (unsigned)cpus, 5};
    int c;

    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'b')
            o.bytes = number(optarg, 1, 1ull << 40);
        else if (c == 'e')
            o.extent = number(optarg, 1, 1ull << 40);
        else if (c == 'c')
            o.connections = (unsigned)number(optarg, 1, BENCH_CONNECTIONS_MAX);
        else if (c == 't')
            o.threads = (unsigned)number(optarg, 1, 32);
        else if (c == 'r')
            o.rounds = (unsigned)number(optarg, 1, ROUNDS_MAX);
        else
            return 2;
    }
    printf("%" PRIu64 " bytes in extents of %" PRIu64 ", %u connections, %u threads each side, "
           "%u rounds\n",
        o.bytes, o.extent, o.connections, o.threads, o.rounds);
    bench(&o, &sw_transport_tcp);
    bench(&o, &sw_transport_local);
    return EXIT_SUCCESS;
}
