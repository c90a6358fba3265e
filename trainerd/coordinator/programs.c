/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs and targets as trainerds get them: written out of the compact plan one at a time, sent
 * in parts, and forgotten.
 */
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

/* ---- load programs ---- */

struct part { /* how far a load program is sent */
    uint32_t templates, loads, grids, checks, tiles;
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
    p->n_maxima = plan->n_maxima;
    p->total_templates = plan->n_templates;
    p->total_loads = plan->n_loads;
    p->total_grids = plan->n_grids;
    p->total_checks = plan->n_checks;
    p->total_tiles = plan->n_tiles;
    p->first_template = at->templates;
    p->first_load = at->loads;
    p->first_grid = at->grids;
    p->first_check = at->checks;
    p->first_tile = at->tiles;
    p->n_templates = take(at->templates, plan->n_templates, &room);
    p->n_loads = take(at->loads, plan->n_loads, &room);
    p->n_grids = take(at->grids, plan->n_grids, &room);
    p->n_checks = take(at->checks, plan->n_checks, &room);
    p->n_tiles = take(at->tiles, plan->n_tiles, &room);
    p->templates =
        copy_items(c, m, plan->templates + at->templates, p->n_templates, sizeof(*p->templates));
    p->loads = copy_items(c, m, plan->loads + at->loads, p->n_loads, sizeof(*p->loads));
    p->grids = copy_items(c, m, plan->grids + at->grids, p->n_grids, sizeof(*p->grids));
    p->checks = copy_items(c, m, plan->checks + at->checks, p->n_checks, sizeof(*p->checks));
    p->tiles = copy_items(c, m, plan->tiles + at->tiles, p->n_tiles, sizeof(*p->tiles));
    at->templates += p->n_templates;
    at->loads += p->n_loads;
    at->grids += p->n_grids;
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
             at.grids < plan->n_grids || at.checks < plan->n_checks || at.tiles < plan->n_tiles);
}

/* ---- maxima programs ---- */

static void send_shares(struct sw_coordinator *c, uint64_t member, const struct sw_share_plan *plan)
{
    uint32_t share = 0, at = 0;

    while (share < plan->n || at < plan->n_members) {
        struct sw_msg *m = sw_coord_message(SW_MSG_MAXIMA_PROGRAM);
        struct sw_maxima_program *p = m ? &m->u.maxima_program : &(struct sw_maxima_program){0};
        uint32_t room = SW_PART_ITEMS_MAX;

        p->layout_epoch = c->layout_epoch;
        p->total_shares = plan->n;
        p->total_members = plan->n_members;
        p->first_share = share;
        p->first_member = at;
        p->n_shares = take(share, plan->n, &room);
        p->n_members = take(at, plan->n_members, &room);
        p->shares = copy_items(c, m, plan->items + share, p->n_shares, sizeof(*p->shares));
        p->members = copy_items(c, m, plan->members + at, p->n_members, sizeof(*p->members));
        share += p->n_shares;
        at += p->n_members;
        sw_coord_send(c, member, m);
    }
}

/* Before the load programs: with the last of those a trainerd knows its whole part of the plan. */
static void send_host_shares(struct sw_coordinator *c, uint64_t member)
{
    const struct plan_ranks *ranks = c->plan->ranks;

    for (uint32_t h = 0; h < ranks->n_hosts; h++)
        if (ranks->hosts[h] == member)
            send_shares(c, member, &c->plan->shares[h]);
}

/* ---- a member's part of the layout ---- */

/* What of it is needed when the rank ends, and in status. */
static int note_load(struct rank_plan *to, const struct sw_load_plan *plan)
{
    struct sw_alias_check *checks = calloc((size_t)plan->n_checks + 1, sizeof(*checks));

    if (!checks)
        return -1;
    if (plan->n_checks)
        memcpy(checks, plan->checks, plan->n_checks * sizeof(*checks));
    free(to->checks);
    *to = (struct rank_plan){.replica_bytes = plan->replica_bytes,
        .n_tiles = plan->n_tiles,
        .n_checks = plan->n_checks,
        .checks = checks};
    return 0;
}

void sw_coord_send_loads(struct sw_coordinator *c, uint64_t member)
{
    send_host_shares(c, member);
    for (uint32_t r = 0; r < c->world; r++) {
        struct sw_load_plan plan = {0};
        struct sw_error e;

        if (c->trainers[r].member != member)
            continue;
        if (sw_layout_load(c->plan->layout, r, &plan, &e)) {
            sw_coord_drop(c, member, "the load program of trainer rank %u: %s", r, e.text);
            return;
        }
        plan.rank = r;
        if (note_load(&c->plan->by_rank[r], &plan))
            sw_coord_send(c, member, NULL);
        else
            send_load_program(c, member, &plan);
        sw_load_plan_clear(&plan);
    }
}

/* ---- targets and write programs ---- */

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

void sw_coord_send_writes(struct sw_coordinator *c, uint64_t member, const struct sw_writes *writes)
{
    send_targets(c, member);
    for (uint32_t w = 0; w < sw_writes_count(writes); w++) {
        struct sw_write_plan plan = {0};
        struct sw_error e;

        if (c->trainers[sw_writes_pair(writes, w)->rank].member != member)
            continue;
        if (sw_writes_get(writes, w, &plan, &e)) {
            sw_coord_drop(c, member, "its write programs: %s", e.text);
            return;
        }
        send_write_program(c, member, &plan);
        sw_write_plan_clear(&plan);
    }
}
