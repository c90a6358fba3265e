/* SPDX-License-Identifier: Apache-2.0 */
#include "client/grid.h"

#define COUNT_MAX (UINT64_C(1) << 60)

static struct sw_grid_axis axis(uint64_t start, uint64_t length, uint64_t block)
{
    struct sw_grid_axis a = {.length = length, .block = block, .phase = start % block};

    /* A box lies in its tensor, so that sums of places in it don't overflow; with blocks they may.
     */
    a.blocks = length == 0 ? 0 : 1 + (length - 1) / block;
    if (length && (length - 1) % block >= block - a.phase)
        a.blocks++;
    return a;
}

bool sw_grid_axes(const struct sw_grid *g, const struct sw_source *s, struct sw_grid_axis *rows,
    struct sw_grid_axis *columns)
{
    const struct sw_box *b = &s->box;

    if (b->ndim == 0 || !g->block[0] || !g->block[1])
        return false;
    *columns = axis(b->lo[b->ndim - 1], b->len[b->ndim - 1], g->block[1]);
    *rows = b->ndim > 1 ? axis(b->lo[b->ndim - 2], b->len[b->ndim - 2], g->block[0])
                        : axis(0, 1, g->block[0]);
    return true;
}

bool sw_grid_shape(
    const struct sw_grid *g, const struct sw_source *s, uint64_t *shape, uint64_t *count)
{
    struct sw_grid_axis rows, columns;
    uint64_t n = 1;
    bool empty = false, overflow = false;

    if (!sw_grid_axes(g, s, &rows, &columns))
        return false;
    for (uint32_t d = 0; d < s->box.ndim; d++) {
        shape[d] = d + 1 == s->box.ndim   ? columns.blocks
                   : d + 2 == s->box.ndim ? rows.blocks
                                          : s->box.len[d];
        overflow |= __builtin_mul_overflow(n, shape[d], &n);
        empty |= shape[d] == 0;
    }
    *count = empty ? 0 : n;
    return empty || (!overflow && n <= COUNT_MAX);
}
