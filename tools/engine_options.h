/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of shardwire-engine. */
#ifndef SW_TOOLS_ENGINE_OPTIONS_H
#define SW_TOOLS_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <shardwire/engine.h>
#include "trainerd/plan/scene.h"

#define SW_EVENT_KINDS (SW_EVENT_RESUME + 1)

struct sw_engine_arguments {
    const char *folder, *name, *socket, *group;
    uint32_t rank, world, threads;
    uint64_t region_bytes;
    const char *digests; /* file, or "-" */
    uint32_t check_interval_ms;
    /* What it holds: "identity" = the checkpoint's tensors, else what a layout gives a rank. */
    const char *layout, *layouts;
    struct sw_engine_spec spec; /* kind, sizes, FP8, draft */
    bool fp8_said;              /* --fp8: else config.json decides */
    const char *expert_map;     /* file; NULL = experts lie by their ids */
    /* For tests and demonstrations, by event kind. */
    struct {
        uint32_t delay_ms;
        const char *fail; /* reason; NULL = succeed */
        bool fail_once;
        bool die; /* SIGKILL to itself, before the acknowledgement */
    } inject[SW_EVENT_KINDS];
};

/* "pause", "prepare", "post", "activate", "resume". */
const char *sw_event_name(enum sw_event_kind kind);
int sw_event_find(const char *name); /* the kind, -1 = none of these */

/* 0 = go on, else the exit status plus 1 (help was printed, or what is wrong). */
int sw_engine_arguments_parse(int argc, char **argv, struct sw_engine_arguments *a);

#endif
