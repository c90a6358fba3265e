/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank has of a parameter: its shape, and which run of each of its parts. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/text.h"
#include "trainerd/plan/model_impl.h"

/* "parameter 'NAME' (rule FILE:LINE): " in front of the error, as SW_ERR_PLAN. */
static int wrong(const struct sw_parameter_at *p, struct sw_error *e)
{
    char shown[200];

    if (e)
        e->code = SW_ERR_PLAN;
    (void)sw_error_context(e, SW_ERR_PLAN, "parameter '%s' (rule %s)",
        sw_text_escape(shown, sizeof(shown), p->name), p->rule->rule->head.at);
    return SW_ERR_PLAN;
}

static void fill_engine(const struct sw_placement *at, int64_t *values)
{
    const struct sw_group *pp = &at->at.of[SW_GROUP_PP];

    values[SW_RULE_FUSED] = at->fused_shared_experts;
    values[SW_RULE_PP_FIRST] = pp->rank == 0;
    values[SW_RULE_PP_LAST] = pp->rank + 1 >= pp->size;
    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        values[SW_RULE_GROUPS + g] = at->at.of[g].size;
}

int sw_rule_applies(const struct sw_model_rule *r, const struct sw_placement *at, int64_t *values,
    struct sw_error *e)
{
    const struct sw_rule_head *h = &r->rule->head;
    int64_t applies = 1;
    int err;

    if (r->dead)
        return 0;
    for (uint32_t v = 0; v < h->n_for; v++) {
        if (!sw_pattern_holds(r->pattern, (int)v))
            values[v] = r->from[v]; /* the only one */
        if (values[v] < r->from[v] || values[v] >= r->from[v] + r->count[v])
            return 0;
    }
    if (r->rule->stacked)
        values[h->n_for] = 0;
    fill_engine(at, &values[h->n_own]);
    if (!r->when.x.nodes)
        return 1;
    err = sw_expression_evaluate(&r->when.x, values, &applies, e);
    if (err) {
        if (e)
            e->code = SW_ERR_PLAN;
        (void)sw_rule_value_context(e, SW_ERR_PLAN, h, &r->when);
        return SW_ERR_PLAN;
    }
    return applies != 0;
}

/* ---- one part ---- */

struct cut {                            /* what is asked of a split */
    uint64_t length, units, size, rank; /* units: elements of one */
    const char *group;
};

static int get_number(const struct sw_parameter_at *p, const struct sw_rule_value *v,
    uint64_t otherwise, uint64_t *out, struct sw_error *e)
{
    int64_t value;
    int err;

    *out = otherwise;
    if (!v->x.nodes)
        return 0;
    err = sw_expression_evaluate(&v->x, p->values, &value, e);
    if (!err && value < 1)
        err = sw_fail(e, SW_ERR_PLAN, "expected '%.60s' to be above 0, found %lld", v->x.text,
            (long long)value);
    if (err)
        return err;
    *out = (uint64_t)value;
    return 0;
}

static int too_uneven(const struct sw_part_split *s, const struct cut *c, struct sw_error *e)
{
    const unsigned long long whole = c->length / c->units;
    const char *unit = c->units > 1 ? " units" : s->axis == 0 ? " rows" : " columns";

    return sw_fail(e, SW_ERR_PLAN,
        "tensor '%s' has %llu%s, which %s %llu does not divide: expected a multiple of it%s (%s)",
        s->role->r.name, whole, unit, c->group, (unsigned long long)c->size,
        s->part->shared ? ", or a divisor" : "", s->part->at);
}

/* The run of `length` that is this rank's: start and how many. */
static int cut_run(const struct sw_part_split *s, const struct cut *c, uint64_t *start,
    uint64_t *length, struct sw_error *e)
{
    uint64_t units;

    if (c->length % c->units)
        return sw_fail(e, SW_ERR_PLAN,
            "tensor '%s' has %llu %s: expected a multiple of a unit's %llu (%s)", s->role->r.name,
            (unsigned long long)c->length, s->axis == 0 ? "rows" : "columns",
            (unsigned long long)c->units, s->part->at);
    units = c->length / c->units;
    if (units % c->size == 0) {
        *length = units / c->size * c->units;
        *start = c->rank * *length;
        return 0;
    }
    if (!s->part->shared || c->size % units)
        return too_uneven(s, c, e);
    *length = c->units;
    *start = c->rank / (c->size / units) * c->units;
    return 0;
}

