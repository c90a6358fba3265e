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

/* ---- what the planner is given ---- */

struct input {
    uint32_t n_ranks, n_targets;
    struct sw_plan_rank *ranks;
    struct sw_plan_target *targets;
};

static void input_free(struct input *in)
{
    for (uint32_t r = 0; in->ranks && r < in->n_ranks; r++)
        if (r == 0 || in->ranks[r].sources != in->ranks[r - 1].sources)
            free((void *)in->ranks[r].sources);
    for (uint32_t t = 0; in->targets && t < in->n_targets; t++)
        free((void *)in->targets[t].parameters);
    free(in->ranks);
    free(in->targets);
    *in = (struct input){0};
}

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the plan");
}

/* Ranks that declared the same share one array. */
static int add_ranks(const struct sw_coordinator *c, struct input *in, struct sw_error *e)
{
    in->ranks = calloc((size_t)c->world + 1, sizeof(*in->ranks));
    if (!in->ranks)
        return no_memory(e);
    in->n_ranks = c->world;
    for (uint32_t r = 0; r < c->world; r++) {
        const struct sw_manifest *m = c->trainers[r].manifest;

        in->ranks[r].rank = r;
        in->ranks[r].n_sources = sw_manifest_count(m);
        if (r && sw_manifest_equal(m, c->trainers[r - 1].manifest))
            in->ranks[r].sources = in->ranks[r - 1].sources;
        else
            in->ranks[r].sources = sw_manifest_sources(m);
        if (!in->ranks[r].sources)
            return no_memory(e);
    }
    return 0;
}

static int fill_target(const struct registration *reg, uint32_t number,
    struct sw_plan_target *target, struct sw_error *e)
{
    *target = (struct sw_plan_target){.target = number,
        .engine = reg->engine,
        .engine_rank = reg->rank,
        .n_regions = reg->n_regions,
        .region_bytes = reg->region_bytes,
        .n_parameters = sw_manifest_count(reg->manifest),
        .parameters = sw_manifest_parameters(reg->manifest)};
    return target->parameters ? 0 : no_memory(e);
}

static int add_targets(struct input *in, struct engine **engines, uint32_t n, struct sw_error *e)
{
    size_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += engines[i]->world;
    in->targets = calloc(total + 1, sizeof(*in->targets));
    if (!in->targets)
        return no_memory(e);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < engines[i]->world; r++) {
            const uint32_t number = in->n_targets++;

            if (fill_target(engines[i]->slots[r].reg, number, &in->targets[number], e))
                return SW_ERR_NOMEM;
        }
    return 0;
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

static int look_at(struct sw_coordinator *c, struct registration *reg, struct sw_error *e)
{
    struct sw_plan_target target;
    int err;

    if (reg->fit_serial == c->layout_serial)
        return 0;
    err = fill_target(reg, 0, &target, e);
    if (err)
        return err;
    err = sw_layout_knows(c->layout, &target, e);
    free((void *)target.parameters);
    if (err == SW_ERR_NOMEM)
        return err;
    judge(reg, c->layout_serial, err == 0, false, e->text);
    return 0;
}

bool sw_coord_engine_fits(struct sw_coordinator *c, struct engine *engine, char *why, size_t size)
{
    for (uint32_t r = 0; r < engine->world; r++) {
        struct registration *reg = engine->slots[r].reg;
        struct sw_error e = {0};

        if (look_at(c, reg, &e)) {
            snprintf(why, size, "%s", e.text);
            return false;
        }
        if (!reg->fits) {
            snprintf(why, size, "%s", reg->misfit ? reg->misfit : "it does not fit the plan");
            return false;
        }
    }
    return true;
}

int sw_coord_layout_needed(struct sw_coordinator *c, bool *needed, struct sw_error *e)
{
    *needed = !c->layout || c->layout_stale;
    for (uint32_t i = 0; !*needed && i < c->n_engines; i++) {
        const struct engine *engine = c->engines[i];

        if (!sw_coord_engine_complete(engine))
            continue;
        for (uint32_t r = 0; !*needed && r < engine->world; r++) {
            struct registration *reg = engine->slots[r].reg;

            if (look_at(c, reg, e))
                return SW_ERR_NOMEM;
            *needed = !reg->fits && !reg->judged;
        }
    }
    return 0;
}

/* ---- the layout ---- */

