/* SPDX-License-Identifier: Apache-2.0 */
/* A declared parameter, checked against its rule and cut into pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/text.h"
#include "trainerd/plan/model_impl.h"

struct making {
    struct sw_parameter_at p;
    struct sw_pieces *out;
    const struct sw_parameter *declared;
    bool scales;
    struct sw_error *e;
};

void sw_pieces_free(struct sw_pieces *p)
{
    free(p->items);
    free(p->others);
    *p = (struct sw_pieces){0};
}

/* ---- finding the rule ---- */

/* 1: found; 0: no rule has this name; or an error. `near` is one that has the name but not these
 * values. */
static int find_rule(
    struct making *k, const char *name, size_t length, const struct sw_model_rule **near)
{
    const struct sw_model *m = k->p.m;
    struct sw_name n;
    uint32_t i;

    if (!sw_name_read(name, length, &n))
        return 0;
    for (i = sw_pattern_index_find(&m->names, &n, UINT32_MAX, k->p.values); i != UINT32_MAX;
         i = sw_pattern_index_find(&m->names, &n, i, k->p.values)) {
        int applies = sw_rule_applies(&m->parameters[i], k->p.at, k->p.values, k->e);

        if (applies < 0)
            return applies;
        k->p.rule = *near = &m->parameters[i];
        if (applies)
            return 1;
    }
    return 0;
}

static bool is_derived(const struct sw_model *m, const char *name)
{
    int64_t values[SW_RULE_VARIABLES_MAX];
    struct sw_name n;

    return sw_name_read(name, strnlen(name, SW_NAME_MAX + 1), &n) &&
           sw_pattern_index_find(&m->derived, &n, UINT32_MAX, values) != UINT32_MAX;
}

/* Formats that are known by what they put beside, or instead of, a weight. */
static const char *foreign_format(const struct sw_parameter *p)
{
    static const struct {
        const char *end, *format;
    } ends[] = {
        {"_packed", "INT4 or NVFP4 (compressed-tensors)"},
        {"_shape", "INT4 (compressed-tensors)"},
        {"_zero_point", "INT4 (compressed-tensors)"},
        {"qweight", "INT4 (AWQ or GPTQ)"},
        {"qzeros", "INT4 (AWQ or GPTQ)"},
        {".scales", "INT4 (AWQ or GPTQ)"},
        {"g_idx", "INT4 (GPTQ)"},
        {"_scale_2", "NVFP4"},
        {"_global_scale", "NVFP4"},
        {"_blocks", "MXFP4"},
        {"_scales", "MXFP4"},
        {"_bias_correction", "MXFP4"},
        {"input_scale", "FP8 with static activation scales"},
        {"weight_scale", "FP8 with scales of whole tensors or channels"},
    };
    const size_t n = strlen(p->name);

    if (p->dtype == SW_F4)
        return "MXFP4 or NVFP4";
    if (p->dtype == SW_F6_E2M3 || p->dtype == SW_F6_E3M2)
        return "MXFP6";
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        const size_t length = strlen(ends[i].end);

        if (n >= length && strcmp(p->name + n - length, ends[i].end) == 0)
            return ends[i].format;
    }
    return NULL;
}

static int refuse_format(const struct making *k, const char *format)
{
    char shown[200];

    return sw_fail(k->e, SW_ERR_PLAN,
        "parameter '%s' (%s) is of an engine with %s weights, which is not done: expected BF16, "
        "F16, F32, or FP8 in blocks",
        sw_text_escape(shown, sizeof(shown), k->declared->name), sw_dtype_name(k->declared->dtype),
        format);
}

