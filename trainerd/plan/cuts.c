/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cutting slabs, always along the first dimension that isn't 1, so that pieces are contiguous.
 *
 * Boxes of one tensor that are equal in all other dimensions and overlap partly (engines with
 * other parallel sizes) are cut at each other's ends: their common bytes are staged once. Boxes
 * that differ elsewhere stay apart: common pieces would make short rows of long ones.
 *
 * A slab that is much of what a rank is to send is cut so that ranks can share it.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/build.h"

#define PIECE_BYTES_MIN (1u << 20) /* smaller ones aren't worth a tile of their own */
#define SHARE_CUT 64               /* a slab of more than 1/64 of a rank's share is cut ... */
#define SHARE_PIECE 128            /* ... into pieces of at most 1/128 */

struct span { /* a raw slab's box, in elements */
    struct sw_box box;
    uint32_t raw, family;
    uint64_t traffic;
};

struct cutter {
    struct sw_build *b;
    const struct sw_slab_set *raw;
    const uint32_t *dests;
    struct sw_cuts *cuts;
    uint64_t share;                  /* what each rank has to send, on average */
    uint32_t family[SW_FORMATS_MAX]; /* by format: scales are cut where their values are */
    uint8_t *redundant;              /* by pattern: 1 no, 2 yes, 0 not known yet */
    struct span *spans;
    uint32_t spans_size;
    uint64_t *points;
    uint32_t n_points, points_size;
    uint32_t **cut; /* by raw slab: pieces, NULL where it isn't cut; freed here */
    uint32_t *n_cut;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to cut the slabs of a plan");
}

void sw_cuts_free(struct sw_cuts *cuts)
{
    free(cuts->first);
    free(cuts->pieces);
    *cuts = (struct sw_cuts){0};
}

/* ---- what is given ---- */

static void find_families(struct cutter *c)
{
    const struct sw_format *f = c->b->w.formats;

    for (uint32_t i = 0; i < c->b->w.n_formats; i++) {
        c->family[i] = i;
        for (uint32_t k = 0; k < i && f[i].block[0]; k++)
            if (f[k].block[0] == f[i].block[0] && f[k].block[1] == f[i].block[1] &&
                f[k].src_dtype == f[i].src_dtype && f[k].scale == f[i].scale) {
                c->family[i] = c->family[k];
                break;
            }
    }
}

static uint64_t find_share(const struct cutter *c)
{
    uint64_t traffic = 0;

    for (uint32_t i = 0; i < c->raw->n; i++) {
        const uint64_t bytes = sw_build_bytes(c->b, &c->raw->items[i]);

        if (bytes && c->dests[i] > (UINT64_MAX - traffic) / bytes)
            return UINT64_MAX;
        traffic += bytes * c->dests[i];
    }
    return c->b->l->n_ranks ? traffic / c->b->l->n_ranks : traffic;
}

/* Whether ranks hold an entry at least twice, all together: then there is something to choose. */
static bool is_redundant(struct cutter *c, uint32_t at)
{
    const struct sw_compact *plan = &c->b->l->c;
    const struct sw_catalogue_entry *entry;
    const struct sw_holders *h;
    uint64_t volume = 1, held = 0;

    if (at == SW_NONE)
        return c->b->l->n_ranks > 1;
    entry = &plan->entries[at];
    if (c->redundant[entry->holders])
        return c->redundant[entry->holders] == 2;
    h = &plan->holders[entry->holders];
    for (uint32_t d = 0; d < entry->ndim; d++)
        volume *= entry->shape[d];
    for (uint32_t i = 0; i < h->n && held / 2 < volume; i++)
        held += sw_box_volume(&plan->holder_items[h->first + i].box);
    c->redundant[entry->holders] = held / 2 >= volume ? 2 : 1;
    return held / 2 >= volume;
}

/* Raw slabs by entry: those of entry i are order[first[i]] .. order[first[i + 1] - 1]; zeros come
 * after the last entry. `first` has two more than entries and zeros, all 0. */
static void sort_by_entry(const struct cutter *c, uint32_t *order, uint32_t *first)
{
    const uint32_t n = c->b->l->c.n_entries;

    for (uint32_t i = 0; i < c->raw->n; i++) {
        const uint32_t at = c->raw->items[i].entry;

        first[(at == SW_NONE ? n : at) + 2]++;
    }
    for (uint32_t i = 2; i < n + 3; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < c->raw->n; i++) {
        const uint32_t at = c->raw->items[i].entry;

        order[first[(at == SW_NONE ? n : at) + 1]++] = i;
    }
}

/* ---- one tensor's boxes in one family of formats ---- */

static void fill_span(const struct cutter *c, uint32_t raw, struct span *s)
{
    const struct sw_slab_key *key = &c->raw->items[raw];
    const struct sw_format *f = &c->b->w.formats[key->format];
    const struct sw_box *box = &c->b->w.boxes.items[key->box];
    const uint64_t bytes = sw_build_bytes(c->b, key);

    s->raw = raw;
    s->family = c->family[key->format];
    s->traffic = bytes > UINT64_MAX / (c->dests[raw] + 1ull) ? UINT64_MAX : bytes * c->dests[raw];
    if (f->transform == SW_TRANSFORM_FP8_SCALES)
        sw_box_of_blocks(box, f->block, c->b->l->c.entries[key->entry].shape, &s->box);
    else
        s->box = *box;
}

