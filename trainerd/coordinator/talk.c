/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/coordinator/talk.h"

#include <check.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define MAX_ARGS 12
#define OUT_SIZE (64u << 10)

bool talk_inside;

struct name { /* "t1" */
    char name[16];
    uint64_t member;
};

struct talk {
    struct sw_coordinator *c;
    uint64_t now, last_member;
    uint32_t n_names;
    struct name names[32];
    size_t used;
    char out[OUT_SIZE];
};

struct sw_id talk_process(unsigned number)
{
    struct sw_id id = {{0}};

    id.bytes[0] = 0xa0;
    memcpy(id.bytes + 1, &number, sizeof(number));
    return id;
}

static struct sw_id instance_of(const char *name)
{
    struct sw_id id = {{0}};

    snprintf((char *)id.bytes, sizeof(id.bytes), "#%s", name);
    return id;
}

static struct talk *start(uint64_t last_version, const struct sw_layouts *layouts)
{
    struct talk *t = calloc(1, sizeof(*t));
    const struct sw_coordinator_config config = {.group = "g",
        .instance = instance_of("coordinator"),
        .last_version = last_version,
        .tcp_connections = 4,
        .layouts = layouts,
        .begin_ns = 60000 * MS,
        .stage_ns = 600000 * MS,
        .connect_ns = 10000 * MS,
        .pause_ns = 61000 * MS,
        .window_ns = 5000 * MS,
        .write_ns = 62000 * MS,
        .post_ns = 120000 * MS,
        .activate_ns = 6000 * MS,
        .manifest_ns = 30000 * MS};

    t->now = 1000 * MS;
    t->c = sw_coordinator_new(&config);
    ck_assert_ptr_nonnull(t->c);
    return t;
}

struct talk *talk_new(uint64_t last_version)
{
    return start(last_version, NULL);
}

struct talk *talk_new_layouts(const struct sw_layouts *layouts)
{
    return start(0, layouts);
}

void talk_free(struct talk *t)
{
    sw_coordinator_free(t->c);
    free(t);
}

uint64_t talk_deadline(const struct talk *t)
{
    const uint64_t at = sw_coordinator_deadline(t->c);

    return at == UINT64_MAX ? at : at > t->now ? (at - t->now) / MS : 0;
}

char *talk_status(const struct talk *t)
{
    json_t *status = sw_coordinator_status(t->c, t->now);
    char *text = json_dumps(status, JSON_SORT_KEYS | JSON_COMPACT);

    json_decref(status);
    return text;
}

/* ---- what comes out ---- */

static void put(struct talk *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct talk *t, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is, one line above */
    length = vsnprintf(t->out + t->used, OUT_SIZE - t->used, format, args);
    va_end(args);
    t->used += (size_t)length;
    ck_assert_uint_lt(t->used, OUT_SIZE);
}

static const char *name_of(const struct talk *t, uint64_t member)
{
    for (uint32_t i = 0; i < t->n_names; i++)
        if (t->names[i].member == member)
            return t->names[i].name;
    return "?";
}

static void put_failure(struct talk *t, const struct sw_failure *f)
{
    if (f->code)
        put(t, " %s: %s", sw_code_name(f->code), f->reason);
}

static void put_phase(struct talk *t, const struct sw_phase_msg *p)
{
    put(t, "PHASE %s %s/%u u%llu", sw_phase_name(p->phase), p->engine, p->rank,
        (unsigned long long)p->update);
    if (p->phase == SW_PHASE_ARM)
        for (uint32_t i = 0; i < p->n; i++)
            put(t, " %sx%u", (const char *)p->writers[i].trainerd.bytes + 1,
                p->writers[i].connections);
    if (p->phase == SW_PHASE_OPEN)
        put(t, " %llu", (unsigned long long)p->expected_bytes);
    if (p->phase == SW_PHASE_ABORT)
        put(t, " %s", p->reason);
    else
        ck_assert_str_eq(p->reason, "");
}

