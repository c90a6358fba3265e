/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-quantise [--bytes=N] [--rounds=N] [--threads=N] [--json]: how fast puts quantise and cast,
 * beside a loop that reads and writes the same bytes and does nothing else (bench/mix.c). Tensors
 * of N bytes in all go through the executor, as a trainer's puts do.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bench/copy.h"
#include "bench/mix.h"
#include "client/executor.h"
#include "client/isa.h"
#include "client/loads.h"

#define COLUMNS 7168u
#define ROWS 2048u
#define ROUNDS_MAX 99
#define ELEMENTS ((uint64_t)ROWS * COLUMNS)

struct options {
    uint64_t bytes;
    unsigned rounds, threads;
    int json;
};

struct kind {
    const char *name;
    enum sw_dtype from, to;
    enum sw_scale_format scale; /* FP8 */
    unsigned in, out;           /* what the loop beside it reads and writes */
    int shared;                 /* maxima at put, values at the end */
};

static const struct kind kinds[] = {
    {"BF16 to FP8, FP32 scales", SW_BF16, SW_F8_E4M3, SW_SCALE_FP32, 2, 1, 0},
    {"BF16 to FP8, UE8M0 scales", SW_BF16, SW_F8_E4M3, SW_SCALE_UE8M0, 2, 1, 0},
    {"BF16 to FP8, at the end", SW_BF16, SW_F8_E4M3, SW_SCALE_FP32, 2, 1, 1},
    {"F32 to BF16", SW_F32, SW_BF16, SW_SCALE_NONE, 2, 1, 0},
    {"BF16 to F32", SW_BF16, SW_F32, SW_SCALE_NONE, 1, 2, 0},
    {"BF16 to F16", SW_BF16, SW_F16, SW_SCALE_NONE, 1, 1, 0},
};

struct memory {
    char *src, *dst; /* rooms for the largest kind */
    uint64_t *counters;
    float *maxima;
};

/* ---- the program: equal tensors, each with a tile of its own ---- */

struct program {
    uint32_t n;
    struct sw_source *sources;
    struct sw_load_template templates[2];
    struct sw_load *loads;
    struct sw_grid *grids;
    struct sw_tile *tiles;
    struct sw_loads *checked;
    struct sw_executor *x;
};

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "bench-quantise: no memory; try --bytes with less\n");
        exit(1);
    }
    return memory;
}

static void fill_in(struct program *p, const struct kind *k)
{
    const uint64_t out = sw_dtype_bits(k->to) / 8, blocks[2] = {ROWS / 128, COLUMNS / 128};
    const int fp8 = k->scale != SW_SCALE_NONE;
    uint64_t at = 0;

    p->templates[0] = (struct sw_load_template){fp8 ? SW_TRANSFORM_FP8_VALUES : SW_TRANSFORM_CAST,
        k->from, k->to, 2, {0}, {ROWS, COLUMNS}, {COLUMNS * out, out}};
    p->templates[1] = (struct sw_load_template){SW_TRANSFORM_FP8_SCALES, k->from, SW_F32, 2, {0},
        {blocks[0], blocks[1]}, {blocks[1] * 4, 4}};
    for (uint32_t i = 0; i < p->n; i++) {
        p->sources[i] =
            (struct sw_source){"w", k->from, 2, {ROWS, COLUMNS}, {2, {0}, {ROWS, COLUMNS}}};
        p->grids[i] = (struct sw_grid){
            i, {128, 128}, k->scale, (uint32_t)k->shared, i * blocks[0] * blocks[1]};
        p->loads[i] = (struct sw_load){i, 0, i, i, 0};
        p->tiles[i] = (struct sw_tile){at, ELEMENTS * out};
        at += ELEMENTS * out;
    }
    for (uint32_t i = 0; i < p->n && fp8; i++) {
        p->loads[p->n + i] = (struct sw_load){i, 1, p->n + i, i, 0};
        p->tiles[p->n + i] = (struct sw_tile){at, blocks[0] * blocks[1] * 4};
        at += blocks[0] * blocks[1] * 4;
    }
}

static void program_start(
    struct program *p, const struct kind *k, uint32_t n, unsigned threads, uint64_t room)
{
    const uint32_t fp8 = k->scale != SW_SCALE_NONE;
    struct sw_load_program all = {.replica_bytes = room};
    struct sw_error e;

    *p = (struct program){.n = n};
    p->sources = need(calloc(n, sizeof(*p->sources)));
    p->loads = need(calloc(2ull * n, sizeof(*p->loads)));
    p->grids = need(calloc(n, sizeof(*p->grids)));
    p->tiles = need(calloc(2ull * n, sizeof(*p->tiles)));
    fill_in(p, k);
    all.templates = p->templates;
    all.loads = p->loads;
    all.grids = p->grids;
    all.tiles = p->tiles;
    all.n_templates = all.total_templates = 1 + fp8;
    all.n_loads = all.total_loads = all.n_tiles = all.total_tiles = n * (1 + fp8);
    all.n_grids = all.total_grids = n * fp8;
    all.n_maxima = k->shared ? (uint64_t)n * (ROWS / 128) * (COLUMNS / 128) : 0;
    p->checked = need(sw_loads_new());
    if (sw_loads_add(p->checked, &all, &e) || sw_loads_check(p->checked, p->sources, n, &e)) {
        fprintf(stderr, "bench-quantise: %s\n", e.text);
        exit(1);
    }
    p->x = need(sw_executor_new(p->checked, p->sources, threads));
}

static void program_end(struct program *p)
{
    sw_executor_free(p->x);
    sw_loads_free(p->checked);
    free(p->sources);
    free(p->loads);
    free(p->grids);
    free(p->tiles);
}

