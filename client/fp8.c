/* SPDX-License-Identifier: Apache-2.0 */
#include "client/fp8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "client/quantise.h"
#include "client/strided.h"

#define STREAM_MIN (64u << 10) /* smaller results stay in a cache anyway */
#define SCATTER 256u           /* results that don't lie side by side are made so many at a time */

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct place { /* of a panel, in the box */
    uint64_t outer[SW_MAX_DIMS];
    uint64_t row[2], column[2]; /* from, to */
    uint64_t block_row, block;  /* its first block */
    uint64_t number;            /* of the outer indices */
};

struct worker {
    const struct sw_fp8_work *w;
    const struct sw_quantiser *q;
    char *gather;     /* room for a panel whose columns don't lie side by side; NULL: they do */
    uint32_t *active; /* loads that may want something at these outer indices */
    uint32_t n_active;
    uint64_t active_for; /* number of the outer indices, + 1 */
    struct place at;
    struct sw_panel panel;
    bool known; /* amax is this panel's: found together with the values of the one before */
    float amax[SW_PANEL_BLOCKS], inverse[SW_PANEL_BLOCKS], scale[SW_PANEL_BLOCKS];
};

static struct place place_of(const struct sw_fp8_work *w, uint64_t i)
{
    struct place p = {.number = i / (w->rows.n * w->columns.n)};
    uint64_t rest = p.number;

    sw_fp8_piece(&w->columns, i % w->columns.n, &p.column[0], &p.column[1]);
    sw_fp8_piece(&w->rows, i / w->columns.n % w->rows.n, &p.row[0], &p.row[1]);
    for (uint32_t d = w->outer; d-- > 0; rest /= w->len[d])
        p.outer[d] = w->lo[d] + rest % w->len[d];
    p.block_row = (w->rows.axis.phase + p.row[0]) / w->rows.axis.block;
    p.block = (w->columns.axis.phase + p.column[0]) / w->columns.axis.block;
    return p;
}

static const char *source_of(const struct sw_fp8_work *w, const struct place *p)
{
    int64_t at = (int64_t)p->row[0] * w->row_stride + (int64_t)p->column[0] * w->column_stride;

    for (uint32_t d = 0; d < w->outer; d++)
        at += (int64_t)p->outer[d] * w->what.stride[d];
    return (const char *)w->what.data + at;
}

/* Columns from here to the end of their block. */
static uint64_t left_of_block(const struct sw_fp8_work *w, uint64_t column)
{
    const struct sw_grid_axis *a = &w->columns.axis;

    return a->block - (a->phase + column) % a->block;
}

static bool same_shape(const struct sw_fp8_work *w, const struct place *a, const struct place *b)
{
    return a->row[1] - a->row[0] == b->row[1] - b->row[0] &&
           a->column[1] - a->column[0] == b->column[1] - b->column[0] &&
           left_of_block(w, a->column[0]) == left_of_block(w, b->column[0]);
}

/* `next`: the place that comes after this one, or NULL. */
static void find_panel(struct worker *k, const struct place *next)
{
    const struct sw_fp8_work *w = k->w;
    const struct place *p = &k->at;

    k->panel = (struct sw_panel){.src = source_of(w, p),
        .stride = w->row_stride,
        .rows = p->row[1] - p->row[0],
        .columns = p->column[1] - p->column[0],
        .first = left_of_block(w, p->column[0]),
        .block = w->columns.axis.block};
    if (k->gather) {
        const uint64_t len[2] = {k->panel.rows, k->panel.columns};
        const int64_t src[2] = {w->row_stride, w->column_stride};
        const int64_t dst[2] = {(int64_t)(k->panel.columns * w->size), w->size};
        const struct sw_strided walk = sw_strided_make(w->size * 8, 2, len, src, dst);

        sw_strided_copy(&walk, k->gather, k->panel.src, 0, walk.total);
        k->panel.src = k->gather;
        k->panel.stride = dst[0];
    } else if (next && same_shape(w, p, next)) {
        k->panel.next = source_of(w, next);
    }
}

