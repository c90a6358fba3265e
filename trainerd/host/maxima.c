/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FP8 blocks of which several ranks of this host hold parts: each rank leaves the maxima of its
 * parts in its buffer and says MAXIMA; when all ranks that share have, one reduction makes them
 * equal, and MAXIMA_DONE lets each quantise its own rows.
 *
 * Failure modes: a rank that never says it (the stage deadline ends the version; who waits here is
 * told for whom), a rank that leaves or aborts (likewise), a version that is over while a worker
 * reduces (its answer is dropped; the buffers are held until then, and so replaced by the next
 * begin), a program that does not fit its ranks (PLAN_DONE says so).
 */
#include <assert.h>
#include <stdio.h>

#include "common/error.h"
#include "trainerd/host/impl.h"

#define NAMES_SHOWN 8u

void maxima_program(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_maxima_program *p = &msg->u.maxima_program;
    struct sw_error e = {0};

    if (p->layout_epoch != h->failed_epoch || (!p->first_share && !p->first_member)) {
        h->plan_epoch = p->layout_epoch;
        if (sw_shares_add(&h->shares, p, &e))
            staging_plan_failed(h, e.code, e.text);
    } /* else the rest of what was refused */
    sw_msg_free(msg);
}

static uint64_t planned_maxima(uint32_t rank, void *arg)
{
    const struct sw_host *h = arg;
    const struct rank *r = host_rank(h, rank);

    return r && r->layout_epoch == sw_shares_epoch(h->shares) ? r->n_maxima : 0;
}

bool maxima_awaits(const struct sw_host *h, const struct rank *r)
{
    return h->shares && sw_shares_epoch(h->shares) == h->plan_epoch &&
           sw_shares_has(h->shares, r->rank);
}

int maxima_planned(struct sw_host *h, struct sw_error *e)
{
    const struct rank *sharing = h->ranks;

    while (sharing && !(sharing->layout_epoch == h->plan_epoch && sharing->n_maxima))
        sharing = sharing->next;
    if (!sharing) {
        sw_shares_release(h->shares);
        h->shares = NULL;
        return 0;
    }
    if (!sw_shares_whole(h->shares) || sw_shares_epoch(h->shares) != h->plan_epoch)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "trainer rank %u shares FP8 blocks with other ranks, and no whole maxima program came "
            "before its load program",
            sharing->rank);
    return sw_shares_check(h->shares, planned_maxima, h, e);
}

/* ---- one version ---- */

/* Whether the reduction of this version waits for the rank. */
static bool is_missing(const struct rank *r, uint64_t version, uint64_t layout_epoch)
{
    return r->n_maxima && r->layout_epoch == layout_epoch && r->shared != version;
}

/* "1, 3 and 5 more"; how many there are. */
static uint32_t missing_text(
    const struct sw_host *h, const struct rank *waits, char *text, size_t size)
{
    uint32_t n = 0;
    size_t used = 0;

    text[0] = '\0';
    for (const struct rank *r = h->ranks; r; r = r->next) {
        if (!is_missing(r, waits->version, waits->layout_epoch))
            continue;
        if (n++ < NAMES_SHOWN && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%u", n > 1 ? ", " : "", r->rank);
    }
    if (n > NAMES_SHOWN && used < size)
        snprintf(text + used, size - used, " and %u more", n - NAMES_SHOWN);
    return n;
}

/* Starts the reduction when all ranks that share have said MAXIMA. */
static void try_reduction(struct sw_host *h, const struct rank *last)
{
    struct sw_host_action a = {.kind = SW_HOST_REDUCE};

    if (h->reducing && h->reducing_version == last->version)
        return;
    for (const struct rank *r = h->ranks; r; r = r->next)
        if (is_missing(r, last->version, last->layout_epoch))
            return;
    a.generation = ++h->next_generation;
    a.shares = sw_shares_hold(h->shares);
    h->reducing = a.generation;
    h->reducing_version = last->version;
    if (!host_act(h, &a))
        maxima_reduced(h, &(struct sw_host_event){.generation = h->reducing,
                              .code = SW_ERR_NOMEM,
                              .text = "trainerd is out of memory"});
}

void maxima_came(struct sw_host *h, struct rank *r, struct sw_msg *msg)
{
    const uint64_t version = msg->u.maxima.version;

    sw_msg_free(msg);
    if (r->state != RANK_STAGING || version != r->version) {
        host_reply(h, r, SW_MSG_MAXIMA_DONE, version, SW_ERR_STATE,
            "block maxima of version %llu: trainer rank %u is %s (version %llu)",
            (unsigned long long)version, r->rank, rank_state_name(r->state),
            (unsigned long long)r->version);
    } else if (!r->n_maxima || r->reduced) { /* nothing to wait for */
        host_reply(h, r, SW_MSG_MAXIMA_DONE, version, 0, "%s", "");
    } else if (!h->shares || sw_shares_epoch(h->shares) != r->layout_epoch) {
        host_reply(h, r, SW_MSG_MAXIMA_DONE, version, SW_ERR_STATE,
            "block maxima of version %llu: the coordinator has made a new layout meanwhile",
            (unsigned long long)version);
    } else {
        r->shared = version;
        rank_enter(h, r, RANK_SHARING);
        try_reduction(h, r);
    }
}

void maxima_reduced(struct sw_host *h, const struct sw_host_event *ev)
{
    if (!h->reducing || ev->generation != h->reducing)
        return;
    h->reducing = 0;
    if (ev->code)
        host_log(h, 3, "%s", ev->text ? ev->text : "the reduction of block maxima failed");
    for (struct rank *r = h->ranks; r; r = r->next) {
        if (r->state != RANK_SHARING || r->version != h->reducing_version)
            continue;
        r->reduced = ev->code == 0;
        if (ev->code)
            r->shared = 0;
        rank_enter(h, r, RANK_STAGING);
        host_reply(h, r, SW_MSG_MAXIMA_DONE, r->version, ev->code, "%s", ev->text ? ev->text : "");
    }
}

void maxima_withdraw(struct sw_host *h, struct rank *r, const char *reason)
{
    char names[128];
    const uint32_t n = missing_text(h, r, names, sizeof(names));

    if (h->reducing_version == r->version)
        h->reducing = 0; /* whatever comes of it is late */
    if (n)
        host_reply(h, r, SW_MSG_MAXIMA_DONE, r->version, SW_ERR_ABORTED,
            "%.700s (what it waited for: block maxima of trainer rank%s %s)", reason,
            n > 1 ? "s" : "", names);
    else
        host_reply(h, r, SW_MSG_MAXIMA_DONE, r->version, SW_ERR_ABORTED, "%s", reason);
}

int sw_host_maxima_buffer(const struct sw_host *h, uint32_t rank)
{
    const struct rank *r = host_rank(h, rank);

    return r && h->reducing && r->state == RANK_SHARING && r->version == h->reducing_version
               ? (int)r->back
               : -1;
}
