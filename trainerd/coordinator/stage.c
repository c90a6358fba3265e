/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version from begin to staged.
 *
 *   COLLECTING  ranks ask to begin; nothing is promised
 *   PERSISTING  all asked, the plan is made and proved; the number is being made durable
 *   PLANNING    trainerds allocate replicas for a new layout
 *   STAGING     granted: trainers put and end
 *   STAGED      all ended, aliases agree
 *
 * A begin that fails before the number was durable leaves nothing behind: it can be tried again.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

static const struct {
    const char *name;
    unsigned next; /* bits of the states that may follow */
} stages[STAGE_COUNT] = {
    [STAGE_NEW] = {"new", 1u << STAGE_COLLECTING},
    [STAGE_COLLECTING] = {"beginning", 1u << STAGE_PERSISTING | 1u << STAGE_ABORTED},
    [STAGE_PERSISTING] = {"beginning (storing the version)",
        1u << STAGE_PLANNING | 1u << STAGE_STAGING | 1u << STAGE_ABORTED},
    [STAGE_PLANNING] = {"beginning (allocating)", 1u << STAGE_STAGING | 1u << STAGE_ABORTED},
    [STAGE_STAGING] = {"staging", 1u << STAGE_STAGED | 1u << STAGE_ABORTED},
    [STAGE_STAGED] = {"staged", 1u << STAGE_PUBLISHING | 1u << STAGE_ABORTED},
    [STAGE_PUBLISHING] = {"publishing", 1u << STAGE_LIVE | 1u << STAGE_PARTIAL},
    [STAGE_LIVE] = {"live", 0},
    [STAGE_PARTIAL] = {"partial", 0},
    [STAGE_ABORTED] = {"aborted", 0},
};

#define V(x) ((unsigned long long)(x))

const char *sw_coord_stage_name(enum stage stage)
{
    return stages[stage].name;
}

void sw_coord_update_move(struct sw_coordinator *c, struct update *u, enum stage to, uint64_t now)
{
    (void)c;
    assert(stages[u->stage].next & 1u << to);
    u->stage = to;
    u->since = now;
}

void sw_coord_update_free(struct update *u)
{
    if (!u)
        return;
    for (uint32_t i = 0; i < u->n_engines; i++)
        free(u->engines[i].engine);
    for (uint32_t i = 0; i < u->n_others; i++)
        free(u->others[i].engine);
    sw_coord_targets_free(u->targets, u->n_targets);
    free(u->engines);
    free(u->others);
    free(u);
}

void sw_coord_remember(struct sw_coordinator *c, struct update *u)
{
    if (c->n_history == SW_COORD_HISTORY) {
        sw_coord_update_free(c->history[0]);
        memmove(&c->history[0], &c->history[1], (SW_COORD_HISTORY - 1) * sizeof(c->history[0]));
        c->n_history--;
    }
    c->history[c->n_history++] = u;
}

void sw_coord_saw_version(struct sw_coordinator *c, uint64_t version, const char *where)
{
    if (version <= c->last_version)
        return;
    sw_coord_log(c, LEVEL_INFO, "engine %s holds version %llu, newer than any known here (%llu)",
        where, V(version), V(c->last_version));
    c->last_version = version;
    sw_coord_persist(c, version);
}

/* ---- answers ---- */

static void answer(struct sw_coordinator *c, uint64_t member, enum sw_msg_kind kind, uint32_t rank,
    uint64_t version, const struct sw_error *e)
{
    struct sw_msg *m = sw_coord_message(kind);

    if (m) {
        m->u.rank_reply.rank = rank;
        m->u.rank_reply.version = version;
        m->u.rank_reply.layout_epoch = e ? 0 : c->layout_epoch;
        m->u.rank_reply.error.code = e ? e->code : 0;
        m->u.rank_reply.error.reason = sw_coord_text(c, m, e ? e->text : "");
    }
    sw_coord_send(c, member, m);
}

struct abort_all {
    uint32_t rank;
    uint64_t version;
    const char *reason;
};

