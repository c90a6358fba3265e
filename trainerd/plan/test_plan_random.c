/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random models, trainers and engines: the plan is made, written out, executed byte by byte, and
 * compared with what each engine rank must hold. Both proofs must pass; and must find what is
 * changed afterwards.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "common/test_suite.h"
#include "trainerd/plan/compact.h"
#include "trainerd/plan/random_engine.h"
#include "trainerd/plan/random_run.h"
#include "trainerd/plan/random_trainer.h"

#define ENGINES_MAX 3
#define TARGETS_MAX 24

static void *need(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);

    ck_assert_ptr_nonnull(p);
    return p;
}

struct scene { /* what is planned */
    const struct sw_plan_rank *ranks;
    const struct sw_plan_target *targets;
    uint32_t n_ranks, n_targets;
    struct sw_layout *layout;
    struct run run;
};

/* ---- the proofs see what is changed ---- */

/* The layout's own values, to be changed. */
static struct sw_compact *open_compact(const struct scene *s)
{
    return (struct sw_compact *)(uintptr_t)sw_layout_compact(s->layout);
}

static void expect_found(const struct scene *s, const char *what)
{
    struct sw_error e = {0};
    const int code = sw_compact_prove(
        sw_layout_compact(s->layout), s->ranks, s->n_ranks, s->targets, s->n_targets, &e);

    ck_assert_msg(code == SW_ERR_PLAN, "%s: %d %s", what, code, e.text);
}

static bool same_bytes(const struct sw_compact *c, uint32_t a, uint32_t b)
{
    const struct sw_slab *x = &c->slabs[a], *y = &c->slabs[b];
    const struct sw_box *p = &c->boxes[x->box], *q = &c->boxes[y->box];

    return x->format == y->format && x->source == y->source &&
           (x->box == y->box || (x->source == SW_NONE && p->ndim == q->ndim &&
                                    !memcmp(p->len, q->len, sizeof(p->len))));
}

static void change_wants(const struct scene *s, uint64_t *state, bool by_name)
{
    struct sw_compact *c = open_compact(s);
    struct sw_want *w = &c->wants[random_below(state, c->n_wants)], saved = *w;
    const unsigned bits = sw_dtype_bits(c->formats[c->slabs[w->slab].format].dst_dtype);

    w->offset += bits % 8 ? bits : bits / 8;
    expect_found(s, "a want's offset");
    *w = saved;
    w->slab = (uint32_t)random_below(state, c->n_slabs);
    if (!same_bytes(c, w->slab, saved.slab) && !by_name)
        expect_found(s, "a want's slab");
    *w = saved;
    c->kinds[0].n--;
    expect_found(s, "a want less");
    c->kinds[0].n++;
}

static void change_cells(const struct scene *s, uint64_t *state)
{
    struct sw_compact *c = open_compact(s);
    struct sw_cell *cell = &c->cells[random_below(state, c->n_cells)], saved = *cell;

    cell->bytes++;
    expect_found(s, "a cell's bytes");
    *cell = saved;
    if (cell->box.ndim) {
        cell->box.lo[random_below(state, cell->box.ndim)]++;
        expect_found(s, "a cell's box");
        *cell = saved;
        cell->box.len[random_below(state, cell->box.ndim)]--;
        expect_found(s, "a cell's length");
        *cell = saved;
    }
    cell->rank = s->n_ranks;
    expect_found(s, "a cell's rank");
    *cell = saved;
}

/* Two runs of one rank at the same place. */
static void change_bases(const struct scene *s, uint64_t *state)
{
    struct sw_compact *c = open_compact(s);
    const uint32_t a = (uint32_t)random_below(state, c->n_runs);
    const uint32_t b = (uint32_t)random_below(state, c->n_runs);
    const struct sw_split *x = &c->splits[c->runs[a].split], *y = &c->splits[c->runs[b].split];

    for (uint32_t i = 0; a != b && i < x->n; i++)
        for (uint32_t k = 0; k < y->n; k++) {
            uint64_t *base = &c->bases[c->runs[a].first + i], saved = *base;

            if (c->cells[x->first + i].rank != c->cells[y->first + k].rank)
                continue;
            *base = c->bases[c->runs[b].first + k];
            expect_found(s, "a run's base");
            *base = saved;
            return;
        }
}

