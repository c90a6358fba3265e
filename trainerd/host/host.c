/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host machine's front: sessions, messages, the coordinator's coming and going, actions. What
 * belongs to staging a version is in staging.c, one rank's own data in rank.c.
 */
#include "trainerd/host/host.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/host/impl.h"

#define REQUESTS_MAX 4096u
#define DRAIN_POLL_NS 1000000u
#define DEAD_GRACE_NS 200000000u /* to read what a process had sent before it died */

struct sw_host *sw_host_new(const struct sw_host_config *config)
{
    struct sw_host *h = calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    h->config = *config;
    snprintf(h->name, sizeof(h->name), "%s", config->name ? config->name : "");
    snprintf(h->advertise, sizeof(h->advertise), "%s", config->advertise ? config->advertise : "");
    h->tail = &h->head;
    return h;
}

void sw_host_free(struct sw_host *h)
{
    if (!h)
        return;
    for (struct sw_host_action a; sw_host_next(h, &a);) {
        sw_msg_free(a.message);
        sw_shares_release(a.shares);
    }
    sw_shares_release(h->shares);
    for (struct session *s = h->sessions, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    for (struct request *q = h->requests, *next; q; q = next) {
        next = q->next;
        free(q);
    }
    for (struct rank *r = h->ranks, *next; r; r = next) {
        next = r->next;
        rank_free(r);
    }
    free(h);
}

/* ---- actions ---- */

bool host_act(struct sw_host *h, const struct sw_host_action *a)
{
    struct queued *q = malloc(sizeof(*q));

    if (!q) { /* a message that is lost for lack of memory is a peer that runs into its deadline */
        sw_msg_free(a->message);
        sw_shares_release(a->shares);
        return false;
    }
    q->action = *a;
    q->next = NULL;
    *h->tail = q;
    h->tail = &q->next;
    return true;
}

bool sw_host_next(struct sw_host *h, struct sw_host_action *action)
{
    struct queued *q = h->head;

    if (!q)
        return false;
    h->head = q->next;
    if (!h->head)
        h->tail = &h->head;
    *action = q->action;
    free(q);
    return true;
}

void host_send(struct sw_host *h, uint64_t session, struct sw_msg *msg)
{
    struct sw_host_action a = {.kind = SW_HOST_TO_SESSION, .session = session, .message = msg};

    if (session)
        host_act(h, &a);
    else
        sw_msg_free(msg);
}

void host_report(struct sw_host *h, struct sw_msg *msg)
{
    struct sw_host_action a = {.kind = SW_HOST_TO_COORDINATOR, .message = msg};

    if (h->coordinator)
        host_act(h, &a);
    else
        sw_msg_free(msg);
}

void host_drop(struct sw_host *h, uint64_t session, const char *format, ...)
{
    struct sw_host_action a = {.kind = SW_HOST_DROP_SESSION, .session = session};
    va_list args;

    va_start(args, format);
    vsnprintf(a.text, sizeof(a.text), format, args);
    va_end(args);
    if (session)
        host_act(h, &a);
}

void host_log(struct sw_host *h, int level, const char *format, ...)
{
    struct sw_host_action a = {.kind = SW_HOST_LOG, .level = level};
    va_list args;

    va_start(args, format);
    vsnprintf(a.text, sizeof(a.text), format, args);
    va_end(args);
    host_act(h, &a);
}

void host_reply(struct sw_host *h, struct rank *r, enum sw_msg_kind kind, uint64_t version,
    int code, const char *format, ...)
{
    struct sw_msg *m = sw_msg_new(kind);
    char text[SW_TEXT_MAX + 1];
    va_list args;

    if (!m) { /* who waits for an answer must not wait for ever */
        host_drop(h, r->session, "trainerd is out of memory");
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    m->u.rank_reply.rank = r->rank;
    m->u.rank_reply.version = version;
    m->u.rank_reply.error.code = code;
    m->u.rank_reply.error.reason = code ? sw_arena_strdup(&m->arena, text) : NULL;
    host_send(h, r->session, m);
}

void host_abort(struct sw_host *h, uint32_t rank, uint64_t version, const char *reason)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ABORT);

    if (!m)
        return;
    m->u.abort.rank = rank;
    m->u.abort.version = version;
    m->u.abort.reason = sw_arena_strdup(&m->arena, reason);
    host_report(h, m);
}

struct rank *host_rank(const struct sw_host *h, uint32_t rank)
{
    struct rank *r = h->ranks;

    while (r && r->rank != rank)
        r = r->next;
    return r;
}

