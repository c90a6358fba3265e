/* SPDX-License-Identifier: Apache-2.0 */
/* Every parameter of an engine rank. */
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/model_impl.h"

struct listing {
    const struct sw_model *m;
    const struct sw_placement *at;
    sw_model_parameter_fn *fn;
    void *arg;
    struct sw_error *e;
    bool draft;          /* which of them are listed */
    uint32_t first_layered; /* the first rule with layers */
    bool first, last;    /* stage */
    int64_t from, end;   /* layers of the stage */
};

/* ---- stages ---- */

static bool listed(const struct listing *l, const struct sw_model_rule *r)
{
    return r->rule->head.draft == l->draft && r->count[0] * r->count[1] > 0;
}

/* The layers that rules speak of, of the draft model or of the other one. */
static void find_layers(struct listing *l)
{
    bool any = false;

    l->first_layered = l->m->n_parameters;
    l->from = l->end = 0;
    for (uint32_t i = 0; i < l->m->n_parameters; i++) {
        const struct sw_model_rule *r = &l->m->parameters[i];
        int64_t from, end;

        if (!listed(l, r) || r->layer < 0)
            continue;
        from = r->from[r->layer];
        end = from + r->count[r->layer];
        if (!any)
            l->first_layered = i;
        l->from = !any || from < l->from ? from : l->from;
        l->end = end > l->end ? end : l->end;
        any = true;
    }
}

/* This rank's stage of them. */
static void cut_stage(struct listing *l)
{
    const struct sw_group *pp = &l->at->at.of[SW_GROUP_PP];
    const int64_t size = pp->size ? pp->size : 1, rank = pp->rank;
    const int64_t each = (l->end - l->from) / size, more = (l->end - l->from) % size;

    l->from += rank * each + (rank < more ? rank : more);
    l->end = l->from + each + (rank < more);
    l->first = rank == 0;
    l->last = rank == size - 1;
}

/* Whether the stage has the parameter of this name, of a rule without layers. */
static bool stage_has(const struct listing *l, const char *name)
{
    int64_t values[SW_RULE_VARIABLES_MAX];
    struct sw_name n;
    uint32_t i;

    if (l->first && l->last)
        return true;
    if (!sw_name_read(name, strlen(name), &n))
        return false;
    i = sw_pattern_index_find(&l->m->names, &n, UINT32_MAX, values);
    if (i == UINT32_MAX)
        return false;
    if (l->m->parameters[i].layer >= 0) {
        const int64_t layer = values[l->m->parameters[i].layer];

        return layer >= l->from && layer < l->end;
    }
    return i < l->first_layered ? l->first : l->last;
}

/* ---- one parameter ---- */

static int give_scales(
    const struct listing *l, const struct sw_parameter_at *p, struct sw_model_parameter *out)
{
    char name[SW_NAME_MAX + 1];
    const size_t n = strlen(p->name);

    if (n + sizeof(SW_SCALE_SUFFIX) > sizeof(name))
        return sw_fail(l->e, SW_ERR_PLAN, "parameter '%s': expected a shorter name", p->name);
    memcpy(name, p->name, n);
    memcpy(name + n, SW_SCALE_SUFFIX, sizeof(SW_SCALE_SUFFIX));
    out->name = name;
    out->dtype = l->at->scale == SW_SCALE_UE8M0 ? SW_F8_E8M0 : SW_F32;
    out->alias_of = NULL;
    out->scale = true;
    return l->fn(l->arg, out);
}

/* Whether config.json leaves the parameter, or a tensor that it is made of, as it is. */
static bool left_out(const struct sw_parameter_at *p)
{
    const struct sw_model *m = p->m;

    if (!m->n_unconverted)
        return false;
    if (sw_model_unconverted(m, p->name))
        return true;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct sw_rule_choice *choice = &p->rule->parts[i].choices[0];
        const struct sw_model_role *role = &m->roles[choice->tensor];
        int64_t values[SW_RULE_FOR_MAX] = {0};
        uint64_t origin[SW_MAX_DIMS];
        char name[SW_NAME_MAX + 1];
        uint32_t tensor, stored;

        for (uint32_t v = 0; v < role->r.n_variables; v++)
            if (sw_expression_evaluate(&choice->index[v].x, p->values, &values[v], NULL))
                return false;
        tensor = sw_role_tensor(role, values);
        if (tensor == UINT32_MAX || !sw_model_locate(m, tensor, 0, &stored, origin))
            continue;
        sw_model_stored_name(m, stored, name);
        if (sw_model_unconverted(m, name))
            return true;
    }
    return false;
}