static int make(struct sw_coordinator *c, struct engine **engines, uint32_t n,
    struct sw_layout **layout, struct sw_error *e)
{
    struct input in = {0};
    char names[256] = "";
    uint32_t unused = 0;
    int err = add_ranks(c, &in, e);

    if (!err)
        err = add_targets(&in, engines, n, e);
    if (!err)
        err = sw_layout_make(in.ranks, in.n_ranks, in.targets, in.n_targets, layout, &unused, names,
            sizeof(names), e);
    input_free(&in);
    if (!err) {
        char text[512];

        snprintf(text, sizeof(text), "%u source tensor%s wanted by no engine and not staged: %s%s",
            unused, unused == 1 ? " is" : "s are", names, unused > 3 ? ", ..." : "");
        sw_coord_set_text(&c->unused, unused ? text : NULL);
    }
    return err;
}

/* Keeps the engines that fit by themselves; the error of the first that does not is in *e. */
static int leave_out_misfits(
    struct sw_coordinator *c, struct engine **engines, uint32_t *n, struct sw_error *e)
{
    uint32_t kept = 0;
    struct sw_error first = *e;

    for (uint32_t i = 0; i < *n; i++) {
        struct sw_layout *layout = NULL;
        struct sw_error own = {0};
        const int err = make(c, &engines[i], 1, &layout, &own);

        sw_layout_free(layout);
        if (err == SW_ERR_NOMEM) {
            *e = own;
            return err;
        }
        if (!err) {
            engines[kept++] = engines[i];
            continue;
        }
        for (uint32_t r = 0; r < engines[i]->world; r++)
            judge(engines[i]->slots[r].reg, c->next_serial, false, true, own.text);
    }
    *e = first;
    if (kept == 0 || kept == *n)
        return first.code;
    *n = kept;
    return 0;
}

int sw_coord_layout_make(struct sw_coordinator *c, struct sw_error *e)
{
    struct engine **engines = calloc((size_t)c->n_engines + 1, sizeof(*engines));
    const uint64_t serial =
        (c->layout_serial > c->next_serial ? c->layout_serial : c->next_serial) + 1;
    uint32_t n = 0, all;
    int err;

    if (!engines)
        return no_memory(e);
    c->next_serial = serial;
    for (uint32_t i = 0; i < c->n_engines; i++)
        if (sw_coord_engine_complete(c->engines[i]))
            engines[n++] = c->engines[i];
    all = n;
    err = make(c, engines, n, &c->next_layout, e);
    if ((err == SW_ERR_PLAN || err == SW_ERR_UNSUPPORTED) && n > 1) {
        err = leave_out_misfits(c, engines, &n, e);
        if (!err)
            err = make(c, engines, n, &c->next_layout, e);
    }
    for (uint32_t i = 0; !err && i < n; i++)
        for (uint32_t r = 0; r < engines[i]->world; r++)
            judge(engines[i]->slots[r].reg, serial, true, false, NULL);
    if (!err && n < all)
        sw_coord_log(c, LEVEL_WARNING, "%u of %u engines do not fit and are left out: %s", all - n,
            all, e->text);
    if (!err)
        c->layout_stale = false;
    free(engines);
    return err;
}

/* ---- load programs ---- */

struct part { /* how far a load program is sent */
    uint32_t templates, loads, checks, tiles;
};

static uint32_t take(uint32_t at, uint32_t n, uint32_t *room)
{
    const uint32_t count = n - at < *room ? n - at : *room;

    *room -= count;
    return count;
}

/* Copies items into a message; NULL when there are none. */
static void *copy_items(
    struct sw_coordinator *c, struct sw_msg *m, const void *items, uint32_t n, size_t size)
{
    void *copy = n ? sw_coord_array(c, m, n, size) : NULL;

    if (copy)
        memcpy(copy, items, n * size);
    return copy;
}

static void send_load_part(
    struct sw_coordinator *c, uint64_t member, const struct sw_load_plan *plan, struct part *at)
{
    struct sw_msg *m = sw_coord_message(SW_MSG_LOAD_PROGRAM);
    struct sw_load_program *p = m ? &m->u.load_program : &(struct sw_load_program){0};
    uint32_t room = SW_PART_ITEMS_MAX / 2; /* templates are large */

