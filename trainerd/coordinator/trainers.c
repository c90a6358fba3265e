/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trainer world. A rank belongs to the trainerd that declared it last; it keeps its manifest
 * when its process ends. Another world size is taken when no process of the old world is left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/internal.h"

struct trainer *sw_coord_trainer(const struct sw_coordinator *c, uint64_t member, uint32_t rank)
{
    return rank < c->world && c->trainers[rank].member == member ? &c->trainers[rank] : NULL;
}

void sw_coord_trainer_clear(struct trainer *t)
{
    t->asked = t->ended = t->end_waits = false;
    t->bytes = t->stage_ns = 0;
    t->n_digests = 0;
    free(t->digests);
    t->digests = NULL;
}

static void drop_incoming(struct sw_coordinator *c, struct trainer *t)
{
    if (t->incoming)
        c->n_incoming--;
    sw_manifest_free(t->incoming);
    t->incoming = NULL;
}

static void trainer_free(struct sw_coordinator *c, struct trainer *t)
{
    sw_coord_trainer_clear(t);
    drop_incoming(c, t);
    sw_manifest_free(t->manifest);
    free(t->host);
    *t = (struct trainer){0};
}

void sw_coord_trainers_free(struct sw_coordinator *c)
{
    for (uint32_t r = 0; r < c->world; r++)
        trainer_free(c, &c->trainers[r]);
    free(c->trainers);
    c->trainers = NULL;
    c->world = 0;
}

void sw_coord_each_trainerd(struct sw_coordinator *c,
    void (*call)(struct sw_coordinator *c, uint64_t member, void *arg), void *arg)
{
    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        bool hosts = false;

        if (m->role != SW_ROLE_TRAINERD || m->closing)
            continue;
        for (uint32_t r = 0; r < c->world && !hosts; r++)
            hosts = c->trainers[r].member == m->number;
        if (hosts)
            call(c, m->number, arg);
    }
}

/* ---- who holds a rank ---- */

static const struct trainer *any_alive(const struct sw_coordinator *c, uint32_t *rank)
{
    for (uint32_t r = 0; r < c->world; r++)
        if (c->trainers[r].alive && c->trainers[r].member) {
            *rank = r;
            return &c->trainers[r];
        }
    return NULL;
}

static int set_world(
    struct sw_coordinator *c, uint32_t rank, uint32_t world, uint64_t now, struct sw_error *e)
{
    const struct trainer *holder;
    struct trainer *trainers;
    uint32_t r = 0;

    if (world == 0 || world > SW_WORLD_MAX || rank >= world)
        return sw_fail(e, SW_ERR_INVALID,
            "trainer rank %u of a world of %u: the world may have 1 to %u ranks, counted from 0",
            rank, world, SW_WORLD_MAX);
    if (world == c->world)
        return 0;
    holder = any_alive(c, &r);
    if (holder)
        return sw_fail(e, SW_ERR_STATE,
            "trainer rank %u says that the world has %u ranks, but rank %u (process %u on %s) has "
            "opened a world of %u; end those processes first",
            rank, world, r, holder->pid, holder->host ? holder->host : "?", c->world);
    trainers = calloc(world, sizeof(*trainers));
    if (!trainers)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a world of %u trainer ranks", world);
    sw_coord_stage_give_up(c, "a trainer world of another size has opened", now);
    sw_coord_trainers_free(c);
    c->trainers = trainers;
    c->world = world;
    c->layout_stale = true;
    return 0;
}

/* Gives a rank to this member and process, or says who has it. */
static int claim(struct sw_coordinator *c, uint64_t member, uint32_t rank, uint32_t world,
    const struct sw_id *process, uint64_t now, struct sw_error *e)
{
    struct trainer *t;
    const int err = set_world(c, rank, world, now, e);

    if (err)
        return err;
    t = &c->trainers[rank];
    if (t->member == member && sw_id_equal(&t->process, process)) {
        t->alive = t->opened = true;
        return 0;
    }
    if (t->alive && t->member && t->member != member)
        return sw_fail(e, SW_ERR_EXISTS,
            "trainer rank %u is held by process %u on %s; two processes can't be one rank (is the "
            "rank set right on %s?)",
            rank, t->pid, t->host ? t->host : "?", sw_coord_member_name(c, member));
    if (t->opened)
        sw_coord_stage_rank_lost(
            c, rank, t->member != member, "another process has opened its rank", now);
    if (t->member != member)
        c->layout_stale = true; /* its programs and replica are at another trainerd */
    drop_incoming(c, t);
    sw_coord_set_text(&t->host, sw_coord_member_name(c, member));
    t->member = member;
    t->process = *process;
    t->pid = 0;
    t->alive = t->opened = true;
    return 0;
}

void sw_coord_trainer_open(
    struct sw_coordinator *c, uint64_t member, const struct sw_trainer_open *msg, uint64_t now)
{
    struct sw_error e;

