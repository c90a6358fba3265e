/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator among simple trainerds, inferds, trainers and engines on a virtual clock:
 * messages are late, processes die, connections break, daemons stand still, the disk says no.
 * Asserted:
 *
 *   - a rank is resumed by its coordinator only with exactly the bytes of the version, all of them;
 *   - whoever asked gets an answer; when all is quiet no deadline runs;
 *   - once nothing fails any more, a version reaches every engine.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/coordinator.h"

#define MS 1000000ull
#define SECOND (1000 * MS)
#define HOSTS 2 /* of each kind; trainer rank r is on trainerd r */
#define RANKS 3 /* engine ranks: A/0 on inferd 0, A/1 and B/0 on inferd 1 */
#define FAULTS_UNTIL (400 * SECOND)

static const uint64_t bytes_of[HOSTS] = {8, 4}; /* that each trainer rank stages */

enum kind { /* of events */
    TO_COORDINATOR = 1,
    FROM_COORDINATOR,
    PERSISTED,
    RECONNECT,
    TRAINER_STARTS,
    ENGINE_STARTS,
    DATA, /* bytes of a write arrive */
    LEASE,
    ACT, /* a trainer rank does its next step */
    FAULT,
};

struct event {
    uint64_t at, order;
    enum kind kind;
    uint32_t node, rank, a;
    uint64_t x, y;
    struct sw_id process, window; /* DATA */
    struct sw_msg *msg;
};

struct node {                /* a daemon: 0, 1 trainerds; 2, 3 inferds */
    uint64_t member;         /* 0 = not connected */
    uint64_t in, out;        /* when the last message of each direction arrives */
    uint64_t frozen;         /* stands still until then */
    uint64_t epoch;          /* trainerd: of its load program */
    struct sw_id process[8]; /* trainerd: by target of the membership epoch */
    uint32_t n_targets;
};

enum doing { IDLE, ASKED, STAGING, ENDING };

struct trainer {
    uint32_t process; /* 0 = dead */
    bool declared;
    enum doing doing;
    uint64_t version;
};

struct erank {
    const char *engine;
    uint32_t rank, world, node;
    uint32_t process; /* 0 = dead */
    enum sw_rank_state state;
    uint64_t version, update;
    uint64_t held; /* the version of its bytes; 0 = mixed */
    bool open, prepared, closed_well, post;
    struct sw_id window;
    uint64_t placed, placed_version, expected;
    uint32_t writers; /* bits of trainer ranks that wrote in this window */
};

struct sim {
    struct sw_coordinator *c;
    uint64_t now, order, rng, next_member;
    uint32_t next_process;
    uint32_t n_events, size;
    struct event *events; /* a binary heap */
    struct node nodes[2 * HOSTS];
    struct trainer trainers[HOSTS];
    struct erank ranks[RANKS];
    uint64_t version; /* that trainers are at */
    uint64_t request; /* publish under way; 0 = none */
    int outcome;      /* of the last publish; 1 = none yet */
    uint64_t results, lives;
    bool faults;
};

static struct sim sim;

/* ---- chance and the event heap ---- */

static uint64_t chance(uint64_t n)
{
    sim.rng ^= sim.rng << 13;
    sim.rng ^= sim.rng >> 7;
    sim.rng ^= sim.rng << 17;
    return sim.rng % n;
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct event e)
{
    uint32_t i = sim.n_events++;

    e.order = ++sim.order;
    if (sim.n_events > sim.size) {
        sim.size = sim.size * 2 + 64;
        sim.events = realloc(sim.events, sim.size * sizeof(*sim.events));
    }
    while (i && before(&e, &sim.events[(i - 1) / 2])) {
        sim.events[i] = sim.events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim.events[i] = e;
}

static struct event pop(void)
{
    const struct event top = sim.events[0], last = sim.events[--sim.n_events];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= sim.n_events)
            break;
        if (child + 1 < sim.n_events && before(&sim.events[child + 1], &sim.events[child]))
            child++;
        if (!before(&sim.events[child], &last))
            break;
        sim.events[i] = sim.events[child];
        i = child;
    }
    sim.events[i] = last;
    return top;
}

static struct sw_id id_of(uint64_t kind, uint64_t number)
{
    struct sw_id id = {{0}};

    id.bytes[0] = (uint8_t)kind;
    memcpy(id.bytes + 8, &number, sizeof(number));
    return id;
}