static int split_part(const struct sw_parameter_at *p, struct sw_part_split *s, struct sw_error *e)
{
    const struct sw_tensor_role *r = &s->role->r;
    const struct sw_group *g = &p->at->at.of[s->part->group];
    struct cut c = {.size = g->size, .rank = g->rank, .group = sw_group_name(s->part->group)};
    uint64_t padded, start = 0, length = 0;
    int err;

    s->axis = s->part->axis == SW_AXIS_ROWS ? 0 : r->ndim - 1;
    if (g->size == 0 || g->rank >= g->size)
        return sw_fail(e, SW_ERR_PLAN, "%s is rank %u of %u: expected the rank's place in it",
            c.group, g->rank, g->size);
    if ((err = get_number(p, &s->part->units, 1, &c.units, e)) ||
        (err = get_number(p, &s->part->padded, 1, &padded, e)))
        return err;
    if (padded > UINT32_MAX)
        return sw_fail(e, SW_ERR_PLAN, "expected to pad to a number below 2^32, found %llu (%s)",
            (unsigned long long)padded, s->part->at);
    c.length = (r->shape[s->axis] + padded - 1) / padded * padded; /* shapes end at 2^40 */
    err = cut_run(s, &c, &start, &length, e);
    if (err)
        return err;
    s->local[s->axis] = length;
    s->start = start < r->shape[s->axis] ? start : r->shape[s->axis];
    s->length = r->shape[s->axis] - s->start < length ? r->shape[s->axis] - s->start : length;
    s->zero = length - s->length;
    return 0;
}

static int measure_part(const struct sw_parameter_at *p, const struct sw_rule_part *part,
    struct sw_part_split *s, struct sw_error *e)
{
    const struct sw_model_role *role = &p->m->roles[part->choices[0].tensor];

    if (role->r.n_tensors == 0 && part->n_choices > 1)
        role = &p->m->roles[part->choices[1].tensor];
    if (role->r.n_tensors == 0)
        return sw_fail(e, SW_ERR_PLAN, "the model has no tensor '%s' (%s)", role->r.name, part->at);
    s->part = part;
    s->role = role;
    memcpy(s->local, role->r.shape, sizeof(s->local));
    s->axis = 0;
    s->start = s->zero = 0;
    s->length = role->r.shape[0];
    return part->axis == SW_AXIS_NONE ? 0 : split_part(p, s, e);
}

/* ---- all parts ---- */

static int check_alike(const struct sw_part_split *first, const struct sw_part_split *s,
    uint32_t from, struct sw_error *e)
{
    if (s->role->r.ndim == first->role->r.ndim &&
        memcmp(&s->local[from], &first->local[from],
            (s->role->r.ndim - from) * sizeof(s->local[0])) == 0)
        return 0;
    return sw_fail(e, SW_ERR_PLAN,
        "expected parts '%s' and '%s' to have equal lengths in all dimensions%s (%s)",
        first->role->r.name, s->role->r.name, from ? " but the first" : "", s->part->at);
}

static int measure_parts(struct sw_parameter_at *p, const struct sw_rule_part *parts,
    struct sw_part_split *out, uint64_t *rows, struct sw_error *e)
{
    const uint32_t n = p->n_parts;

    *rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        int err = measure_part(p, &parts[i], &out[i], e);

        if (err || (err = check_alike(&p->parts[0], &out[i], 1, e)))
            return err;
        *rows += out[i].local[0];
    }
    return 0;
}

static int measure_slots(struct sw_parameter_at *p, struct sw_error *e)
{
    const struct sw_model_rule *r = p->rule;
    const struct sw_group *g = &p->at->at.of[r->rule->stack_group];

    if (g->size == 0 || g->rank >= g->size)
        return sw_fail(e, SW_ERR_PLAN, "%s is rank %u of %u: expected the rank's place in it",
            sw_group_name(r->rule->stack_group), g->rank, g->size);
    if (p->at->map && r->rule->stack_group == SW_GROUP_EP) {
        p->slots = p->at->map_slots;
        return 0;
    }
    if (r->stack_count % g->size)
        return sw_fail(e, SW_ERR_PLAN,
            "%lld of '%s', which %s %u does not divide: expected a multiple of it, or an expert "
            "map",
            (long long)r->stack_count, r->rule->stack.variable, sw_group_name(r->rule->stack_group),
            g->size);
    p->slots = (uint64_t)r->stack_count / g->size;
    return 0;
}

static int measure_extras(struct sw_parameter_at *p, struct sw_error *e)
{
    const struct sw_rule_parameter *rule = p->rule->rule;
    uint64_t rows, own = p->shape[1];
    int err;

    if (!p->at->fused_shared_experts)
        return 0;
    if (p->at->fused_shared_experts != 1 || rule->n_extras != rule->n_parts)
        return sw_fail(e, SW_ERR_PLAN,
            "the engine fuses %u shared experts: expected 1, and a line 'extra' for each 'part'",
            p->at->fused_shared_experts);
    err = measure_parts(p, p->rule->extras, p->extras, &rows, e);
    for (uint32_t i = 0; !err && i < p->n_parts; i++)
        err = check_alike(&p->parts[i], &p->extras[i], 0, e);
    if (!err && rows != own)
        err = sw_fail(e, SW_ERR_PLAN, "expected the extra slot to have %llu rows, found %llu",
            (unsigned long long)own, (unsigned long long)rows);
    p->shape[0]++;
    return err;
}

