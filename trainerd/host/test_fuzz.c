/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded random events, sensible ones and nonsense, against what must always hold:
 * - a buffer is handed to a trainer only when nobody reads it, no living process may write it, and
 *   it does not hold the live version;
 * - a version is live only if its END went to the coordinator, and it was not aborted before;
 * - an END of a rank that shares block maxima goes on only after their reduction in that version;
 * - a draining rank has a deadline near; nothing crashes, nothing leaks (sanitizers).
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/host/talk.h"

#define STEPS 8000
#define SEEDS 30
#define SESSIONS 12u
#define VERSIONS 4096u

struct model {
    struct talk t;
    uint64_t random;
    uint32_t world;
    struct {
        bool up, dead, dropped;
        int rank; /* -1 = none */
    } sessions[SESSIONS + 1];
    struct {
        unsigned writer; /* session that was handed the buffer and may still write */
        uint64_t generation, content;
        bool asked;
    } buffers[TALK_RANKS][SW_HOST_BUFFERS];
    bool ended[TALK_RANKS][VERSIONS];
    uint64_t version, epoch, layout[TALK_RANKS];
    enum { DECLARE, DECLARED, BEGIN, GRANT, END, ENDED, PUBLISH } next[TALK_RANKS];
    uint64_t asked[TALK_RANKS];
    bool coordinator;
    bool shares;                /* rank 0's layout: with itself */
    uint64_t reducing, reduced; /* generation under way; version of rank 0 that was reduced */
    uint64_t staging;           /* version that rank 0 was granted last */
    unsigned grants, lives, reductions;
};

static uint32_t below(struct model *m, uint32_t n)
{
    m->random = m->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(m->random >> 33) % n;
}

static uint64_t recent(const struct model *m)
{
    return m->version > 40 ? m->version - 40 : 1;
}

static void handed_out(struct model *m, unsigned session, const struct sw_rank_reply *reply)
{
    const uint32_t r = reply->rank, b = reply->buffer;

    ck_assert_int_eq(m->sessions[session].rank, (int)r);
    ck_assert_msg(!m->t.busy[r][b], "rank %u buffer %u is read", r, b);
    ck_assert_msg(!m->buffers[r][b].writer, "rank %u buffer %u is written by session %u", r, b,
        m->buffers[r][b].writer);
    ck_assert_msg(!m->buffers[r][b].asked, "rank %u buffer %u is not there", r, b);
    for (uint64_t v = recent(m); v <= m->version; v++)
        ck_assert_int_ne(sw_host_live_buffer(m->t.host, r, v), (int)b);
    m->buffers[r][b].writer = session;
    m->buffers[r][b].content = reply->version;
    m->grants++;
    if (r == 0) {
        m->staging = reply->version;
        m->reduced = 0;
    }
}

static void drained(struct model *m, unsigned session)
{
    for (uint32_t r = 0; r < TALK_RANKS; r++)
        for (unsigned b = 0; b < SW_HOST_BUFFERS; b++)
            if (m->buffers[r][b].writer == session)
                m->buffers[r][b].writer = 0;
}

/* What a sensible group would do next for a rank. */
static void follow(struct model *m, const struct sw_msg *msg)
{
    const struct sw_rank_reply *reply = &msg->u.rank_reply;

    switch (msg->kind) {
    case SW_MSG_SOURCES:
        m->next[msg->u.sources.rank] = DECLARED;
        break;
    case SW_MSG_BEGIN:
        m->next[msg->u.begin.rank] = GRANT;
        m->asked[msg->u.begin.rank] = msg->u.begin.version;
        break;
    case SW_MSG_END:
        m->next[msg->u.end.rank] = ENDED;
        break;
    case SW_MSG_SOURCES_DONE:
        m->next[reply->rank] = reply->error.code ? DECLARE : BEGIN;
        break;
    case SW_MSG_BEGIN_DONE:
        m->next[reply->rank] = reply->error.code ? BEGIN : END;
        break;
    case SW_MSG_END_DONE:
        m->next[reply->rank] = reply->error.code ? BEGIN : PUBLISH;
        break;
    case SW_MSG_ABORT:
        m->next[msg->u.abort.rank] = BEGIN;
        break;
    case SW_MSG_RANK_GONE:
        m->next[msg->u.rank_gone.rank] = DECLARE;
        break;
    default:
        break;
    }
}

