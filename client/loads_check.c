/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a whole load program: nothing that comes from outside is trusted. */
#include <inttypes.h>
#include <stdlib.h>
#include "client/grid.h"
#include "client/loads.h"
#include "common/error.h"

/* What one template comes to: bytes that it fills, and how far from its start they reach. */
struct reach {
    uint64_t bytes, span;
};

struct axis {
    uint64_t len, stride; /* elements (or one dense row), bytes */
};

static int axis_compare(const void *a, const void *b)
{
    const struct axis *x = a, *y = b;

    return x->stride < y->stride ? -1 : x->stride > y->stride;
}

/* Bytes from the first to the end of the last; false when places overlap, or numbers do. */
static bool span_of(struct axis *axes, uint32_t n, uint64_t unit, uint64_t *span)
{
    uint64_t reach = unit, step;

    qsort(axes, n, sizeof(*axes), axis_compare);
    for (uint32_t i = 0; i < n; i++) {
        if (axes[i].stride < reach ||
            __builtin_mul_overflow(axes[i].len - 1, axes[i].stride, &step) ||
            __builtin_add_overflow(reach, step, &reach))
            return false;
    }
    *span = reach;
    return true;
}

/* Elements of less than a byte lie densely in the last dimension: its row is the unit there. */
static bool template_reach(const struct sw_load_template *t, struct reach *out)
{
    const unsigned bits = sw_dtype_bits(t->dst_dtype);
    struct axis axes[SW_MAX_DIMS];
    uint64_t unit = bits / 8;
    uint32_t n = 0, dims = t->ndim;

    if (sw_tensor_bytes(t->dst_dtype, t->ndim, t->len, &out->bytes))
        return false;
    out->span = 0;
    if (out->bytes == 0)
        return true;
    if (bits % 8) {
        dims = t->ndim - 1;
        if (t->dst_stride[dims] != 0 || t->lo[dims] * bits % 8 != 0)
            return false;
        unit = t->len[dims] / 8 * bits + t->len[dims] % 8 * bits / 8;
    }
    for (uint32_t d = 0; d < dims; d++)
        if (t->len[d] > 1)
            axes[n++] = (struct axis){t->len[d], t->dst_stride[d]};
    return span_of(axes, n, unit, &out->span);
}

static bool is_float(enum sw_dtype t)
{
    return t == SW_F32 || t == SW_BF16 || t == SW_F16;
}

/* Whether a transform goes between such types. */
static bool types_fit(const struct sw_load_template *t)
{
    const enum sw_dtype from = t->src_dtype, to = t->dst_dtype;

    switch (t->transform) {
    case SW_TRANSFORM_COPY:
        return from == to && sw_dtype_bits(to);
    case SW_TRANSFORM_CAST:
        return from != to && is_float(from) && is_float(to);
    case SW_TRANSFORM_FP8_VALUES:
        return is_float(from) && to == SW_F8_E4M3;
    case SW_TRANSFORM_FP8_SCALES:
        return is_float(from) && (to == SW_F32 || to == SW_F8_E8M0);
    case SW_TRANSFORM_ZERO:
        return from == SW_DTYPE_INVALID && sw_dtype_bits(to);
    }
    return false;
}

static int check_template(
    const struct sw_load_template *t, uint32_t i, struct reach *out, struct sw_error *e)
{
    if (t->transform < SW_TRANSFORM_COPY || t->transform > SW_TRANSFORM_ZERO)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "load program: template %u wants transform %d, which this version does not know: use "
            "the libshardwire that came with trainerd",
            i, (int)t->transform);
    if (!types_fit(t) || t->ndim > SW_MAX_DIMS)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: template %u makes dtype %d of dtype %d by transform %d, in %u "
            "dimensions: there is no such thing",
            i, (int)t->dst_dtype, (int)t->src_dtype, (int)t->transform, t->ndim);
    if (!template_reach(t, out))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: template %u has lengths or strides that overlap or overflow", i);
    return 0;
}