static const struct sw_load_template *template_of(const struct sw_fp8 *f, uint32_t load)
{
    return &f->loads->templates[f->loads->loads[load].tmpl];
}

/* Loads that have these outer indices: many experts in one tensor are many loads. */
static void choose_loads(struct worker *k)
{
    const struct sw_fp8 *f = &k->w->what;

    if (k->active_for == k->at.number + 1)
        return;
    k->active_for = k->at.number + 1;
    k->n_active = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct sw_load_template *t = template_of(f, f->order[i]);
        bool inside = true;

        for (uint32_t d = 0; d < k->w->outer && inside; d++)
            inside = k->at.outer[d] >= t->lo[d] && k->at.outer[d] - t->lo[d] < t->len[d];
        if (inside)
            k->active[k->n_active++] = f->order[i];
    }
}

/* The part of [from, to) that a template has in dimension d. */
static bool overlap(const struct sw_load_template *t, uint32_t d, const uint64_t *range,
    uint64_t *from, uint64_t *to)
{
    *from = range[0] > t->lo[d] ? range[0] : t->lo[d];
    *to = min_of(range[1], t->lo[d] + t->len[d]);
    return *from < *to;
}

/* Where the outer indices lead in a load's tile. */
static char *tile_of(const struct worker *k, uint32_t load, const struct sw_load_template *t)
{
    const struct sw_fp8 *f = &k->w->what;
    const struct sw_load *l = &f->loads->loads[load];
    uint64_t at = f->loads->tiles[l->tile].offset + l->offset;

    for (uint32_t d = 0; d < k->w->outer; d++)
        at += (k->at.outer[d] - t->lo[d]) * t->dst_stride[d];
    return f->replica + at;
}

/* ---- values and scales of a panel ---- */

static void scatter_values(const struct worker *k, struct sw_panel p, const float *inverse,
    char *dst, uint64_t row_stride, uint64_t column_stride)
{
    const uint64_t columns = p.columns, rows = p.rows;
    const char *src = p.src;
    char out[SCATTER];

    p.next = NULL;
    p.rows = 1;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c += p.columns) {
            const uint64_t into = c < p.first ? 0 : (c - p.first) % p.block;
            struct sw_panel part = p;
            uint32_t b = c < p.first ? 0 : (uint32_t)(1 + (c - p.first) / p.block);

            part.src = src + (int64_t)r * p.stride + (int64_t)(c * k->w->size);
            part.columns = p.columns = min_of(SCATTER, columns - c);
            part.first = c < p.first ? p.first - c : p.block - into;
            k->q->values(&part, inverse + b, out, 0, false, NULL);
            for (uint64_t i = 0; i < part.columns; i++)
                dst[r * row_stride + (c + i) * column_stride] = out[i];
        }
}

