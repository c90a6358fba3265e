/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging on this host: programs and buffers of a layout, begin, end, abort, and the flip at
 * publish.
 *
 * Happy path: LOAD_PROGRAM parts -> buffers allocated -> PLAN_DONE; BEGIN -> BEGIN_DONE -> (back
 * buffer safe, counters zeroed) -> program, buffer and BEGIN_DONE to the trainer; END -> counters
 * complete -> END to the coordinator -> END_DONE. Failure modes: no memory (PLAN_DONE or BEGIN_DONE
 * say so), a back buffer that somebody may still write or read (it is replaced), a trainer that
 * goes away (ABORT), tiles that stay incomplete (END_DONE names them, staging goes on).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/host/impl.h"

#define PAGE 4096u
#define NAMES_SHOWN 5u

static uint64_t round_up(uint64_t n)
{
    return n ? (n + PAGE - 1) / PAGE * PAGE : PAGE;
}

static bool has_live_tiles(const struct rank *r, unsigned b)
{
    for (uint32_t i = 0; i < r->n_tiles; i++)
        if (r->live[i].version && r->live[i].buffer == b)
            return true;
    return false;
}

/* False = no memory to ask for it. */
static bool allocate(struct sw_host *h, struct rank *r, unsigned b, bool copy)
{
    struct buffer *buf = &r->buffers[b];
    struct sw_host_action a = {.kind = SW_HOST_ALLOCATE,
        .rank = r->rank,
        .buffer = b,
        .generation = ++h->next_generation,
        .bytes = round_up(r->replica_bytes),
        .counter_bytes = round_up((uint64_t)r->n_tiles * sizeof(uint64_t)),
        .maxima_bytes = r->n_maxima ? round_up(r->n_maxima * sizeof(float)) : 0,
        .copy = copy};

    buf->have = false;
    buf->allocating = host_act(h, &a);
    buf->generation = a.generation;
    buf->bytes = buf->allocating ? a.bytes : 0;
    buf->counter_bytes = buf->allocating ? a.counter_bytes : 0;
    buf->maxima_bytes = buf->allocating ? a.maxima_bytes : 0;
    buf->content = 0;
    buf->whole = false;
    buf->writer = 0;
    return buf->allocating;
}

void staging_forget(struct rank *r)
{
    for (unsigned b = 0; b < SW_HOST_BUFFERS; b++) {
        struct buffer *buf = &r->buffers[b];

        if (buf->content == r->version && r->live_version != r->version) {
            buf->content = 0;
            buf->whole = false;
        }
    }
}

static void send_abort(struct sw_host *h, const struct rank *r, const char *reason)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ABORT);

    if (!m) {
        host_drop(h, r->session, "trainerd is out of memory");
        return;
    }
    m->u.abort.rank = r->rank;
    m->u.abort.version = r->version;
    m->u.abort.reason = sw_arena_strdup(&m->arena, reason);
    host_send(h, r->session, m);
}

void staging_withdraw(struct sw_host *h, struct rank *r, int code, const char *reason)
{
    staging_forget(r);
    if (r->state == RANK_BEGINNING || r->state == RANK_PREPARING)
        host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, code, "%s", reason);
    else if (r->state == RANK_DRAINING || r->state == RANK_ENDED)
        host_reply(h, r, SW_MSG_END_DONE, r->version, SW_ERR_ABORTED, "%s", reason);
    else if (r->state == RANK_STAGING)
        send_abort(h, r, reason);
    else if (r->state == RANK_SHARING)
        maxima_withdraw(h, r, reason);
    rank_enter(h, r, RANK_IDLE);
}

void staging_plan_failed(struct sw_host *h, int code, const char *text)
{
    struct sw_msg *m = h->plan_epoch ? sw_msg_new(SW_MSG_PLAN_DONE) : NULL;

    if (!m)
        return;
    m->u.plan_done.layout_epoch = h->plan_epoch;
    m->u.plan_done.error.code = code;
    m->u.plan_done.error.reason = sw_arena_strdup(&m->arena, text);
    h->failed_epoch = h->plan_epoch;
    h->plan_epoch = 0;
    host_report(h, m);
}

