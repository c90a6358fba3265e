/* SPDX-License-Identifier: Apache-2.0 */
#include "client/executor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "client/convert.h"
#include "client/fp8.h"
#include "client/pool.h"
#include "client/strided.h"
#include "client/value.h"
#include "common/error.h"

#define THREADS_MAX 64u
#define PART_MIN (256u << 10)  /* less than this is not worth waking a thread */
#define PARTS_EACH 4u          /* parts for each thread: one that comes late is not waited for */
#define FP8_PARTS_EACH 16u     /* here parts differ: panels that nobody wants are passed over */
#define UNIT_UNCUT 4096u       /* units up to this size are not split between threads */
#define STREAM_MIN (64u << 10) /* smaller results stay in a cache anyway */
#define LOADS_AT_ONCE 64u      /* loads of one source that are prepared together */

struct held { /* a value that is quantised when its maxima are final */
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
    float *maxima;             /* NULL until they were set for this version */
    uint64_t round;            /* counts versions */
    _Atomic uint64_t *put;     /* for each source: the round in which it was put last */
    struct sw_digest *digests; /* for each alias check; valid when its source was put */
    struct held *held;         /* for each source, when the program has shared grids */
    _Atomic uint64_t *holding; /* for each source: the round in which its value is held */
    _Atomic uint64_t bytes;
};

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

/* Runs a job in as many parts as its bytes are worth. */
static void in_parts(struct sw_executor *x, uint64_t bytes, uint64_t most,
    void (*run)(unsigned i, unsigned n, void *arg), void *arg)
{
    const uint64_t useful = bytes / PART_MIN, parts = useful < most ? useful : most;

    if (parts < 2 || x->threads < 2)
        run(0, 1, arg);
    else
        sw_pool_run(x->pool, (unsigned)parts, run, arg);
}

/* ---- copies, casts, zeros ---- */

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

/* The loads order[0 .. n - 1], none of FP8. *wanted: a type in which a value can't be, or NULL. */
static void run_pieces(struct sw_executor *x, const uint32_t *order, uint32_t n, const void *data,
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
        in_parts(x, job.total, (uint64_t)x->threads * PARTS_EACH, run_part, &job);
        if (atomic_load(&job.failed))
            *wanted =
                sw_dtype_name(x->loads->templates[x->loads->loads[order[first]].tmpl].dst_dtype);
        else if (job.pieces[0].transform != SW_TRANSFORM_CAST)
            atomic_fetch_add(&x->bytes, job.total);
    }
}

/* Counts loads that are done. Other threads' stores were made before: they have joined. */
static void count_loads(struct sw_executor *x, const uint32_t *order, uint32_t n)
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
    run_pieces(x, x->loads->load_order + first[0], first[1] - first[0], NULL, NULL, &wanted);
}

/* ---- FP8 ---- */

/* Loads of a source, by what is done with them. */
struct share_out {
    const uint32_t *fp8, *casts, *copies;
    uint32_t n_fp8, n_casts, n_copies;
};