/* An ERROR message and the end of the session. */
static void refuse(struct sw_host *h, struct session *s, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void refuse(struct sw_host *h, struct session *s, int code, const char *format, ...)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ERROR);
    char text[SW_TEXT_MAX + 1];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (m) {
        m->u.error.code = code;
        m->u.error.reason = sw_arena_strdup(&m->arena, text);
        host_send(h, s->id, m);
    }
    host_drop(h, s->id, "%s", text);
}

/* ---- sessions ---- */

static struct session *find_session(const struct sw_host *h, uint64_t id)
{
    struct session *s = h->sessions;

    while (s && s->id != id)
        s = s->next;
    return s;
}

static void session_up(struct sw_host *h, const struct sw_host_event *ev)
{
    struct session *s = calloc(1, sizeof(*s));

    if (!s) {
        host_drop(h, ev->session, "trainerd is out of memory");
        return;
    }
    s->id = ev->session;
    s->role = ev->role;
    s->instance = ev->instance;
    s->pid = ev->pid;
    s->drop_ns = UINT64_MAX;
    s->next = h->sessions;
    h->sessions = s;
}

static void session_remove(struct sw_host *h, struct session *s)
{
    for (struct session **p = &h->sessions; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            free(s);
            return;
        }
    }
}

static void tell_gone(struct sw_host *h, const struct rank *r, const char *reason)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_RANK_GONE);

    if (!m)
        return;
    m->u.rank_gone.rank = r->rank;
    m->u.rank_gone.trainer = r->trainer;
    m->u.rank_gone.reason = sw_arena_strdup(&m->arena, reason);
    host_report(h, m);
}

static void rank_gone(struct sw_host *h, struct rank *r, const char *reason)
{
    /* Of a begin that was not granted, the others may go on waiting; RANK_GONE says enough. After
     * END the tiles are whole: staging goes on without the process. */
    if (r->state >= RANK_PREPARING && r->state <= RANK_DRAINING) {
        staging_forget(r);
        host_abort(h, r->rank, r->version, reason);
    }
    rank_enter(h, r, RANK_NEW);
    r->session = 0;
    r->shared = 0;
    r->stale = 0; /* another process declares first: by then all answers have come */
    tell_gone(h, r, reason);
}

static void session_leaves_rank(struct sw_host *h, struct session *s, const char *why)
{
    char text[SW_TEXT_MAX + 1];

    if (!s->rank)
        return;
    snprintf(text, sizeof(text), "trainer rank %u (pid %u) left: %s", s->rank->rank, s->pid, why);
    rank_gone(h, s->rank, text);
    s->rank = NULL;
}

static void session_down(struct sw_host *h, struct session *s, const char *why)
{
    /* The coordinator still keeps them: they count until it has answered. */
    for (struct request *q = h->requests; q; q = q->next)
        if (q->session == s->id)
            q->session = 0;
    session_leaves_rank(h, s, why);
    session_remove(h, s);
}

/* Its connection may live on, in a child that inherited it. */
static void process_died(struct sw_host *h, uint64_t id)
{
    struct session *s = find_session(h, id);

    staging_drained_by(h, id);
    if (!s || s->dead)
        return;
    s->dead = true;
    s->drop_ns = h->now + DEAD_GRACE_NS;
}

static void drop_dead(struct sw_host *h, struct session *s)
{
    s->drop_ns = UINT64_MAX;
    session_leaves_rank(h, s, "its process is dead");
    host_drop(h, s->id, "process %u is dead, and another one holds its connection open", s->pid);
}

/* Ranks of another world that no process holds make room for a new world. */
static bool clear_other_worlds(struct sw_host *h, uint32_t world, struct rank **holder)
{
    for (struct rank *r = h->ranks; r; r = r->next) {
        if (r->world != world && r->session) {
            *holder = r;
            return false;
        }
    }
    for (struct rank **p = &h->ranks; *p;) {
        struct rank *r = *p;
        struct sw_host_action a = {.kind = SW_HOST_RELEASE, .rank = r->rank};

        if (r->world == world) {
            p = &r->next;
            continue;
        }
        host_act(h, &a);
        *p = r->next;
        rank_free(r);
    }
    return true;
}

static struct rank *new_rank(struct sw_host *h, uint32_t rank, uint32_t world)
{
    struct rank *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->rank = rank;
    r->world = world;
    r->live_buffer = -1;
    r->deadline_ns = UINT64_MAX;
    r->next = h->ranks;
    h->ranks = r;
    return r;
}

