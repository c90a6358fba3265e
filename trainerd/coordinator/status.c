/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator as JSON. jansson takes NULL for values that it could not make: with no memory
 * parts of the document are missing. */
#include <stdio.h>

#include "trainerd/coordinator/internal.h"

static json_t *id_json(const struct sw_id *id)
{
    char text[17];

    return json_string(sw_id_short(id, text));
}

static json_t *text_json(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *members_json(const struct sw_coordinator *c)
{
    json_t *all = json_array();

    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        json_t *o = json_object();

        set(o, "role", json_string(sw_role_name(m->role)));
        set(o, "name", text_json(m->name));
        set(o, "address", text_json(m->address));
        set(o, "instance", id_json(&m->instance));
        if (m->closing)
            set(o, "disconnected", text_json(m->why));
        json_array_append_new(all, o);
    }
    return all;
}

static const char *trainer_state(const struct sw_coordinator *c, const struct trainer *t)
{
    if (!t->opened)
        return "never opened";
    if (!t->alive)
        return "gone";
    if (!t->manifest)
        return "declaring";
    if (c->begin && t->ended)
        return "ended";
    if (c->begin && t->asked)
        return c->begin->stage == STAGE_STAGING ? "staging" : "beginning";
    return "idle";
}

static json_t *trainers_json(const struct sw_coordinator *c)
{
    json_t *o = json_object(), *ranks = json_array();

    set(o, "world", count(c->world));
    for (uint32_t r = 0; r < c->world; r++) {
        const struct trainer *t = &c->trainers[r];
        const struct rank_plan *plan =
            c->plan && r < c->plan->ranks->n ? &c->plan->by_rank[r] : NULL;
        json_t *rank = json_object();

        set(rank, "rank", count(r));
        set(rank, "host", text_json(t->host));
        set(rank, "pid", count(t->pid));
        set(rank, "state", json_string(trainer_state(c, t)));
        set(rank, "sources", count(t->manifest ? sw_manifest_count(t->manifest) : 0));
        set(rank, "tiles", count(plan ? plan->n_tiles : 0));
        set(rank, "replica_bytes", count(plan ? plan->replica_bytes : 0));
        json_array_append_new(ranks, rank);
    }
    set(o, "ranks", ranks);
    return o;
}

static json_t *slot_json(const struct engine_slot *slot, uint32_t r)
{
    const struct registration *reg = slot->reg;
    json_t *o = json_object();

    set(o, "rank", count(r));
    if (!reg) {
        set(o, "state",
            json_string(slot->unknown ? "unknown"
                        : slot->was   ? "gone"
                                      : "not registered"));
        set(o, "version", count(slot->version));
        set(o, "reason", text_json(slot->why));
        return o;
    }
    set(o, "state", json_string(sw_rank_state_name(reg->state)));
    set(o, "version", count(reg->version));
    set(o, "reason", text_json(reg->reason));
    set(o, "host", text_json(reg->host));
    set(o, "pid", count(reg->pid));
    set(o, "instance", id_json(&reg->instance));
    set(o, "parameters", count(sw_manifest_count(reg->manifest)));
    set(o, "complete", json_boolean(sw_manifest_complete(reg->manifest)));
    if (reg->misfit)
        set(o, "misfit", text_json(reg->misfit));
    return o;
}

static json_t *engine_json(
    const struct sw_coordinator *c, const struct engine *engine, uint64_t live)
{
    json_t *o = json_object(), *ranks = json_array(), *ignored = json_array();

    set(o, "name", json_string(engine->name));
    set(o, "world", count(engine->world));
    set(o, "complete", json_boolean(sw_coord_engine_complete(engine)));
    set(o, "live", json_boolean(live && sw_coord_engine_serves(engine, live)));
    for (uint32_t r = 0; r < engine->world; r++)
        json_array_append_new(ranks, slot_json(&engine->slots[r], r));
    set(o, "ranks", ranks);
    for (uint32_t i = 0; i < c->n_regs; i++) {
        const struct registration *reg = c->regs[i];

        if (reg->shadow && sw_coord_engine(c, reg->engine) == engine) {
            json_t *shadow = json_object();

            set(shadow, "rank", count(reg->rank));
            set(shadow, "host", text_json(reg->host));
            set(shadow, "pid", count(reg->pid));
            set(shadow, "reason", text_json(reg->shadow));
            json_array_append_new(ignored, shadow);
        }
    }
    set(o, "ignored", ignored);
    return o;
}

