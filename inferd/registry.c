/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/registry_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"

struct sw_registry *sw_registry_new(const struct sw_registry_config *config)
{
    struct sw_registry *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->config = *config;
    r->last = &r->first;
    return r;
}

void sw_rank_free(struct sw_rank *k)
{
    if (!k)
        return;
    sw_manifest_clear(&k->manifest);
    sw_tokens_clear(&k->tokens);
    free(k);
}

void sw_registry_free(struct sw_registry *r)
{
    if (!r)
        return;
    for (struct sw_rank *k = r->ranks, *next; k; k = next) {
        next = k->next;
        sw_rank_free(k);
    }
    for (struct sw_engine *g = r->engines, *next; g; g = next) {
        next = g->next;
        free(g);
    }
    sw_out_clear(r);
    free(r);
}

void sw_rank_go(struct sw_rank *k, enum sw_step to)
{
    assert(sw_step_allowed(k->step, to));
    k->step = to;
}

void sw_rank_check(const struct sw_rank *k)
{
    bool window = sw_step_has_window(k->step);

    assert(k->step < SW_STEP_COUNT);
    assert(window == !sw_id_is_none(&k->window) || k->step == SW_STEP_GONE);
    assert(!k->member || (k->engine && k->engine->update));
    assert(!window || k->paused);
    assert(!(k->step >= SW_STEP_PAUSED && k->step <= SW_STEP_ACTIVE) || (k->paused && k->member));
    assert(!(k->step == SW_STEP_ACTIVE || k->step == SW_STEP_RESUMING) || !k->torn);
    assert(k->step != SW_STEP_SERVING || (!k->torn && !k->paused));
    assert(k->step != SW_STEP_TORN || k->torn);
    assert(!k->asked || k->member);
    assert(!k->awaited || k->step == SW_STEP_PAUSING || k->step == SW_STEP_PREPARING ||
           k->step == SW_STEP_POSTING || k->step == SW_STEP_ACTIVATING ||
           k->step == SW_STEP_RESUMING || (k->step == SW_STEP_TORN && !k->paused));
    assert(!k->abort_update || k->step == SW_STEP_TEARING);
    assert(k->step != SW_STEP_GONE || (!k->engine && !k->member));
}

static struct sw_rank *find_session(struct sw_registry *r, uint64_t session)
{
    for (struct sw_rank *k = r->ranks; k; k = k->next)
        if (k->session == session)
            return k;
    return NULL;
}

static void unlink_and_free(struct sw_registry *r, struct sw_rank *k)
{
    struct sw_rank **link = &r->ranks;

    while (*link != k)
        link = &(*link)->next;
    *link = k->next;
    sw_rank_free(k);
}

/* ---- registration ---- */

static void send_registered(struct sw_registry *r, struct sw_rank *k, const char *engine,
    uint32_t rank, int code, const char *reason)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_REGISTERED);

    if (msg) {
        msg->u.registered.rank = rank;
        msg->u.registered.error.code = code;
        msg->u.registered.engine = sw_arena_strdup(&msg->arena, engine);
        msg->u.registered.error.reason = sw_arena_strdup(&msg->arena, reason);
        if (!msg->u.registered.engine || !msg->u.registered.error.reason) {
            sw_msg_free(msg);
            msg = NULL;
        }
    }
    sw_out_engine(r, k, msg);
}

/* The process may declare again on the same connection. */
static void refuse_manifest(struct sw_registry *r, struct sw_rank *k, const char *engine,
    uint32_t rank, const struct sw_error *e)
{
    sw_out_log(r, SW_LOG_ERROR, "refused the registration of process %u: %s", k->pid, e->text);
    send_registered(r, k, engine, rank, e->code, e->text);
    sw_update_leave(r, k);
    sw_manifest_clear(&k->manifest);
    k->refused = true;
    k->manifest_end_ns = 0;
    if (k->step != SW_STEP_CONNECTED)
        sw_rank_go(k, SW_STEP_CONNECTED);
}

