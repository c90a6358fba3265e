/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan and its epochs. The layout epoch is the number of the version whose begin made it:
 * versions are durable and only grow, so no epoch is used twice, whatever restarts. Membership
 * epochs count within the coordinator's life and always go with a layout epoch.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"
#include "trainerd/plan/checks.h"
#include "trainerd/plan/compact.h"
#include "trainerd/plan/expert_maps.h"

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the plan");
}

/* ---- plans ---- */

static void plan_free(struct plan *p)
{
    if (!p)
        return;
    sw_layout_free(p->layout);
    for (uint32_t i = 0; i < p->n_models; i++)
        sw_model_entry_release(p->models[i]);
    free(p->models);
    for (uint32_t r = 0; p->by_rank && r < p->ranks->n; r++)
        free(p->by_rank[r].checks);
    free(p->by_rank);
    for (uint32_t h = 0; p->shares && h < p->ranks->n_hosts; h++)
        sw_share_plan_clear(&p->shares[h]);
    free(p->shares);
    sw_coord_plan_ranks_release(p->ranks);
    free(p);
}

static int hold_models(struct plan *p, const struct plan_targets *t, struct sw_error *e)
{
    p->models = calloc((size_t)t->n + 1, sizeof(struct sw_model_entry *));
    if (!p->models)
        return no_memory(e);
    for (uint32_t i = 0; i < t->n; i++)
        if (t->models[i] && (i == 0 || t->models[i] != t->models[i - 1]))
            p->models[p->n_models++] = sw_model_entry_hold(t->models[i]);
    return 0;
}

/* Which block maxima each host's ranks share. Those that hosts share can't be reduced. */
static int make_shares(struct plan *p, struct sw_error *e)
{
    p->shares = calloc((size_t)p->ranks->n_hosts + 1, sizeof(*p->shares));
    if (!p->shares)
        return no_memory(e);
    for (uint32_t h = 0; h < p->ranks->n_hosts; h++) {
        uint64_t elsewhere = 0;
        const int err = sw_layout_shares(p->layout, h, &p->shares[h], &elsewhere, e);

        if (err)
            return err;
        if (elsewhere)
            return sw_fail(e, SW_ERR_UNSUPPORTED,
                "%llu FP8 blocks lie in trainer ranks of several hosts, whose maxima can't be "
                "compared yet: run all trainer ranks on one host, give the ranks of each host "
                "whole blocks (rows in multiples of the block size, or whole tensors), or use "
                "engines without FP8",
                (unsigned long long)elsewhere);
    }
    return 0;
}

static int plan_new(
    struct plan_ranks *ranks, const struct plan_targets *t, struct plan **out, struct sw_error *e)
{
    struct plan *p = calloc(1, sizeof(*p));
    int err;

    if (!p)
        return no_memory(e);
    p->ranks = ranks;
    ranks->refs++;
    p->by_rank = calloc((size_t)ranks->n + 1, sizeof(*p->by_rank));
    err = p->by_rank ? hold_models(p, t, e) : no_memory(e);
    if (err) {
        plan_free(p);
        return err;
    }
    *out = p;
    return 0;
}

static int make(struct plan_ranks *ranks, const struct plan_targets *t, struct plan **out,
    struct sw_plan_notes *notes, struct sw_error *e)
{
    static const struct sw_plan_options options = {.assignment = SW_ASSIGN_BALANCED};
    struct plan *p = NULL;
    int err = plan_new(ranks, t, &p, e);

    if (err)
        return err;
    err = sw_layout_make(ranks->items, ranks->n, t->items, t->n, &options, &p->layout, notes, e);
    if (!err)
        err = sw_checks_possible(p->layout, e);
    if (!err)
        err = make_shares(p, e);
    if (err) {
        plan_free(p);
        return err;
    }
    *out = p;
    return 0;
}

/* ---- proof of what will be sent ---- */

/* Whether it is written out in few enough pieces to be proved so, too. */
static bool is_small(const struct plan *p, uint32_t n_targets)
{
    const struct sw_compact *c = sw_layout_compact(p->layout);
    uint64_t most = 0;

    for (uint32_t k = 0; k < c->n_kinds; k++)
        most = c->kinds[k].n > most ? c->kinds[k].n : most;
    return most * n_targets <= SW_PROVE_EXTENTS && c->n_cells <= SW_PROVE_EXTENTS;
}

