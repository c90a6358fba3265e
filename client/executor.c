/* SPDX-License-Identifier: Apache-2.0 */
#include "client/executor.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "client/pool.h"
#include "client/strided.h"
#include "common/error.h"

#define THREADS_MAX 64u
#define PART_MIN (256u << 10) /* less than this is not worth waking a thread */
#define PARTS_EACH 4u         /* parts for each thread: one that comes late is not waited for */
#define UNIT_UNCUT 4096u      /* units up to this size are not split between threads */
#define REACH_MAX (1ll << 60) /* how far strides may lead: sums of such numbers are safe */
#define LOADS_AT_ONCE 64u     /* loads of one source that are prepared together */

struct sw_executor {
    const struct sw_loads *loads;
    const struct sw_source *sources;
    unsigned threads;
    struct sw_pool *pool;
    char *data;
    uint64_t *counters;
    uint64_t round;            /* counts versions */
    _Atomic uint64_t *put;     /* for each source: the round in which it was put last */
    struct sw_digest *digests; /* for each alias check; valid when its source was put */
    _Atomic uint64_t bytes;
};

struct sw_executor *sw_executor_new(
    const struct sw_loads *loads, const struct sw_source *sources, unsigned threads)
{
    struct sw_executor *x = calloc(1, sizeof(*x));

    if (!x)
        return NULL;
    x->loads = loads;
    x->sources = sources;
    x->threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    x->put = calloc(loads->n_sources + 1ull, sizeof(*x->put));
    x->digests = calloc(loads->n_checks + 1ull, sizeof(*x->digests));
    x->pool = sw_pool_new(x->threads);
    if (!x->put || !x->digests || !x->pool) {
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
    free(x);
}

void sw_executor_begin(struct sw_executor *x, void *data, uint64_t *counters)
{
    x->data = data;
    x->counters = counters;
    x->round++;
    atomic_store(&x->bytes, 0);
}

/* ---- the value ---- */

/* Byte strides of a dense box. */
static void dense_strides(unsigned bits, const struct sw_box *box, int64_t *stride)
{
    uint64_t elements = 1;

    for (uint32_t d = box->ndim; d-- > 0;) {
        stride[d] = (int64_t)(elements * bits / 8);
        elements *= box->len[d];
    }
}

/* Byte strides of a value that has its own. Dimensions of one element have none. */
static int own_strides(const struct sw_source *s, unsigned bits, const struct sw_tensor *v,
    int64_t *stride, struct sw_error *e)
{
    int64_t low = 0, high = 0, step;
    const uint32_t last = s->ndim - 1;

    for (uint32_t d = 0; d < s->ndim; d++) {
        const int64_t given = v->strides[d];

        stride[d] = 0;
        if (s->box.len[d] <= 1)
            continue;
        if (bits % 8 && d == last && given != 1)
            return sw_fail(e, SW_ERR_UNSUPPORTED,
                "tensor %s: stride %" PRId64 " of the last dimension; elements of %u bits must lie "
                "side by side there",
                s->name, given, bits);
        if (__builtin_mul_overflow(given, (int64_t)bits, &stride[d]) ||
            (stride[d] % 8 && d != last) ||
            __builtin_mul_overflow((int64_t)(s->box.len[d] - 1), stride[d] / 8, &step) ||
            step > REACH_MAX - high || step < -REACH_MAX - low)
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s: stride %" PRId64 " of dimension %u leads out of any memory, or into "
                "the middle of a byte",
                s->name, given, d);
        stride[d] /= 8;
        high += step > 0 ? step : 0;
        low += step < 0 ? step : 0;
    }
    return 0;
}

static int shape_differs(const struct sw_source *s, const struct sw_tensor *v, struct sw_error *e)
{
    for (uint32_t d = 0; d < s->ndim; d++)
        if (v->shape[d] != s->box.len[d])
            return sw_fail(e, SW_ERR_INVALID,
                "tensor %s: dimension %u has %" PRIu64 " elements; %" PRIu64 " were declared",
                s->name, d, v->shape[d], s->box.len[d]);
    return 0;
}

/* Checks a value against the declared box; its strides in bytes come out. */
static int check_value(
    const struct sw_source *s, const struct sw_tensor *v, int64_t *stride, struct sw_error *e)
{
    const unsigned bits = sw_dtype_bits(s->dtype);
    uint64_t bytes = 0;
    int rc;

    if (v->device == SW_DEVICE_CUDA)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "tensor %s is on CUDA device %d; this version takes values in host memory: copy it "
            "there",
            s->name, v->device_index);
    if (v->device != SW_DEVICE_CPU)
        return sw_fail(
            e, SW_ERR_INVALID, "tensor %s: there is no device type %d", s->name, (int)v->device);
    if (v->dtype != s->dtype)
        return sw_fail(e, SW_ERR_INVALID, "tensor %s has dtype %s; %s was declared", s->name,
            sw_dtype_name(v->dtype), sw_dtype_name(s->dtype));
    if (v->ndim != s->ndim)
        return sw_fail(e, SW_ERR_INVALID, "tensor %s has %u dimensions; %u were declared", s->name,
            v->ndim, s->ndim);
    rc = shape_differs(s, v, e);
    if (rc)
        return rc;
    if (sw_tensor_bytes(s->dtype, s->ndim, s->box.len, &bytes) || (bytes && !v->data))
        return sw_fail(
            e, SW_ERR_INVALID, "tensor %s: data is NULL, for %" PRIu64 " bytes", s->name, bytes);
    if (v->has_strides && bytes)
        return own_strides(s, bits, v, stride, e);
    dense_strides(bits, &s->box, stride);
    return 0;
}