int sw_parameter_measure(struct sw_parameter_at *p, struct sw_error *e)
{
    const struct sw_rule_parameter *rule = p->rule->rule;
    const uint32_t first = rule->stacked;
    uint64_t rows;
    int err;

    p->n_parts = rule->n_parts;
    p->slots = 1;
    err = measure_parts(p, p->rule->parts, p->parts, &rows, e);
    if (!err && rule->stacked)
        err = measure_slots(p, e);
    if (err)
        return wrong(p, e);
    p->ndim = first + p->parts[0].role->r.ndim;
    p->shape[0] = p->slots;
    p->shape[first] = rows;
    for (uint32_t d = first + 1; d < p->ndim; d++)
        p->shape[d] = p->parts[0].local[d - first];
    if (rule->stacked && measure_extras(p, e))
        return wrong(p, e);
    return 0;
}

/* ---- blocks ---- */

/* The largest power of two that divides all of them, at most `most`. */
static unsigned fitting_block(uint64_t a, uint64_t b, uint64_t c, unsigned most)
{
    unsigned block = 1;

    while (
        block * 2 <= most && a % (block * 2) == 0 && b % (block * 2) == 0 && c % (block * 2) == 0)
        block *= 2;
    return block;
}

static int cuts_block(const struct sw_parameter_at *p, const struct sw_part_split *s,
    const char *what, uint64_t a, uint64_t b, struct sw_error *e)
{
    const struct sw_group *g = &p->at->at.of[s->part->group];
    const uint32_t *block = p->at->block;
    const unsigned fits = fitting_block(a, b, s->local[s->axis], block[0]);
    char hint[80] = "; no block of 16 or more would divide", split[80] = "its place";

    if (fits >= 16)
        (void)snprintf(hint, sizeof(hint), "; blocks of %ux%u would divide", fits, fits);
    if (s->part->axis != SW_AXIS_NONE)
        (void)snprintf(
            split, sizeof(split), "%s %u splits it and", sw_group_name(s->part->group), g->size);
    return sw_fail(e, SW_ERR_PLAN,
        "tensor '%s': %s puts %llu %s into blocks of %ux%u, so that %s lies inside a block%s (%s)",
        s->role->r.name, split, (unsigned long long)s->local[s->axis],
        s->axis == 0 ? "rows" : "columns", block[0], block[1], what, hint, s->part->at);
}

static int check_blocks(
    const struct sw_parameter_at *p, const struct sw_part_split *s, bool last, struct sw_error *e)
{
    const uint32_t *block = p->at->block;
    const uint64_t *shape = s->role->r.shape;

    if (s->role->r.ndim != 2)
        return sw_fail(e, SW_ERR_PLAN,
            "tensor '%s' has %u dimensions: expected 2 of what is FP8 in blocks (%s)",
            s->role->r.name, s->role->r.ndim, s->part->at);
    if (s->zero)
        return sw_fail(e, SW_ERR_PLAN,
            "tensor '%s' is padded: expected no padding of what is FP8 in blocks (%s)",
            s->role->r.name, s->part->at);
    if (s->part->axis != SW_AXIS_NONE) {
        const uint64_t b = block[s->axis], end = s->start + s->length;

        if (s->start % b || (end % b && end != shape[s->axis]))
            return cuts_block(p, s, "a boundary", s->start, end, e);
    }
    if (!last && s->local[0] % block[0])
        return cuts_block(p, s, "the next part's beginning", 0, s->local[0], e);
    return 0;
}

static uint64_t blocks(uint64_t length, uint32_t block)
{
    return length / block + (length % block != 0);
}

int sw_parameter_measure_scales(
    const struct sw_parameter_at *p, uint64_t *shape, struct sw_error *e)
{
    const uint32_t first = p->rule->rule->stacked;
    const uint32_t *block = p->at->block;
    uint64_t rows = 0;

    if (block[0] == 0 || block[1] == 0 || p->at->scale == SW_SCALE_NONE) {
        sw_fail(e, SW_ERR_PLAN,
            "expected the engine to say its block size and scale format, found "
            "none");
        return wrong(p, e);
    }
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const bool last = i + 1 == p->n_parts;

        if (check_blocks(p, &p->parts[i], last, e) ||
            (p->at->fused_shared_experts && first && check_blocks(p, &p->extras[i], last, e)))
            return wrong(p, e);
        rows += blocks(p->parts[i].local[0], block[0]);
    }
    shape[0] = p->shape[0];
    shape[first] = rows;
    shape[first + 1] = blocks(p->shape[p->ndim - 1], block[1]);
    return 0;
}