/* Who else claims this name or instance, and does the world agree? */
static int check_claim(const struct sw_registry *r, const struct sw_manifest *m, struct sw_error *e)
{
    for (const struct sw_rank *k = r->ranks; k; k = k->next) {
        if (!k->engine)
            continue;
        if (sw_id_equal(&k->manifest.instance, &m->instance))
            return sw_fail(e, SW_ERR_EXISTS,
                "this instance is registered already, by process %u as " SW_RANK_FMT, k->pid,
                SW_RANK_ARGS(k));
        if (strcmp(k->engine->name, m->engine) != 0)
            continue;
        if (k->manifest.rank == m->rank)
            return sw_fail(e, SW_ERR_EXISTS,
                SW_RANK_FMT " is registered already, by process %u; stop that one, or choose "
                            "another engine name",
                SW_RANK_ARGS(k), k->pid);
        if (k->engine->world != m->world)
            return sw_fail(e, SW_ERR_INVALID,
                "engine %s rank %u says that its world has %u ranks; rank %u, process %u, says %u",
                m->engine, m->rank, m->world, k->manifest.rank, k->pid, k->engine->world);
    }
    return 0;
}

static int join_engine(struct sw_registry *r, struct sw_rank *k, struct sw_error *e)
{
    struct sw_engine *g = r->engines;
    uint32_t n = 0;

    for (; g && strcmp(g->name, k->manifest.engine) != 0; g = g->next)
        n++;
    if (!g) {
        if (n >= SW_ENGINES_MAX)
            return sw_fail(e, SW_ERR_LIMIT, "%u engines are registered here, the limit", n);
        g = calloc(1, sizeof(*g));
        if (!g)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for engine %s", k->manifest.engine);
        snprintf(g->name, sizeof(g->name), "%s", k->manifest.engine);
        g->world = k->manifest.world;
        g->next = r->engines;
        r->engines = g;
    }
    g->n_ranks++;
    k->engine = g;
    return 0;
}

/* What this manifest may take: the limit for all, less what the others hold. */
static size_t memory_left(const struct sw_registry *r, const struct sw_rank *self)
{
    size_t used = 0;

    for (const struct sw_rank *k = r->ranks; k; k = k->next)
        if (k != self)
            used += sw_manifest_memory(&k->manifest);
    return used < SW_MANIFESTS_BYTES_MAX ? SW_MANIFESTS_BYTES_MAX - used : 0;
}

static void on_engine_rank(
    struct sw_registry *r, struct sw_rank *k, struct sw_msg *msg, uint64_t now_ns)
{
    struct sw_engine_rank *in = &msg->u.engine_rank;
    struct sw_error e = {0};
    int rc;

    if (k->step != SW_STEP_CONNECTED) {
        sw_out_drop(k, "a second ENGINE_RANK on one connection: close it and connect again");
        return;
    }
    rc = sw_manifest_begin(&k->manifest, msg, memory_left(r, k), &e);
    if (!rc)
        rc = check_claim(r, &k->manifest, &e);
    if (!rc)
        rc = join_engine(r, k, &e);
    if (rc) {
        refuse_manifest(r, k, in->engine, in->rank, &e);
        return;
    }
    k->refused = false;
    k->manifest_end_ns = now_ns + r->config.manifest_ns;
    k->version = k->manifest.version;
    k->torn = k->manifest.torn;
    k->reason[0] = '\0';
    sw_rank_go(k, SW_STEP_MANIFEST);
}

static void on_parameters(struct sw_registry *r, struct sw_rank *k, const struct sw_parameters *in)
{
    struct sw_error e = {0};
    char engine[SW_LABEL_MAX + 1];
    int rc;

    if (k->step == SW_STEP_CONNECTED && k->refused)
        return; /* was on its way when its manifest was refused */
    if (k->step != SW_STEP_MANIFEST) {
        sw_out_drop(k, "PARAMETERS without an ENGINE_RANK before them");
        return;
    }
    rc = sw_manifest_add(&k->manifest, in, memory_left(r, k), &e);
    if (!rc && k->manifest.n < k->manifest.expected)
        return;
    if (!rc)
        rc = sw_manifest_check(&k->manifest, &e);
    if (rc) {
        snprintf(engine, sizeof(engine), "%s", k->manifest.engine);
        refuse_manifest(r, k, engine, k->manifest.rank, &e);
        return;
    }
    k->manifest_end_ns = 0;
    k->want |= SW_WANT_MAP;
    sw_rank_go(k, SW_STEP_MAPPING);
}

