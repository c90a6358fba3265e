/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/proof_box.h"

#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 100000u

uint64_t sw_proof_box_volume(const struct sw_box *b)
{
    uint64_t v = 1;

    for (uint32_t d = 0; d < b->ndim; d++)
        if (b->len[d] == 0)
            return 0;
    for (uint32_t d = 0; d < b->ndim; d++)
        if (__builtin_mul_overflow(v, b->len[d], &v))
            return UINT64_MAX;
    return v;
}

bool sw_proof_box_fits(const struct sw_box *b, const uint64_t *shape)
{
    for (uint32_t d = 0; d < b->ndim; d++)
        if (b->len[d] == 0 || sw_range_exceeds(b->lo[d], b->len[d], shape[d]))
            return false;
    return true;
}

bool sw_proof_box_inside(const struct sw_box *inner, const struct sw_box *outer)
{
    if (inner->ndim != outer->ndim)
        return false;
    for (uint32_t d = 0; d < inner->ndim; d++)
        if (inner->lo[d] < outer->lo[d] ||
            inner->lo[d] + inner->len[d] > outer->lo[d] + outer->len[d])
            return false;
    return true;
}

bool sw_proof_box_meets(const struct sw_box *a, const struct sw_box *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->lo[d] >= b->lo[d] + b->len[d] || b->lo[d] >= a->lo[d] + a->len[d])
            return false;
    return true;
}

struct sw_box sw_proof_box_moved(const struct sw_box *b, const uint64_t *by)
{
    struct sw_box moved = *b;

    for (uint32_t d = 0; d < b->ndim; d++)
        moved.lo[d] += by[d];
    return moved;
}

/* ---- partitions ---- */

struct start { /* a box, by where it begins along one dimension */
    uint64_t lo;
    uint32_t i;
};

static int start_compare(const void *a, const void *b)
{
    const struct start *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Boxes in the order of where they begin along a dimension; how many different beginnings there
 * are. */
static uint32_t sort_along(const struct sw_box *boxes, uint32_t n, uint32_t d, struct start *s)
{
    uint32_t distinct = 1;
    bool sorted = true;

    for (uint32_t i = 0; i < n; i++) {
        s[i] = (struct start){boxes[i].lo[d], i};
        sorted = sorted && (i == 0 || s[i - 1].lo <= s[i].lo);
    }
    if (!sorted)
        qsort(s, n, sizeof(*s), start_compare);
    for (uint32_t i = 1; i < n; i++)
        distinct += s[i].lo != s[i - 1].lo;
    return distinct;
}

/* Whether two boxes meet; compared along d are only those that can. */
static bool any_meet(
    const struct sw_box *boxes, uint32_t n, uint32_t d, const struct start *s, uint32_t *at)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_box *a = &boxes[s[i].i];
        const uint64_t end = a->lo[d] + a->len[d];

        for (uint32_t j = i + 1; j < n && s[j].lo < end; j++)
            if (sw_proof_box_meets(a, &boxes[s[j].i])) {
                *at = s[j].i;
                return true;
            }
    }
    return false;
}

static enum sw_proof_partition find_overlap(
    const struct sw_box *boxes, uint32_t n, uint32_t ndim, uint32_t *at)
{
    uint32_t best = 0, most = 0;
    enum sw_proof_partition found = SW_PROOF_PARTITION_OK;
    struct start *s;

    if (n < 2)
        return SW_PROOF_PARTITION_OK;
    if (ndim == 0) { /* two scalars at the same place */
        *at = 1;
        return SW_PROOF_PARTITION_OVERLAP;
    }
    s = malloc(n * sizeof(*s));
    if (!s)
        return SW_PROOF_PARTITION_NO_MEMORY;
    for (uint32_t d = 0; d < ndim && most < n; d++) {
        const uint32_t distinct = sort_along(boxes, n, d, s);

        if (distinct > most) {
            most = distinct;
            best = d;
        }
    }
    sort_along(boxes, n, best, s);
    if (any_meet(boxes, n, best, s, at))
        found = SW_PROOF_PARTITION_OVERLAP;
    free(s);
    return found;
}

enum sw_proof_partition sw_proof_box_partition(
    const struct sw_box *boxes, uint32_t n, uint32_t ndim, const uint64_t *shape, uint32_t *at)
{
    struct sw_box whole = {.ndim = ndim};
    uint64_t volume = 0;
    enum sw_proof_partition found;

    memcpy(whole.len, shape, ndim * sizeof(*shape));
    *at = 0;
    for (uint32_t i = 0; i < n; i++)
        if (boxes[i].ndim != ndim || !sw_proof_box_fits(&boxes[i], shape)) {
            *at = i;
            return SW_PROOF_PARTITION_OUTSIDE;
        }
    found = find_overlap(boxes, n, ndim, at);
    if (found)
        return found;
    for (uint32_t i = 0; i < n; i++) /* disjoint parts of one tensor: no overflow */
        volume += sw_proof_box_volume(&boxes[i]);
    return volume == sw_proof_box_volume(&whole) ? SW_PROOF_PARTITION_OK : SW_PROOF_PARTITION_HOLE;
}

