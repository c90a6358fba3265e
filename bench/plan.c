/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What planning costs at the scale of the published comparison: Kimi-K2 from 256 trainer ranks in
 * bf16 to engines of 32 ranks (TP 32, EP 32) in FP8 blocks of 64x64. Each case runs in a process of
 * its own, so that its peak memory is its own; on one core. Times are processor time. One JSON
 * object a case:
 *
 *   inputs_s   rules, config.json and what ranks declare: not part of a plan
 *   make_s     the layout, without its proof
 *   proof_s    the proof of the layout
 *   writes_s   who writes how much to whom
 *   plan_s     the three together
 *   written_s  only with --write: all load programs and all write programs written out, one by one
 *   rss_mib    peak of the process (inputs_rss_mib: when the inputs were there)
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trainerd/layouts.h"
#include "trainerd/plan/compact.h"
#include "trainerd/plan/scene.h"

struct options {
    const char *layouts, *config, *only;
    unsigned rounds;
    bool write, own;
};

static const struct planned {
    const char *name;
    enum sw_trainer_holds holds;
    uint32_t pp, engines;
} cases[] = {
    {"whole", SW_HOLDS_GATHERED, 8, 4},
    {"fsdp", SW_HOLDS_FSDP, 1, 4},
    {"shards", SW_HOLDS_SHARDS, 8, 4},
    {"whole x10 engines", SW_HOLDS_GATHERED, 8, 40},
    {"fsdp x10 engines", SW_HOLDS_FSDP, 1, 40},
};

struct result {
    double inputs, make, proof, writes, written;
    double inputs_rss, rss;
    uint64_t loads, extents, write_bytes;
};

static void die(const char *what)
{
    fprintf(stderr, "bench-plan: %s\n", what);
    exit(EXIT_FAILURE);
}