static void look(const struct sw_host_action *a, void *arg)
{
    struct model *m = arg;

    if (a->kind == SW_HOST_TO_SESSION || a->kind == SW_HOST_TO_COORDINATOR)
        follow(m, a->message);
    switch (a->kind) {
    case SW_HOST_TO_SESSION:
        ck_assert_uint_ge(a->session, 1);
        ck_assert_uint_le(a->session, SESSIONS);
        if (a->message->kind == SW_MSG_MAXIMA_DONE && !a->message->u.rank_reply.error.code &&
            a->message->u.rank_reply.rank == 0 && m->shares)
            ck_assert_uint_eq(m->reduced, m->staging);
        if (a->message->kind == SW_MSG_BEGIN_DONE && !a->message->u.rank_reply.error.code)
            handed_out(m, (unsigned)a->session, &a->message->u.rank_reply);
        break;
    case SW_HOST_ALLOCATE:
        m->buffers[a->rank][a->buffer].writer = 0;
        m->buffers[a->rank][a->buffer].generation = a->generation;
        m->buffers[a->rank][a->buffer].asked = true;
        ck_assert(sw_host_wants(m->t.host, a->rank, a->buffer, a->generation));
        break;
    case SW_HOST_REDUCE:
        ck_assert_int_ge(sw_host_maxima_buffer(m->t.host, 0), 0);
        m->reducing = a->generation;
        m->reductions++;
        break;
    case SW_HOST_TO_COORDINATOR:
        ck_assert(m->coordinator);
        if (a->message->kind == SW_MSG_END) {
            if (a->message->u.end.rank == 0 && m->shares)
                ck_assert_uint_eq(m->reduced, a->message->u.end.version);
            m->ended[a->message->u.end.rank][a->message->u.end.version % VERSIONS] = true;
            for (unsigned b = 0; b < SW_HOST_BUFFERS; b++)
                if (m->buffers[a->message->u.end.rank][b].content == a->message->u.end.version)
                    m->buffers[a->message->u.end.rank][b].writer = 0;
        }
        break;
    case SW_HOST_DROP_SESSION:
        m->sessions[a->session].dropped = true;
        break;
    case SW_HOST_RELEASE:
        memset(m->buffers[a->rank], 0, sizeof(m->buffers[a->rank]));
        memset(m->ended[a->rank], 0, sizeof(m->ended[a->rank]));
        break;
    default:
        break;
    }
}

static void say(struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct model *m, const char *format, ...)
{
    char text[128];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (getenv("SW_FUZZ_SHOW"))
        fprintf(stderr, "%s\n", text);
    talk_say(&m->t, text);
    if (getenv("SW_FUZZ_SHOW") && m->t.actions[0])
        fprintf(stderr, "    %s\n", m->t.actions);
}

static void session_says(struct model *m, unsigned s)
{
    const int rank = m->sessions[s].rank;

    switch (below(m, 10)) {
    case 0:
        if (rank < 0) {
            const uint32_t r = below(m, m->world);

            say(m, "%u open %u/%u", s, r, m->world);
            if (!strstr(m->t.actions, "ERROR")) {
                m->sessions[s].rank = (int)r;
                m->next[r] = DECLARE;
            }
        }
        break;
    case 1:
        if (below(m, 10) == 0)
            say(m, "%u sources 0+2/2", s);
        break;
    case 2:
        if (below(m, 10))
            break;
        say(m, "%u sources %u+1/%u", s, below(m, 3), below(m, 3) + 1);
        break;
    case 3:
    case 4: { /* a trainer that begins in its turn writes no more */
        const uint64_t version = m->version + (below(m, 8) ? 0 : below(m, 3));

        say(m, "%u begin %llu", s, (unsigned long long)version);
        if (strstr(m->t.actions, "c<BEGIN"))
            drained(m, s);
        break;
    }
    case 5:
        if (below(m, 3) == 0) {
            say(m, "%u maxima %llu", s, (unsigned long long)m->version);
            break;
        } /* else: */
        /* fall through */
    case 6:
        say(m, "%u end %llu", s, (unsigned long long)m->version);
        break;
    case 7:
        if (below(m, 3) == 0) {
            drained(m, s);
            say(m, "%u abort %llu", s, (unsigned long long)(m->version - below(m, 2)));
        }
        break;
    case 8:
        say(m, "%u publish q1 v%u", s, (unsigned)m->version);
        break;
    default:
        if (below(m, 20) == 0)
            say(m, "%u phase", s);
        break;
    }
}