/* ---- copying ---- */

struct piece { /* a load, ready to run */
    struct sw_strided walk;
    const char *src;
    char *dst;
    uint32_t tile;
};

struct job {
    struct sw_executor *x;
    uint32_t n;
    uint64_t total;
    struct piece pieces[LOADS_AT_ONCE];
};

static void make_piece(const struct sw_executor *x, const struct sw_load *load,
    const struct sw_tensor *v, const int64_t *stride, struct piece *out)
{
    const struct sw_load_template *t = &x->loads->templates[load->tmpl];
    const struct sw_tile *tile = &x->loads->tiles[load->tile];
    const unsigned bits = sw_dtype_bits(t->src_dtype);
    int64_t dst_stride[SW_MAX_DIMS], at = 0;

    for (uint32_t d = 0; d < t->ndim; d++)
        dst_stride[d] = (int64_t)t->dst_stride[d];
    *out = (struct piece){.tile = load->tile};
    out->walk = sw_strided_make(bits, t->ndim, t->len, stride, dst_stride);
    if (!out->walk.total) /* there may be no data at all, and strides are not bounded */
        return;
    for (uint32_t d = 0; d < t->ndim; d++) {
        const bool packed = bits % 8 && d == t->ndim - 1;

        at += packed ? (int64_t)(t->lo[d] * bits / 8) : (int64_t)t->lo[d] * stride[d];
    }
    out->src = (const char *)v->data + at;
    out->dst = x->data + tile->offset + load->offset;
}

/* Part i of n begins at this byte of a piece that lies at [start, start + total) of the job. */
static uint64_t cut(const struct piece *p, uint64_t start, uint64_t position)
{
    const uint64_t unit = p->walk.unit;
    uint64_t at = position > start ? position - start : 0;

    if (at >= p->walk.total)
        return p->walk.total;
    return at - at % (unit <= UNIT_UNCUT ? unit : 64);
}

/* Each part counts what it placed itself: the release orders its own stores before its count. */
static void run_part(unsigned i, unsigned n, void *arg)
{
    const struct job *job = arg;
    const uint64_t step = job->total / n;
    const uint64_t first = step * i, last = i + 1 == n ? job->total : step * (i + 1);
    uint64_t start = 0;

    for (uint32_t k = 0; k < job->n; k++) {
        const struct piece *p = &job->pieces[k];
        const uint64_t from = cut(p, start, first), to = cut(p, start, last);

        if (from < to) {
            sw_strided_copy(&p->walk, p->dst, p->src, from, to);
            __atomic_fetch_add(&job->x->counters[p->tile], to - from, __ATOMIC_RELEASE);
        }
        start += p->walk.total;
    }
}

static void run_job(struct job *job)
{
    const uint64_t useful = job->total / PART_MIN;
    const unsigned threads = job->x->threads, most = threads * PARTS_EACH;

    if (useful < 2 || threads < 2)
        run_part(0, 1, job);
    else
        sw_pool_run(job->x->pool, useful < most ? (unsigned)useful : most, run_part, job);
    atomic_fetch_add(&job->x->bytes, job->total);
}

static void run_loads(
    struct sw_executor *x, uint32_t source, const struct sw_tensor *v, const int64_t *stride)
{
    const uint32_t end = x->loads->first_load[source + 1];
    uint32_t at = x->loads->first_load[source];
    struct job job;

    while (at < end) {
        job.x = x;
        job.n = 0;
        job.total = 0;
        for (; at < end && job.n < LOADS_AT_ONCE; at++) {
            struct piece *p = &job.pieces[job.n++];

            make_piece(x, &x->loads->loads[x->loads->load_order[at]], v, stride, p);
            job.total += p->walk.total;
        }
        run_job(&job);
    }
}

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

int sw_executor_put(
    struct sw_executor *x, uint32_t source, const struct sw_tensor *value, struct sw_error *e)
{
    const struct sw_source *s = &x->sources[source];
    uint64_t before = atomic_load(&x->put[source]);
    int64_t stride[SW_MAX_DIMS] = {0};
    int rc = check_value(s, value, stride, e);

    if (rc)
        return rc;
    if (before == x->round || !atomic_compare_exchange_strong(&x->put[source], &before, x->round))
        return sw_fail(e, SW_ERR_EXISTS, "tensor %s was put before in this version", s->name);
    run_checks(x, source, value, stride);
    run_loads(x, source, value, stride);
    return 0;
}

/* ---- what was put ---- */

uint32_t sw_executor_missing(const struct sw_executor *x, uint32_t *first, uint32_t max)
{
    const struct sw_loads *l = x->loads;
    uint32_t missing = 0;

    for (uint32_t s = 0; s < l->n_sources; s++) {
        const bool wanted =
            l->first_load[s] != l->first_load[s + 1] || l->first_check[s] != l->first_check[s + 1];

        if (!wanted || atomic_load(&x->put[s]) == x->round)
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