/* False: the next panel's maxima were found meanwhile, and are not finite. */
static bool put_values(struct worker *k, uint32_t load, const struct sw_load_template *t)
{
    const struct sw_fp8_work *w = k->w;
    const uint32_t ndim = w->what.source->ndim, last = ndim - 1;
    const uint64_t row_stride = ndim > 1 ? t->dst_stride[last - 1] : 0;
    uint64_t row = 0, row_end = 1, column, column_end, row_lo = 0;
    struct sw_panel p = k->panel;
    const float *inverse = k->inverse;
    bool stream;
    int64_t into;
    char *dst;

    if (!overlap(t, last, k->at.column, &column, &column_end) ||
        (ndim > 1 && !overlap(t, last - 1, k->at.row, &row, &row_end)))
        return true;
    row_lo = ndim > 1 ? t->lo[last - 1] : 0;
    dst = tile_of(k, load, t) + (row - row_lo) * row_stride +
          (column - t->lo[last]) * t->dst_stride[last];
    into =
        (int64_t)(row - k->at.row[0]) * p.stride + (int64_t)((column - k->at.column[0]) * w->size);
    p.src += into;
    p.rows = row_end - row;
    p.columns = column_end - column;
    p.first = left_of_block(w, column);
    inverse += (w->columns.axis.phase + column) / p.block - k->at.block;
    stream = w->what.loads->load_bytes[w->what.loads->loads[load].tmpl] >= STREAM_MIN;
    if (t->dst_stride[last] != 1 && p.columns > 1) {
        scatter_values(k, p, inverse, dst, row_stride, t->dst_stride[last]);
        return true;
    }
    k->panel.next = NULL; /* once is enough */
    if (p.rows != k->panel.rows || p.columns != k->panel.columns || w->step != SW_FP8_AT_ONCE) {
        p.next = p.next ? p.next + into : NULL;
        return k->q->values(&p, inverse, dst, (int64_t)row_stride, stream, NULL);
    }
    k->known = p.next != NULL;
    return k->q->values(&p, inverse, dst, (int64_t)row_stride, stream, k->amax);
}

/* Scales of the blocks that begin in this panel, or before the box and go on in it. */
static void put_scales(const struct worker *k, uint32_t load, const struct sw_load_template *t)
{
    const struct sw_fp8_work *w = k->w;
    const uint32_t ndim = w->what.source->ndim, last = ndim - 1, n = sw_panel_blocks(&k->panel);
    const uint64_t blocks[2] = {k->at.block, k->at.block + n};
    const uint64_t block_rows[2] = {k->at.block_row, k->at.block_row + 1};
    uint64_t from, to, row = 0, row_end;
    char *dst;

    if (k->at.row[0] && (w->rows.axis.phase + k->at.row[0]) % w->rows.axis.block)
        return;
    if (!overlap(t, last, blocks, &from, &to) ||
        (ndim > 1 && !overlap(t, last - 1, block_rows, &row, &row_end)))
        return;
    if (from == k->at.block && k->at.column[0] &&
        (w->columns.axis.phase + k->at.column[0]) % w->columns.axis.block)
        from++;
    dst = tile_of(k, load, t);
    if (ndim > 1)
        dst += (row - t->lo[last - 1]) * t->dst_stride[last - 1];
    for (uint64_t b = from; b < to; b++) {
        const float scale = k->scale[b - k->at.block];
        char *place = dst + (b - t->lo[last]) * t->dst_stride[last];

        if (t->dst_dtype == SW_F8_E8M0)
            *place = (char)sw_scale_e8m0(scale);
        else
            memcpy(place, &scale, sizeof(scale));
    }
}

/* ---- maxima ---- */

static uint64_t maximum_at(const struct worker *k)
{
    const struct sw_fp8_work *w = k->w;
    uint64_t at = 0;

    for (uint32_t d = 0; d < w->outer; d++)
        at = at * w->what.source->box.len[d] + k->at.outer[d];
    return (at * w->rows.axis.blocks + k->at.block_row) * w->columns.axis.blocks + k->at.block;
}