static void trainer_open(struct sw_host *h, struct session *s, struct sw_msg *msg)
{
    struct sw_trainer_open *o = &msg->u.trainer_open;
    struct rank *r, *holder = NULL;
    struct session *other;

    if (s->rank || !o->world || o->world > SW_WORLD_MAX || o->rank >= o->world) {
        refuse(h, s, SW_ERR_INVALID, "trainer rank %u of world %u: %s", o->rank, o->world,
            s->rank ? "this connection holds a rank already"
                    : "rank must be below world (1 to 16384)");
        sw_msg_free(msg);
        return;
    }
    r = host_rank(h, o->rank);
    other = r && r->session ? find_session(h, r->session) : NULL;
    if (other && other->dead)
        drop_dead(h, other);
    if (r && r->session) {
        refuse(h, s, SW_ERR_EXISTS,
            "trainer rank %u is held by process %u: end it, or give this one another rank", o->rank,
            r->pid);
        sw_msg_free(msg);
        return;
    }
    if (!clear_other_worlds(h, o->world, &holder)) {
        refuse(h, s, SW_ERR_EXISTS,
            "world %u: trainer rank %u (pid %u) belongs to a world of %u and still runs", o->world,
            holder->rank, holder->pid, holder->world);
        sw_msg_free(msg);
        return;
    }
    r = host_rank(h, o->rank);
    if (!r)
        r = new_rank(h, o->rank, o->world);
    if (!r) {
        refuse(h, s, SW_ERR_NOMEM, "trainerd is out of memory");
        sw_msg_free(msg);
        return;
    }
    r->trainer = s->instance;
    r->session = s->id;
    r->pid = s->pid;
    r->sent_layout = 0;
    memset(r->sent_generation, 0, sizeof(r->sent_generation));
    s->rank = r;
    o->trainer = s->instance;
    o->pid = s->pid;
    host_report(h, msg);
}

static bool forward_sources(struct sw_host *h, const struct rank *r)
{
    for (size_t i = 0; i < r->sources.n; i++) {
        struct sw_msg *m = sw_msg_copy(r->sources.items[i]);

        if (!m)
            return false;
        host_report(h, m);
    }
    return true;
}

/* The tensors of all ranks but this one. */
static uint64_t other_tensors(const struct sw_host *h, const struct rank *rank)
{
    uint64_t n = 0;

    for (const struct rank *r = h->ranks; r; r = r->next)
        if (r != rank && r->sources.n)
            n += r->sources.items[0]->u.sources.total;
    return n;
}

static int take_sources(struct sw_host *h, struct rank *r, struct sw_msg *msg, struct sw_error *e)
{
    const uint64_t others = msg->u.sources.first ? 0 : other_tensors(h, r);

    if (others + msg->u.sources.total > SW_HOST_TENSORS_MAX) {
        sw_fail(e, SW_ERR_LIMIT,
            "trainer rank %u declares %u tensors, and other ranks of this host %llu: the limit is "
            "%u in all",
            r->rank, msg->u.sources.total, (unsigned long long)others, SW_HOST_TENSORS_MAX);
        sw_msg_free(msg);
        return SW_ERR_LIMIT;
    }
    msg->u.sources.rank = r->rank;
    msg->u.sources.world = r->world;
    msg->u.sources.trainer = r->trainer;
    return rank_take_sources(r, msg, e);
}

static void sources(struct sw_host *h, struct session *s, struct sw_msg *msg)
{
    struct rank *r = s->rank;
    const bool first = msg->u.sources.first == 0;
    struct sw_error e = {0};

    if (!first && r->state != RANK_DECLARING) { /* the rest of a manifest that was refused */
        sw_msg_free(msg);
        return;
    }
    if (r->state != RANK_NEW && r->state != RANK_IDLE && r->state != RANK_DECLARING) {
        sw_msg_free(msg);
        host_reply(h, r, SW_MSG_SOURCES_DONE, 0, SW_ERR_STATE,
            "declare: trainer rank %u is %s; end or abort version %llu first", r->rank,
            rank_state_name(r->state), (unsigned long long)r->version);
        return;
    }
    if (first) {
        rank_enter(h, r, RANK_DECLARING);
        r->deadline_ns = h->now + h->config.manifest_ns;
    }
    if (take_sources(h, r, msg, &e)) {
        rank_forget_sources(r);
        rank_enter(h, r, RANK_NEW);
        if (e.code == SW_ERR_PROTOCOL)
            refuse(h, s, e.code, "%s", e.text);
        else
            host_reply(h, r, SW_MSG_SOURCES_DONE, 0, e.code, "%s", e.text);
        return;
    }
    if (r->sources.complete && h->coordinator && !forward_sources(h, r)) {
        rank_enter(h, r, RANK_NEW);
        host_reply(h, r, SW_MSG_SOURCES_DONE, 0, SW_ERR_NOMEM, "trainerd is out of memory");
    }
}

