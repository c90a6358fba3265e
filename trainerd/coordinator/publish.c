/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version from publish to its result, and who waits for it. One update publishes at a time;
 * within it engines go their own ways. A publish that is asked for earlier waits for its turn.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

#define V(x) ((unsigned long long)(x))

/* ---- results ---- */

static void fill_engines(struct sw_coordinator *c, struct sw_msg *m, const struct update *u)
{
    struct sw_result *r = &m->u.result;
    const uint32_t n = u->n_engines + u->n_others;

    r->engines = sw_coord_array(c, m, n, sizeof(*r->engines));
    r->n = r->engines ? n : 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct engine_update *eu =
            i < u->n_engines ? &u->engines[i] : &u->others[i - u->n_engines];

        r->engines[i] = eu->result;
        r->engines[i].engine = sw_coord_text(c, m, eu->engine);
        r->engines[i].state = sw_coord_text(c, m, eu->state);
        r->engines[i].reason = sw_coord_text(c, m, eu->reason);
        r->engines[i].transport = sw_coord_text(c, m, eu->transport);
    }
}

static void send_result(struct sw_coordinator *c, uint64_t member, uint64_t request,
    uint64_t version, const struct update *u, const struct sw_error *e)
{
    struct sw_msg *m = sw_coord_message(SW_MSG_RESULT);

    if (m) {
        m->u.result.request = request;
        m->u.result.version = version;
        m->u.result.error.code = e ? e->code : 0;
        m->u.result.error.reason = sw_coord_text(c, m, e ? e->text : "");
        if (u) {
            m->u.result.stage_ns = u->stage_ns;
            m->u.result.stage_bytes = u->stage_bytes;
            fill_engines(c, m, u);
        }
    }
    sw_coord_send(c, member, m);
}

/* The outcome of an update that is over, in one line. */
static int outcome(const struct update *u, struct sw_error *e)
{
    char text[SW_TEXT_MAX + 1] = "";
    struct name_list list = {.out = text, .size = sizeof(text) - 100};
    uint32_t live = 0;

    if (u->stage == STAGE_ABORTED)
        return sw_fail(
            e, SW_ERR_ABORTED, "version %llu was given up: %s", V(u->version), u->failure.text);
    if (u->stage == STAGE_LIVE)
        return 0;
    for (uint32_t i = 0; i < u->n_engines + u->n_others; i++) {
        const struct engine_update *eu =
            i < u->n_engines ? &u->engines[i] : &u->others[i - u->n_engines];

        live += eu->result.live;
        if (!eu->result.live)
            sw_coord_list_add(&list, "engine %s (%s): %.300s", eu->engine, eu->state, eu->reason);
    }
    sw_coord_list_end(&list);
    return sw_fail(e, SW_ERR_PARTIAL, "version %llu is live on %u of %u engines; not on %s",
        V(u->version), live, u->n_engines + u->n_others, text);
}

/* ---- waiters ---- */

static void forget_waiter(struct sw_coordinator *c, uint32_t i)
{
    memmove(&c->waiters[i], &c->waiters[i + 1], (c->n_waiters - i - 1) * sizeof(*c->waiters));
    c->n_waiters--;
}

void sw_coord_tell_waiters(struct sw_coordinator *c, const struct update *u)
{
    struct sw_error e;
    const int err = outcome(u, &e);

    for (uint32_t i = 0; i < c->n_waiters;) {
        const struct waiter w = c->waiters[i];

        if (w.version != u->version) {
            i++;
            continue;
        }
        forget_waiter(c, i);
        send_result(c, w.member, w.request, u->version, u, err ? &e : NULL);
    }
}

void sw_coord_fail_waiters(struct sw_coordinator *c, uint64_t version, const struct sw_error *why)
{
    for (uint32_t i = 0; i < c->n_waiters;) {
        const struct waiter w = c->waiters[i];

        if (w.version != version) {
            i++;
            continue;
        }
        forget_waiter(c, i);
        send_result(c, w.member, w.request, version, NULL, why);
    }
}