static bool is_id(const struct sw_id *id, uint64_t kind, uint64_t number)
{
    const struct sw_id other = id_of(kind, number);

    return sw_id_equal(id, &other);
}

/* ---- messages on their way ---- */

/* When something that is sent now arrives, after all that was sent before. */
static uint64_t arrival(uint64_t *last)
{
    uint64_t at = sim.now + chance(20) * MS;

    if (chance(50) == 0)
        at += chance(3000) * MS;
    *last = at > *last ? at : *last;
    return *last;
}

static void drain(void);

static void feed(struct sw_coordinator_event e)
{
    sw_coordinator_handle(sim.c, &e, sim.now);
    drain();
}

static void send(uint32_t node, struct sw_msg *m)
{
    struct node *n = &sim.nodes[node];

    if (!n->member) {
        sw_msg_free(m);
        return;
    }
    push((struct event){
        .at = arrival(&n->in), .kind = TO_COORDINATOR, .node = node, .x = n->member, .msg = m});
}

static const char *text(struct sw_msg *m, const char *s)
{
    return sw_arena_strdup(&m->arena, s);
}

/* ---- engines and inferds ---- */

static void send_state(const struct erank *r, enum sw_rank_state state, uint32_t process)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_RANK_STATE);

    m->u.rank_state = (struct sw_rank_state_msg){.engine = text(m, r->engine),
        .rank = r->rank,
        .instance = id_of('e', process),
        .state = state,
        .version = r->version,
        .reason = text(m, "by itself")};
    send(r->node, m);
}

static void send_engine(const struct erank *r)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ENGINE_RANK), *p = sw_msg_new(SW_MSG_PARAMETERS);
    static const char *const names[] = {"a", "b"};

    m->u.engine_rank = (struct sw_engine_rank){.engine = text(m, r->engine),
        .rank = r->rank,
        .world = r->world,
        .instance = id_of('e', r->process),
        .scale_format = "",
        .version = r->version,
        .torn = r->state == SW_RANK_TORN,
        .pid = r->process,
        .n_parameters = 2,
        .n_regions = 1,
        .region_bytes = sw_arena_array(&m->arena, 1, sizeof(uint64_t))};
    m->u.engine_rank.region_bytes[0] = 12;
    send(r->node, m);
    p->u.parameters = (struct sw_parameters){.engine = text(p, r->engine),
        .rank = r->rank,
        .instance = id_of('e', r->process),
        .total = 2,
        .n = 2,
        .items = sw_arena_array(&p->arena, 2, sizeof(struct sw_parameter))};
    for (uint32_t i = 0; i < 2; i++)
        p->u.parameters.items[i] = (struct sw_parameter){.name = names[i],
            .dtype = SW_U8,
            .ndim = 1,
            .shape = {bytes_of[i]},
            .offset = i ? bytes_of[0] : 0};
    send(r->node, p);
}

/* The update ends without an activation, or after it. */
static void end_update(struct erank *r)
{
    r->open = false;
    if (r->state == SW_RANK_ACTIVE)
        r->state = SW_RANK_SERVING;
    else if (r->state == SW_RANK_OPEN || r->state == SW_RANK_CLOSED)
        r->state = SW_RANK_TORN;
    else if (r->state != SW_RANK_TORN)
        r->state = SW_RANK_SERVING;
    r->update = 0;
}

static void open_window(struct erank *r, const struct sw_phase_msg *p)
{
    r->open = true;
    r->window = id_of('w', ++sim.order);
    r->placed = 0;
    r->writers = 0;
    r->placed_version = p->version;
    r->expected = p->expected_bytes;
    r->state = SW_RANK_OPEN;
    r->closed_well = r->post = false;
}

