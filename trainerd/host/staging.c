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

static void allocate(struct sw_host *h, struct rank *r, unsigned b, bool copy)
{
    struct buffer *buf = &r->buffers[b];
    struct sw_host_action a = {.kind = SW_HOST_ALLOCATE,
        .rank = r->rank,
        .buffer = b,
        .generation = ++h->next_generation,
        .bytes = round_up(r->replica_bytes),
        .counter_bytes = round_up((uint64_t)r->n_tiles * sizeof(uint64_t)),
        .copy = copy};

    buf->have = false;
    buf->allocating = true;
    buf->generation = a.generation;
    buf->bytes = a.bytes;
    buf->counter_bytes = a.counter_bytes;
    buf->content = 0;
    buf->writer = 0;
    host_act(h, &a);
}

static void plan_failed(struct sw_host *h, int code, const char *text)
{
    struct sw_msg *m = h->plan_epoch ? sw_msg_new(SW_MSG_PLAN_DONE) : NULL;

    if (!m)
        return;
    m->u.plan_done.layout_epoch = h->plan_epoch;
    m->u.plan_done.error.code = code;
    m->u.plan_done.error.reason = sw_arena_strdup(&m->arena, text);
    h->plan_epoch = 0;
    host_report(h, m);
}

void staging_plan_done(struct sw_host *h)
{
    struct sw_msg *m;

    if (!h->plan_epoch)
        return;
    for (const struct rank *r = h->ranks; r; r = r->next) {
        if (!r->sources.complete)
            continue;
        if (r->layout_epoch != h->plan_epoch || !r->program.complete)
            return;
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++)
            if (!r->buffers[b].have)
                return;
    }
    m = sw_msg_new(SW_MSG_PLAN_DONE);
    if (!m)
        return;
    m->u.plan_done.layout_epoch = h->plan_epoch;
    h->plan_epoch = 0;
    host_report(h, m);
}

void staging_program(struct sw_host *h, struct sw_msg *msg)
{
    struct rank *r = host_rank(h, msg->u.load_program.rank);
    struct sw_error e = {0};

    h->plan_epoch = msg->u.load_program.layout_epoch;
    if (!r) {
        sw_msg_free(msg);
        plan_failed(h, SW_ERR_NOT_FOUND, "a load program came for a trainer rank that is not here");
        return;
    }
    if (rank_take_program(r, msg, &e)) {
        plan_failed(h, e.code, e.text);
        return;
    }
    if (!r->program.complete)
        return;
    r->live_buffer = -1;
    r->live_version = 0;
    for (unsigned b = 0; b < SW_HOST_BUFFERS; b++) {
        struct buffer *buf = &r->buffers[b];
        bool fits = buf->bytes >= r->replica_bytes &&
                    buf->counter_bytes >= (uint64_t)r->n_tiles * sizeof(uint64_t);

        buf->content = 0;
        if (!(fits && (buf->have || buf->allocating)))
            allocate(h, r, b, false);
    }
    staging_plan_done(h);
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
    host_send(h, r->session, m);
    return true;
}

/* The back buffer is safe: hand it to the trainer. */
static void start(struct sw_host *h, struct rank *r)
{
    unsigned b = r->back;
    struct buffer *buf = &r->buffers[b];
    struct sw_host_action reset = {.kind = SW_HOST_RESET, .rank = r->rank, .buffer = b};
    struct sw_msg *m = sw_msg_new(SW_MSG_BEGIN_DONE);
    bool ok = m != NULL;

    host_act(h, &reset);
    if (ok && r->sent_layout != r->layout_epoch)
        ok = send_program(h, r);
    if (ok && r->sent_generation[b] != buf->generation)
        ok = send_buffer(h, r, b);
    if (!ok) {
        sw_msg_free(m);
        host_abort(h, r, "trainerd is out of memory");
        host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, SW_ERR_NOMEM, "trainerd is out of memory");
        rank_enter(h, r, RANK_IDLE);
        return;
    }
    r->sent_layout = r->layout_epoch;
    r->sent_generation[b] = buf->generation;
    buf->content = r->version;
    buf->writer = r->session;
    m->u.rank_reply.rank = r->rank;
    m->u.rank_reply.version = r->version;
    m->u.rank_reply.layout_epoch = r->layout_epoch;
    m->u.rank_reply.buffer = b;
    host_send(h, r->session, m);
    r->begin_ns = h->now;
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

        buf->bytes = buf->counter_bytes = 0;
        host_log(h, 3, "%s", text);
        plan_failed(h, ev->code, text);
        if (r->state == RANK_PREPARING && r->back == ev->buffer) {
            host_abort(h, r, text);
            host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, ev->code, "%s", text);
            rank_enter(h, r, RANK_IDLE);
        }
        return;
    }
    if (r->state == RANK_PREPARING && r->back == ev->buffer)
        start(h, r);
    staging_plan_done(h);
}

