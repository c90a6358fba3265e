/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/proof_fills.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

static int wrong(const struct sw_proof_fills *f, const char *what, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN, "the plan is wrong (a defect, please report it): %s, rank %u",
        what, f->rank->rank);
}

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

/* ---- one load ---- */

/* The tile's bytes are dense in C order; elements that are no whole bytes have stride 0. */
static bool is_dense(const struct sw_load_template *t)
{
    uint64_t bits = sw_dtype_bits(t->dst_dtype);

    for (uint32_t d = t->ndim; d-- > 0;) {
        if (t->dst_stride[d] != (bits % 8 ? 0 : bits / 8))
            return false;
        if (t->len[d] && bits > UINT64_MAX / t->len[d])
            return false;
        bits *= t->len[d];
    }
    return true;
}

/* What `lo` counts from, and how far it may go: the rank's box, or the blocks that it touches. */
static void limits(const struct sw_box *held, const struct sw_load_template *t,
    const struct sw_grid *grid, uint64_t *lo, uint64_t *len)
{
    for (uint32_t d = 0; d < held->ndim; d++) {
        const uint64_t side =
            t->transform == SW_TRANSFORM_FP8_SCALES ? sw_proof_side(grid->block, held->ndim, d) : 1;

        lo[d] = held->lo[d] / side;
        len[d] = (held->lo[d] + held->len[d] + side - 1) / side - lo[d];
    }
}

/* Whether the rank holds every block that a load touches. */
static bool holds_blocks(const struct sw_plan_tensor *tensor, const struct sw_box *held,
    const struct sw_load_template *t, const struct sw_grid *grid)
{
    uint64_t first[SW_MAX_DIMS], len[SW_MAX_DIMS];

    limits(held, t, grid, first, len);
    for (uint32_t d = 0; d < held->ndim; d++) {
        const uint64_t side = sw_proof_side(grid->block, held->ndim, d);
        const uint64_t unit = t->transform == SW_TRANSFORM_FP8_SCALES ? side : 1;
        const uint64_t lo = (first[d] + t->lo[d]) * unit / side * side;
        uint64_t end = ((first[d] + t->lo[d] + t->len[d]) * unit + side - 1) / side * side;

        end = end < tensor->shape[d] ? end : tensor->shape[d];
        if (t->len[d] && (lo < held->lo[d] || end > held->lo[d] + held->len[d]))
            return false;
    }
    return true;
}

static int check_form(
    const struct sw_proof_fills *f, const struct sw_load *load, struct sw_error *e)
{
    const struct sw_load_template *t = &f->plan->templates[load->tmpl];
    const struct sw_grid *grid;
    bool fits;

    switch (t->transform) {
    case SW_TRANSFORM_ZERO:
        return 0;
    case SW_TRANSFORM_COPY:
        fits = t->src_dtype == t->dst_dtype;
        break;
    case SW_TRANSFORM_CAST:
        fits = t->src_dtype != t->dst_dtype && sw_proof_is_float(t->src_dtype) &&
               sw_proof_is_float(t->dst_dtype);
        break;
    default:
        if (load->grid >= f->plan->n_grids)
            return wrong(f, "a load of FP8 blocks has no grid", e);
        grid = &f->plan->grids[load->grid];
        if (grid->source != load->source)
            return wrong(f, "a load has the grid of another source", e);
        fits = sw_proof_is_float(t->src_dtype) &&
               (t->transform == SW_TRANSFORM_FP8_VALUES
                       ? t->dst_dtype == SW_F8_E4M3
                       : t->transform == SW_TRANSFORM_FP8_SCALES &&
                             (t->dst_dtype == SW_F32 ||
                                 (t->dst_dtype == SW_F8_E8M0 && grid->scale == SW_SCALE_UE8M0)));
    }
    return fits ? 0 : wrong(f, "a template has a transform for other dtypes", e);
}

