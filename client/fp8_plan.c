/* SPDX-License-Identifier: Apache-2.0 */
#include "client/fp8.h"

#include <string.h>
#include "client/quantise.h"

#define PANEL_BYTES (128u << 10) /* of the source: two of them fit in a cache */
#define ROWS_MAX 64u             /* of a panel that is a part of large blocks */
#define COLUMNS_MAX 1024u

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static unsigned size_of(const struct sw_source *s)
{
    return sw_dtype_bits(s->dtype) / 8;
}

static uint64_t piece_at(const struct sw_fp8_cut *c, uint64_t element)
{
    const uint64_t at = c->axis.phase + element;

    return at / c->unit * c->per_unit + at % c->unit / c->step;
}

/* The area from element lo on, len > 0 of them. */
static void cut(struct sw_fp8_cut *c, uint64_t unit, uint64_t step, uint64_t lo, uint64_t len)
{
    c->unit = unit;
    c->step = step;
    c->per_unit = (unit - 1) / step + 1;
    c->first = piece_at(c, lo);
    c->n = piece_at(c, lo + len - 1) - c->first + 1;
}

static bool small_blocks(
    const struct sw_grid_axis *rows, const struct sw_grid_axis *columns, unsigned size)
{
    const uint64_t height = min_of(rows->block, rows->length);
    const uint64_t width = min_of(columns->block, columns->length);

    return width <= SW_FP8_BLOCK_BYTES && height <= SW_FP8_BLOCK_BYTES &&
           height * width * size <= SW_FP8_BLOCK_BYTES;
}

void sw_fp8_piece(const struct sw_fp8_cut *c, uint64_t i, uint64_t *from, uint64_t *to)
{
    const uint64_t start = (c->first + i) / c->per_unit * c->unit;
    const uint64_t inside = (c->first + i) % c->per_unit * c->step;
    const uint64_t low = start + inside, high = start + min_of(inside + c->step, c->unit);

    *from = low > c->axis.phase ? low - c->axis.phase : 0;
    *to = min_of(high - c->axis.phase, c->axis.length);
}

bool sw_fp8_at_once(const struct sw_source *s, const struct sw_grid *g)
{
    struct sw_grid_axis rows, columns;

    return !g->shared && sw_grid_axes(g, s, &rows, &columns) &&
           small_blocks(&rows, &columns, size_of(s));
}

/* Blocks side by side that make a panel of `height` rows. */
static uint64_t blocks_of(uint64_t height, uint64_t block, unsigned size)
{
    const uint64_t fit = PANEL_BYTES / (height * size) / block;

    return fit < 1 ? 1 : min_of(fit, SW_PANEL_BLOCKS);
}

/* The blocks that elements (or blocks) [*from, *to) are in, as elements. */
static void whole_blocks(const struct sw_grid_axis *a, bool blocks, uint64_t *from, uint64_t *to)
{
    const uint64_t first = blocks ? *from : (a->phase + *from) / a->block;
    const uint64_t end = blocks ? *to : (a->phase + *to - 1) / a->block + 1;

    *from = first ? first * a->block - a->phase : 0;
    *to = end >= a->blocks ? a->length : end * a->block - a->phase;
}

/* The smallest area of whole blocks that holds what loads want, in elements; false: nothing. */
static bool wanted(const struct sw_fp8 *f, const struct sw_grid_axis *rows,
    const struct sw_grid_axis *columns, uint64_t *lo, uint64_t *len)
{
    const uint32_t ndim = f->source->ndim;
    uint64_t high[SW_MAX_DIMS] = {0};

    for (uint32_t d = 0; d < ndim; d++)
        lo[d] = UINT64_MAX;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct sw_load_template *t = &f->loads->templates[f->loads->loads[f->order[i]].tmpl];
        const bool scales = t->transform == SW_TRANSFORM_FP8_SCALES;
        bool empty = false;

        for (uint32_t d = 0; d < ndim; d++)
            empty = empty || !t->len[d];
        for (uint32_t d = 0; d < ndim && !empty; d++) {
            const struct sw_grid_axis *a = d + 1 == ndim ? columns : d + 2 == ndim ? rows : NULL;
            uint64_t from = t->lo[d], to = t->lo[d] + t->len[d];

            if (a)
                whole_blocks(a, scales, &from, &to);
            lo[d] = min_of(lo[d], from);
            high[d] = to > high[d] ? to : high[d];
        }
    }
    for (uint32_t d = 0; d < ndim; d++)
        len[d] = high[d] - min_of(lo[d], high[d]);
    return high[0] != 0;
}

void sw_fp8_plan(struct sw_fp8_work *w, const struct sw_fp8 *what, enum sw_fp8_step step)
{
    const struct sw_source *s = what->source;
    const uint32_t ndim = s->ndim;
    uint64_t lo[SW_MAX_DIMS] = {0}, len[SW_MAX_DIMS], unit, height;

    *w = (struct sw_fp8_work){.what = *what, .step = step, .size = size_of(s)};
    sw_grid_axes(what->grid, s, &w->rows.axis, &w->columns.axis);
    w->outer = ndim > 2 ? ndim - 2 : 0;
    w->column_stride = what->stride[ndim - 1];
    w->row_stride = ndim > 1 ? what->stride[ndim - 2] : 0;
    memcpy(len, s->box.len, sizeof(len));
    w->panels = 1;
    for (uint32_t d = 0; d < ndim; d++)
        w->panels = len[d] ? w->panels : 0;
    if (w->panels && !(step == SW_FP8_MAXIMA && what->grid->shared) &&
        !wanted(what, &w->rows.axis, &w->columns.axis, lo, len))
        w->panels = 0;
    if (!w->panels)
        return;
    if (small_blocks(&w->rows.axis, &w->columns.axis, w->size)) {
        height = min_of(w->rows.axis.block, w->rows.axis.length);
        cut(&w->rows, w->rows.axis.block, w->rows.axis.block, ndim > 1 ? lo[ndim - 2] : 0,
            ndim > 1 ? len[ndim - 2] : 1);
        unit = blocks_of(height, w->columns.axis.block, w->size) * w->columns.axis.block;
        cut(&w->columns, unit, unit, lo[ndim - 1], len[ndim - 1]);
    } else {
        cut(&w->rows, w->rows.axis.block, ROWS_MAX, ndim > 1 ? lo[ndim - 2] : 0,
            ndim > 1 ? len[ndim - 2] : 1);
        unit = w->columns.axis.block;
        if (unit < COLUMNS_MAX)
            unit *= blocks_of(ROWS_MAX, unit, w->size);
        cut(&w->columns, unit, unit > COLUMNS_MAX ? COLUMNS_MAX : unit, lo[ndim - 1],
            len[ndim - 1]);
    }
    w->panels = w->rows.n * w->columns.n;
    w->bytes = w->size;
    for (uint32_t d = 0; d < ndim; d++)
        w->bytes *= len[d];
    for (uint32_t d = 0; d < w->outer; d++) {
        w->lo[d] = lo[d];
        w->len[d] = len[d];
        w->panels *= len[d];
    }
}