/* Of all threads. On a machine that does other things as well, a ratio of these says what one of
 * times can't. */
static double cpu_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The nanoseconds that it took, and of CPU time. */
static uint64_t put_all(
    struct program *p, const struct kind *k, const struct memory *m, double *cpu)
{
    const uint64_t size = sw_dtype_bits(k->from) / 8;
    struct sw_error e = {0};
    uint64_t start;

    memset(m->counters, 0, 2ull * p->n * sizeof(*m->counters));
    sw_executor_begin(p->x, m->dst, m->counters);
    sw_executor_set_maxima(p->x, m->maxima, p->checked->n_maxima);
    start = bench_now();
    *cpu = cpu_time();
    for (uint32_t i = 0; i < p->n; i++) {
        const struct sw_tensor t = {m->src + i * ELEMENTS * size, k->from, 2, {ROWS, COLUMNS}};

        if (sw_executor_put(p->x, i, &t, &e)) {
            fprintf(stderr, "bench-quantise: %s\n", e.text);
            exit(1);
        }
    }
    if (k->shared) { /* only what comes after the reduction */
        start = bench_now();
        *cpu = cpu_time();
    }
    sw_executor_finish(p->x, &e);
    *cpu = cpu_time() - *cpu;
    return bench_now() - start;
}

/* ---- measuring ---- */

/* Weights as they are: small, of both signs, of different magnitudes. */
static void fill_source(const struct memory *m, enum sw_dtype type, uint64_t bytes)
{
    uint64_t state = 88172645463325252u;

    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t bits = 0;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if (type == SW_F32)
            bits = (state & 0x83ffffff83ffffff) | 0x3800000038000000;
        else
            bits = (state & 0x83ff83ff83ff83ff) | 0x3800380038003800;
        memcpy(m->src + i, &bits, 8);
    }
}

static void measure(const struct options *o, const struct kind *k, const struct memory *m,
    unsigned threads, int first)
{
    const uint64_t size = sw_dtype_bits(k->from) / 8;
    const uint32_t n = (uint32_t)(o->bytes / 4 / ELEMENTS);
    const uint64_t bytes = n * ELEMENTS * size;
    const double moved = (double)bytes * (k->in + k->out) / k->in;
    double plain[ROUNDS_MAX], ours[ROUNDS_MAX], ratio[ROUNDS_MAX], base, got, by_cpu;
    struct program p;

    program_start(&p, k, n, threads, o->bytes);
    for (int i = -1; i < (int)o->rounds; i++) { /* in turns; the first of each isn't counted */
        const double start = cpu_time();
        const double a = (double)bench_mix(m->dst, m->src, bytes, k->in, k->out, threads);
        const double loop = cpu_time() - start;
        double cpu;
        const double b = (double)put_all(&p, k, m, &cpu);

        if (i >= 0) {
            plain[i] = a;
            ours[i] = b;
            ratio[i] = loop / cpu;
        }
    }
    program_end(&p);
    base = bench_median(plain, o->rounds);
    got = bench_median(ours, o->rounds);
    by_cpu = bench_median(ratio, o->rounds);
    if (o->json)
        printf("%s{\"kind\": \"%s\", \"threads\": %u, \"isa\": \"%s\", \"memory\": %.3f, "
               "\"ours\": %.3f, \"by_cpu\": %.3f}",
            first ? "[" : ",\n ", k->name, threads, sw_isa_name(sw_isa_best()), moved / base,
            moved / got, by_cpu);
    else
        printf("%-26s %7u %10.2f %10.2f %8.2f %8.2f\n", k->name, threads, moved / base, moved / got,
            base / got, by_cpu);
    fflush(stdout);
}

static int take_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {{"bytes", required_argument, NULL, 'b'},
        {"rounds", required_argument, NULL, 'r'}, {"threads", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == 'b')
            o->bytes = strtoull(optarg, NULL, 10);
        else if (c == 'r')
            o->rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 't')
            o->threads = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'j')
            o->json = 1;
        else
            return -1;
    }
    return optind == argc && o->bytes / 4 >= ELEMENTS && o->bytes / 4 / ELEMENTS < 100000 &&
                   o->rounds >= 1 && o->rounds <= ROUNDS_MAX && o->threads <= 64
               ? 0
               : -1;
}

static char *room(uint64_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    need(memory == MAP_FAILED ? NULL : memory);
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    return memory;
}

int main(int argc, char **argv)
{
    struct options o = {.bytes = 1u << 30, .rounds = 5};
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct memory m;
    int first = 1;
    uint64_t n;

    if (take_options(argc, argv, &o)) {
        fprintf(stderr, "usage: bench-quantise [--bytes=N of F32] [--rounds=N] [--threads=N] "
                        "[--json]\n");
        return 2;
    }
    n = o.bytes / 4 / ELEMENTS;
    m.src = room(o.bytes);
    m.dst = room(o.bytes);
    m.counters = need(calloc(2 * n, sizeof(*m.counters)));
    m.maxima = need(calloc(n * (ROWS / 128) * (COLUMNS / 128), sizeof(*m.maxima)));
    if (!o.json)
        printf("%-26s %7s %10s %10s %8s %8s   GB/s, read and written (%s)\n", "", "threads",
            "memory", "put", "ratio", "by CPU", sw_isa_name(sw_isa_best()));
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        fill_source(&m, kinds[k].from, o.bytes);
        for (unsigned t = o.threads ? o.threads : 1; t <= (o.threads ? o.threads : (unsigned)cpus);
             t *= 2, first = 0)
            measure(&o, &kinds[k], &m, t, first);
    }
    if (o.json)
        printf("]\n");
    free(m.counters);
    free(m.maxima);
    return 0;
}
