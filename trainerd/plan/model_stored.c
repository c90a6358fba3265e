/* SPDX-License-Identifier: Apache-2.0 */
/* Making a model's stored names: families of them, and which of them there are. */
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/model_impl.h"

#define STORED_MAX 4096  /* families are compared with each other */
#define SAME_NAME_MAX 64 /* families whose names differ in numbers only */

/* ---- families ---- */

/* Renumbers the pattern's variables as they come in the name. */
static void order_variables(struct sw_pattern *p, struct sw_way *way)
{
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (p->slots[i].variable < 0)
            continue;
        way->of[way->n_values] = (uint32_t)p->slots[i].variable;
        p->slots[i].variable = (int)way->n_values++;
    }
}

static bool same_pattern(const struct sw_pattern *a, const struct sw_pattern *b)
{
    if (a->hash != b->hash || a->length != b->length || a->n_slots != b->n_slots ||
        memcmp(a->skeleton, b->skeleton, a->length) != 0)
        return false;
    for (uint32_t i = 0; i < a->n_slots; i++) {
        const struct sw_pattern_slot *s = &a->slots[i], *t = &b->slots[i];

        if (s->variable != t->variable || s->n_digits != t->n_digits ||
            (s->n_digits && memcmp(s->digits, t->digits, s->n_digits) != 0))
            return false;
    }
    return true;
}

static bool same_stored(const struct sw_stored *a, const struct sw_stored *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
           a->dtype == b->dtype && a->draft == b->draft;
}

static void widen(struct sw_family *f, uint32_t v, int64_t from, int64_t count)
{
    const int64_t end = f->from[v] + f->count[v];
    const int64_t low = from < f->from[v] ? from : f->from[v];
    const int64_t high = from + count > end ? from + count : end;

    f->from[v] = low;
    f->count[v] = high - low;
}

static uint32_t find_family(struct sw_model *m, const struct sw_family *like)
{
    for (uint32_t i = 0; i < m->n_families; i++)
        if (same_pattern(&m->families[i].pattern, &like->pattern) &&
            same_stored(&m->families[i].s, &like->s))
            return i;
    m->families[m->n_families] = *like;
    return m->n_families++;
}

static int stored_shape(struct sw_model_making *k, const struct sw_model_role *role,
    const struct sw_rule_stored *rule, struct sw_stored *s)
{
    const struct sw_tensor_role *r = &role->r;

    s->dtype = r->dtype;
    s->draft = r->draft;
    s->ndim = rule->ndim ? rule->ndim : r->ndim;
    if (!rule->ndim)
        memcpy(s->shape, r->shape, sizeof(s->shape));
    for (uint32_t d = 0; d < rule->ndim; d++) {
        int64_t length;
        int err =
            sw_model_number(k, &role->rule->head, &rule->shape[d], 0, 1, (int64_t)1 << 40, &length);

        if (err)
            return err;
        s->shape[d] = (uint64_t)length;
    }
    return 0;
}

static int make_way(struct sw_model_making *k, struct sw_model_role *role,
    const struct sw_rule_stored *rule, struct sw_way *way)
{
    struct sw_family like = {.pattern = rule->pattern,
        .at = role->r.rule,
        .scale_of = SW_NO_FAMILY,
        .scales = SW_NO_FAMILY};
    struct sw_family *f;
    int err;

    order_variables(&like.pattern, way);
    like.n_variables = way->n_values;
    like.count[0] = like.count[1] = 1;
    for (uint32_t v = 0; v < way->n_values; v++) {
        like.from[v] = role->r.from[way->of[v]];
        like.count[v] = role->r.count[way->of[v]];
    }
    way->whole = rule->ndim == 0;
    err = stored_shape(k, role, rule, &like.s);
    for (uint32_t d = 0; !err && d < rule->ndim; d++)
        err = sw_model_bind(k, &role->rule->head, &rule->origin[d], &way->origin[d]);
    if (err)
        return err;
    way->family = find_family(k->m, &like);
    f = &k->m->families[way->family];
    for (uint32_t v = 0; v < way->n_values; v++)
        widen(f, v, like.from[v], like.count[v]);
    return 0;
}

