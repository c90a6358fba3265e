/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random events, against a world that believes nobody: coordinators that ask anything, engine
 * processes that lie and die, I/O that answers late. What must hold is checked from outside, on the
 * actions alone.
 */
#include <check.h>
#include <stdio.h>
#include "inferd/registry_impl.h"
#include "inferd/test_support.h"

#define PROCESSES 5
#define EVENTS 6000
#define SEEDS 60

struct process {        /* an engine process, and the I/O around it */
    bool up, down_told; /* connected; the registry was told of its end */
    uint64_t session;
    uint8_t id;
    char engine[2];
    uint32_t rank;
    bool mapping, mapped, releasing;
    bool open, opening, closing; /* the window: as the I/O has it */
    uint64_t placed;
    /* As the process sees it, since its RESUME. */
    bool paused, prepared, written, posted, activated;
    uint64_t version; /* that it was told to activate */
    uint64_t asked_update;
    enum sw_phase asked; /* not answered */
};

struct world {
    struct sw_registry *r;
    uint64_t random, seed, now;
    struct process p[64]; /* living and dying */
    int n;
    uint64_t sessions;
    bool coordinator;
    uint64_t update;
    int resumed, activated, torn; /* that something happens at all */
};

static uint32_t pick(struct world *w, uint32_t n)
{
    w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(w->seed >> 33) % n;
}

static struct process *by_session(struct world *w, uint64_t session)
{
    for (int i = 0; i < w->n; i++)
        if (w->p[i].session == session)
            return &w->p[i];
    return NULL;
}

/* ---- what the process must never see ---- */

static void process_hears(struct world *w, struct process *p, const struct sw_msg *m)
{
    const struct sw_phase_msg *q = &m->u.phase;

    if (m->kind == SW_MSG_REGISTERED || !p->up)
        return;
    ck_assert_int_eq(m->kind, SW_MSG_PHASE);
    p->asked = q->phase;
    p->asked_update = q->update;
    switch (q->phase) {
    case SW_PHASE_PREPARE:
        ck_assert(p->paused);
        ck_assert(!p->open && !p->opening);
        break;
    case SW_PHASE_POST:
        ck_assert(p->paused && p->prepared && p->written);
        ck_assert(!p->open && !p->opening && !p->closing);
        ck_assert_uint_eq(p->placed, 64);
        break;
    case SW_PHASE_ACTIVATE:
        ck_assert(p->posted && !p->open && !p->opening && !p->closing);
        p->version = q->version;
        break;
    case SW_PHASE_RESUME: /* torn never resumes */
        ck_assert(!p->open && !p->opening && !p->closing);
        ck_assert(!p->written || p->activated);
        if (p->written)
            ck_assert_uint_eq(q->version, p->version);
        p->paused = p->prepared = p->written = p->posted = p->activated = false;
        w->resumed++;
        break;
    default:
        ck_assert_int_eq(q->phase, SW_PHASE_PAUSE);
        break;
    }
}

static void coordinator_hears(struct world *w, const struct sw_msg *m)
{
    const struct sw_rank_state_msg *s = &m->u.rank_state;

    ck_assert(w->coordinator);
    if (m->kind != SW_MSG_RANK_STATE)
        return;
    w->torn += s->state == SW_RANK_TORN;
    for (int i = 0; i < w->n; i++) {
        struct process *p = &w->p[i];

        if (p->id == s->instance.bytes[0] && p->written && !p->activated && p->mapped)
            ck_assert(s->state != SW_RANK_SERVING && s->state != SW_RANK_ACTIVE);
    }
}

static void drain(struct world *w)
{
    struct sw_registry_action a;

    while (sw_registry_next(w->r, &a)) {
        struct process *p = by_session(w, a.session);

        switch (a.kind) {
        case SW_REG_TO_ENGINE:
            if (p)
                process_hears(w, p, a.message);
            break;
        case SW_REG_TO_COORDINATOR:
            coordinator_hears(w, a.message);
            break;
        case SW_REG_DROP_ENGINE:
            if (p)
                p->up = false;
            break;
        case SW_REG_MAP:
            ck_assert(p && !p->mapped && !p->mapping);
            p->mapping = true;
            break;
        case SW_REG_WINDOW_OPEN:
            ck_assert(p && p->mapped && !p->releasing);
            ck_assert(!p->open && !p->opening && !p->closing);
            ck_assert(p->paused && p->prepared);
            p->opening = p->open = true;
            p->written = true; /* from now on anything may be placed */
            p->posted = p->activated = false;
            p->placed = 0;
            break;
        case SW_REG_WINDOW_CLOSE:
            ck_assert(p && p->open && !p->closing);
            p->closing = true;
            break;
        case SW_REG_RELEASE:
            ck_assert(p && (p->mapped || p->mapping) && !p->releasing);
            p->releasing = true;
            break;
        case SW_REG_LOG:
            break;
        }
        sw_msg_free(a.message);
    }
}