static int no_rule(const struct making *k, const struct sw_model_rule *near)
{
    const char *format = foreign_format(k->declared);
    const struct sw_rules *rules = k->p.m->rules;
    char shown[200];

    if (format)
        return refuse_format(k, format);
    sw_text_escape(shown, sizeof(shown), k->declared->name);
    if (near && k->scales && !near->rule->quantise)
        return sw_fail(k->e, SW_ERR_PLAN,
            "parameter '%s': the rule %s ([%s]) has no `quantise`, so that there are no scales",
            shown, near->rule->head.at, near->rule->head.header);
    if (near && near->dead)
        return sw_fail(k->e, SW_ERR_PLAN,
            "parameter '%s': the rule %s has no such parameter for this config.json", shown,
            near->rule->head.at);
    if (near)
        return sw_fail(k->e, SW_ERR_PLAN,
            "parameter '%s': the rule %s ([%s]) does not have this one: expected a number in its "
            "`for`, its `when` to hold, or another rule",
            shown, near->rule->head.at, near->rule->head.header);
    return sw_fail(k->e, SW_ERR_PLAN,
        "parameter '%s': no rule of the layout file covers it (%u [parameter] sections for this "
        "engine, for %s); add one, or put it under [derived] if the engine makes it itself",
        shown, k->p.m->n_parameters, rules->n_architectures ? rules->architectures[0] : "no model");
}

/* Sets rule, values and whether it is about scales; 1 = found, 0 = derived, or an error. */
static int find_parameter(struct making *k)
{
    const char *name = k->declared->name;
    const size_t n = strnlen(name, SW_NAME_MAX + 1), suffix = strlen(SW_SCALE_SUFFIX);
    const struct sw_model_rule *near = NULL;
    int found = find_rule(k, name, n, &near);

    if (found != 0)
        return found;
    if (n > suffix && strcmp(name + n - suffix, SW_SCALE_SUFFIX) == 0) {
        found = find_rule(k, name, n - suffix, &near);
        if (found < 0)
            return found;
        k->scales = true;
        if (found && k->p.rule->rule->quantise)
            return 1;
    }
    return is_derived(k->p.m, name) ? 0 : no_rule(k, near);
}

/* ---- checking what was declared ---- */

static void print_shape(char *out, size_t size, uint32_t ndim, const uint64_t *shape)
{
    size_t n = 0;

    for (uint32_t d = 0; d < ndim && d < SW_MAX_DIMS && n + 24 < size; d++)
        n += (size_t)snprintf(
            out + n, size - n, "%s%llu", d ? ", " : "", (unsigned long long)shape[d]);
    out[n] = '\0';
}

static int check_shape(const struct making *k, uint32_t ndim, const uint64_t *shape)
{
    const struct sw_parameter *d = k->declared;
    const struct sw_group *of = k->p.at->at.of;
    char name[200], expected[160], found[160];

    if (d->ndim == ndim && memcmp(d->shape, shape, ndim * sizeof(*shape)) == 0)
        return 0;
    print_shape(expected, sizeof(expected), ndim, shape);
    print_shape(found, sizeof(found), d->ndim, d->shape);
    return sw_fail(k->e, SW_ERR_PLAN,
        "parameter '%s' (rule %s): expected shape [%s] at tp %u of %u, attn_tp %u of %u, moe_tp %u "
        "of %u, ep %u of %u; found [%s]",
        sw_text_escape(name, sizeof(name), d->name), k->p.rule->rule->head.at, expected,
        of[SW_GROUP_TP].rank, of[SW_GROUP_TP].size, of[SW_GROUP_ATTN_TP].rank,
        of[SW_GROUP_ATTN_TP].size, of[SW_GROUP_MOE_TP].rank, of[SW_GROUP_MOE_TP].size,
        of[SW_GROUP_EP].rank, of[SW_GROUP_EP].size, found);
}

static int wrong_dtype(const struct making *k, const char *expected)
{
    char name[200];

    return sw_fail(k->e, SW_ERR_PLAN, "parameter '%s' (rule %s): expected %s, found %s",
        sw_text_escape(name, sizeof(name), k->declared->name), k->p.rule->rule->head.at, expected,
        sw_dtype_name(k->declared->dtype));
}

static bool castable(enum sw_dtype d)
{
    return d == SW_BF16 || d == SW_F16 || d == SW_F32;
}

static int check_scale_dtype(const struct making *k)
{
    const enum sw_dtype found = k->declared->dtype;

    if (found == SW_F32 || (found == SW_F8_E8M0 && k->p.at->scale == SW_SCALE_UE8M0))
        return 0;
    return wrong_dtype(k, k->p.at->scale == SW_SCALE_UE8M0 ? "F32 or F8_E8M0" : "F32");
}