static void must(int err, const struct sw_error *e)
{
    if (err)
        die(e->text);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double peak_mib(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

/* ---- inputs ---- */

static char *read_file(const char *path, size_t *length)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(SW_CONFIG_FILE_MAX + 1);

    if (!f || !text)
        die("config.json can't be read");
    *length = fread(text, 1, SW_CONFIG_FILE_MAX, f);
    text[*length] = '\0';
    fclose(f);
    return text;
}

static struct sw_model *read_model(const struct options *o)
{
    size_t length;
    char *text = read_file(o->config, &length);
    struct sw_layouts *layouts;
    struct sw_config *config;
    const struct sw_rules *rules;
    struct sw_model *model;
    struct sw_error e;

    must(sw_layouts_read(o->layouts, &layouts, &e), &e);
    must(sw_config_parse(text, length, &config, &e), &e);
    must(sw_layouts_find(layouts, "auto", config, &rules, &e), &e);
    must(sw_model_make(rules, config, SW_ENGINE_SGLANG, &model, &e), &e);
    sw_config_free(config);
    sw_layouts_free(layouts);
    free(text);
    return model;
}

static void make_scene(
    const struct sw_model *model, const struct planned *p, struct sw_scene *scene)
{
    const struct sw_trainer_spec trainer = {.holds = p->holds,
        .world = 256,
        .tp = p->pp > 1 ? 8 : 1,
        .pp = p->pp,
        .ep = p->pp > 1 ? 32 : 1};
    const struct sw_engine_spec engine = {.kind = SW_ENGINE_SGLANG,
        .engines = p->engines,
        .tp = 32,
        .ep = 32,
        .scale = SW_SCALE_FP32,
        .block = {64, 64}};
    struct sw_error e;

    must(sw_scene_make(model, &trainer, &engine, scene, &e), &e);
}

/* Each target its own array of parameters, as targets of different processes have. */
static void give_own(struct sw_scene *scene)
{
    for (uint32_t i = 0; i < scene->n_targets; i++) {
        struct sw_plan_target *t = &scene->targets[i];
        const size_t bytes = t->n_parameters * sizeof(*t->parameters);
        struct sw_parameter *own = malloc(bytes);

        if (!own)
            die("no memory");
        memcpy(own, t->parameters, bytes);
        t->parameters = own;
    }
}

static void free_own(struct sw_scene *scene)
{
    for (uint32_t i = 0; i < scene->n_targets; i++)
        free((void *)(uintptr_t)scene->targets[i].parameters);
}

/* ---- planning ---- */

static void write_out(const struct sw_scene *scene, const struct sw_layout *l,
    const struct sw_writes *w, struct result *r)
{
    struct sw_error e;

    for (uint32_t i = 0; i < scene->n_ranks; i++) {
        struct sw_load_plan p;

        must(sw_layout_load(l, i, &p, &e), &e);
        r->loads += p.n_loads;
        sw_load_plan_clear(&p);
    }
    for (uint32_t i = 0; i < sw_writes_count(w); i++) {
        struct sw_write_plan p;

        must(sw_writes_get(w, i, &p, &e), &e);
        r->extents += p.n;
        r->write_bytes += p.bytes;
        sw_write_plan_clear(&p);
    }
}

static void print(const struct planned *p, const struct sw_scene *s, const struct sw_layout *l,
    const struct sw_writes *w, const struct options *o, const struct result *r)
{
    const struct sw_compact *c = sw_layout_compact(l);

    printf("{\"case\": \"%s\", \"trainer_ranks\": %u, \"engine_ranks\": %u, \"tensors\": %u, "
           "\"slabs\": %u, \"splits\": %u, \"runs\": %u, \"wants\": %" PRIu64
           ", \"kinds\": %u, \"pairs\": %u, \"inputs_s\": %.4f, \"make_s\": %.4f, "
           "\"proof_s\": %.4f, \"writes_s\": %.4f, \"plan_s\": %.4f, \"inputs_rss_mib\": %.1f, "
           "\"rss_mib\": %.1f",
        p->name, s->n_ranks, s->n_targets, c->n_entries, c->n_slabs, c->n_splits, c->n_runs,
        c->n_wants, c->n_kinds, sw_writes_count(w), r->inputs, r->make, r->proof, r->writes,
        r->make + r->proof + r->writes, r->inputs_rss, r->rss);
    if (o->write)
        printf(", \"written_s\": %.4f, \"loads\": %" PRIu64 ", \"extents\": %" PRIu64
               ", \"write_bytes\": %" PRIu64,
            r->written, r->loads, r->extents, r->write_bytes);
    printf("}\n");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

#define ROUNDS_MAX 99

static double median(double *times, unsigned n)
{
    qsort(times, n, sizeof(*times), compare);
    return times[n / 2];
}

/* Makes, proves and frees several times: medians. The last round's plan stays. */
static void plan(const struct options *o, const struct sw_scene *s, struct sw_layout **l,
    struct sw_writes **w, struct result *r)
{
    double make[ROUNDS_MAX] = {0}, proof[ROUNDS_MAX] = {0}, writes[ROUNDS_MAX] = {0};
    struct sw_error e;

    for (unsigned i = 0; i < o->rounds; i++) {
        double made, proven;

        if (i) {
            sw_writes_free(*w);
            sw_layout_free(*l);
        }
        make[i] = -now();
        must(sw_layout_make(s->ranks, s->n_ranks, s->targets, s->n_targets, NULL, l, NULL, &e), &e);
        made = now();
        must(sw_compact_prove(
                 sw_layout_compact(*l), s->ranks, s->n_ranks, s->targets, s->n_targets, &e),
            &e);
        proven = now();
        must(sw_writes_make(*l, s->targets, s->n_targets, w, &e), &e);
        proof[i] = proven - made;
        make[i] += made - proof[i]; /* it proves, too */
        writes[i] = now() - proven;
        if (i == 0)
            r->rss = peak_mib();
    }
    r->make = median(make, o->rounds);
    r->proof = median(proof, o->rounds);
    r->writes = median(writes, o->rounds);
}

static void run(const struct options *o, const struct planned *p)
{
    const double start = now();
    struct sw_model *model = read_model(o);
    struct sw_scene scene;
    struct sw_layout *l = NULL;
    struct sw_writes *w = NULL;
    struct result r = {0};

    make_scene(model, p, &scene);
    if (o->own)
        give_own(&scene);
    r.inputs = now() - start;
    r.inputs_rss = peak_mib();
    plan(o, &scene, &l, &w, &r);
    if (o->write) {
        r.written = -now();
        write_out(&scene, l, w, &r);
        r.written += now();
    }
    print(p, &scene, l, w, o, &r);
    sw_writes_free(w);
    sw_layout_free(l);
    if (o->own)
        free_own(&scene);
    sw_scene_clear(&scene);
    sw_model_free(model);
}

/* ---- the command line ---- */

static void usage(FILE *f)
{
    fprintf(f, "usage: bench-plan --layouts=DIR --config=FILE [--case=NAME] [--rounds=N] [--write] "
               "[--own]\n"
               "  --layouts  folder of layout files\n"
               "  --config   Kimi-K2's config.json\n"
               "  --case     only this one\n"
               "  --rounds   medians of so many (5)\n"
               "  --write    write all programs out, too\n"
               "  --own      every engine rank declares its parameters in an array of its own\n");
}

static struct options parse(int argc, char **argv)
{
    static const struct option all[] = {{"layouts", required_argument, NULL, 'l'},
        {"config", required_argument, NULL, 'c'}, {"case", required_argument, NULL, 'n'},
        {"rounds", required_argument, NULL, 'r'}, {"write", no_argument, NULL, 'w'},
        {"own", no_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    struct options o = {.only = NULL, .rounds = 5};
    int c;

    while ((c = getopt_long(argc, argv, "h", all, NULL)) != -1) {
        if (c == 'l')
            o.layouts = optarg;
        else if (c == 'c')
            o.config = optarg;
        else if (c == 'n')
            o.only = optarg;
        else if (c == 'r')
            o.rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'w')
            o.write = true;
        else if (c == 'o')
            o.own = true;
        else {
            usage(c == 'h' ? stdout : stderr);
            exit(c == 'h' ? EXIT_SUCCESS : 2);
        }
    }
    if (!o.layouts || !o.config || o.rounds < 1 || o.rounds > ROUNDS_MAX) {
        usage(stderr);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv)
{
    const struct options o = parse(argc, argv);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int status = 0;
        pid_t child;

        if (o.only && strcmp(cases[i].name, o.only) != 0)
            continue;
        fflush(stdout);
        child = fork();
        if (child == 0) {
            run(&o, &cases[i]);
            fflush(stdout);
            _exit(EXIT_SUCCESS);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            die("a case failed");
    }
    return EXIT_SUCCESS;
}