void sw_coord_waiters_member_down(struct sw_coordinator *c, uint64_t member)
{
    for (uint32_t i = 0; i < c->n_waiters;)
        if (c->waiters[i].member == member)
            forget_waiter(c, i);
        else
            i++;
}

static void add_waiter(struct sw_coordinator *c, uint64_t member, const struct sw_publish *msg,
    uint64_t version, uint64_t now)
{
    if (sw_coord_grow(&c->waiters, &c->waiters_size, c->n_waiters, sizeof(*c->waiters))) {
        struct sw_error e;

        sw_fail(
            &e, SW_ERR_NOMEM, "the coordinator has no memory to wait for version %llu", V(version));
        send_result(c, member, msg->request, version, NULL, &e);
        return;
    }
    c->waiters[c->n_waiters++] = (struct waiter){.member = member,
        .request = msg->request,
        .version = version,
        .since = now,
        .wait_only = msg->wait_only != 0};
}

/* ---- what a publish means ---- */

static void set_state(struct engine_update *eu, const char *state, const char *reason)
{
    snprintf(eu->state, sizeof(eu->state), "%s", state);
    snprintf(eu->reason, sizeof(eu->reason), "%s", reason);
}

/* An engine whose processes have ended by their inferd's word is no engine any more. */
static bool has_left(const struct engine *engine)
{
    if (engine->n_present)
        return false;
    for (uint32_t r = 0; r < engine->world; r++)
        if (engine->slots[r].unknown)
            return false;
    return true;
}

static struct update *in_work(const struct sw_coordinator *c, uint64_t version)
{
    struct update *const all[] = {c->begin, c->staged, c->publishing};

    for (size_t i = 0; i < 3; i++)
        if (all[i] && all[i]->version == version)
            return all[i];
    return NULL;
}

static const struct update *in_history(const struct sw_coordinator *c, uint64_t version)
{
    for (uint32_t i = c->n_history; i-- > 0;)
        if (c->history[i]->version == version)
            return c->history[i];
    return NULL;
}

/* Version 0: the newest that is staged or staging; for who only waits, what is or was published. */
static uint64_t newest(const struct sw_coordinator *c, const struct sw_publish *msg)
{
    if (c->begin && c->begin->stage >= STAGE_PERSISTING)
        return c->begin->version;
    if (c->staged)
        return c->staged->version;
    if (c->begin)
        return c->begin->version;
    if (msg->wait_only && c->publishing)
        return c->publishing->version;
    if (msg->wait_only && c->n_history)
        return c->history[c->n_history - 1]->version;
    return 0;
}

/* Why a version that is not at work and not remembered can't be published. */
static void explain_absent(const struct sw_coordinator *c, uint64_t version, struct sw_error *e)
{
    const uint64_t live = sw_coord_live_version(c);

    if (version == 0)
        sw_fail(e, SW_ERR_STATE,
            "nothing is staged or being staged; begin a version first (the live one is %llu)",
            V(live));
    else if (version > c->last_version)
        sw_fail(e, SW_ERR_NOT_FOUND, "version %llu was never begun (the largest so far is %llu)",
            V(version), V(c->last_version));
    else if (version < live)
        sw_fail(e, SW_ERR_VERSION,
            "version %llu can't be published: version %llu is live already, and versions only grow",
            V(version), V(live));
    else
        sw_fail(e, SW_ERR_NOT_FOUND,
            "version %llu is not staged, and nothing is known of its end (the live version is "
            "%llu, "
            "the largest begun %llu)",
            V(version), V(live), V(c->last_version));
}

/* A version that engines serve, though its update is not remembered (this coordinator is newer). */
static void tell_served(
    struct sw_coordinator *c, uint64_t member, uint64_t request, uint64_t version)
{
    struct update u = {.version = version, .stage = STAGE_LIVE};
    struct sw_error e;
    bool memory = true;

