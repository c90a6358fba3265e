/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of trainerds and inferds. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

struct member *sw_coord_member(const struct sw_coordinator *c, uint64_t number)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->members[i]->number == number)
            return c->members[i];
    return NULL;
}

const char *sw_coord_member_name(const struct sw_coordinator *c, uint64_t number)
{
    const struct member *m = sw_coord_member(c, number);

    return m ? m->name : "a host that is gone";
}

static void member_free(struct member *m)
{
    if (!m)
        return;
    free(m->name);
    free(m->address);
    free(m->advertise);
    free(m->unix_path);
    free(m);
}

void sw_coord_members_free(struct sw_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        member_free(c->members[i]);
    free(c->members);
}

/* Ends what depends on a member. */
static void let_go(struct sw_coordinator *c, uint64_t number, const char *why, uint64_t now)
{
    sw_coord_engine_trainerd_lost(c, number, why, now);
    sw_coord_trainers_member_down(c, number, why, now);
    sw_coord_engines_member_down(c, number, why, now);
    sw_coord_waiters_member_down(c, number);
}

/* The same process on a new connection: the old one is dead, whether its end was seen or not. */
static void replace_older(
    struct sw_coordinator *c, const struct sw_coordinator_event *event, uint64_t now)
{
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];

        if (m->role == event->role && sw_id_equal(&m->instance, &event->instance) && !m->closing) {
            sw_coord_drop(c, m->number, "it has connected again");
            let_go(c, m->number, "it has connected again", now);
        }
    }
}

void sw_coord_member_up(
    struct sw_coordinator *c, const struct sw_coordinator_event *event, uint64_t now)
{
    struct member *m = calloc(1, sizeof(*m));

    if (event->role == SW_ROLE_TRAINERD || event->role == SW_ROLE_INFERD)
        replace_older(c, event, now);
    if (!m || sw_coord_grow(&c->members, &c->members_size, c->n_members, sizeof(*c->members))) {
        member_free(m);
        c->refused = event->member;
        return;
    }
    m->number = event->member;
    m->role = event->role;
    m->instance = event->instance;
    m->name = strdup(event->name && event->name[0] ? event->name : "an unnamed host");
    m->address = strdup(event->address ? event->address : "");
    c->members[c->n_members++] = m;
    if (!m->name || !m->address) {
        m->name = m->name ? m->name : calloc(1, 1);
        sw_coord_drop(c, m->number, "the coordinator has no memory for it");
    } else if (m->role != SW_ROLE_TRAINERD && m->role != SW_ROLE_INFERD) {
        sw_coord_drop(
            c, m->number, "a %s has no business with the coordinator", sw_role_name(m->role));
    } else {
        sw_coord_log(c, LEVEL_INFO, "%s %s has joined%s%s", sw_role_name(m->role), m->name,
            m->address[0] ? " from " : "", m->address);
    }
}

void sw_coord_member_down(struct sw_coordinator *c, uint64_t number, const char *why, uint64_t now)
{
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];

        if (m->number != number)
            continue;
        if (!m->told)
            sw_coord_log(c, LEVEL_WARNING, "%s %s is gone: %s", sw_role_name(m->role), m->name,
                why[0] ? why : "its connection ended");
        m->closing = m->told = true; /* nothing is sent to it any more */
        let_go(c, number, why[0] ? why : "its connection ended", now);
        memmove(&c->members[i], &c->members[i + 1], (c->n_members - i - 1) * sizeof(*c->members));
        c->n_members--;
        member_free(m);
        return;
    }
}

void sw_coord_drop(struct sw_coordinator *c, uint64_t number, const char *format, ...)
{
    struct member *m = sw_coord_member(c, number);
    va_list args;

    if (!m || m->closing)
        return;
    va_start(args, format);
    vsnprintf(m->why, sizeof(m->why), format, args);
    va_end(args);
    m->closing = true;
    sw_coord_log(c, LEVEL_ERROR, "%s %s is disconnected: %s", sw_role_name(m->role),
        m->name ? m->name : "?", m->why);
}

void sw_coord_member_msg(struct sw_coordinator *c, struct member *m, const struct sw_member *msg)
{
    if (msg->name[0])
        sw_coord_set_text(&m->name, msg->name);
    sw_coord_set_text(&m->advertise, msg->advertise);
    sw_coord_set_text(&m->unix_path, msg->unix_path);
    m->data_port = msg->data_port;
    memcpy(m->host_nonce, msg->host_nonce, sizeof(m->host_nonce));
    m->presented = true;
    if (!m->name || !m->advertise || !m->unix_path) {
        m->name = m->name ? m->name : calloc(1, 1);
        sw_coord_drop(c, m->number, "the coordinator has no memory for it");
    }
}
