/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines and the registrations of their ranks. Two registrations may want one place (an engine
 * name and rank on two hosts, or another world size): the first keeps it, the second is a shadow
 * (logged, shown in status, told nothing) until the first is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

/* ---- engines ---- */

struct engine *sw_coord_engine(const struct sw_coordinator *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_engines; i++)
        if (!strcmp(c->engines[i]->name, name))
            return c->engines[i];
    return NULL;
}

static void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    for (uint32_t r = 0; engine->slots && r < engine->world; r++)
        free(engine->slots[r].why);
    free(engine->slots);
    free(engine->name);
    free(engine);
}

static void engine_remove(struct sw_coordinator *c, uint32_t i)
{
    engine_free(c->engines[i]);
    memmove(&c->engines[i], &c->engines[i + 1], (c->n_engines - i - 1) * sizeof(*c->engines));
    c->n_engines--;
}

/* Engines without any process are remembered for status, but not for ever. */
static void forget_absent(struct sw_coordinator *c)
{
    uint32_t n = 0, oldest = 0;

    for (uint32_t i = 0; i < c->n_engines; i++) {
        if (c->engines[i]->n_present)
            continue;
        if (n++ == 0 || c->engines[i]->absent_since < c->engines[oldest]->absent_since)
            oldest = i;
    }
    if (n > SW_COORD_ABSENT)
        engine_remove(c, oldest);
}

static struct engine *engine_add(struct sw_coordinator *c, const char *name)
{
    struct engine *engine = NULL;

    if (!sw_coord_grow(&c->engines, &c->engines_size, c->n_engines, sizeof(*c->engines)))
        engine = calloc(1, sizeof(*engine));
    if (engine)
        engine->name = strdup(name);
    if (!engine || !engine->name) {
        engine_free(engine);
        return NULL;
    }
    c->engines[c->n_engines++] = engine;
    return engine;
}

static int engine_set_world(struct engine *engine, uint32_t world)
{
    struct engine_slot *slots;

    if (engine->slots && engine->world == world)
        return 0;
    slots = calloc(world, sizeof(*slots));
    if (!slots)
        return -1;
    for (uint32_t r = 0; engine->slots && r < engine->world; r++)
        free(engine->slots[r].why);
    free(engine->slots);
    engine->slots = slots;
    engine->world = world;
    return 0;
}

bool sw_coord_engine_complete(const struct engine *engine)
{
    if (engine->world == 0 || engine->n_present != engine->world)
        return false;
    for (uint32_t r = 0; r < engine->world; r++)
        if (!sw_manifest_complete(engine->slots[r].reg->manifest))
            return false;
    return true;
}

uint64_t sw_coord_engine_version(const struct engine *engine)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t r = 0; r < engine->world; r++) {
        const struct engine_slot *slot = &engine->slots[r];
        const uint64_t version = slot->reg ? slot->reg->version : slot->version;

        least = version < least ? version : least;
    }
    return least == UINT64_MAX ? 0 : least;
}

bool sw_coord_engine_serves(const struct engine *engine, uint64_t version)
{
    if (!sw_coord_engine_complete(engine))
        return false;
    for (uint32_t r = 0; r < engine->world; r++)
        if (engine->slots[r].reg->version != version ||
            engine->slots[r].reg->state != SW_RANK_SERVING)
            return false;
    return true;
}

uint64_t sw_coord_live_version(const struct sw_coordinator *c)
{
    uint64_t live = c->live_version;

    for (uint32_t i = 0; i < c->n_engines; i++) {
        const uint64_t version = sw_coord_engine_version(c->engines[i]);

        if (version > live && sw_coord_engine_serves(c->engines[i], version))
            live = version;
    }
    return live;
}

void sw_coord_engine_missing(
    const struct sw_coordinator *c, const struct engine *engine, char *out, size_t size)
{
    struct name_list list = {.out = out, .size = size};

    for (uint32_t r = 0; r < engine->world; r++) {
        const struct engine_slot *slot = &engine->slots[r];

        if (slot->reg && !sw_manifest_complete(slot->reg->manifest))
            sw_coord_list_add(&list, "rank %u on %s has sent %u of %u parameters", r,
                slot->reg->host, sw_manifest_count(slot->reg->manifest), slot->reg->n_parameters);
        else if (!slot->reg && slot->was)
            sw_coord_list_add(
                &list, "rank %u is gone (%.120s)", r, slot->why ? slot->why : "no reason known");
        else if (!slot->reg)
            sw_coord_list_add(&list, "rank %u of %u is not registered", r, engine->world);
    }
    sw_coord_list_end(&list);
}