    u.others = calloc((size_t)c->n_engines + 1, sizeof(*u.others));
    for (uint32_t i = 0; u.others && memory && i < c->n_engines; i++) {
        struct engine_update *other = &u.others[u.n_others];

        if (has_left(c->engines[i]))
            continue;
        other->engine = strdup(c->engines[i]->name);
        memory = other->engine != NULL;
        u.n_others += memory;
        other->result.version = sw_coord_engine_version(c->engines[i]);
        other->result.live = sw_coord_engine_serves(c->engines[i], version);
        set_state(other, other->result.live ? sw_rank_state_name(SW_RANK_SERVING) : "not live",
            other->result.live ? "" : "its ranks do not all serve this version");
        if (!other->result.live && sw_coord_engine_complete(c->engines[i]))
            u.stage = STAGE_PARTIAL;
    }
    if (!u.others || !memory) {
        sw_fail(&e, SW_ERR_NOMEM, "the coordinator has no memory for the result");
        send_result(c, member, request, version, NULL, &e);
    } else {
        const int err = outcome(&u, &e);

        send_result(c, member, request, version, &u, err ? &e : NULL);
    }
    for (uint32_t i = 0; i < u.n_others; i++)
        free(u.others[i].engine);
    free(u.others);
}

void sw_coord_publish(
    struct sw_coordinator *c, uint64_t member, const struct sw_publish *msg, uint64_t now)
{
    const uint64_t version = msg->version ? msg->version : newest(c, msg);
    struct update *u = version ? in_work(c, version) : NULL;
    const struct update *over = version ? in_history(c, version) : NULL;
    struct sw_error e;

    if (u) {
        add_waiter(c, member, msg, version, now);
        if (!msg->wait_only)
            u->publish_asked = true;
    } else if (over) {
        const int err = outcome(over, &e);

        send_result(c, member, msg->request, version, over, err ? &e : NULL);
    } else if (version && version == sw_coord_live_version(c)) {
        tell_served(c, member, msg->request, version);
    } else {
        explain_absent(c, version, &e);
        send_result(c, member, msg->request, version, NULL, &e);
    }
}

/* ---- the start of an update ---- */

/* Whether an engine takes part. If not, `other` says why; *fault: it should have. */
static bool takes_part(struct sw_coordinator *c, const struct update *u, struct engine *engine,
    struct engine_update *other, bool *fault)
{
    char why[SW_TEXT_MAX + 1];

    *fault = false;
    if (!sw_coord_engine_complete(engine)) {
        sw_coord_engine_missing(c, engine, why, sizeof(why));
        set_state(other, engine->n_present ? "incomplete" : "gone", why);
        return false;
    }
    *fault = true;
    for (uint32_t r = 0; r < engine->world; r++)
        if (engine->slots[r].reg->version >= u->version) {
            snprintf(why, sizeof(why),
                "rank %u holds version %llu already, which is not older; versions only grow", r,
                V(engine->slots[r].reg->version));
            set_state(other, sw_rank_state_name(engine->slots[r].reg->state), why);
            return false;
        }
    if (!sw_coord_engine_fits(c, engine, why, sizeof(why))) {
        set_state(other, sw_rank_state_name(engine->slots[0].reg->state), why);
        return false;
    }
    return true;
}

static int copy_targets(const struct sw_coordinator *c, struct update *u)
{
    u->targets = calloc((size_t)c->n_targets + 1, sizeof(*u->targets));
    if (!u->targets)
        return -1;
    for (uint32_t i = 0; i < c->n_targets; i++) {
        const struct target *from = &c->targets[i];
        struct target *t = &u->targets[i];

        u->n_targets = i + 1;
        *t = (struct target){.number = from->number,
            .rank = from->rank,
            .member = from->member,
            .instance = from->instance,
            .pid = from->pid,
            .bytes = from->bytes,
            .engine = strdup(from->engine),
            .host = strdup(from->host),
            .links = calloc((size_t)from->n_links + 1, sizeof(*t->links))};
        if (!t->engine || !t->host || !t->links)
            return -1;
        for (uint32_t k = 0; k < from->n_links; k++) {
            t->links[k] = from->links[k];
            t->links[k].tokens = NULL;
            t->links[k].host = strdup(from->links[k].host);
            t->n_links = k + 1;
            if (!t->links[k].host)
                return -1;
        }
    }
    return 0;
}