static int check_dtype(struct making *k, enum sw_dtype tensor)
{
    const enum sw_dtype found = k->declared->dtype;
    const bool quantise = k->p.rule->rule->quantise;
    char expected[64];

    if (found == tensor || (castable(found) && castable(tensor)))
        return 0;
    if (found == SW_F8_E4M3 && quantise && castable(tensor)) {
        k->out->quantised = true;
        return 0;
    }
    if (found == SW_F4 || found == SW_F6_E2M3 || found == SW_F6_E3M2)
        return refuse_format(k, foreign_format(k->declared));
    snprintf(expected, sizeof(expected), "%s%s",
        castable(tensor) ? "BF16, F16 or F32" : sw_dtype_name(tensor),
        castable(tensor) && quantise ? ", or F8_E4M3 in blocks" : "");
    return wrong_dtype(k, expected);
}

static int check_declared(struct making *k)
{
    uint64_t scales[SW_MAX_DIMS] = {0};
    int err = k->scales ? check_scale_dtype(k) : 0;

    for (uint32_t i = 0; !err && !k->scales && i < k->p.n_parts; i++)
        err = check_dtype(k, k->p.parts[i].role->r.dtype);
    if (!err && (k->scales || k->out->quantised))
        err = sw_parameter_measure_scales(&k->p, scales, k->e);
    return err ? err : check_shape(k, k->p.ndim, k->scales ? scales : k->p.shape);
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
    const struct sw_model *m = k->p.m;
    const struct sw_model_role *role = &m->roles[choice->tensor];
    int64_t values[SW_RULE_FOR_MAX];

    for (uint32_t v = 0; v < role->r.n_variables; v++) {
        int err = sw_expression_evaluate(&choice->index[v].x, k->p.values, &values[v], k->e);

        if (err)
            return sw_error_context(k->e, SW_ERR_PLAN, "%s", part->at);
    }
    *tensor = sw_role_tensor(role, values);
    if (*tensor != UINT32_MAX && !sw_bit(m->exists, *tensor))
        *tensor = UINT32_MAX;
    return 0;
}

static int no_tensor(const struct making *k, const struct sw_part_split *s)
{
    const struct sw_rule_choice *choice = &s->part->choices[0];
    const struct sw_tensor_role *r = &k->p.m->roles[choice->tensor].r;
    char name[200], index[80] = "";
    size_t n = 0;

    for (uint32_t v = 0; v < r->n_variables; v++) {
        int64_t value = 0;

        (void)sw_expression_evaluate(&choice->index[v].x, k->p.values, &value, NULL);
        n += (size_t)snprintf(
            index + n, sizeof(index) - n, "%s%lld", v ? ", " : "", (long long)value);
    }
    return sw_fail(k->e, SW_ERR_PLAN,
        "parameter '%s' (rule %s): expected a tensor %s(%s), which %s does not have",
        sw_text_escape(name, sizeof(name), k->declared->name), s->part->at, r->name, index,
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
        return sw_fail(k->e, SW_ERR_NOMEM, "no memory for the pieces of a parameter");
    return 0;
}

/* Where in the parameter the part begins: slot, and the row in it (in blocks for scales). */
struct place {
    uint64_t slot, row;
};

static void fill_box(const struct making *k, const struct sw_part_split *s, struct sw_piece *piece)
{
    const uint32_t *block = k->p.at->block;
    struct sw_box *b = &piece->from;

    b->ndim = s->role->r.ndim;
    for (uint32_t d = 0; d < SW_MAX_DIMS; d++) {
        b->lo[d] = 0;
        b->len[d] = d < b->ndim ? s->local[d] : 0;
    }
    b->lo[s->axis] = s->start;
    b->len[s->axis] = s->length;
    for (uint32_t d = 0; k->scales && d < 2; d++) {
        b->lo[d] /= block[d];
        b->len[d] = b->len[d] / block[d] + (b->len[d] % block[d] != 0);
    }
}

static void fill_place(const struct making *k, const struct place *at, struct sw_piece *piece)
{
    const uint32_t first = k->p.rule->rule->stacked;

    memset(piece->to, 0, sizeof(piece->to));
    piece->to[0] = at->slot;
    piece->to[first] = at->row;
}

static int add_zeros(struct making *k, const struct sw_part_split *s, const struct place *at)
{
    const uint32_t first = k->p.rule->rule->stacked;
    struct sw_piece *piece = add_piece(k->out);

    if (!piece)
        return sw_fail(k->e, SW_ERR_NOMEM, "no memory for the pieces of a parameter");
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
            return sw_fail(k->e, SW_ERR_NOMEM, "no memory for the pieces of a parameter");
        fill_box(k, s, piece);
        fill_place(k, at, piece);
        piece->kind = k->scales ? SW_PIECE_SCALES : SW_PIECE_VALUES;
        piece->tensor = tensor;
        piece->others = others;
    }
    if (s->zero && (err = add_zeros(k, s, at)))
        return err;
    at->row += k->scales ? s->local[0] / k->p.at->block[0] + (s->local[0] % k->p.at->block[0] != 0)
                         : s->local[0];
    return 0;
}

