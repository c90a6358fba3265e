/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of an engine: shared by engine*.c only. */
#ifndef SW_CLIENT_ENGINE_IMPL_H
#define SW_CLIENT_ENGINE_IMPL_H

#include <stdbool.h>
#include <shardwire/engine.h>
#include "client/channel.h"
#include "client/names.h"
#include "common/arena.h"
#include "common/message.h"
#include "common/transport.h"

#define ENGINE_REGIONS_MAX SW_FRAME_FDS_MAX /* their descriptors travel with one message */

struct engine_region {
    int fd;
    void *base;
    uint64_t bytes;
    bool ours; /* mapped by us: unmapped at close */
};

struct sw_engine {
    char group[SW_LABEL_MAX + 1], name[SW_LABEL_MAX + 1];
    char host[SW_LABEL_MAX * 4 + 1];
    char *socket;
    uint32_t rank, world, threads, timeout_ms;
    struct sw_engine_rank self; /* what it says of itself; strings in `arena` */
    uint32_t *expert_map;       /* owned; self's points here */

    struct engine_region regions[ENGINE_REGIONS_MAX];
    uint32_t n_regions;
    bool declared; /* was registered once: regions and parameters are fixed */
    struct sw_parameter *parameters;
    uint32_t n_parameters, room;
    struct sw_names *names; /* parameter name -> index */
    struct sw_arena arena;  /* strings */

    struct sw_channel *channel; /* NULL = not connected */
    struct sw_id instance;      /* of this connection */
    bool registered;
    struct sw_local_engine *local;
    struct sw_error lost; /* why the connection ended */

    uint64_t version; /* that the memory holds, if not torn */
    bool paused;
    bool prepared;         /* since the pause memory may have been written, and was not activated */
    bool written;          /* we wrote some of it ourselves (local) */
    bool resume_due;       /* registered clean while paused: RESUME comes from ourselves */
    struct sw_event event; /* given out and not acknowledged; NONE = none */
    bool own;              /* that event is our own RESUME */
};

/* ---- engine_memory.c ---- */
int engine_local_new(struct sw_engine *en, struct sw_error *e); /* makes en->local */
void engine_memory_free(struct sw_engine *en);

/* ---- engine.c ---- */
int engine_connect(struct sw_engine *en, uint64_t deadline, struct sw_error *e);
void engine_disconnect(struct sw_engine *en);

#endif
