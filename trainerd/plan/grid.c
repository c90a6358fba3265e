/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/grid.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/boxes.h"

struct part { /* what a rank holds of the box, relative to it; then in cells of the grid */
    uint32_t rank;
    struct sw_box box;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to cut a box among trainer ranks");
}

static int u64_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t find_parts(
    const struct sw_holder *holders, uint32_t n, const struct sw_box *box, struct part *parts)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct part *p = &parts[found];

        if (!sw_box_intersect(&holders[i].box, box, &p->box))
            continue;
        for (uint32_t d = 0; d < box->ndim; d++)
            p->box.lo[d] -= box->lo[d];
        p->rank = holders[i].rank;
        found++;
    }
    return found;
}

/* The distinct boundaries along one dimension. */
static int find_ends(const struct part *parts, uint32_t n, uint64_t len, uint32_t d,
    struct sw_grid_cut *grid, struct sw_error *e)
{
    uint64_t *ends = malloc(((size_t)n * 2 + 2) * sizeof(*ends));
    uint32_t k = 0, distinct = 0;

    if (!ends)
        return no_memory(e);
    grid->ends[d] = ends;
    ends[k++] = 0;
    ends[k++] = len;
    for (uint32_t i = 0; i < n; i++) {
        ends[k++] = parts[i].box.lo[d];
        ends[k++] = parts[i].box.lo[d] + parts[i].box.len[d];
    }
    qsort(ends, k, sizeof(*ends), u64_compare);
    for (uint32_t i = 0; i < k; i++)
        if (distinct == 0 || ends[i] != ends[distinct - 1])
            ends[distinct++] = ends[i];
    grid->n[d] = distinct - 1;
    return 0;
}

static uint32_t find_end(const struct sw_grid_cut *grid, uint32_t d, uint64_t end)
{
    uint32_t low = 0, high = grid->n[d] + 1;

    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;

        if (grid->ends[d][mid] <= end)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Turns a part's box from elements into cells. */
static void count_in_cells(const struct sw_grid_cut *grid, struct part *p)
{
    for (uint32_t d = 0; d < grid->ndim; d++) {
        const uint32_t lo = find_end(grid, d, p->box.lo[d]);
        const uint32_t hi = find_end(grid, d, p->box.lo[d] + p->box.len[d]);

        p->box.lo[d] = lo;
        p->box.len[d] = hi - lo;
    }
}

/* Calls for each cell of a part: counts its ranks, or adds this one. */
static void visit(struct sw_grid_cut *grid, const struct part *p, uint32_t *count, uint32_t *ranks)
{
    const uint64_t cells = sw_box_volume(&p->box);

    for (uint64_t i = 0; i < cells; i++) {
        uint64_t rest = i, at = 0, stride = 1;

        for (uint32_t d = grid->ndim; d-- > 0;) {
            at += (p->box.lo[d] + rest % p->box.len[d]) * stride;
            rest /= p->box.len[d];
            stride *= grid->n[d];
        }
        if (ranks)
            ranks[count[at]] = p->rank;
        count[at]++;
    }
}

static int fill_cells(
    struct sw_grid_cut *grid, const struct part *parts, uint32_t n, struct sw_error *e)
{
    uint32_t *next = calloc((size_t)grid->n_cells + 1, sizeof(*next)), total = 0;

    grid->first = calloc((size_t)grid->n_cells + 1, sizeof(*grid->first));
    if (!next || !grid->first) {
        free(next);
        return no_memory(e);
    }
    for (uint32_t i = 0; i < n; i++)
        visit(grid, &parts[i], next, NULL);
    for (uint32_t i = 0; i < grid->n_cells; i++) {
        grid->most = next[i] > grid->most ? next[i] : grid->most;
        grid->first[i] = total;
        total += next[i];
        next[i] = grid->first[i];
    }
    grid->first[grid->n_cells] = total;
    grid->ranks = malloc(((size_t)total + 1) * sizeof(*grid->ranks));
    for (uint32_t i = 0; grid->ranks && i < n; i++)
        visit(grid, &parts[i], next, grid->ranks);
    free(next);
    return grid->ranks ? 0 : no_memory(e);
}

static int cut(struct sw_grid_cut *grid, struct part *parts, uint32_t n, const struct sw_box *box,
    struct sw_error *e)
{
    uint64_t cells = 1, visits = 0;
    int err = 0;

    for (uint32_t d = 0; !err && d < box->ndim; d++) {
        err = find_ends(parts, n, box->len[d], d, grid, e);
        cells *= err ? 1 : grid->n[d];
        if (!err && cells > SW_GRID_CELLS_MAX)
            err = sw_fail(e, SW_ERR_LIMIT,
                "the boxes that trainer ranks hold would cut it into more than %u cells",
                SW_GRID_CELLS_MAX);
    }
    if (err)
        return err;
    grid->n_cells = (uint32_t)cells;
    for (uint32_t i = 0; i < n; i++) {
        count_in_cells(grid, &parts[i]);
        visits += sw_box_volume(&parts[i].box);
    }
    if (visits > 16ull * SW_GRID_CELLS_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "the boxes that trainer ranks hold overlap in more than %u cells",
            16 * SW_GRID_CELLS_MAX);
    return fill_cells(grid, parts, n, e);
}

int sw_grid_make(const struct sw_holder *holders, uint32_t n, const struct sw_box *box,
    struct sw_grid_cut *grid, struct sw_error *e)
{
    struct part *parts = malloc(((size_t)n + 1) * sizeof(*parts));
    struct sw_grid_cut g = {.ndim = box->ndim};
    int err = parts ? 0 : no_memory(e);

    if (!err)
        err = cut(&g, parts, find_parts(holders, n, box, parts), box, e);
    free(parts);
    if (err) {
        sw_grid_free(&g);
        return err;
    }
    *grid = g;
    return 0;
}

void sw_grid_free(struct sw_grid_cut *grid)
{
    for (uint32_t d = 0; d < SW_MAX_DIMS; d++)
        free(grid->ends[d]);
    free(grid->first);
    free(grid->ranks);
    *grid = (struct sw_grid_cut){0};
}

void sw_grid_cell(const struct sw_grid_cut *grid, uint32_t i, struct sw_box *cell)
{
    memset(cell, 0, sizeof(*cell));
    cell->ndim = grid->ndim;
    for (uint32_t d = grid->ndim; d-- > 0;) {
        const uint64_t *end = grid->ends[d] + i % grid->n[d];

        cell->lo[d] = end[0];
        cell->len[d] = end[1] - end[0];
        i /= grid->n[d];
    }
}