    p->layout_epoch = c->layout_epoch;
    p->rank = plan->rank;
    p->replica_bytes = plan->replica_bytes;
    p->total_templates = plan->n_templates;
    p->total_loads = plan->n_loads;
    p->total_checks = plan->n_checks;
    p->total_tiles = plan->n_tiles;
    p->first_template = at->templates;
    p->first_load = at->loads;
    p->first_check = at->checks;
    p->first_tile = at->tiles;
    p->n_templates = take(at->templates, plan->n_templates, &room);
    p->n_loads = take(at->loads, plan->n_loads, &room);
    p->n_checks = take(at->checks, plan->n_checks, &room);
    p->n_tiles = take(at->tiles, plan->n_tiles, &room);
    p->templates =
        copy_items(c, m, plan->templates + at->templates, p->n_templates, sizeof(*p->templates));
    p->loads = copy_items(c, m, plan->loads + at->loads, p->n_loads, sizeof(*p->loads));
    p->checks = copy_items(c, m, plan->checks + at->checks, p->n_checks, sizeof(*p->checks));
    p->tiles = copy_items(c, m, plan->tiles + at->tiles, p->n_tiles, sizeof(*p->tiles));
    at->templates += p->n_templates;
    at->loads += p->n_loads;
    at->checks += p->n_checks;
    at->tiles += p->n_tiles;
    sw_coord_send(c, member, m);
}

static void send_load_program(
    struct sw_coordinator *c, uint64_t member, const struct sw_load_plan *plan)
{
    struct part at = {0};

    do { /* an empty program is one part, too */
        send_load_part(c, member, plan, &at);
    } while (at.templates < plan->n_templates || at.loads < plan->n_loads ||
             at.checks < plan->n_checks || at.tiles < plan->n_tiles);
}

static void send_programs_to(struct sw_coordinator *c, uint64_t member, void *arg)
{
    (void)arg;
    for (uint32_t r = 0; r < c->world; r++)
        if (c->trainers[r].member == member)
            send_load_program(c, member, sw_layout_load(c->layout, r));
    c->plan_waits[c->n_plan_waits++] = member;
}

int sw_coord_layout_install(struct sw_coordinator *c, uint64_t epoch)
{
    uint64_t *waits = calloc((size_t)c->n_members + 1, sizeof(*waits));

    assert(c->next_layout);
    if (!waits) {
        sw_coord_layout_drop(c);
        return SW_ERR_NOMEM;
    }
    sw_layout_free(c->layout);
    c->layout = c->next_layout;
    c->next_layout = NULL;
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
    sw_coord_each_trainerd(c, send_programs_to, NULL);
    return 0;
}

void sw_coord_layout_drop(struct sw_coordinator *c)
{
    if (c->next_layout)
        c->layout_stale = true; /* it was made, but is not what trainerds have */
    sw_layout_free(c->next_layout);
    c->next_layout = NULL;
}

void sw_coord_layout_lost(struct sw_coordinator *c)
{
    sw_layout_free(c->layout);
    c->layout = NULL;
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

static int add_link(
    const struct sw_coordinator *c, struct target *t, const struct sw_write_plan *plan)
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
        const struct sw_write_plan *plan = sw_writes_get(writes, w);

        if (add_link(c, &targets[plan->target], plan))
            return -1;
    }
    return 0;
}

struct sending { /* of a membership epoch */
    const struct sw_writes *writes;
};

static void fill_target_msg(
    struct sw_coordinator *c, struct sw_msg *m, const struct target *t, struct sw_target *out)
{
    const struct registration *reg = sw_coord_target_reg(c, t);
    const struct member *inferd = sw_coord_member(c, t->member);
    const char *address;

    if (!reg || !inferd)
        return; /* the update is about to learn it */
    address = inferd->advertise && inferd->advertise[0] ? inferd->advertise : inferd->address;
    out->target = t->number;
    out->engine = sw_coord_text(c, m, t->engine);
    out->engine_rank = t->rank;
    out->engine_instance = t->instance;
    out->inferd = inferd->instance;
    out->address = sw_coord_text(c, m, address[0] ? address : "127.0.0.1");
    out->data_port = inferd->data_port;
    out->unix_path = sw_coord_text(c, m, inferd->unix_path);
    memcpy(out->host_nonce, inferd->host_nonce, sizeof(out->host_nonce));
    out->n_regions = reg->n_regions;
    out->region_bytes =
        copy_items(c, m, reg->region_bytes, reg->n_regions, sizeof(*reg->region_bytes));
}