    /* A refusal is told when the sources are there: that is what gets an answer. */
    if (claim(c, member, msg->rank, msg->world, &msg->trainer, now, &e))
        sw_coord_log(c, LEVEL_WARNING, "%s", e.text);
    else
        c->trainers[msg->rank].pid = msg->pid;
}

void sw_coord_rank_gone(
    struct sw_coordinator *c, uint64_t member, const struct sw_rank_gone *msg, uint64_t now)
{
    struct trainer *t = sw_coord_trainer(c, member, msg->rank);

    if (!t || !sw_id_equal(&t->process, &msg->trainer))
        return; /* of a process that was replaced long ago */
    t->alive = false;
    drop_incoming(c, t);
    sw_coord_stage_rank_lost(
        c, msg->rank, false, msg->reason[0] ? msg->reason : "its process is gone", now);
}

void sw_coord_trainers_member_down(
    struct sw_coordinator *c, uint64_t member, const char *why, uint64_t now)
{
    char text[SW_TEXT_MAX + 1];

    for (uint32_t r = 0; r < c->world; r++) {
        struct trainer *t = &c->trainers[r];

        if (t->member != member)
            continue;
        t->member = 0;
        t->alive = false;
        c->layout_stale = true;
        drop_incoming(c, t);
        snprintf(text, sizeof(text), "trainerd %s is gone (%.200s)", t->host ? t->host : "?", why);
        sw_coord_stage_rank_lost(c, r, true, text, now);
    }
}

/* ---- manifests ---- */

static void answer(
    struct sw_coordinator *c, uint64_t member, uint32_t rank, const struct sw_error *e)
{
    struct sw_msg *m = sw_coord_message(SW_MSG_SOURCES_DONE);

    if (m) {
        m->u.rank_reply.rank = rank;
        m->u.rank_reply.error.code = e ? e->code : 0;
        m->u.rank_reply.error.reason = sw_coord_text(c, m, e ? e->text : "");
    }
    sw_coord_send(c, member, m);
}

static void manifest_done(struct sw_coordinator *c, struct trainer *t, uint32_t rank)
{
    struct sw_manifest *m = t->incoming;

    t->incoming = NULL;
    c->n_incoming--;
    if (t->manifest && sw_manifest_equal(t->manifest, m)) {
        sw_manifest_free(m);
    } else {
        sw_manifest_free(t->manifest);
        t->manifest = m;
        c->layout_stale = true;
        sw_coord_log(c, LEVEL_INFO, "trainer rank %u of %u on %s declares %u source tensors", rank,
            c->world, t->host ? t->host : "?", sw_manifest_count(m));
    }
    answer(c, t->member, rank, NULL);
}

void sw_coord_sources(
    struct sw_coordinator *c, uint64_t member, const struct sw_sources *msg, uint64_t now)
{
    const bool last = msg->first + msg->n >= msg->total;
    struct sw_error e = {0};
    struct trainer *t;

    if (claim(c, member, msg->rank, msg->world, &msg->trainer, now, &e)) {
        if (last)
            answer(c, member, msg->rank, &e);
        return;
    }
    t = &c->trainers[msg->rank];
    if (msg->first == 0) {
        drop_incoming(c, t);
        t->incoming = sw_manifest_new(msg->total);
        t->incoming_since = now;
        c->n_incoming += t->incoming != NULL;
    }
    if (!t->incoming) {
        sw_coord_drop(c, member,
            msg->first ? "it sent a part of rank %u's sources without the first one"
                       : "the coordinator has no memory for the sources of rank %u",
            msg->rank);
        return;
    }
    if (sw_manifest_add_sources(t->incoming, msg, &e)) {
        sw_coord_drop(c, member, "trainer rank %u: %s", msg->rank, e.text);
        return;
    }
    if (sw_manifest_complete(t->incoming))
        manifest_done(c, t, msg->rank);
}

void sw_coord_trainers_tick(struct sw_coordinator *c, uint64_t now)
{
    for (uint32_t r = 0; c->n_incoming && r < c->world; r++) {
        struct trainer *t = &c->trainers[r];

        if (!t->incoming || now < t->incoming_since + c->config.manifest_ns)
            continue;
        sw_coord_drop(c, t->member,
            "of the sources of trainer rank %u only %u came in %.1f s, and no more", r,
            sw_manifest_count(t->incoming), sw_coord_seconds(t->incoming_since, now));
        drop_incoming(c, t);
    }
}

uint64_t sw_coord_trainers_deadline(const struct sw_coordinator *c)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t r = 0; c->n_incoming && r < c->world; r++) {
        const struct trainer *t = &c->trainers[r];

        if (t->incoming && t->incoming_since + c->config.manifest_ns < least)
            least = t->incoming_since + c->config.manifest_ns;
    }
    return least;
}
