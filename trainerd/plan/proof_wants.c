/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of the proof: every byte of every parameter of every kind comes from where the model says,
 * or from the tensor of its name. See compact_proof.h.
 *
 * Of each parameter: its wants' boxes make up its shape exactly; and each lies in one of the
 * model's pieces, and takes the box of the tensor that lies there.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/compact_proof.h"
#include "trainerd/plan/proof_box.h"

#define UNKNOWN (UINT32_MAX - 1)

struct place {      /* where the catalogue has a tensor of a model; kept, since many kinds ask */
    uint32_t entry; /* UNKNOWN: not looked for yet; SW_NONE: no way of storing it is there */
    uint32_t stored;
    uint64_t origin[SW_MAX_DIMS];
};

struct walk {
    const struct sw_proof *p;
    const struct sw_model *model; /* of the places */
    struct place *places;         /* by tensor */
    struct sw_pieces pieces;
    /* Of the kind that is looked at: */
    const struct sw_plan_target *t;
    uint32_t *root;
    uint8_t *covered; /* by root: a member of the storage has wants */
    uint8_t *made;    /* by root: the engine derives it */
    /* Of the parameter: */
    const struct sw_parameter *parameter;
    struct sw_box *boxes; /* of its wants */
    uint64_t n_boxes;
};

static int wrong(const struct walk *w, const char *what, struct sw_error *e)
{
    return sw_proof_wrong(e, "engine %s rank %u, parameter %s: %s", w->t->engine, w->t->engine_rank,
        w->parameter->name, what);
}

/* ---- what should be there ---- */

/* The first way of storing a tensor that the catalogue has. */
static int find_place(struct walk *w, uint32_t tensor, const struct place **out, struct sw_error *e)
{
    struct place *place;
    char name[SW_NAME_MAX + 1];
    struct sw_stored stored;

    if (tensor >= sw_model_tensors(w->model))
        return wrong(w, "the model makes it of a tensor that there is not", e);
    place = &w->places[tensor];
    if (place->entry == UNKNOWN) {
        place->entry = SW_NONE;
        for (uint32_t i = 0; place->entry == SW_NONE &&
                             sw_model_locate(w->model, tensor, i, &place->stored, place->origin);
             i++) {
            sw_model_stored_name(w->model, place->stored, name);
            place->entry = sw_proof_entry(w->p, name);
        }
        if (place->entry != SW_NONE) {
            const struct sw_catalogue_entry *entry = &w->p->c->entries[place->entry];

            sw_model_stored_get(w->model, place->stored, &stored);
            if (entry->ndim != stored.ndim ||
                memcmp(entry->shape, stored.shape, stored.ndim * sizeof(*stored.shape)) != 0)
                return wrong(w, "its tensor has another shape than the model says", e);
        }
    }
    *out = place;
    return 0;
}

static int find_choice(
    struct walk *w, const struct sw_piece *piece, const struct place **out, struct sw_error *e)
{
    int err = 0;

    *out = NULL;
    if (piece->tensor != UINT32_MAX)
        err = find_place(w, piece->tensor, out, e);
    if (!err && (!*out || (*out)->entry == SW_NONE) && piece->others)
        err = piece->others > w->pieces.n_others
                  ? wrong(w, "the model makes it of a choice that there is not", e)
                  : find_place(w, w->pieces.others[piece->others - 1], out, e);
    if (!err && (!*out || (*out)->entry == SW_NONE))
        err = wrong(w, "no rank has a tensor for it, and the plan has", e);
    return err;
}

static bool is_float(enum sw_dtype dtype)
{
    return dtype == SW_F32 || dtype == SW_BF16 || dtype == SW_F16;
}

/* What a want must be made of. */
struct wanted {
    uint32_t entry;               /* SW_NONE: zeros */
    struct sw_format format;      /* transform 0: there is none */
    uint64_t origin[SW_MAX_DIMS]; /* where the piece's tensor begins in it; scales: in blocks */
};

static struct sw_format format_for(
    const struct walk *w, enum sw_piece_kind kind, enum sw_dtype from)
{
    const struct sw_placement *at = w->t->placement;
    const enum sw_dtype to = w->parameter->dtype;
    struct sw_format f = {.src_dtype = from, .dst_dtype = to};

    if (is_float(from) && (kind == SW_PIECE_SCALES || (to == SW_F8_E4M3 && w->pieces.quantised))) {
        f.transform = kind == SW_PIECE_SCALES ? SW_TRANSFORM_FP8_SCALES : SW_TRANSFORM_FP8_VALUES;
        f.scale = at->scale;
        memcpy(f.block, at->block, sizeof(f.block));
    } else if (from == to) {
        f.transform = SW_TRANSFORM_COPY;
    } else if (is_float(from) && is_float(to)) {
        f.transform = SW_TRANSFORM_CAST;
    }
    return f;
}

