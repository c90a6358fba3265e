/* SPDX-License-Identifier: Apache-2.0 */
/* Every parameter of an engine rank. */
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/model_impl.h"

struct stage {              /* this rank's, of the model or of its draft model */
    uint32_t first_layered; /* the first rule with layers */
    bool first, last;
    int64_t from, end; /* layers */
};

struct listing {
    const struct sw_model *m;
    const struct sw_placement *at;
    sw_model_parameter_fn *fn;
    void *arg;
    struct sw_error *e;
    struct sw_parameter_at *p; /* the one that is given; large, and filled as it is needed */
    bool draft;                /* which of them is listed */
    struct stage stages[2];    /* by draft */
};

/* ---- stages ---- */

/* The layers that rules speak of. */
static struct stage find_layers(const struct sw_model *m, bool draft)
{
    struct stage s = {.first_layered = m->n_parameters, .first = true, .last = true};

    for (uint32_t i = 0; i < m->n_parameters; i++) {
        const struct sw_model_rule *r = &m->parameters[i];
        int64_t from, end;

        if (r->dead || r->layer < 0 || r->rule->unlisted || r->rule->head.draft != draft)
            continue;
        from = r->from[r->layer];
        end = from + r->count[r->layer];
        if (s.first_layered == m->n_parameters) {
            s.first_layered = i;
            s.from = from;
            s.end = end;
        }
        s.from = from < s.from ? from : s.from;
        s.end = end > s.end ? end : s.end;
    }
    return s;
}

/* How many stages before `stage` have one layer more, of `more` that do: which ones is the engine's
 * habit. */
static int64_t longer_before(enum sw_engine_kind kind, int64_t stage, int64_t size, int64_t more)
{
    int64_t first = 0; /* of them */

    if (kind == SW_ENGINE_SGLANG)
        first = size - more;
    if (kind == SW_ENGINE_VLLM && more > 0)
        first = size - 1 - more; /* the last stage has the head already */
    return stage <= first ? 0 : stage - first < more ? stage - first : more;
}

static void cut_stage(struct stage *s, enum sw_engine_kind kind, const struct sw_group *pp)
{
    const int64_t size = pp->size ? pp->size : 1, rank = pp->rank, n = s->end - s->from;
    const int64_t each = n / size, from = s->from;

    s->from = from + rank * each + longer_before(kind, rank, size, n % size);
    s->end = from + (rank + 1) * each + longer_before(kind, rank + 1, size, n % size);
    s->first = rank == 0;
    s->last = rank == size - 1;
}

static bool in_stage(const struct listing *l, const struct sw_model_rule *r, const int64_t *values)
{
    const struct stage *s = &l->stages[r->rule->head.draft];
    const uint32_t index = (uint32_t)(r - l->m->parameters);

    if (r->layer >= 0)
        return values[r->layer] >= s->from && values[r->layer] < s->end;
    if (r->staged)
        return true; /* its `when` has decided */
    return index < s->first_layered ? s->first : s->last;
}

/* The rule that has the parameter of this name; NULL = none. */
static const struct sw_model_rule *rule_of(
    const struct listing *l, const char *name, int64_t *values)
{
    const struct sw_model *m = l->m;
    struct sw_name n;
    uint32_t i;

    if (!sw_name_read(name, strlen(name), &n))
        return NULL;
    for (i = sw_pattern_index_find(&m->names, &n, UINT32_MAX, values); i != UINT32_MAX;
         i = sw_pattern_index_find(&m->names, &n, i, values))
        if (sw_rule_applies(&m->parameters[i], l->at, values, NULL) == 1)
            return &m->parameters[i];
    return NULL;
}

static bool stage_has(const struct listing *l, const char *name)
{
    int64_t values[SW_RULE_VARIABLES_MAX];
    const struct sw_model_rule *r = rule_of(l, name, values);

    return r && !r->rule->unlisted && in_stage(l, r, values);
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
    out->dtype = SW_F32; /* as both engines have it, also with powers of two */
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
    struct sw_model_parameter out = {
        .name = p->name, .draft = rule->head.draft, .expert = rule->stacked};
    char alias[SW_NAME_MAX + 1];
    uint64_t scales[SW_MAX_DIMS] = {0};
    bool quantised;
    int err = sw_parameter_measure(p, l->e);

    if (err)
        return err;
    quantised = rule->quantise && l->at->block[0] && l->at->scale != SW_SCALE_NONE && !left_out(p);
    if (quantised && (err = sw_parameter_measure_scales(p, scales, l->e)))
        return err;
    out.dtype = quantised          ? SW_F8_E4M3
                : rule->head.dtype ? rule->head.dtype
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
    struct sw_parameter_at *p = l->p;
    int64_t others[SW_RULE_VARIABLES_MAX];
    char name[SW_NAME_MAX + 1];
    int applies;

    p->rule = r;
    p->name = name;
    memset(p->shape, 0, sizeof(p->shape));
    memcpy(p->values, values, SW_RULE_FOR_MAX * sizeof(*values));
    applies = sw_rule_applies(r, l->at, p->values, l->e);
    if (applies <= 0 || !in_stage(l, r, p->values))
        return applies < 0 ? applies : 0;
    (void)sw_pattern_print(r->pattern, p->values, name);
    /* Of several rules with this name the first counts. */
    return rule_of(l, name, others) == r ? give(l, p) : 0;
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

static bool listed(const struct listing *l, const struct sw_model_rule *r, bool layered)
{
    return !r->dead && !r->rule->unlisted && r->rule->head.draft == l->draft &&
           (r->layer >= 0) == layered;
}

static int give_unlayered(const struct listing *l, uint32_t from, uint32_t end)
{
    int err = 0;

    for (uint32_t i = from; !err && i < end; i++)
        if (listed(l, &l->m->parameters[i], false))
            err = give_rule(l, &l->m->parameters[i], 0);
    return err;
}

static int give_layers(const struct listing *l, const struct stage *s)
{
    int err = 0;

    for (int64_t layer = s->from; layer < s->end; layer++)
        for (uint32_t i = s->first_layered; !err && i < l->m->n_parameters; i++) {
            const struct sw_model_rule *r = &l->m->parameters[i];

            if (listed(l, r, true) && layer >= r->from[r->layer] &&
                layer < r->from[r->layer] + r->count[r->layer])
                err = give_rule(l, r, layer);
        }
    return err;
}

static int give_all(const struct listing *l)
{
    const struct stage *s = &l->stages[l->draft];
    int err = give_unlayered(l, 0, s->first_layered);

    if (!err)
        err = give_layers(l, s);
    return err ? err : give_unlayered(l, s->first_layered, l->m->n_parameters);
}

int sw_model_list(const struct sw_model *m, const struct sw_placement *at, bool draft,
    sw_model_parameter_fn *fn, void *arg, struct sw_error *e)
{
    struct sw_parameter_at p = {.m = m, .at = at};
    struct listing l = {.m = m, .at = at, .fn = fn, .arg = arg, .e = e, .p = &p};
    const struct sw_group *pp = &at->at.of[SW_GROUP_PP];
    int err;

    if (pp->size && pp->rank >= pp->size)
        return sw_fail(e, SW_ERR_PLAN, "pp: rank %u of %u: expected a rank below the size",
            pp->rank, pp->size);
    l.stages[0] = find_layers(m, false);
    cut_stage(&l.stages[0], m->kind, pp);
    l.stages[1] = find_layers(m, true); /* all of the draft model is in the last stage */
    err = give_all(&l);
    if (err || !draft || !l.stages[0].last)
        return err;
    l.draft = true;
    return give_all(&l);
}
