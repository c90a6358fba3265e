/* SPDX-License-Identifier: Apache-2.0 */
/* A declared parameter, cut into pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/text.h"
#include "trainerd/plan/model_impl.h"

struct making {
    struct sw_declared d;
    struct sw_pieces *out;
};

void sw_pieces_free(struct sw_pieces *p)
{
    free(p->items);
    free(p->others);
    *p = (struct sw_pieces){0};
}

/* ---- pieces ---- */

static struct sw_piece *add_piece(struct sw_pieces *out)
{
    if (out->n == out->size) {
        const uint32_t size = out->size ? out->size * 2 : 64;
        struct sw_piece *items =
            size > out->size ? realloc(out->items, (size_t)size * sizeof(*items)) : NULL;

        if (!items)
            return NULL;
        out->items = items;
        out->size = size;
    }
    return &out->items[out->n++];
}

static int add_other(struct sw_pieces *out, uint32_t tensor, uint32_t *index)
{
    if (out->n_others == out->others_size) {
        const uint32_t size = out->others_size ? out->others_size * 2 : 16;
        uint32_t *others =
            size > out->others_size ? realloc(out->others, size * sizeof(*others)) : NULL;

        if (!others)
            return -1;
        out->others = others;
        out->others_size = size;
    }
    out->others[out->n_others++] = tensor;
    *index = out->n_others;
    return 0;
}

/* The tensor of a choice at these values; UINT32_MAX = it does not exist. */
static int find_choice(struct making *k, const struct sw_rule_part *part,
    const struct sw_rule_choice *choice, uint32_t *tensor)
{
    const struct sw_model *m = k->d.p.m;
    const struct sw_model_role *role = &m->roles[choice->tensor];
    int64_t values[SW_RULE_FOR_MAX];

    for (uint32_t v = 0; v < role->r.n_variables; v++) {
        int err = sw_expression_evaluate(&choice->index[v].x, k->d.p.values, &values[v], k->d.e);

        if (err)
            return sw_error_context(k->d.e, SW_ERR_PLAN, "%s", part->at);
    }
    *tensor = sw_role_tensor(role, values);
    if (*tensor != UINT32_MAX && !sw_bit(m->exists, *tensor))
        *tensor = UINT32_MAX;
    return 0;
}

static int no_tensor(const struct making *k, const struct sw_part_split *s)
{
    const struct sw_rule_choice *choice = &s->part->choices[0];
    const struct sw_tensor_role *r = &k->d.p.m->roles[choice->tensor].r;
    char name[200], index[80] = "";
    size_t n = 0;

    for (uint32_t v = 0; v < r->n_variables; v++) {
        int64_t value = 0;

        (void)sw_expression_evaluate(&choice->index[v].x, k->d.p.values, &value, NULL);
        n += (size_t)snprintf(
            index + n, sizeof(index) - n, "%s%lld", v ? ", " : "", (long long)value);
    }
    return sw_fail(k->d.e, SW_ERR_PLAN,
        "parameter '%s' (rule %s): expected a tensor %s(%s), which %s does not have",
        sw_text_escape(name, sizeof(name), k->d.declared->name), s->part->at, r->name, index,
        r->rule);
}

static int find_tensors(
    struct making *k, const struct sw_part_split *s, uint32_t *tensor, uint32_t *others)
{
    uint32_t second = UINT32_MAX;
    int err = find_choice(k, s->part, &s->part->choices[0], tensor);

    *others = 0;
    if (!err && s->part->n_choices > 1)
        err = find_choice(k, s->part, &s->part->choices[1], &second);
    if (err)
        return err;
    if (*tensor == UINT32_MAX) {
        *tensor = second;
        second = UINT32_MAX;
    }
    if (*tensor == UINT32_MAX)
        return no_tensor(k, s);
    if (second != UINT32_MAX && add_other(k->out, second, others))
        return sw_fail(k->d.e, SW_ERR_NOMEM, "no memory for the pieces of a parameter");
    return 0;
}

/* Where in the parameter the part begins: slot, and the row in it (in blocks for scales). */
struct place {
    uint64_t slot, row;
};

static void fill_box(const struct making *k, const struct sw_part_split *s, struct sw_piece *piece)
{
    const uint32_t *block = k->d.p.at->block;
    struct sw_box *b = &piece->from;

    b->ndim = s->role->r.ndim;
    for (uint32_t d = 0; d < SW_MAX_DIMS; d++) {
        b->lo[d] = 0;
        b->len[d] = d < b->ndim ? s->local[d] : 0;
    }
    b->lo[s->axis] = s->start;
    b->len[s->axis] = s->length;
    for (uint32_t d = 0; k->d.scales && d < 2; d++) {
        b->lo[d] /= block[d];
        b->len[d] = b->len[d] / block[d] + (b->len[d] % block[d] != 0);
    }
}

static void fill_place(const struct making *k, const struct place *at, struct sw_piece *piece)
{
    const uint32_t first = k->d.p.rule->rule->stacked;

    memset(piece->to, 0, sizeof(piece->to));
    piece->to[0] = at->slot;
    piece->to[first] = at->row;
}

