/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's update as a whole. inferd decides by what it knows: the ranks of the engine on this
 * host. Nothing here asks a writer or the coordinator for anything.
 */
#include "inferd/registry_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sw_update_begin(struct sw_registry *r, struct sw_engine *g, const struct sw_phase_msg *arm)
{
    assert(g->update == 0);
    g->update = arm->update;
    g->last_update = arm->update;
    g->version = arm->version;
    g->layout_epoch = arm->layout_epoch;
    g->membership_epoch = arm->membership_epoch;
    g->armed_by = r->generation;
    g->lease_start_ns = g->lease_end_ns = 0;
    g->opened = g->broken = false;
}

void sw_update_start_lease(struct sw_registry *r, struct sw_engine *g, uint64_t now_ns)
{
    if (g->lease_end_ns)
        return;
    g->lease_start_ns = now_ns;
    g->lease_end_ns = now_ns + r->config.lease_ns;
}

void sw_update_send_resume(
    struct sw_registry *r, struct sw_rank *k, uint64_t update, uint64_t version)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE);

    if (msg) {
        msg->u.phase.phase = SW_PHASE_RESUME;
        msg->u.phase.update = update;
        msg->u.phase.version = version;
        msg->u.phase.layout_epoch = k->engine->layout_epoch;
        msg->u.phase.membership_epoch = k->engine->membership_epoch;
        msg->u.phase.rank = k->manifest.rank;
        msg->u.phase.instance = k->manifest.instance;
        msg->u.phase.engine = sw_arena_strdup(&msg->arena, k->manifest.engine);
        if (!msg->u.phase.engine) {
            sw_msg_free(msg);
            msg = NULL;
        }
    }
    sw_rank_go(k, SW_STEP_RESUMING);
    k->paused = false;
    k->awaited = SW_PHASE_RESUME;
    k->awaited_update = update;
    sw_out_engine(r, k, msg);
}

enum outcome { OUTCOME_RESUME_NEW, OUTCOME_RESUME_OLD, OUTCOME_TORN };

static enum outcome decide(const struct sw_registry *r, const struct sw_engine *g)
{
    bool all_active = !g->broken, torn = g->opened;

    for (const struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->engine != g)
            continue;
        torn = torn || k->torn;
        if (k->member)
            all_active = all_active && k->done >= SW_PHASE_ACTIVATE;
    }
    if (all_active)
        return OUTCOME_RESUME_NEW;
    return torn ? OUTCOME_TORN : OUTCOME_RESUME_OLD;
}

/* A member of an engine that is torn, on its way to staying paused. */
static void tear(struct sw_rank *k)
{
    switch (k->step) {
    case SW_STEP_SERVING: /* never paused in this update: whole, and left alone */
    case SW_STEP_RESUMING:
    case SW_STEP_TORN:
        return;
    case SW_STEP_OPENING:
    case SW_STEP_OPEN:
        k->want |= SW_WANT_CLOSE;
        /* fall through */
    case SW_STEP_CLOSING:
        k->torn = true;
        sw_rank_go(k, SW_STEP_TEARING);
        k->awaited = 0;
        return;
    case SW_STEP_PAUSING: /* its answer is still awaited: it tells that the process is paused */
        k->torn = true;
        sw_rank_go(k, SW_STEP_TORN);
        return;
    default:
        k->torn = true;
        sw_rank_go(k, SW_STEP_TORN);
        k->awaited = 0;
    }
}

static void resume_old(struct sw_registry *r, struct sw_rank *k, uint64_t update)
{
    switch (k->step) {
    case SW_STEP_PAUSED:
    case SW_STEP_PREPARING:
    case SW_STEP_PREPARED:
        sw_update_send_resume(r, k, update, k->version);
        break;
    default: /* SERVING: nothing to undo. PAUSING: RESUME follows the late acknowledgement. */
        break;
    }
}

static void leave_update(struct sw_rank *k)
{
    k->member = false;
    k->failed = false;
    k->asked = 0;
    sw_tokens_clear(&k->tokens);
}

/* The coordinator waits for an answer to a question that this end has overtaken. */
static void answer_asked(struct sw_registry *r, struct sw_rank *k, uint64_t update, const char *why)
{
    enum sw_phase asked = k->asked;

    k->asked = 0;
    if (asked)
        sw_phase_reply(r, k, asked, update, SW_ERR_ABORTED, why);
}

void sw_update_end(struct sw_registry *r, struct sw_engine *g, int level, const char *why)
{
    static const char *const results[] = {"resumes at the new version", "resumes its old version",
        "stays paused, torn, until an update repairs it"};
    enum outcome outcome = decide(r, g);
    uint64_t update = g->update;

    for (struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->engine != g || !k->member)
            continue;
        if (k->step == SW_STEP_TORN)
            ; /* armed, not paused again: torn it stays */
        else if (outcome == OUTCOME_TORN)
            tear(k);
        else if (outcome == OUTCOME_RESUME_OLD)
            resume_old(r, k, update);
        else if (k->step == SW_STEP_ACTIVE)
            sw_update_send_resume(r, k, update, g->version);
        snprintf(
            k->reason, sizeof(k->reason), "%.700s; engine %s %s", why, g->name, results[outcome]);
        answer_asked(r, k, update, k->reason);
        leave_update(k);
    }
    sw_out_log(r, outcome == OUTCOME_TORN ? SW_LOG_ERROR : level,
        "update %" PRIu64 " of engine %s to version %" PRIu64 " ended: %.700s; it %s", update,
        g->name, g->version, why, results[outcome]);
    g->update = 0;
    g->lease_end_ns = 0;
}

void sw_update_finish(struct sw_registry *r, struct sw_engine *g)
{
    bool any = false;

    if (!g->update)
        return;
    for (const struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->engine != g || !k->member)
            continue;
        any = true;
        if (k->done < SW_PHASE_RESUME)
            return;
    }
    for (struct sw_rank *k = r->ranks; k; k = k->next)
        if (k->engine == g && k->member)
            leave_update(k);
    if (any)
        sw_out_log(r, SW_LOG_INFO, "engine %s serves version %" PRIu64 " (update %" PRIu64 ")",
            g->name, g->version, g->update);
    g->update = 0;
    g->lease_end_ns = 0;
}

void sw_update_leave(struct sw_registry *r, struct sw_rank *k)
{
    struct sw_engine *g = k->engine;

    if (!g)
        return;
    if (k->member && k->done < SW_PHASE_ACTIVATE)
        g->broken = true;
    leave_update(k);
    k->engine = NULL;
    if (--g->n_ranks == 0) {
        struct sw_engine **link = &r->engines;

        while (*link != g)
            link = &(*link)->next;
        *link = g->next;
        free(g);
        return;
    }
    sw_update_finish(r, g);
}
