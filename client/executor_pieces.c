/* SPDX-License-Identifier: Apache-2.0 */
#include "client/convert.h"
#include "client/executor_impl.h"
#include "client/isa.h"
#include "client/strided.h"

#define PARTS_EACH 4u          /* parts for each thread: one that comes late is not waited for */
#define UNIT_UNCUT 4096u       /* units up to this size are not split between threads */
#define STREAM_MIN (64u << 10) /* smaller results stay in a cache anyway */
#define LOADS_AT_ONCE 64u      /* loads of one source that are prepared together */

struct piece { /* a load, ready to run */
    enum sw_transform transform;
    struct sw_strided walk; /* of a copy, or of zeros */
    struct sw_convert cast;
    uint64_t total; /* final bytes */
    const char *src;
    char *dst;
    uint32_t tile;
};

struct job {
    struct sw_executor *x;
    uint32_t n;
    uint64_t total;
    _Atomic int failed; /* something was not finite */
    struct piece pieces[LOADS_AT_ONCE];
};

static void make_piece(const struct sw_executor *x, const struct sw_load *load, const void *data,
    const int64_t *stride, struct piece *out)
{
    const struct sw_load_template *t = &x->loads->templates[load->tmpl];
    const struct sw_tile *tile = &x->loads->tiles[load->tile];
    const unsigned bits = sw_dtype_bits(t->dst_dtype);
    int64_t dst_stride[SW_MAX_DIMS], at = 0;

    for (uint32_t d = 0; d < t->ndim; d++)
        dst_stride[d] = (int64_t)t->dst_stride[d];
    *out = (struct piece){
        .transform = t->transform, .tile = load->tile, .total = x->loads->load_bytes[load->tmpl]};
    if (!out->total) /* there may be no data at all, and strides are not bounded */
        return;
    out->dst = x->data + tile->offset + load->offset;
    if (t->transform == SW_TRANSFORM_CAST)
        out->cast =
            sw_convert_make(t->src_dtype, t->dst_dtype, t->ndim, t->len, stride, dst_stride);
    else
        out->walk = sw_strided_make(bits, t->ndim, t->len,
            t->transform == SW_TRANSFORM_ZERO ? dst_stride : stride, dst_stride);
    if (t->transform == SW_TRANSFORM_ZERO)
        return;
    for (uint32_t d = 0; d < t->ndim; d++) {
        const bool packed = bits % 8 && d == t->ndim - 1;

        at += packed ? (int64_t)(t->lo[d] * bits / 8) : (int64_t)t->lo[d] * stride[d];
    }
    out->src = (const char *)data + at;
}

/* Part i of n begins at this byte of a piece that lies at [start, start + total) of the job. */
static uint64_t cut(const struct piece *p, uint64_t start, uint64_t position)
{
    const uint64_t unit = p->transform == SW_TRANSFORM_CAST ? 64 : p->walk.unit;
    uint64_t at = position > start ? position - start : 0;

    if (at >= p->total)
        return p->total;
    return at - at % (unit <= UNIT_UNCUT ? unit : 64);
}

static bool run_piece(const struct piece *p, uint64_t from, uint64_t to)
{
    const unsigned size = p->cast.dst_size;

    switch (p->transform) {
    case SW_TRANSFORM_CAST: {
        const bool finite = sw_convert_run(
            &p->cast, p->dst, p->src, from / size, to / size, p->total >= STREAM_MIN);

        sw_isa_fence();
        return finite || size == 4; /* F32 keeps what there is */
    }
    case SW_TRANSFORM_ZERO:
        sw_strided_zero(&p->walk, p->dst, from, to);
        return true;
    default:
        sw_strided_copy(&p->walk, p->dst, p->src, from, to);
        return true;
    }
}

/* Each part of a copy counts what it placed itself: the release orders its own stores before its
 * count. Casts are counted when all of them went well. */
static void run_part(unsigned i, unsigned n, void *arg)
{
    struct job *job = arg;
    const uint64_t step = job->total / n;
    const uint64_t first = step * i, last = i + 1 == n ? job->total : step * (i + 1);
    uint64_t start = 0;

    for (uint32_t k = 0; k < job->n; k++) {
        const struct piece *p = &job->pieces[k];
        const uint64_t from = cut(p, start, first), to = cut(p, start, last);

        start += p->total;
        if (from >= to)
            continue;
        if (!run_piece(p, from, to))
            atomic_store_explicit(&job->failed, 1, memory_order_relaxed);
        if (p->transform != SW_TRANSFORM_CAST)
            __atomic_fetch_add(&job->x->counters[p->tile], to - from, __ATOMIC_RELEASE);
    }
}

void executor_run_pieces(struct sw_executor *x, const uint32_t *order, uint32_t n, const void *data,
    const int64_t *stride, const char **wanted)
{
    struct job job;

    for (uint32_t at = 0; at < n && !*wanted;) {
        const uint32_t first = at;

        job.x = x;
        job.n = 0;
        job.total = 0;
        atomic_init(&job.failed, 0);
        for (; at < n && job.n < LOADS_AT_ONCE; at++) {
            struct piece *p = &job.pieces[job.n++];

            make_piece(x, &x->loads->loads[order[at]], data, stride, p);
            job.total += p->total;
        }
        executor_in_parts(x, job.total, PARTS_EACH, run_part, &job);
        if (atomic_load(&job.failed))
            *wanted =
                sw_dtype_name(x->loads->templates[x->loads->loads[order[first]].tmpl].dst_dtype);
        else if (job.pieces[0].transform != SW_TRANSFORM_CAST)
            atomic_fetch_add(&x->bytes, job.total);
    }
}
