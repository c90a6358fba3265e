/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter's pieces by its model's rules -> boxes of the tensors that trainers hold. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/wants.h"

struct recipe {
    struct sw_wanting *w;
    struct sw_model_table *table;
    const struct sw_plan_target *t;
    const struct sw_parameter *p;
    uint32_t parameter;
};

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for what engine ranks want");
}

static bool is_float(enum sw_dtype d)
{
    return d == SW_F32 || d == SW_BF16 || d == SW_F16;
}

/* ---- stored names ---- */

/* One look at every entry's name tells which stored tensor of the model it is. */
static int fill_table(struct sw_wanting *w, struct sw_model_table *table, struct sw_error *e)
{
    const size_t n = (size_t)sw_model_stored(table->model) + 1;

    table->entry = malloc(n * sizeof(*table->entry));
    table->checked = calloc(n, 1);
    if (!table->entry || !table->checked)
        return no_memory(e);
    memset(table->entry, 0xff, n * sizeof(*table->entry));
    for (uint32_t i = 0; i < w->l->c.n_entries; i++) {
        uint32_t stored;
        struct sw_stored about;
        const enum sw_known known = sw_model_find(table->model, w->l->c.entries[i].name, &stored);

        if (known == SW_SKIPPED)
            w->used[i] |= SW_USED_QUIET;
        if (known != SW_KNOWN)
            continue;
        table->entry[stored] = i;
        sw_model_stored_get(table->model, stored, &about);
        if (about.draft)
            w->used[i] |= SW_USED_QUIET;
    }
    return 0;
}

static int find_table(struct recipe *r, struct sw_error *e)
{
    struct sw_wanting *w = r->w;
    struct sw_model_table *more;

    for (uint32_t i = 0; i < w->n_tables; i++)
        if (w->tables[i].model == r->t->model) {
            r->table = &w->tables[i];
            return 0;
        }
    more = realloc(w->tables, ((size_t)w->n_tables + 1) * sizeof(*more));
    if (!more)
        return no_memory(e);
    w->tables = more;
    r->table = &more[w->n_tables++];
    *r->table = (struct sw_model_table){.model = r->t->model};
    return fill_table(w, r->table, e);
}

static int check_shape(struct recipe *r, uint32_t stored, struct sw_error *e)
{
    const struct sw_catalogue_entry *entry = &r->w->l->c.entries[r->table->entry[stored]];
    struct sw_stored about;
    char a[160], b[160];

    if (r->table->checked[stored])
        return 0;
    sw_model_stored_get(r->t->model, stored, &about);
    if (about.ndim != entry->ndim ||
        memcmp(about.shape, entry->shape, about.ndim * sizeof(*about.shape)) != 0)
        return sw_fail(e, SW_ERR_PLAN,
            "engine %s rank %u: parameter %s is made of source %s, which is %s, but the layout "
            "rules (%s) and config.json make it %s",
            r->t->engine, r->t->engine_rank, r->p->name, entry->name,
            sw_tensor_text(entry->dtype, entry->ndim, entry->shape, a, sizeof(a)),
            r->w->pieces.rule, sw_tensor_text(about.dtype, about.ndim, about.shape, b, sizeof(b)));
    r->table->checked[stored] = 1;
    return 0;
}

/* The first stored form of a piece's tensor, or of its second choice, that somebody holds. */
static bool locate(
    const struct recipe *r, const struct sw_piece *piece, uint32_t *stored, uint64_t *origin)
{
    const uint32_t second = piece->others ? r->w->pieces.others[piece->others - 1] : UINT32_MAX;

    for (int choice = 0; choice < 2; choice++) {
        const uint32_t tensor = choice ? second : piece->tensor;

        for (uint32_t way = 0;
             tensor != UINT32_MAX && sw_model_locate(r->t->model, tensor, way, stored, origin);
             way++)
            if (r->table->entry[*stored] != SW_NONE)
                return true;
    }
    return false;
}