static void send_abort(struct sw_coordinator *c, uint64_t member, void *arg)
{
    const struct abort_all *a = arg;
    struct sw_msg *m = sw_coord_message(SW_MSG_ABORT);

    if (m) {
        m->u.abort.rank = a->rank;
        m->u.abort.version = a->version;
        m->u.abort.reason = sw_coord_text(c, m, a->reason);
    }
    sw_coord_send(c, member, m);
}

/* Everyone who waits for a begin or an end of this version hears why it will not be. */
static void answer_waiting_ranks(
    struct sw_coordinator *c, const struct update *u, const struct sw_error *e)
{
    const bool granted = u->stage >= STAGE_STAGING;

    for (uint32_t r = 0; r < c->world; r++) {
        struct trainer *t = &c->trainers[r];

        if (t->asked && !granted)
            answer(c, t->member, SW_MSG_BEGIN_DONE, r, u->version, e);
        else if (t->end_waits)
            answer(c, t->member, SW_MSG_END_DONE, r, u->version, e);
        sw_coord_trainer_clear(t);
    }
}

/* Gives up a version that is not published yet. `rank`: who did, or SW_COORD_NO_RANK. */
static void give_up(struct sw_coordinator *c, struct update *u, uint32_t rank,
    const struct sw_error *e, uint64_t now)
{
    const enum stage stage = u->stage;
    struct abort_all a = {rank, u->version, e->text};

    sw_coord_log(c, stage == STAGE_COLLECTING ? LEVEL_WARNING : LEVEL_ERROR,
        "version %llu is given up while %s: %s", V(u->version), stages[stage].name, e->text);
    if (u == c->begin)
        answer_waiting_ranks(c, u, e);
    if (stage >= STAGE_STAGING)
        sw_coord_each_trainerd(c, send_abort, &a);
    if (u == c->begin) /* a staged one that is replaced has none of its own */
        sw_coord_layout_drop(c);
    if (stage == STAGE_PLANNING)
        sw_coord_layout_lost(c);
    c->begin = u == c->begin ? NULL : c->begin;
    c->staged = u == c->staged ? NULL : c->staged;
    u->failure = *e;
    u->failure.code = SW_ERR_ABORTED;
    sw_coord_fail_waiters(c, u->version, stage >= STAGE_STAGING ? &u->failure : e);
    sw_coord_update_move(c, u, STAGE_ABORTED, now);
    if (u->burned)
        sw_coord_remember(c, u);
    else
        sw_coord_update_free(u);
}

void sw_coord_stage_give_up(struct sw_coordinator *c, const char *why, uint64_t now)
{
    struct sw_error e;

    sw_fail(&e, SW_ERR_ABORTED, "%s", why);
    if (c->begin)
        give_up(c, c->begin, SW_COORD_NO_RANK, &e, now);
    if (c->staged)
        give_up(c, c->staged, SW_COORD_NO_RANK, &e, now);
}

/* ---- begin ---- */

static int check_begin(struct sw_coordinator *c, const struct trainer *t,
    const struct sw_begin *msg, struct sw_error *e)
{
    const struct update *b = c->begin;

    if (!t || !t->alive)
        return sw_fail(e, SW_ERR_STATE,
            "trainer rank %u is not opened here; open and declare it first", msg->rank);
    if (!t->manifest || t->incoming)
        return sw_fail(
            e, SW_ERR_STATE, "trainer rank %u has not declared its source tensors yet", msg->rank);
    if (msg->base != 0)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "version %llu asks to stage only what differs from version %llu: that is not done by "
            "this version; stage all tensors (base 0)",
            V(msg->version), V(msg->base));
    if (b && b->stage >= STAGE_PERSISTING)
        return sw_fail(e, SW_ERR_STATE,
            "version %llu is %s; end or abort it before version %llu begins", V(b->version),
            stages[b->stage].name, V(msg->version));
    if (msg->version <= c->last_version)
        return sw_fail(e, SW_ERR_VERSION,
            "version %llu can't begin: it must be larger than %llu, the largest version so far",
            V(msg->version), V(c->last_version));
    return 0;
}

/* Ranks disagree: the lower version is refused. True when `version` may still be asked for. */
static bool settle_versions(
    struct sw_coordinator *c, const struct sw_begin *msg, struct sw_error *e, uint64_t now)
{
    struct update *b = c->begin;
    struct sw_error lower;