/* Other threads may have other parts of the same block. Not negative, so that bits are ordered. */
static void raise_maximum(float *maximum, float by)
{
    uint32_t *at = (uint32_t *)(void *)maximum, before, wanted_bits;

    memcpy(&wanted_bits, &by, sizeof(wanted_bits));
    before = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (before < wanted_bits && !__atomic_compare_exchange_n(at, &before, wanted_bits, true,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Scales by the maxima, from wherever they come. */
static bool find_scales(struct worker *k, const float *maxima)
{
    const uint32_t n = sw_panel_blocks(&k->panel);

    for (uint32_t b = 0; b < n; b++) {
        const float amax = maxima[b];

        if (!isfinite(amax) || amax < 0)
            return false;
        k->scale[b] = sw_scale_of(k->w->what.grid->scale, amax);
        k->inverse[b] = 1.0f / k->scale[b];
    }
    return true;
}

static int run_panel(struct worker *k)
{
    const enum sw_fp8_step step = k->w->step;
    float *maxima = k->w->what.maxima ? k->w->what.maxima + maximum_at(k) : k->amax;

    if (step != SW_FP8_VALUES && !k->known && !k->q->maxima(&k->panel, k->amax))
        return SW_ERR_INVALID;
    if (step == SW_FP8_MAXIMA) {
        for (uint32_t b = 0; b < sw_panel_blocks(&k->panel); b++)
            raise_maximum(&maxima[b], k->amax[b]);
        return 0;
    }
    if (!find_scales(k, maxima))
        return SW_ERR_INVALID;
    k->known = false;
    for (uint32_t i = 0; i < k->n_active; i++) {
        const struct sw_load_template *t = template_of(&k->w->what, k->active[i]);

        if (t->transform == SW_TRANSFORM_FP8_SCALES)
            put_scales(k, k->active[i], t);
        else if (!put_values(k, k->active[i], t))
            return SW_ERR_INVALID;
    }
    return 0;
}

/* Whether a load wants something of the panel. */
static bool panel_wanted(const struct worker *k)
{
    const struct sw_fp8_work *w = k->w;
    const uint32_t ndim = w->what.source->ndim, last = ndim - 1;
    const uint64_t block_columns[2] = {
        k->at.block, 1 + (w->columns.axis.phase + k->at.column[1] - 1) / w->columns.axis.block};
    const uint64_t block_rows[2] = {k->at.block_row, k->at.block_row + 1};
    uint64_t from, to;

    if (w->step == SW_FP8_MAXIMA && w->what.grid->shared)
        return true;
    for (uint32_t i = 0; i < k->n_active; i++) {
        const struct sw_load_template *t = template_of(&w->what, k->active[i]);
        const bool scales = t->transform == SW_TRANSFORM_FP8_SCALES;

        /* Maxima are of whole blocks, values of what is taken of them. */
        if (w->step == SW_FP8_MAXIMA && !scales)
            return true;
        if (overlap(t, last, scales ? block_columns : k->at.column, &from, &to) &&
            (ndim < 2 || overlap(t, last - 1, scales ? block_rows : k->at.row, &from, &to)))
            return true;
    }
    return false;
}

/* The first panel from here on that is wanted, which the worker goes to; `last`: none. */
static uint64_t next_wanted(struct worker *k, uint64_t i, uint64_t last)
{
    for (; i < last; i++) {
        k->at = place_of(k->w, i);
        choose_loads(k);
        if (panel_wanted(k))
            break;
    }
    return i;
}

static int start_worker(struct worker *k, const struct sw_fp8_work *w)
{
    const bool apart = w->column_stride != (int64_t)w->size && w->columns.axis.length > 1;

    *k = (struct worker){.w = w, .q = sw_quantiser_find(w->what.isa, w->what.source->dtype)};
    k->active = malloc((w->what.n + 1ull) * sizeof(*k->active));
    if (apart)
        k->gather = malloc(SW_FP8_BLOCK_BYTES);
    return k->active && (k->gather || !apart) ? 0 : SW_ERR_NOMEM;
}

int sw_fp8_run(const struct sw_fp8_work *w, uint64_t first, uint64_t last)
{
    const int rounding = sw_quantise_enter();
    struct worker k;
    int rc = start_worker(&k, w);

    for (uint64_t i = next_wanted(&k, first, last); i < last && !rc;) {
        const struct place at = k.at;
        const uint64_t next = next_wanted(&k, i + 1, last);
        const struct place after = k.at;

        k.at = at;
        choose_loads(&k);
        find_panel(&k, next < last ? &after : NULL);
        rc = run_panel(&k);
        k.at = after;
        choose_loads(&k);
        i = next;
    }
    free(k.active);
    free(k.gather);
    sw_isa_fence();
    sw_quantise_leave(rounding);
    return rc;
}