struct written { /* everything, as it will be sent */
    uint32_t n_loads, n_writes;
    struct sw_load_plan *loads;
    struct sw_write_plan *writes;
};

static void written_clear(struct written *w)
{
    for (uint32_t r = 0; r < w->n_loads; r++)
        sw_load_plan_clear(&w->loads[r]);
    for (uint32_t i = 0; i < w->n_writes; i++)
        sw_write_plan_clear(&w->writes[i]);
    free(w->loads);
    free(w->writes);
}

static int write_out(
    const struct plan *p, const struct sw_writes *writes, struct written *w, struct sw_error *e)
{
    int err = 0;

    w->loads = calloc((size_t)p->ranks->n + 1, sizeof(*w->loads));
    w->writes = calloc((size_t)sw_writes_count(writes) + 1, sizeof(*w->writes));
    if (!w->loads || !w->writes)
        return no_memory(e);
    for (uint32_t r = 0; !err && r < p->ranks->n; r++) {
        err = sw_layout_load(p->layout, r, &w->loads[r], e);
        w->n_loads += !err;
    }
    for (uint32_t i = 0; !err && i < sw_writes_count(writes); i++) {
        err = sw_writes_get(writes, i, &w->writes[i], e);
        w->n_writes += !err;
    }
    return err;
}

/* The compact form is proved on every plan, by the planner's own calls. */
static int prove(const struct plan *p, const struct plan_targets *t, const struct sw_writes *writes,
    struct sw_error *e)
{
    struct written w = {0};
    int err;

    if (!is_small(p, t->n))
        return 0;
    err = write_out(p, writes, &w, e);
    if (!err)
        err = sw_plan_prove(
            p->ranks->items, p->ranks->n, w.loads, t->items, t->n, w.writes, w.n_writes, e);
    written_clear(&w);
    return err;
}

static int prove_layout(const struct plan *p, const struct plan_targets *t, struct sw_error *e)
{
    struct sw_writes *writes = NULL;
    int err;

    if (!is_small(p, t->n))
        return 0;
    err = sw_writes_make(p->layout, t->items, t->n, &writes, e);
    if (!err)
        err = prove(p, t, writes, e);
    sw_writes_free(writes);
    return err;
}

/* ---- does an engine fit? ---- */

static void judge(
    struct registration *reg, uint64_t serial, bool fits, bool judged, const char *why)
{
    reg->fit_serial = serial;
    reg->fits = fits;
    reg->judged = judged;
    sw_coord_set_text(&reg->misfit, fits ? NULL : why);
}

/* The newest layout, or one that is being made: no other can be better for an unfit engine. */
static uint64_t newest_serial(const struct sw_coordinator *c)
{
    return c->layout_serial > c->next_serial ? c->layout_serial : c->next_serial;
}

static void judge_engine(
    struct engine *engine, uint64_t serial, bool fits, bool judged, const char *why)
{
    for (uint32_t r = 0; r < engine->world; r++)
        judge(engine->slots[r].reg, serial, fits, judged, why);
}

static int look_at(struct sw_coordinator *c, struct registration *reg, struct sw_error *e)
{
    struct plan_targets target;
    bool hopeless;
    int err;

    if (reg->fit_serial == c->layout_serial)
        return 0;
    err = sw_coord_plan_target(c, reg, &target, e);
    hopeless = err != 0; /* whatever the layout */
    if (!err)
        err = sw_layout_knows(c->plan->layout, target.items, e);
    sw_coord_plan_targets_clear(&target);
    if (err == SW_ERR_NOMEM)
        return err;
    judge(reg, c->layout_serial, err == 0, hopeless, e->text);
    return 0;
}

/* What no rank can tell alone: an expert that none of them has. */
static int look_at_maps(struct sw_coordinator *c, struct engine *engine, struct sw_error *e)
{
    struct plan_targets targets;
    int err = sw_coord_plan_targets(c, &engine, 1, &targets, e);

    if (!err)
        err = sw_expert_maps_check(targets.items, targets.n, e);
    sw_coord_plan_targets_clear(&targets);
    if (err == SW_ERR_PLAN)
        judge_engine(engine, c->layout_serial, false, true, e->text);
    return err == SW_ERR_NOMEM ? err : 0;
}

