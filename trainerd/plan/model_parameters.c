/* SPDX-License-Identifier: Apache-2.0 */
/* Making a model's parameters: [parameter] sections are bound. */
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/model_impl.h"

#define LAYER_MAX 65535
#define SAME_NAME_MAX 64 /* rules whose names differ in numbers only */

static int bind_part(struct sw_model_making *k, const struct sw_rule_head *h,
    struct sw_rule_part *part, bool quantise)
{
    const struct sw_tensor_role *first = &k->m->roles[part->choices[0].tensor].r;
    int err;

    for (uint32_t c = 0; c < part->n_choices; c++) {
        struct sw_rule_choice *choice = &part->choices[c];
        struct sw_model_role *role = &k->m->roles[choice->tensor];

        role->quantised |= quantise;
        for (uint32_t v = 0; v < role->r.n_variables; v++)
            if ((err = sw_model_bind(k, h, &choice->index[v], &choice->index[v])))
                return err;
        /* Where one has no tensors, its shape is not known. */
        if (first->n_tensors && role->r.n_tensors &&
            (role->r.ndim != first->ndim ||
                memcmp(role->r.shape, first->shape, sizeof(first->shape)) != 0))
            return sw_fail(k->e, SW_ERR_INVALID,
                "%s: [%s] part: expected '%s' and '%s' to have equal shapes", part->at, h->header,
                first->name, role->r.name);
    }
    err = sw_model_bind(k, h, &part->units, &part->units);
    return err ? err : sw_model_bind(k, h, &part->padded, &part->padded);
}

static int bind_parts(struct sw_model_making *k, const struct sw_rule_parameter *rule,
    const struct sw_rule_part *parts, uint32_t n, struct sw_rule_part **out)
{
    int err = 0;

    *out = sw_arena_array(&k->m->arena, n, sizeof(**out));
    if (!*out)
        return sw_model_no_memory(k->e);
    for (uint32_t i = 0; !err && i < n; i++) {
        (*out)[i] = parts[i];
        err = bind_part(k, &rule->head, &(*out)[i], rule->quantise);
    }
    return err;
}

/* Whether `when` says something of the engine from variable `from` on (counted from its first). */
static bool speaks_of(const struct sw_model_rule *r, uint32_t from, uint32_t end)
{
    const uint32_t own = r->rule->head.n_own;

    for (uint32_t v = from; r->when.x.nodes && v < end; v++)
        if (sw_expression_uses(&r->when.x, own + v))
            return true;
    return false;
}

/* Whether no parameter of the rule exists, whatever the engine is. */
static int find_dead(struct sw_model_making *k, struct sw_model_rule *r)
{
    const uint64_t n = (uint64_t)(r->count[0] * r->count[1]);
    int64_t values[SW_RULE_VARIABLES_MAX] = {0}, exists = 0;
    int err = sw_model_charge(k, n * (r->when.x.n + 1));

    r->dead = n == 0;
    if (err || n == 0 || !r->when.x.nodes || speaks_of(r, 0, SW_RULE_ENGINE_MAX))
        return err;
    for (uint64_t i = 0; !exists && i < n; i++) {
        values[0] = r->from[0] + (int64_t)(i / (uint64_t)r->count[1]);
        values[1] = r->from[1] + (int64_t)(i % (uint64_t)r->count[1]);
        err = sw_expression_evaluate(&r->when.x, values, &exists, k->e);
        if (err)
            return sw_rule_value_context(k->e, err, &r->rule->head, &r->when);
    }
    r->dead = !exists;
    return 0;
}

/* Its name, which tells each of them from the others. */
static int choose_name(struct sw_model_making *k, struct sw_model_rule *r)
{
    const struct sw_rule_parameter *rule = r->rule;

    r->pattern = &rule->pattern;
    if (k->m->kind == SW_ENGINE_SGLANG && rule->sglang.text)
        r->pattern = &rule->sglang;
    if (k->m->kind == SW_ENGINE_VLLM && rule->vllm.text)
        r->pattern = &rule->vllm;
    for (uint32_t v = 0; v < rule->head.n_for; v++)
        if (r->count[v] > 1 && !sw_pattern_holds(r->pattern, (int)v))
            return sw_fail(k->e, SW_ERR_INVALID,
                "%s: [%s]: expected '%s' in the name '%.100s', as it has %lld values",
                rule->head.at, rule->head.header, rule->head.variables[v], r->pattern->text,
                (long long)r->count[v]);
    return 0;
}