static int nobody_holds(const struct recipe *r, const struct sw_piece *piece, struct sw_error *e)
{
    const uint32_t second = piece->others ? r->w->pieces.others[piece->others - 1] : UINT32_MAX;
    const uint32_t tensor = piece->tensor != UINT32_MAX ? piece->tensor : second;
    char name[SW_NAME_MAX + 1] = "a tensor that this model doesn't have";
    uint64_t origin[SW_MAX_DIMS];
    uint32_t stored;

    if (tensor != UINT32_MAX && sw_model_locate(r->t->model, tensor, 0, &stored, origin))
        sw_model_stored_name(r->t->model, stored, name);
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s is made of %s by rule %s, but no trainer rank holds it "
        "under any of its names",
        r->t->engine, r->t->engine_rank, r->p->name, name, r->w->pieces.rule);
}

/* ---- formats ---- */

static int no_format(const struct recipe *r, const struct sw_catalogue_entry *entry,
    const char *why, struct sw_error *e)
{
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s is %s, but source %s is %s (rule %s): %s", r->t->engine,
        r->t->engine_rank, r->p->name, sw_dtype_name(r->p->dtype), entry->name,
        sw_dtype_name(entry->dtype), r->w->pieces.rule, why);
}

static int values_format(const struct recipe *r, const struct sw_catalogue_entry *entry,
    struct sw_format *f, struct sw_error *e)
{
    const struct sw_placement *at = r->t->placement;

    *f = (struct sw_format){.src_dtype = entry->dtype, .dst_dtype = r->p->dtype};
    if (entry->dtype == r->p->dtype) {
        f->transform = SW_TRANSFORM_COPY;
        return 0;
    }
    if (is_float(entry->dtype) && is_float(r->p->dtype)) {
        f->transform = SW_TRANSFORM_CAST;
        return 0;
    }
    if (r->p->dtype != SW_F8_E4M3 || !is_float(entry->dtype))
        return no_format(r, entry, "there is no way from the one to the other", e);
    if (!r->w->pieces.quantised)
        return no_format(r, entry, "the rule doesn't say that it may be quantised", e);
    if (!at->block[0] || !at->block[1] || at->scale == SW_SCALE_NONE)
        return no_format(r, entry, "the engine gave no block size and scale format", e);
    f->transform = SW_TRANSFORM_FP8_VALUES;
    f->block[0] = at->block[0];
    f->block[1] = at->block[1];
    f->scale = at->scale;
    return 0;
}

static int scales_format(const struct recipe *r, const struct sw_catalogue_entry *entry,
    struct sw_format *f, struct sw_error *e)
{
    const struct sw_placement *at = r->t->placement;

    if (!at->block[0] || !at->block[1] || at->scale == SW_SCALE_NONE)
        return no_format(r, entry, "the engine gave no block size and scale format", e);
    if (!is_float(entry->dtype))
        return no_format(r, entry, "the scales of such a source can't be made", e);
    if (r->p->dtype != SW_F32 && !(r->p->dtype == SW_F8_E8M0 && at->scale == SW_SCALE_UE8M0))
        return no_format(r, entry, "scales are F32, or F8_E8M0 with the scale format ue8m0", e);
    *f = (struct sw_format){.transform = SW_TRANSFORM_FP8_SCALES,
        .src_dtype = entry->dtype,
        .dst_dtype = r->p->dtype,
        .block = {at->block[0], at->block[1]},
        .scale = at->scale};
    return 0;
}

