/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planner is given: the trainer world folded into what ranks have in common, and engine
 * ranks with their models and placements. What the planner keeps pointers to is held by references.
 */
#include <stdlib.h>
#include <string.h>

#include "common/engine_rank.h"
#include "trainerd/coordinator/internal.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the plan");
}

/* ---- trainer ranks ---- */

void sw_coord_plan_ranks_release(struct plan_ranks *ranks)
{
    if (!ranks || --ranks->refs > 0)
        return;
    sw_fold_free(ranks->fold);
    for (uint32_t r = 0; ranks->manifests && r < ranks->n; r++)
        sw_manifest_free(ranks->manifests[r]);
    free(ranks->manifests);
    free(ranks->hosts);
    free(ranks);
}

/* The number of a trainerd among those that host ranks. */
static uint32_t host_number(struct plan_ranks *ranks, uint64_t member)
{
    uint32_t h = 0;

    while (h < ranks->n_hosts && ranks->hosts[h] != member)
        h++;
    if (h == ranks->n_hosts)
        ranks->hosts[ranks->n_hosts++] = member; /* as many as ranks at most */
    return h;
}

static int fold_rank(const struct trainer *t, struct plan_ranks *ranks, struct sw_error *e)
{
    const uint32_t r = ranks->n;
    struct sw_source *sources;
    int err;

    ranks->manifests[r] = sw_manifest_hold(t->manifest);
    ranks->n++;
    sources = sw_manifest_sources(t->manifest);
    if (!sources)
        return no_memory(e);
    err = sw_fold_add(
        ranks->fold, r, host_number(ranks, t->member), sw_manifest_count(t->manifest), sources, e);
    free(sources);
    return err;
}

int sw_coord_plan_ranks(const struct sw_coordinator *c, struct plan_ranks **out, struct sw_error *e)
{
    struct plan_ranks *ranks = calloc(1, sizeof(*ranks));
    uint32_t n = 0;
    int err = 0;

    if (!ranks)
        return no_memory(e);
    ranks->refs = 1;
    ranks->fold = sw_fold_new();
    ranks->manifests = calloc((size_t)c->world + 1, sizeof(*ranks->manifests));
    ranks->hosts = calloc((size_t)c->world + 1, sizeof(*ranks->hosts));
    if (!ranks->fold || !ranks->manifests || !ranks->hosts)
        err = no_memory(e);
    for (uint32_t r = 0; !err && r < c->world; r++)
        err = fold_rank(&c->trainers[r], ranks, e);
    if (!err)
        err = sw_fold_ranks(ranks->fold, &ranks->items, &n, e);
    if (err) {
        sw_coord_plan_ranks_release(ranks);
        return err;
    }
    *out = ranks;
    return 0;
}

/* ---- engine ranks ---- */

void sw_coord_plan_targets_clear(struct plan_targets *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        sw_model_entry_release(t->models[i]);
        free(t->parameters[i]);
    }
    free(t->items);
    free(t->placements);
    free(t->models);
    free(t->parameters);
    free(t->manifests);
    *t = (struct plan_targets){0};
}

static int make_room(struct plan_targets *t, size_t n, struct sw_error *e)
{
    t->items = calloc(n + 1, sizeof(*t->items));
    t->placements = calloc(n + 1, sizeof(*t->placements));
    t->models = calloc(n + 1, sizeof(struct sw_model_entry *));
    t->parameters = calloc(n + 1, sizeof(struct sw_parameter *));
    t->manifests = calloc(n + 1, sizeof(struct sw_manifest *));
    return t->items && t->placements && t->models && t->parameters && t->manifests ? 0
                                                                                   : no_memory(e);
}

/* The model that the rank's layout, kind and config.json name; made when it is first needed. */
static int find_model(struct sw_coordinator *c, struct registration *reg, struct sw_error *e)
{
    const struct sw_engine_rank *rank = &reg->declared->u.engine_rank;
    int err = sw_engine_rank_check(rank, e); /* inferd did; this one may be newer */

    if (err)
        return err;
    if (reg->model || sw_engine_rank_identity(rank))
        return 0;
    err = sw_models_get(c->models, rank, &reg->model, e);
    if (err && err != SW_ERR_NOMEM)
        sw_error_context(e, err, "engine %s rank %u", reg->engine, reg->rank);
    return err;
}

/* Equal lists of parameters share one array, which saves the planner time. */
static int share_parameters(
    struct plan_targets *t, uint32_t i, const struct sw_manifest *m, struct sw_error *e)
{
    for (uint32_t k = 0; k < i; k++)
        if (t->parameters[k] && sw_manifest_equal(t->manifests[k], m)) {
            t->items[i].parameters = t->parameters[k];
            return 0;
        }
    t->manifests[i] = m;
    t->items[i].parameters = t->parameters[i] = sw_manifest_parameters(m);
    return t->parameters[i] ? 0 : no_memory(e);
}

/* Inference hosts are numbered by their first target. */
static uint32_t host_of(const struct plan_targets *t, uint32_t i, const struct registration *reg,
    struct registration *const *regs)
{
    uint32_t hosts = 0;

    for (uint32_t k = 0; k < i; k++) {
        if (regs[k] && regs[k]->member == reg->member)
            return t->items[k].host;
        if (t->items[k].host >= hosts)
            hosts = t->items[k].host + 1;
    }
    return hosts;
}

static int add_target(struct sw_coordinator *c, struct registration *const *regs,
    struct plan_targets *t, struct sw_error *e)
{
    const uint32_t i = t->n++;
    struct registration *reg = regs[i];
    struct sw_plan_target *target = &t->items[i];
    int err = find_model(c, reg, e);

    if (err)
        return err;
    *target = (struct sw_plan_target){.target = i,
        .engine = reg->engine,
        .engine_rank = reg->rank,
        .host = host_of(t, i, reg, regs),
        .n_regions = reg->n_regions,
        .region_bytes = reg->region_bytes,
        .n_parameters = sw_manifest_count(reg->manifest)};
    if (reg->model) {
        t->models[i] = sw_model_entry_hold(reg->model);
        target->model = sw_model_entry_model(reg->model);
        target->placement = &t->placements[i];
        err = sw_engine_rank_placement(
            &reg->declared->u.engine_rank, sw_model_entry_block(reg->model), &t->placements[i], e);
    }
    return err ? err : share_parameters(t, i, reg->manifest, e);
}

static int add_targets(struct sw_coordinator *c, struct registration *const *regs, size_t n,
    struct plan_targets *out, struct sw_error *e)
{
    int err;

    *out = (struct plan_targets){0};
    err = make_room(out, n, e);
    for (size_t i = 0; !err && i < n; i++)
        err = add_target(c, regs, out, e);
    return err;
}

int sw_coord_plan_target(struct sw_coordinator *c, struct registration *reg,
    struct plan_targets *out, struct sw_error *e)
{
    return add_targets(c, &reg, 1, out, e);
}

int sw_coord_plan_targets(struct sw_coordinator *c, struct engine **engines, uint32_t n,
    struct plan_targets *out, struct sw_error *e)
{
    struct registration **regs;
    size_t total = 0, at = 0;
    int err;

    *out = (struct plan_targets){0};
    for (uint32_t i = 0; i < n; i++)
        total += engines[i]->world;
    regs = calloc(total + 1, sizeof(struct registration *));
    if (!regs)
        return no_memory(e);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < engines[i]->world; r++)
            regs[at++] = engines[i]->slots[r].reg;
    err = add_targets(c, regs, total, out, e);
    free(regs);
    return err;
}
