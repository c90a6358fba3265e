/* SPDX-License-Identifier: Apache-2.0 */
/* Events in, actions out: the frame of the machine. What happens is in the files of the nouns. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

struct action {
    struct action *next;
    enum sw_coordinator_action_kind kind;
    uint64_t member, version;
    struct sw_msg *message;
    int level;
    char text[];
};

struct sw_coordinator *sw_coordinator_new(const struct sw_coordinator_config *config)
{
    struct sw_coordinator *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->config = *config;
    c->group = strdup(config->group);
    c->models = sw_models_new(config->layouts);
    if (!c->group || !c->models) {
        sw_models_free(c->models);
        free(c->group);
        free(c);
        return NULL;
    }
    c->config.group = c->group;
    c->last_version = config->last_version;
    return c;
}

void sw_coordinator_free(struct sw_coordinator *c)
{
    struct sw_coordinator_action action;

    if (!c)
        return;
    while (c->first && sw_coordinator_next(c, &action))
        sw_msg_free(action.message);
    sw_coord_update_free(c->begin);
    sw_coord_update_free(c->staged);
    sw_coord_update_free(c->publishing);
    for (uint32_t i = 0; i < c->n_history; i++)
        sw_coord_update_free(c->history[i]);
    free(c->waiters);
    sw_coord_epoch_free(c);
    sw_coord_engines_free(c);
    sw_coord_trainers_free(c);
    sw_coord_members_free(c);
    sw_models_free(c->models);
    free(c->group);
    free(c);
}

/* ---- small things ---- */

int sw_coord_grow(void *array, uint32_t *size, uint32_t n, size_t element)
{
    void **p = array;
    void *larger;

    if (n < *size)
        return 0;
    larger = realloc(*p, ((size_t)*size * 2 + 8) * element);
    if (!larger)
        return -1;
    *p = larger;
    *size = *size * 2 + 8;
    return 0;
}

void sw_coord_set_text(char **text, const char *to)
{
    char *copy = to ? strdup(to) : NULL;

    free(*text);
    *text = copy;
}

double sw_coord_seconds(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) / 1e9 : 0.0;
}

void sw_coord_list_add(struct name_list *l, const char *format, ...)
{
    va_list args;
    int length;

    if (l->n++ >= 4 || l->used + 64 >= l->size) {
        l->hidden++;
        return;
    }
    if (l->n > 1)
        l->used += (size_t)snprintf(l->out + l->used, l->size - l->used, ", ");
    va_start(args, format);
    length = vsnprintf(l->out + l->used, l->size - l->used, format, args);
    va_end(args);
    l->used += (size_t)length;
    if (l->used >= l->size)
        l->used = l->size - 1;
}

void sw_coord_list_end(struct name_list *l)
{
    if (l->n == 0 && l->size)
        l->out[0] = '\0';
    if (l->hidden && l->used < l->size)
        snprintf(l->out + l->used, l->size - l->used, " and %u more", l->hidden);
}

/* ---- actions ---- */

static struct action *push(
    struct sw_coordinator *c, enum sw_coordinator_action_kind kind, const char *text)
{
    const size_t length = strlen(text);
    struct action *a = calloc(1, sizeof(*a) + length + 1);

    if (!a)
        return NULL;
    a->kind = kind;
    memcpy(a->text, text, length);
    if (c->last)
        c->last->next = a;
    else
        c->first = a;
    c->last = a;
    return a;
}

void sw_coord_log(struct sw_coordinator *c, int level, const char *format, ...)
{
    char text[SW_TEXT_MAX + 1];
    struct action *a;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    a = push(c, SW_COORD_LOG, text);
    if (a)
        a->level = level;
}

struct sw_msg *sw_coord_message(enum sw_msg_kind kind)
{
    return sw_msg_new(kind);
}

const char *sw_coord_text(struct sw_coordinator *c, struct sw_msg *m, const char *text)
{
    const char *copy = m ? sw_arena_strdup(&m->arena, text ? text : "") : NULL;

    if (!copy)
        c->out_of_memory = true;
    return copy ? copy : "";
}

