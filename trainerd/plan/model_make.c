/* SPDX-License-Identifier: Apache-2.0 */
/* Making a model: rules are bound to a config.json. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/model_impl.h"

#define MEMORY_MAX ((size_t)512 << 20)
#define WORK_MAX UINT64_C(200000000) /* evaluations of a node: some seconds at most */
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

    if (r->n_definitions == 0)
        return NULL;
    found = bsearch(&key, r->definitions, r->n_definitions, sizeof(key), compare_definitions);
    return found ? &found->value.x : NULL;
}

int sw_model_bind(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_value *v, struct sw_rule_value *out)
{
    const struct sw_expression_scope scope = {
        .config = k->config,
        .variables = head->variables,
        .n_variables = head->n_variables,
        .define = find_definition,
        .arg = k->m->rules,
        .work = &k->m->work,
    };
    int err;

    *out = *v;
    if (!v->x.nodes)
        return 0;
    err = sw_expression_bind(&k->m->arena, &v->x, &scope, &out->x, k->e);
    return err ? sw_rule_value_context(k->e, err, head, v) : 0;
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

int sw_model_range(struct sw_model_making *k, const struct sw_rule_head *head,
    const struct sw_rule_range *range, int64_t *from, int64_t *count)
{
    int64_t to = 0;
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
        int err = sw_model_range(k, head, &head->ranges[v], &from[v], &count[v]);

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