static void sources_done(struct sw_host *h, struct sw_msg *msg)
{
    struct rank *r = host_rank(h, msg->u.rank_reply.rank);

    if (!r || r->state != RANK_DECLARING || !r->sources.complete) {
        sw_msg_free(msg);
        return;
    }
    if (msg->u.rank_reply.error.code)
        rank_forget_sources(r); /* or a new coordinator would hear of it again */
    rank_enter(h, r, msg->u.rank_reply.error.code ? RANK_NEW : RANK_IDLE);
    host_send(h, r->session, msg);
}

static void trainer_abort(struct sw_host *h, struct rank *r, struct sw_msg *msg)
{
    const uint64_t version = msg->u.abort.version;
    const bool begun = r->state >= RANK_BEGINNING && r->state < RANK_STATE_COUNT;
    const bool same = version == r->version || !version || !r->version;

    staging_drained_by(h, r->session);
    if (begun ? same : r->state == RANK_IDLE && version && version == r->version)
        host_abort(h, r->rank, r->version, msg->u.abort.reason);
    if (begun && same) {
        if (r->state == RANK_BEGINNING ||
            r->state == RANK_PREPARING) /* each BEGIN is answered once */
            host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, SW_ERR_ABORTED, "given up: %s",
                msg->u.abort.reason);
        if (r->state == RANK_BEGINNING) {
            r->stale++;
        } else if (r->state != RANK_ENDED) {
            staging_forget(r);
        } /* else the coordinator decides: it may be publishing already */
        r->shared = 0;
        rank_enter(h, r, RANK_IDLE);
    }
    sw_msg_free(msg);
}

/* ---- publish and its results ---- */

static void result_error(
    struct sw_host *h, const struct request *q, uint64_t version, int code, const char *reason)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_RESULT);

    if (!m)
        return;
    m->u.result.request = q->theirs;
    m->u.result.version = version;
    m->u.result.error.code = code;
    m->u.result.error.reason = reason;
    host_send(h, q->session, m);
}

static void publish(struct sw_host *h, struct session *s, struct sw_msg *msg)
{
    struct request now = {.session = s->id, .theirs = msg->u.publish.request}, *q;

    if (!h->coordinator || h->n_requests >= REQUESTS_MAX || !(q = calloc(1, sizeof(*q)))) {
        result_error(h, &now, msg->u.publish.version, h->coordinator ? SW_ERR_LIMIT : SW_ERR_CLOSED,
            h->coordinator ? "too many publish requests wait on this host"
                           : "trainerd has no connection to its coordinator");
        sw_msg_free(msg);
        return;
    }
    *q = now;
    q->number = ++h->next_request;
    q->next = h->requests;
    h->requests = q;
    h->n_requests++;
    msg->u.publish.request = q->number;
    host_report(h, msg);
}

static void result(struct sw_host *h, struct sw_msg *msg)
{
    for (struct request **p = &h->requests; *p; p = &(*p)->next) {
        struct request *q = *p;

        if (q->number != msg->u.result.request)
            continue; /* host_send frees what nobody waits for */
        msg->u.result.request = q->theirs;
        host_send(h, q->session, msg);
        *p = q->next;
        h->n_requests--;
        free(q);
        return;
    }
    sw_msg_free(msg);
}

/* ---- the coordinator ---- */

static void coordinator_up(struct sw_host *h)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_MEMBER);

    h->coordinator = true;
    h->plan_epoch = h->failed_epoch = 0;
    sw_shares_release(h->shares);
    h->shares = NULL;
    if (m) {
        m->u.member.name = h->name;
        m->u.member.advertise = h->advertise;
        host_report(h, m);
    }
    for (struct rank *r = h->ranks; r; r = r->next) {
        /* Epoch numbers are the coordinator's own: those of an earlier one mean nothing to this. */
        rank_forget_program(r);
        r->stale = 0;
        if (!r->session && !r->sources.complete)
            continue;
        m = sw_msg_new(SW_MSG_TRAINER_OPEN);
        if (!m)
            continue;
        m->u.trainer_open.rank = r->rank;
        m->u.trainer_open.world = r->world;
        m->u.trainer_open.pid = r->pid;
        m->u.trainer_open.trainer = r->trainer;
        host_report(h, m);
        if (r->sources.complete)
            forward_sources(h, r);
        if (!r->session) /* or it would be taken for a rank whose process lives */
            tell_gone(h, r, "its process had left before this coordinator was there");
    }
}