static struct share_out loads_of(const struct sw_executor *x, uint32_t source)
{
    const struct sw_loads *l = x->loads;
    uint32_t at = l->first_load[source];
    const uint32_t end = l->first_load[source + 1];
    struct share_out out = {.fp8 = l->load_order + at};

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

struct fp8_job {
    const struct sw_fp8_work *work;
    _Atomic int rc;
};

static void run_panels(unsigned i, unsigned n, void *arg)
{
    struct fp8_job *job = arg;
    const uint64_t panels = job->work->panels;
    const uint64_t first = panels / n * i + (panels % n < i ? panels % n : i);
    const uint64_t last = first + panels / n + (i < panels % n);
    int rc;

    if (first == last || atomic_load_explicit(&job->rc, memory_order_relaxed))
        return;
    rc = sw_fp8_run(job->work, first, last);
    if (rc)
        atomic_store(&job->rc, rc);
}

static int run_step(struct sw_executor *x, const struct sw_fp8 *what, enum sw_fp8_step step)
{
    struct sw_fp8_work work;
    struct fp8_job job = {.work = &work};
    uint64_t most = (uint64_t)x->threads * FP8_PARTS_EACH;

    sw_fp8_plan(&work, what, step);
    if (!work.panels)
        return 0;
    most = work.panels < most ? work.panels : most;
    in_parts(x, work.bytes, most, run_panels, &job);
    return atomic_load(&job.rc);
}

/* A grid whose blocks are too large to be done at once. */
static int run_large(struct sw_executor *x, struct sw_fp8 *what)
{
    uint64_t shape[SW_MAX_DIMS], count = 0;
    int rc;

    sw_grid_shape(what->grid, what->source, shape, &count);
    what->maxima = calloc(count + 1, sizeof(*what->maxima));
    if (!what->maxima)
        return SW_ERR_NOMEM;
    rc = run_step(x, what, SW_FP8_MAXIMA);
    if (!rc)
        rc = run_step(x, what, SW_FP8_VALUES);
    free(what->maxima);
    return rc;
}

static int run_shared(struct sw_executor *x, struct sw_fp8 *what)
{
    uint64_t shape[SW_MAX_DIMS], count = 0;

    sw_grid_shape(what->grid, what->source, shape, &count);
    if (!count)
        return 0;
    what->maxima = x->maxima + what->grid->first;
    memset(what->maxima, 0, count * sizeof(*what->maxima));
    return run_step(x, what, SW_FP8_MAXIMA);
}

/* Fills in what is to be done for a grid of a source; `from`: loads before it are of grids with
 * lower numbers, and passed over. */
static struct sw_fp8 fp8_of(const struct sw_executor *x, uint32_t source, uint32_t grid,
    const void *data, const int64_t *stride, struct share_out *from)
{
    const struct sw_loads *l = x->loads;
    struct sw_fp8 f = {.loads = l,
        .source = &x->sources[source],
        .grid = &l->grids[grid],
        .data = data,
        .replica = x->data,
        .isa = sw_isa_best()};

    memcpy(f.stride, stride, sizeof(f.stride));
    while (from->n_fp8 && l->loads[*from->fp8].grid < grid) {
        from->fp8++;
        from->n_fp8--;
    }
    f.order = from->fp8;
    while (f.n < from->n_fp8 && l->loads[from->fp8[f.n]].grid == grid)
        f.n++;
    return f;
}

/* Maxima of shared grids, values and scales of the others. */
static int run_grids(
    struct sw_executor *x, uint32_t source, const void *data, const int64_t *stride)
{
    const struct sw_loads *l = x->loads;
    struct share_out from = loads_of(x, source);
    int rc = 0;