static json_t *links_json(const struct engine_update *eu)
{
    json_t *all = json_array();

    for (uint32_t i = 0; i < eu->n_targets; i++)
        for (uint32_t k = 0; k < eu->targets[i].n_links; k++) {
            const struct link *link = &eu->targets[i].links[k];
            json_t *o = json_object();

            set(o, "trainerd", text_json(link->host));
            set(o, "rank", count(eu->targets[i].rank));
            set(o, "bytes", count(link->bytes));
            set(o, "transport", text_json(link->transport));
            set(o, "why", text_json(link->why));
            set(o, "written", json_boolean(link->written));
            json_array_append_new(all, o);
        }
    return all;
}

static json_t *engine_update_json(const struct engine_update *eu, uint64_t now)
{
    json_t *o = json_object();

    set(o, "engine", json_string(eu->engine));
    set(o, "step", eu->step == STEP_NEW ? json_null() : json_string(sw_coord_step_name(eu->step)));
    if (!sw_coord_step_over(eu->step) && eu->step != STEP_NEW)
        set(o, "step_s", json_real(sw_coord_seconds(eu->since, now)));
    set(o, "live", json_boolean(eu->result.live));
    set(o, "version", count(eu->result.version));
    set(o, "state", text_json(eu->state));
    set(o, "reason", text_json(eu->reason));
    set(o, "drain_s", json_real((double)eu->result.drain_ns / 1e9));
    set(o, "pause_s", json_real((double)eu->result.pause_ns / 1e9));
    set(o, "write_s", json_real((double)eu->result.write_ns / 1e9));
    set(o, "post_s", json_real((double)eu->result.post_ns / 1e9));
    set(o, "bytes", count(eu->result.bytes));
    set(o, "transport", text_json(eu->transport));
    if (eu->n_targets)
        set(o, "paths", links_json(eu));
    return o;
}

static json_t *update_json(const struct update *u, uint64_t now)
{
    json_t *o, *engines = json_array();

    if (!u) {
        json_decref(engines);
        return json_null();
    }
    o = json_object();
    set(o, "version", count(u->version));
    set(o, "state", json_string(sw_coord_stage_name(u->stage)));
    set(o, "state_s", json_real(sw_coord_seconds(u->since, now)));
    set(o, "layout_epoch", count(u->layout_epoch));
    set(o, "membership_epoch", count(u->membership_epoch));
    set(o, "publish_asked", json_boolean(u->publish_asked));
    set(o, "stage_s", json_real((double)u->stage_ns / 1e9));
    set(o, "stage_bytes", count(u->stage_bytes));
    set(o, "reason", u->failure.code ? text_json(u->failure.text) : json_null());
    for (uint32_t i = 0; i < u->n_engines; i++)
        json_array_append_new(engines, engine_update_json(&u->engines[i], now));
    for (uint32_t i = 0; i < u->n_others; i++)
        json_array_append_new(engines, engine_update_json(&u->others[i], now));
    set(o, "engines", engines);
    return o;
}

/* The state of the group in one word. */
static enum sw_update_state overall(const struct sw_coordinator *c)
{
    static const enum sw_update_state of[STAGE_COUNT] = {[STAGE_LIVE] = SW_UPDATE_LIVE,
        [STAGE_PARTIAL] = SW_UPDATE_PARTIAL,
        [STAGE_ABORTED] = SW_UPDATE_ABORTED};

    if (c->publishing)
        return SW_UPDATE_PUBLISHING;
    if (c->begin && c->begin->stage == STAGE_STAGING)
        return SW_UPDATE_STAGING;
    if (c->staged)
        return SW_UPDATE_STAGED;
    return c->n_history ? of[c->history[c->n_history - 1]->stage] : SW_UPDATE_IDLE;
}

json_t *sw_coordinator_status(const struct sw_coordinator *c, uint64_t now_ns)
{
    json_t *o = json_object(), *engines = json_array(), *history = json_array();
    const uint64_t live = sw_coord_live_version(c);

    set(o, "group", json_string(c->group));
    set(o, "instance", id_json(&c->config.instance));
    set(o, "state", json_string(sw_update_state_name(overall(c))));
    set(o, "last_version", count(c->last_version));
    set(o, "live_version", count(live));
    set(o, "layout_epoch", count(c->plan ? c->layout_epoch : 0));
    set(o, "membership_epoch", count(c->membership_epoch));
    set(o, "unused_sources", text_json(c->unused));
    set(o, "members", members_json(c));
    set(o, "trainers", trainers_json(c));
    for (uint32_t i = 0; i < c->n_engines; i++)
        json_array_append_new(engines, engine_json(c, c->engines[i], live));
    set(o, "engines", engines);
    set(o, "beginning", update_json(c->begin, now_ns));
    set(o, "staged", update_json(c->staged, now_ns));
    set(o, "publishing", update_json(c->publishing, now_ns));
    for (uint32_t i = c->n_history; i-- > 0;)
        json_array_append_new(history, update_json(c->history[i], now_ns));
    set(o, "history", history);
    return o;
}