static void coordinator_down(struct sw_host *h, const char *why)
{
    char text[SW_TEXT_MAX + 1];

    h->coordinator = false;
    h->plan_epoch = 0;
    snprintf(text, sizeof(text), "trainerd lost its coordinator: %s", why ? why : "");
    while (h->requests) {
        struct request *q = h->requests;

        result_error(h, q, 0, SW_ERR_CLOSED, "trainerd lost its coordinator; ask status");
        h->requests = q->next;
        h->n_requests--;
        free(q);
    }
    for (struct rank *r = h->ranks; r; r = r->next) {
        r->stale = 0;
        if (r->state >= RANK_BEGINNING && r->state < RANK_STATE_COUNT)
            staging_withdraw(h, r, SW_ERR_CLOSED, text);
    }
}

static void from_coordinator(struct sw_host *h, struct sw_msg *msg)
{
    struct sw_host_action a = {.kind = SW_HOST_TO_WRITER, .message = msg};

    switch (msg->kind) {
    case SW_MSG_SOURCES_DONE:
        sources_done(h, msg);
        return;
    case SW_MSG_LOAD_PROGRAM:
        staging_program(h, msg);
        return;
    case SW_MSG_MAXIMA_PROGRAM:
        maxima_program(h, msg);
        return;
    case SW_MSG_BEGIN_DONE:
        staging_granted(h, msg);
        return;
    case SW_MSG_END_DONE:
        staging_ended(h, msg);
        return;
    case SW_MSG_ABORT:
        staging_aborted(h, msg);
        return;
    case SW_MSG_RESULT:
        result(h, msg);
        return;
    case SW_MSG_CONNECT:
        staging_flip(h, msg->u.connect.version, msg->u.connect.layout_epoch);
        host_act(h, &a);
        return;
    case SW_MSG_TARGETS:
    case SW_MSG_WRITE_PROGRAM:
    case SW_MSG_WRITE:
    case SW_MSG_UPDATE_END:
        host_act(h, &a);
        return;
    default:
        host_log(h, 4, "the coordinator sent %s, which a trainerd does not expect: ignored",
            sw_msg_kind_name(msg->kind));
        sw_msg_free(msg);
        return;
    }
}

/* ---- dispatch ---- */

static void from_session(struct sw_host *h, struct session *s, struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_PUBLISH) {
        publish(h, s, msg);
        return;
    }
    if (s->role == SW_ROLE_TRAINER && msg->kind == SW_MSG_TRAINER_OPEN) {
        trainer_open(h, s, msg);
        return;
    }
    if (!s->rank) {
        refuse(h, s, SW_ERR_PROTOCOL, "%s is not expected here", sw_msg_kind_name(msg->kind));
        sw_msg_free(msg);
        return;
    }
    switch (msg->kind) {
    case SW_MSG_SOURCES:
        sources(h, s, msg);
        return;
    case SW_MSG_BEGIN:
        staging_begin(h, s->rank, msg);
        return;
    case SW_MSG_MAXIMA:
        maxima_came(h, s->rank, msg);
        return;
    case SW_MSG_END:
        staging_end(h, s->rank, msg);
        return;
    case SW_MSG_ABORT:
        trainer_abort(h, s->rank, msg);
        return;
    default:
        refuse(h, s, SW_ERR_PROTOCOL, "%s is not expected from a trainer",
            sw_msg_kind_name(msg->kind));
        sw_msg_free(msg);
        return;
    }
}

static void look_at_time(struct sw_host *h)
{
    for (struct rank *r = h->ranks; r; r = r->next) {
        if (r->state == RANK_DRAINING)
            staging_drain(h, r);
        else if (r->state == RANK_DECLARING && h->now >= r->deadline_ns) {
            host_reply(h, r, SW_MSG_SOURCES_DONE, 0, SW_ERR_TIMEOUT, "declare: %s within %llu ms",
                r->sources.complete ? "the coordinator did not answer"
                                    : "the manifest's last part did not come",
                (unsigned long long)(h->config.manifest_ns / 1000000));
            if (!r->sources.complete)
                rank_forget_sources(r);
            rank_enter(h, r, RANK_NEW);
        }
    }
    for (struct session *s = h->sessions; s; s = s->next)
        if (h->now >= s->drop_ns)
            drop_dead(h, s);
}

