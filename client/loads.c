/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"

struct sw_loads *sw_loads_new(void)
{
    return calloc(1, sizeof(struct sw_loads));
}

static void drop_index(struct sw_loads *l)
{
    free(l->first_load);
    free(l->load_order);
    free(l->first_check);
    free(l->check_order);
    l->first_load = l->load_order = l->first_check = l->check_order = NULL;
    l->n_sources = 0;
}

void sw_loads_free(struct sw_loads *l)
{
    if (!l)
        return;
    drop_index(l);
    free(l->templates);
    free(l->loads);
    free(l->checks);
    free(l->tiles);
    free(l);
}

/* ---- joining parts ---- */

/* Appends n items. Room grows with what came, never with what was announced. */
static int append(void **array, uint32_t *used, uint32_t *room, const void *items, uint32_t n,
    size_t size, struct sw_error *e)
{
    if (n > *room - *used) {
        const uint64_t want = (uint64_t)*used + n + *room / 2;
        void *bigger = realloc(*array, want * size);

        if (!bigger)
            return sw_fail(
                e, SW_ERR_NOMEM, "no memory for a load program: %" PRIu64 " bytes", want * size);
        *array = bigger;
        *room = (uint32_t)want;
    }
    if (n)
        memcpy((char *)*array + *used * size, items, n * size);
    *used += n;
    return 0;
}

static bool joins(uint32_t first, uint32_t n, uint32_t have, uint32_t total)
{
    return first == have && !sw_range_exceeds(first, n, total);
}

static int start(struct sw_loads *l, const struct sw_load_program *part, struct sw_error *e)
{
    if (part->total_templates > SW_TENSORS_MAX || part->total_checks > SW_TENSORS_MAX ||
        part->total_loads > SW_EXTENTS_MAX || part->total_tiles > SW_EXTENTS_MAX ||
        part->replica_bytes > SW_BYTES_MAX)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program of %u templates, %u loads, %u checks, %u tiles, %" PRIu64
            " bytes is over the limits (%u, %u, %u, %u, %" PRIu64 ")",
            part->total_templates, part->total_loads, part->total_checks, part->total_tiles,
            part->replica_bytes, SW_TENSORS_MAX, SW_EXTENTS_MAX, SW_TENSORS_MAX, SW_EXTENTS_MAX,
            (uint64_t)SW_BYTES_MAX);
    l->layout_epoch = part->layout_epoch;
    l->replica_bytes = part->replica_bytes;
    l->rank = part->rank;
    l->total_templates = part->total_templates;
    l->total_loads = part->total_loads;
    l->total_checks = part->total_checks;
    l->total_tiles = part->total_tiles;
    return 0;
}

static bool empty(const struct sw_loads *l)
{
    return !l->n_templates && !l->n_loads && !l->n_checks && !l->n_tiles;
}

int sw_loads_add(struct sw_loads *l, const struct sw_load_program *part, struct sw_error *e)
{
    int rc = empty(l) ? start(l, part, e) : 0;

    if (rc)
        return rc;
    if (part->layout_epoch != l->layout_epoch || part->rank != l->rank ||
        part->replica_bytes != l->replica_bytes || part->total_templates != l->total_templates ||
        part->total_loads != l->total_loads || part->total_checks != l->total_checks ||
        part->total_tiles != l->total_tiles ||
        !joins(part->first_template, part->n_templates, l->n_templates, l->total_templates) ||
        !joins(part->first_load, part->n_loads, l->n_loads, l->total_loads) ||
        !joins(part->first_check, part->n_checks, l->n_checks, l->total_checks) ||
        !joins(part->first_tile, part->n_tiles, l->n_tiles, l->total_tiles))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "a part of the load program of layout epoch %" PRIu64 " does not join: it starts at "
            "template %u, load %u, check %u, tile %u; we have %u, %u, %u, %u",
            part->layout_epoch, part->first_template, part->first_load, part->first_check,
            part->first_tile, l->n_templates, l->n_loads, l->n_checks, l->n_tiles);
    rc = append((void **)&l->templates, &l->n_templates, &l->room_templates, part->templates,
        part->n_templates, sizeof(*l->templates), e);
    if (!rc)
        rc = append((void **)&l->loads, &l->n_loads, &l->room_loads, part->loads, part->n_loads,
            sizeof(*l->loads), e);
    if (!rc)
        rc = append((void **)&l->checks, &l->n_checks, &l->room_checks, part->checks,
            part->n_checks, sizeof(*l->checks), e);
    if (!rc)
        rc = append((void **)&l->tiles, &l->n_tiles, &l->room_tiles, part->tiles, part->n_tiles,
            sizeof(*l->tiles), e);
    return rc;
}

bool sw_loads_whole(const struct sw_loads *l)
{
    return l->n_templates == l->total_templates && l->n_loads == l->total_loads &&
           l->n_checks == l->total_checks && l->n_tiles == l->total_tiles;
}

