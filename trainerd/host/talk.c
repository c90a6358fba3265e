/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/host/talk.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t *counters(uint32_t rank, uint32_t buffer, void *arg)
{
    struct talk *t = arg;

    return t->missing[rank][buffer] ? NULL : t->counters[rank][buffer];
}

static bool busy(uint32_t rank, uint32_t buffer, void *arg)
{
    struct talk *t = arg;

    return t->busy[rank][buffer];
}

void talk_start(struct talk *t)
{
    struct sw_host_config config = {.name = "host",
        .advertise = "",
        .drain_ns = 5000 * 1000000ull,
        .manifest_ns = 30000 * 1000000ull,
        .counters = counters,
        .busy = busy,
        .arg = t};

    memset(t, 0, sizeof(*t));
    t->host = sw_host_new(&config);
    ck_assert_ptr_nonnull(t->host);
}

void talk_end(struct talk *t)
{
    sw_host_free(t->host);
}

/* ---- actions as text ---- */

static void put(struct talk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct talk *t, const char *format, ...)
{
    const size_t used = strlen(t->actions);
    va_list args;

    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is, one line above */
    vsnprintf(t->actions + used, sizeof(t->actions) - used, format, args);
    va_end(args);
}

static void put_failure(struct talk *t, const struct sw_failure *f)
{
    if (!f->code)
        return;
    put(t, " !%s", sw_code_name(f->code));
    snprintf(t->text, sizeof(t->text), "%s", f->reason ? f->reason : "");
}

static void put_message(struct talk *t, const struct sw_msg *m)
{
    put(t, "%s", sw_msg_kind_name(m->kind));
    switch (m->kind) {
    case SW_MSG_SOURCES_DONE:
    case SW_MSG_BEGIN_DONE:
    case SW_MSG_END_DONE:
    case SW_MSG_MAXIMA_DONE:
        put(t, " %u", m->u.rank_reply.rank);
        if (m->u.rank_reply.version)
            put(t, " v%llu", (unsigned long long)m->u.rank_reply.version);
        if (m->kind == SW_MSG_BEGIN_DONE && !m->u.rank_reply.error.code)
            put(t, " b%u", m->u.rank_reply.buffer);
        put_failure(t, &m->u.rank_reply.error);
        break;
    case SW_MSG_TRAINER_OPEN:
        put(t, " %u/%u", m->u.trainer_open.rank, m->u.trainer_open.world);
        break;
    case SW_MSG_SOURCES:
        put(t, " %u %u+%u", m->u.sources.rank, m->u.sources.first, m->u.sources.n);
        break;
    case SW_MSG_BEGIN:
        put(t, " %u v%llu", m->u.begin.rank, (unsigned long long)m->u.begin.version);
        break;
    case SW_MSG_END:
        put(t, " %u v%llu %llu", m->u.end.rank, (unsigned long long)m->u.end.version,
            (unsigned long long)m->u.end.bytes);
        break;
    case SW_MSG_ABORT:
        put(t, " %u v%llu", m->u.abort.rank, (unsigned long long)m->u.abort.version);
        snprintf(t->text, sizeof(t->text), "%s", m->u.abort.reason);
        break;
    case SW_MSG_BUFFER:
        put(t, " b%u g%llu", m->u.buffer.index, (unsigned long long)m->u.buffer.generation);
        break;
    case SW_MSG_PLAN_DONE:
        put(t, " e%llu", (unsigned long long)m->u.plan_done.layout_epoch);
        put_failure(t, &m->u.plan_done.error);
        break;
    case SW_MSG_RANK_GONE:
        put(t, " %u", m->u.rank_gone.rank);
        break;
    case SW_MSG_PUBLISH:
        put(t, " q%llu v%llu", (unsigned long long)m->u.publish.request,
            (unsigned long long)m->u.publish.version);
        break;
    case SW_MSG_RESULT:
        put(t, " q%llu", (unsigned long long)m->u.result.request);
        put_failure(t, &m->u.result.error);
        break;
    case SW_MSG_ERROR:
        put_failure(t, &m->u.error);
        break;
    default:
        break;
    }
}