/* ---- registrations ---- */

static void reg_free(struct registration *reg)
{
    if (!reg)
        return;
    sw_manifest_free(reg->manifest);
    free(reg->engine);
    free(reg->host);
    free(reg->reason);
    free(reg->region_bytes);
    free(reg->shadow);
    free(reg->misfit);
    sw_msg_free(reg->declared);
    sw_model_entry_release(reg->model);
    free(reg);
}

void sw_coord_engines_free(struct sw_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_regs; i++)
        reg_free(c->regs[i]);
    free(c->regs);
    while (c->n_engines)
        engine_remove(c, c->n_engines - 1);
    free(c->engines);
}

struct registration *sw_coord_find_reg(const struct sw_coordinator *c, uint64_t member,
    const char *engine, uint32_t rank, const struct sw_id *instance)
{
    for (uint32_t i = 0; i < c->n_regs; i++) {
        struct registration *reg = c->regs[i];

        if (reg->member == member && reg->rank == rank &&
            (!instance || sw_id_equal(&reg->instance, instance)) && !strcmp(reg->engine, engine))
            return reg;
    }
    return NULL;
}

struct registration *sw_coord_target_reg(
    const struct sw_coordinator *c, const struct target *target)
{
    struct registration *reg =
        sw_coord_find_reg(c, target->member, target->engine, target->rank, &target->instance);

    return reg && !reg->shadow ? reg : NULL;
}

/* Why a registration can't have its place now; false = it can. */
static bool conflict(const struct sw_coordinator *c, const struct registration *reg,
    const struct engine *engine, char *why, size_t size)
{
    const struct registration *holder = NULL;

    if (!engine && c->n_engines >= SW_ENGINES_MAX + SW_COORD_ABSENT) {
        snprintf(why, size, "the group has %u engines already", SW_ENGINES_MAX);
        return true;
    }
    if (!engine || engine->n_present == 0)
        return false;
    for (uint32_t r = 0; r < engine->world && !holder; r++)
        holder = engine->slots[r].reg;
    if (holder && engine->world != reg->world) {
        snprintf(why, size,
            "it says that its engine has %u ranks, but rank %u on %s, which was there first, says "
            "%u; is %s the name of two engines?",
            reg->world, holder->rank, holder->host, engine->world, engine->name);
        return true;
    }
    holder = engine->slots[reg->rank].reg;
    if (!holder || holder == reg)
        return false;
    snprintf(why, size,
        "engine %s rank %u is registered by process %u on %s already; engines need names of their "
        "own",
        engine->name, reg->rank, holder->pid, holder->host);
    return true;
}

/* Gives a registration its place in its engine, or makes it a shadow. -1 = no memory. */
static int place(struct sw_coordinator *c, struct registration *reg)
{
    struct engine *engine = sw_coord_engine(c, reg->engine);
    struct engine_slot *slot;
    char why[512];

    if (conflict(c, reg, engine, why, sizeof(why))) {
        if (!reg->shadow)
            sw_coord_log(c, LEVEL_WARNING, "engine %s rank %u on %s (process %u) is ignored: %s",
                reg->engine, reg->rank, reg->host, reg->pid, why);
        sw_coord_set_text(&reg->shadow, why);
        return reg->shadow ? 0 : -1;
    }
    if (!engine)
        engine = engine_add(c, reg->engine);
    if (!engine || engine_set_world(engine, reg->world))
        return -1;
    sw_coord_set_text(&reg->shadow, NULL);
    slot = &engine->slots[reg->rank];
    engine->n_present += slot->reg == NULL;
    slot->reg = reg;
    slot->was = true;
    slot->unknown = false;
    sw_coord_set_text(&slot->why, NULL);
    return 0;
}

/* Shadows that waited for a place try again, oldest first. */
static void promote(struct sw_coordinator *c, const char *engine)
{
    for (uint32_t i = 0; i < c->n_regs; i++) {
        struct registration *reg = c->regs[i];

        if (!reg->shadow || strcmp(reg->engine, engine) != 0)
            continue;
        if (!place(c, reg) && !reg->shadow)
            sw_coord_log(c, LEVEL_INFO, "engine %s rank %u on %s takes its place now", reg->engine,
                reg->rank, reg->host);
    }
}