    if (!b || b->version == msg->version)
        return true;
    if (msg->version < b->version) {
        sw_fail(e, SW_ERR_VERSION,
            "trainer rank %u asks to begin version %llu, but other ranks ask for version %llu: all "
            "ranks must begin the same one, and the larger counts",
            msg->rank, V(msg->version), V(b->version));
        return false;
    }
    sw_fail(&lower, SW_ERR_VERSION,
        "version %llu can't begin: trainer rank %u asks for version %llu, and the larger counts",
        V(b->version), msg->rank, V(msg->version));
    give_up(c, b, msg->rank, &lower, now);
    return true;
}

/* Version 0 asks for the next one: what other ranks asked for, or one more than the largest. */
static uint64_t next_version(const struct sw_coordinator *c)
{
    return c->begin && c->begin->stage == STAGE_COLLECTING ? c->begin->version
                                                           : c->last_version + 1;
}

void sw_coord_begin(
    struct sw_coordinator *c, uint64_t member, const struct sw_begin *asked, uint64_t now)
{
    struct trainer *t = sw_coord_trainer(c, member, asked->rank);
    struct sw_begin begin = *asked;
    const struct sw_begin *msg = &begin;
    struct sw_error e;

    if (!begin.version)
        begin.version = next_version(c);

    if (t && t->asked && c->begin && c->begin->version == msg->version &&
        c->begin->stage < STAGE_STAGING)
        return; /* asked twice, gets one answer */
    if (check_begin(c, t, msg, &e) || !settle_versions(c, msg, &e, now)) {
        answer(c, member, SW_MSG_BEGIN_DONE, msg->rank, msg->version, &e);
        return;
    }
    if (!c->begin) {
        c->begin = calloc(1, sizeof(*c->begin));
        if (!c->begin) {
            sw_fail(&e, SW_ERR_NOMEM, "the coordinator has no memory for version %llu",
                V(msg->version));
            answer(c, member, SW_MSG_BEGIN_DONE, msg->rank, msg->version, &e);
            return;
        }
        c->begin->version = msg->version;
        c->begin->started = now;
        sw_coord_update_move(c, c->begin, STAGE_COLLECTING, now);
    }
    sw_coord_trainer_clear(t);
    t->asked = true;
    t->asked_at = now;
    c->begin->n_asked++;
}

/* ---- from collected to granted ---- */

/* After a restart the others get time to connect again and tell what they hold. */
static uint64_t settled_at(const struct sw_coordinator *c)
{
    const uint64_t grace = (uint64_t)SW_RECONNECT_MAX_MS * 1000000;

    return c->config.last_version && c->started ? c->started_at + grace : 0;
}

static uint32_t complete_engines(const struct sw_coordinator *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_engines; i++)
        n += sw_coord_engine_complete(c->engines[i]);
    return n;
}

static void missing_ranks(const struct sw_coordinator *c, char *out, size_t size)
{
    struct name_list list = {.out = out, .size = size};

    for (uint32_t r = 0; r < c->world; r++) {
        const struct trainer *t = &c->trainers[r];

        if (t->asked)
            continue;
        if (!t->opened)
            sw_coord_list_add(&list, "trainer rank %u of %u (never opened)", r, c->world);
        else if (!t->alive)
            sw_coord_list_add(&list, "trainer rank %u (its process on %s is gone)", r, t->host);
        else if (!t->manifest)
            sw_coord_list_add(&list, "trainer rank %u on %s (has declared nothing)", r, t->host);
        else
            sw_coord_list_add(
                &list, "trainer rank %u on %s (process %u has not begun)", r, t->host, t->pid);
    }
    sw_coord_list_end(&list);
}

static void missing_engine(const struct sw_coordinator *c, char *out, size_t size)
{
    char text[400];
    size_t used = (size_t)snprintf(out, size, "a complete engine");

    if (c->n_engines == 0 && used < size)
        snprintf(out + used, size - used,
            " (none is registered; is inferd running, does it name this coordinator?)");
    for (uint32_t i = 0; i < c->n_engines && i < 3 && used < size; i++) {
        sw_coord_engine_missing(c, c->engines[i], text, sizeof(text));
        used += (size_t)snprintf(
            out + used, size - used, "%s engine %s: %s", i ? ";" : ":", c->engines[i]->name, text);
    }
}