/* Blocks begin where the stored tensor does: a tensor in it must begin at one. */
static int count_in_blocks(
    const struct walk *w, uint32_t ndim, bool scales, uint64_t *origin, struct sw_error *e)
{
    for (uint32_t back = 1; back <= 2 && back <= ndim; back++) {
        const uint32_t block = w->t->placement->block[2 - back];
        uint64_t *lo = &origin[ndim - back];

        if (!block || *lo % block)
            return wrong(w, "its tensor begins inside an FP8 block of what stores it", e);
        *lo = scales ? *lo / block : *lo;
    }
    return 0;
}

static int find_wanted(
    struct walk *w, const struct sw_piece *piece, struct wanted *out, struct sw_error *e)
{
    const struct sw_compact *c = w->p->c;
    const struct place *place;
    const struct sw_catalogue_entry *entry;
    bool stored_scales;
    int err;

    if (piece->kind == SW_PIECE_ZERO) {
        *out = (struct wanted){.entry = SW_NONE,
            .format = {.transform = SW_TRANSFORM_ZERO, .dst_dtype = w->parameter->dtype}};
        return 0;
    }
    err = find_choice(w, piece, &place, e);
    if (err)
        return err;
    entry = &c->entries[place->entry];
    *out = (struct wanted){.entry = place->entry};
    memcpy(out->origin, place->origin, sizeof(out->origin));
    stored_scales = piece->kind == SW_PIECE_SCALES && !is_float(entry->dtype);
    if (stored_scales) { /* an FP8 checkpoint */
        char name[SW_NAME_MAX + 1];
        uint32_t number;

        out->entry = SW_NONE;
        if (sw_model_scale_of(w->model, place->stored, &number)) {
            sw_model_stored_name(w->model, number, name);
            out->entry = sw_proof_entry(w->p, name);
        }
        if (out->entry == SW_NONE || c->entries[out->entry].ndim != entry->ndim)
            return wrong(w, "no rank has the scales of its tensor, and the plan has", e);
        out->format = (struct sw_format){.transform = SW_TRANSFORM_COPY,
            .src_dtype = c->entries[out->entry].dtype,
            .dst_dtype = w->parameter->dtype};
    } else {
        out->format = format_for(w, piece->kind, entry->dtype);
    }
    if (piece->kind == SW_PIECE_SCALES || out->format.transform == SW_TRANSFORM_FP8_VALUES)
        err = count_in_blocks(w, entry->ndim, piece->kind == SW_PIECE_SCALES, out->origin, e);
    return err;
}

static bool same_format(const struct sw_format *a, const struct sw_format *b)
{
    const bool blocks =
        a->transform == SW_TRANSFORM_FP8_VALUES || a->transform == SW_TRANSFORM_FP8_SCALES;

    return a->transform && a->transform == b->transform && a->src_dtype == b->src_dtype &&
           a->dst_dtype == b->dst_dtype &&
           (!blocks ||
               (a->scale == b->scale && a->block[0] == b->block[0] && a->block[1] == b->block[1]));
}

/* ---- what is there ---- */

/* Where a want lies in its parameter, in elements, over all of the parameter's dimensions. */
static int want_box(
    const struct walk *w, const struct sw_want *want, struct sw_box *out, struct sw_error *e)
{
    const struct sw_parameter *p = w->parameter;
    const struct sw_slab *s = &w->p->c->slabs[want->slab];
    const struct sw_box *box = &w->p->c->boxes[s->box];
    const unsigned bits = sw_dtype_bits(p->dtype);
    uint64_t at;

    if (w->p->c->formats[s->format].dst_dtype != p->dtype)
        return wrong(w, "is given bytes of another dtype", e);
    if (want->offset > SW_BYTES_MAX || want->offset * 8 % bits)
        return wrong(w, "a want begins inside an element", e);
    at = want->offset * 8 / bits;
    *out = (struct sw_box){.ndim = p->ndim};
    for (uint32_t d = p->ndim; d-- > 0;) {
        const uint32_t back = p->ndim - d; /* 1 = the last dimension */

        out->lo[d] = p->shape[d] ? at % p->shape[d] : 0;
        out->len[d] = back <= box->ndim ? box->len[box->ndim - back] : 1;
        at = p->shape[d] ? at / p->shape[d] : at;
    }
    for (uint32_t d = 0; d + p->ndim < box->ndim; d++)
        if (box->len[d] != 1)
            return wrong(w, "a want has more dimensions than it", e);
    return at ? wrong(w, "a want begins past its end", e) : 0;
}

