/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the proof: indices, formats and boxes are sound in themselves. See compact_proof.h. */
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "trainerd/plan/compact_proof.h"
#include "trainerd/plan/proof_box.h"

static bool is_float(enum sw_dtype dtype)
{
    return dtype == SW_F32 || dtype == SW_BF16 || dtype == SW_F16;
}

static bool scales_as(enum sw_scale_format scale, enum sw_dtype dtype)
{
    return (scale == SW_SCALE_FP32 && dtype == SW_F32) ||
           (scale == SW_SCALE_UE8M0 && (dtype == SW_F32 || dtype == SW_F8_E8M0));
}

static bool format_sound(const struct sw_format *f)
{
    const bool blocks = f->block[0] && f->block[1] && is_float(f->src_dtype) &&
                        (f->scale == SW_SCALE_FP32 || f->scale == SW_SCALE_UE8M0);

    switch (f->transform) {
    case SW_TRANSFORM_COPY:
        return f->src_dtype == f->dst_dtype && sw_dtype_bits(f->dst_dtype);
    case SW_TRANSFORM_CAST:
        return is_float(f->src_dtype) && is_float(f->dst_dtype) && f->src_dtype != f->dst_dtype;
    case SW_TRANSFORM_FP8_VALUES:
        return blocks && f->dst_dtype == SW_F8_E4M3;
    case SW_TRANSFORM_FP8_SCALES:
        return blocks && scales_as(f->scale, f->dst_dtype);
    case SW_TRANSFORM_ZERO:
        return f->src_dtype == SW_DTYPE_INVALID && sw_dtype_bits(f->dst_dtype);
    }
    return false;
}

static int check_formats(const struct sw_compact *c, struct sw_error *e)
{
    for (uint32_t i = 0; i < c->n_formats; i++)
        if (!format_sound(&c->formats[i]))
            return sw_proof_wrong(e, "format %u (transform %d, %s to %s) is none that there is", i,
                (int)c->formats[i].transform, sw_dtype_name(c->formats[i].src_dtype),
                sw_dtype_name(c->formats[i].dst_dtype));
    return 0;
}

static int check_catalogue(const struct sw_compact *c, struct sw_error *e)
{
    for (uint32_t i = 0; i < c->n_entries; i++) {
        const struct sw_catalogue_entry *entry = &c->entries[i];
        uint64_t bytes;

        if (!entry->name || entry->holders >= c->n_holders || entry->ndim > SW_MAX_DIMS ||
            sw_tensor_bytes(entry->dtype, entry->ndim, entry->shape, &bytes) ||
            bytes > SW_BYTES_MAX)
            return sw_proof_wrong(e, "tensor %s of the catalogue has no size or no holders",
                entry->name ? entry->name : "(no name)");
    }
    return 0;
}

static int check_holders(const struct sw_proof *p, struct sw_error *e)
{
    const struct sw_compact *c = p->c;

    for (uint32_t i = 0; i < c->n_holders; i++) {
        const struct sw_holders *h = &c->holders[i];

        if (sw_range_exceeds(h->first, h->n, c->n_holder_items))
            return sw_proof_wrong(e, "pattern of holders %u goes past their list", i);
        for (uint32_t k = h->first; k < h->first + h->n; k++)
            if (c->holder_items[k].rank >= p->n_ranks ||
                c->holder_items[k].box.ndim > SW_MAX_DIMS ||
                (k > h->first && c->holder_items[k - 1].rank >= c->holder_items[k].rank))
                return sw_proof_wrong(
                    e, "pattern of holders %u: a rank that there is not, or not in order", i);
    }
    return 0;
}

static int check_splits(const struct sw_proof *p, struct sw_error *e)
{
    const struct sw_compact *c = p->c;

    for (uint32_t i = 0; i < c->n_splits; i++)
        if (!c->splits[i].n || sw_range_exceeds(c->splits[i].first, c->splits[i].n, c->n_cells))
            return sw_proof_wrong(e, "split %u has no cells, or goes past their list", i);
    for (uint32_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].rank >= p->n_ranks || c->cells[i].box.ndim > SW_MAX_DIMS)
            return sw_proof_wrong(e, "cell %u is of a rank that there is not", i);
    for (uint32_t i = 0; i < c->n_runs; i++)
        if (c->runs[i].split >= c->n_splits ||
            sw_range_exceeds(c->runs[i].first, c->splits[c->runs[i].split].n, c->n_bases))
            return sw_proof_wrong(e, "run %u of slabs has no split, or no base for each cell", i);
    return 0;
}