static int add_zeros(struct making *k, const struct sw_part_split *s, const struct place *at)
{
    const uint32_t first = k->d.p.rule->rule->stacked;
    struct sw_piece *piece = add_piece(k->out);

    if (!piece)
        return sw_fail(k->d.e, SW_ERR_NOMEM, "no memory for the pieces of a parameter");
    fill_box(k, s, piece);
    fill_place(k, at, piece);
    piece->kind = SW_PIECE_ZERO;
    piece->tensor = UINT32_MAX;
    piece->others = 0;
    piece->from.lo[s->axis] = 0;
    piece->from.len[s->axis] = s->zero;
    piece->to[first + s->axis] += s->length;
    return 0;
}

static int add_part(struct making *k, const struct sw_part_split *s, struct place *at)
{
    uint32_t tensor, others;
    struct sw_piece *piece;
    int err = find_tensors(k, s, &tensor, &others);

    if (err)
        return err;
    if (s->length) {
        piece = add_piece(k->out);
        if (!piece)
            return sw_fail(k->d.e, SW_ERR_NOMEM, "no memory for the pieces of a parameter");
        fill_box(k, s, piece);
        fill_place(k, at, piece);
        piece->kind = k->d.scales ? SW_PIECE_SCALES : SW_PIECE_VALUES;
        piece->tensor = tensor;
        piece->others = others;
    }
    if (s->zero && (err = add_zeros(k, s, at)))
        return err;
    at->row += k->d.scales
                   ? s->local[0] / k->d.p.at->block[0] + (s->local[0] % k->d.p.at->block[0] != 0)
                   : s->local[0];
    return 0;
}

static int add_slot(struct making *k, const struct sw_part_split *parts, uint64_t slot)
{
    struct place at = {.slot = slot};
    int err = 0;

    for (uint32_t i = 0; !err && i < k->d.p.n_parts; i++)
        err = add_part(k, &parts[i], &at);
    return err;
}

/* The expert in a slot of this rank. */
static int find_expert(struct making *k, uint64_t slot, int64_t *expert)
{
    const struct sw_placement *at = k->d.p.at;
    const struct sw_model_rule *r = k->d.p.rule;
    const int64_t layer = r->layer >= 0 ? k->d.p.values[r->layer] : 0;
    char name[200];
    uint32_t id;

    if (!at->map || r->rule->stack_group != SW_GROUP_EP) {
        *expert = r->stack_from + (int64_t)(at->at.of[r->rule->stack_group].rank * k->d.p.slots) +
                  (int64_t)slot;
        return 0;
    }
    sw_text_escape(name, sizeof(name), k->d.declared->name);
    if (at->map_layers > 1 && layer >= at->map_layers)
        return sw_fail(k->d.e, SW_ERR_PLAN,
            "parameter '%s' (rule %s): the expert map has %u layers: expected one for layer %lld",
            name, r->rule->head.at, at->map_layers, (long long)layer);
    id = at->map[(at->map_layers > 1 ? (uint64_t)layer : 0) * at->map_slots + slot];
    if (id < r->stack_from || id >= r->stack_from + r->stack_count)
        return sw_fail(k->d.e, SW_ERR_PLAN,
            "parameter '%s' (rule %s): the expert map has %s%u in layer %lld, slot %llu: expected "
            "an expert from %lld to %lld",
            name, r->rule->head.at, id == UINT32_MAX ? "a hole, " : "", id, (long long)layer,
            (unsigned long long)slot, (long long)r->stack_from,
            (long long)(r->stack_from + r->stack_count - 1));
    *expert = id;
    return 0;
}

static int add_slots(struct making *k)
{
    const struct sw_rule_head *h = &k->d.p.rule->rule->head;
    int err = 0;

    for (uint64_t slot = 0; !err && slot < k->d.p.slots; slot++) {
        err = find_expert(k, slot, &k->d.p.values[h->n_for]);
        if (!err)
            err = add_slot(k, k->d.p.parts, slot);
    }
    if (!err && k->d.p.at->fused_shared_experts)
        err = add_slot(k, k->d.p.extras, k->d.p.slots);
    return err;
}

int sw_model_pieces(const struct sw_model *m, const struct sw_placement *at,
    const struct sw_parameter *p, struct sw_pieces *pieces, struct sw_error *e)
{
    struct making k; /* large, and filled as it is needed */
    int err;

    k.d.p.m = m;
    k.d.p.at = at;
    k.d.p.name = p->name;
    k.d.p.rule = NULL;
    k.d.declared = p;
    k.d.scales = k.d.quantised = false;
    k.d.e = e;
    k.out = pieces;
    pieces->n = pieces->n_others = 0;
    pieces->derived = pieces->expert = pieces->quantised = false;
    pieces->rule = "";
    err = sw_declared_find(&k.d);
    if (err <= 0) {
        pieces->derived = err == 0;
        return err;
    }
    err = sw_declared_check(&k.d);
    if (err)
        return err;
    pieces->rule = k.d.p.rule->rule->head.at;
    pieces->expert = k.d.p.rule->rule->stacked;
    pieces->quantised = k.d.quantised;
    return pieces->expert ? add_slots(&k) : add_slot(&k, k.d.p.parts, 0);
}
