/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine process declares: its rank, regions and parameters. Received in parts, checked,
 * kept, and given out again in parts for the coordinator. Pure.
 */
#ifndef SW_INFERD_MANIFEST_H
#define SW_INFERD_MANIFEST_H

#include "common/message.h"
#include <shardwire/error.h>

struct sw_manifest {
    char engine[SW_LABEL_MAX + 1];
    uint32_t rank, world;
    struct sw_id instance;
    struct sw_msg *declared; /* its ENGINE_RANK, which the coordinator gets too; owned */
    uint64_t version;        /* what the process said that it holds */
    bool torn;
    uint32_t n_regions;
    uint64_t region_bytes[SW_FRAME_FDS_MAX];
    int fds[SW_FRAME_FDS_MAX]; /* owned; -1 when closed */
    uint32_t expected;         /* parameters announced */
    uint32_t n, capacity;
    struct sw_parameter *items; /* alias_of is NULL, or names a parameter that has none */
    struct sw_arena strings;
    uint64_t parameter_bytes; /* aliases counted once; set by check */
    struct sw_run *runs;      /* sorted, merged; made by check, freed by sw_manifest_drop_runs */
    uint32_t n_runs;
};

/* A zeroed manifest is empty; clear empties it (descriptors closed) and may be called always. */
void sw_manifest_clear(struct sw_manifest *m);
void sw_manifest_close_fds(struct sw_manifest *m);
void sw_manifest_drop_runs(struct sw_manifest *m);

/* Takes an ENGINE_RANK into an empty manifest, descriptors included. On failure it is empty.
 * `memory_max` bounds what the manifest keeps. */
int sw_manifest_begin(
    struct sw_manifest *m, struct sw_msg *msg, size_t memory_max, struct sw_error *e);

/* Takes the next PARAMETERS (its strings are copied). m->n == m->expected afterwards: complete,
 * call check. */
int sw_manifest_add(
    struct sw_manifest *m, const struct sw_parameters *part, size_t memory_max, struct sw_error *e);

/* Checks the whole: unique names, aliases, overlaps. Makes the runs. */
int sw_manifest_check(struct sw_manifest *m, struct sw_error *e);

/* Bytes of heap that it keeps. */
size_t sw_manifest_memory(const struct sw_manifest *m);

/* For the coordinator: ENGINE_RANK without descriptors; PARAMETERS from `first` on, as many as one
 * part takes, *next = where the following part starts. NULL = no memory. */
struct sw_msg *sw_manifest_rank_message(const struct sw_manifest *m, uint32_t pid);
struct sw_msg *sw_manifest_part(const struct sw_manifest *m, uint32_t first, uint32_t *next);

#endif