/* The scales that a checkpoint in FP8 has itself, one for each block. */
static int stored_scales(
    const struct recipe *r, uint32_t stored, uint32_t *scales, struct sw_error *e)
{
    const struct sw_catalogue_entry *values = &r->w->l->c.entries[r->table->entry[stored]];
    const uint32_t *block = r->t->placement->block;
    const struct sw_catalogue_entry *entry;
    char a[160], b[160];
    uint64_t shape[SW_MAX_DIMS];
    uint32_t number;

    if (!sw_model_scale_of(r->t->model, stored, &number))
        return no_format(r, values, "by config.json it has no scales in a checkpoint", e);
    *scales = r->table->entry[number];
    if (*scales == SW_NONE)
        return no_format(r, values, "its scales, NAME_scale_inv, are held by no trainer rank", e);
    if (!block[0] || !block[1])
        return no_format(r, values, "the engine gave no block size and scale format", e);
    entry = &r->w->l->c.entries[*scales];
    for (uint32_t d = 0; d < values->ndim; d++) {
        const uint64_t side = sw_block_side(block, values->ndim, d);

        shape[d] = values->shape[d] / side + (values->shape[d] % side != 0);
    }
    if (entry->dtype == r->p->dtype && entry->ndim == values->ndim &&
        !memcmp(entry->shape, shape, entry->ndim * sizeof(*shape)))
        return 0;
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s has %ux%u blocks and wants the scales of source %s as %s, "
        "but %s is %s",
        r->t->engine, r->t->engine_rank, r->p->name, block[0], block[1], values->name,
        sw_tensor_text(r->p->dtype, values->ndim, shape, a, sizeof(a)), entry->name,
        sw_tensor_text(entry->dtype, entry->ndim, entry->shape, b, sizeof(b)));
}

/* ---- boxes ---- */

/* Where in the parameter a piece begins, in bytes. */
static int piece_offset(
    const struct recipe *r, const struct sw_piece *piece, uint64_t *offset, struct sw_error *e)
{
    const struct sw_parameter *p = r->p;
    const uint64_t bits = sw_dtype_bits(p->dtype);
    uint64_t stride = 1, elements = 0;

    for (uint32_t d = p->ndim; d-- > 0;) {
        elements += piece->to[d] * stride;
        stride *= p->shape[d];
    }
    *offset = elements / 8 * bits + elements % 8 * bits / 8;
    if (elements % 8 * bits % 8 == 0)
        return 0;
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s: a piece begins inside a byte (rule %s)", r->t->engine,
        r->t->engine_rank, p->name, r->w->pieces.rule);
}

/* The piece's box in the stored tensor, in whose last dimensions the tensor lies. For scales
 * everything counts in blocks. */
static void stored_box(const struct sw_piece *piece, const struct sw_catalogue_entry *entry,
    const uint64_t *origin, const uint32_t *block, struct sw_box *box)
{
    const uint32_t before = entry->ndim - piece->from.ndim;

    *box = (struct sw_box){.ndim = entry->ndim};
    for (uint32_t d = 0; d < entry->ndim; d++) {
        box->lo[d] = block ? origin[d] / sw_block_side(block, entry->ndim, d) : origin[d];
        box->len[d] = 1;
        if (d >= before) {
            box->lo[d] += piece->from.lo[d - before];
            box->len[d] = piece->from.len[d - before];
        }
    }
}

/* FP8 blocks begin at the stored tensor's origin: a piece of whole blocks, or none. */
static int check_blocks(const struct recipe *r, const struct sw_catalogue_entry *entry,
    const struct sw_format *f, const struct sw_box *box, struct sw_error *e)
{
    char a[256];

    for (uint32_t d = 0; d < box->ndim; d++) {
        const uint64_t side = sw_block_side(f->block, box->ndim, d);
        const uint64_t end = box->lo[d] + box->len[d];

        if (box->lo[d] % side || (end % side && end != entry->shape[d]))
            return sw_fail(e, SW_ERR_PLAN,
                "engine %s rank %u: parameter %s wants box %s of source %s, which cuts blocks of "
                "%ux%u (rule %s)",
                r->t->engine, r->t->engine_rank, r->p->name, sw_box_text(box, a, sizeof(a)),
                entry->name, f->block[0], f->block[1], r->w->pieces.rule);
    }
    return 0;
}