/* What inferd and engine do; non-NULL: why not. */
static const char *do_phase(struct erank *r, const struct sw_phase_msg *p, struct sw_phase_done *d)
{
    if (p->phase != SW_PHASE_ARM && p->update != r->update)
        return "another update";
    switch (p->phase) {
    case SW_PHASE_ARM:
        r->update = p->update;
        r->prepared = false;
        return NULL;
    case SW_PHASE_PAUSE:
        r->state = r->state == SW_RANK_TORN ? SW_RANK_TORN : SW_RANK_PAUSED;
        push((struct event){.at = sim.now + 240 * SECOND,
            .kind = LEASE,
            .rank = (uint32_t)(r - sim.ranks),
            .x = r->update,
            .y = r->process});
        return NULL;
    case SW_PHASE_PREPARE:
        r->prepared = true;
        return NULL;
    case SW_PHASE_OPEN:
        if (!r->prepared)
            return "not prepared";
        open_window(r, p);
        d->window = r->window;
        return NULL;
    case SW_PHASE_CLOSE:
        r->open = false;
        r->state = SW_RANK_CLOSED;
        r->closed_well = r->placed == r->expected;
        if (r->closed_well && r->writers == 3)
            r->held = r->placed_version;
        d->bytes = r->placed;
        return NULL;
    case SW_PHASE_POST:
        r->post = r->closed_well;
        return r->closed_well ? NULL : "not closed well";
    case SW_PHASE_ACTIVATE:
        if (!r->post)
            return "not post-processed";
        r->version = p->version;
        r->state = SW_RANK_ACTIVE;
        return NULL;
    case SW_PHASE_RESUME: /* what all of this is about */
        ck_assert_int_eq(r->state, SW_RANK_ACTIVE);
        ck_assert_uint_eq(r->held, p->version);
        ck_assert_uint_eq(r->version, p->version);
        r->state = SW_RANK_SERVING;
        return NULL;
    case SW_PHASE_ABORT:
        end_update(r);
        return NULL;
    }
    return "what?";
}

static void on_phase(uint32_t node, const struct sw_phase_msg *p)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PHASE_DONE);
    struct sw_phase_done *d = &m->u.phase_done;
    struct erank *r = NULL;
    const char *why = "no such process";

    for (uint32_t i = 0; i < RANKS; i++)
        if (sim.ranks[i].node == node && sim.ranks[i].rank == p->rank &&
            !strcmp(sim.ranks[i].engine, p->engine) && sim.ranks[i].process &&
            is_id(&p->instance, 'e', sim.ranks[i].process))
            r = &sim.ranks[i];
    *d = (struct sw_phase_done){.phase = p->phase,
        .update = p->update,
        .engine = text(m, p->engine),
        .rank = p->rank,
        .instance = p->instance,
        .state = SW_RANK_GONE};
    if (r) {
        why = sim.faults && chance(100) == 0 ? "a hook failed" : do_phase(r, p, d);
        d->state = r->state;
    }
    if (why)
        d->error = (struct sw_failure){SW_ERR_STATE, text(m, why)};
    send(node, m);
}

static void from_inferds_coordinator(uint32_t node, const struct sw_msg *m)
{
    if (m->kind == SW_MSG_PHASE)
        on_phase(node, &m->u.phase);
}

/* ---- trainers and trainerds ---- */

static void later(uint32_t rank)
{
    push((struct event){.at = sim.now + (1 + chance(2000)) * MS,
        .kind = ACT,
        .rank = rank,
        .x = sim.trainers[rank].process});
}

static void declare(uint32_t r)
{
    struct sw_msg *o = sw_msg_new(SW_MSG_TRAINER_OPEN), *m = sw_msg_new(SW_MSG_SOURCES);

    o->u.trainer_open = (struct sw_trainer_open){
        r, HOSTS, sim.trainers[r].process, id_of('t', sim.trainers[r].process)};
    send(r, o);
    m->u.sources = (struct sw_sources){.rank = r,
        .world = HOSTS,
        .trainer = id_of('t', sim.trainers[r].process),
        .total = 1,
        .n = 1,
        .items = sw_arena_array(&m->arena, 1, sizeof(struct sw_source))};
    m->u.sources.items[0] = (struct sw_source){.name = r ? "b" : "a",
        .dtype = SW_U8,
        .ndim = 1,
        .shape = {bytes_of[r]},
        .box = {.ndim = 1, .len = {bytes_of[r]}}};
    send(r, m);
}

/* Ranks are idle and declared: the next version. */
static void next_round(void)
{
    for (uint32_t r = 0; r < HOSTS; r++)
        if (sim.trainers[r].doing != IDLE || !sim.trainers[r].declared || !sim.trainers[r].process)
            return;
    if (sim.request)
        return;
    sim.version++;
    for (uint32_t r = 0; r < HOSTS; r++) {
        sim.trainers[r].doing = ASKED;
        sim.trainers[r].version = sim.version;
        later(r);
    }
}