static void put_result(struct talk *t, const struct sw_result *r)
{
    put(t, "RESULT %llu v%llu", (unsigned long long)r->request, (unsigned long long)r->version);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sw_engine_result *e = &r->engines[i];

        put(t, " [%s %s %s v%llu", e->engine, e->live ? "live" : "not", e->state,
            (unsigned long long)e->version);
        if (e->live && e->transport[0])
            put(t, " drain %llu pause %llu write %llu post %llu bytes %llu %s",
                (unsigned long long)(e->drain_ns / MS), (unsigned long long)(e->pause_ns / MS),
                (unsigned long long)(e->write_ns / MS), (unsigned long long)(e->post_ns / MS),
                (unsigned long long)e->bytes, e->transport);
        put(t, "%s%s]", e->reason[0] ? " " : "", e->reason);
    }
    put_failure(t, &r->error);
}

static void put_extents(struct talk *t, const struct sw_write_program *w)
{
    put(t, "WRITE_PROGRAM e%llu.%llu r%u t%u", (unsigned long long)w->layout_epoch,
        (unsigned long long)w->membership_epoch, w->rank, w->target);
    for (uint32_t i = 0; i < w->n; i++)
        put(t, " %llu>%llu+%llu", (unsigned long long)w->extents[i].src,
            (unsigned long long)w->extents[i].dst, (unsigned long long)w->extents[i].length);
}

static void put_targets(struct talk *t, const struct sw_targets *m)
{
    put(t, "TARGETS e%llu.%llu %u+%u/%u", (unsigned long long)m->layout_epoch,
        (unsigned long long)m->membership_epoch, m->first, m->n, m->total);
    for (uint32_t i = 0; i < m->n; i++)
        put(t, " %u=%s/%u@%s:%u", m->items[i].target, m->items[i].engine, m->items[i].engine_rank,
            m->items[i].address, m->items[i].data_port);
}

static void put_message(struct talk *t, const struct sw_msg *m)
{
    switch (m->kind) {
    case SW_MSG_SOURCES_DONE:
    case SW_MSG_BEGIN_DONE:
    case SW_MSG_END_DONE:
        put(t, "%s %u v%llu", sw_msg_kind_name(m->kind), m->u.rank_reply.rank,
            (unsigned long long)m->u.rank_reply.version);
        if (m->u.rank_reply.layout_epoch && m->kind == SW_MSG_BEGIN_DONE)
            put(t, " e%llu", (unsigned long long)m->u.rank_reply.layout_epoch);
        put_failure(t, &m->u.rank_reply.error);
        break;
    case SW_MSG_LOAD_PROGRAM:
        put(t, "LOAD_PROGRAM e%llu r%u tiles %u+%u/%u",
            (unsigned long long)m->u.load_program.layout_epoch, m->u.load_program.rank,
            m->u.load_program.first_tile, m->u.load_program.n_tiles, m->u.load_program.total_tiles);
        break;
    case SW_MSG_MAXIMA_PROGRAM:
        put(t, "MAXIMA_PROGRAM e%llu shares %u+%u/%u members %u+%u/%u",
            (unsigned long long)m->u.maxima_program.layout_epoch, m->u.maxima_program.first_share,
            m->u.maxima_program.n_shares, m->u.maxima_program.total_shares,
            m->u.maxima_program.first_member, m->u.maxima_program.n_members,
            m->u.maxima_program.total_members);
        break;
    case SW_MSG_ABORT:
        put(t, "ABORT %d v%llu %s", (int)m->u.abort.rank, (unsigned long long)m->u.abort.version,
            m->u.abort.reason);
        break;
    case SW_MSG_TARGETS:
        put_targets(t, &m->u.targets);
        break;
    case SW_MSG_WRITE_PROGRAM:
        put_extents(t, &m->u.write_program);
        break;
    case SW_MSG_PHASE:
        put_phase(t, &m->u.phase);
        break;
    case SW_MSG_CONNECT:
        put(t, "CONNECT u%llu t%u tokens %u", (unsigned long long)m->u.connect.update,
            m->u.connect.target, m->u.connect.n);
        break;
    case SW_MSG_WRITE:
        put(t, "WRITE u%llu t%u w%d", (unsigned long long)m->u.write.update, m->u.write.target,
            m->u.write.window.bytes[1]);
        break;
    case SW_MSG_UPDATE_END:
        put(t, "UPDATE_END u%llu t%u", (unsigned long long)m->u.update_end.update,
            m->u.update_end.target);
        break;
    case SW_MSG_RESULT:
        put_result(t, &m->u.result);
        break;
    default:
        put(t, "%s", sw_msg_kind_name(m->kind));
    }
}