static void put_action(struct talk *t, const struct sw_host_action *a)
{
    if (a->kind == SW_HOST_LOG) {
        t->logs++;
        return;
    }
    if (t->actions[0])
        put(t, "; ");
    switch (a->kind) {
    case SW_HOST_TO_SESSION:
        put(t, "s%llu<", (unsigned long long)a->session);
        put_message(t, a->message);
        break;
    case SW_HOST_TO_COORDINATOR:
        put(t, "c<");
        put_message(t, a->message);
        break;
    case SW_HOST_TO_WRITER:
        put(t, "w<");
        put_message(t, a->message);
        break;
    case SW_HOST_DROP_SESSION:
        put(t, "drop %llu", (unsigned long long)a->session);
        snprintf(t->text, sizeof(t->text), "%s", a->text);
        break;
    case SW_HOST_ALLOCATE:
        put(t, "alloc %u.%u g%llu %llu%s", a->rank, a->buffer, (unsigned long long)a->generation,
            (unsigned long long)a->bytes, a->copy ? " copy" : "");
        if (a->maxima_bytes)
            put(t, " maxima %llu", (unsigned long long)a->maxima_bytes);
        break;
    case SW_HOST_RESET:
        put(t, "reset %u.%u", a->rank, a->buffer);
        memset(t->counters[a->rank][a->buffer], 0, sizeof(t->counters[0][0]));
        break;
    case SW_HOST_REDUCE:
        put(t, "reduce g%llu", (unsigned long long)a->generation);
        for (uint32_t r = 0; r < sw_shares_ranks(a->shares); r++)
            put(t, " %u.%d", r, sw_host_maxima_buffer(t->host, r));
        break;
    case SW_HOST_RELEASE:
        put(t, "release %u", a->rank);
        break;
    case SW_HOST_LOG:
        break;
    }
}

/* ---- events ---- */

/* NOLINTBEGIN(cert-err34-c): the lines are the tests' own */

static void give(struct talk *t, const struct sw_host_event *ev)
{
    struct sw_host_action a;

    t->actions[0] = '\0';
    sw_host_handle(t->host, ev, t->now);
    while (sw_host_next(t->host, &a)) {
        if (t->look)
            t->look(&a, t->arg);
        put_action(t, &a);
        sw_msg_free(a.message);
        sw_shares_release(a.shares);
    }
}

void talk_message(struct talk *t, uint64_t session, struct sw_msg *msg)
{
    struct sw_host_event ev = {
        .kind = session ? SW_HOST_SESSION_MESSAGE : SW_HOST_COORDINATOR_MESSAGE,
        .session = session,
        .message = msg};

    give(t, &ev);
}

struct sw_msg *talk_sources(uint32_t first, uint32_t n, uint32_t total)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_SOURCES);

    m->u.sources.first = first;
    m->u.sources.total = total;
    m->u.sources.n = n;
    m->u.sources.items = sw_arena_array(&m->arena, n, sizeof(struct sw_source));
    for (uint32_t i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t%u", first + i);
        m->u.sources.items[i].name = sw_arena_strdup(&m->arena, name);
    }
    return m;
}

struct sw_msg *talk_maxima(uint64_t epoch, uint32_t ranks, uint64_t count)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_MAXIMA_PROGRAM);
    struct sw_maxima_program *p = &m->u.maxima_program;

    p->layout_epoch = epoch;
    p->total_shares = p->n_shares = 1;
    p->total_members = p->n_members = ranks;
    p->shares = sw_arena_array(&m->arena, 1, sizeof(*p->shares));
    p->members = sw_arena_array(&m->arena, ranks, sizeof(*p->members));
    p->shares[0] = (struct sw_share){.count = count, .n_members = ranks};
    for (uint32_t i = 0; i < ranks; i++)
        p->members[i].rank = i;
    return m;
}

struct sw_msg *talk_program(uint32_t rank, uint64_t epoch, uint64_t replica_bytes)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_LOAD_PROGRAM);
    struct sw_load_program *p = &m->u.load_program;

    p->rank = rank;
    p->layout_epoch = epoch;
    p->replica_bytes = replica_bytes;
    p->total_tiles = p->total_loads = p->n_tiles = p->n_loads = TALK_TILES;
    p->tiles = sw_arena_array(&m->arena, TALK_TILES, sizeof(struct sw_tile));
    p->loads = sw_arena_array(&m->arena, TALK_TILES, sizeof(struct sw_load));
    for (uint32_t i = 0; i < TALK_TILES; i++) {
        p->tiles[i] = (struct sw_tile){.offset = i * 256, .bytes = 100 + i};
        p->loads[i] = (struct sw_load){.source = i, .tile = i};
    }
    return m;
}

