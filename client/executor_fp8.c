/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "client/executor_impl.h"
#include "client/fp8.h"
#include "common/error.h"

#define PARTS_EACH 16u /* for each thread; parts differ: unwanted panels are passed over */

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

    sw_fp8_plan(&work, what, step);
    if (!work.panels)
        return 0;
    executor_in_parts(x, work.bytes, PARTS_EACH, run_panels, &job);
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
    const void *data, const int64_t *stride, struct executor_loads *from)
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

int executor_run_grids(
    struct sw_executor *x, uint32_t source, const void *data, const int64_t *stride)
{
    const struct sw_loads *l = x->loads;
    struct executor_loads from = executor_loads_of(x, source);
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

void executor_count_fp8(struct sw_executor *x, const struct executor_loads *o, bool shared)
{
    for (uint32_t i = 0; i < o->n_fp8; i++)
        if (x->loads->grids[x->loads->loads[o->fp8[i]].grid].shared == shared)
            executor_count_loads(x, &o->fp8[i], 1);
}

/* ---- at the end ---- */

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
    const struct executor_held *h = &x->held[item->source];
    struct executor_loads from = executor_loads_of(x, item->source);
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
        struct executor_loads o;

        if (atomic_load(&x->holding[s]) != x->round)
            continue;
        o = executor_loads_of(x, s);
        executor_count_fp8(x, &o, true);
        atomic_store(&x->holding[s], 0);
    }
}

int sw_executor_finish(struct sw_executor *x, struct sw_error *e)
{
    struct finish f = {.x = x};
    int rc = x->loads->shares ? find_held(&f) : 0;

    if (!rc && f.panels) {
        executor_in_parts(x, f.bytes, PARTS_EACH, finish_part, &f);
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