void sw_host_handle(struct sw_host *h, const struct sw_host_event *ev, uint64_t now_ns)
{
    struct session *s = ev->session ? find_session(h, ev->session) : NULL;

    assert(now_ns >= h->now);
    h->now = now_ns;
    switch (ev->kind) {
    case SW_HOST_SESSION_UP:
        session_up(h, ev);
        break;
    case SW_HOST_SESSION_MESSAGE:
        if (s)
            from_session(h, s, ev->message);
        else
            sw_msg_free(ev->message);
        break;
    case SW_HOST_SESSION_DOWN:
        if (s)
            session_down(h, s, ev->text ? ev->text : "connection closed");
        break;
    case SW_HOST_PROCESS_DIED:
        process_died(h, ev->session);
        break;
    case SW_HOST_ALLOCATED:
        staging_allocated(h, ev);
        break;
    case SW_HOST_REDUCED:
        maxima_reduced(h, ev);
        break;
    case SW_HOST_COORDINATOR_UP:
        coordinator_up(h);
        break;
    case SW_HOST_COORDINATOR_MESSAGE:
        if (h->coordinator)
            from_coordinator(h, ev->message);
        else
            sw_msg_free(ev->message);
        break;
    case SW_HOST_COORDINATOR_DOWN:
        if (h->coordinator)
            coordinator_down(h, ev->text);
        break;
    case SW_HOST_TICK:
        break;
    }
    look_at_time(h);
}

uint64_t sw_host_deadline(const struct sw_host *h)
{
    uint64_t deadline = UINT64_MAX;

    for (const struct rank *r = h->ranks; r; r = r->next) {
        uint64_t at = r->deadline_ns;

        if (r->state == RANK_DRAINING && h->now + DRAIN_POLL_NS < at)
            at = h->now + DRAIN_POLL_NS;
        if (at < deadline)
            deadline = at;
    }
    for (const struct session *s = h->sessions; s; s = s->next)
        if (s->drop_ns < deadline)
            deadline = s->drop_ns;
    return deadline;
}

int sw_host_live_buffer(const struct sw_host *h, uint32_t rank, uint64_t version)
{
    const struct rank *r = host_rank(h, rank);

    return r && r->live_version == version && version ? r->live_buffer : -1;
}

bool sw_host_wants(const struct sw_host *h, uint32_t rank, uint32_t buffer, uint64_t generation)
{
    const struct rank *r = host_rank(h, rank);

    return r && buffer < SW_HOST_BUFFERS && r->buffers[buffer].allocating &&
           r->buffers[buffer].generation == generation;
}

bool sw_host_awaits_death(const struct sw_host *h, uint64_t session)
{
    for (const struct rank *r = h->ranks; r; r = r->next)
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++)
            if (r->buffers[b].writer == session)
                return true;
    return false;
}

static json_t *rank_status(const struct rank *r, uint64_t now)
{
    json_t *buffers = json_array();

    for (unsigned b = 0; buffers && b < SW_HOST_BUFFERS; b++) {
        const struct buffer *buf = &r->buffers[b];

        json_array_append_new(
            buffers, json_pack("{s:b, s:I, s:I, s:b}", "allocated", buf->have, "bytes",
                         (json_int_t)(buf->have ? buf->bytes : 0), "version",
                         (json_int_t)buf->content, "live", r->live_buffer == (int)b));
    }
    return json_pack("{s:I, s:I, s:I, s:b, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:o}", "rank",
        (json_int_t)r->rank, "world", (json_int_t)r->world, "pid", (json_int_t)r->pid, "connected",
        r->session != 0, "state", rank_state_name(r->state), "state_seconds",
        (double)(now - r->since_ns) / 1e9, "version", (json_int_t)r->version, "live_version",
        (json_int_t)r->live_version, "tensors", (json_int_t)r->n_sources, "tiles",
        (json_int_t)r->n_tiles, "replica_bytes", (json_int_t)r->replica_bytes, "buffers", buffers);
}

json_t *sw_host_status(const struct sw_host *h, uint64_t now_ns)
{
    json_t *ranks = json_array();

    for (const struct rank *r = h->ranks; ranks && r; r = r->next)
        json_array_append_new(ranks, rank_status(r, now_ns));
    return json_pack("{s:b, s:o}", "coordinator_connected", h->coordinator, "trainer_ranks", ranks);
}