static void reg_drop(struct sw_coordinator *c, struct registration *reg)
{
    for (uint32_t i = 0; i < c->n_regs; i++)
        if (c->regs[i] == reg) {
            memmove(&c->regs[i], &c->regs[i + 1], (c->n_regs - i - 1) * sizeof(*c->regs));
            c->n_regs--;
            break;
        }
    reg_free(reg);
}

/* A process, or our knowledge of it, is gone. */
static void reg_remove(
    struct sw_coordinator *c, struct registration *reg, bool unknown, const char *why, uint64_t now)
{
    struct engine *engine = sw_coord_engine(c, reg->engine);
    char *name = NULL;

    if (!reg->shadow && engine && reg->rank < engine->world &&
        engine->slots[reg->rank].reg == reg) {
        struct engine_slot *slot = &engine->slots[reg->rank];

        sw_coord_engine_process_lost(c, reg, unknown, why, now);
        slot->reg = NULL;
        slot->unknown = unknown;
        slot->since = now;
        slot->version = reg->version;
        sw_coord_set_text(&slot->why, why);
        if (--engine->n_present == 0)
            engine->absent_since = now;
        name = strdup(engine->name);
    }
    reg_drop(c, reg);
    if (name)
        promote(c, name);
    free(name);
    forget_absent(c);
}

void sw_coord_engines_member_down(
    struct sw_coordinator *c, uint64_t member, const char *why, uint64_t now)
{
    char text[512];

    for (uint32_t i = c->n_regs; i-- > 0;) {
        struct registration *reg = c->regs[i];

        if (reg->member != member)
            continue;
        snprintf(
            text, sizeof(text), "the connection of inferd %s is lost (%.200s)", reg->host, why);
        reg_remove(c, reg, true, text, now);
    }
}

/* ---- messages ---- */

static struct registration *reg_new(
    const struct sw_coordinator *c, uint64_t member, const struct sw_engine_rank *msg, uint64_t now)
{
    const struct sw_msg shallow = {.kind = SW_MSG_ENGINE_RANK, .u.engine_rank = *msg};
    struct registration *reg = calloc(1, sizeof(*reg));

    if (!reg)
        return NULL;
    reg->declared = sw_msg_copy(&shallow);
    reg->rank = msg->rank;
    reg->world = msg->world;
    reg->member = member;
    reg->instance = msg->instance;
    reg->pid = msg->pid;
    reg->version = msg->version;
    reg->state = msg->torn ? SW_RANK_TORN : SW_RANK_SERVING;
    reg->n_parameters = msg->n_parameters;
    reg->n_regions = msg->n_regions;
    reg->since = now;
    reg->engine = strdup(msg->engine);
    reg->host = strdup(sw_coord_member_name(c, member));
    reg->region_bytes = calloc((size_t)msg->n_regions + 1, sizeof(*reg->region_bytes));
    reg->manifest = sw_manifest_new(msg->n_parameters);
    if (!reg->declared || !reg->engine || !reg->host || !reg->region_bytes || !reg->manifest) {
        reg_free(reg);
        return NULL;
    }
    if (msg->n_regions)
        memcpy(reg->region_bytes, msg->region_bytes, msg->n_regions * sizeof(*reg->region_bytes));
    return reg;
}

/* The same inferd registers another process for a rank: it knows that the one before is gone. */
static void replace_process(
    struct sw_coordinator *c, struct registration *old, struct registration *reg, uint64_t now)
{
    static const char why[] = "its process was replaced by another one";
    struct engine *engine = sw_coord_engine(c, old->engine);

    if (!old->shadow && engine->world == reg->world) { /* no shadow gets in between */
        if (!sw_id_equal(&old->instance, &reg->instance))
            sw_coord_engine_process_lost(c, old, false, why, now);
        engine->slots[old->rank].reg = reg;
        reg_drop(c, old);
    } else {
        reg_remove(c, old, false, why, now);
    }
}

void sw_coord_engine_rank(
    struct sw_coordinator *c, uint64_t member, const struct sw_engine_rank *msg, uint64_t now)
{
    struct registration *old, *reg;

