/* SPDX-License-Identifier: Apache-2.0 */
/* Making a model: rules are bound to a config.json. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/model_impl.h"

#define MEMORY_MAX ((size_t)512 << 20)
#define WORK_MAX UINT64_C(200000000) /* evaluations of a node: some seconds at most */
#define LAYER_MAX 65535
#define SAME_NAME_MAX 64             /* rules whose names differ in numbers only */
#define SHAPE_MAX ((int64_t)1 << 40) /* elements along a dimension */

int sw_model_no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for a model of this size");
}

int sw_model_charge(struct sw_model_making *k, uint64_t steps)
{
    if (steps > k->m->work)
        return sw_fail(k->e, SW_ERR_LIMIT, "the rules are too much work for this model");
    k->m->work -= steps;
    return 0;
}

static int compare_definitions(const void *a, const void *b)
{
    return strcmp(
        ((const struct sw_rule_definition *)a)->name, ((const struct sw_rule_definition *)b)->name);
}

static const struct sw_expression *find_definition(void *arg, const char *name)
{
    const struct sw_rules *r = arg;
    const struct sw_rule_definition key = {.name = name}, *found;

    found = bsearch(&key, r->definitions, r->n_definitions, sizeof(key), compare_definitions);
    return found ? &found->value.x : NULL;
}

int sw_model_bind(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_value *v, struct sw_rule_value *out)
{
    const struct sw_expression_scope scope = {
        .config = k->config,
        .variables = head ? head->variables : NULL,
        .n_variables = head ? head->n_variables : 0,
        .define = find_definition,
        .arg = k->m->rules,
        .work = &k->m->work,
    };
    int err;

    *out = *v;
    if (!v->x.nodes)
        return 0;
    err = sw_expression_bind(&k->m->arena, &v->x, &scope, &out->x, k->e);
    return err && head ? sw_rule_value_context(k->e, err, head, v) : err;
}

int sw_model_number(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_value *v, int64_t otherwise, int64_t least, int64_t most, int64_t *out)
{
    struct sw_rule_value bound;
    int err = sw_model_bind(k, head, v, &bound);

    if (err)
        return err;
    if (!v->x.nodes) {
        *out = otherwise;
        return 0;
    }
    if (!bound.x.constant)
        err = sw_fail(
            k->e, SW_ERR_INVALID, "expected a number without variables, found '%.100s'", v->x.text);
    else if (bound.x.value < least || bound.x.value > most)
        err = sw_fail(k->e, SW_ERR_INVALID,
            "expected a number from %lld to %lld, found '%.100s' = %lld", (long long)least,
            (long long)most, v->x.text, (long long)bound.x.value);
    else
        *out = bound.x.value;
    return err ? sw_rule_value_context(k->e, err, head, v) : 0;
}

/* "A to B"; B may be one below A. */
static int make_range(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_range *range, int64_t *from, int64_t *count)
{
    int64_t to;
    int err = sw_model_number(k, head, &range->from, 0, 0, SW_PATTERN_VALUE_MAX, from);

    if (!err)
        err = sw_model_number(k, head, &range->to, 0, INT64_MIN, SW_PATTERN_VALUE_MAX, &to);
    if (err)
        return err;
    *count = to < *from ? 0 : to - *from + 1;
    return 0;
}

int sw_model_ranges(
    struct sw_model_making *k, const struct sw_rule_head *head, int64_t *from, int64_t *count)
{
    from[0] = from[1] = 0;
    count[0] = count[1] = 1;
    for (uint32_t v = 0; v < head->n_for; v++) {
        int err = make_range(k, head, &head->ranges[v], &from[v], &count[v]);

        if (err)
            return err;
    }
    return 0;
}

/* ---- roles ---- */

/* Sets the bit of each tensor where the condition holds; `otherwise` where there is none. */
static int mark(struct sw_model_making *k, const struct sw_model_role *role,
    const struct sw_rule_value *condition, bool otherwise, uint64_t *bits, bool *any)
{
    const struct sw_tensor_role *r = &role->r;
    int64_t values[SW_RULE_FOR_MAX], holds = otherwise;
    int err = sw_model_charge(k, (uint64_t)r->n_tensors * (condition->x.n + 1));

    *any = false;
    for (uint32_t i = 0; !err && i < r->n_tensors; i++) {
        if (condition->x.nodes) {
            sw_role_values(role, r->first_tensor + i, values);
            err = sw_expression_evaluate(&condition->x, values, &holds, k->e);
            if (err)
                return sw_rule_value_context(k->e, err, &role->rule->head, condition);
        }
        if (!holds)
            continue;
        sw_bit_set(bits, r->first_tensor + i);
        *any = true;
    }
    return err;
}

static int make_shape(struct sw_model_making *k, struct sw_model_role *role)
{
    const struct sw_rule_tensor *rule = role->rule;

    for (uint32_t d = 0; d < role->r.ndim; d++) {
        int64_t length;
        int err = sw_model_number(k, &rule->head, &rule->shape[d], 0, 1, SHAPE_MAX, &length);

        if (err)
            return err;
        role->r.shape[d] = (uint64_t)length;
    }
    return 0;
}

static int make_role(
    struct sw_model_making *k, const struct sw_rule_tensor *rule, struct sw_model_role *out)
{
    const struct sw_rule_head *h = &rule->head;
    struct sw_tensor_role *r = &out->r;
    int64_t n;
    bool any;
    int err = sw_model_ranges(k, h, r->from, r->count);