/* Whether the plan is whole for this rank. A rank that did not begin may have no program here: its
 * process left, or it is another host's now. */
static bool is_planned(const struct sw_host *h, const struct rank *r)
{
    if (r->layout_epoch != h->plan_epoch)
        return r->state != RANK_BEGINNING && !maxima_awaits(h, r);
    return r->program.complete && r->buffers[0].have && r->buffers[1].have;
}

void staging_plan_done(struct sw_host *h)
{
    struct sw_error e = {0};
    struct sw_msg *m;

    if (!h->plan_epoch)
        return;
    for (const struct rank *r = h->ranks; r; r = r->next)
        if (!is_planned(h, r))
            return;
    if (maxima_planned(h, &e)) {
        staging_plan_failed(h, e.code, e.text);
        return;
    }
    m = sw_msg_new(SW_MSG_PLAN_DONE);
    if (!m)
        return;
    m->u.plan_done.layout_epoch = h->plan_epoch;
    h->plan_epoch = 0;
    host_report(h, m);
}

/* A whole program: what the buffers hold is of another layout, their memory is kept if it fits. */
static bool adopt_program(struct sw_host *h, struct rank *r)
{
    bool ok = true;

    r->live_buffer = -1;
    r->live_version = 0;
    for (unsigned b = 0; b < SW_HOST_BUFFERS; b++) {
        struct buffer *buf = &r->buffers[b];
        bool fits = buf->bytes >= r->replica_bytes &&
                    buf->counter_bytes >= (uint64_t)r->n_tiles * sizeof(uint64_t) &&
                    buf->maxima_bytes >= r->n_maxima * sizeof(float);

        buf->content = 0;
        buf->whole = false;
        if (!(fits && (buf->have || buf->allocating)))
            ok = allocate(h, r, b, false) && ok;
    }
    return ok;
}

void staging_program(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_load_program *p = &msg->u.load_program;
    struct rank *r = host_rank(h, p->rank);
    struct sw_error e = {0};

    if (p->layout_epoch == h->failed_epoch &&
        (p->first_template || p->first_load || p->first_grid || p->first_check || p->first_tile)) {
        sw_msg_free(msg); /* the rest of what was refused */
        return;
    }
    h->plan_epoch = p->layout_epoch;
    if (r && r->state > RANK_BEGINNING) /* its tiles are about to be other ones */
        staging_withdraw(h, r, SW_ERR_ABORTED, "the coordinator has made a new layout meanwhile");
    if (!r) {
        sw_msg_free(msg);
        staging_plan_failed(
            h, SW_ERR_NOT_FOUND, "a load program came for a trainer rank that is not here");
        return;
    }
    if (rank_take_program(r, msg, &e)) {
        staging_plan_failed(h, e.code, e.text);
        return;
    }
    if (!r->program.complete)
        return;
    if (adopt_program(h, r))
        staging_plan_done(h);
    else
        staging_plan_failed(h, SW_ERR_NOMEM, "trainerd is out of memory");
}

/* Sends copies of a rank's load program to its trainer. */
static bool send_program(struct sw_host *h, const struct rank *r)
{
    for (size_t i = 0; i < r->program.n; i++) {
        struct sw_msg *m = sw_msg_copy(r->program.items[i]);

        if (!m)
            return false;
        host_send(h, r->session, m);
    }
    return true;
}

static bool send_buffer(struct sw_host *h, const struct rank *r, unsigned b)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_BUFFER);

    if (!m)
        return false;
    m->u.buffer.rank = r->rank;
    m->u.buffer.index = b;
    m->u.buffer.generation = r->buffers[b].generation;
    m->u.buffer.data_bytes = r->buffers[b].bytes;
    m->u.buffer.counter_bytes = r->buffers[b].counter_bytes;
    m->u.buffer.maxima_bytes = r->buffers[b].maxima_bytes;
    host_send(h, r->session, m);
    return true;
}