static void act(uint32_t rank)
{
    struct trainer *t = &sim.trainers[rank];
    struct sw_msg *m;

    if (!sim.nodes[rank].member) { /* its trainerd says that at once */
        t->doing = IDLE;
        return;
    }
    if (t->doing == ASKED) {
        m = sw_msg_new(SW_MSG_BEGIN);
        m->u.begin = (struct sw_begin){.rank = rank, .version = t->version};
        send(rank, m);
    } else if (t->doing == STAGING) {
        m = sw_msg_new(SW_MSG_END);
        m->u.end = (struct sw_end){.rank = rank, .version = t->version, .bytes = bytes_of[rank]};
        t->doing = ENDING;
        send(rank, m);
    }
}

static void ask_publish(uint64_t version)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PUBLISH);

    sim.request = ++sim.order;
    sim.outcome = 1;
    m->u.publish = (struct sw_publish){.request = sim.request, .version = version};
    send(0, m);
    if (!sim.nodes[0].member)
        sim.request = 0;
}

static void on_result(const struct sw_result *r)
{
    if (r->request != sim.request)
        return;
    sim.request = 0;
    sim.outcome = r->error.code;
    sim.results++;
    for (uint32_t i = 0; i < r->n; i++)
        sim.lives += r->engines[i].live;
}

static void on_reply(uint32_t rank, enum sw_msg_kind kind, const struct sw_rank_reply *r)
{
    struct trainer *t = &sim.trainers[rank];

    if (kind == SW_MSG_SOURCES_DONE) {
        t->declared = r->error.code == 0;
    } else if (r->version != t->version) {
        return;
    } else if (kind == SW_MSG_BEGIN_DONE && t->doing == ASKED) {
        t->doing = r->error.code ? IDLE : STAGING;
        if (t->doing == STAGING)
            later(rank);
        if (t->doing == STAGING && rank == 0 && chance(3) == 0)
            ask_publish(r->version); /* when it is staged */
    } else if (kind == SW_MSG_END_DONE && t->doing == ENDING) {
        t->doing = IDLE;
        if (!r->error.code && rank == 0 && !sim.request)
            ask_publish(r->version);
    }
}

static void on_targets(struct node *n, const struct sw_targets *t)
{
    n->n_targets = t->total;
    for (uint32_t i = 0; i < t->n; i++)
        n->process[t->items[i].target] = t->items[i].engine_instance;
}

static void on_write(uint32_t node, const struct sw_write *w)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_WRITTEN);
    const uint64_t delay = sim.faults && chance(30) == 0 ? chance(100) * SECOND : chance(50) * MS;

    /* The bytes, then (on the control connection) the word of it. */
    push((struct event){.at = sim.now + delay,
        .kind = DATA,
        .node = node,
        .a = w->target,
        .x = w->version,
        .process = sim.nodes[node].process[w->target],
        .window = w->window,
        .msg = m});
    m->u.written = (struct sw_written){.update = w->update, .target = w->target};
}

/* Bytes arrive at a target: placed if the window that they name is open. */
static void on_data(struct event *e)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        struct erank *r = &sim.ranks[i];

        if (!r->process || !is_id(&e->process, 'e', r->process) || !r->open ||
            !sw_id_equal(&r->window, &e->window))
            continue;
        r->placed += bytes_of[e->node];
        r->writers |= 1u << e->node;
        r->held = 0; /* until the window closes with all of it */
        ck_assert_uint_eq(r->placed_version, e->x);
        e->msg->u.written.bytes = bytes_of[e->node];
    }
    if (e->msg->u.written.bytes == 0)
        e->msg->u.written.error = (struct sw_failure){SW_ERR_CLOSED, "the window is closed"};
    send(e->node, e->msg);
}

