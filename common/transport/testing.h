/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests and benchmarks: both ends of a transport in one process. A target with its memory and
 * port, a listener that does what inferd does, a thread that does what the engine process does, and
 * paths that lead there.
 */
#ifndef SW_COMMON_TRANSPORT_TESTING_H
#define SW_COMMON_TRANSPORT_TESTING_H

#include "common/transport.h"

#define SW_STAGE_REGIONS 3
#define SW_STAGE_RUNS 5

struct sw_stage;

struct sw_stage_outcome { /* of one asynchronous call */
    bool done;
    uint64_t bytes;
    struct sw_error error;
};

struct sw_stage_config {
    const struct sw_transport *transport;
    uint64_t source_bytes;
    uint64_t region_bytes[SW_STAGE_REGIONS]; /* 0 = region not there (from the end) */
    const struct sw_run *runs;
    uint32_t n_runs;
    unsigned threads;     /* of each side's pool, and of the engine */
    uint32_t connections; /* of each path */
    bool mute_engine;     /* the engine process never answers LOCAL_COPY */
};

struct sw_stage *sw_stage_new(const struct sw_stage_config *c);
void sw_stage_free(struct sw_stage *s); /* closes what is open */

uv_loop_t *sw_stage_loop(struct sw_stage *s);
struct sw_port *sw_stage_port(struct sw_stage *s);
uint8_t *sw_stage_region(struct sw_stage *s, uint32_t region);
struct sw_source_memory *sw_stage_source(struct sw_stage *s);
uint8_t *sw_stage_source_bytes(struct sw_stage *s); /* writable */

/* Runs the loop until *flag; false after 20 s. */
bool sw_stage_wait(struct sw_stage *s, const bool *flag);

/* A path, open and attached. `broken` (may be NULL) gets what comes when it breaks. */
struct sw_path *sw_stage_path(struct sw_stage *s, struct sw_stage_outcome *broken);
void sw_stage_path_done(struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *outcome);
/* These wait. */
struct sw_stage_outcome sw_stage_write(struct sw_stage *s, struct sw_path *p,
    const struct sw_id *window, const struct sw_extent *extents, uint64_t n);
struct sw_stage_outcome sw_stage_verify(struct sw_stage *s, struct sw_path *p,
    const struct sw_id *window, const struct sw_extent *extents, uint64_t n);
struct sw_stage_outcome sw_stage_path_close(struct sw_stage *s, struct sw_path *p);

struct sw_id sw_stage_window(struct sw_stage *s);   /* opens the window under a new id */
uint64_t sw_stage_window_close(struct sw_stage *s); /* waits; returns the bytes counted */
void sw_stage_port_free(struct sw_stage *s);        /* waits */
void sw_stage_engine_died(struct sw_stage *s);
const bool *sw_stage_engine_has_copy(struct sw_stage *s); /* with mute_engine: LOCAL_COPY came */

/* For a writer that is no path: a connection to the listener, and what it says first. */
int sw_stage_dial(struct sw_stage *s, const struct sw_conn_handlers *handlers, void *arg,
    struct sw_conn **out, struct sw_error *e);
struct sw_msg *sw_stage_path_open(struct sw_stage *s);

#endif
