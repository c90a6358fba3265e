/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/proof_origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

struct want { /* a parameter, while its pieces are made */
    struct sw_proof_origins *o;
    const struct sw_plan_target *t;
    const struct sw_parameter *p;
    struct sw_proof_origin *out;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory to prove the plan");
}

static int wrong(const struct want *w, const char *what, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN, "engine %s rank %u: parameter %s: %s", w->t->engine,
        w->t->engine_rank, w->p->name, what);
}

/* Appends a piece that is in elements; bits are counted from here on. */
static int push(struct want *w, const struct sw_proof_piece *piece, struct sw_error *e)
{
    struct sw_proof_origin *out = w->out;
    const unsigned bits = sw_dtype_bits(w->p->dtype);
    struct sw_proof_piece *p;

    if (out->n == out->size) {
        const uint32_t size = out->size ? out->size * 2 : 16;
        struct sw_proof_piece *more = realloc(out->pieces, size * sizeof(*more));

        if (!more)
            return no_memory(e);
        out->pieces = more;
        out->size = size;
    }
    p = &out->pieces[out->n++];
    *p = *piece;
    if (p->value.ndim == 0) { /* a scalar */
        p->value.ndim = 1;
        p->value.lo[0] = 0;
        p->value.len[0] = 1;
    }
    if (w->p->ndim == 0) {
        p->to[0] = 0;
        p->len[0] = 1;
    }
    p->value.lo[p->value.ndim - 1] *= bits;
    p->value.len[p->value.ndim - 1] *= bits;
    p->to[out->ndim - 1] *= bits;
    p->len[out->ndim - 1] *= bits;
    return 0;
}

/* ---- by name ---- */

static int by_name(struct want *w, struct sw_error *e)
{
    const uint32_t name = sw_proof_name(w->o->names, w->p->name);
    const struct sw_plan_tensor *tensor = name == SW_PROOF_NONE ? NULL : w->o->names->items[name];
    struct sw_proof_piece piece = {.value = {.name = name,
                                       .transform = SW_TRANSFORM_COPY,
                                       .from = w->p->dtype,
                                       .to = w->p->dtype,
                                       .ndim = w->p->ndim}};

    w->out->unknown = !tensor || tensor->dtype != w->p->dtype || tensor->ndim != w->p->ndim;
    for (uint32_t d = 0; d < w->p->ndim && !w->out->unknown; d++)
        w->out->unknown = tensor->shape[d] != w->p->shape[d];
    if (w->out->unknown)
        return 0;
    memcpy(piece.value.len, w->p->shape, sizeof(piece.value.len));
    memcpy(piece.len, w->p->shape, sizeof(piece.len));
    return push(w, &piece, e);
}

/* ---- by the model ---- */

static int use_model(struct sw_proof_origins *o, const struct sw_model *model, struct sw_error *e)
{
    const size_t n = sw_model_stored(model);

    if (o->model == model)
        return 0;
    free(o->held);
    o->model = NULL;
    o->held = malloc((n + 1) * sizeof(*o->held));
    if (!o->held)
        return no_memory(e);
    for (size_t i = 0; i < n; i++)
        o->held[i] = SW_PROOF_NONE;
    for (uint32_t i = 0; i < o->names->n; i++) {
        uint32_t stored;

        if (sw_model_find(model, o->names->items[i]->name, &stored) == SW_KNOWN && stored < n)
            o->held[stored] = i;
    }
    o->model = model;
    return 0;
}

/* The first way of storing a tensor that some rank has. */
static bool locate(
    const struct sw_proof_origins *o, uint32_t tensor, uint32_t *name, uint64_t *origin)
{
    uint32_t stored;

    for (uint32_t way = 0;
         tensor != UINT32_MAX && sw_model_locate(o->model, tensor, way, &stored, origin); way++)
        if (o->held[stored] != SW_PROOF_NONE) {
            *name = o->held[stored];
            return true;
        }
    return false;
}

/* A checkpoint that is in FP8 already has its scales beside the values: NAME_scale_inv. */
static int stored_scales(const struct want *w, struct sw_proof_value *v, struct sw_error *e)
{
    char name[SW_NAME_MAX + 16];

    snprintf(name, sizeof(name), "%s_scale_inv", w->o->names->items[v->name]->name);
    v->name = sw_proof_name(w->o->names, name);
    if (v->name == SW_PROOF_NONE)
        return wrong(w, "no rank holds the scales that the checkpoint should have", e);
    v->from = w->o->names->items[v->name]->dtype;
    v->transform = SW_TRANSFORM_COPY;
    return v->from == v->to ? 0 : wrong(w, "the checkpoint's scales have another dtype", e);
}

static int inside_block(const struct want *w, struct sw_error *e)
{
    return wrong(w, "its tensor begins inside an FP8 block of what stores it", e);
}

/* The box in the stored tensor, in whose last dimensions the rules' tensor lies. */
static int stored_box(const struct want *w, const struct sw_piece *piece, const uint64_t *origin,
    struct sw_proof_value *v, struct sw_error *e)
{
    const uint32_t *block = w->t->placement->block;
    const bool scales = piece->kind == SW_PIECE_SCALES;