static void drain(struct talk *t)
{
    struct sw_coordinator_action a;

    for (;;) {
        bool more;

        talk_inside = true;
        more = sw_coordinator_next(t->c, &a);
        talk_inside = false;
        if (!more)
            break;
        switch (a.kind) {
        case SW_COORD_SEND:
            put(t, "%s ", name_of(t, a.member));
            put_message(t, a.message);
            put(t, "\n");
            sw_msg_free(a.message);
            break;
        case SW_COORD_CLOSE:
            put(t, "close %s: %s\n", name_of(t, a.member), a.text);
            break;
        case SW_COORD_PERSIST:
            put(t, "persist %llu\n", (unsigned long long)a.version);
            break;
        case SW_COORD_LOG:
            if (a.level <= 4)
                put(t, "log %d %s\n", a.level, a.text);
            break;
        }
    }
}

/* ---- what comes in ---- */

static void event(struct talk *t, struct sw_coordinator_event e)
{
    talk_inside = true;
    sw_coordinator_handle(t->c, &e, t->now);
    talk_inside = false;
    drain(t);
}

static uint64_t member(const struct talk *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_names; i++)
        if (!strcmp(t->names[i].name, name))
            return t->names[i].member;
    ck_abort_msg("no member %s", name);
    return 0;
}

static void say(struct talk *t, const char *who, struct sw_msg *m)
{
    event(t, (struct sw_coordinator_event){
                 .kind = SW_COORD_MESSAGE, .member = member(t, who), .message = m});
}

static const char *text(struct sw_msg *m, const char *s)
{
    return sw_arena_strdup(&m->arena, s);
}

static unsigned long long number(const char *s)
{
    return strtoull(s, NULL, 0);
}

static void fill_error(struct sw_msg *m, struct sw_failure *f, const char *s)
{
    f->code = s[0] ? SW_ERR_IO : 0;
    f->reason = text(m, s);
}

static void up(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_MEMBER);
    uint32_t i = 0;

    while (i < t->n_names && strcmp(t->names[i].name, a[1]) != 0)
        i++;
    if (i == t->n_names)
        t->n_names++;
    snprintf(t->names[i].name, sizeof(t->names[i].name), "%s", a[1]);
    t->names[i].member = ++t->last_member;
    event(t, (struct sw_coordinator_event){.kind = SW_COORD_MEMBER_UP,
                 .member = t->last_member,
                 .role = a[1][0] == 't' ? SW_ROLE_TRAINERD : SW_ROLE_INFERD,
                 .instance = instance_of(a[1]),
                 .name = a[1],
                 .address = "10.0.0.9"});
    if (a[2][0]) {
        sw_msg_free(m);
        return;
    }
    m->u.member = (struct sw_member){.name = text(m, a[1]),
        .advertise = text(m, strcmp(a[1], "i2") ? "" : "10.9.9.2"),
        .data_port = 7472,
        .unix_path = text(m, "/run/i.sock")};
    say(t, a[1], m);
}

static uint32_t split(char *list, char **items, uint32_t max)
{
    uint32_t n = 0;
    char *save = NULL;

    for (char *s = strtok_r(list, ",", &save); s && n < max; s = strtok_r(NULL, ",", &save))
        items[n++] = s;
    return n;
}

static void sources(struct talk *t, char **a, bool part)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_SOURCES);
    struct sw_sources *s = &m->u.sources;
    char *list = part ? a[6] : a[4], *process = part ? a[12] : a[5], *items[16] = {NULL};

    s->rank = (uint32_t)number(a[2]);
    s->world = (uint32_t)number(a[3]);
    s->trainer = talk_process(process[0] ? (unsigned)number(process) : 10 + s->rank);
    s->n = split(list, items, 16);
    s->first = part ? (uint32_t)number(a[4]) : 0;
    s->total = part ? (uint32_t)number(a[5]) : s->n;
    s->items = sw_arena_array(&m->arena, s->n, sizeof(*s->items));
    for (uint32_t i = 0; i < s->n && items[i]; i++) {
        char *colon = strchr(items[i], ':');

        *colon = '\0';
        s->items[i] = (struct sw_source){.name = text(m, items[i]),
            .dtype = SW_U8,
            .ndim = 1,
            .shape = {number(colon + 1)},
            .box = {.ndim = 1, .len = {number(colon + 1)}}};
    }
    say(t, a[1], m);
}