/* A load takes what its rank holds, and knows the blocks that it quantises. */
static int check_source(
    const struct sw_proof_fills *f, const struct sw_load *load, struct sw_error *e)
{
    const struct sw_load_template *t = &f->plan->templates[load->tmpl];
    const struct sw_plan_tensor *tensor = &f->rank->list->tensors[load->source];
    const struct sw_box *held = &f->rank->boxes[f->rank->list->group[load->source]];
    const bool fp8 =
        t->transform == SW_TRANSFORM_FP8_VALUES || t->transform == SW_TRANSFORM_FP8_SCALES;
    const struct sw_grid *grid = fp8 ? &f->plan->grids[load->grid] : NULL;
    uint64_t lo[SW_MAX_DIMS], len[SW_MAX_DIMS];

    if (t->src_dtype != tensor->dtype || t->ndim != tensor->ndim || held->ndim != tensor->ndim)
        return wrong(f, "a template has another dtype or other dimensions than its source", e);
    limits(held, t, grid, lo, len);
    for (uint32_t d = 0; d < t->ndim; d++)
        if (sw_range_exceeds(t->lo[d], t->len[d], len[d]))
            return wrong(f, "a load takes more than its rank holds", e);
    if (fp8 && !grid->shared && !holds_blocks(tensor, held, t, grid))
        return wrong(f, "a load needs the maximum of a block that its rank holds a part of", e);
    return 0;
}

static int make_fill(
    const struct sw_proof_fills *f, uint32_t number, struct sw_proof_fill *fill, struct sw_error *e)
{
    const struct sw_load_plan *plan = f->plan;
    const struct sw_load *load = &plan->loads[number];
    const struct sw_load_template *t;
    const struct sw_tile *tile;
    bool zero;
    uint64_t bytes;
    int err;

    if (load->tmpl >= plan->n_templates || load->tile >= plan->n_tiles)
        return wrong(f, "a load names a template or tile that there is not", e);
    t = &plan->templates[load->tmpl];
    tile = &plan->tiles[load->tile];
    zero = t->transform == SW_TRANSFORM_ZERO;
    if (zero ? load->source != UINT32_MAX : load->source >= f->rank->list->n)
        return wrong(f, "a load names a source that there is not", e);
    if (t->ndim > SW_MAX_DIMS || sw_tensor_bytes(t->dst_dtype, t->ndim, t->len, &bytes) ||
        !is_dense(t))
        return wrong(f, "a load does not fill its tile densely", e);
    err = check_form(f, load, e);
    if (!err && !zero)
        err = check_source(f, load, e);
    if (err)
        return err;
    if (sw_range_exceeds(load->offset, bytes, tile->bytes) ||
        sw_range_exceeds(tile->offset, tile->bytes, plan->replica_bytes))
        return wrong(f, "a load goes past its tile, or a tile past the replica", e);
    *fill = (struct sw_proof_fill){
        tile->offset + load->offset, tile->offset + load->offset + bytes, number};
    return 0;
}

/* ---- all loads of a rank ---- */