/* Has all ranks of the engine judged for the layout that there is. */
static int look_at_engine(struct sw_coordinator *c, struct engine *engine, struct sw_error *e)
{
    bool news = false, fits = true;

    for (uint32_t r = 0; r < engine->world; r++) {
        struct registration *reg = engine->slots[r].reg;

        news = news || reg->fit_serial != c->layout_serial;
        if (look_at(c, reg, e))
            return SW_ERR_NOMEM;
        fits = fits && reg->fits;
    }
    return news && fits ? look_at_maps(c, engine, e) : 0;
}

bool sw_coord_engine_fits(struct sw_coordinator *c, struct engine *engine, char *why, size_t size)
{
    struct sw_error e = {0};

    if (look_at_engine(c, engine, &e)) {
        snprintf(why, size, "%s", e.text);
        return false;
    }
    for (uint32_t r = 0; r < engine->world; r++) {
        const struct registration *reg = engine->slots[r].reg;

        if (!reg->fits) {
            snprintf(why, size, "%s", reg->misfit ? reg->misfit : "it does not fit the plan");
            return false;
        }
    }
    return true;
}

int sw_coord_layout_needed(struct sw_coordinator *c, bool *needed, struct sw_error *e)
{
    *needed = !c->plan || c->layout_stale;
    for (uint32_t i = 0; !*needed && i < c->n_engines; i++) {
        struct engine *engine = c->engines[i];

        if (!sw_coord_engine_complete(engine))
            continue;
        if (look_at_engine(c, engine, e))
            return SW_ERR_NOMEM;
        for (uint32_t r = 0; !*needed && r < engine->world; r++) {
            const struct registration *reg = engine->slots[r].reg;

            *needed = !reg->fits && !reg->judged;
        }
    }
    return 0;
}

/* ---- the layout ---- */

struct candidates { /* engines that a layout is made for */
    struct engine **engines;
    uint32_t n, all;
    struct sw_error first; /* why the first that was left out was */
};

static int make_for(struct sw_coordinator *c, struct plan_ranks *ranks, struct engine **engines,
    uint32_t n, bool final, struct plan **out, struct sw_error *e)
{
    struct sw_plan_notes notes = {0};
    struct plan_targets targets;
    struct plan *p = NULL;
    int err = sw_coord_plan_targets(c, engines, n, &targets, e);

    if (!err)
        err = make(ranks, &targets, &p, &notes, e);
    if (!err && final)
        err = prove_layout(p, &targets, e);
    sw_coord_plan_targets_clear(&targets);
    if (err) {
        plan_free(p);
        return err;
    }
    if (final) {
        char text[512];

        snprintf(text, sizeof(text), "%u source tensor%s wanted by no engine and not staged: %s%s",
            notes.unused, notes.unused == 1 ? " is" : "s are", notes.unused_names,
            notes.unused > 3 ? ", ..." : "");
        sw_coord_set_text(&c->unused, notes.unused ? text : NULL);
        if (notes.derived)
            sw_coord_log(c, LEVEL_INFO,
                "%u parameter%s left out of the plan: engines make them themselves", notes.derived,
                notes.derived == 1 ? " is" : "s are");
    }
    *out = p;
    return 0;
}

static bool is_misfit(int err)
{
    return err == SW_ERR_PLAN || err == SW_ERR_UNSUPPORTED || err == SW_ERR_INVALID;
}

/* Keeps the engines that pass `look`; the error of the first that does not is in *e. */
static int leave_out(struct sw_coordinator *c, struct candidates *k, struct plan_ranks *ranks,
    int (*look)(struct sw_coordinator *c, struct plan_ranks *ranks, struct engine *engine,
        struct sw_error *e),
    struct sw_error *e)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < k->n; i++) {
        struct sw_error own = {0};
        const int err = look(c, ranks, k->engines[i], &own);

        if (err && !is_misfit(err)) {
            *e = own;
            return err;
        }
        if (!err) {
            k->engines[kept++] = k->engines[i];
            continue;
        }
        judge_engine(k->engines[i], c->next_serial, false, true, own.text);
        if (!k->first.code)
            k->first = own;
    }
    k->n = kept;
    if (kept)
        return 0;
    *e = k->first;
    return k->first.code;
}