static void on_mapped(struct sw_registry *r, struct sw_rank *k, int code, const char *text)
{
    struct sw_error e = {0};
    char engine[SW_LABEL_MAX + 1];

    if (k->step != SW_STEP_MAPPING)
        return;
    if (code) {
        snprintf(engine, sizeof(engine), "%s", k->manifest.engine);
        sw_fail(&e, code, SW_RANK_FMT ": %.800s", SW_RANK_ARGS(k), text ? text : "mapping failed");
        refuse_manifest(r, k, engine, k->manifest.rank, &e);
        return;
    }
    sw_manifest_close_fds(&k->manifest); /* the mapping holds the memory */
    sw_manifest_drop_runs(&k->manifest);
    k->paused = k->torn;
    if (k->torn)
        snprintf(k->reason, sizeof(k->reason),
            "registered torn: it was paused for an update whose "
            "end it never saw");
    sw_rank_go(k, k->torn ? SW_STEP_TORN : SW_STEP_SERVING);
    if (r->coordinator_up)
        k->announce = SW_ANNOUNCE_DUE;
    send_registered(r, k, k->manifest.engine, k->manifest.rank, 0, "");
    sw_out_log(r, SW_LOG_INFO,
        SW_RANK_FMT " of %u registered by process %u: %u parameters, %" PRIu64
                    " bytes in %u regions, version %" PRIu64 "%s",
        SW_RANK_ARGS(k), k->manifest.world, k->pid, k->manifest.n, k->manifest.parameter_bytes,
        k->manifest.n_regions, k->version, k->torn ? ", torn" : "");
}

/* ---- engine sessions ---- */

static void engine_up(struct sw_registry *r, const struct sw_registry_event *event)
{
    struct sw_rank *k = calloc(1, sizeof(*k));
    struct sw_rank **link = &r->ranks;

    if (!k) {
        sw_out_log(r, SW_LOG_ERROR, "no memory for the connection of process %u", event->pid);
        return;
    }
    k->session = event->session;
    k->pid = event->pid;
    k->process = event->instance;
    while (*link)
        link = &(*link)->next;
    *link = k;
}

static void engine_message(
    struct sw_registry *r, struct sw_rank *k, struct sw_msg *msg, uint64_t now_ns)
{
    if (k->dropped || k->step == SW_STEP_GONE)
        return;
    switch (msg->kind) {
    case SW_MSG_ENGINE_RANK:
        on_engine_rank(r, k, msg, now_ns);
        break;
    case SW_MSG_PARAMETERS:
        on_parameters(r, k, &msg->u.parameters);
        break;
    case SW_MSG_PHASE_DONE:
        if (sw_step_registered(k->step))
            sw_phase_answer(r, k, &msg->u.phase_done, now_ns);
        else
            sw_out_drop(k, "PHASE_DONE of a rank that is not registered");
        break;
    default:
        sw_out_drop(k, "an engine process does not send %s", sw_msg_kind_name(msg->kind));
        break;
    }
}

