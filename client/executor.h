/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a load program on the CPU: puts values into the tiles of one buffer, counts what it
 * placed in the buffer's completion counters, and digests alias sources on the way.
 *
 * A version: begin, set_maxima (if needs_maxima), puts; then (if needs_maxima) the maxima of all
 * ranks are reduced, and finish quantises what was held until then.
 */
#ifndef SW_CLIENT_EXECUTOR_H
#define SW_CLIENT_EXECUTOR_H

#include <stdbool.h>
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

/* A new version: nothing of it is put, but constant zeros. `data` has the program's replica_bytes,
 * `counters` one u64 for each tile; they stay mapped until the next begin. Not at the same time as
 * puts. */
void sw_executor_begin(struct sw_executor *x, void *data, uint64_t *counters);

/* Whether FP8 blocks are spread over several ranks: between begin and the first put `maxima` must
 * be set then, n >= loads->n_maxima floats that stay mapped until the next begin. Puts write this
 * rank's part into them; finish reads what all ranks made of it. */
bool sw_executor_needs_maxima(const struct sw_executor *x);
void sw_executor_set_maxima(struct sw_executor *x, float *maxima, uint64_t n);

/* Whether the value of a source is read again by finish, and must stay as it is until then. */
bool sw_executor_holds(const struct sw_executor *x, uint32_t source);

/*
 * Puts the value of a source, which is checked first. Several threads may put different sources;
 * of two that put the same one, one gets SW_ERR_EXISTS. SW_ERR_INVALID also when a value that is
 * cast to fewer bits or quantised is NaN or infinite. After an error nothing of it is counted, and
 * the source can be put again.
 */
int sw_executor_put(
    struct sw_executor *x, uint32_t source, const struct sw_tensor *value, struct sw_error *e);

/* Quantises the values that were held, by the final maxima, and counts them. Not at the same time
 * as puts. After an error (SW_ERR_NOMEM; SW_ERR_PROTOCOL: a maximum is no number) it may be called
 * again; when nothing is held it does nothing. */
int sw_executor_finish(struct sw_executor *x, struct sw_error *e);

/* The sources that must be put before the version can end, and are not: their number; the first
 * `max` of them are stored. */
uint32_t sw_executor_missing(const struct sw_executor *x, uint32_t *first, uint32_t max);

/* Final bytes put in this version. */
uint64_t sw_executor_bytes(const struct sw_executor *x);

/* Digests of the alias sources that were put, at most loads->n_checks; their number. */
uint32_t sw_executor_digests(const struct sw_executor *x, struct sw_digest *out);

#endif
