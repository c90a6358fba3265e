/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer: takes write programs and the coordinator's orders (TARGETS, WRITE_PROGRAM, CONNECT,
 * WRITE, UPDATE_END), runs them on transports, answers CONNECTED and WRITTEN. Loop thread only; the
 * transports have threads of their own.
 *
 * A delivery is one update of one target. Its legs are the trainer ranks of this host that write to
 * it. A path to a target is kept for later updates as long as it is whole and the layout epoch
 * stays. A leg holds its replica buffer from CONNECT until nobody reads it any more: after
 * UPDATE_END, and, when something was still under way or failed, after the path is closed.
 */
#ifndef SW_TRAINERD_WRITER_H
#define SW_TRAINERD_WRITER_H

#include <jansson.h>
#include "common/transport.h"
#include "trainerd/replica/replica.h"

struct sw_writer;

enum sw_writer_transport { /* the option `transport`: which may be used */
    SW_WRITER_AUTO = 0, /* local where it can be proved that the target is on this host, else tcp */
    SW_WRITER_TCP,
    SW_WRITER_LOCAL,
};

struct sw_writer_config {
    uv_loop_t *loop;
    const struct sw_identity *self; /* borrowed */
    struct sw_io_pool *pool;        /* borrowed */
    enum sw_writer_transport transport;
    uint32_t chunk_bytes;
    uint32_t connect_ms;
    /* The buffer that holds rank's bytes of a version; NULL = none (borrowed until held). */
    struct sw_replica_buffer *(*buffer)(uint32_t rank, uint64_t version, void *arg);
    /* A message (owned by the callee) for the coordinator. */
    void (*report)(struct sw_msg *msg, void *arg);
    void (*log)(int level, const char *text, void *arg);
    void *arg;
};

struct sw_writer *sw_writer_new(const struct sw_writer_config *config);

/* Takes a message (owned). */
void sw_writer_handle(struct sw_writer *w, struct sw_msg *msg);

/* The coordinator is gone: every delivery ends, programs are forgotten. */
void sw_writer_reset(struct sw_writer *w);

/* Closes everything; `closed` comes when no path is left and no buffer is held; then w is freed. */
void sw_writer_close(struct sw_writer *w, void (*closed)(void *arg), void *arg);

/* For status: paths with transport and reason, deliveries under way (a new reference). */
json_t *sw_writer_status(const struct sw_writer *w);

#endif
