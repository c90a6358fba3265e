/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: the data connections of one tcp path, each on an I/O thread. They take pieces of the
 * job from a shared cursor, so that a slow connection does not hold up the others. What happens is
 * counted in the hub, whose `async` then wakes the loop.
 */
#ifndef SW_COMMON_TRANSPORT_TCP_STREAM_H
#define SW_COMMON_TRANSPORT_TCP_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include "common/transport.h"
#include "common/transport/io_thread.h"

struct sw_stream;

struct sw_stream_hub {
    uv_async_t async;
    pthread_mutex_t lock;
    /* The job: set by the loop while no stream works on one. */
    bool verify;
    struct sw_id window;
    const uint8_t *base;
    const struct sw_extent *extents;
    uint64_t n;
    uint32_t chunk_bytes;
    /* Under lock: */
    uint64_t at_extent, at_offset; /* the cursor: what no stream has taken yet */
    uint64_t bytes;                /* confirmed, or compared */
    bool differs;                  /* verify: the first difference, in the order of the extents */
    uint64_t diff_extent, diff_offset;
    unsigned finished; /* streams that did their part of this job */
    unsigned stopped;  /* streams that touch nothing any more */
    bool failed;       /* a stream broke: the first reason */
    struct sw_error error;
};

/* Takes the socket (prepared by sw_tcp_socket_prepare), also on failure (NULL: no memory). */
struct sw_stream *sw_stream_new(struct sw_stream_hub *hub, struct sw_io_thread *thread, int fd);
/* Works on the hub's job until there is nothing left to take and all is confirmed. */
void sw_stream_start(struct sw_stream *s);
/* Ends the connection; when hub->stopped counts it, source memory is not touched any more. Once. */
void sw_stream_stop(struct sw_stream *s);
/* After it was counted as stopped. */
void sw_stream_free(struct sw_stream *s);

#endif