/* It was granted, and can't be done here. */
static void give_up_grant(struct sw_host *h, struct rank *r, int code, const char *reason)
{
    host_abort(h, r->rank, r->version, reason);
    host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, code, "%s", reason);
    rank_enter(h, r, RANK_IDLE);
}

/* The back buffer is safe: hand it to the trainer. */
static void start(struct sw_host *h, struct rank *r)
{
    unsigned b = r->back;
    struct buffer *buf = &r->buffers[b];
    struct sw_host_action reset = {.kind = SW_HOST_RESET, .rank = r->rank, .buffer = b};
    struct sw_msg *m = sw_msg_new(SW_MSG_BEGIN_DONE);
    bool ok = m != NULL;

    ok = ok && host_act(h, &reset); /* stale counters would make an empty version look complete */
    if (ok && r->sent_layout != r->layout_epoch)
        ok = send_program(h, r);
    if (ok && r->sent_generation[b] != buf->generation)
        ok = send_buffer(h, r, b);
    if (!ok) {
        sw_msg_free(m);
        give_up_grant(h, r, SW_ERR_NOMEM, "trainerd is out of memory");
        return;
    }
    r->sent_layout = r->layout_epoch;
    r->sent_generation[b] = buf->generation;
    buf->content = r->version;
    buf->whole = false;
    buf->writer = r->session;
    m->u.rank_reply.rank = r->rank;
    m->u.rank_reply.version = r->version;
    m->u.rank_reply.layout_epoch = r->layout_epoch;
    m->u.rank_reply.buffer = b;
    host_send(h, r->session, m);
    r->begin_ns = h->now;
    r->reduced = false;
    r->shared = 0;
    rank_enter(h, r, RANK_STAGING);
}

void staging_allocated(struct sw_host *h, const struct sw_host_event *ev)
{
    struct rank *r = host_rank(h, ev->rank);
    struct buffer *buf = r && ev->buffer < SW_HOST_BUFFERS ? &r->buffers[ev->buffer] : NULL;

    if (!buf || !buf->allocating || buf->generation != ev->generation)
        return;
    buf->allocating = false;
    buf->have = ev->code == 0;
    if (ev->code) {
        const char *text = ev->text ? ev->text : "";

        buf->bytes = buf->counter_bytes = buf->maxima_bytes = 0;
        host_log(h, 3, "%s", text);
        staging_plan_failed(h, ev->code, text);
        if (r->state == RANK_PREPARING && r->back == ev->buffer)
            give_up_grant(h, r, ev->code, text);
        return;
    }
    if (r->state == RANK_PREPARING && r->back == ev->buffer)
        start(h, r);
    staging_plan_done(h);
}

void staging_begin(struct sw_host *h, struct rank *r, struct sw_msg *msg)
{
    uint64_t version = msg->u.begin.version;

    /* No put runs in a trainer that begins: what it staged before can be written by nobody. One
     * that begins out of turn may well have some running. */
    if (r->state == RANK_IDLE)
        staging_drained_by(h, r->session);
    if (r->state != RANK_IDLE || !h->coordinator) {
        sw_msg_free(msg);
        if (!h->coordinator)
            host_reply(h, r, SW_MSG_BEGIN_DONE, version, SW_ERR_CLOSED,
                "begin of version %llu: trainerd has no connection to its coordinator",
                (unsigned long long)version);
        else
            host_reply(h, r, SW_MSG_BEGIN_DONE, version, SW_ERR_STATE,
                "begin of version %llu: trainer rank %u is %s%s", (unsigned long long)version,
                r->rank, rank_state_name(r->state),
                r->state == RANK_NEW ? " (declare its tensors first)" : "");
        return;
    }
    r->version = version;
    rank_enter(h, r, RANK_BEGINNING);
    msg->u.begin.rank = r->rank;
    host_report(h, msg);
}

/* Whether an answer is that of a begin that was aborted before it came. */
static bool is_stale(struct rank *r)
{
    if (!r->stale)
        return false;
    r->stale--;
    return true;
}