/* ---- coverage ---- */

struct pieces {
    struct sw_box *items;
    uint32_t n, size;
};

static bool push(struct pieces *p, const struct sw_box *b)
{
    if (p->n == p->size) {
        const uint32_t size = p->size ? 2 * p->size : 64;
        struct sw_box *items =
            p->size < PIECES_MAX ? realloc(p->items, size * sizeof(*items)) : NULL;

        if (!items)
            return false;
        p->items = items;
        p->size = size;
    }
    p->items[p->n++] = *b;
    return true;
}

/* What of a box lies outside of another that meets it: at most two parts for each dimension. */
static bool push_outside(struct pieces *p, struct sw_box b, const struct sw_box *cut)
{
    for (uint32_t d = 0; d < b.ndim; d++) {
        const uint64_t end = b.lo[d] + b.len[d], cut_end = cut->lo[d] + cut->len[d];
        struct sw_box part = b;

        if (b.lo[d] < cut->lo[d]) {
            part.len[d] = cut->lo[d] - b.lo[d];
            if (!push(p, &part))
                return false;
            b.len[d] -= part.len[d];
            b.lo[d] = cut->lo[d];
        }
        if (end > cut_end) {
            part = b;
            part.lo[d] = cut_end;
            part.len[d] = end - cut_end;
            if (!push(p, &part))
                return false;
            b.len[d] = cut_end - b.lo[d];
        }
    }
    return true;
}

static bool take_away(struct pieces *p, const struct sw_box *cut)
{
    for (uint32_t i = 0; i < p->n;) {
        const struct sw_box b = p->items[i];

        if (!sw_proof_box_meets(&b, cut)) {
            i++;
            continue;
        }
        p->items[i] = p->items[--p->n]; /* what is pushed no longer meets the cut */
        if (!push_outside(p, b, cut))
            return false;
    }
    return true;
}

int sw_proof_box_covers(
    const struct sw_box *boxes, uint32_t n, uint32_t stride, const struct sw_box *region)
{
    struct pieces p = {0};
    bool able = sw_proof_box_volume(region) == 0 || push(&p, region);
    const char *at = (const char *)boxes;
    int covers;

    for (uint32_t i = 0; able && p.n && i < n; i++, at += stride) {
        const struct sw_box *b = (const struct sw_box *)(const void *)at;

        if (b->ndim == region->ndim && sw_proof_box_volume(b))
            able = take_away(&p, b);
    }
    covers = able ? p.n == 0 : -1;
    free(p.items);
    return covers;
}

/* ---- FP8 blocks ---- */

/* Elements along a dimension that one block has there. */
static uint64_t block_side(const uint32_t block[2], uint32_t ndim, uint32_t d)
{
    if (d + 1 == ndim)
        return block[1];
    return d + 2 == ndim ? block[0] : 1;
}

static uint64_t round_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

void sw_proof_box_grid(
    const uint32_t block[2], uint32_t ndim, const uint64_t *shape, uint64_t *grid)
{
    for (uint32_t d = 0; d < ndim; d++)
        grid[d] = round_up(shape[d], block_side(block, ndim, d));
}

struct sw_box sw_proof_box_touched(const struct sw_box *b, const uint32_t block[2])
{
    struct sw_box t = {.ndim = b->ndim};

    for (uint32_t d = 0; d < b->ndim; d++) {
        const uint64_t side = block_side(block, b->ndim, d);

        t.lo[d] = b->lo[d] / side;
        t.len[d] = b->len[d] ? round_up(b->lo[d] + b->len[d], side) - t.lo[d] : 0;
    }
    return t;
}

struct sw_box sw_proof_box_blocks(const struct sw_box *b, bool counts_blocks,
    const uint32_t block[2], uint32_t ndim, const uint64_t *shape)
{
    struct sw_box t = counts_blocks ? *b : sw_proof_box_touched(b, block);

    for (uint32_t d = 0; d < ndim; d++) {
        const uint64_t side = block_side(block, ndim, d);
        const uint64_t grid = round_up(shape[d], side), end = t.lo[d] + t.len[d];

        t.lo[d] *= side;
        t.len[d] = (end >= grid ? shape[d] : end * side) - t.lo[d];
    }
    return t;
}
