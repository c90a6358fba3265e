/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the executor: shared by executor*.c only. */
#ifndef SW_CLIENT_EXECUTOR_IMPL_H
#define SW_CLIENT_EXECUTOR_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include "client/executor.h"
#include "client/pool.h"

struct executor_held { /* a value that is quantised when its maxima are final */
    const void *data;
    int64_t stride[SW_MAX_DIMS];
};

struct sw_executor {
    const struct sw_loads *loads;
    const struct sw_source *sources;
    unsigned threads;
    struct sw_pool *pool;
    char *data;
    uint64_t *counters;
    float *maxima;              /* NULL until they were set for this version */
    uint64_t round;             /* counts versions */
    _Atomic uint64_t *put;      /* for each source: the round in which it was put last */
    struct sw_digest *digests;  /* for each alias check; valid when its source was put */
    struct executor_held *held; /* for each source, when the program has shared grids */
    _Atomic uint64_t *holding;  /* for each source: the round in which its value is held */
    _Atomic uint64_t bytes;
};

/* Loads of a source, by what is done with them: numbers of loads. */
struct executor_loads {
    const uint32_t *fp8, *casts, *copies;
    uint32_t n_fp8, n_casts, n_copies;
};

/* ---- executor.c ---- */
struct executor_loads executor_loads_of(const struct sw_executor *x, uint32_t source);

/* Runs a job of so many bytes in as many parts as they are worth, at most `each` for a thread. */
void executor_in_parts(struct sw_executor *x, uint64_t bytes, unsigned each,
    void (*run)(unsigned i, unsigned n, void *arg), void *arg);

/* Counts loads that are done. Other threads' stores were made before: they have joined. */
void executor_count_loads(struct sw_executor *x, const uint32_t *order, uint32_t n);

/* ---- executor_pieces.c: copies, casts, zeros ---- */

/* Does the loads order[0 .. n - 1], all copies, all casts or all zeros. Copies and zeros are
 * counted. *wanted, which is NULL before, becomes the type in which a value can't be. */
void executor_run_pieces(struct sw_executor *x, const uint32_t *order, uint32_t n, const void *data,
    const int64_t *stride, const char **wanted);

/* ---- executor_fp8.c ---- */

/* Maxima of a source's shared grids, values and scales of its others; nothing is counted.
 * SW_ERR_INVALID: some value is not finite. SW_ERR_NOMEM. */
int executor_run_grids(
    struct sw_executor *x, uint32_t source, const void *data, const int64_t *stride);

/* Counts the FP8 loads of a source whose grids are shared, or those of its others. */
void executor_count_fp8(struct sw_executor *x, const struct executor_loads *o, bool shared);

#endif