/* NOLINTBEGIN(cert-err34-c): the numbers are those of the tests' own tables, and what does not
 * match is counted or zero */
static struct sw_msg *coordinator_message(const char *what, const char *rest)
{
    unsigned rank = 0;
    unsigned long long version = 0, epoch = 0;
    const bool bad = strchr(rest, '!') != NULL;
    const struct sw_failure error = {
        bad ? (strstr(rest, "!state") ? SW_ERR_STATE : SW_ERR_ABORTED) : 0, "because"};
    static const struct {
        const char *name;
        enum sw_msg_kind kind;
    } kinds[] = {{"sources_done", SW_MSG_SOURCES_DONE}, {"begin_done", SW_MSG_BEGIN_DONE},
        {"end_done", SW_MSG_END_DONE}, {"abort", SW_MSG_ABORT}, {"connect", SW_MSG_CONNECT},
        {"result", SW_MSG_RESULT}, {"write", SW_MSG_WRITE}, {"targets", SW_MSG_TARGETS},
        {"write_program", SW_MSG_WRITE_PROGRAM}, {"update_end", SW_MSG_UPDATE_END},
        {"member", SW_MSG_MEMBER}};
    struct sw_msg *m = NULL;

    if (!strcmp(what, "program")) {
        unsigned long long bytes = 8192, maxima = 0;

        ck_assert_int_ge(sscanf(rest, "%u e%llu %llu m%llu", &rank, &epoch, &bytes, &maxima), 2);
        m = talk_program(rank, epoch, bytes);
        m->u.load_program.n_maxima = maxima;
        return m;
    }
    if (!strcmp(what, "maxima")) {
        unsigned long long count = 10;

        ck_assert_int_ge(sscanf(rest, "%u e%llu %llu", &rank, &epoch, &count), 2);
        return talk_maxima(epoch, rank, count);
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (!strcmp(what, kinds[i].name))
            m = sw_msg_new(kinds[i].kind);
    ck_assert_msg(m != NULL, "unknown: %s", what);
    sscanf(rest, "%u v%llu e%llu", &rank, &version, &epoch);
    switch (m->kind) {
    case SW_MSG_ABORT:
        m->u.abort = (struct sw_abort){rank == 99 ? UINT32_MAX : rank, version, "because"};
        break;
    case SW_MSG_CONNECT:
        m->u.connect.version = version;
        m->u.connect.layout_epoch = epoch;
        break;
    case SW_MSG_RESULT:
        m->u.result.request = rank;
        m->u.result.error = error;
        break;
    case SW_MSG_SOURCES_DONE:
    case SW_MSG_BEGIN_DONE:
    case SW_MSG_END_DONE:
        m->u.rank_reply = (struct sw_rank_reply){
            .rank = rank, .version = version, .layout_epoch = epoch, .error = error};
        break;
    default:
        break;
    }
    return m;
}

static struct sw_msg *session_message(const char *what, const char *rest)
{
    unsigned a = 0, b = 0, c = 0;
    unsigned long long version = strtoull(rest, NULL, 10);
    struct sw_msg *m = NULL;