/* "a:8,b:4,c=a": in order, without gaps; c is an alias of a */
static void parameters(struct talk *t, char **a, char *list)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PARAMETERS);
    struct sw_parameters *p = &m->u.parameters;
    char *items[16] = {NULL};
    uint64_t at = 0;

    p->engine = text(m, a[2]);
    p->rank = (uint32_t)number(a[3]);
    p->instance = talk_process((unsigned)number(a[5]));
    p->n = p->total = split(list, items, 16);
    p->items = sw_arena_array(&m->arena, p->n, sizeof(*p->items));
    for (uint32_t i = 0; i < p->n && items[i]; i++) {
        char *mark = strpbrk(items[i], ":=");
        const bool alias = *mark == '=';

        *mark = '\0';
        p->items[i] = (struct sw_parameter){
            .name = text(m, items[i]), .dtype = SW_U8, .ndim = 1, .offset = at};
        if (!alias) {
            p->items[i].shape[0] = number(mark + 1);
            at += number(mark + 1);
            continue;
        }
        p->items[i].alias_of = text(m, mark + 1);
        for (uint32_t j = 0; j < i; j++)
            if (!strcmp(p->items[j].name, mark + 1)) {
                p->items[i].shape[0] = p->items[j].shape[0];
                p->items[i].offset = p->items[j].offset;
            }
    }
    say(t, a[1], m);
}

static void engine(struct talk *t, char **a, bool half)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ENGINE_RANK);
    struct sw_engine_rank *r = &m->u.engine_rank;
    char *items[16] = {NULL}, *list = half ? NULL : strdup(a[6]);

    r->engine = text(m, a[2]);
    r->rank = (uint32_t)number(a[3]);
    r->world = (uint32_t)number(a[4]);
    r->instance = talk_process((unsigned)number(a[5]));
    r->pid = (uint32_t)number(a[5]);
    r->scale_format = text(m, "");
    r->n_parameters = half ? 2 : split(a[6], items, 16);
    r->n_regions = 1;
    r->region_bytes = sw_arena_array(&m->arena, 1, sizeof(*r->region_bytes));
    r->region_bytes[0] = 1000;
    r->version = half ? 0 : number(a[7]);
    r->torn = !half && a[8][0];
    say(t, a[1], m);
    if (!half)
        parameters(t, a, list);
    free(list);
}

static void begin(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_BEGIN);

    m->u.begin.rank = (uint32_t)number(a[2]);
    m->u.begin.version = number(a[3]);
    m->u.begin.base = number(a[4]);
    say(t, a[1], m);
}

static void end(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_END);
    char *items[16] = {NULL}, *rest;

    m->u.end.rank = (uint32_t)number(a[2]);
    m->u.end.version = number(a[3]);
    m->u.end.bytes = number(a[4]);
    m->u.end.stage_ns = 7 * MS;
    if (a[5][0]) {
        m->u.end.n = split(a[5], items, 16);
        m->u.end.digests = sw_arena_array(&m->arena, m->u.end.n, sizeof(*m->u.end.digests));
        for (uint32_t i = 0; i < m->u.end.n && items[i]; i++) {
            const uint32_t set = (uint32_t)strtoul(items[i], &rest, 0);
            const uint32_t source = (uint32_t)strtoul(rest + 1, &rest, 0);

            m->u.end.digests[i] = (struct sw_digest){set, source, strtoull(rest + 1, NULL, 0), 1};
        }
    }
    say(t, a[1], m);
}

static void publish(struct talk *t, char **a, bool wait_only)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PUBLISH);

    m->u.publish.request = number(a[2]);
    m->u.publish.version = number(a[3]);
    m->u.publish.wait_only = wait_only;
    say(t, a[1], m);
}

static void abort_version(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ABORT);

    m->u.abort.rank = (uint32_t)number(a[2]);
    m->u.abort.version = number(a[3]);
    m->u.abort.reason = text(m, "had enough");
    say(t, a[1], m);
}