static void change_slabs(const struct scene *s, uint64_t *state)
{
    struct sw_compact *c = open_compact(s);
    struct sw_slab *slab = &c->slabs[random_below(state, c->n_slabs)], saved = *slab;
    struct sw_format *f = &c->formats[slab->format], format = *f;

    slab->at = slab->at ? slab->at - 1 : c->runs[slab->run].n - 1;
    if (c->runs[slab->run].n > 1)
        expect_found(s, "a slab's place");
    *slab = saved;
    slab->box = (uint32_t)random_below(state, c->n_boxes);
    if (slab->source != SW_NONE && slab->box != saved.box)
        expect_found(s, "a slab's box");
    *slab = saved;
    f->dst_dtype = f->dst_dtype == SW_F32 ? SW_BF16 : SW_F32;
    expect_found(s, "a format's dtype");
    *f = format;
}

static void change_compact(const struct scene *s, uint64_t *state, bool by_name)
{
    struct sw_compact *c = open_compact(s);

    if (c->n_wants == 0)
        return;
    change_wants(s, state, by_name);
    change_cells(s, state);
    change_bases(s, state);
    change_slabs(s, state);
}

static int prove_written(const struct scene *s, struct sw_error *e)
{
    return sw_plan_prove(s->ranks, s->n_ranks, s->run.loads, s->targets, s->n_targets,
        s->run.writes, s->run.n_writes, e);
}

static void change_written(struct scene *s, uint64_t *state)
{
    struct sw_write_plan *w;
    struct sw_load_plan *l;
    struct sw_extent *x, saved;
    struct sw_error e;

    if (s->run.n_writes == 0)
        return;
    w = &s->run.writes[random_below(state, s->run.n_writes)];
    x = &w->extents[random_below(state, w->n)];
    saved = *x;
    x->dst++;
    ck_assert_int_eq(prove_written(s, &e), SW_ERR_PLAN);
    *x = saved;
    x->src++;
    ck_assert_int_eq(prove_written(s, &e), SW_ERR_PLAN);
    *x = saved;
    x->length--;
    ck_assert_int_eq(prove_written(s, &e), SW_ERR_PLAN);
    *x = saved;
    l = &s->run.loads[random_below(state, s->n_ranks)];
    if (l->n_loads) {
        struct sw_load *load = &l->loads[random_below(state, l->n_loads)];

        load->offset++;
        ck_assert_int_eq(prove_written(s, &e), SW_ERR_PLAN);
        load->offset--;
    }
}

/* ---- making, executing ---- */

static void make(struct scene *s, struct sw_fold *fold, const struct sw_plan_target *targets,
    uint32_t n_targets, enum sw_assignment assignment, run_values *values, void *arg)
{
    const struct sw_plan_options options = {.assignment = assignment};
    struct sw_plan_notes notes;
    struct sw_error e = {0};

    ck_assert_msg(sw_fold_ranks(fold, &s->ranks, &s->n_ranks, &e) == 0, "%s", e.text);
    s->targets = targets;
    s->n_targets = n_targets;
    ck_assert_msg(sw_layout_make(s->ranks, s->n_ranks, targets, n_targets, &options, &s->layout,
                      &notes, &e) == 0,
        "%s", e.text);
    ck_assert_msg(sw_compact_prove(sw_layout_compact(s->layout), s->ranks, s->n_ranks, targets,
                      n_targets, &e) == 0,
        "%s", e.text);
    run_plan(&s->run, s->layout, s->ranks, s->n_ranks, targets, n_targets, values, arg);
    ck_assert_msg(prove_written(s, &e) == 0, "%s", e.text);
}

/* With less memory tiles pass in waves: planned and proven, or refused because of one tensor. */
static void limit(const struct scene *s)
{
    const struct sw_compact *c = sw_layout_compact(s->layout);
    struct sw_plan_options options = {0};
    struct sw_layout *l;
    struct sw_error e = {0};
    int err;

    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (options.replica_limit < c->replica_bytes[r] / 2)
            options.replica_limit = c->replica_bytes[r] / 2;
    options.replica_limit -=
        options.replica_limit % SW_REPLICA_ALIGN; /* what replicas are rounded to */
    if (options.replica_limit == 0)
        return;
    err = sw_layout_make(s->ranks, s->n_ranks, s->targets, s->n_targets, &options, &l, NULL, &e);
    ck_assert_msg(
        err == 0 || strstr(e.text, "limit") || strstr(e.text, "replica"), "%d %s", err, e.text);
    if (err)
        return;
    for (uint32_t r = 0; r < s->n_ranks; r++)
        ck_assert_uint_le(sw_layout_compact(l)->replica_bytes[r], options.replica_limit);
    sw_layout_free(l);
}