static int make_families(struct sw_model_making *k)
{
    struct sw_model *m = k->m;
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_roles; i++)
        n += m->roles[i].rule->n_stored;
    if (n > STORED_MAX)
        return sw_fail(
            k->e, SW_ERR_LIMIT, "expected at most %d lines of 'stored' in all files", STORED_MAX);
    m->families = sw_arena_array(&m->arena, (size_t)n * 2, sizeof(*m->families)); /* and scales */
    if (!m->families)
        return sw_model_no_memory(k->e);
    for (uint32_t i = 0; i < m->n_roles; i++) {
        struct sw_model_role *role = &m->roles[i];

        if (role->r.n_tensors == 0)
            continue;
        role->ways = sw_arena_array(&m->arena, role->rule->n_stored, sizeof(*role->ways));
        if (!role->ways)
            return sw_model_no_memory(k->e);
        for (; role->n_ways < role->rule->n_stored; role->n_ways++) {
            int err =
                make_way(k, role, &role->rule->stored[role->n_ways], &role->ways[role->n_ways]);

            if (err)
                return err;
        }
    }
    return 0;
}

/* A checkpoint in FP8 has scales beside the weights: "X" and "X_scale_inv". */
static int make_scales(struct sw_model_making *k, uint32_t index)
{
    struct sw_model *m = k->m;
    struct sw_family *f = &m->families[index], *s;

    if (f->scales != SW_NO_FAMILY || f->s.ndim < 2)
        return 0;
    s = &m->families[m->n_families];
    *s = *f;
    if (!sw_pattern_extend(&m->arena, &f->pattern, SW_SCALE_SUFFIX, &s->pattern))
        return sw_fail(k->e, SW_ERR_LIMIT, "%s: expected a shorter name, to put %s behind", f->at,
            SW_SCALE_SUFFIX);
    for (uint32_t d = 0; d < 2; d++) {
        uint64_t *length = &s->s.shape[s->s.ndim - 2 + d];

        *length = (*length + m->block[d] - 1) / m->block[d];
    }
    s->s.dtype = SW_F32;
    s->s.scale = true;
    s->scale_of = index;
    f->scales = m->n_families++;
    return 0;
}

static int make_all_scales(struct sw_model_making *k)
{
    int err = 0;

    for (uint32_t i = 0; k->m->fp8 && i < k->m->n_roles; i++) {
        const struct sw_model_role *role = &k->m->roles[i];

        for (uint32_t w = 0; role->quantised && !err && w < role->n_ways; w++)
            err = make_scales(k, role->ways[w].family);
    }
    return err;
}

static int number_families(struct sw_model_making *k)
{
    struct sw_model *m = k->m;

    for (uint32_t i = 0; i < m->n_families; i++) {
        struct sw_family *f = &m->families[i];
        const int64_t n = f->count[0] * f->count[1];

        if (n > SW_MODEL_TENSORS_MAX - m->n_stored)
            return sw_fail(k->e, SW_ERR_LIMIT, "%s: expected at most %u stored names in a model",
                f->at, SW_MODEL_TENSORS_MAX);
        f->first = m->n_stored;
        f->n = (uint32_t)n;
        m->n_stored += f->n;
    }
    m->known = sw_arena_array(&m->arena, m->n_stored / 64 + 1, sizeof(*m->known));
    return m->known ? 0 : sw_model_no_memory(k->e);
}

/* ---- which there are ---- */

static int check_origin(
    struct sw_model_making *k, const struct sw_model_role *role, uint32_t tensor, uint32_t w)
{
    const struct sw_way *way = &role->ways[w];
    const struct sw_stored *s = &k->m->families[way->family].s;
    const uint32_t more = s->ndim - role->r.ndim;
    int64_t values[SW_RULE_FOR_MAX];

    sw_role_values(role, tensor, values);
    for (uint32_t d = 0; d < s->ndim; d++) {
        const uint64_t length = d < more ? 1 : role->r.shape[d - more];
        const struct sw_rule_value *v = &way->origin[d];
        int64_t at;
        int err = sw_expression_evaluate(&v->x, values, &at, k->e);

        if (!err && (at < 0 || sw_range_exceeds((uint64_t)at, length, s->shape[d])))
            err = sw_fail(k->e, SW_ERR_INVALID,
                "expected '%.60s' to be a place for %llu of the %llu in dimension %u, found %lld",
                v->x.text, (unsigned long long)length, (unsigned long long)s->shape[d], d,
                (long long)at);
        if (err)
            return sw_rule_value_context(k->e, err, &role->rule->head, v);
    }
    return 0;
}

static uint32_t number_of(
    const struct sw_family *f, const struct sw_way *way, const int64_t *values)
{
    int64_t n = 0;

    for (uint32_t v = 0; v < f->n_variables; v++)
        n = n * f->count[v] + (values[way->of[v]] - f->from[v]);
    return f->first + (uint32_t)n;
}

