/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replica buffers of this host: for each trainer rank two, each a memfd of final bytes, one of
 * completion counters, and where FP8 blocks are shared one of their maxima (floats). Buffers are
 * counted references: one that a writer still reads stays mapped after it was replaced. Loop thread
 * only, except sw_replica_buffer_create.
 */
#ifndef SW_TRAINERD_REPLICA_H
#define SW_TRAINERD_REPLICA_H

#include <jansson.h>
#include <shardwire/error.h>
#include "common/transport.h"

struct sw_replica_buffer;

struct sw_replica_buffer_spec {
    uint32_t rank, index;
    uint64_t generation;    /* unique in this process */
    uint64_t bytes;         /* > 0 */
    uint64_t counter_bytes; /* > 0 */
    uint64_t maxima_bytes;  /* 0 = none */
    bool huge;
    unsigned threads; /* that populate it */
};

/* Allocates and maps; any thread, may take seconds. The caller holds one reference. */
int sw_replica_buffer_create(
    const struct sw_replica_buffer_spec *spec, struct sw_replica_buffer **b, struct sw_error *e);
void sw_replica_buffer_hold(struct sw_replica_buffer *b); /* a reader comes */
void sw_replica_buffer_release(
    struct sw_replica_buffer *b); /* accepts NULL; the last one unmaps and closes */
const struct sw_source_memory *sw_replica_buffer_memory(const struct sw_replica_buffer *b);
const struct sw_replica_buffer_spec *sw_replica_buffer_spec_of(const struct sw_replica_buffer *b);

struct sw_replica;
struct sw_replica *sw_replica_new(void);
void sw_replica_free(struct sw_replica *r);

/* Puts a buffer in its place (takes the reference); what was there loses the replica's reference.
 */
int sw_replica_put(struct sw_replica *r, struct sw_replica_buffer *b, struct sw_error *e);
/* Frees the place before a larger buffer is made, so that not three are held when two fit. */
void sw_replica_drop(struct sw_replica *r, uint32_t rank, uint32_t index);
/* NULL = none there. Borrowed. */
struct sw_replica_buffer *sw_replica_get(const struct sw_replica *r, uint32_t rank, uint32_t index);
/* Copies what is whole in `from` (same size) before it is replaced; see the live tiles rule. */
void sw_replica_buffer_copy(struct sw_replica_buffer *to, const struct sw_replica_buffer *from);
bool sw_replica_buffer_busy(const struct sw_replica_buffer *b);
/* Somebody may read it for ever, and nobody will tell when that ends: busy until it is replaced. */
void sw_replica_buffer_spoil(struct sw_replica_buffer *b);
uint64_t *sw_replica_buffer_counters(const struct sw_replica_buffer *b);
float *sw_replica_buffer_maxima(const struct sw_replica_buffer *b); /* NULL = none */
/* New descriptors for a BUFFER message, owned by the caller: data, counters, and maxima if it has
 * them. *n is their number. */
int sw_replica_buffer_descriptors(
    const struct sw_replica_buffer *b, int fds[3], uint32_t *n, struct sw_error *e);

/* Memory held: {"buffers": n, "bytes": n, "huge_bytes": n, "held_by_readers": n}; new reference. */
json_t *sw_replica_status(const struct sw_replica *r);

#endif