/* ---- checking ---- */

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

static int check_template(
    const struct sw_load_template *t, uint32_t i, struct reach *out, struct sw_error *e)
{
    if (t->transform != SW_TRANSFORM_COPY)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "load program: template %u wants transform %d, which this version does not know: use "
            "the libshardwire that came with trainerd",
            i, (int)t->transform);
    if (t->src_dtype != t->dst_dtype || !sw_dtype_bits(t->src_dtype) || t->ndim > SW_MAX_DIMS)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: template %u copies dtype %d to %d in %u dimensions", i,
            (int)t->src_dtype, (int)t->dst_dtype, t->ndim);
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

static bool box_inside(const struct sw_load_template *t, const struct sw_source *s)
{
    if (t->ndim != s->box.ndim)
        return false;
    for (uint32_t d = 0; d < t->ndim; d++)
        if (sw_range_exceeds(t->lo[d], t->len[d], s->box.len[d]))
            return false;
    return true;
}

static int check_load(const struct sw_loads *l, uint32_t i, const struct sw_source *sources,
    uint32_t n_sources, const struct reach *reach, struct sw_error *e)
{
    const struct sw_load *load = &l->loads[i];
    const struct sw_load_template *t;

    if (load->source >= n_sources || load->tmpl >= l->n_templates || load->tile >= l->n_tiles)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: load %u names source %u, template %u, tile %u; there are %u, %u, %u", i,
            load->source, load->tmpl, load->tile, n_sources, l->n_templates, l->n_tiles);
    t = &l->templates[load->tmpl];
    if (t->src_dtype != sources[load->source].dtype || !box_inside(t, &sources[load->source]))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program: load %u takes a box that tensor %s, as declared, does not have", i,
            sources[load->source].name);
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

static int check_programs(const struct sw_loads *l, const struct sw_source *sources,
    uint32_t n_sources, struct sw_error *e)
{
    struct reach *reach = calloc(l->n_templates + 1ull, sizeof(*reach));
    int rc = reach ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory to check a load program");

    for (uint32_t i = 0; i < l->n_templates && !rc; i++)
        rc = check_template(&l->templates[i], i, &reach[i], e);
    for (uint32_t i = 0; i < l->n_loads && !rc; i++)
        rc = check_load(l, i, sources, n_sources, reach, e);
    for (uint32_t i = 0; i < l->n_checks && !rc; i++)
        if (l->checks[i].source >= n_sources)
            rc = sw_fail(e, SW_ERR_PROTOCOL, "load program: alias check %u names source %u of %u",
                i, l->checks[i].source, n_sources);
    if (!rc)
        rc = check_sums(l, reach, e);
    free(reach);
    return rc;
}

/* ---- finding the loads of a source ---- */

/* Counting sort of n items by source; `first` has n_sources + 1 zeroed items. */
static void index_by_source(uint32_t *first, uint32_t *order, uint32_t n, uint32_t n_sources,
    const void *items, size_t size, size_t source_at)
{
    uint32_t sum = 0;

#define SOURCE_OF(i) (*(const uint32_t *)((const char *)items + (i)*size + source_at))
    for (uint32_t i = 0; i < n; i++)
        first[SOURCE_OF(i)]++;
    for (uint32_t s = 0; s <= n_sources; s++) {
        const uint32_t count = first[s];

        first[s] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++)
        order[first[SOURCE_OF(i)]++] = i;
#undef SOURCE_OF
    for (uint32_t s = n_sources; s > 0; s--)
        first[s] = first[s - 1];
    first[0] = 0;
}

static int build_index(struct sw_loads *l, uint32_t n_sources, struct sw_error *e)
{
    drop_index(l);
    l->first_load = calloc(n_sources + 1ull, sizeof(uint32_t));
    l->first_check = calloc(n_sources + 1ull, sizeof(uint32_t));
    l->load_order = calloc(l->n_loads + 1ull, sizeof(uint32_t));
    l->check_order = calloc(l->n_checks + 1ull, sizeof(uint32_t));
    if (!l->first_load || !l->first_check || !l->load_order || !l->check_order)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a load program of %u loads", l->n_loads);
    index_by_source(l->first_load, l->load_order, l->n_loads, n_sources, l->loads,
        sizeof(*l->loads), offsetof(struct sw_load, source));
    index_by_source(l->first_check, l->check_order, l->n_checks, n_sources, l->checks,
        sizeof(*l->checks), offsetof(struct sw_alias_check, source));
    l->n_sources = n_sources;
    return 0;
}

int sw_loads_check(
    struct sw_loads *l, const struct sw_source *sources, uint32_t n_sources, struct sw_error *e)
{
    int rc = check_tiles(l, e);

    if (!rc)
        rc = check_programs(l, sources, n_sources, e);
    if (!rc)
        rc = build_index(l, n_sources, e);
    return rc;
}