static int check_fit(const struct recipe *r, const struct sw_catalogue_entry *entry,
    const struct sw_piece *piece, const struct sw_box *box, struct sw_error *e)
{
    bool fits = piece->from.ndim <= entry->ndim && box->ndim == entry->ndim;
    char a[256], b[160];

    for (uint32_t d = 0; fits && d < box->ndim; d++) /* what the parameter has no dimension for */
        fits = d + r->p->ndim >= box->ndim || box->len[d] == 1;
    for (uint32_t d = 0; fits && piece->kind == SW_PIECE_VALUES && d < box->ndim; d++)
        fits = !sw_range_exceeds(box->lo[d], box->len[d], entry->shape[d]);
    if (fits)
        return 0;
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s rank %u: parameter %s wants box %s of source %s, which is %s (rule %s)",
        r->t->engine, r->t->engine_rank, r->p->name, sw_box_text(box, a, sizeof(a)), entry->name,
        sw_tensor_text(entry->dtype, entry->ndim, entry->shape, b, sizeof(b)), r->w->pieces.rule);
}

static int add_zeros(const struct recipe *r, const struct sw_piece *piece, struct sw_error *e)
{
    const struct sw_format f = {.transform = SW_TRANSFORM_ZERO, .dst_dtype = r->p->dtype};
    struct sw_box box = piece->from;
    uint64_t offset;
    const int err = piece_offset(r, piece, &offset, e);

    memset(box.lo, 0, sizeof(box.lo));
    return err ? err : sw_wanting_push(r->w, SW_NONE, &f, &box, r->parameter, offset, e);
}

static int add_piece(const struct recipe *r, const struct sw_piece *piece, uint32_t stored,
    const uint64_t *origin, struct sw_error *e)
{
    uint32_t at = r->table->entry[stored];
    const struct sw_catalogue_entry *entry = &r->w->l->c.entries[at];
    const bool scales = piece->kind == SW_PIECE_SCALES;
    const bool own = scales && entry->dtype == SW_F8_E4M3;
    struct sw_format f = {0};
    struct sw_box box;
    uint64_t offset;
    int err;

    if (own) {
        err = stored_scales(r, stored, &at, e);
        f = (struct sw_format){
            .transform = SW_TRANSFORM_COPY, .src_dtype = r->p->dtype, .dst_dtype = r->p->dtype};
    } else {
        err = scales ? scales_format(r, entry, &f, e) : values_format(r, entry, &f, e);
    }
    if (err || (err = piece_offset(r, piece, &offset, e)))
        return err;
    if (piece->from.ndim > entry->ndim)
        return check_fit(r, entry, piece, &piece->from, e);
    stored_box(piece, entry, origin, scales ? r->t->placement->block : NULL, &box);
    err = check_fit(r, entry, piece, &box, e);
    if (!err && f.transform == SW_TRANSFORM_FP8_VALUES)
        err = check_blocks(r, entry, &f, &box, e);
    return err ? err : sw_wanting_push(r->w, at, &f, &box, r->parameter, offset, e);
}

int sw_wanting_recipe(struct sw_wanting *w, const struct sw_plan_target *t, uint32_t parameter,
    bool *missing, bool *derived, struct sw_error *e)
{
    struct recipe r = {.w = w, .t = t, .p = &t->parameters[parameter], .parameter = parameter};
    int err = find_table(&r, e);

    if (err)
        return err;
    err = sw_model_pieces(t->model, t->placement, r.p, &w->pieces, e);
    if (err)
        return sw_error_context(e, err, "engine %s rank %u", t->engine, t->engine_rank);
    *derived = w->pieces.derived;
    for (uint32_t i = 0; !err && !*derived && i < w->pieces.n; i++) {
        const struct sw_piece *piece = &w->pieces.items[i];
        uint64_t origin[SW_MAX_DIMS] = {0};
        uint32_t stored;

        if (sw_box_volume(&piece->from) == 0)
            continue;
        if (piece->kind == SW_PIECE_ZERO) {
            err = add_zeros(&r, piece, e);
        } else if (!locate(&r, piece, &stored, origin)) {
            *missing = true;
            err = nobody_holds(&r, piece, e);
        } else {
            err = check_shape(&r, stored, e);
            if (!err)
                err = add_piece(&r, piece, stored, origin, e);
        }
    }
    return err;
}