/* A grant that nobody waits for any more must not keep the others waiting. */
static void refuse_grant(struct sw_host *h, const struct sw_rank_reply *reply)
{
    if (!reply->error.code)
        host_abort(h, reply->rank, reply->version,
            "the trainer process that asked to begin is gone, or gave up");
}

static void grant(struct sw_host *h, struct rank *r)
{
    struct buffer *buf;

    r->back = r->live_buffer == 0 ? 1 : 0;
    buf = &r->buffers[r->back];
    if (buf->have && !buf->writer && !h->config.busy(r->rank, r->back, h->config.arg)) {
        start(h, r);
        return;
    }
    if (!buf->allocating) {
        host_log(h, 6,
            "buffer %u of trainer rank %u is replaced: a process may still write or read it",
            r->back, r->rank);
        if (!allocate(h, r, r->back, has_live_tiles(r, r->back))) {
            give_up_grant(h, r, SW_ERR_NOMEM, "trainerd is out of memory");
            return;
        }
    }
    rank_enter(h, r, RANK_PREPARING);
}

void staging_granted(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_rank_reply *reply = &msg->u.rank_reply;
    struct rank *r = host_rank(h, reply->rank);

    if (!r || is_stale(r) || r->state != RANK_BEGINNING ||
        (r->version && r->version != reply->version)) {
        refuse_grant(h, reply);
        sw_msg_free(msg);
        return;
    }
    if (reply->error.code) {
        rank_enter(h, r, RANK_IDLE);
        host_send(h, r->session, msg);
        return;
    }
    r->version = reply->version;
    if (r->layout_epoch != reply->layout_epoch || !r->program.complete) {
        refuse_grant(h, reply);
        host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, SW_ERR_STATE,
            "begin of version %llu: it was granted for layout epoch %llu, and the program here is "
            "of epoch %llu",
            (unsigned long long)r->version, (unsigned long long)reply->layout_epoch,
            (unsigned long long)r->layout_epoch);
        rank_enter(h, r, RANK_IDLE);
    } else {
        grant(h, r);
    }
    sw_msg_free(msg);
}

void staging_end(struct sw_host *h, struct rank *r, struct sw_msg *msg)
{
    uint64_t version = msg->u.end.version;

    if (r->state != RANK_STAGING || version != r->version) {
        sw_msg_free(msg);
        host_reply(h, r, SW_MSG_END_DONE, version, SW_ERR_STATE,
            "end of version %llu: trainer rank %u is %s (version %llu)",
            (unsigned long long)version, r->rank, rank_state_name(r->state),
            (unsigned long long)r->version);
        return;
    }
    if (r->n_maxima && !r->reduced) { /* bytes that were made of its own maxima would be wrong */
        sw_msg_free(msg);
        host_reply(h, r, SW_MSG_END_DONE, version, SW_ERR_STATE,
            "end of version %llu: trainer rank %u shares FP8 blocks with other ranks and has not "
            "sent MAXIMA: use the libshardwire that came with trainerd",
            (unsigned long long)version, r->rank);
        return;
    }
    rank_enter(h, r, RANK_DRAINING);
    r->end = msg;
    r->deadline_ns = h->now + h->config.drain_ns;
    staging_drain(h, r);
}

/* "12 of 311 tiles are not complete: a, b, c, ..." */
static void incomplete_text(
    const struct rank *r, const uint64_t *counters, uint32_t missing, char *text, size_t size)
{
    unsigned shown = 0;
    int used = snprintf(text, size, "%u of %u tiles are not complete: ", missing, r->n_tiles);

    for (uint32_t i = 0; i < r->n_tiles && shown < NAMES_SHOWN; i++) {
        const uint64_t counted = __atomic_load_n(&counters[i], __ATOMIC_ACQUIRE);

        if (counted == r->tile_bytes[i])
            continue;
        if (used < 0 || (size_t)used >= size)
            return;
        used += snprintf(text + used, size - (size_t)used, "%s%s (%llu of %llu bytes)",
            shown ? ", " : "", rank_source_name(r, r->tile_source[i]), (unsigned long long)counted,
            (unsigned long long)r->tile_bytes[i]);
        shown++;
    }
    if (missing > shown && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", ...");
}

