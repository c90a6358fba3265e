/* SPDX-License-Identifier: Apache-2.0 */
/* Messages for the registry's tests. An engine process `n` has instance {n, 'e'}, writer `n`
 * {n, 'w'}, coordinator `n` {n, 'c'}. */
#ifndef SW_INFERD_TEST_SUPPORT_H
#define SW_INFERD_TEST_SUPPORT_H

#include <stdlib.h>
#include <string.h>
#include "inferd/registry.h"

#define MS 1000000ull

static inline struct sw_id make_id(uint8_t n, char kind)
{
    struct sw_id id = {{n, (uint8_t)kind}};
    return id;
}

/* Deterministic, and never the same bytes twice. */
static inline void make_random(void *bytes, size_t n, void *arg)
{
    uint64_t *state = arg;
    uint8_t *out = bytes;

    for (size_t i = 0; i < n; i++) {
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        out[i] = (uint8_t)(*state >> 56);
    }
}

static inline struct sw_registry_config make_config(uint64_t *random_state)
{
    struct sw_registry_config c = {.instance = make_id(1, 'i'),
        .lease_ns = 1000 * MS,
        .token_ns = 300 * MS,
        .manifest_ns = 100 * MS,
        .random = make_random,
        .random_arg = random_state};

    memset(c.host_nonce, 7, sizeof(c.host_nonce));
    return c;
}

static inline const char *keep(struct sw_msg *msg, const char *text)
{
    return sw_arena_strdup(&msg->arena, text);
}

/* One region of `bytes`; the descriptor is the caller's, -1 = none. */
static inline struct sw_msg *make_engine_rank(const char *engine, uint32_t rank, uint32_t world,
    uint8_t process, uint64_t bytes, uint32_t parameters, int fd)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ENGINE_RANK);
    struct sw_engine_rank *in = &msg->u.engine_rank;

    in->engine = keep(msg, engine);
    in->scale_format = keep(msg, "");
    in->rank = rank;
    in->world = world;
    in->instance = make_id(process, 'e');
    in->n_parameters = parameters;
    in->n_regions = 1;
    in->region_bytes = sw_arena_array(&msg->arena, 1, sizeof(uint64_t));
    in->region_bytes[0] = bytes;
    msg->n_fds = 1;
    msg->fds[0] = fd;
    return msg;
}

struct declared { /* a parameter of U8, `bytes` long */
    const char *name;
    uint64_t offset, bytes;
    const char *alias_of;
};

static inline struct sw_msg *make_parameters(const char *engine, uint32_t rank, uint8_t process,
    uint32_t first, uint32_t total, const struct declared *list, uint32_t n)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PARAMETERS);
    struct sw_parameters *in = &msg->u.parameters;

    in->engine = keep(msg, engine);
    in->rank = rank;
    in->instance = make_id(process, 'e');
    in->first = first;
    in->total = total;
    in->n = n;
    in->items = sw_arena_array(&msg->arena, n, sizeof(*in->items));
    for (uint32_t i = 0; i < n; i++)
        in->items[i] = (struct sw_parameter){.name = keep(msg, list[i].name),
            .dtype = SW_U8,
            .ndim = 1,
            .shape = {list[i].bytes},
            .offset = list[i].offset,
            .alias_of = keep(msg, list[i].alias_of ? list[i].alias_of : "")};
    return msg;
}

/* Epochs are 10 and 20; ARM names writers 1 (2 connections) and 2 (1). */
static inline struct sw_msg *make_phase(enum sw_phase phase, uint64_t update, uint64_t version,
    const char *engine, uint32_t rank, uint8_t process, uint64_t expected_bytes)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE);
    struct sw_phase_msg *p = &msg->u.phase;

    p->phase = phase;
    p->update = update;
    p->version = version;
    p->layout_epoch = 10;
    p->membership_epoch = 20;
    p->engine = keep(msg, engine);
    p->rank = rank;
    p->instance = make_id(process, 'e');
    p->expected_bytes = expected_bytes;
    p->reason = keep(msg, phase == SW_PHASE_ABORT ? "test" : "");
    if (phase != SW_PHASE_ARM)
        return msg;
    p->n = 2;
    p->writers = sw_arena_array(&msg->arena, 2, sizeof(*p->writers));
    p->writers[0] = (struct sw_writer_ref){make_id(1, 'w'), 2};
    p->writers[1] = (struct sw_writer_ref){make_id(2, 'w'), 1};
    return msg;
}

static inline struct sw_msg *make_phase_done(enum sw_phase phase, uint64_t update,
    const char *engine, uint32_t rank, uint8_t process, int code)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PHASE_DONE);
    struct sw_phase_done *d = &msg->u.phase_done;

    d->phase = phase;
    d->update = update;
    d->engine = keep(msg, engine);
    d->rank = rank;
    d->instance = make_id(process, 'e');
    d->error.code = code;
    d->error.reason = keep(msg, code ? "hook failed" : "");
    d->state = SW_RANK_SERVING;
    return msg;
}

#endif