static int add_slot(struct making *k, const struct sw_part_split *parts, uint64_t slot)
{
    struct place at = {.slot = slot};
    int err = 0;

    for (uint32_t i = 0; !err && i < k->p.n_parts; i++)
        err = add_part(k, &parts[i], &at);
    return err;
}

/* The expert in a slot of this rank. */
static int find_expert(struct making *k, uint64_t slot, int64_t *expert)
{
    const struct sw_placement *at = k->p.at;
    const struct sw_model_rule *r = k->p.rule;
    const int64_t layer = r->layer >= 0 ? k->p.values[r->layer] : 0;
    char name[200];
    uint32_t id;

    if (!at->map || r->rule->stack_group != SW_GROUP_EP) {
        *expert = r->stack_from + (int64_t)(at->at.of[r->rule->stack_group].rank * k->p.slots) +
                  (int64_t)slot;
        return 0;
    }
    sw_text_escape(name, sizeof(name), k->declared->name);
    if (at->map_layers > 1 && layer >= at->map_layers)
        return sw_fail(k->e, SW_ERR_PLAN,
            "parameter '%s' (rule %s): the expert map has %u layers: expected one for layer %lld",
            name, r->rule->head.at, at->map_layers, (long long)layer);
    id = at->map[(at->map_layers > 1 ? (uint64_t)layer : 0) * at->map_slots + slot];
    if (id < r->stack_from || id >= r->stack_from + r->stack_count)
        return sw_fail(k->e, SW_ERR_PLAN,
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
    const struct sw_rule_head *h = &k->p.rule->rule->head;
    int err = 0;

    for (uint64_t slot = 0; !err && slot < k->p.slots; slot++) {
        err = find_expert(k, slot, &k->p.values[h->n_for]);
        if (!err)
            err = add_slot(k, k->p.parts, slot);
    }
    if (!err && k->p.at->fused_shared_experts)
        err = add_slot(k, k->p.extras, k->p.slots);
    return err;
}

int sw_model_pieces(const struct sw_model *m, const struct sw_placement *at,
    const struct sw_parameter *p, struct sw_pieces *pieces, struct sw_error *e)
{
    struct making k;
    int err;

    k.p.m = m;
    k.p.at = at;
    k.p.name = p->name;
    k.p.rule = NULL;
    k.out = pieces;
    k.declared = p;
    k.scales = false;
    k.e = e;
    pieces->n = pieces->n_others = 0;
    pieces->derived = pieces->expert = pieces->quantised = false;
    pieces->rule = "";
    err = find_parameter(&k);
    if (err <= 0) {
        pieces->derived = err == 0;
        return err;
    }
    pieces->rule = k.p.rule->rule->head.at;
    pieces->expert = k.p.rule->rule->stacked;
    if ((err = sw_parameter_measure(&k.p, e)) || (err = check_declared(&k)))
        return err;
    return k.p.rule->rule->stacked ? add_slots(&k) : add_slot(&k, k.p.parts, 0);
}