static void phase(struct talk *t, char **a)
{
    static const enum sw_rank_state after[] = {[SW_PHASE_ARM] = SW_RANK_SERVING,
        [SW_PHASE_PAUSE] = SW_RANK_PAUSED,
        [SW_PHASE_PREPARE] = SW_RANK_PAUSED,
        [SW_PHASE_OPEN] = SW_RANK_OPEN,
        [SW_PHASE_CLOSE] = SW_RANK_CLOSED,
        [SW_PHASE_POST] = SW_RANK_CLOSED,
        [SW_PHASE_ACTIVATE] = SW_RANK_ACTIVE,
        [SW_PHASE_RESUME] = SW_RANK_SERVING,
        [SW_PHASE_ABORT] = SW_RANK_SERVING};
    struct sw_msg *m = sw_msg_new(SW_MSG_PHASE_DONE);
    struct sw_phase_done *p = &m->u.phase_done;
    int k = SW_PHASE_ARM;

    while (k <= SW_PHASE_ABORT && strcmp(sw_phase_name((enum sw_phase)k), a[2]) != 0)
        k++;
    ck_assert_msg(k <= SW_PHASE_ABORT, "no phase %s", a[2]);
    p->phase = (enum sw_phase)k;
    p->engine = text(m, a[3]);
    p->rank = (uint32_t)number(a[4]);
    p->instance = talk_process((unsigned)number(a[5]));
    p->update = number(a[6]);
    p->state = after[k];
    if (!strcmp(a[7], "torn"))
        p->state = SW_RANK_TORN;
    if (a[7][0] >= '0' && a[7][0] <= '9')
        p->bytes = number(a[7]);
    fill_error(m, &p->error, strncmp(a[7], "err", 3) ? "" : a[7]);
    if (k == SW_PHASE_OPEN)
        p->window = talk_process(p->rank + 1);
    if (k == SW_PHASE_ARM) {
        p->n = 1;
        p->issued = sw_arena_array(&m->arena, 1, sizeof(*p->issued));
        p->issued[0] = (struct sw_issued){.trainerd = instance_of("t1"), .n = 3};
        p->issued[0].tokens = sw_arena_array(&m->arena, 3, sizeof(*p->issued[0].tokens));
    }
    say(t, a[1], m);
}

static void state(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_RANK_STATE);
    int k = SW_RANK_SERVING;

    while (k <= SW_RANK_GONE && strcmp(sw_rank_state_name((enum sw_rank_state)k), a[5]) != 0)
        k++;
    ck_assert_msg(k <= SW_RANK_GONE, "no state %s", a[5]);
    m->u.rank_state = (struct sw_rank_state_msg){.engine = text(m, a[2]),
        .rank = (uint32_t)number(a[3]),
        .instance = talk_process((unsigned)number(a[4])),
        .state = (enum sw_rank_state)k,
        .version = number(a[6]),
        .reason = text(m, a[7])};
    say(t, a[1], m);
}

static void from_writer(struct talk *t, char **a, bool written)
{
    struct sw_msg *m = sw_msg_new(written ? SW_MSG_WRITTEN : SW_MSG_CONNECTED);

    if (written) {
        m->u.written = (struct sw_written){
            .update = number(a[2]), .target = (uint32_t)number(a[3]), .bytes = number(a[4])};
        fill_error(m, &m->u.written.error, a[5]);
    } else {
        m->u.connected = (struct sw_connected){.update = number(a[2]),
            .target = (uint32_t)number(a[3]),
            .transport = text(m, "tcp"),
            .why = text(m, "another host")};
        fill_error(m, &m->u.connected.error, a[4]);
    }
    say(t, a[1], m);
}

static void open_rank(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_TRAINER_OPEN);
    const unsigned rank = (unsigned)number(a[2]);
    const unsigned process = a[4][0] ? (unsigned)number(a[4]) : 10 + rank;

    m->u.trainer_open = (struct sw_trainer_open){.rank = rank,
        .world = (uint32_t)number(a[3]),
        .pid = process,
        .trainer = talk_process(process)};
    say(t, a[1], m);
}

static void gone(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_RANK_GONE);
    const unsigned rank = (unsigned)number(a[2]);

    m->u.rank_gone = (struct sw_rank_gone){.rank = rank,
        .trainer = talk_process(a[3][0] ? (unsigned)number(a[3]) : 10 + rank),
        .reason = text(m, "killed")};
    say(t, a[1], m);
}

static void plan(struct talk *t, char **a)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_PLAN_DONE);

    m->u.plan_done.layout_epoch = number(a[2]);
    fill_error(m, &m->u.plan_done.error, a[3]);
    say(t, a[1], m);
}