void staging_drain(struct sw_host *h, struct rank *r)
{
    const uint64_t *counters = h->config.counters(r->rank, r->back, h->config.arg);
    uint32_t missing = !r->program.complete;
    uint64_t bytes = 0;
    struct sw_msg *end;
    char text[SW_TEXT_MAX + 1];

    assert(r->state == RANK_DRAINING);
    for (uint32_t i = 0; i < r->n_tiles; i++) {
        if (!counters || __atomic_load_n(&counters[i], __ATOMIC_ACQUIRE) != r->tile_bytes[i])
            missing++;
        bytes += r->tile_bytes[i];
    }
    if (!missing) {
        end = r->end;
        r->end = NULL;
        r->buffers[r->back].writer = 0;
        r->buffers[r->back].whole = true;
        end->u.end.rank = r->rank;
        end->u.end.bytes = bytes;
        end->u.end.stage_ns = h->now - r->begin_ns;
        rank_enter(h, r, RANK_ENDED);
        host_report(h, end);
        return;
    }
    if (h->now < r->deadline_ns)
        return;
    if (counters)
        incomplete_text(r, counters, missing, text, sizeof(text));
    host_reply(h, r, SW_MSG_END_DONE, r->version, SW_ERR_STATE, "end of version %llu, rank %u: %s",
        (unsigned long long)r->version, r->rank, counters ? text : "its buffer is gone");
    rank_enter(h, r, RANK_STAGING);
}

void staging_ended(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_rank_reply *reply = &msg->u.rank_reply;
    struct rank *r = host_rank(h, reply->rank);

    if (!r || r->version != reply->version) {
        sw_msg_free(msg);
        return;
    }
    if (r->state == RANK_ENDED && reply->error.code == SW_ERR_STATE) {
        /* Something is missing: the version stays staging, the trainer puts and ends again. */
        r->buffers[r->back].whole = false;
        r->buffers[r->back].writer = r->session;
        rank_enter(h, r, RANK_STAGING);
        host_send(h, r->session, msg);
        return;
    }
    if (reply->error.code)
        staging_forget(r);
    if (r->state != RANK_ENDED) {
        sw_msg_free(msg);
        return;
    }
    rank_enter(h, r, RANK_IDLE);
    host_send(h, r->session, msg);
}

void staging_aborted(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_abort *a = &msg->u.abort;

    for (struct rank *r = h->ranks; r; r = r->next) {
        bool behind = r->state == RANK_STAGING || r->state == RANK_DRAINING;

        if (r->version != a->version)
            continue;
        staging_forget(r);
        if (r->state <= RANK_BEGINNING) /* a begin is answered by BEGIN_DONE */
            continue;
        staging_withdraw(h, r, SW_ERR_ABORTED, a->reason);
        if (behind && a->rank == UINT32_MAX)
            host_drop(h, r->session, "%s", a->reason);
    }
    sw_msg_free(msg);
}

void staging_flip(struct sw_host *h, uint64_t version, uint64_t layout_epoch)
{
    for (struct rank *r = h->ranks; r; r = r->next) {
        if (r->live_version == version || r->layout_epoch != layout_epoch)
            continue;
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++) {
            const struct buffer *buf = &r->buffers[b];

            if (!buf->have || !buf->whole || buf->content != version)
                continue;
            for (uint32_t i = 0; i < r->n_tiles; i++)
                r->live[i] = (struct tile_live){.version = version, .buffer = (uint8_t)b};
            r->live_buffer = (int)b;
            r->live_version = version;
        }
    }
}

void staging_drained_by(struct sw_host *h, uint64_t session)
{
    for (struct rank *r = h->ranks; r; r = r->next)
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++)
            if (r->buffers[b].writer == session)
                r->buffers[b].writer = 0;
}