static void from_trainerds_coordinator(uint32_t node, const struct sw_msg *m)
{
    struct trainer *t = &sim.trainers[node];
    struct sw_msg *reply = NULL;

    switch (m->kind) {
    case SW_MSG_SOURCES_DONE:
    case SW_MSG_BEGIN_DONE:
    case SW_MSG_END_DONE:
        on_reply(node, m->kind, &m->u.rank_reply);
        break;
    case SW_MSG_LOAD_PROGRAM:
        reply = sw_msg_new(SW_MSG_PLAN_DONE);
        reply->u.plan_done.layout_epoch = m->u.load_program.layout_epoch;
        if (sim.faults && chance(40) == 0)
            reply->u.plan_done.error = (struct sw_failure){SW_ERR_NOMEM, "no memory"};
        break;
    case SW_MSG_ABORT:
        if (t->version == m->u.abort.version)
            t->doing = IDLE;
        break;
    case SW_MSG_TARGETS:
        on_targets(&sim.nodes[node], &m->u.targets);
        break;
    case SW_MSG_CONNECT:
        reply = sw_msg_new(SW_MSG_CONNECTED);
        reply->u.connected = (struct sw_connected){.update = m->u.connect.update,
            .target = m->u.connect.target,
            .transport = "tcp",
            .why = ""};
        break;
    case SW_MSG_WRITE:
        on_write(node, &m->u.write);
        break;
    case SW_MSG_RESULT:
        on_result(&m->u.result);
        break;
    default:
        break;
    }
    if (reply)
        send(node, reply);
}

/* ---- daemons come and go ---- */

static void connect_node(uint32_t node)
{
    struct node *n = &sim.nodes[node];
    struct sw_msg *m = sw_msg_new(SW_MSG_MEMBER);
    char name[16];

    snprintf(name, sizeof(name), "%c%u", node < HOSTS ? 't' : 'i', node);
    n->member = ++sim.next_member;
    n->in = n->out = sim.now;
    feed((struct sw_coordinator_event){.kind = SW_COORD_MEMBER_UP,
        .member = n->member,
        .role = node < HOSTS ? SW_ROLE_TRAINERD : SW_ROLE_INFERD,
        .instance = id_of('n', node),
        .name = name,
        .address = "10.0.0.1"});
    m->u.member = (struct sw_member){.name = text(m, name), .advertise = "", .unix_path = ""};
    send(node, m);
    if (node < HOSTS && sim.trainers[node].process)
        declare(node);
    for (uint32_t i = 0; i < RANKS; i++)
        if (sim.ranks[i].node == node && sim.ranks[i].process)
            send_engine(&sim.ranks[i]);
}

static void disconnect(uint32_t node)
{
    struct node *n = &sim.nodes[node];
    const uint64_t member = n->member;

    if (!member)
        return;
    n->member = 0;
    if (node < HOSTS) {
        sim.trainers[node].doing = IDLE;
        sim.trainers[node].declared = false;
        sim.request = node == 0 ? 0 : sim.request;
    }
    for (uint32_t i = 0; i < RANKS; i++)
        if (sim.ranks[i].node == node && sim.ranks[i].update)
            end_update(&sim.ranks[i]);
    push((struct event){.at = sim.now + chance(8000) * MS, .kind = RECONNECT, .node = node});
    /* Sometimes its end is not noticed before it is back. */
    if (chance(3))
        feed((struct sw_coordinator_event){
            .kind = SW_COORD_MEMBER_DOWN, .member = member, .text = "reset"});
}

static void kill_trainer(uint32_t r)
{
    struct trainer *t = &sim.trainers[r];
    struct sw_msg *m;

    if (!t->process)
        return;
    m = sw_msg_new(SW_MSG_RANK_GONE);
    m->u.rank_gone = (struct sw_rank_gone){r, id_of('t', t->process), "killed"};
    send(r, m);
    *t = (struct trainer){0};
    push((struct event){.at = sim.now + chance(5000) * MS, .kind = TRAINER_STARTS, .rank = r});
}

static void kill_engine(uint32_t i)
{
    struct erank *r = &sim.ranks[i];

    if (!r->process)
        return;
    if (chance(4)) /* otherwise the next process is the first that is heard of it */
        send_state(r, SW_RANK_GONE, r->process);
    r->process = 0;
    r->open = false;
    push((struct event){.at = sim.now + chance(9000) * MS, .kind = ENGINE_STARTS, .rank = i});
}

static void start_engine(uint32_t i)
{
    struct erank *r = &sim.ranks[i];

    *r = (struct erank){.engine = r->engine,
        .rank = r->rank,
        .world = r->world,
        .node = r->node,
        .process = ++sim.next_process,
        .state = SW_RANK_SERVING};
    send_engine(r);
}