    for (uint32_t i = l->first_grid[source]; i < l->first_grid[source + 1] && !rc; i++) {
        struct sw_fp8 f = fp8_of(x, source, l->grid_order[i], data, stride, &from);

        if (f.grid->shared)
            rc = run_shared(x, &f);
        else if (sw_fp8_at_once(f.source, f.grid))
            rc = run_step(x, &f, SW_FP8_AT_ONCE);
        else
            rc = run_large(x, &f);
    }
    return rc;
}

/* Counts the FP8 loads of a source whose grids are shared, or those of its others. */
static void count_fp8(struct sw_executor *x, const struct share_out *o, bool shared)
{
    for (uint32_t i = 0; i < o->n_fp8; i++)
        if (x->loads->grids[x->loads->loads[o->fp8[i]].grid].shared == shared)
            count_loads(x, &o->fp8[i], 1);
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
    const struct share_out o = loads_of(x, source);
    const char *wanted = NULL;
    int rc = run_grids(x, source, v->data, stride);

    if (rc == SW_ERR_NOMEM)
        return sw_fail(e, rc, "tensor %s: no memory to quantise it", x->sources[source].name);
    if (rc)
        wanted = sw_dtype_name(SW_F8_E4M3);
    run_pieces(x, o.casts, o.n_casts, v->data, stride, &wanted);
    if (wanted)
        return sw_value_not_finite(&x->sources[source], v->data, stride, wanted, e);
    count_fp8(x, &o, false);
    count_loads(x, o.casts, o.n_casts);
    run_pieces(x, o.copies, o.n_copies, v->data, stride, &wanted);
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

struct finish { /* shared grids of values that are held, one after another */
    struct sw_executor *x;
    uint32_t n, room;
    struct finish_item {
        uint32_t source, grid;
        uint64_t first; /* panel, counted over all */
    } * items;
    uint64_t panels, bytes;
    _Atomic int rc;
    _Atomic uint32_t culprit; /* source of a maximum that is no number */
};

static void plan_item(
    const struct finish *f, const struct finish_item *item, struct sw_fp8_work *work)
{
    const struct sw_executor *x = f->x;
    const struct held *h = &x->held[item->source];
    struct share_out from = loads_of(x, item->source);
    struct sw_fp8 what = fp8_of(x, item->source, item->grid, h->data, h->stride, &from);

    what.maxima = x->maxima + what.grid->first;
    sw_fp8_plan(work, &what, SW_FP8_VALUES);
}

/* The last item that begins at or before a panel. */
static uint32_t item_at(const struct finish *f, uint64_t panel)
{
    uint32_t low = 0, high = f->n;

    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (f->items[middle].first <= panel)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void finish_part(unsigned i, unsigned n, void *arg)
{
    struct finish *f = arg;
    uint64_t at = f->panels / n * i;
    const uint64_t last = i + 1 == n ? f->panels : f->panels / n * (i + 1);

    for (uint32_t k = item_at(f, at); at < last; k++) {
        const uint64_t first = f->items[k].first;
        struct sw_fp8_work work;
        uint64_t end;
        int rc;

        if (atomic_load_explicit(&f->rc, memory_order_relaxed))
            return;
        plan_item(f, &f->items[k], &work);
        end = first + work.panels < last ? first + work.panels : last;
        rc = sw_fp8_run(&work, at - first, end - first);
        if (rc) {
            atomic_store(&f->culprit, f->items[k].source);
            atomic_store(&f->rc, rc);
        }
        at = end;
    }
}

static int add_item(struct finish *f, uint32_t source, uint32_t grid)
{
    struct finish_item *item;
    struct sw_fp8_work work;

    if (f->n == f->room) {
        const uint32_t room = f->room ? f->room * 2 : 64;
        void *bigger = realloc(f->items, room * sizeof(*f->items));

        if (!bigger)
            return SW_ERR_NOMEM;
        f->items = bigger;
        f->room = room;
    }
    item = &f->items[f->n];
    *item = (struct finish_item){source, grid, f->panels};
    plan_item(f, item, &work);
    if (work.panels) /* else another rank has the same rows, and they are its */
        f->n++;
    f->panels += work.panels;
    f->bytes += work.bytes;
    return 0;
}

static int find_held(struct finish *f)
{
    const struct sw_executor *x = f->x;
    const struct sw_loads *l = x->loads;
    int rc = 0;

    for (uint32_t s = 0; s < l->n_sources && !rc; s++) {
        if (atomic_load(&x->holding[s]) != x->round)
            continue;
        for (uint32_t i = l->first_grid[s]; i < l->first_grid[s + 1] && !rc; i++)
            if (l->grids[l->grid_order[i]].shared)
                rc = add_item(f, s, l->grid_order[i]);
    }
    return rc;
}

static void count_held(struct sw_executor *x)
{
    for (uint32_t s = 0; s < x->loads->n_sources; s++) {
        struct share_out o;

        if (atomic_load(&x->holding[s]) != x->round)
            continue;
        o = loads_of(x, s);
        count_fp8(x, &o, true);
        atomic_store(&x->holding[s], 0);
    }
}

int sw_executor_finish(struct sw_executor *x, struct sw_error *e)
{
    struct finish f = {.x = x};
    int rc = x->loads->shares ? find_held(&f) : 0;

    if (!rc && f.panels) {
        in_parts(x, f.bytes, (uint64_t)x->threads * FP8_PARTS_EACH, finish_part, &f);
        rc = atomic_load(&f.rc);
    }
    free(f.items);
    if (rc == SW_ERR_NOMEM)
        return sw_fail(e, rc, "no memory to quantise what was held until the end");
    if (rc)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "tensor %s: a block maximum that came back from trainerd is no number, or negative",
            x->sources[atomic_load(&f.culprit)].name);
    if (x->loads->shares)
        count_held(x);
    return 0;
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