/* What begin still waits for; false = nothing. */
static bool begin_waits(const struct sw_coordinator *c, uint64_t now, char *out, size_t size)
{
    const struct update *b = c->begin;

    if (b->n_asked < c->world) {
        missing_ranks(c, out, size);
        return true;
    }
    if (complete_engines(c) == 0) {
        missing_engine(c, out, size);
        return true;
    }
    if (now < settled_at(c)) {
        snprintf(out, size, "daemons to connect again after this coordinator's restart");
        return true;
    }
    if (c->publishing && sw_coord_publish_starting(c)) {
        snprintf(out, size, "the update to version %llu to choose what it reads",
            V(c->publishing->version));
        return true;
    }
    if (c->staged && c->staged->publish_asked) {
        snprintf(out, size, "the publish of version %llu, which waits for that of version %llu",
            V(c->staged->version), V(c->publishing ? c->publishing->version : 0));
        return true;
    }
    return false;
}

static void persist_begin(struct sw_coordinator *c, uint64_t now)
{
    sw_coord_update_move(c, c->begin, STAGE_PERSISTING, now);
    sw_coord_persist(c, c->begin->version);
}

static void fail_begin(struct sw_coordinator *c, const struct sw_error *e, uint64_t now)
{
    give_up(c, c->begin, SW_COORD_NO_RANK, e, now);
}

static void try_begin(struct sw_coordinator *c, uint64_t now)
{
    struct update *b = c->begin;
    char text[600];
    bool needed = false;
    struct sw_error e;
    int err;

    if (begin_waits(c, now, text, sizeof(text)))
        return;
    if (b->version <= c->last_version) { /* an engine has shown a larger one meanwhile */
        sw_fail(&e, SW_ERR_VERSION,
            "version %llu can't begin: it must be larger than %llu, the largest version so far",
            V(b->version), V(c->last_version));
        fail_begin(c, &e, now);
        return;
    }
    err = sw_coord_layout_needed(c, &needed, &e);
    if (!err && needed && c->publishing)
        return; /* a new layout takes the memory that is being published from */
    if (!err && needed)
        err = sw_coord_layout_make(c, &e);
    if (err)
        fail_begin(c, &e, now);
    else
        persist_begin(c, now);
}

static void grant(struct sw_coordinator *c, uint64_t now)
{
    struct update *b = c->begin;

    sw_coord_update_move(c, b, STAGE_STAGING, now);
    b->layout_epoch = c->layout_epoch;
    for (uint32_t r = 0; r < c->world; r++)
        answer(c, c->trainers[r].member, SW_MSG_BEGIN_DONE, r, b->version, NULL);
    sw_coord_log(c, LEVEL_INFO, "version %llu is staging on %u trainer rank%s (layout epoch %llu)",
        V(b->version), c->world, c->world == 1 ? "" : "s", V(c->layout_epoch));
}

void sw_coord_persisted(
    struct sw_coordinator *c, uint64_t version, int code, const char *text, uint64_t now)
{
    struct update *b = c->begin;
    struct sw_error e;

    if (!b || b->stage != STAGE_PERSISTING || version < b->version) {
        if (code)
            sw_coord_log(
                c, LEVEL_WARNING, "version %llu could not be stored: %s", V(version), text);
        return;
    }
    if (code) {
        sw_fail(&e, code, "version %llu could not be stored durably, so it can't begin: %s",
            V(b->version), text);
        fail_begin(c, &e, now);
        return;
    }
    b->burned = true;
    if (b->version <= c->last_version) {
        sw_fail(&e, SW_ERR_VERSION,
            "version %llu can't begin: an engine holds version %llu already", V(b->version),
            V(c->last_version));
        fail_begin(c, &e, now);
        return;
    }
    c->last_version = b->version;
    if (c->staged) {
        sw_fail(&e, SW_ERR_ABORTED,
            "version %llu was replaced by version %llu before its "
            "publish began",
            V(c->staged->version), V(b->version));
        give_up(c, c->staged, SW_COORD_NO_RANK, &e, now);
        b = c->begin;
    }
    if (!c->next_plan) {
        grant(c, now);
    } else if (sw_coord_layout_install(c, b->version)) {
        sw_fail(&e, SW_ERR_NOMEM, "the coordinator has no memory for the plan");
        fail_begin(c, &e, now);
    } else {
        sw_coord_update_move(c, b, STAGE_PLANNING, now);
    }
}