void *sw_coord_array(struct sw_coordinator *c, struct sw_msg *m, size_t n, size_t size)
{
    void *array = m ? sw_arena_array(&m->arena, n, size) : NULL;

    if (!array)
        c->out_of_memory = true;
    return array;
}

void sw_coord_send(struct sw_coordinator *c, uint64_t member, struct sw_msg *m)
{
    const struct member *to = sw_coord_member(c, member);
    const bool failed = c->out_of_memory || !m;
    struct action *a;

    c->out_of_memory = false;
    if (!to || to->closing) {
        sw_msg_free(m);
        return;
    }
    a = failed ? NULL : push(c, SW_COORD_SEND, "");
    if (!a) {
        sw_msg_free(m);
        sw_coord_drop(c, member, "the coordinator has no memory for a message to it");
        return;
    }
    a->member = member;
    a->message = m;
}

void sw_coord_persist(struct sw_coordinator *c, uint64_t version)
{
    struct action *a = push(c, SW_COORD_PERSIST, "");

    if (a)
        a->version = version;
}

/* Members to be dropped are told of here, so that it works without memory, too. */
static bool next_close(struct sw_coordinator *c, struct sw_coordinator_action *action)
{
    if (c->refused) {
        *action = (struct sw_coordinator_action){.kind = SW_COORD_CLOSE, .member = c->refused};
        snprintf(action->text, sizeof(action->text), "the coordinator has no memory for it");
        c->refused = 0;
        return true;
    }
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];

        if (!m->closing || m->told)
            continue;
        m->told = true;
        *action = (struct sw_coordinator_action){.kind = SW_COORD_CLOSE, .member = m->number};
        snprintf(action->text, sizeof(action->text), "%s", m->why);
        return true;
    }
    return false;
}

bool sw_coordinator_next(struct sw_coordinator *c, struct sw_coordinator_action *action)
{
    struct action *a = c->first;

    if (!a)
        return next_close(c, action);
    *action = (struct sw_coordinator_action){.kind = a->kind,
        .member = a->member,
        .message = a->message,
        .version = a->version,
        .level = a->level};
    snprintf(action->text, sizeof(action->text), "%s", a->text);
    c->first = a->next;
    if (!c->first)
        c->last = NULL;
    free(a);
    return true;
}

/* ---- events ---- */

static void from_trainerd(
    struct sw_coordinator *c, struct member *m, const struct sw_msg *msg, uint64_t now)
{
    switch (msg->kind) {
    case SW_MSG_MEMBER:
        sw_coord_member_msg(c, m, &msg->u.member);
        break;
    case SW_MSG_TRAINER_OPEN:
        sw_coord_trainer_open(c, m->number, &msg->u.trainer_open, now);
        break;
    case SW_MSG_SOURCES:
        sw_coord_sources(c, m->number, &msg->u.sources, now);
        break;
    case SW_MSG_RANK_GONE:
        sw_coord_rank_gone(c, m->number, &msg->u.rank_gone, now);
        break;
    case SW_MSG_BEGIN:
        sw_coord_begin(c, m->number, &msg->u.begin, now);
        break;
    case SW_MSG_PLAN_DONE:
        sw_coord_plan_done(c, m->number, &msg->u.plan_done, now);
        break;
    case SW_MSG_END:
        sw_coord_end(c, m->number, &msg->u.end, now);
        break;
    case SW_MSG_ABORT:
        sw_coord_abort(c, m->number, &msg->u.abort, now);
        break;
    case SW_MSG_PUBLISH:
        sw_coord_publish(c, m->number, &msg->u.publish, now);
        break;
    case SW_MSG_CONNECTED:
        sw_coord_connected(c, m->number, &msg->u.connected, now);
        break;
    case SW_MSG_WRITTEN:
        sw_coord_written(c, m->number, &msg->u.written, now);
        break;
    default:
        sw_coord_drop(c, m->number, "it sent %s, which a trainerd does not send to its coordinator",
            sw_msg_kind_name(msg->kind));
    }
}

