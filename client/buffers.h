/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replica's buffers as trainerd hands them over: data, completion counters and shared block
 * maxima, by descriptor.
 * They are mapped when they are first staged into, and unmapped when another generation comes.
 */
#ifndef SW_CLIENT_BUFFERS_H
#define SW_CLIENT_BUFFERS_H

#include <stdint.h>
#include <shardwire/error.h>
#include "common/message.h"

#define SW_BUFFERS 2

struct sw_buffers;

struct sw_buffers *sw_buffers_new(void); /* NULL = no memory */
void sw_buffers_free(struct sw_buffers *b);

/* Takes what a BUFFER message brings (its descriptors are taken out). Nobody may be writing. */
int sw_buffers_take(struct sw_buffers *b, struct sw_msg *msg, struct sw_error *e);

struct sw_buffer_need {
    uint64_t replica_bytes;
    uint32_t n_tiles;
    uint64_t n_maxima; /* floats; 0 = none */
};

struct sw_buffer_memory { /* mapped until the next sw_buffers_take of this buffer */
    void *data;
    uint64_t *counters;
    float *maxima; /* NULL when none were asked for */
};

/* Buffer `index` must be there, with room for what is needed: checks the descriptors, maps them
 * (populated) with `threads`. After a failure it can be tried again. */
int sw_buffers_use(struct sw_buffers *b, uint32_t index, const struct sw_buffer_need *need,
    unsigned threads, struct sw_buffer_memory *memory, struct sw_error *e);

#endif