    if (msg->world == 0 || msg->world > SW_WORLD_MAX || msg->rank >= msg->world ||
        msg->n_parameters > SW_PARAMETERS_MAX || !msg->engine[0]) {
        sw_coord_drop(c, member, "it registered engine '%s' rank %u of %u with %u parameters",
            msg->engine, msg->rank, msg->world, msg->n_parameters);
        return;
    }
    reg = reg_new(c, member, msg, now);
    if (!reg || sw_coord_grow(&c->regs, &c->regs_size, c->n_regs, sizeof(*c->regs))) {
        reg_free(reg);
        sw_coord_drop(c, member, "the coordinator has no memory for engine %s rank %u", msg->engine,
            msg->rank);
        return;
    }
    old = sw_coord_find_reg(c, member, msg->engine, msg->rank, NULL);
    c->regs[c->n_regs++] = reg;
    if (old)
        replace_process(c, old, reg, now);
    if (place(c, reg))
        sw_coord_drop(c, member, "the coordinator has no memory for engine %s rank %u", msg->engine,
            msg->rank);
    else if (!reg->shadow)
        sw_coord_log(c, LEVEL_INFO,
            "engine %s rank %u of %u is registered on %s (process %u, %u parameters, version "
            "%llu%s)",
            reg->engine, reg->rank, reg->world, reg->host, reg->pid, reg->n_parameters,
            (unsigned long long)reg->version, msg->torn ? ", torn" : "");
    sw_coord_saw_version(c, msg->version, msg->engine);
}

void sw_coord_parameters(
    struct sw_coordinator *c, uint64_t member, const struct sw_parameters *msg, uint64_t now)
{
    struct registration *reg = sw_coord_find_reg(c, member, msg->engine, msg->rank, &msg->instance);
    struct sw_error e;

    (void)now;
    if (!reg)
        return; /* of a process that was replaced meanwhile */
    if (sw_manifest_add_parameters(reg->manifest, msg, &e))
        sw_coord_drop(c, member, "engine %s rank %u: %s", msg->engine, msg->rank, e.text);
}

void sw_coord_rank_state(
    struct sw_coordinator *c, uint64_t member, const struct sw_rank_state_msg *msg, uint64_t now)
{
    struct registration *reg = sw_coord_find_reg(c, member, msg->engine, msg->rank, &msg->instance);

    if (!reg)
        return;
    if (msg->state == SW_RANK_GONE) {
        sw_coord_log(c, LEVEL_WARNING, "engine %s rank %u on %s (process %u) is gone%s%s",
            reg->engine, reg->rank, reg->host, reg->pid, msg->reason[0] ? ": " : "", msg->reason);
        reg_remove(c, reg, false, msg->reason[0] ? msg->reason : "its process has ended", now);
        return;
    }
    reg->state = msg->state;
    reg->version = msg->version;
    sw_coord_set_text(&reg->reason, msg->reason[0] ? msg->reason : NULL);
    if (!reg->shadow)
        sw_coord_engine_state(c, reg, msg->state, msg->reason, now);
    sw_coord_saw_version(c, msg->version, msg->engine);
}

/* ---- time ---- */

static bool is_late(const struct sw_coordinator *c, const struct registration *reg, uint64_t now)
{
    return !sw_manifest_complete(reg->manifest) && now >= reg->since + c->config.manifest_ns;
}

void sw_coord_engines_tick(struct sw_coordinator *c, uint64_t now)
{
    for (uint32_t i = 0; i < c->n_regs; i++) {
        const struct registration *reg = c->regs[i];

        if (is_late(c, reg, now))
            sw_coord_drop(c, reg->member,
                "of the %u parameters of engine %s rank %u only %u came in %.1f s, and no more",
                reg->n_parameters, reg->engine, reg->rank, sw_manifest_count(reg->manifest),
                sw_coord_seconds(reg->since, now));
    }
}

uint64_t sw_coord_engines_deadline(const struct sw_coordinator *c)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < c->n_regs; i++) {
        const struct registration *reg = c->regs[i];
        const struct member *m = sw_coord_member(c, reg->member);

        if (!sw_manifest_complete(reg->manifest) && m && !m->closing &&
            reg->since + c->config.manifest_ns < least)
            least = reg->since + c->config.manifest_ns;
    }
    return least;
}