/* The process or its connection is gone. Its memory goes at once; the window closes before. */
static void engine_down(struct sw_registry *r, struct sw_rank *k, const char *text)
{
    bool mapped = k->step >= SW_STEP_MAPPING && !(k->want & SW_WANT_MAP);
    enum sw_step was = k->step;

    if (was == SW_STEP_GONE)
        return;
    if (sw_step_registered(was)) {
        snprintf(k->reason, sizeof(k->reason), "the engine process %u is gone%s%.700s%s", k->pid,
            text && text[0] ? ": " : "", text ? text : "",
            sw_step_has_window(was) ? " (its window was open)" : "");
        sw_out_log(r, k->member ? SW_LOG_ERROR : SW_LOG_INFO, SW_RANK_FMT " (%s): %.900s",
            SW_RANK_ARGS(k), sw_step_name(was), k->reason);
    }
    sw_update_leave(r, k);
    if (!mapped) {
        unlink_and_free(r, k);
        return;
    }
    sw_rank_go(k, SW_STEP_GONE);
    k->want = SW_WANT_RELEASE;
    k->awaited = 0;
    k->abort_update = 0;
    k->paused = false;
}

/* ---- the coordinator ---- */

static void coordinator_forget(struct sw_registry *r)
{
    sw_out_purge_coordinator(r);
    for (struct sw_rank *k = r->ranks; k; k = k->next) {
        k->announce = SW_ANNOUNCE_NONE;
        k->told = 0;
        k->asked = 0;
        k->abort_update = 0;
    }
}

/* Only the connection that armed an update may drive it: what an earlier one left is over now. */
static void coordinator_up(struct sw_registry *r, const struct sw_id *instance)
{
    coordinator_forget(r);
    for (struct sw_engine *g = r->engines; g; g = g->next) {
        if (g->update)
            sw_update_end(
                r, g, SW_LOG_WARNING, "the connection to the coordinator that armed it was lost");
        if (!sw_id_equal(instance, &r->coordinator))
            g->last_update = 0; /* another one counts for itself */
    }
    sw_out_purge_coordinator(r);
    r->generation++;
    r->coordinator = *instance;
    r->coordinator_up = true;
    for (struct sw_rank *k = r->ranks; k; k = k->next)
        if (sw_step_registered(k->step))
            k->announce = SW_ANNOUNCE_DUE;
}

static void coordinator_message(struct sw_registry *r, struct sw_msg *msg, uint64_t now_ns)
{
    if (!r->coordinator_up) {
        sw_msg_free(msg);
    } else if (msg->kind == SW_MSG_PHASE) {
        sw_phase_handle(r, msg, now_ns);
    } else {
        sw_out_log(r, SW_LOG_WARNING,
            "the coordinator sent %s, which is not for an inferd: ignored",
            sw_msg_kind_name(msg->kind));
        sw_msg_free(msg);
    }
}

/* ---- time ---- */

static void look_at_time(struct sw_registry *r, uint64_t now_ns)
{
    char why[160];

    for (struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->step != SW_STEP_MANIFEST || k->dropped || now_ns < k->manifest_end_ns)
            continue;
        sw_out_log(r, SW_LOG_ERROR,
            SW_RANK_FMT ", process %u: only %u of %u parameters came within %" PRIu64 " ms",
            SW_RANK_ARGS(k), k->pid, k->manifest.n, k->manifest.expected,
            r->config.manifest_ns / 1000000);
        sw_out_drop(k, SW_RANK_FMT ": only %u of %u parameters came within %" PRIu64 " ms",
            SW_RANK_ARGS(k), k->manifest.n, k->manifest.expected, r->config.manifest_ns / 1000000);
    }
    for (struct sw_engine *g = r->engines; g; g = g->next) {
        if (!g->lease_end_ns || now_ns < g->lease_end_ns)
            continue;
        snprintf(
            why, sizeof(why), "its lease of %" PRIu64 " ms is over", r->config.lease_ns / 1000000);
        sw_update_end(r, g, SW_LOG_ERROR, why);
    }
}

uint64_t sw_registry_deadline(const struct sw_registry *r)
{
    uint64_t deadline = UINT64_MAX;

    for (const struct sw_rank *k = r->ranks; k; k = k->next)
        if (k->step == SW_STEP_MANIFEST && !k->dropped && k->manifest_end_ns < deadline)
            deadline = k->manifest_end_ns;
    for (const struct sw_engine *g = r->engines; g; g = g->next)
        if (g->lease_end_ns && g->lease_end_ns < deadline)
            deadline = g->lease_end_ns;
    return deadline;
}