static void raw(struct talk *t, char **a)
{
    int k = SW_MSG_HELLO;

    while (k < SW_MSG_KIND_COUNT && strcmp(sw_msg_kind_name((enum sw_msg_kind)k), a[2]) != 0)
        k++;
    ck_assert_msg(k < SW_MSG_KIND_COUNT, "no kind %s", a[2]);
    say(t, a[1], sw_msg_new((enum sw_msg_kind)k));
}

static void dispatch(struct talk *t, char **a)
{
    const char *verb = a[0];

    if (!strcmp(verb, "up"))
        up(t, a);
    else if (!strcmp(verb, "down"))
        event(t, (struct sw_coordinator_event){
                     .kind = SW_COORD_MEMBER_DOWN, .member = member(t, a[1]), .text = a[2]});
    else if (!strcmp(verb, "time")) {
        t->now += number(a[1]) * MS;
        event(t, (struct sw_coordinator_event){.kind = SW_COORD_TICK});
    } else if (!strcmp(verb, "open"))
        open_rank(t, a);
    else if (!strcmp(verb, "sources") || !strcmp(verb, "part"))
        sources(t, a, verb[0] == 'p');
    else if (!strcmp(verb, "gone"))
        gone(t, a);
    else if (!strcmp(verb, "engine") || !strcmp(verb, "half"))
        engine(t, a, verb[0] == 'h');
    else if (!strcmp(verb, "begin"))
        begin(t, a);
    else if (!strcmp(verb, "plan"))
        plan(t, a);
    else if (!strcmp(verb, "persisted"))
        event(t, (struct sw_coordinator_event){.kind = SW_COORD_PERSISTED,
                     .version = number(a[1]),
                     .code = a[2][0] ? SW_ERR_IO : 0,
                     .text = a[2]});
    else if (!strcmp(verb, "end"))
        end(t, a);
    else if (!strcmp(verb, "abort"))
        abort_version(t, a);
    else if (!strcmp(verb, "publish") || !strcmp(verb, "wait"))
        publish(t, a, verb[0] == 'w');
    else if (!strcmp(verb, "phase"))
        phase(t, a);
    else if (!strcmp(verb, "state"))
        state(t, a);
    else if (!strcmp(verb, "connected") || !strcmp(verb, "written"))
        from_writer(t, a, verb[0] == 'w');
    else if (!strcmp(verb, "raw"))
        raw(t, a);
    else
        ck_abort_msg("no verb %s", verb);
}

const char *talk_say(struct talk *t, const char *in)
{
    char *line = strdup(in), *save = NULL, none[1] = "", *args[MAX_ARGS + 1];
    int n = 0;

    t->used = 0;
    t->out[0] = '\0';
    for (int i = 0; i <= MAX_ARGS; i++)
        args[i] = none;
    for (char *s = strtok_r(line, " ", &save); s && n < MAX_ARGS; s = strtok_r(NULL, " ", &save))
        args[n++] = s;
    dispatch(t, args);
    free(line);
    return t->out;
}

const char *talk_message(struct talk *t, const char *who, struct sw_msg *m)
{
    t->used = 0;
    t->out[0] = '\0';
    say(t, who, m);
    return t->out;
}

/* Both as lines; each must match its pattern. */
static bool matches(const char *pattern, const char *got)
{
    char *p = strdup(pattern), *g = strdup(got), *ps = NULL, *gs = NULL;
    const char *x = strtok_r(p, "\n", &ps), *y = strtok_r(g, "\n", &gs);
    bool same = true;

    while (x && y && same) {
        char plain[4096]; /* only '*' is special */
        size_t n = 0;

        for (const char *s = x; *s && n + 2 < sizeof(plain); s++) {
            if (strchr("[]?\\", *s))
                plain[n++] = '\\';
            plain[n++] = *s;
        }
        plain[n] = '\0';
        same = fnmatch(plain, y, 0) == 0;
        x = strtok_r(NULL, "\n", &ps);
        y = strtok_r(NULL, "\n", &gs);
    }
    same = same && !x && !y;
    free(p);
    free(g);
    return same;
}

void talk_steps(struct talk *t, const struct step *steps)
{
    for (int i = 0; steps[i].in; i++) {
        const char *got = talk_say(t, steps[i].in);
        const char *want = steps[i].out ? steps[i].out : "";

        ck_assert_msg(matches(want, got), "step %d: %s\n-- expected:\n%s\n-- got:\n%s", i,
            steps[i].in, want, got);
    }
}
