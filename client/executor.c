/* SPDX-License-Identifier: Apache-2.0 */
#include "client/executor_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "client/strided.h"
#include "client/value.h"
#include "common/error.h"

#define THREADS_MAX 64u
#define PART_MIN (256u << 10) /* less than this is not worth waking a thread */

struct sw_executor *sw_executor_new(
    const struct sw_loads *loads, const struct sw_source *sources, unsigned threads)
{
    struct sw_executor *x = calloc(1, sizeof(*x));
    const uint64_t n = loads->n_sources + 1ull, shared = loads->shares ? n : 1;

    if (!x)
        return NULL;
    x->loads = loads;
    x->sources = sources;
    x->threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    x->put = calloc(n, sizeof(*x->put));
    x->digests = calloc(loads->n_checks + 1ull, sizeof(*x->digests));
    x->held = calloc(shared, sizeof(*x->held));
    x->holding = calloc(shared, sizeof(*x->holding));
    x->pool = sw_pool_new(x->threads);
    if (!x->put || !x->digests || !x->held || !x->holding || !x->pool) {
        sw_executor_free(x);
        return NULL;
    }
    return x;
}

void sw_executor_free(struct sw_executor *x)
{
    if (!x)
        return;
    sw_pool_free(x->pool);
    free(x->put);
    free(x->digests);
    free(x->held);
    free(x->holding);
    free(x);
}

void executor_in_parts(struct sw_executor *x, uint64_t bytes, unsigned each,
    void (*run)(unsigned i, unsigned n, void *arg), void *arg)
{
    const uint64_t useful = bytes / PART_MIN, most = (uint64_t)x->threads * each;
    const uint64_t parts = useful < most ? useful : most;

    if (parts < 2 || x->threads < 2)
        run(0, 1, arg);
    else
        sw_pool_run(x->pool, (unsigned)parts, run, arg);
}

void executor_count_loads(struct sw_executor *x, const uint32_t *order, uint32_t n)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct sw_load *l = &x->loads->loads[order[i]];
        const uint64_t bytes = x->loads->load_bytes[l->tmpl];

        __atomic_fetch_add(&x->counters[l->tile], bytes, __ATOMIC_RELEASE);
        total += bytes;
    }
    atomic_fetch_add(&x->bytes, total);
}

void sw_executor_begin(struct sw_executor *x, void *data, uint64_t *counters)
{
    const uint32_t *first = &x->loads->first_load[x->loads->n_sources];
    const char *wanted = NULL;

    x->data = data;
    x->counters = counters;
    x->maxima = NULL;
    x->round++;
    atomic_store(&x->bytes, 0);
    executor_run_pieces(
        x, x->loads->load_order + first[0], first[1] - first[0], NULL, NULL, &wanted);
}

struct executor_loads executor_loads_of(const struct sw_executor *x, uint32_t source)
{
    const struct sw_loads *l = x->loads;
    uint32_t at = l->first_load[source];
    const uint32_t end = l->first_load[source + 1];
    struct executor_loads out = {.fp8 = l->load_order + at};

#define TRANSFORM_AT l->templates[l->loads[l->load_order[at]].tmpl].transform
    for (; at < end &&
           (TRANSFORM_AT == SW_TRANSFORM_FP8_VALUES || TRANSFORM_AT == SW_TRANSFORM_FP8_SCALES);
         at++)
        out.n_fp8++;
    out.casts = l->load_order + at;
    for (; at < end && TRANSFORM_AT == SW_TRANSFORM_CAST; at++)
        out.n_casts++;
#undef TRANSFORM_AT
    out.copies = l->load_order + at;
    out.n_copies = end - at;
    return out;
}

/* ---- put ---- */

static void run_checks(
    struct sw_executor *x, uint32_t source, const struct sw_tensor *v, const int64_t *stride)
{
    const uint32_t *first = &x->loads->first_check[source];
    const struct sw_source *s = &x->sources[source];
    struct sw_strided walk;
    uint64_t high, low;