static void clear(struct scene *s)
{
    run_clear(&s->run, s->targets);
    sw_layout_free(s->layout);
}

/* Bytes of a parameter must be what is expected; each was written once (or none: NULL). */
static void compare(const struct scene *s, uint32_t target, const struct sw_parameter *p,
    const uint8_t *expected, uint64_t bytes)
{
    const struct run_memory *m = &s->run.regions[target][p->region];

    for (uint64_t i = 0; i < bytes; i++) {
        if (m->written[p->offset + i] != (expected != NULL))
            ck_abort_msg("engine %s rank %u, parameter %s, byte %llu: written: %d",
                s->targets[target].engine, s->targets[target].engine_rank, p->name,
                (unsigned long long)i, m->written[p->offset + i]);
        if (expected && m->data[p->offset + i] != expected[i])
            ck_abort_msg("engine %s rank %u, parameter %s, byte %llu: %02x instead of %02x",
                s->targets[target].engine, s->targets[target].engine_rank, p->name,
                (unsigned long long)i, m->data[p->offset + i], expected[i]);
    }
}

static uint64_t count_written(const struct scene *s, uint32_t target)
{
    uint64_t n = 0;

    for (uint32_t k = 0; k < s->targets[target].n_regions; k++)
        for (uint64_t i = 0; i < s->run.regions[target][k].bytes; i++)
            n += s->run.regions[target][k].written[i];
    return n;
}

/* ---- models ---- */

static const uint8_t *stored_values(void *arg, const char *name)
{
    const struct random_model *m = arg;

    for (uint32_t i = 0; i < m->n_stored; i++)
        if (!strcmp(m->stored[i].name, name))
            return m->stored[i].data;
    ck_abort_msg("no tensor %s", name);
    return NULL;
}

static struct sw_model *parse(const struct random_model *m)
{
    struct sw_rules *rules;
    struct sw_config *config;
    struct sw_model *model;
    struct sw_error e;

    ck_assert_msg(sw_rules_parse("random", m->rules, strlen(m->rules), NULL, NULL, &rules, &e) == 0,
        "%s", e.text);
    ck_assert_msg(sw_config_parse(m->config, strlen(m->config), &config, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_model_make(rules, config, SW_ENGINE_SGLANG, &model, &e) == 0, "%s", e.text);
    sw_config_free(config);
    sw_rules_free(rules);
    return model;
}

static struct sw_fold *train(struct random_model *m)
{
    struct held_tensor *t = need(m->n_stored, sizeof(*t));
    struct sw_fold *fold;

    for (uint32_t i = 0; i < m->n_stored; i++)
        t[i] = (struct held_tensor){m->stored[i].name, m->stored[i].dtype, m->stored[i].ndim,
            m->stored[i].shape, m->stored[i].pattern};
    fold = random_trainer(&m->state, 1 + (uint32_t)random_below(&m->state, 6), t, m->n_stored);
    free(t);
    return fold;
}

static void check_engine(const struct scene *s, const struct engine_rank *r, uint32_t target)
{
    uint64_t bytes = 0;

    random_must(r != NULL);
    for (uint32_t i = 0; i < r->target.n_parameters; i++) {
        compare(s, target, &r->parameters[i], r->expected[i], r->bytes[i]);
        bytes += r->expected[i] && !r->parameters[i].alias_of ? r->bytes[i] : 0;
    }
    ck_assert_uint_eq(count_written(s, target), bytes);
}

/* Others come and go without a new layout: some of the targets, in another order. */
static void check_some(struct scene *s, const struct engine_rank *const *ranks, uint64_t *state,
    struct random_model *m)
{
    struct sw_plan_target *targets = need(TARGETS_MAX, sizeof(*targets));
    uint32_t of[TARGETS_MAX] = {0};
    struct scene some = *s;