static unsigned holder(const struct model *m, uint32_t rank)
{
    for (unsigned s = 1; s <= SESSIONS; s++)
        if (m->sessions[s].up && m->sessions[s].rank == (int)rank)
            return s;
    return 0;
}

static void new_program(struct model *m, uint32_t r)
{
    const bool shares = r == 0 && below(m, 4);

    m->layout[r] = ++m->epoch;
    if (r == 0)
        m->shares = shares;
    if (shares)
        say(m, "co maxima 1 e%llu", (unsigned long long)m->epoch);
    say(m, "co program %u e%llu %u m%u", r, (unsigned long long)m->epoch, 4096 * (1 + below(m, 3)),
        shares ? 10 : 0);
}

static void reduced(struct model *m)
{
    const unsigned long long generation = m->reducing;

    if (!generation)
        return;
    m->reducing = 0;
    if (below(m, 6) == 0) {
        say(m, "reduced g%llu !", generation);
        return;
    }
    m->reduced = m->staging; /* unless nobody waits for it any more: then it says nothing */
    say(m, "reduced g%llu", generation);
    if (!strstr(m->t.actions, "MAXIMA_DONE"))
        m->reduced = 0;
}

static void sensible(struct model *m)
{
    const uint32_t r = below(m, m->world);
    const unsigned s = holder(m, r);
    const unsigned long long v = m->asked[r];

    if (!s)
        return;
    switch (m->next[r]) {
    case DECLARE:
        say(m, "%u sources 0+2/2", s);
        break;
    case DECLARED:
        if (m->coordinator)
            say(m, "co sources_done %u", r);
        break;
    case BEGIN:
        if (!m->coordinator)
            break;
        if (below(m, 8) == 0) {
            say(m, "%u sources 0+2/2", s);
            break;
        }
        say(m, "%u begin %llu", s, (unsigned long long)++m->version);
        if (strstr(m->t.actions, "c<BEGIN"))
            drained(m, s);
        break;
    case GRANT:
        if (m->coordinator && (!m->layout[r] || below(m, 6) == 0))
            new_program(m, r);
        else if (m->coordinator)
            say(m, "co begin_done %u v%llu e%llu", r, v, (unsigned long long)m->layout[r]);
        break;
    case END:
        if (r == 0)
            say(m, "%u maxima %llu", s, v);
        reduced(m);
        say(m, "full %u.%u", r, below(m, 2));
        say(m, "%u end %llu", s, v);
        break;
    case ENDED:
        if (m->coordinator)
            say(m, "co end_done %u v%llu", r, v);
        break;
    case PUBLISH:
        if (m->coordinator)
            say(m, "co connect 0 v%llu e%llu", v, (unsigned long long)m->layout[r]);
        m->next[r] = BEGIN;
        break;
    }
}

static void session_event(struct model *m)
{
    const unsigned s = 1 + below(m, SESSIONS);

    if (!m->sessions[s].up && !m->sessions[s].dead && below(m, 2)) {
        m->sessions[s].up = true;
        m->sessions[s].rank = -1;
        say(m, "up %u", s);
    } else if (m->sessions[s].up && (m->sessions[s].dropped || below(m, 30) == 0)) {
        m->sessions[s].up = m->sessions[s].dropped = false;
        m->sessions[s].rank = -1;
        say(m, "down %u", s);
        if (!sw_host_awaits_death(m->t.host, s))
            drained(m, s); /* the number may come again */
        else
            m->sessions[s].dead = true; /* a process of which nobody knows: not this number */
    } else if (m->sessions[s].dead && below(m, 4) == 0) {
        m->sessions[s].dead = false;
        drained(m, s);
        say(m, "died %u", s);
    } else if (m->sessions[s].up) {
        session_says(m, s);
    }
}