/* The slab's box lies in its tensor (FP8 scales: among its blocks). */
static bool box_fits(
    const struct sw_format *f, const struct sw_catalogue_entry *entry, const struct sw_box *box)
{
    uint64_t grid[SW_MAX_DIMS];

    if (box->ndim != entry->ndim)
        return false;
    if (f->transform != SW_TRANSFORM_FP8_SCALES)
        return sw_proof_box_fits(box, entry->shape);
    sw_proof_box_grid(f->block, entry->ndim, entry->shape, grid);
    return sw_proof_box_fits(box, grid);
}

static const char *slab_fault(const struct sw_compact *c, const struct sw_slab *s)
{
    static const uint64_t any[SW_MAX_DIMS] = {
        SW_BYTES_MAX, SW_BYTES_MAX, SW_BYTES_MAX, SW_BYTES_MAX, SW_BYTES_MAX, SW_BYTES_MAX};

    if (s->format >= c->n_formats || s->box >= c->n_boxes || c->boxes[s->box].ndim > SW_MAX_DIMS)
        return "has a format or box that there is not";
    if (s->run >= c->n_runs || s->at >= c->runs[s->run].n)
        return "is in no run";
    if (c->runs[s->run].split != s->split || c->runs[s->run].wave != s->wave)
        return "is in a run of another split or wave";
    if (s->source == SW_NONE)
        return c->formats[s->format].transform != SW_TRANSFORM_ZERO ? "has no source"
               : sw_proof_box_fits(&c->boxes[s->box], any)          ? NULL
                                                                    : "is empty, or huge";
    if (s->source >= c->n_entries)
        return "is of a tensor that there is not";
    if (c->formats[s->format].src_dtype != c->entries[s->source].dtype)
        return "is read as another dtype than its tensor has";
    if (!box_fits(&c->formats[s->format], &c->entries[s->source], &c->boxes[s->box]))
        return "is empty, or goes past its tensor";
    return NULL;
}

static int check_slabs(const struct sw_compact *c, struct sw_error *e)
{
    for (uint32_t i = 0; i < c->n_slabs; i++) {
        const char *fault = slab_fault(c, &c->slabs[i]);

        if (fault)
            return sw_proof_wrong(e, "slab %u (%s) %s", i,
                c->slabs[i].source < c->n_entries ? c->entries[c->slabs[i].source].name : "zeros",
                fault);
    }
    return 0;
}

/* Wants and kinds: each want of one kind, of a slab. Parameters are looked at later. */
static int check_wants(const struct sw_proof *p, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    uint64_t next = 0;

    for (uint32_t i = 0; i < c->n_kinds; i++) {
        const struct sw_kind *k = &c->kinds[i];

        if (k->target >= p->n_targets)
            return sw_proof_wrong(e, "kind %u is that of a target that there is not", i);
        if (k->first != next || sw_range_exceeds(k->first, k->n, c->n_wants))
            return sw_proof_wrong(e, "the wants of kind %u do not follow those before it", i);
        next += k->n;
    }
    if (next != c->n_wants)
        return sw_proof_wrong(
            e, "%llu wants are of no kind", (unsigned long long)(c->n_wants - next));
    for (uint64_t i = 0; i < c->n_wants; i++)
        if (c->wants[i].slab >= c->n_slabs)
            return sw_proof_wrong(
                e, "want %llu is of a slab that there is not", (unsigned long long)i);
    return 0;
}

int sw_proof_numbers(struct sw_proof *p, struct sw_error *e)
{
    int err = check_formats(p->c, e);

    if (!err)
        err = check_holders(p, e);
    if (!err)
        err = check_catalogue(p->c, e);
    if (!err)
        err = check_splits(p, e);
    if (!err)
        err = check_slabs(p->c, e);
    if (!err)
        err = check_wants(p, e);
    if (!err)
        err = sw_slab_classes_make(p->c, &p->classes, e);
    return err;
}