static int set_up(struct sw_coordinator *c, struct update *u, struct engine **engines, uint32_t n,
    struct sw_error *e)
{
    uint32_t at = 0;
    const int err = sw_coord_membership(c, engines, n, e);

    if (err)
        return err;
    u->engines = calloc((size_t)n + 1, sizeof(*u->engines));
    if (!u->engines || copy_targets(c, u))
        return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the update");
    for (uint32_t i = 0; i < n; i++) {
        struct engine_update *eu = &u->engines[i];

        eu->engine = strdup(engines[i]->name);
        if (!eu->engine)
            return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the update");
        u->n_engines = i + 1;
        eu->targets = u->targets + at;
        eu->n_targets = engines[i]->world;
        eu->result.version = sw_coord_engine_version(engines[i]);
        at += engines[i]->world;
    }
    u->membership_epoch = c->membership_epoch;
    return 0;
}

/* Clears what a start that failed has left in the update. */
static void undo_set_up(struct update *u)
{
    sw_coord_targets_free(u->targets, u->n_targets);
    for (uint32_t i = 0; i < u->n_engines; i++)
        free(u->engines[i].engine);
    for (uint32_t i = 0; i < u->n_others; i++)
        free(u->others[i].engine);
    free(u->engines);
    free(u->others);
    u->targets = NULL;
    u->engines = u->others = NULL;
    u->n_targets = u->n_engines = u->n_others = 0;
    u->others_fault = false;
}

/* Sorts engines into those that take part (n of them, in `in`) and the others. */
static int choose(
    struct sw_coordinator *c, struct update *u, struct engine **in, uint32_t *n, struct sw_error *e)
{
    *n = 0;
    u->others = calloc((size_t)c->n_engines + 1, sizeof(*u->others));
    if (!u->others)
        return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the update");
    for (uint32_t i = 0; i < c->n_engines; i++) {
        struct engine *engine = c->engines[i];
        struct engine_update *other = &u->others[u->n_others];
        bool fault;

        if (has_left(engine))
            continue;
        if (takes_part(c, u, engine, other, &fault)) {
            in[(*n)++] = engine;
            continue;
        }
        other->engine = strdup(engine->name);
        if (!other->engine)
            return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for the update");
        other->result.version = sw_coord_engine_version(engine);
        u->others_fault = u->others_fault || fault;
        u->n_others++;
    }
    return 0;
}

static int no_engine(const struct update *u, struct sw_error *e)
{
    char text[SW_TEXT_MAX - 100];
    struct name_list list = {.out = text, .size = sizeof(text)};

    for (uint32_t i = 0; i < u->n_others; i++)
        sw_coord_list_add(&list, "engine %s: %.200s", u->others[i].engine, u->others[i].reason);
    sw_coord_list_end(&list);
    if (u->n_others == 0)
        return sw_fail(e, SW_ERR_STATE,
            "version %llu can't be published: no engine is registered; it stays staged",
            V(u->version));
    return sw_fail(e, SW_ERR_STATE,
        "version %llu can't be published: no engine is complete and fits; it stays staged (%s)",
        V(u->version), text);
}

static void start_publish(struct sw_coordinator *c, uint64_t now)
{
    struct update *u = c->staged;
    struct engine **in = calloc((size_t)c->n_engines + 1, sizeof(*in));
    struct sw_error e;
    uint32_t n = 0;
    int err = in ? choose(c, u, in, &n, &e)
                 : sw_fail(&e, SW_ERR_NOMEM, "the coordinator has no memory for the update");

    if (!err && n == 0)
        err = no_engine(u, &e);
    if (!err)
        err = set_up(c, u, in, n, &e);
    free(in);
    u->publish_asked = false;
    if (err) { /* it stays staged: a later publish may do better */
        sw_coord_log(c, LEVEL_ERROR, "%s", e.text);
        undo_set_up(u);
        sw_coord_fail_waiters(c, u->version, &e);
        return;
    }
    sw_coord_update_move(c, u, STAGE_PUBLISHING, now);
    u->publish_started = now;
    c->staged = NULL;
    c->publishing = u;
    sw_coord_log(c, LEVEL_INFO,
        "version %llu is being published to %u engine%s (layout epoch %llu, membership epoch %llu)",
        V(u->version), u->n_engines, u->n_engines == 1 ? "" : "s", V(u->layout_epoch),
        V(u->membership_epoch));
    for (uint32_t i = 0; i < u->n_engines; i++)
        sw_coord_engine_start(c, u, &u->engines[i], now);
}