/* ---- events ---- */

static void session_event(
    struct sw_registry *r, const struct sw_registry_event *event, uint64_t now_ns)
{
    struct sw_rank *k = find_session(r, event->session);

    switch (k ? event->kind : SW_REG_TICK) {
    case SW_REG_ENGINE_MESSAGE:
        engine_message(r, k, event->message, now_ns);
        break;
    case SW_REG_ENGINE_DOWN:
        engine_down(r, k, event->text);
        break;
    case SW_REG_MAPPED:
        on_mapped(r, k, event->code, event->text);
        break;
    case SW_REG_WINDOW_OPENED:
        sw_phase_window_opened(r, k, event->code, event->text);
        break;
    case SW_REG_WINDOW_CLOSED:
        sw_phase_window_closed(r, k, event->bytes);
        break;
    case SW_REG_RELEASED:
        k->released = k->step == SW_STEP_GONE;
        break;
    default: /* a session that is over */
        break;
    }
    sw_msg_free(event->message);
}

void sw_registry_handle(
    struct sw_registry *r, const struct sw_registry_event *event, uint64_t now_ns)
{
    /* What time has decided is decided before anything that comes later. */
    look_at_time(r, now_ns);
    switch (event->kind) {
    case SW_REG_ENGINE_UP:
        engine_up(r, event);
        break;
    case SW_REG_COORDINATOR_UP:
        coordinator_up(r, &event->instance);
        break;
    case SW_REG_COORDINATOR_DOWN:
        coordinator_forget(r);
        r->coordinator_up = false;
        break;
    case SW_REG_COORDINATOR_MESSAGE:
        coordinator_message(r, event->message, now_ns);
        break;
    case SW_REG_TICK:
        break;
    default:
        session_event(r, event, now_ns);
        break;
    }
    for (const struct sw_rank *k = r->ranks; k; k = k->next)
        sw_rank_check(k);
}

int sw_registry_memory(
    const struct sw_registry *r, uint64_t session, struct sw_registry_memory *out)
{
    for (const struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->session != session || !k->manifest.runs)
            continue;
        out->n_regions = k->manifest.n_regions;
        out->fds = k->manifest.fds;
        out->region_bytes = k->manifest.region_bytes;
        out->n_runs = k->manifest.n_runs;
        out->runs = k->manifest.runs;
        return 0;
    }
    return SW_ERR_NOT_FOUND;
}

int sw_registry_admit(struct sw_registry *r, const struct sw_id *writer,
    const struct sw_path_open *open, uint64_t now_ns, uint64_t *session, struct sw_error *e)
{
    struct sw_rank *k = r->ranks;
    int rc = 0;

    for (; k; k = k->next)
        if (sw_step_registered(k->step) && !k->dropped &&
            sw_id_equal(&k->manifest.instance, &open->engine_instance) &&
            k->manifest.rank == open->engine_rank && strcmp(k->manifest.engine, open->engine) == 0)
            break;
    if (!k)
        return sw_fail(e, SW_ERR_NOT_FOUND,
            "engine %s rank %u is not registered here, or its process is another one now",
            open->engine, open->engine_rank);
    if (open->local) {
        if (!sw_secret_equal(open->host_nonce, r->config.host_nonce, SW_NONCE_BYTES))
            rc = sw_fail(e, SW_ERR_AUTH, "the nonce of this host is another one");
        else if (k->layout_epoch == 0 || open->layout_epoch != k->layout_epoch)
            rc = sw_fail(e, SW_ERR_AUTH,
                "layout epoch %" PRIu64 " is not the one armed last, %" PRIu64, open->layout_epoch,
                k->layout_epoch);
    } else {
        rc = sw_tokens_use(&k->tokens, &open->token, writer, open->layout_epoch, now_ns, e);
    }
    if (rc)
        return sw_error_context(e, rc, "data path to " SW_RANK_FMT, SW_RANK_ARGS(k));
    *session = k->session;
    return 0;
}