static int tile_compare(const void *a, const void *b)
{
    const struct sw_tile *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Tiles lie inside the replica and apart from each other: puts of two tensors may run at once. */
static int check_tiles(const struct sw_loads *l, struct sw_error *e)
{
    struct sw_tile *sorted = malloc((l->n_tiles + 1ull) * sizeof(*sorted));
    uint64_t end = 0;
    int rc = 0;

    if (!sorted)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to check %u tiles", l->n_tiles);
    for (uint32_t i = 0; i < l->n_tiles && !rc; i++) {
        sorted[i] = l->tiles[i];
        if (sw_range_exceeds(sorted[i].offset, sorted[i].bytes, l->replica_bytes))
            rc = sw_fail(e, SW_ERR_PROTOCOL,
                "load program: tile %u (offset %" PRIu64 ", %" PRIu64
                " bytes) is not inside the replica of %" PRIu64 " bytes",
                i, sorted[i].offset, sorted[i].bytes, l->replica_bytes);
    }
    if (!rc)
        qsort(sorted, l->n_tiles, sizeof(*sorted), tile_compare);
    for (uint32_t i = 0; i < l->n_tiles && !rc; i++) {
        if (sorted[i].bytes && sorted[i].offset < end)
            rc = sw_fail(e, SW_ERR_PROTOCOL, "load program: two tiles overlap at offset %" PRIu64,
                sorted[i].offset);
        else if (sorted[i].bytes)
            end = sorted[i].offset + sorted[i].bytes;
    }
    free(sorted);
    return rc;
}

/* ---- grids ---- */

struct range {
    uint64_t first, count;
};

static int range_compare(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

static int check_grid(const struct sw_loads *l, uint32_t i, const struct sw_source *sources,
    uint32_t n_sources, uint64_t *count, struct sw_error *e)
{
    const struct sw_grid *g = &l->grids[i];
    uint64_t shape[SW_MAX_DIMS];

    if (g->source >= n_sources)
        return sw_fail(e, SW_ERR_PROTOCOL, "load program: grid %u names source %u of %u", i,
            g->source, n_sources);
    if ((g->scale != SW_SCALE_FP32 && g->scale != SW_SCALE_UE8M0) || g->shared > 1 ||
        !is_float(sources[g->source].dtype) || !sw_grid_shape(g, &sources[g->source], shape, count))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: grid %u has blocks of %ux%u and scale format %d, which tensor %s can't "
            "have",
            i, g->block[0], g->block[1], (int)g->scale, sources[g->source].name);
    if (g->shared && sw_range_exceeds(g->first, *count, l->n_maxima))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: grid %u of tensor %s has %" PRIu64 " maxima from %" PRIu64
            " on; there are %" PRIu64,
            i, sources[g->source].name, *count, g->first, l->n_maxima);
    return 0;
}

/* Maxima lie inside the rank's, and apart from each other: puts of two tensors may run at once. */
static int check_grids(const struct sw_loads *l, const struct sw_source *sources,
    uint32_t n_sources, struct sw_error *e)
{
    struct range *shared = malloc((l->n_grids + 1ull) * sizeof(*shared));
    uint64_t count = 0, end = 0;
    uint32_t n = 0;
    int rc = 0;

    if (!shared)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to check %u grids", l->n_grids);
    for (uint32_t i = 0; i < l->n_grids && !rc; i++) {
        rc = check_grid(l, i, sources, n_sources, &count, e);
        if (!rc && l->grids[i].shared && count)
            shared[n++] = (struct range){l->grids[i].first, count};
    }
    qsort(shared, n, sizeof(*shared), range_compare);
    for (uint32_t i = 0; i < n && !rc; i++) {
        if (shared[i].first < end)
            rc = sw_fail(e, SW_ERR_PROTOCOL,
                "load program: the maxima of two grids overlap at %" PRIu64, shared[i].first);
        end = shared[i].first + shared[i].count;
    }
    free(shared);
    return rc;
}

/* ---- loads ---- */

static bool box_inside(const struct sw_load_template *t, uint32_t ndim, const uint64_t *shape)
{
    if (t->ndim != ndim)
        return false;
    for (uint32_t d = 0; d < t->ndim; d++)
        if (sw_range_exceeds(t->lo[d], t->len[d], shape[d]))
            return false;
    return true;
}

/* What a load takes is there: of the source, or of its grid. */
static bool box_exists(const struct sw_loads *l, const struct sw_load *load,
    const struct sw_load_template *t, const struct sw_source *s)
{
    const struct sw_grid *g;
    uint64_t shape[SW_MAX_DIMS], count;

    if (t->src_dtype != s->dtype)
        return false;
    if (t->transform != SW_TRANSFORM_FP8_VALUES && t->transform != SW_TRANSFORM_FP8_SCALES)
        return box_inside(t, s->ndim, s->box.len);
    if (load->grid >= l->n_grids)
        return false;
    g = &l->grids[load->grid];
    if (g->source != load->source)
        return false;
    if (t->transform == SW_TRANSFORM_FP8_VALUES)
        return box_inside(t, s->ndim, s->box.len);
    return (t->dst_dtype != SW_F8_E8M0 || g->scale == SW_SCALE_UE8M0) &&
           sw_grid_shape(g, s, shape, &count) && box_inside(t, s->ndim, shape);
}