static void from_inferd(
    struct sw_coordinator *c, struct member *m, const struct sw_msg *msg, uint64_t now)
{
    if (msg->kind != SW_MSG_MEMBER && !m->presented) {
        sw_coord_drop(
            c, m->number, "it sent %s before it presented itself", sw_msg_kind_name(msg->kind));
        return;
    }
    switch (msg->kind) {
    case SW_MSG_MEMBER:
        sw_coord_member_msg(c, m, &msg->u.member);
        break;
    case SW_MSG_ENGINE_RANK:
        sw_coord_engine_rank(c, m->number, &msg->u.engine_rank, now);
        break;
    case SW_MSG_PARAMETERS:
        sw_coord_parameters(c, m->number, &msg->u.parameters, now);
        break;
    case SW_MSG_RANK_STATE:
        sw_coord_rank_state(c, m->number, &msg->u.rank_state, now);
        break;
    case SW_MSG_PHASE_DONE:
        sw_coord_phase_done(c, m->number, &msg->u.phase_done, now);
        break;
    default:
        sw_coord_drop(c, m->number, "it sent %s, which an inferd does not send to its coordinator",
            sw_msg_kind_name(msg->kind));
    }
}

static void on_message(
    struct sw_coordinator *c, uint64_t number, const struct sw_msg *msg, uint64_t now)
{
    struct member *m = sw_coord_member(c, number);

    if (!m || m->closing)
        return;
    if (msg->kind == SW_MSG_ERROR)
        sw_coord_log(c, LEVEL_WARNING, "%s %s says: %s", sw_role_name(m->role), m->name,
            msg->u.error.reason);
    else if (m->role == SW_ROLE_TRAINERD)
        from_trainerd(c, m, msg, now);
    else
        from_inferd(c, m, msg, now);
}

/* What must be true between events. */
static void check(const struct sw_coordinator *c)
{
    const struct update *b = c->begin, *s = c->staged, *p = c->publishing;

    assert(!b || (b->stage >= STAGE_COLLECTING && b->stage <= STAGE_STAGING));
    assert(!b || (b->n_asked <= c->world && b->n_ended <= b->n_asked));
    assert(!b || b->stage == STAGE_COLLECTING || b->n_asked == c->world);
    assert(!b || !b->burned || b->version <= c->last_version);
    assert(!s || (s->stage == STAGE_STAGED && s->burned && s->version <= c->last_version));
    assert(!s || !b || b->stage <= STAGE_PERSISTING); /* staging replaces what is staged */
    assert(!p || (p->stage == STAGE_PUBLISHING && p->version <= c->last_version));
    assert(!p || !s || p->version < s->version);
    assert(c->live_version <= c->last_version);
    for (uint32_t i = 0; p && i < p->n_engines; i++)
        sw_coord_engine_check(p, &p->engines[i]);
}

static void start(struct sw_coordinator *c, uint64_t now)
{
    c->started = true;
    c->started_at = now;
}

void sw_coordinator_handle(
    struct sw_coordinator *c, const struct sw_coordinator_event *event, uint64_t now)
{
    if (!c->started)
        start(c, now);
    c->now = now;
    switch (event->kind) {
    case SW_COORD_MEMBER_UP:
        sw_coord_member_up(c, event, now);
        break;
    case SW_COORD_MEMBER_DOWN:
        sw_coord_member_down(c, event->member, event->text ? event->text : "", now);
        break;
    case SW_COORD_MESSAGE:
        on_message(c, event->member, event->message, now);
        sw_msg_free(event->message);
        break;
    case SW_COORD_PERSISTED:
        sw_coord_persisted(c, event->version, event->code, event->text ? event->text : "", now);
        break;
    case SW_COORD_TICK:
        break;
    }
    sw_coord_trainers_tick(c, now);
    sw_coord_engines_tick(c, now);
    sw_coord_engine_tick(c, now);
    sw_coord_publish_check(c, now);
    sw_coord_publish_tick(c, now);
    sw_coord_stage_tick(c, now);
    sw_coord_publish_tick(c, now); /* a begin that ended may have been in its way */
    check(c);
}

uint64_t sw_coordinator_deadline(const struct sw_coordinator *c)
{
    const uint64_t all[] = {sw_coord_trainers_deadline(c), sw_coord_engines_deadline(c),
        sw_coord_stage_deadline(c), sw_coord_publish_deadline(c), sw_coord_engine_deadline(c)};
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        least = all[i] < least ? all[i] : least;
    return least;
}