static void coordinator_says(struct model *m)
{
    const uint32_t r = below(m, TALK_RANKS);
    const unsigned long long v = m->version;

    switch (below(m, 12)) {
    case 0:
        say(m, "co sources_done %u%s", r, below(m, 6) ? "" : " !");
        break;
    case 1:
        if (below(m, 8) == 0)
            new_program(m, r);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        say(m, "co begin_done %u v%llu e%llu%s", r, v, (unsigned long long)m->layout[r],
            below(m, 10) ? "" : " !");
        break;
    case 6:
        say(m, "co end_done %u v%llu%s", r, v, below(m, 4) ? "" : below(m, 2) ? " !" : " !state");
        break;
    case 7:
        if (below(m, 4) == 0)
            say(m, "co abort %u v%llu", below(m, 2) ? 99 : r, v);
        break;
    case 8:
    case 9:
        say(m, "co connect 0 v%llu e%llu", v - below(m, 2), (unsigned long long)m->layout[r]);
        break;
    case 10:
        say(m, "co result %u", below(m, 50));
        break;
    default:
        m->version++;
        break;
    }
}

static void other_event(struct model *m)
{
    const uint32_t r = below(m, TALK_RANKS), b = below(m, SW_HOST_BUFFERS);

    switch (below(m, 8)) {
    case 0:
        m->t.busy[r][b] = below(m, 3) == 0;
        break;
    case 1:
    case 2:
        say(m, "full %u.%u", r, b);
        break;
    case 3:
    case 4:
        if (!m->buffers[r][b].asked)
            break;
        if (below(m, 5) == 0) { /* an older one */
            say(m, "done %u.%u g%llu", r, b, (unsigned long long)m->buffers[r][b].generation - 1);
            break;
        }
        m->buffers[r][b].asked = false;
        m->t.busy[r][b] = false;
        say(m, "%s %u.%u g%llu", below(m, 8) ? "done" : "fail", r, b,
            (unsigned long long)m->buffers[r][b].generation);
        break;
    case 5:
        if (below(m, 3) == 0)
            reduced(m);
        say(m, "time %u", below(m, 50) ? below(m, 20) : 30000);
        break;
    case 6:
        if (below(m, m->coordinator ? 60 : 3) == 0) {
            m->coordinator = !m->coordinator;
            say(m, m->coordinator ? "co up" : "co down");
            memset(m->layout, 0, sizeof(m->layout));
        }
        break;
    default:
        if (below(m, 200) == 0)
            m->world = 2 + below(m, TALK_RANKS - 1);
        break;
    }
}

static void check(struct model *m)
{
    for (uint32_t r = 0; r < TALK_RANKS; r++)
        for (uint64_t v = recent(m); v <= m->version && v < VERSIONS; v++)
            if (sw_host_live_buffer(m->t.host, r, v) >= 0) {
                ck_assert_msg(m->ended[r][v], "version %llu of rank %u was not whole",
                    (unsigned long long)v, r);
                m->lives++;
            }
    ck_assert_uint_ge(sw_host_deadline(m->t.host), m->t.now);
}

START_TEST(test_random_events)
{
    struct model *m = calloc(1, sizeof(*m));

    ck_assert_ptr_nonnull(m);
    talk_start(&m->t);
    m->t.look = look;
    m->t.arg = m;
    m->random = (uint64_t)_i * 7919 + 1;
    m->world = 2;
    m->version = m->epoch = 1;
    m->coordinator = true;
    say(m, "co up");
    for (int i = 0; i < STEPS; i++) {
        switch (below(m, 8)) {
        case 0:
            session_event(m);
            break;
        case 1:
            if (m->coordinator && below(m, 3) == 0)
                coordinator_says(m);
            break;
        case 2:
        case 3:
            other_event(m);
            break;
        default:
            sensible(m);
        }
        if (i % 16 == 0)
            check(m);
    }
    /* It did something. */
    ck_assert_uint_gt(m->grants, 5);
    ck_assert_uint_gt(m->lives, 0);
    if (_i == 0)
        ck_assert_uint_gt(m->reductions, 0);
    talk_end(&m->t);
    free(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host-fuzz");
    TCase *c = tcase_create("random");
    SRunner *r;
    int failed;

    tcase_add_loop_test(c, test_random_events, 0, SEEDS);
    tcase_set_timeout(c, 60);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