static int mark_way(struct sw_model_making *k, const struct sw_model_role *role, uint32_t w)
{
    struct sw_model *m = k->m;
    const struct sw_way *way = &role->ways[w];
    const struct sw_family *f = &m->families[way->family];
    uint64_t steps = 1;
    int err;

    for (uint32_t d = 0; !way->whole && d < f->s.ndim; d++)
        steps += way->origin[d].x.n;
    err = sw_model_charge(k, (steps + 4) * role->r.n_tensors);
    for (uint32_t i = 0; !err && i < role->r.n_tensors; i++) {
        const uint32_t tensor = role->r.first_tensor + i;
        int64_t values[SW_RULE_FOR_MAX];

        if (!sw_bit(m->exists, tensor))
            continue;
        sw_role_values(role, tensor, values);
        sw_bit_set(m->known, number_of(f, way, values));
        if (!way->whole)
            err = check_origin(k, role, tensor, w);
    }
    return err;
}

/* Scales are there for each weight that config.json does not leave out. */
static void mark_scales(struct sw_model *m, const struct sw_family *s)
{
    const struct sw_family *f = &m->families[s->scale_of];
    char name[SW_NAME_MAX + 1];

    for (uint32_t i = 0; i < f->n; i++) {
        if (!sw_bit(m->known, f->first + i))
            continue;
        if (m->n_unconverted) {
            sw_model_stored_name(m, f->first + i, name);
            if (sw_model_unconverted(m, name))
                continue;
        }
        sw_bit_set(m->known, s->first + i);
    }
}

static int mark_all(struct sw_model_making *k)
{
    struct sw_model *m = k->m;
    int err = 0;

    for (uint32_t i = 0; i < m->n_roles; i++)
        for (uint32_t w = 0; w < m->roles[i].n_ways; w++)
            if ((err = mark_way(k, &m->roles[i], w)))
                return err;
    for (uint32_t i = 0; !err && i < m->n_families; i++) {
        if (m->families[i].scale_of == SW_NO_FAMILY)
            continue;
        err = sw_model_charge(k, (uint64_t)m->families[i].n * (m->n_unconverted ? 200 : 1));
        if (!err)
            mark_scales(m, &m->families[i]);
    }
    return err;
}

/* ---- names that two rules give different meanings ---- */

static bool one_skeleton(const struct sw_family *a, const struct sw_family *b)
{
    return a->pattern.hash == b->pattern.hash && a->pattern.length == b->pattern.length &&
           memcmp(a->pattern.skeleton, b->pattern.skeleton, a->pattern.length) == 0;
}

static int check_pair(
    struct sw_model_making *k, const struct sw_family *a, const struct sw_family *b)
{
    const struct sw_model *m = k->m;
    int err = sw_model_charge(k, (uint64_t)a->n * 60);

    for (uint32_t i = 0; !err && i < a->n; i++) {
        char text[SW_NAME_MAX + 1];
        struct sw_name name;
        uint32_t other;

        if (!sw_bit(m->known, a->first + i))
            continue;
        sw_model_stored_name(m, a->first + i, text);
        if (sw_name_read(text, strlen(text), &name) && sw_family_find(m, b, &name, &other))
            return sw_fail(k->e, SW_ERR_INVALID,
                "%s: expected '%.200s' to have one shape and type, found another in %s", b->at,
                text, a->at);
    }
    return err;
}

static int check_names(struct sw_model_making *k)
{
    const struct sw_model *m = k->m;

    for (uint32_t i = 0; i < m->n_families; i++) {
        uint32_t same = 0;

        for (uint32_t j = 0; j < i; j++) {
            int err;

            if (!one_skeleton(&m->families[i], &m->families[j]))
                continue;
            if (++same == SAME_NAME_MAX)
                return sw_fail(k->e, SW_ERR_LIMIT,
                    "%s: expected at most %d stored names that differ in numbers only",
                    m->families[i].at, SAME_NAME_MAX);
            err = check_pair(k, &m->families[j], &m->families[i]);
            if (err)
                return err;
        }
    }
    return 0;
}

int sw_model_make_stored(struct sw_model_making *k)
{
    struct sw_model *m = k->m;
    const struct sw_rules *rules = m->rules;
    int err;

    if ((err = make_families(k)) || (err = make_all_scales(k)) || (err = number_families(k)) ||
        (err = mark_all(k)))
        return err;
    if (!sw_pattern_index_init(&m->stored, &m->arena, m->n_families + rules->n_skipped))
        return sw_model_no_memory(k->e);
    for (uint32_t i = 0; i < m->n_families; i++)
        sw_pattern_index_add(&m->stored, &m->families[i].pattern);
    for (uint32_t i = 0; i < rules->n_skipped; i++)
        sw_pattern_index_add(&m->stored, &rules->skipped[i]);
    return check_names(k);
}