void sw_coord_plan_done(
    struct sw_coordinator *c, uint64_t member, const struct sw_plan_done *msg, uint64_t now)
{
    struct sw_error e;

    if (!c->begin || c->begin->stage != STAGE_PLANNING || msg->layout_epoch != c->layout_epoch)
        return;
    if (msg->error.code) {
        sw_fail(&e, msg->error.code, "trainerd %s can't hold the replicas of version %llu: %s",
            sw_coord_member_name(c, member), V(c->begin->version), msg->error.reason);
        fail_begin(c, &e, now);
        return;
    }
    for (uint32_t i = 0; i < c->n_plan_waits; i++)
        if (c->plan_waits[i] == member) {
            c->plan_waits[i] = c->plan_waits[--c->n_plan_waits];
            break;
        }
    if (c->n_plan_waits == 0)
        grant(c, now);
}

/* ---- end ---- */

/* An end for a version that is not staging: why not? */
static void refuse_end(const struct sw_coordinator *c, const struct sw_end *msg, struct sw_error *e)
{
    for (uint32_t i = 0; i < c->n_history; i++) {
        const struct update *u = c->history[i];

        if (u->version == msg->version && u->stage == STAGE_ABORTED) {
            sw_fail(
                e, SW_ERR_ABORTED, "version %llu was given up: %s", V(u->version), u->failure.text);
            return;
        }
    }
    sw_fail(e, SW_ERR_STATE, "trainer rank %u ends version %llu, which it is not staging",
        msg->rank, V(msg->version));
}