static int make_parameter(
    struct sw_model_making *k, const struct sw_rule_parameter *rule, struct sw_model_rule *out)
{
    const struct sw_rule_head *h = &rule->head;
    int64_t alias;
    int err = sw_model_ranges(k, h, out->from, out->count);

    out->rule = rule;
    out->layer = -1;
    if (err || (err = choose_name(k, out)))
        return err;
    if (out->count[0] * out->count[1] > SW_MODEL_TENSORS_MAX)
        return sw_fail(k->e, SW_ERR_LIMIT, "%s: [%s]: expected at most %u parameters", h->at,
            h->header, SW_MODEL_TENSORS_MAX);
    if ((err = sw_model_bind(k, h, &h->when, &out->when)) || (err = find_dead(k, out)) ||
        out->dead) /* what else it says may make no sense for this model */
        return err;
    for (uint32_t v = 0; v < h->n_for; v++)
        if (strcmp(h->variables[v], "layer") == 0)
            out->layer = (int)v;
    if (out->layer >= 0 && out->from[out->layer] + out->count[out->layer] > LAYER_MAX)
        return sw_fail(k->e, SW_ERR_LIMIT, "%s: [%s] for: expected layers below %d", h->at,
            h->header, LAYER_MAX);
    out->staged = speaks_of(out, SW_RULE_PP_FIRST, SW_RULE_PP_LAST + 1) ||
                  speaks_of(out, SW_RULE_GROUPS + SW_GROUP_PP, SW_RULE_GROUPS + SW_GROUP_PP + 1);
    err =
        sw_model_number(k, h, &rule->alias_when, rule->alias != NULL, INT64_MIN, INT64_MAX, &alias);
    if (!err && rule->stacked)
        err = sw_model_range(k, h, &rule->stack, &out->stack_from, &out->stack_count);
    if (err)
        return err;
    out->alias = alias != 0;
    err = bind_parts(k, rule, rule->parts, rule->n_parts, &out->parts);
    return err ? err : bind_parts(k, rule, rule->extras, rule->n_extras, &out->extras);
}

/* Each name is looked up among the rules that have one like it. */
static int charge_lookups(struct sw_model_making *k, const struct sw_model_rule *r)
{
    const struct sw_model *m = k->m;
    uint64_t same = 1;

    for (uint32_t i = 0; i < m->n_parameters; i++)
        same += m->parameters[i].pattern->hash == r->pattern->hash;
    if (same > SAME_NAME_MAX)
        return sw_fail(k->e, SW_ERR_LIMIT,
            "%s: [%s]: expected at most %d sections whose names differ in numbers only",
            r->rule->head.at, r->rule->head.header, SAME_NAME_MAX);
    return sw_model_charge(k, (uint64_t)(r->count[0] * r->count[1]) * same * 30);
}

int sw_model_make_parameters(struct sw_model_making *k)
{
    struct sw_model *m = k->m;
    const struct sw_rules *rules = m->rules;

    m->parameters = sw_arena_array(&m->arena, rules->n_parameters, sizeof(*m->parameters));
    if (!m->parameters || !sw_pattern_index_init(&m->names, &m->arena, rules->n_parameters) ||
        !sw_pattern_index_init(&m->derived, &m->arena, rules->n_derived))
        return sw_model_no_memory(k->e);
    for (uint32_t i = 0; i < rules->n_parameters; i++) {
        const struct sw_rule_parameter *rule = &rules->parameters[i];
        int err;

        if (rule->engine != SW_ENGINE_ANY && rule->engine != m->kind)
            continue;
        err = make_parameter(k, rule, &m->parameters[m->n_parameters]);
        if (err)
            return err;
        err = charge_lookups(k, &m->parameters[m->n_parameters]);
        if (err)
            return err;
        sw_pattern_index_add(&m->names, m->parameters[m->n_parameters++].pattern);
    }
    for (uint32_t i = 0; i < rules->n_derived; i++)
        sw_pattern_index_add(&m->derived, &rules->derived[i]);
    return 0;
}
