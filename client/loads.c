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
    free(l->first_grid);
    free(l->grid_order);
    free(l->first_check);
    free(l->check_order);
    l->first_load = l->load_order = NULL;
    l->first_grid = l->grid_order = NULL;
    l->first_check = l->check_order = NULL;
    l->n_sources = 0;
}

void sw_loads_free(struct sw_loads *l)
{
    if (!l)
        return;
    drop_index(l);
    free(l->load_bytes);
    free(l->templates);
    free(l->loads);
    free(l->grids);
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
    if (part->total_templates > SW_TENSORS_MAX || part->total_grids > SW_TENSORS_MAX ||
        part->total_checks > SW_TENSORS_MAX || part->total_loads > SW_EXTENTS_MAX ||
        part->total_tiles > SW_EXTENTS_MAX || part->replica_bytes > SW_BYTES_MAX ||
        part->n_maxima > SW_BYTES_MAX / sizeof(float))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "load program of %u templates, %u loads, %u grids, %u checks, %u tiles, %" PRIu64
            " maxima, %" PRIu64
            " bytes is over the limits (%u templates, grids or checks, %u loads "
            "or tiles, %" PRIu64 " bytes)",
            part->total_templates, part->total_loads, part->total_grids, part->total_checks,
            part->total_tiles, part->n_maxima, part->replica_bytes, SW_TENSORS_MAX, SW_EXTENTS_MAX,
            (uint64_t)SW_BYTES_MAX);
    l->layout_epoch = part->layout_epoch;
    l->replica_bytes = part->replica_bytes;
    l->n_maxima = part->n_maxima;
    l->rank = part->rank;
    l->total_templates = part->total_templates;
    l->total_loads = part->total_loads;
    l->total_grids = part->total_grids;
    l->total_checks = part->total_checks;
    l->total_tiles = part->total_tiles;
    return 0;
}

static bool empty(const struct sw_loads *l)
{
    return !l->n_templates && !l->n_loads && !l->n_grids && !l->n_checks && !l->n_tiles;
}

static bool same_program(const struct sw_loads *l, const struct sw_load_program *p)
{
    return p->layout_epoch == l->layout_epoch && p->rank == l->rank &&
           p->replica_bytes == l->replica_bytes && p->n_maxima == l->n_maxima &&
           p->total_templates == l->total_templates && p->total_loads == l->total_loads &&
           p->total_grids == l->total_grids && p->total_checks == l->total_checks &&
           p->total_tiles == l->total_tiles;
}

static bool follows(const struct sw_loads *l, const struct sw_load_program *p)
{
    return joins(p->first_template, p->n_templates, l->n_templates, l->total_templates) &&
           joins(p->first_load, p->n_loads, l->n_loads, l->total_loads) &&
           joins(p->first_grid, p->n_grids, l->n_grids, l->total_grids) &&
           joins(p->first_check, p->n_checks, l->n_checks, l->total_checks) &&
           joins(p->first_tile, p->n_tiles, l->n_tiles, l->total_tiles);
}

int sw_loads_add(struct sw_loads *l, const struct sw_load_program *part, struct sw_error *e)
{
    int rc = empty(l) ? start(l, part, e) : 0;

    if (rc)
        return rc;
    if (!same_program(l, part) || !follows(l, part))
        return sw_fail(e, SW_ERR_PROTOCOL,
            "a part of the load program of layout epoch %" PRIu64 " does not join: it starts at "
            "template %u, load %u, grid %u, check %u, tile %u; we have %u, %u, %u, %u, %u",
            part->layout_epoch, part->first_template, part->first_load, part->first_grid,
            part->first_check, part->first_tile, l->n_templates, l->n_loads, l->n_grids,
            l->n_checks, l->n_tiles);
#define APPEND(what)                                                                               \
    append((void **)&l->what, &l->n_##what, &l->room_##what, part->what, part->n_##what,           \
        sizeof(*l->what), e)
    rc = APPEND(templates);
    rc = rc ? rc : APPEND(loads);
    rc = rc ? rc : APPEND(grids);
    rc = rc ? rc : APPEND(checks);
    return rc ? rc : APPEND(tiles);
#undef APPEND
}

bool sw_loads_whole(const struct sw_loads *l)
{
    return l->n_templates == l->total_templates && l->n_loads == l->total_loads &&
           l->n_grids == l->total_grids && l->n_checks == l->total_checks &&
           l->n_tiles == l->total_tiles;
}