/* The slab must be what the piece has at the want's place. */
static int check_taken(struct walk *w, const struct sw_piece *piece, const struct sw_box *want,
    const struct sw_slab *s, struct sw_error *e)
{
    const struct sw_compact *c = w->p->c;
    const struct sw_box *box = &c->boxes[s->box];
    struct wanted wanted;
    int err = find_wanted(w, piece, &wanted, e);

    if (err)
        return err;
    if (s->source != wanted.entry)
        return wrong(w, "is made of another tensor than the model says", e);
    if (!same_format(&wanted.format, &c->formats[s->format]))
        return wrong(w, "is made by another transform than the model says", e);
    for (uint32_t d = box->ndim; s->source != SW_NONE && d-- > 0;) {
        const uint32_t back = box->ndim - d;
        uint64_t lo = wanted.origin[d];

        if (back <= piece->from.ndim)
            lo += piece->from.lo[piece->from.ndim - back];
        if (back <= want->ndim)
            lo += want->lo[want->ndim - back] - piece->to[want->ndim - back];
        if (box->lo[d] != lo)
            return wrong(w, "is made of another part of its tensor than the model says", e);
    }
    return 0;
}

/* A piece as a box of the parameter. */
static struct sw_box piece_box(const struct sw_parameter *p, const struct sw_piece *piece)
{
    struct sw_box b = {.ndim = p->ndim};

    for (uint32_t d = 0; d < p->ndim; d++) {
        const uint32_t back = p->ndim - d;

        b.lo[d] = piece->to[d];
        b.len[d] = back <= piece->from.ndim ? piece->from.len[piece->from.ndim - back] : 1;
    }
    return b;
}

/* ---- parameters ---- */

static int check_by_model(
    struct walk *w, const struct sw_want *wants, uint64_t n, struct sw_error *e)
{
    uint32_t k = 0; /* pieces and wants are both in the order of their places */

    for (uint64_t i = 0; i < n; i++) {
        uint32_t tried = 0;
        int err;

        for (; tried < w->pieces.n; tried++, k = k + 1 < w->pieces.n ? k + 1 : 0) {
            const struct sw_box box = piece_box(w->parameter, &w->pieces.items[k]);

            if (sw_proof_box_inside(&w->boxes[i], &box))
                break;
        }
        if (tried == w->pieces.n)
            return wrong(w, "a want lies in no piece of it that the model says", e);
        err = check_taken(w, &w->pieces.items[k], &w->boxes[i], &w->p->c->slabs[wants[i].slab], e);
        if (err)
            return err;
    }
    return 0;
}

/* Whether a source is named like the parameter, or like another of its storage. */
static bool named_like(const struct walk *w, uint32_t index, const char *name)
{
    const struct sw_parameter *all = w->t->parameters;

    if (!strcmp(all[index].name, name))
        return true;
    for (uint32_t i = 0; i < w->t->n_parameters; i++)
        if (w->root[i] == w->root[index] && !strcmp(all[i].name, name))
            return true;
    return false;
}

static int check_by_name(const struct walk *w, uint32_t index, const struct sw_want *wants,
    uint64_t n, struct sw_error *e)
{
    const struct sw_compact *c = w->p->c;
    const struct sw_parameter *p = w->parameter;
    uint32_t before = SW_NONE;

    for (uint64_t i = 0; i < n; i++) {
        const struct sw_slab *s = &c->slabs[wants[i].slab];
        const struct sw_catalogue_entry *entry;

        if (s->source == SW_NONE || c->formats[s->format].transform != SW_TRANSFORM_COPY)
            return wrong(w, "is not a copy of a tensor", e);
        entry = &c->entries[s->source];
        if (entry->dtype != p->dtype || entry->ndim != p->ndim ||
            memcmp(entry->shape, p->shape, p->ndim * sizeof(*p->shape)) != 0)
            return wrong(w, "is made of a tensor of another dtype or shape", e);
        if (s->source != before && !named_like(w, index, entry->name))
            return wrong(w, "is made of a tensor of another name", e);
        before = s->source;
        if (memcmp(c->boxes[s->box].lo, w->boxes[i].lo, p->ndim * sizeof(*p->shape)) != 0)
            return wrong(w, "is made of another part of its tensor", e);
    }
    return 0;
}

static int check_boxes(struct walk *w, const struct sw_want *wants, uint64_t n, struct sw_error *e)
{
    static const char *const faults[] = {"", "a want goes past its end",
        "a byte of it is wanted twice", "a byte of it is in no want"};
    enum sw_proof_partition found;
    uint32_t at;

    if (n > w->n_boxes) {
        struct sw_box *boxes = n < UINT32_MAX ? realloc(w->boxes, 2 * n * sizeof(*boxes)) : NULL;

        if (!boxes)
            return sw_proof_no_memory(e);
        w->boxes = boxes;
        w->n_boxes = 2 * n;
    }
    for (uint64_t i = 0; i < n; i++) {
        int err = want_box(w, &wants[i], &w->boxes[i], e);

        if (err)
            return err;
    }
    found =
        sw_proof_box_partition(w->boxes, (uint32_t)n, w->parameter->ndim, w->parameter->shape, &at);
    if (found == SW_PROOF_PARTITION_NO_MEMORY)
        return sw_proof_no_memory(e);
    return found ? wrong(w, faults[found], e) : 0;
}