    if (!strcmp(what, "open")) {
        ck_assert_int_eq(sscanf(rest, "%u/%u", &a, &b), 2);
        m = sw_msg_new(SW_MSG_TRAINER_OPEN);
        m->u.trainer_open.rank = a;
        m->u.trainer_open.world = b;
    } else if (!strcmp(what, "sources")) {
        ck_assert_int_eq(sscanf(rest, "%u+%u/%u", &a, &b, &c), 3);
        m = talk_sources(a, b, c);
    } else if (!strcmp(what, "begin")) {
        m = sw_msg_new(SW_MSG_BEGIN);
        m->u.begin.version = version;
    } else if (!strcmp(what, "end")) {
        m = sw_msg_new(SW_MSG_END);
        m->u.end.version = version;
    } else if (!strcmp(what, "maxima")) {
        m = sw_msg_new(SW_MSG_MAXIMA);
        m->u.maxima.version = version;
    } else if (!strcmp(what, "abort")) {
        m = sw_msg_new(SW_MSG_ABORT);
        m->u.abort = (struct sw_abort){.version = version, .reason = "enough"};
    } else if (!strcmp(what, "publish")) {
        ck_assert_int_eq(sscanf(rest, " q%u v%u", &a, &b), 2);
        m = sw_msg_new(SW_MSG_PUBLISH);
        m->u.publish.request = a;
        m->u.publish.version = b;
    } else if (!strcmp(what, "phase")) {
        m = sw_msg_new(SW_MSG_PHASE);
    }
    ck_assert_msg(m != NULL, "unknown: %s", what);
    return m;
}

static void set_buffer(struct talk *t, const char *what, const char *rest)
{
    unsigned r = 0, b = 0, x = 0, y = 0;
    unsigned long long generation = 0;
    struct sw_host_event ev = {.kind = SW_HOST_ALLOCATED};

    t->actions[0] = '\0';
    if (!strcmp(what, "busy") && sscanf(rest, "%u.%u %u", &r, &b, &x) == 3) {
        t->busy[r][b] = x != 0;
    } else if (!strcmp(what, "gone") && sscanf(rest, "%u.%u %u", &r, &b, &x) == 3) {
        t->missing[r][b] = x != 0;
    } else if (!strcmp(what, "count") && sscanf(rest, "%u.%u %u %u", &r, &b, &x, &y) == 4) {
        t->counters[r][b][x] = y;
    } else if (!strcmp(what, "full") && sscanf(rest, "%u.%u", &r, &b) == 2) {
        for (uint32_t i = 0; i < TALK_TILES; i++)
            t->counters[r][b][i] = 100 + i;
    } else {
        ck_assert_msg(sscanf(rest, "%u.%u g%llu", &r, &b, &generation) == 3, "unknown: %s", what);
        ev.rank = r;
        ev.buffer = b;
        ev.generation = generation;
        ev.code = strcmp(what, "done") ? SW_ERR_NOMEM : 0;
        ev.text = ev.code ? "no memory for it" : NULL;
        t->busy[r][b] = ev.code ? t->busy[r][b] : false;
        give(t, &ev);
    }
}

static struct sw_host_event session_event(const char *what, unsigned session)
{
    struct sw_host_event ev = {.session = session, .pid = 1000 + session};

    ev.instance.bytes[0] = (uint8_t)session;
    ev.role = strcmp(what, "client") ? SW_ROLE_TRAINER : SW_ROLE_CLIENT;
    ev.kind = !strcmp(what, "down")   ? SW_HOST_SESSION_DOWN
              : !strcmp(what, "died") ? SW_HOST_PROCESS_DIED
                                      : SW_HOST_SESSION_UP;
    return ev;
}

void talk_say(struct talk *t, const char *event)
{
    struct sw_host_event ev = {.kind = SW_HOST_TICK};
    char first[32] = "", second[32] = "";
    const char *rest;
    unsigned n = 0;
    int used = 0;

    sscanf(event, "%31s %31s%n", first, second, &used);
    rest = event + used;
    sscanf(event, "%*s %u", &n);
    if (first[0] >= '0' && first[0] <= '9') {
        talk_message(t, strtoull(first, NULL, 10), session_message(second, rest));
    } else if (!strcmp(first, "co") && (!strcmp(second, "up") || !strcmp(second, "down"))) {
        ev.kind = strcmp(second, "up") ? SW_HOST_COORDINATOR_DOWN : SW_HOST_COORDINATOR_UP;
        give(t, &ev);
    } else if (!strcmp(first, "co")) {
        talk_message(t, 0, coordinator_message(second, rest));
    } else if (!strcmp(first, "reduced")) {
        ev.kind = SW_HOST_REDUCED;
        ev.generation = strtoull(second + 1, NULL, 10);
        ev.code = strchr(rest, '!') ? SW_ERR_NOMEM : 0;
        ev.text = ev.code ? "no memory for it" : NULL;
        give(t, &ev);
    } else if (!strcmp(first, "time")) {
        t->now += n * 1000000ull;
        give(t, &ev);
    } else if (strchr(second, '.')) {
        set_buffer(t, first, event + strlen(first));
    } else {
        ev = session_event(first, n);
        give(t, &ev);
    }
}
/* NOLINTEND(cert-err34-c) */

/* NOLINTEND(cert-err34-c) */

void talk_run(struct talk *t, const struct talk_step *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        talk_say(t, steps[i].event);
        ck_assert_msg(!strcmp(t->actions, steps[i].actions),
            "step %zu \"%s\":\n  expected: %s\n  got:      %s\n  (%s)", i, steps[i].event,
            steps[i].actions, t->actions, t->text);
    }
}