/* ---- events ---- */

static void give(struct world *w, struct sw_registry_event event)
{
    sw_registry_handle(w->r, &event, w->now);
    if (pick(w, 8)) /* sometimes several events pass before the I/O looks */
        drain(w);
}

static void new_process(struct world *w)
{
    static const struct declared weight = {"w", 0, 64, NULL};
    struct process *p;
    struct sw_msg *msg;

    if (w->n >= PROCESSES)
        return;
    p = &w->p[w->n++];
    *p = (struct process){.up = true, .session = ++w->sessions, .rank = pick(w, 3)};
    p->id = (uint8_t)(p->session % 250 + 1);
    p->engine[0] = (char)('A' + pick(w, 2));
    give(w, (struct sw_registry_event){SW_REG_ENGINE_UP, .session = p->session,
                .instance = make_id(p->id, 'e'), .pid = 100});
    msg = make_engine_rank(p->engine, p->rank, 3, p->id, 64, 1, -1);
    if (pick(w, 6) == 0) {
        msg->u.engine_rank.torn = 1;
        p->paused = p->prepared = p->written = true;
    }
    give(w,
        (struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = p->session, .message = msg});
    msg = make_parameters(p->engine, p->rank, p->id, 0, 1, &weight, 1);
    give(w,
        (struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = p->session, .message = msg});
}

static void process_answers(struct world *w, struct process *p, bool lie)
{
    enum sw_phase phase = lie ? 1 + pick(w, 9) : p->asked;
    uint64_t update = lie ? w->update - pick(w, 2) : p->asked_update;
    int code = pick(w, 12) == 0 ? SW_ERR_STATE : 0;

    if (!phase || !p->up)
        return;
    if (lie && phase == p->asked && update == p->asked_update)
        return; /* would be the truth */
    if (!lie) {
        p->asked = 0;
        p->paused = p->paused || phase == SW_PHASE_PAUSE;
        if (!code && phase == SW_PHASE_PREPARE)
            p->prepared = true;
        if (!code && phase == SW_PHASE_POST)
            p->posted = true;
        if (!code && phase == SW_PHASE_ACTIVATE)
            p->activated = true;
    }
    give(w, (struct sw_registry_event){SW_REG_ENGINE_MESSAGE, .session = p->session,
                .message = make_phase_done(phase, update, p->engine, p->rank, p->id, code)});
}

static void io_answers(struct world *w, struct process *p)
{
    struct sw_registry_event event = {.session = p->session};

    if (p->mapping) {
        p->mapping = false;
        event.kind = SW_REG_MAPPED;
        event.code = p->releasing || pick(w, 10) == 0 ? SW_ERR_NOMEM : 0;
        p->mapped = event.code == 0;
        if (p->releasing)
            return;
    } else if (p->opening && !p->releasing) {
        p->opening = false;
        event.kind = SW_REG_WINDOW_OPENED;
        event.code = pick(w, 15) == 0 ? SW_ERR_IO : 0;
    } else if (p->closing && !p->releasing) {
        p->closing = p->open = p->opening = false;
        p->placed = pick(w, 8) == 0 ? 63 : 64;
        event.kind = SW_REG_WINDOW_CLOSED;
        event.bytes = p->placed;
    } else if (p->releasing) {
        event.kind = SW_REG_RELEASED;
    } else {
        return;
    }
    give(w, event);
    if (event.kind == SW_REG_RELEASED)
        *p = w->p[--w->n];
}

static void process_dies(struct world *w, struct process *p)
{
    if (p->down_told)
        return;
    p->up = false;
    p->down_told = true;
    give(w, (struct sw_registry_event){SW_REG_ENGINE_DOWN, .session = p->session, .text = "test"});
    drain(w);
    if (!p->releasing)
        *p = w->p[--w->n];
}