/* The first dimension in which some box is longer than 1. */
static uint32_t find_axis(const struct span *s, uint32_t n)
{
    uint32_t axis = s[0].box.ndim ? s[0].box.ndim - 1 : 0;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < axis; d++)
            if (s[i].box.len[d] > 1)
                axis = d;
    return axis;
}

/* By what they have in the dimensions other than the axis. */
static int others_compare(const struct sw_box *x, const struct sw_box *y, uint32_t axis)
{
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (d == axis)
            continue;
        if (x->lo[d] != y->lo[d])
            return x->lo[d] < y->lo[d] ? -1 : 1;
        if (x->len[d] != y->len[d])
            return x->len[d] < y->len[d] ? -1 : 1;
    }
    return 0;
}

static int span_compare(const void *a, const void *b, void *axis)
{
    const struct span *x = a, *y = b;
    const uint32_t d = *(const uint32_t *)axis;
    const int order = others_compare(&x->box, &y->box, d);

    if (order)
        return order;
    if (x->box.lo[d] != y->box.lo[d])
        return x->box.lo[d] < y->box.lo[d] ? -1 : 1;
    return x->raw < y->raw ? -1 : x->raw > y->raw;
}

static int family_compare(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->family != y->family)
        return x->family < y->family ? -1 : 1;
    return x->raw < y->raw ? -1 : x->raw > y->raw;
}

static int u64_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int add_point(struct cutter *c, uint64_t point)
{
    if (sw_array_room(&c->points, &c->points_size, c->n_points, sizeof(*c->points)))
        return -1;
    c->points[c->n_points++] = point;
    return 0;
}

/* What every point must be a multiple of: whole blocks, and whole bytes. */
static uint64_t point_unit(const struct cutter *c, const struct span *s, uint32_t axis)
{
    const struct sw_format *f = &c->b->w.formats[c->raw->items[s->raw].format];
    const uint64_t side = f->block[0] ? sw_block_side(f->block, s->box.ndim, axis) : 1;
    const bool last = axis + 1 >= s->box.ndim;

    return last && sw_dtype_bits(f->dst_dtype) % 8 ? side * 8 : side;
}

/* Points that cut a slab which is too much for one rank. */
static int share_points(struct cutter *c, const struct span *s, uint32_t axis, uint64_t unit)
{
    const struct sw_slab_key *key = &c->raw->items[s->raw];
    const uint64_t bytes = sw_build_bytes(c->b, key), len = s->box.len[axis];
    uint64_t n, step;

    if (bytes < 2 * PIECE_BYTES_MIN || c->share / SHARE_CUT >= s->traffic || s->box.ndim == 0 ||
        !is_redundant(c, key->entry))
        return 0;
    n = s->traffic / (c->share / SHARE_PIECE + 1) + 1;
    if (n > bytes / PIECE_BYTES_MIN)
        n = bytes / PIECE_BYTES_MIN;
    step = (len + n - 1) / n;
    step = (step + unit - 1) / unit * unit;
    for (uint64_t at = step; at < len; at += step)
        if ((s->box.lo[axis] + at) % unit == 0 && add_point(c, s->box.lo[axis] + at))
            return -1;
    return 0;
}

/* Cuts one span at the points inside it. */
static int cut_span(struct cutter *c, const struct span *s, uint32_t axis)
{
    const struct sw_format *f = &c->b->w.formats[c->raw->items[s->raw].format];
    const bool scales = f->transform == SW_TRANSFORM_FP8_SCALES;
    const uint64_t side = scales ? sw_block_side(f->block, s->box.ndim, axis) : 1;
    const uint64_t end = s->box.lo[axis] + s->box.len[axis];
    struct sw_box piece = c->b->w.boxes.items[c->raw->items[s->raw].box];
    uint64_t at = s->box.lo[axis];
    uint32_t n = 0, *pieces;

    for (uint32_t i = 0; i < c->n_points; i++)
        n += c->points[i] > at && c->points[i] < end;
    if (n == 0)
        return 0;
    pieces = malloc((n + 1) * sizeof(*pieces));
    if (!pieces)
        return -1;
    c->cut[s->raw] = pieces;
    for (uint32_t i = 0; i <= c->n_points && at < end; i++) {
        const uint64_t next = i == c->n_points || c->points[i] > end ? end : c->points[i];

        if (next <= at)
            continue;
        piece.lo[axis] = at / side;
        piece.len[axis] = (next - at + side - 1) / side;
        pieces[c->n_cut[s->raw]] = sw_boxes_add(&c->b->w.boxes, &piece);
        if (pieces[c->n_cut[s->raw]++] == SW_NONE)
            return -1;
        at = next;
    }
    return 0;
}