static int check_load(const struct sw_loads *l, uint32_t i, const struct sw_source *sources,
    uint32_t n_sources, const struct reach *reach, struct sw_error *e)
{
    const struct sw_load *load = &l->loads[i];
    const struct sw_load_template *t;
    bool zero;

    if (load->tmpl >= l->n_templates || load->tile >= l->n_tiles)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: load %u names template %u and tile %u; there are %u and %u", i,
            load->tmpl, load->tile, l->n_templates, l->n_tiles);
    t = &l->templates[load->tmpl];
    zero = t->transform == SW_TRANSFORM_ZERO;
    if (zero != (load->source == UINT32_MAX) || (!zero && load->source >= n_sources))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: load %u names source %u of %u, for transform %d", i, load->source,
            n_sources, (int)t->transform);
    if (!zero && !box_exists(l, load, t, &sources[load->source]))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: load %u takes a box that tensor %s, as declared, does not have, or not "
            "in grid %u",
            i, sources[load->source].name, load->grid);
    if (sw_range_exceeds(load->offset, reach[load->tmpl].span, l->tiles[load->tile].bytes))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: load %u writes %" PRIu64 " bytes at %" PRIu64 " of a tile of %" PRIu64,
            i, reach[load->tmpl].span, load->offset, l->tiles[load->tile].bytes);
    return 0;
}

/* Every tile gets exactly its bytes: else its counter would never say that it is complete. */
static int check_sums(const struct sw_loads *l, const struct reach *reach, struct sw_error *e)
{
    uint64_t *sum = calloc(l->n_tiles + 1ull, sizeof(*sum));
    int rc = 0;

    if (!sum)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to check %u tiles", l->n_tiles);
    for (uint32_t i = 0; i < l->n_loads; i++) {
        uint64_t *s = &sum[l->loads[i].tile];
        const uint64_t bytes = reach[l->loads[i].tmpl].bytes;

        *s = bytes > UINT64_MAX - *s ? UINT64_MAX : *s + bytes;
    }
    for (uint32_t i = 0; i < l->n_tiles && !rc; i++)
        if (sum[i] != l->tiles[i].bytes)
            rc = sw_fail(e, SW_ERR_PROTOCOL,
                "load program: tile %u has %" PRIu64 " bytes, and its loads fill %" PRIu64, i,
                l->tiles[i].bytes, sum[i]);
    free(sum);
    return rc;
}

static int check_programs(
    struct sw_loads *l, const struct sw_source *sources, uint32_t n_sources, struct sw_error *e)
{
    struct reach *reach = calloc(l->n_templates + 1ull, sizeof(*reach));
    int rc = 0;

    free(l->load_bytes);
    l->load_bytes = calloc(l->n_templates + 1ull, sizeof(*l->load_bytes));
    if (!reach || !l->load_bytes)
        rc = sw_fail(e, SW_ERR_NOMEM, "no memory to check %u templates", l->n_templates);
    for (uint32_t i = 0; i < l->n_templates && !rc; i++)
        rc = check_template(&l->templates[i], i, &reach[i], e);
    if (!rc)
        rc = check_grids(l, sources, n_sources, e);
    for (uint32_t i = 0; i < l->n_loads && !rc; i++)
        rc = check_load(l, i, sources, n_sources, reach, e);
    for (uint32_t i = 0; i < l->n_checks && !rc; i++)
        if (l->checks[i].source >= n_sources)
            rc = sw_fail(e, SW_ERR_PROTOCOL, "load program: alias check %u names source %u of %u",
                i, l->checks[i].source, n_sources);
    if (!rc)
        rc = check_sums(l, reach, e);
    for (uint32_t i = 0; i < l->n_templates && !rc; i++)
        l->load_bytes[i] = reach[i].bytes;
    free(reach);
    return rc;
}

int sw_loads_check(
    struct sw_loads *l, const struct sw_source *sources, uint32_t n_sources, struct sw_error *e)
{
    int rc = check_tiles(l, e);

    if (!rc)
        rc = check_programs(l, sources, n_sources, e);
    if (!rc)
        rc = sw_loads_index(l, n_sources, e);
    return rc;
}