/* A parameter with its n wants. */
static int check_parameter(
    struct walk *w, uint32_t index, const struct sw_want *wants, uint64_t n, struct sw_error *e)
{
    const uint32_t root = w->root[index];
    uint64_t bytes;
    int err = 0;

    if (sw_tensor_bytes(w->parameter->dtype, w->parameter->ndim, w->parameter->shape, &bytes))
        return wrong(w, "has no size", e);
    if (w->t->model && (n || bytes)) { /* without wants: is it derived? */
        err = sw_model_pieces(w->model, w->t->placement, w->parameter, &w->pieces, e);
        if (!err && w->pieces.derived) {
            w->made[root] = 1;
            return n ? wrong(w, "is derived by the engine, and wanted", e) : 0;
        }
    }
    if (err || !n)
        return err;
    if (w->covered[root])
        return wrong(w, "is written twice, by its aliases", e);
    w->covered[root] = 1;
    err = check_boxes(w, wants, n, e);
    if (!err)
        err = w->t->model ? check_by_model(w, wants, n, e) : check_by_name(w, index, wants, n, e);
    return err;
}

static int check_parameters(struct walk *w, const struct sw_kind *k, struct sw_error *e)
{
    const struct sw_want *wants = w->p->c->wants + k->first;
    uint64_t from = 0;
    int err = 0;

    for (uint32_t i = 0; !err && i < w->t->n_parameters; i++) {
        uint64_t to = from;

        while (to < k->n && wants[to].parameter == i)
            to++;
        w->parameter = &w->t->parameters[i];
        err = check_parameter(w, i, wants + from, to - from, e);
        from = to;
    }
    if (!err && from < k->n)
        err = sw_proof_wrong(e, "engine %s rank %u: want %llu is not in the order of parameters",
            w->t->engine, w->t->engine_rank, (unsigned long long)(k->first + from));
    return err;
}

/* Every storage with bytes has wants, unless the engine derives all of it. */
static int check_all_covered(struct walk *w, struct sw_error *e)
{
    for (uint32_t i = 0; i < w->t->n_parameters; i++) {
        const uint32_t root = w->root[i];
        uint64_t bytes = 0;

        w->parameter = &w->t->parameters[i];
        sw_tensor_bytes(w->parameter->dtype, w->parameter->ndim, w->parameter->shape, &bytes);
        if (bytes && !w->covered[root] && !w->made[root])
            return wrong(w, "no byte of it is in a want", e);
    }
    return 0;
}

/* ---- kinds ---- */

static int use_model(struct walk *w, const struct sw_model *model, struct sw_error *e)
{
    const uint64_t n = model ? sw_model_tensors(model) : 0;

    if (model == w->model)
        return 0;
    free(w->places);
    w->model = model;
    w->places = calloc(n + 1, sizeof(*w->places));
    if (!w->places)
        return sw_proof_no_memory(e);
    for (uint64_t i = 0; i < n; i++)
        w->places[i].entry = UNKNOWN;
    return 0;
}

static int check_kind(struct walk *w, const struct sw_kind *k, struct sw_error *e)
{
    const size_t n = w->p->targets[k->target].n_parameters + (size_t)1;
    int err = 0;

    w->t = &w->p->targets[k->target];
    w->root = calloc(n, sizeof(*w->root));
    w->covered = calloc(n, 1);
    w->made = calloc(n, 1);
    if (!w->root || !w->covered || !w->made)
        err = sw_proof_no_memory(e);
    else if (w->t->model && !w->t->placement)
        err = sw_proof_wrong(
            e, "engine %s rank %u has a model and no placement", w->t->engine, w->t->engine_rank);
    if (!err)
        err = use_model(w, w->t->model, e);
    if (!err)
        err = sw_proof_roots(w->t, w->root, e);
    if (!err)
        err = check_parameters(w, k, e);
    if (!err)
        err = check_all_covered(w, e);
    free(w->root);
    free(w->covered);
    free(w->made);
    return err;
}

int sw_proof_wants(struct sw_proof *p, struct sw_error *e)
{
    struct walk w = {.p = p};
    int err = 0;

    for (uint32_t i = 0; !err && i < p->c->n_kinds; i++)
        err = check_kind(&w, &p->c->kinds[i], e);
    free(w.places);
    free(w.boxes);
    sw_pieces_free(&w.pieces);
    return err;
}