static int fill_compare(const void *a, const void *b)
{
    const struct sw_proof_fill *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* Fills (sorted) must join to tiles without a hole and without touching a byte twice. */
static int check_tiles(const struct sw_proof_fills *f, struct sw_error *e)
{
    uint64_t *left = calloc((size_t)f->plan->n_tiles + 1, sizeof(*left));
    int err = left ? 0 : no_memory(e);

    for (uint32_t i = 0; !err && i < f->plan->n_tiles; i++)
        left[i] = f->plan->tiles[i].bytes;
    for (uint32_t i = 0; !err && i < f->n; i++) {
        const struct sw_proof_fill *fill = &f->items[i];

        if (i && fill->start < fill[-1].end)
            err = wrong(f, "two loads fill the same bytes", e);
        else
            left[f->plan->loads[fill->load].tile] -= fill->end - fill->start;
    }
    for (uint32_t i = 0; !err && i < f->plan->n_tiles; i++)
        if (left[i])
            err = wrong(f, "a tile has bytes that no load fills", e);
    free(left);
    return err;
}

struct maxima { /* of a shared grid */
    uint64_t first, end;
};

static int maxima_compare(const void *a, const void *b)
{
    const struct maxima *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

static int grid_maxima(const struct sw_proof_fills *f, const struct sw_grid *grid,
    struct maxima *out, struct sw_error *e)
{
    const struct sw_source_list *list = f->rank->list;
    const struct sw_load_template blocks = {.transform = SW_TRANSFORM_FP8_SCALES};
    uint64_t lo[SW_MAX_DIMS], len[SW_MAX_DIMS], n = 1;

    limits(&f->rank->boxes[list->group[grid->source]], &blocks, grid, lo, len);
    for (uint32_t d = 0; d < list->tensors[grid->source].ndim; d++) {
        if (len[d] && n > SW_BYTES_MAX / len[d])
            return wrong(f, "a grid has too many blocks", e);
        n *= len[d];
    }
    if (sw_range_exceeds(grid->first, n, f->plan->n_maxima))
        return wrong(f, "a grid goes past the rank's maxima", e);
    *out = (struct maxima){grid->first, grid->first + n};
    return 0;
}

/* Shared grids have maxima of their own. */
static int check_grids(const struct sw_proof_fills *f, struct sw_error *e)
{
    struct maxima *maxima = calloc((size_t)f->plan->n_grids + 1, sizeof(*maxima));
    uint32_t n = 0;
    int err = maxima ? 0 : no_memory(e);

    for (uint32_t i = 0; !err && i < f->plan->n_grids; i++) {
        const struct sw_grid *grid = &f->plan->grids[i];

        if (grid->source >= f->rank->list->n || !grid->block[0] || !grid->block[1] ||
            (grid->scale != SW_SCALE_FP32 && grid->scale != SW_SCALE_UE8M0))
            err = wrong(f, "a grid has no source, block or scale format", e);
        else if (grid->shared)
            err = grid_maxima(f, grid, &maxima[n++], e);
    }
    if (!err && n)
        qsort(maxima, n, sizeof(*maxima), maxima_compare);
    for (uint32_t i = 1; !err && i < n; i++)
        if (maxima[i].first < maxima[i - 1].end)
            err = wrong(f, "two grids have the same maxima", e);
    free(maxima);
    return err;
}

int sw_proof_fills_make(const struct sw_proof_names *names, const struct sw_plan_rank *rank,
    uint32_t position, const struct sw_load_plan *plan, struct sw_proof_fills *out,
    struct sw_error *e)
{
    struct sw_proof_fills f = {.rank = rank,
        .plan = plan,
        .names = names->lists[names->list_of[position]].name,
        .items = calloc((size_t)plan->n_loads + 1, sizeof(*f.items))};
    int err = f.items ? 0 : no_memory(e);

    if (!err && plan->rank != rank->rank)
        err = wrong(&f, "a load program is another rank's", e);
    if (!err)
        err = check_grids(&f, e);
    for (uint32_t i = 0; !err && i < plan->n_loads; i++) {
        err = make_fill(&f, i, &f.items[f.n], e);
        f.n += !err && f.items[f.n].start < f.items[f.n].end;
    }
    if (!err) {
        qsort(f.items, f.n, sizeof(*f.items), fill_compare);
        err = check_tiles(&f, e);
    }
    if (err) {
        sw_proof_fills_free(&f);
        return err;
    }
    *out = f;
    return 0;
}

void sw_proof_fills_free(struct sw_proof_fills *f)
{
    free(f->items);
    *f = (struct sw_proof_fills){0};
}

const struct sw_proof_fill *sw_proof_fill_at(const struct sw_proof_fills *f, uint64_t at)
{
    uint32_t low = 0, high = f->n;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (f->items[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low < f->n && f->items[low].start <= at ? &f->items[low] : NULL;
}

void sw_proof_fill_value(
    const struct sw_proof_fills *f, const struct sw_proof_fill *fill, struct sw_proof_value *out)
{
    const struct sw_load *load = &f->plan->loads[fill->load];
    const struct sw_load_template *t = &f->plan->templates[load->tmpl];
    const unsigned bits = sw_dtype_bits(t->dst_dtype);
    const struct sw_grid *grid = NULL;
    uint64_t lo[SW_MAX_DIMS] = {0}, len[SW_MAX_DIMS];

    *out = (struct sw_proof_value){
        .name = SW_PROOF_NONE, .transform = t->transform, .from = t->src_dtype, .to = t->dst_dtype};
    if (t->transform == SW_TRANSFORM_FP8_VALUES || t->transform == SW_TRANSFORM_FP8_SCALES) {
        grid = &f->plan->grids[load->grid];
        memcpy(out->block, grid->block, sizeof(out->block));
        out->scale = grid->scale;
    }
    if (t->transform != SW_TRANSFORM_ZERO) {
        out->name = f->names[load->source];
        limits(&f->rank->boxes[f->rank->list->group[load->source]], t, grid, lo, len);
    }
    out->ndim = t->ndim ? t->ndim : 1;
    out->len[0] = 1;
    for (uint32_t d = 0; d < t->ndim; d++) {
        out->lo[d] = lo[d] + t->lo[d];
        out->len[d] = t->len[d];
    }
    out->lo[out->ndim - 1] *= bits;
    out->len[out->ndim - 1] *= bits;
}