static int digest_compare(const void *a, const void *b)
{
    const struct sw_digest *x = a, *y = b;

    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

/* Keeps the digests that the rank's load program asks for, by set; all must be there. */
static int keep_digests(
    struct sw_coordinator *c, struct trainer *t, const struct sw_end *msg, struct sw_error *e)
{
    const struct rank_plan *plan = &c->plan->by_rank[msg->rank];
    struct sw_digest *digests, *sorted;
    uint32_t missing = 0, first = 0;

    sorted = calloc((size_t)msg->n + 1, sizeof(*sorted));
    digests = calloc((size_t)plan->n_checks + 1, sizeof(*digests));
    if (!sorted || !digests) {
        free(sorted);
        free(digests);
        return sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory for digests");
    }
    if (msg->n)
        memcpy(sorted, msg->digests, msg->n * sizeof(*sorted));
    qsort(sorted, msg->n, sizeof(*sorted), digest_compare);
    for (uint32_t i = 0; i < plan->n_checks; i++) {
        const struct sw_digest key = {.set = plan->checks[i].set, .source = plan->checks[i].source};
        const struct sw_digest *found =
            msg->n ? bsearch(&key, sorted, msg->n, sizeof(*sorted), digest_compare) : NULL;

        if (found)
            digests[i] = *found;
        else if (missing++ == 0)
            first = i;
    }
    free(sorted);
    if (missing) {
        const char *names = sw_layout_alias_names(c->plan->layout, plan->checks[first].set);

        free(digests);
        return sw_fail(e, SW_ERR_STATE,
            "trainer rank %u has not put all of %s, which share one storage in an engine and must "
            "be compared (%u source%s missing); put them and end again",
            msg->rank, names, missing, missing == 1 ? " is" : "s are");
    }
    t->digests = digests;
    t->n_digests = plan->n_checks;
    return 0;
}

/* All ranks' digests of one set must be equal. */
static bool digests_agree(const struct sw_coordinator *c, struct sw_error *e)
{
    struct sw_digest *all;
    size_t total = 0, n = 0;
    bool agree = true;

    for (uint32_t r = 0; r < c->world; r++)
        total += c->trainers[r].n_digests;
    all = calloc(total + 1, sizeof(*all));
    if (!all) {
        sw_fail(e, SW_ERR_NOMEM, "the coordinator has no memory to compare digests");
        return false;
    }
    for (uint32_t r = 0; r < c->world; r++)
        for (uint32_t i = 0; i < c->trainers[r].n_digests; i++)
            all[n++] = c->trainers[r].digests[i];
    qsort(all, n, sizeof(*all), digest_compare);
    for (size_t i = 1; agree && i < n; i++)
        if (all[i].set == all[i - 1].set &&
            (all[i].high != all[i - 1].high || all[i].low != all[i - 1].low)) {
            agree = false;
            sw_fail(e, SW_ERR_INVALID,
                "source tensors %s differ, but they share one storage in an engine: make them "
                "equal "
                "or untie them",
                sw_layout_alias_names(c->plan->layout, all[i].set));
        }
    free(all);
    return agree;
}

static void all_ended(struct sw_coordinator *c, uint64_t now)
{
    struct update *b = c->begin;
    struct sw_error e;

    if (!digests_agree(c, &e)) {
        give_up(c, b, SW_COORD_NO_RANK, &e, now);
        return;
    }
    for (uint32_t r = 0; r < c->world; r++) {
        struct trainer *t = &c->trainers[r];

        b->stage_bytes += t->bytes;
        b->stage_ns = t->stage_ns > b->stage_ns ? t->stage_ns : b->stage_ns;
        answer(c, t->member, SW_MSG_END_DONE, r, b->version, NULL);
        sw_coord_trainer_clear(t);
    }
    sw_coord_update_move(c, b, STAGE_STAGED, now);
    c->begin = NULL;
    assert(!c->staged);
    c->staged = b;
    sw_coord_log(c, LEVEL_INFO, "version %llu is staged: %llu bytes in %.3f s", V(b->version),
        V(b->stage_bytes), (double)b->stage_ns / 1e9);
}

void sw_coord_end(struct sw_coordinator *c, uint64_t member, const struct sw_end *msg, uint64_t now)
{
    struct trainer *t = sw_coord_trainer(c, member, msg->rank);
    struct update *b = c->begin;
    struct sw_error e;

    if (t && t->ended && b && b->version == msg->version)
        return; /* said twice, gets one answer */
    if (!t || !b || b->stage != STAGE_STAGING || b->version != msg->version) {
        refuse_end(c, msg, &e);
        answer(c, member, SW_MSG_END_DONE, msg->rank, msg->version, &e);
        return;
    }
    if (keep_digests(c, t, msg, &e)) {
        answer(c, member, SW_MSG_END_DONE, msg->rank, msg->version, &e);
        return;
    }
    t->ended = t->end_waits = true;
    t->bytes = msg->bytes;
    t->stage_ns = msg->stage_ns;
    if (++b->n_ended == c->world)
        all_ended(c, now);
}

/* ---- giving up ---- */

void sw_coord_abort(
    struct sw_coordinator *c, uint64_t member, const struct sw_abort *msg, uint64_t now)
{
    const struct trainer *t = sw_coord_trainer(c, member, msg->rank);
    struct update *u = NULL;
    struct sw_error e;

    if (c->begin && (c->begin->version == msg->version || (!msg->version && t && t->asked)))
        u = c->begin; /* who asked for version 0 and gave up does not know its number */
    else if (c->staged && c->staged->version == msg->version)
        u = c->staged;
    if (!u || !t) /* over, or being published, which does not need trainers any more */
        return;
    sw_fail(&e, SW_ERR_ABORTED, "trainer rank %u on %s aborted it%s%s", msg->rank,
        sw_coord_member_name(c, member), msg->reason[0] ? ": " : "", msg->reason);
    give_up(c, u, msg->rank, &e, now);
}

void sw_coord_stage_rank_lost(
    struct sw_coordinator *c, uint32_t rank, bool replica_lost, const char *why, uint64_t now)
{
    struct trainer *t = &c->trainers[rank];
    struct update *b = c->begin;
    struct sw_error e;

    sw_fail(&e, SW_ERR_ABORTED, "trainer rank %u on %s is lost: %s", rank, t->host ? t->host : "?",
        why);
    if (c->staged && replica_lost)
        give_up(c, c->staged, rank, &e, now);
    if (!b || !t->asked)
        return;
    if (b->stage == STAGE_COLLECTING) {
        sw_coord_trainer_clear(t);
        if (--b->n_asked == 0)
            give_up(c, b, rank, &e, now);
    } else if (!t->ended || replica_lost) {
        give_up(c, b, rank, &e, now);
    } else {
        t->end_waits = false; /* nobody is there to hear it */
    }
}

/* ---- time ---- */

static uint64_t stage_deadline(const struct sw_coordinator *c, const struct update *b)
{
    return b->stage == STAGE_STAGING ? b->since + c->config.stage_ns
                                     : b->started + c->config.begin_ns;
}

static void not_ended(const struct sw_coordinator *c, char *out, size_t size)
{
    struct name_list list = {.out = out, .size = size};

    for (uint32_t r = 0; r < c->world; r++)
        if (!c->trainers[r].ended)
            sw_coord_list_add(&list, "trainer rank %u on %s (process %u)", r,
                c->trainers[r].host ? c->trainers[r].host : "?", c->trainers[r].pid);
    sw_coord_list_end(&list);
}

static void not_planned(const struct sw_coordinator *c, char *out, size_t size)
{
    struct name_list list = {.out = out, .size = size};

    for (uint32_t i = 0; i < c->n_plan_waits; i++)
        sw_coord_list_add(&list, "trainerd %s", sw_coord_member_name(c, c->plan_waits[i]));
    sw_coord_list_end(&list);
}

static void begin_is_late(struct sw_coordinator *c, uint64_t now)
{
    struct update *b = c->begin;
    const double seconds = sw_coord_seconds(b->started, now);
    char text[600] = "";
    struct sw_error e;

    switch (b->stage) {
    case STAGE_STAGING:
        not_ended(c, text, sizeof(text));
        sw_fail(&e, SW_ERR_TIMEOUT,
            "version %llu was not staged in %.1f s: no end came from %s; look at those processes, "
            "or "
            "raise the staging deadline",
            V(b->version), sw_coord_seconds(b->since, now), text);
        break;
    case STAGE_PLANNING:
        not_planned(c, text, sizeof(text));
        sw_fail(&e, SW_ERR_TIMEOUT,
            "begin of version %llu waited %.1f s: %s did not say that its replicas are allocated; "
            "look at its log and at that host's memory",
            V(b->version), seconds, text);
        break;
    case STAGE_PERSISTING:
        sw_fail(&e, SW_ERR_TIMEOUT,
            "begin of version %llu waited %.1f s for the coordinator's disk to store the version; "
            "look at its state directory",
            V(b->version), seconds);
        break;
    default:
        if (!begin_waits(c, now, text, sizeof(text)))
            snprintf(text, sizeof(text),
                "the update to version %llu, which still reads the memory that a new plan needs",
                V(c->publishing ? c->publishing->version : 0));
        sw_fail(&e, SW_ERR_TIMEOUT, "begin of version %llu waited %.1f s for %s", V(b->version),
            seconds, text);
    }
    give_up(c, b, SW_COORD_NO_RANK, &e, now);
}

void sw_coord_stage_tick(struct sw_coordinator *c, uint64_t now)
{
    if (c->begin && c->begin->stage == STAGE_COLLECTING)
        try_begin(c, now);
    if (c->begin && now >= stage_deadline(c, c->begin))
        begin_is_late(c, now);
}

uint64_t sw_coord_stage_deadline(const struct sw_coordinator *c)
{
    uint64_t at, settled;

    if (!c->begin)
        return UINT64_MAX;
    at = stage_deadline(c, c->begin);
    settled = settled_at(c);
    /* A settling time in the past has been looked at. */
    if (c->begin->stage == STAGE_COLLECTING && settled < at && settled > c->now)
        at = settled;
    return at;
}