/* ---- finding the loads of a source ---- */

/* Counting sort of n items by source, those of no source last; `first` has n_sources + 2 zeroed
 * items. */
static void index_by_source(uint32_t *first, uint32_t *order, uint32_t n, uint32_t n_sources,
    const void *items, size_t size, size_t source_at)
{
    uint32_t sum = 0;

#define SOURCE_OF(i) (*(const uint32_t *)((const char *)items + (i)*size + source_at))
#define PLACE_OF(i) (SOURCE_OF(i) < n_sources ? SOURCE_OF(i) : n_sources)
    for (uint32_t i = 0; i < n; i++)
        first[PLACE_OF(i)]++;
    for (uint32_t s = 0; s <= n_sources + 1; s++) {
        const uint32_t count = first[s];

        first[s] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++)
        order[first[PLACE_OF(i)]++] = i;
#undef PLACE_OF
#undef SOURCE_OF
    for (uint32_t s = n_sources + 1; s > 0; s--)
        first[s] = first[s - 1];
    first[0] = 0;
}

/* FP8 by grid, then casts, then copies. */
static uint32_t class_of(const struct sw_loads *l, const struct sw_load *load)
{
    switch (l->templates[load->tmpl].transform) {
    case SW_TRANSFORM_FP8_VALUES:
    case SW_TRANSFORM_FP8_SCALES:
        return load->grid; /* below SW_TENSORS_MAX */
    case SW_TRANSFORM_CAST:
        return UINT32_MAX - 1;
    default:
        return UINT32_MAX;
    }
}

static int compare_loads(const void *a, const void *b, void *arg)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const struct sw_loads *l = arg;
    const uint32_t x = class_of(l, &l->loads[i]), y = class_of(l, &l->loads[k]);

    if (x != y)
        return x < y ? -1 : 1;
    return i < k ? -1 : i > k;
}

static void sort_loads(struct sw_loads *l)
{
    for (uint32_t s = 0; s < l->n_sources; s++) {
        uint32_t *order = l->load_order + l->first_load[s];
        const uint32_t n = l->first_load[s + 1] - l->first_load[s];
        bool sorted = true;

        for (uint32_t i = 1; i < n && sorted; i++)
            sorted = compare_loads(&order[i - 1], &order[i], l) < 0;
        if (!sorted)
            qsort_r(order, n, sizeof(*order), compare_loads, l);
    }
}

int sw_loads_index(struct sw_loads *l, uint32_t n_sources, struct sw_error *e)
{
    drop_index(l);
    l->first_load = calloc(n_sources + 2ull, sizeof(uint32_t));
    l->first_grid = calloc(n_sources + 2ull, sizeof(uint32_t));
    l->first_check = calloc(n_sources + 2ull, sizeof(uint32_t));
    l->load_order = calloc(l->n_loads + 1ull, sizeof(uint32_t));
    l->grid_order = calloc(l->n_grids + 1ull, sizeof(uint32_t));
    l->check_order = calloc(l->n_checks + 1ull, sizeof(uint32_t));
    if (!l->first_load || !l->first_grid || !l->first_check || !l->load_order || !l->grid_order ||
        !l->check_order)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a load program of %u loads", l->n_loads);
    index_by_source(l->first_load, l->load_order, l->n_loads, n_sources, l->loads,
        sizeof(*l->loads), offsetof(struct sw_load, source));
    index_by_source(l->first_grid, l->grid_order, l->n_grids, n_sources, l->grids,
        sizeof(*l->grids), offsetof(struct sw_grid, source));
    index_by_source(l->first_check, l->check_order, l->n_checks, n_sources, l->checks,
        sizeof(*l->checks), offsetof(struct sw_alias_check, source));
    l->n_sources = n_sources;
    sort_loads(l);
    l->shares = false;
    for (uint32_t i = 0; i < l->n_grids; i++)
        l->shares = l->shares || l->grids[i].shared;
    return 0;
}

bool sw_loads_wants(const struct sw_loads *l, uint32_t source)
{
    return l->first_load[source] != l->first_load[source + 1] ||
           l->first_check[source] != l->first_check[source + 1] || sw_loads_shares(l, source);
}

bool sw_loads_shares(const struct sw_loads *l, uint32_t source)
{
    for (uint32_t i = l->first_grid[source]; i < l->first_grid[source + 1]; i++)
        if (l->grids[l->grid_order[i]].shared)
            return true;
    return false;
}