    if (err || (err = sw_model_bind(k, h, &h->when, &out->when)) ||
        (err = sw_model_bind(k, h, &rule->optional, &out->optional)))
        return err;
    out->rule = rule;
    r->name = rule->name;
    r->rule = h->at;
    r->dtype = h->dtype ? h->dtype : k->m->dtype;
    r->ndim = rule->ndim;
    r->trainer = rule->trainer;
    r->draft = h->draft;
    r->n_variables = h->n_for;
    r->expert = h->n_for > 0 && strcmp(h->variables[h->n_for - 1], "expert") == 0;
    r->first_tensor = k->m->n_tensors;
    n = r->count[0] * r->count[1]; /* each below 10^7 */
    if (n > SW_MODEL_TENSORS_MAX - k->m->n_tensors)
        return sw_fail(k->e, SW_ERR_LIMIT, "%s: [%s]: expected at most %u tensors in a model",
            h->at, h->header, SW_MODEL_TENSORS_MAX);
    r->n_tensors = (uint32_t)n;
    err = mark(k, out, &out->when, true, k->m->exists, &any);
    if (!err)
        err = mark(k, out, &out->optional, false, k->m->optional, &r->optional);
    if (err)
        return err;
    if (!any) { /* what is not there needs no shape */
        r->n_tensors = 0;
        r->count[0] = 0;
        return 0;
    }
    k->m->n_tensors += r->n_tensors;
    return make_shape(k, out);
}

int sw_model_make_roles(struct sw_model_making *k)
{
    struct sw_model *m = k->m;
    const struct sw_rules *rules = m->rules;
    int err = 0;

    m->roles = sw_arena_array(&m->arena, rules->n_tensors, sizeof(*m->roles));
    if (!m->roles)
        return sw_model_no_memory(k->e);
    m->exists = sw_arena_array(&m->arena, SW_MODEL_TENSORS_MAX / 64, sizeof(*m->exists));
    m->optional = sw_arena_array(&m->arena, SW_MODEL_TENSORS_MAX / 64, sizeof(*m->optional));
    if (!m->exists || !m->optional)
        return sw_model_no_memory(k->e);
    for (uint32_t i = 0; !err && i < rules->n_tensors; i++)
        err = make_role(k, &rules->tensors[i], &m->roles[m->n_roles++]);
    return err;
}

/* ---- parameters ---- */

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
        err = make_range(k, h, &rule->stack, &out->stack_from, &out->stack_count);
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

/* ---- the whole ---- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int copy_unconverted(struct sw_model_making *k)
{
    struct sw_model *m = k->m;
    const char *module;
    uint32_t n = 0;

    while (sw_config_unconverted_module(k->config, n))
        n++;
    m->unconverted = sw_arena_array(&m->arena, n, sizeof(*m->unconverted));
    if (!m->unconverted)
        return sw_model_no_memory(k->e);
    while ((module = sw_config_unconverted_module(k->config, m->n_unconverted))) {
        module = sw_arena_strdup(&m->arena, module);
        if (!module)
            return sw_model_no_memory(k->e);
        m->unconverted[m->n_unconverted++] = module;
    }
    qsort(m->unconverted, n, sizeof(*m->unconverted), compare_text);
    return 0;
}

bool sw_model_unconverted(const struct sw_model *m, const char *name)
{
    char part[SW_NAME_MAX + 1];
    const char *key = part;
    size_t n = strnlen(name, SW_NAME_MAX);

    if (m->n_unconverted == 0)
        return false;
    memcpy(part, name, n);
    part[n] = '\0';
    for (;;) {
        char *dot;

        if (bsearch(&key, m->unconverted, m->n_unconverted, sizeof(key), compare_text))
            return true;
        dot = strrchr(part, '.');
        if (!dot)
            return false;
        *dot = '\0';
    }
}

static int make(struct sw_model_making *k)
{
    int err;

    k->m->dtype = sw_config_dtype(k->config);
    if (k->m->dtype == SW_DTYPE_INVALID)
        return sw_fail(k->e, SW_ERR_UNSUPPORTED,
            "config.json: torch_dtype: expected bfloat16, float16 or float32");
    k->m->fp8 = sw_config_fp8(k->config, k->m->block);
    if ((err = copy_unconverted(k)) || (err = sw_model_make_roles(k)) ||
        (err = sw_model_make_parameters(k)))
        return err;
    return sw_model_make_stored(k);
}

int sw_model_make(const struct sw_rules *rules, const struct sw_config *config,
    enum sw_engine_kind kind, struct sw_model **model, struct sw_error *e)
{
    struct sw_model *m = calloc(1, sizeof(*m));
    struct sw_model_making k = {.m = m, .config = config, .e = e};
    int err;

    if (!m)
        return sw_model_no_memory(e);
    sw_arena_init(&m->arena, MEMORY_MAX);
    m->rules = sw_rules_keep(rules);
    m->kind = kind;
    m->work = WORK_MAX;
    err = make(&k);
    if (err) {
        sw_model_free(m);
        return err;
    }
    *model = m;
    return 0;
}

void sw_model_free(struct sw_model *m)
{
    if (!m)
        return;
    sw_rules_free(m->rules);
    sw_arena_clear(&m->arena);
    free(m);
}