    some.n_targets = 0;
    some.targets = targets;
    for (uint32_t i = s->n_targets; i-- > 0;)
        if (random_below(state, 2)) {
            of[some.n_targets] = i;
            targets[some.n_targets++] = s->targets[i];
        }
    run_plan(&some.run, s->layout, s->ranks, s->n_ranks, targets, some.n_targets, stored_values, m);
    for (uint32_t i = 0; i < some.n_targets; i++)
        check_engine(&some, ranks[of[i]], i);
    run_clear(&some.run, targets);
    free(targets);
}

START_TEST(a_random_model_arrives)
{
    struct random_model m;
    struct sw_model *model;
    struct sw_fold *fold;
    struct engine engines[ENGINES_MAX];
    const struct engine_rank *ranks[TARGETS_MAX] = {0};
    struct sw_plan_target *targets = need(TARGETS_MAX, sizeof(*targets));
    uint32_t n_engines, n = 0, k = 0;
    struct scene s = {0};

    random_model_make(&m, 1000 + (uint64_t)_i);
    model = parse(&m);
    n_engines = 1 + (uint32_t)random_below(&m.state, ENGINES_MAX);
    for (uint32_t i = 0; i < n_engines; i++) {
        random_engine_make(&engines[i], &m, model, i, &n);
        for (uint32_t r = 0; r < engines[i].n; r++, k++) {
            ranks[k] = &engines[i].ranks[r];
            targets[k] = ranks[k]->target;
        }
    }
    fold = train(&m);
    make(&s, fold, targets, n, (enum sw_assignment)random_below(&m.state, 2), stored_values, &m);
    for (uint32_t i = 0; i < n; i++)
        check_engine(&s, ranks[i], i);
    check_some(&s, ranks, &m.state, &m);
    limit(&s);
    change_compact(&s, &m.state, false);
    change_written(&s, &m.state);
    clear(&s);
    sw_fold_free(fold);
    for (uint32_t i = 0; i < n_engines; i++)
        random_engine_clear(&engines[i]);
    free(targets);
    sw_model_free(model);
    random_model_clear(&m);
}
END_TEST

/* ---- identity ---- */

#define TENSORS_MAX 12
#define NAMED_MAX 5

struct named { /* checkpoint tensors, and engine ranks that have some of them by name */
    uint64_t state;
    uint32_t n;
    struct held_tensor tensors[TENSORS_MAX];
    uint64_t shapes[TENSORS_MAX][SW_MAX_DIMS];
    char names[TENSORS_MAX][16], alias_names[TENSORS_MAX][16];
    uint8_t *data[TENSORS_MAX];
    uint64_t bytes[TENSORS_MAX];
    struct sw_parameter parameters[NAMED_MAX][2 * TENSORS_MAX];
    uint32_t source[NAMED_MAX][2 * TENSORS_MAX];
    uint64_t region_bytes[NAMED_MAX][2];
    struct sw_plan_target targets[NAMED_MAX];
};

static const uint8_t *named_values(void *arg, const char *name)
{
    const struct named *d = arg;

    for (uint32_t i = 0; i < d->n; i++)
        if (!strcmp(d->names[i], name))
            return d->data[i];
    ck_abort_msg("no tensor %s", name);
    return NULL;
}

static void make_tensor(struct named *d, uint32_t i)
{
    static const enum sw_dtype dtypes[] = {
        SW_BF16, SW_F32, SW_U8, SW_F4, SW_I64, SW_F6_E2M3, SW_F16, SW_BOOL, SW_C64, SW_F8_E4M3};
    const enum sw_dtype dtype = dtypes[random_below(&d->state, 10)];
    const uint32_t ndim = (uint32_t)random_below(&d->state, 5) + (sw_dtype_bits(dtype) % 8 ? 1 : 0);

    for (uint32_t k = 0; k < ndim; k++)
        d->shapes[i][k] = random_below(&d->state, 20) ? 1 + random_below(&d->state, 5) : 0;
    if (sw_dtype_bits(dtype) % 8)
        d->shapes[i][ndim - 1] = 8 * random_below(&d->state, 3);
    snprintf(d->names[i], sizeof(d->names[i]), "t%u", i);
    snprintf(d->alias_names[i], sizeof(d->alias_names[i]), "a%u", i);
    d->tensors[i] = (struct held_tensor){d->names[i], dtype, ndim, d->shapes[i], i % 8};
    if (i && random_below(&d->state, 3) == 0) { /* like the one before, as layers are */
        d->tensors[i].dtype = d->tensors[i - 1].dtype;
        d->tensors[i].ndim = d->tensors[i - 1].ndim;
        d->tensors[i].pattern = d->tensors[i - 1].pattern;
        memcpy(d->shapes[i], d->shapes[i - 1], sizeof(d->shapes[i]));
    }
    ck_assert_int_eq(
        sw_tensor_bytes(d->tensors[i].dtype, d->tensors[i].ndim, d->shapes[i], &d->bytes[i]), 0);
    d->data[i] = need(d->bytes[i], 1);
    for (uint64_t k = 0; k < d->bytes[i]; k++)
        d->data[i][k] = (uint8_t)random_next(&d->state);
}

static void add_named(struct named *d, uint32_t target, uint32_t source, uint64_t *ends)
{
    struct sw_plan_target *t = &d->targets[target];
    const uint32_t region = (uint32_t)random_below(&d->state, 2), i = t->n_parameters++;
    struct sw_parameter *p = &d->parameters[target][i];

    if (random_below(&d->state, 3) == 0)
        ends[region] += random_below(&d->state, 9);
    *p = (struct sw_parameter){.name = d->names[source],
        .dtype = d->tensors[source].dtype,
        .ndim = d->tensors[source].ndim,
        .region = region,
        .offset = ends[region]};
    memcpy(p->shape, d->shapes[source], p->ndim * sizeof(*p->shape));
    ends[region] += d->bytes[source];
    d->source[target][i] = source;
    if (random_below(&d->state, 5) == 0 && d->bytes[source]) { /* another name for it */
        struct sw_parameter *alias = &d->parameters[target][t->n_parameters];

        d->source[target][t->n_parameters++] = source;
        *alias = *p;
        alias->name = d->alias_names[source];
        alias->alias_of = p->name;
    }
}

static void make_named(struct named *d, uint64_t seed)
{
    *d = (struct named){.state = seed};
    d->n = 1 + (uint32_t)random_below(&d->state, TENSORS_MAX);
    for (uint32_t i = 0; i < d->n; i++)
        make_tensor(d, i);
    for (uint32_t i = 0; i < NAMED_MAX; i++) {
        uint64_t ends[2] = {0};

        d->targets[i] = (struct sw_plan_target){.target = i,
            .engine = "A",
            .engine_rank = i,
            .host = i,
            .n_regions = 2,
            .region_bytes = d->region_bytes[i],
            .parameters = d->parameters[i]};
        for (uint32_t k = 0; k < d->n; k++)
            if (random_below(&d->state, 4))
                add_named(d, i, k, ends);
        d->region_bytes[i][0] = ends[0];
        d->region_bytes[i][1] = ends[1] + 3;
        if (i && random_below(&d->state, 3) == 0) { /* of the kind of the one before */
            d->targets[i].parameters = d->parameters[i - 1];
            d->targets[i].n_parameters = d->targets[i - 1].n_parameters;
            memcpy(d->parameters[i], d->targets[i - 1].parameters, sizeof(d->parameters[i]));
            memcpy(d->source[i], d->source[i - 1], sizeof(d->source[i]));
            memcpy(d->region_bytes[i], d->region_bytes[i - 1], sizeof(d->region_bytes[i]));
            d->targets[i].parameters = d->parameters[i];
        }
    }
}

START_TEST(random_names_arrive)
{
    struct named *d = need(1, sizeof(*d));
    struct scene s = {0};
    struct sw_fold *fold;

    make_named(d, 5000 + (uint64_t)_i);
    fold = random_trainer(&d->state, 1 + (uint32_t)random_below(&d->state, 6), d->tensors, d->n);
    make(&s, fold, d->targets, NAMED_MAX, SW_ASSIGN_BALANCED, named_values, d);
    for (uint32_t i = 0; i < NAMED_MAX; i++) {
        uint64_t bytes = 0;

        for (uint32_t k = 0; k < d->targets[i].n_parameters; k++) {
            const uint32_t source = d->source[i][k];

            compare(&s, i, &d->parameters[i][k], d->data[source], d->bytes[source]);
            bytes += d->parameters[i][k].alias_of ? 0 : d->bytes[source];
        }
        ck_assert_uint_eq(count_written(&s, i), bytes);
    }
    limit(&s);
    change_compact(&s, &d->state, true);
    change_written(&s, &d->state);
    clear(&s);
    sw_fold_free(fold);
    for (uint32_t i = 0; i < d->n; i++)
        free(d->data[i]);
    free(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("random plans");
    TCase *t = tcase_create("all");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_random_model_arrives, 0, 60);
    tcase_add_loop_test(t, random_names_arrive, 0, 200);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