static int give(const struct listing *l, struct sw_parameter_at *p)
{
    const struct sw_rule_parameter *rule = p->rule->rule;
    struct sw_model_parameter out = {.name = p->name, .draft = rule->head.draft,
        .expert = rule->stacked};
    char alias[SW_NAME_MAX + 1];
    uint64_t scales[SW_MAX_DIMS] = {0};
    bool quantised;
    int err = sw_parameter_measure(p, l->e);

    if (err)
        return err;
    quantised = rule->quantise && l->at->block[0] && l->at->scale != SW_SCALE_NONE &&
                !left_out(p);
    if (quantised && (err = sw_parameter_measure_scales(p, scales, l->e)))
        return err;
    out.dtype = quantised              ? SW_F8_E4M3
                : rule->head.dtype     ? rule->head.dtype
                                       : p->parts[0].role->r.dtype;
    out.ndim = p->ndim;
    memcpy(out.shape, p->shape, p->ndim * sizeof(*p->shape));
    if (p->rule->alias) {
        (void)sw_pattern_print(&rule->alias_pattern, p->values, alias);
        if (stage_has(l, alias))
            out.alias_of = alias;
    }
    err = l->fn(l->arg, &out);
    if (err || !quantised)
        return err;
    memcpy(out.shape, scales, p->ndim * sizeof(*scales));
    return give_scales(l, p, &out);
}

static int give_if_there(
    const struct listing *l, const struct sw_model_rule *r, const int64_t *values)
{
    struct sw_parameter_at p;
    char name[SW_NAME_MAX + 1];
    int applies;

    p.m = l->m;
    p.at = l->at;
    p.rule = r;
    p.name = name;
    memset(p.shape, 0, sizeof(p.shape));
    memset(p.values, 0, sizeof(p.values));
    memcpy(p.values, values, SW_RULE_FOR_MAX * sizeof(*values));
    applies = sw_rule_applies(r, l->at, p.values, l->e);
    if (applies <= 0)
        return applies;
    (void)sw_pattern_print(&r->rule->pattern, p.values, name);
    return give(l, &p);
}

/* All of a rule, or of one layer. */
static int give_rule(const struct listing *l, const struct sw_model_rule *r, int64_t layer)
{
    int64_t values[SW_RULE_FOR_MAX] = {0}, from[2], end[2];

    for (int v = 0; v < 2; v++) {
        from[v] = v == r->layer ? layer : r->from[v];
        end[v] = v == r->layer ? layer + 1 : r->from[v] + r->count[v];
    }
    for (values[0] = from[0]; values[0] < end[0]; values[0]++)
        for (values[1] = from[1]; values[1] < end[1]; values[1]++) {
            int err = give_if_there(l, r, values);

            if (err)
                return err;
        }
    return 0;
}

/* ---- all ---- */

static int give_unlayered(const struct listing *l, uint32_t from, uint32_t end)
{
    int err = 0;

    for (uint32_t i = from; !err && i < end; i++) {
        const struct sw_model_rule *r = &l->m->parameters[i];

        if (listed(l, r) && r->layer < 0)
            err = give_rule(l, r, 0);
    }
    return err;
}

static int give_layers(const struct listing *l)
{
    int err = 0;

    for (int64_t layer = l->from; layer < l->end; layer++)
        for (uint32_t i = l->first_layered; i < l->m->n_parameters; i++) {
            const struct sw_model_rule *r = &l->m->parameters[i];

            if (!listed(l, r) || r->layer < 0)
                continue;
            if ((err = give_rule(l, r, layer)))
                return err;
        }
    return 0;
}

static int give_all(const struct listing *l)
{
    int err = 0;

    if (l->first)
        err = give_unlayered(l, 0, l->first_layered);
    if (!err)
        err = give_layers(l);
    if (!err && l->last)
        err = give_unlayered(l, l->first_layered, l->m->n_parameters);
    return err;
}

int sw_model_list(const struct sw_model *m, const struct sw_placement *at, bool draft,
    sw_model_parameter_fn *fn, void *arg, struct sw_error *e)
{
    struct listing l = {.m = m, .at = at, .fn = fn, .arg = arg, .e = e};
    const struct sw_group *pp = &at->at.of[SW_GROUP_PP];
    int err;

    if (pp->size && pp->rank >= pp->size)
        return sw_fail(e, SW_ERR_PLAN, "pp: rank %u of %u: expected a rank below the size",
            pp->rank, pp->size);
    find_layers(&l);
    cut_stage(&l);
    err = give_all(&l);
    if (err || !draft || !l.last)
        return err;
    l.draft = true; /* the whole draft model is in the last stage */
    find_layers(&l);
    l.first = true;
    return give_all(&l);
}