static void fault(void)
{
    switch (chance(5)) {
    case 0:
        disconnect((uint32_t)chance(2 * HOSTS));
        break;
    case 1:
        kill_trainer((uint32_t)chance(HOSTS));
        break;
    case 2:
        kill_engine((uint32_t)chance(RANKS));
        break;
    case 3: /* stopped, and continued later */
        sim.nodes[chance(2 * HOSTS)].frozen = sim.now + chance(chance(2) ? 150000 : 3000) * MS;
        break;
    default:
        break;
    }
    if (sim.now < FAULTS_UNTIL)
        push((struct event){.at = sim.now + (1 + chance(25000)) * MS, .kind = FAULT});
    else
        sim.faults = false;
}

/* ---- the world turns ---- */

static uint32_t node_of(uint64_t member)
{
    for (uint32_t n = 0; n < 2 * HOSTS; n++)
        if (sim.nodes[n].member == member)
            return n;
    return UINT32_MAX;
}

static void perform(struct sw_coordinator_action *a)
{
    const uint32_t node = a->member ? node_of(a->member) : UINT32_MAX;

    switch (a->kind) {
    case SW_COORD_SEND:
        if (node == UINT32_MAX)
            sw_msg_free(a->message);
        else
            push((struct event){.at = arrival(&sim.nodes[node].out),
                .kind = FROM_COORDINATOR,
                .node = node,
                .x = a->member,
                .msg = a->message});
        break;
    case SW_COORD_CLOSE:
        ck_assert_msg(strstr(a->text, "again") || strstr(a->text, "came"), "closed: %s", a->text);
        if (node != UINT32_MAX)
            disconnect(node);
        feed((struct sw_coordinator_event){
            .kind = SW_COORD_MEMBER_DOWN, .member = a->member, .text = a->text});
        break;
    case SW_COORD_PERSIST:
        push((struct event){.at = sim.now + chance(30) * MS,
            .kind = PERSISTED,
            .x = a->version,
            .a = sim.faults && chance(40) == 0});
        break;
    case SW_COORD_LOG:
        ck_assert_str_ne(a->text, "");
        break;
    }
}

static void drain(void)
{
    struct sw_coordinator_action a;

    while (sw_coordinator_next(sim.c, &a))
        perform(&a);
}

static void on_event(struct event *e)
{
    struct erank *r = &sim.ranks[e->rank < RANKS ? e->rank : 0];

    switch (e->kind) {
    case TO_COORDINATOR:
        if (sim.nodes[e->node].member == e->x)
            feed((struct sw_coordinator_event){
                .kind = SW_COORD_MESSAGE, .member = e->x, .message = e->msg});
        else
            sw_msg_free(e->msg);
        break;
    case FROM_COORDINATOR:
        if (sim.nodes[e->node].member == e->x && e->node < HOSTS)
            from_trainerds_coordinator(e->node, e->msg);
        else if (sim.nodes[e->node].member == e->x)
            from_inferds_coordinator(e->node, e->msg);
        sw_msg_free(e->msg);
        break;
    case PERSISTED:
        feed((struct sw_coordinator_event){.kind = SW_COORD_PERSISTED,
            .version = e->x,
            .code = e->a ? SW_ERR_IO : 0,
            .text = "disk"});
        break;
    case RECONNECT:
        connect_node(e->node);
        break;
    case TRAINER_STARTS:
        sim.trainers[e->rank].process = ++sim.next_process;
        declare(e->rank);
        break;
    case ENGINE_STARTS:
        start_engine(e->rank);
        break;
    case DATA:
        on_data(e);
        break;
    case LEASE:
        if (r->update == e->x && r->process == e->y && r->state != SW_RANK_SERVING) {
            end_update(r);
            send_state(r, r->state, r->process);
        }
        break;
    case ACT:
        if (sim.trainers[e->rank].process == e->x)
            act(e->rank);
        break;
    case FAULT:
        fault();
        break;
    }
}

/* One event, or a deadline of the coordinator. False: all is quiet. */
static bool turn(void)
{
    const uint64_t deadline = sw_coordinator_deadline(sim.c);
    struct event e;

    if (sim.n_events == 0 && deadline == UINT64_MAX)
        return false;
    if (sim.n_events == 0 || deadline < sim.events[0].at) {
        ck_assert_uint_gt(deadline, 0);
        sim.now = deadline > sim.now ? deadline : sim.now;
        feed((struct sw_coordinator_event){.kind = SW_COORD_TICK});
        ck_assert_msg(sw_coordinator_deadline(sim.c) > sim.now, "a deadline is not served");
        return true;
    }
    e = pop();
    sim.now = e.at > sim.now ? e.at : sim.now;
    if ((e.kind == FROM_COORDINATOR || e.kind == DATA) && sim.nodes[e.node].frozen > sim.now) {
        e.at = sim.nodes[e.node].frozen; /* in order: all others wait as long */
        push(e);
        return true;
    }
    on_event(&e);
    return true;
}