/* Mostly what a coordinator would do next, sometimes anything. */
static void coordinator_asks(struct world *w)
{
    struct process *p = &w->p[pick(w, (uint32_t)w->n)];
    struct sw_rank *k = w->r->ranks;
    enum sw_phase phase = 1 + pick(w, 9);
    uint64_t update = w->update;

    for (; k; k = k->next)
        if (k->session == p->session)
            break;
    if (k && pick(w, 10)) {
        phase = k->member ? k->done + 1 : SW_PHASE_ARM;
        if (phase > SW_PHASE_RESUME || pick(w, 150) == 0)
            phase = SW_PHASE_ABORT;
    }
    if (pick(w, 400) == 0)
        update = ++w->update;
    if (k && phase == SW_PHASE_ARM && k->engine && k->engine->last_update == update &&
        k->engine->update != update)
        update = ++w->update;
    if (pick(w, 100) == 0)
        update -= 1;
    give(w, (struct sw_registry_event){SW_REG_COORDINATOR_MESSAGE,
                .message = make_phase(phase, update, update, p->engine, p->rank, p->id, 64)});
    if (k && phase == SW_PHASE_ACTIVATE)
        w->activated++;
}

static void coordinator_comes_or_goes(struct world *w)
{
    if (w->coordinator && pick(w, 2)) {
        give(w, (struct sw_registry_event){SW_REG_COORDINATOR_DOWN});
        drain(w);
        w->coordinator = false;
        return;
    }
    drain(w);
    w->coordinator = true;
    give(w, (struct sw_registry_event){
                SW_REG_COORDINATOR_UP, .instance = make_id((uint8_t)(1 + pick(w, 2)), 'c')});
}

static void one_event(struct world *w)
{
    struct process *p = w->n ? &w->p[pick(w, (uint32_t)w->n)] : NULL;
    uint32_t what = pick(w, 100);

    w->now += pick(w, 5) * MS;
    if (!p || what < 4)
        new_process(w);
    else if (what < 35)
        io_answers(w, p);
    else if (what < 60)
        process_answers(w, p, false);
    else if (what < 63)
        process_answers(w, p, true);
    else if (what < 64 && pick(w, 2))
        process_dies(w, p);
    else if (what < 65 && pick(w, 3) == 0)
        coordinator_comes_or_goes(w);
    else if (what < 66 && pick(w, 8) == 0)
        w->now += 1100 * MS;
    else if (w->coordinator && what < 96)
        coordinator_asks(w);
    else
        give(w, (struct sw_registry_event){SW_REG_TICK});
}

static void check_lease(const struct world *w)
{
    ck_assert(sw_registry_deadline(w->r) > w->now || sw_registry_deadline(w->r) == UINT64_MAX ||
              w->r->engines);
}

/* Everything ends: all processes die, all I/O answers, nothing is kept. */
static void end_all(struct world *w)
{
    for (int i = 0; i < 1000 && w->n; i++) {
        struct process *p = &w->p[0];

        drain(w);
        if (!p->down_told)
            process_dies(w, p);
        else
            io_answers(w, p);
    }
    drain(w);
    ck_assert_int_eq(w->n, 0);
    ck_assert_ptr_null(w->r->ranks);
    ck_assert_ptr_null(w->r->engines);
    ck_assert_ptr_null(w->r->first);
    ck_assert_uint_eq(sw_registry_deadline(w->r), UINT64_MAX);
}

START_TEST(random_events)
{
    struct world w = {.seed = (uint64_t)_i * 7919 + 1, .now = MS, .update = 1, .random = 1};
    struct sw_registry_config config = make_config(&w.random);

    w.r = sw_registry_new(&config);
    w.coordinator = true;
    give(&w, (struct sw_registry_event){SW_REG_COORDINATOR_UP, .instance = make_id(1, 'c')});
    for (int i = 0; i < EVENTS; i++) {
        one_event(&w);
        check_lease(&w);
    }
    end_all(&w);
    sw_registry_free(w.r);
    ck_assert_int_gt(w.resumed + w.torn, 0);
    if (getenv("SHARDWIRE_TEST_VERBOSE"))
        printf("seed %d: resumed %d, activated %d, torn %d\n", _i, w.resumed, w.activated, w.torn);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("registry_fuzz");
    TCase *tc = tcase_create("registry_fuzz");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tc, random_events, 0, SEEDS);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