    if (first[0] == first[1])
        return;
    /* As for a copy onto itself: what is dense in the value is one run. */
    walk = sw_strided_make(sw_dtype_bits(s->dtype), s->ndim, s->box.len, stride, stride);
    sw_strided_digest(&walk, v->data, &high, &low);
    for (uint32_t i = first[0]; i < first[1]; i++) {
        const uint32_t c = x->loads->check_order[i];

        x->digests[c] = (struct sw_digest){
            .set = x->loads->checks[c].set, .source = source, .high = high, .low = low};
    }
}

/* What can fail goes first, and is counted when all of it went well: after a failure the version is
 * as it was. */
static int run_loads(struct sw_executor *x, uint32_t source, const struct sw_tensor *v,
    const int64_t *stride, struct sw_error *e)
{
    const struct executor_loads o = executor_loads_of(x, source);
    const char *wanted = NULL;
    int rc = executor_run_grids(x, source, v->data, stride);

    if (rc == SW_ERR_NOMEM)
        return sw_fail(e, rc, "tensor %s: no memory to quantise it", x->sources[source].name);
    if (rc)
        wanted = sw_dtype_name(SW_F8_E4M3);
    executor_run_pieces(x, o.casts, o.n_casts, v->data, stride, &wanted);
    if (wanted)
        return sw_value_not_finite(&x->sources[source], v->data, stride, wanted, e);
    executor_count_fp8(x, &o, false);
    executor_count_loads(x, o.casts, o.n_casts);
    executor_run_pieces(x, o.copies, o.n_copies, v->data, stride, &wanted);
    return 0;
}

int sw_executor_put(
    struct sw_executor *x, uint32_t source, const struct sw_tensor *value, struct sw_error *e)
{
    const struct sw_source *s = &x->sources[source];
    uint64_t before = atomic_load(&x->put[source]);
    int64_t stride[SW_MAX_DIMS] = {0};
    const bool hold = sw_executor_holds(x, source);
    int rc = sw_value_check(s, value, stride, e);

    if (rc)
        return rc;
    if (hold && !x->maxima && x->loads->n_maxima)
        return sw_fail(
            e, SW_ERR_STATE, "tensor %s: there is no memory for its block maxima yet", s->name);
    if (before == x->round || !atomic_compare_exchange_strong(&x->put[source], &before, x->round))
        return sw_fail(e, SW_ERR_EXISTS, "tensor %s was put before in this version", s->name);
    run_checks(x, source, value, stride);
    rc = run_loads(x, source, value, stride, e);
    if (!rc && hold) {
        x->held[source].data = value->data;
        memcpy(x->held[source].stride, stride, sizeof(stride));
        atomic_store(&x->holding[source], x->round);
    }
    if (rc)
        atomic_store(&x->put[source], 0);
    return rc;
}

/* ---- block maxima of several ranks ---- */

bool sw_executor_needs_maxima(const struct sw_executor *x)
{
    return x->loads->shares;
}

bool sw_executor_holds(const struct sw_executor *x, uint32_t source)
{
    return x->loads->shares && sw_loads_shares(x->loads, source);
}

void sw_executor_set_maxima(struct sw_executor *x, float *maxima, uint64_t n)
{
    assert(n >= x->loads->n_maxima);
    x->maxima = maxima;
}

/* ---- what was put ---- */

uint32_t sw_executor_missing(const struct sw_executor *x, uint32_t *first, uint32_t max)
{
    const struct sw_loads *l = x->loads;
    uint32_t missing = 0;

    for (uint32_t s = 0; s < l->n_sources; s++) {
        if (!sw_loads_wants(l, s) || atomic_load(&x->put[s]) == x->round)
            continue;
        if (missing < max)
            first[missing] = s;
        missing++;
    }
    return missing;
}

uint64_t sw_executor_bytes(const struct sw_executor *x)
{
    return atomic_load(&x->bytes);
}

uint32_t sw_executor_digests(const struct sw_executor *x, struct sw_digest *out)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < x->loads->n_checks; c++)
        if (atomic_load(&x->put[x->loads->checks[c].source]) == x->round)
            out[n++] = x->digests[c];
    return n;
}