static void start(uint64_t seed)
{
    const struct sw_coordinator_config config = {.group = "g",
        .tcp_connections = 1,
        .begin_ns = 60 * SECOND,
        .stage_ns = 600 * SECOND,
        .connect_ns = 10 * SECOND,
        .pause_ns = 60 * SECOND,
        .window_ns = 5 * SECOND,
        .write_ns = 60 * SECOND,
        .post_ns = 120 * SECOND,
        .activate_ns = 5 * SECOND,
        .manifest_ns = 30 * SECOND};
    const struct erank ranks[RANKS] = {{.engine = "A", .rank = 0, .world = 2, .node = 2},
        {.engine = "A", .rank = 1, .world = 2, .node = 3},
        {.engine = "B", .rank = 0, .world = 1, .node = 3}};

    memset(&sim, 0, sizeof(sim));
    sim.rng = seed * 0x9e3779b97f4a7c15ull + 1;
    sim.now = SECOND;
    sim.c = sw_coordinator_new(&config);
    sim.faults = true;
    memcpy(sim.ranks, ranks, sizeof(ranks));
    for (uint32_t i = 0; i < RANKS; i++)
        push((struct event){.at = sim.now + chance(900) * MS, .kind = ENGINE_STARTS, .rank = i});
    for (uint32_t r = 0; r < HOSTS; r++)
        push((struct event){.at = sim.now + chance(900) * MS, .kind = TRAINER_STARTS, .rank = r});
    for (uint32_t n = 0; n < 2 * HOSTS; n++)
        connect_node(n);
    push((struct event){.at = sim.now + SECOND, .kind = FAULT});
}

/* Runs until nothing happens any more; then nobody waits. */
static void settle(int seed)
{
    uint32_t turns = 0;

    while (turn())
        ck_assert_msg(++turns < 200000, "seed %d: no end", seed);
    for (uint32_t r = 0; r < HOSTS; r++)
        ck_assert_msg(sim.trainers[r].doing == IDLE, "seed %d: trainer rank %u still waits (%d)",
            seed, r, (int)sim.trainers[r].doing);
    ck_assert_msg(sim.request == 0, "seed %d: a publish still waits", seed);
}

static uint64_t total_results, total_lives;

static void simulate(int seed)
{
    uint64_t quiet;

    start((uint64_t)seed + 1);
    while (sim.now < FAULTS_UNTIL + 10 * SECOND) {
        if (chance(4) == 0)
            next_round();
        if (!turn()) /* only the next fault was left, and its time is over */
            break;
    }
    sim.faults = false;
    settle(seed);
    quiet = sim.lives;
    for (uint32_t n = 0; n < 2 * HOSTS; n++)
        sim.now = sim.nodes[n].frozen > sim.now ? sim.nodes[n].frozen : sim.now;
    sim.outcome = 1;
    sim.version += 10; /* beyond what was begun and stored by a late disk */
    next_round();
    settle(seed);
    ck_assert_msg(sim.outcome == 0, "seed %d: the last version is not live: %d", seed, sim.outcome);
    ck_assert_uint_eq(sim.lives, quiet + 2);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_msg(sim.ranks[i].version == sim.version && sim.ranks[i].held == sim.version &&
                          sim.ranks[i].state == SW_RANK_SERVING,
            "seed %d: rank %u", seed, i);
    total_results += sim.results;
    total_lives += sim.lives;
    sw_coordinator_free(sim.c);
    free(sim.events);
}

START_TEST(nothing_waits_for_ever_and_nothing_wrong_gets_live)
{
    for (int seed = _i * 50; seed < (_i + 1) * 50; seed++)
        simulate(seed);
    /* the faults leave room for work */
    ck_assert_uint_gt(total_results, 400);
    ck_assert_uint_gt(total_lives, 400);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator simulation");
    TCase *tcase = tcase_create("simulation");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, nothing_waits_for_ever_and_nothing_wrong_gets_live, 0, 6);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