/* Whether it can be a target at all. */
static int look_alone(
    struct sw_coordinator *c, struct plan_ranks *ranks, struct engine *engine, struct sw_error *e)
{
    struct plan_targets targets;
    const int err = sw_coord_plan_targets(c, &engine, 1, &targets, e);

    (void)ranks;
    sw_coord_plan_targets_clear(&targets);
    return err;
}

/* Whether there is a plan for it alone. */
static int look_planned(
    struct sw_coordinator *c, struct plan_ranks *ranks, struct engine *engine, struct sw_error *e)
{
    struct plan *p = NULL;
    const int err = make_for(c, ranks, &engine, 1, false, &p, e);

    plan_free(p);
    return err;
}

static int make_next(struct sw_coordinator *c, struct candidates *k, struct sw_error *e)
{
    struct plan_ranks *ranks = NULL;
    int err = sw_coord_plan_ranks(c, &ranks, e);
    uint32_t n;

    if (err) /* the trainers' own fault: no engine can be left out for it */
        return err;
    err = leave_out(c, k, ranks, look_alone, e);
    n = k->n;
    if (!err)
        err = make_for(c, ranks, k->engines, k->n, true, &c->next_plan, e);
    if (is_misfit(err) && k->n > 1) {
        const struct sw_error together = *e;

        err = leave_out(c, k, ranks, look_planned, e);
        if (!err && k->n == n) { /* each for itself, but not together */
            *e = together;
            err = e->code;
        } else if (!err) {
            err = make_for(c, ranks, k->engines, k->n, true, &c->next_plan, e);
        }
    }
    sw_coord_plan_ranks_release(ranks);
    return err;
}

int sw_coord_layout_make(struct sw_coordinator *c, struct sw_error *e)
{
    struct candidates k = {.engines = calloc((size_t)c->n_engines + 1, sizeof(struct engine *))};
    int err;

    if (!k.engines)
        return no_memory(e);
    c->next_serial = newest_serial(c) + 1;
    for (uint32_t i = 0; i < c->n_engines; i++)
        if (sw_coord_engine_complete(c->engines[i]))
            k.engines[k.n++] = c->engines[i];
    k.all = k.n;
    err = make_next(c, &k, e);
    for (uint32_t i = 0; !err && i < k.n; i++)
        judge_engine(k.engines[i], c->next_serial, true, false, NULL);
    if (!err && k.n < k.all)
        sw_coord_log(c, LEVEL_WARNING, "%u of %u engines do not fit and are left out: %s",
            k.all - k.n, k.all, k.first.text);
    if (!err)
        c->layout_stale = false;
    free(k.engines);
    return err;
}

static void send_plan_to(struct sw_coordinator *c, uint64_t member, void *arg)
{
    (void)arg;
    sw_coord_send_loads(c, member);
    c->plan_waits[c->n_plan_waits++] = member;
}

int sw_coord_layout_install(struct sw_coordinator *c, uint64_t epoch)
{
    uint64_t *waits = calloc((size_t)c->n_members + 1, sizeof(*waits));

    assert(c->next_plan);
    if (!waits) {
        sw_coord_layout_drop(c);
        return SW_ERR_NOMEM;
    }
    plan_free(c->plan);
    c->plan = c->next_plan;
    c->next_plan = NULL;
    c->layout_epoch = epoch;
    c->layout_serial = c->next_serial;
    sw_coord_targets_free(c->targets, c->n_targets);
    c->targets = NULL;
    c->n_targets = 0;
    free(c->plan_waits);
    c->plan_waits = waits;
    c->n_plan_waits = 0;
    if (c->unused)
        sw_coord_log(c, LEVEL_WARNING, "%s", c->unused);
    sw_coord_each_trainerd(c, send_plan_to, NULL);
    return 0;
}

void sw_coord_layout_drop(struct sw_coordinator *c)
{
    if (c->next_plan)
        c->layout_stale = true; /* it was made, but is not what trainerds have */
    plan_free(c->next_plan);
    c->next_plan = NULL;
}

void sw_coord_layout_lost(struct sw_coordinator *c)
{
    plan_free(c->plan);
    c->plan = NULL;
    c->n_plan_waits = 0;
}

/* ---- membership ---- */

void sw_coord_targets_free(struct target *targets, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < targets[i].n_links; k++) {
            free(targets[i].links[k].tokens);
            free(targets[i].links[k].host);
        }
        free(targets[i].links);
        free(targets[i].engine);
        free(targets[i].host);
    }
    free(targets);
}