void staging_begin(struct sw_host *h, struct rank *r, struct sw_msg *msg)
{
    uint64_t version = msg->u.begin.version;

    /* No put runs in a trainer that begins: what it staged before can be written by nobody. */
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

/* A grant that nobody waits for any more must not keep the others waiting. */
static void refuse_grant(struct sw_host *h, uint32_t rank, uint64_t version)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ABORT);

    if (!m)
        return;
    m->u.abort.rank = rank;
    m->u.abort.version = version;
    m->u.abort.reason = "the trainer process that asked to begin is gone, or gave up";
    host_report(h, m);
}

void staging_granted(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_rank_reply reply = msg->u.rank_reply;
    struct rank *r = host_rank(h, reply.rank);
    struct buffer *buf;

    if (!r || r->overtaken || r->state != RANK_BEGINNING ||
        (r->version && r->version != reply.version)) {
        if (r && r->overtaken)
            r->overtaken--;
        if (!reply.error.code)
            refuse_grant(h, reply.rank, reply.version);
        sw_msg_free(msg);
        return;
    }
    if (reply.error.code) {
        rank_enter(h, r, RANK_IDLE);
        host_send(h, r->session, msg);
        return;
    }
    r->version = reply.version;
    if (r->layout_epoch != reply.layout_epoch || !r->program.complete) {
        refuse_grant(h, r->rank, r->version);
        host_reply(h, r, SW_MSG_BEGIN_DONE, r->version, SW_ERR_STATE,
            "begin of version %llu: it was granted for layout epoch %llu, and the program here is "
            "of "
            "epoch %llu",
            (unsigned long long)r->version, (unsigned long long)reply.layout_epoch,
            (unsigned long long)r->layout_epoch);
        rank_enter(h, r, RANK_IDLE);
        sw_msg_free(msg);
        return;
    }
    r->back = r->live_buffer == 0 ? 1 : 0;
    buf = &r->buffers[r->back];
    if (buf->have && !buf->writer && !h->config.busy(r->rank, r->back, h->config.arg)) {
        sw_msg_free(msg);
        start(h, r);
        return;
    }
    if (!buf->allocating) {
        host_log(h, 6,
            "buffer %u of trainer rank %u is replaced: a process may still write or read it",
            r->back, r->rank);
        allocate(h, r, r->back, has_live_tiles(r, r->back));
    }
    rank_enter(h, r, RANK_PREPARING);
    r->grant = msg;
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
        if (counters[i] == r->tile_bytes[i])
            continue;
        if (used < 0 || (size_t)used >= size)
            return;
        used += snprintf(text + used, size - (size_t)used, "%s%s (%llu of %llu bytes)",
            shown ? ", " : "", rank_source_name(r, r->tile_source[i]),
            (unsigned long long)counters[i], (unsigned long long)r->tile_bytes[i]);
        shown++;
    }
    if (missing > shown && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", ...");
}

void staging_drain(struct sw_host *h, struct rank *r)
{
    const uint64_t *counters = h->config.counters(r->rank, r->back, h->config.arg);
    uint32_t missing = 0;
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
    struct rank *r = host_rank(h, msg->u.rank_reply.rank);

    bool again = msg->u.rank_reply.error.code == SW_ERR_STATE; /* put what is missing, end again */

    if (r && r->version == msg->u.rank_reply.version && msg->u.rank_reply.error.code && !again)
        r->buffers[r->back].content = 0;
    if (!r || r->state != RANK_ENDED || r->version != msg->u.rank_reply.version) {
        sw_msg_free(msg);
        return;
    }
    if (again)
        r->buffers[r->back].writer = r->session;
    rank_enter(h, r, again ? RANK_STAGING : RANK_IDLE);
    host_send(h, r->session, msg);
}

void staging_aborted(struct sw_host *h, struct sw_msg *msg)
{
    const struct sw_abort *a = &msg->u.abort;

    for (struct rank *r = h->ranks; r; r = r->next) {
        bool behind = r->state == RANK_STAGING || r->state == RANK_DRAINING;
        struct sw_msg *copy;

        if (r->version != a->version)
            continue;
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++)
            if (r->buffers[b].content == a->version && r->live_version != a->version)
                r->buffers[b].content = 0;
        if (r->state == RANK_ENDED)
            host_reply(h, r, SW_MSG_END_DONE, a->version, SW_ERR_ABORTED, "%s", a->reason);
        else if (r->state == RANK_PREPARING)
            host_reply(h, r, SW_MSG_BEGIN_DONE, a->version, SW_ERR_ABORTED, "%s", a->reason);
        else if (behind && (copy = sw_msg_copy(msg)) != NULL)
            host_send(h, r->session, copy);
        else if (!behind)
            continue;
        rank_enter(h, r, RANK_IDLE);
        if (behind && a->rank == UINT32_MAX)
            host_drop(h, r->session, "%s", a->reason);
    }
    sw_msg_free(msg);
}

void staging_flip(struct sw_host *h, uint64_t version)
{
    for (struct rank *r = h->ranks; r; r = r->next) {
        if (r->live_version == version)
            continue;
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++) {
            if (!r->buffers[b].have || r->buffers[b].writer || r->buffers[b].content != version)
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