bool sw_coord_publish_starting(const struct sw_coordinator *c)
{
    const struct update *u = c->publishing;

    for (uint32_t i = 0; u && i < u->n_engines; i++)
        if (u->engines[i].step < STEP_CONNECT)
            return true;
    return false;
}

/* ---- the end ---- */

static void log_end(struct sw_coordinator *c, const struct update *u, uint64_t now)
{
    struct sw_error e;

    if (outcome(u, &e)) {
        sw_coord_log(c, LEVEL_ERROR, "%s", e.text);
        return;
    }
    sw_coord_log(c, LEVEL_INFO, "version %llu is live on %u engine%s after %.3f s", V(u->version),
        u->n_engines, u->n_engines == 1 ? "" : "s", sw_coord_seconds(u->publish_started, now));
}

void sw_coord_publish_check(struct sw_coordinator *c, uint64_t now)
{
    struct update *u = c->publishing;
    bool live = true;
    const uint64_t began = u ? u->since : 0;

    if (!u)
        return;
    for (uint32_t i = 0; i < u->n_engines; i++) {
        if (!sw_coord_step_over(u->engines[i].step))
            return;
        live = live && u->engines[i].step == STEP_LIVE;
    }
    sw_coord_update_move(c, u, live && !u->others_fault ? STAGE_LIVE : STAGE_PARTIAL, now);
    u->started = began; /* of the publish, for status */
    c->publishing = NULL;
    log_end(c, u, now);
    sw_coord_tell_waiters(c, u);
    sw_coord_targets_free(u->targets, u->n_targets); /* history needs results only */
    u->targets = NULL;
    u->n_targets = 0;
    for (uint32_t i = 0; i < u->n_engines; i++) {
        u->engines[i].targets = NULL;
        u->engines[i].n_targets = 0;
    }
    sw_coord_remember(c, u);
}

/* ---- time ---- */

/* Who only waits for a version that is staged and that nobody publishes must not wait for ever. */
static uint64_t idle_deadline(const struct sw_coordinator *c, const struct waiter *w)
{
    const struct update *s = c->staged;
    uint64_t from;

    if (!s || s->version != w->version || s->publish_asked)
        return UINT64_MAX;
    from = w->since > s->since ? w->since : s->since;
    return from + c->config.stage_ns;
}

void sw_coord_publish_tick(struct sw_coordinator *c, uint64_t now)
{
    struct sw_error e;

    for (uint32_t i = 0; i < c->n_waiters;) {
        const struct waiter w = c->waiters[i];

        if (now < idle_deadline(c, &w)) {
            i++;
            continue;
        }
        forget_waiter(c, i);
        sw_fail(&e, SW_ERR_TIMEOUT,
            "waited %.1f s for version %llu, which is staged, but nobody published it",
            sw_coord_seconds(w.since, now), V(w.version));
        send_result(c, w.member, w.request, w.version, NULL, &e);
    }
    /* While a begin is being made durable it wins: it replaces what is staged. */
    if (c->staged && c->staged->publish_asked && !c->publishing &&
        (!c->begin || c->begin->stage == STAGE_COLLECTING))
        start_publish(c, now);
}

uint64_t sw_coord_publish_deadline(const struct sw_coordinator *c)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < c->n_waiters; i++) {
        const uint64_t at = idle_deadline(c, &c->waiters[i]);

        least = at < least ? at : least;
    }
    return least;
}