static bool same_set(const struct sw_coordinator *c, struct engine **engines, uint32_t n)
{
    uint32_t t = 0;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < engines[i]->world; r++, t++) {
            const struct registration *reg = engines[i]->slots[r].reg;
            const struct target *target = &c->targets[t];

            if (t >= c->n_targets || target->rank != r || target->member != reg->member ||
                !sw_id_equal(&target->instance, &reg->instance) ||
                strcmp(target->engine, reg->engine) != 0)
                return false;
        }
    return t == c->n_targets && c->targets;
}

static int add_link(const struct sw_coordinator *c, struct target *t, const struct sw_pair *plan)
{
    const struct trainer *trainer = &c->trainers[plan->rank];
    const struct member *m = sw_coord_member(c, trainer->member);
    struct link *links;

    t->bytes += plan->bytes;
    for (uint32_t i = 0; i < t->n_links; i++)
        if (t->links[i].member == trainer->member) {
            t->links[i].bytes += plan->bytes;
            return 0;
        }
    links = realloc(t->links, ((size_t)t->n_links + 1) * sizeof(*links));
    if (!links)
        return -1;
    t->links = links;
    links[t->n_links] = (struct link){.member = trainer->member, .bytes = plan->bytes};
    if (m)
        links[t->n_links].trainerd = m->instance;
    links[t->n_links].host = strdup(trainer->host ? trainer->host : "?");
    return links[t->n_links++].host ? 0 : -1;
}

static int make_targets(const struct sw_coordinator *c, struct engine **engines, uint32_t n_engines,
    const struct sw_writes *writes, struct target *targets)
{
    uint32_t t = 0;

    for (uint32_t i = 0; i < n_engines; i++)
        for (uint32_t r = 0; r < engines[i]->world; r++, t++) {
            const struct registration *reg = engines[i]->slots[r].reg;

            targets[t] = (struct target){.number = t,
                .rank = r,
                .member = reg->member,
                .instance = reg->instance,
                .pid = reg->pid,
                .engine = strdup(reg->engine),
                .host = strdup(reg->host)};
            if (!targets[t].engine || !targets[t].host)
                return -1;
        }
    for (uint32_t w = 0; w < sw_writes_count(writes); w++) {
        const struct sw_pair *pair = sw_writes_pair(writes, w);

        if (add_link(c, &targets[pair->target], pair))
            return -1;
    }
    return 0;
}

static void send_membership_to(struct sw_coordinator *c, uint64_t member, void *arg)
{
    sw_coord_send_writes(c, member, arg);
}

/* The new set is installed, and sent, when everything has come together. */
static int install_targets(struct sw_coordinator *c, struct engine **engines, uint32_t n_engines,
    uint32_t n, struct sw_writes *writes, struct sw_error *e)
{
    struct target *targets = calloc((size_t)n + 1, sizeof(*targets));

    if (!targets || make_targets(c, engines, n_engines, writes, targets)) {
        if (targets)
            sw_coord_targets_free(targets, n);
        return no_memory(e);
    }
    sw_coord_targets_free(c->targets, c->n_targets);
    c->targets = targets;
    c->n_targets = n;
    c->membership_epoch++;
    sw_coord_each_trainerd(c, send_membership_to, writes);
    return 0;
}

int sw_coord_membership(
    struct sw_coordinator *c, struct engine **engines, uint32_t n_engines, struct sw_error *e)
{
    struct sw_writes *writes = NULL;
    struct plan_targets targets;
    int err;

    if (same_set(c, engines, n_engines))
        return 0;
    err = sw_coord_plan_targets(c, engines, n_engines, &targets, e);
    if (!err)
        err = sw_writes_make(c->plan->layout, targets.items, targets.n, &writes, e);
    if (!err)
        err = prove(c->plan, &targets, writes, e);
    if (!err)
        err = install_targets(c, engines, n_engines, targets.n, writes, e);
    sw_writes_free(writes);
    sw_coord_plan_targets_clear(&targets);
    return err;
}

void sw_coord_epoch_free(struct sw_coordinator *c)
{
    plan_free(c->plan);
    plan_free(c->next_plan);
    sw_coord_targets_free(c->targets, c->n_targets);
    free(c->plan_waits);
    free(c->unused);
}