/* Spans that differ along the axis only. */
static int cut_alike(struct cutter *c, const struct span *s, uint32_t n, uint32_t axis)
{
    const uint64_t unit = point_unit(c, &s[0], axis);
    uint32_t distinct = 0;

    c->n_points = 0;
    for (uint32_t i = 0; s[0].box.ndim && n > 1 && i < n; i++) {
        const uint64_t lo = s[i].box.lo[axis], hi = lo + s[i].box.len[axis];

        if ((lo % unit == 0 && add_point(c, lo)) || (hi % unit == 0 && add_point(c, hi)))
            return -1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (share_points(c, &s[i], axis, unit))
            return -1;
    if (!c->n_points)
        return 0;
    qsort(c->points, c->n_points, sizeof(*c->points), u64_compare);
    for (uint32_t i = 0; i < c->n_points; i++)
        if (distinct == 0 || c->points[i] != c->points[distinct - 1])
            c->points[distinct++] = c->points[i];
    c->n_points = distinct;
    for (uint32_t i = 0; i < n; i++)
        if (cut_span(c, &s[i], axis))
            return -1;
    return 0;
}

static int cut_family(struct cutter *c, struct span *s, uint32_t n)
{
    uint32_t axis = find_axis(s, n);

    qsort_r(s, n, sizeof(*s), span_compare, &axis);
    for (uint32_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && !others_compare(&s[i].box, &s[i + k].box, axis);)
            k++;
        if (cut_alike(c, s + i, k, axis))
            return -1;
    }
    return 0;
}

/* All raw slabs of one entry. */
static int cut_entry(struct cutter *c, const uint32_t *raws, uint32_t n)
{
    struct span *s;

    if (n > c->spans_size) {
        free(c->spans);
        c->spans_size = n + n / 2;
        c->spans = malloc(c->spans_size * sizeof(*c->spans));
        if (!c->spans) {
            c->spans_size = 0;
            return -1;
        }
    }
    s = c->spans;
    for (uint32_t i = 0; i < n; i++)
        fill_span(c, raws[i], &s[i]);
    if (n > 1)
        qsort(s, n, sizeof(*s), family_compare);
    for (uint32_t i = 0, k; i < n; i += k) {
        for (k = 1;
             i + k < n && s[i + k].family == s[i].family && s[i].box.ndim == s[i + k].box.ndim;)
            k++;
        if (cut_family(c, s + i, k))
            return -1;
    }
    return 0;
}

/* ---- all of it ---- */

static int collect(struct cutter *c, struct sw_error *e)
{
    struct sw_cuts *out = c->cuts;
    bool any = false;

    for (uint32_t i = 0; !any && i < c->raw->n; i++)
        any = c->cut[i] != NULL;
    if (!any)
        return 0;
    out->first = malloc(((size_t)c->raw->n + 1) * sizeof(*out->first));
    if (!out->first)
        return no_memory(e);
    for (uint32_t i = 0; i < c->raw->n; i++) {
        const uint32_t n = c->cut[i] ? c->n_cut[i] : 1;

        out->first[i] = out->n;
        for (uint32_t k = 0; k < n; k++) {
            if (sw_array_room(&out->pieces, &out->size, out->n, sizeof(*out->pieces)))
                return no_memory(e);
            out->pieces[out->n++] = c->cut[i] ? c->cut[i][k] : c->raw->items[i].box;
        }
    }
    out->first[c->raw->n] = out->n;
    return 0;
}

/* Entry by entry. Zeros are never cut. */
static int cut_entries(struct cutter *c, uint32_t *order, uint32_t *first)
{
    sort_by_entry(c, order, first);
    for (uint32_t i = 0; i < c->b->l->c.n_entries; i++)
        if (first[i + 1] > first[i] && cut_entry(c, order + first[i], first[i + 1] - first[i]))
            return -1;
    return 0;
}

int sw_cuts_make(struct sw_build *b, const struct sw_slab_set *raw, const uint32_t *dests,
    struct sw_cuts *cuts, struct sw_error *e)
{
    const size_t n = (size_t)raw->n + 1;
    struct cutter c = {.b = b, .raw = raw, .dests = dests, .cuts = cuts};
    uint32_t *order = malloc(n * sizeof(*order));
    uint32_t *first = calloc((size_t)b->l->c.n_entries + 3, sizeof(*first));
    int err = order && first ? 0 : no_memory(e);

    find_families(&c);
    c.share = find_share(&c);
    c.redundant = calloc((size_t)b->l->c.n_holders + 1, 1);
    c.cut = calloc(n, sizeof(*c.cut));
    c.n_cut = calloc(n, sizeof(*c.n_cut));
    if (!err && (!c.redundant || !c.cut || !c.n_cut || cut_entries(&c, order, first)))
        err = no_memory(e);
    if (!err)
        err = collect(&c, e);
    for (uint32_t i = 0; c.cut && i < raw->n; i++)
        free(c.cut[i]);
    free(c.cut);
    free(c.n_cut);
    free(c.redundant);
    free(c.spans);
    free(c.points);
    free(order);
    free(first);
    return err;
}