    v->ndim = w->o->names->items[v->name]->ndim;
    if (piece->from.ndim > v->ndim)
        return wrong(w, "its tensor has more dimensions than what stores it", e);
    for (uint32_t d = 0; d < v->ndim; d++) {
        const uint64_t side = scales ? sw_proof_side(block, v->ndim, d) : 1;
        const uint32_t before = v->ndim - piece->from.ndim;

        if (side == 0 || origin[d] % side)
            return inside_block(w, e);
        v->lo[d] = origin[d] / side + (d >= before ? piece->from.lo[d - before] : 0);
        v->len[d] = d >= before ? piece->from.len[d - before] : 1;
    }
    return 0;
}

static int piece_value(const struct want *w, const struct sw_piece *piece, struct sw_proof_value *v,
    struct sw_error *e)
{
    const uint32_t second = piece->others ? w->o->pieces.others[piece->others - 1] : UINT32_MAX;
    uint64_t origin[SW_MAX_DIMS] = {0};
    int err;

    *v = (struct sw_proof_value){.name = SW_PROOF_NONE, .to = w->p->dtype};
    if (piece->kind == SW_PIECE_ZERO) {
        v->transform = SW_TRANSFORM_ZERO;
        v->ndim = piece->from.ndim;
        memcpy(v->len, piece->from.len, sizeof(v->len));
        return 0;
    }
    if (!locate(w->o, piece->tensor, &v->name, origin) && !locate(w->o, second, &v->name, origin)) {
        w->out->unknown = true;
        return wrong(w, "no rank holds a tensor that it is made of", e);
    }
    v->from = w->o->names->items[v->name]->dtype;
    err = stored_box(w, piece, origin, v, e);
    if (err)
        return err;
    if (piece->kind == SW_PIECE_SCALES && v->from == SW_F8_E4M3)
        return stored_scales(w, v, e);
    if (!sw_proof_value_form(
            v, piece->kind == SW_PIECE_SCALES, w->o->pieces.quantised, w->t->placement))
        return wrong(w, "its tensor can't be made into its dtype", e);
    for (uint32_t d = 0; d < v->ndim && v->transform == SW_TRANSFORM_FP8_VALUES; d++)
        if (origin[d] % sw_proof_side(v->block, v->ndim, d))
            return inside_block(w, e);
    return 0;
}

static int by_model(struct want *w, struct sw_error *e)
{
    struct sw_pieces *pieces = &w->o->pieces;
    int err = use_model(w->o, w->t->model, e);

    if (!err)
        err = sw_model_pieces(w->t->model, w->t->placement, w->p, pieces, e);
    if (err)
        return err;
    w->out->derived = pieces->derived;
    for (uint32_t i = 0; !err && !pieces->derived && i < pieces->n; i++) {
        const struct sw_piece *from = &pieces->items[i];
        struct sw_proof_piece piece;
        uint64_t elements = 1;

        for (uint32_t d = 0; d < from->from.ndim; d++)
            elements *= from->from.len[d] != 0;
        if (elements == 0)
            continue;
        err = piece_value(w, from, &piece.value, e);
        for (uint32_t d = 0; !err && d < w->p->ndim; d++) {
            const uint32_t back = w->p->ndim - d;

            piece.to[d] = from->to[d];
            piece.len[d] = back <= from->from.ndim ? from->from.len[from->from.ndim - back] : 1;
        }
        for (uint32_t back = w->p->ndim + 1; !err && back <= from->from.ndim; back++)
            if (from->from.len[from->from.ndim - back] != 1)
                err = wrong(w, "a piece of it has more dimensions than it has", e);
        if (!err)
            err = push(w, &piece, e);
    }
    return err;
}

int sw_proof_origin(struct sw_proof_origins *o, const struct sw_plan_target *t,
    const struct sw_parameter *p, struct sw_proof_origin *out, struct sw_error *e)
{
    struct want w = {.o = o, .t = t, .p = p, .out = out};

    out->n = 0;
    out->last = 0;
    out->derived = out->unknown = false;
    out->ndim = p->ndim ? p->ndim : 1;
    out->shape[0] = 1;
    for (uint32_t d = 0; d < p->ndim; d++)
        out->shape[d] = p->shape[d];
    out->shape[out->ndim - 1] *= sw_dtype_bits(p->dtype);
    return t->model ? by_model(&w, e) : by_name(&w, e);
}

void sw_proof_origin_free(struct sw_proof_origin *origin)
{
    free(origin->pieces);
    *origin = (struct sw_proof_origin){0};
}

void sw_proof_origins_free(struct sw_proof_origins *o)
{
    free(o->held);
    sw_pieces_free(&o->pieces);
    *o = (struct sw_proof_origins){0};
}

/* ---- places ---- */

static bool holds(
    const struct sw_proof_origin *origin, const struct sw_proof_piece *piece, const uint64_t *at)
{
    for (uint32_t d = 0; d < origin->ndim; d++)
        if (at[d] < piece->to[d] || at[d] - piece->to[d] >= piece->len[d])
            return false;
    return true;
}

/* Bytes are asked for in order, and so are most pieces: it is the last one, or the next. */
const struct sw_proof_piece *sw_proof_piece_at(struct sw_proof_origin *origin, const uint64_t *at)
{
    for (uint32_t i = 0; i < origin->n; i++) {
        const uint32_t k = (origin->last + i) % origin->n;

        if (holds(origin, &origin->pieces[k], at)) {
            origin->last = k;
            return &origin->pieces[k];
        }
    }
    return NULL;
}
