/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a load program on the CPU: puts values into the tiles of one buffer, counts what it
 * placed in the buffer's completion counters, and digests alias sources on the way.
 */
#ifndef SW_CLIENT_EXECUTOR_H
#define SW_CLIENT_EXECUTOR_H

#include <stdint.h>
#include <shardwire/error.h>
#include <shardwire/trainer.h>
#include "client/loads.h"
#include "common/message.h"

struct sw_executor;

/* `loads` passed sw_loads_check with these sources; both are borrowed until free. `threads` is for
 * one put. NULL = no memory. */
struct sw_executor *sw_executor_new(
    const struct sw_loads *loads, const struct sw_source *sources, unsigned threads);
void sw_executor_free(struct sw_executor *x);

/* A new version: nothing of it is put. `data` has the program's replica_bytes, `counters` one u64
 * for each tile; they stay mapped until the next begin. Not at the same time as puts. */
void sw_executor_begin(struct sw_executor *x, void *data, uint64_t *counters);

/* Puts the value of a source, which is checked first. Several threads may put different sources;
 * of two that put the same one, one gets SW_ERR_EXISTS. */
int sw_executor_put(
    struct sw_executor *x, uint32_t source, const struct sw_tensor *value, struct sw_error *e);

/* The sources that must be put before the version can end, and are not: their number; the first
 * `max` of them are stored. */
uint32_t sw_executor_missing(const struct sw_executor *x, uint32_t *first, uint32_t max);

/* Final bytes put in this version. */
uint64_t sw_executor_bytes(const struct sw_executor *x);

/* Digests of the alias sources that were put, at most loads->n_checks; their number. */
uint32_t sw_executor_digests(const struct sw_executor *x, struct sw_digest *out);

#endif