/* How many targets from `first` on go into one part. */
static uint32_t targets_in_part(const struct sw_coordinator *c, uint32_t first)
{
    size_t bytes = 0;
    uint32_t n = 0;

    while (first + n < c->n_targets && n < SW_PART_ITEMS_MAX) {
        const struct registration *reg = sw_coord_target_reg(c, &c->targets[first + n]);

        bytes += 512 + (reg ? 10 * (size_t)reg->n_regions : 0);
        if (n && bytes > SW_PART_BYTES_TARGET)
            break;
        n++;
    }
    return n;
}

static void send_targets(struct sw_coordinator *c, uint64_t member)
{
    for (uint32_t first = 0, n; first < c->n_targets; first += n) {
        struct sw_msg *m = sw_coord_message(SW_MSG_TARGETS);

        n = targets_in_part(c, first);
        if (m) {
            m->u.targets.layout_epoch = c->layout_epoch;
            m->u.targets.membership_epoch = c->membership_epoch;
            m->u.targets.first = first;
            m->u.targets.total = c->n_targets;
            m->u.targets.items = sw_coord_array(c, m, n, sizeof(*m->u.targets.items));
            m->u.targets.n = m->u.targets.items ? n : 0;
            for (uint32_t i = 0; i < m->u.targets.n; i++)
                fill_target_msg(c, m, &c->targets[first + i], &m->u.targets.items[i]);
        }
        sw_coord_send(c, member, m);
    }
}

static void send_write_program(
    struct sw_coordinator *c, uint64_t member, const struct sw_write_plan *plan)
{
    for (uint64_t first = 0; first < plan->n; first += SW_PART_ITEMS_MAX) {
        const uint32_t n =
            (uint32_t)(plan->n - first < SW_PART_ITEMS_MAX ? plan->n - first : SW_PART_ITEMS_MAX);
        struct sw_msg *m = sw_coord_message(SW_MSG_WRITE_PROGRAM);

        if (m) {
            m->u.write_program = (struct sw_write_program){.layout_epoch = c->layout_epoch,
                .membership_epoch = c->membership_epoch,
                .rank = plan->rank,
                .target = plan->target,
                .first = (uint32_t)first,
                .total = (uint32_t)plan->n,
                .n = n};
            m->u.write_program.extents =
                copy_items(c, m, plan->extents + first, n, sizeof(*plan->extents));
        }
        sw_coord_send(c, member, m);
    }
}

static void send_membership_to(struct sw_coordinator *c, uint64_t member, void *arg)
{
    const struct sending *s = arg;

    send_targets(c, member);
    for (uint32_t w = 0; w < sw_writes_count(s->writes); w++) {
        const struct sw_write_plan *plan = sw_writes_get(s->writes, w);

        if (c->trainers[plan->rank].member == member)
            send_write_program(c, member, plan);
    }
}

static int make_writes(struct sw_coordinator *c, struct engine **engines, uint32_t n_engines,
    struct sw_writes **writes, uint32_t *n_targets, struct sw_error *e)
{
    struct input in = {0};
    int err = add_targets(&in, engines, n_engines, e);

    if (!err)
        err = sw_writes_make(c->layout, in.targets, in.n_targets, writes, e);
    *n_targets = in.n_targets;
    input_free(&in);
    return err;
}

int sw_coord_membership(
    struct sw_coordinator *c, struct engine **engines, uint32_t n_engines, struct sw_error *e)
{
    struct sw_writes *writes = NULL;
    struct target *targets;
    uint32_t n = 0;
    int err;

    if (same_set(c, engines, n_engines))
        return 0;
    err = make_writes(c, engines, n_engines, &writes, &n, e);
    if (err)
        return err;
    targets = calloc((size_t)n + 1, sizeof(*targets));
    if (!targets || make_targets(c, engines, n_engines, writes, targets)) {
        if (targets)
            sw_coord_targets_free(targets, n);
        sw_writes_free(writes);
        return no_memory(e);
    }
    sw_coord_targets_free(c->targets, c->n_targets);
    c->targets = targets;
    c->n_targets = n;
    c->membership_epoch++;
    sw_coord_each_trainerd(c, send_membership_to, &(struct sending){writes});
    sw_writes_free(writes);
    return 0;
}

void sw_coord_epoch_free(struct sw_coordinator *c)
{
    sw_layout_free(c->layout);
    sw_layout_free(c->next_layout);
    sw_coord_targets_free(c->targets, c->n_targets);
    free(c->plan_waits);
    free(c->unused);
}
