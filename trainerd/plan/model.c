/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and stored names of a model. */
#include <string.h>

#include "trainerd/plan/model_impl.h"

/* ---- tensors ---- */

uint32_t sw_model_roles(const struct sw_model *m)
{
    return m->n_roles;
}

const struct sw_tensor_role *sw_model_role(const struct sw_model *m, uint32_t role)
{
    return &m->roles[role].r;
}

uint32_t sw_model_tensors(const struct sw_model *m)
{
    return m->n_tensors;
}

uint32_t sw_model_role_of(const struct sw_model *m, uint32_t tensor)
{
    uint32_t low = 0, high = m->n_roles;

    while (high - low > 1) { /* the last role that begins at or before it */
        const uint32_t middle = low + (high - low) / 2;

        if (m->roles[middle].r.first_tensor <= tensor)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool sw_model_exists(const struct sw_model *m, uint32_t tensor)
{
    return sw_bit(m->exists, tensor);
}

bool sw_model_optional(const struct sw_model *m, uint32_t tensor)
{
    return sw_bit(m->optional, tensor);
}

uint32_t sw_role_tensor(const struct sw_model_role *r, const int64_t *values)
{
    int64_t n = 0;

    for (uint32_t v = 0; v < r->r.n_variables; v++) {
        const int64_t from = r->r.from[v];

        if (values[v] < from || values[v] >= from + r->r.count[v])
            return UINT32_MAX;
        n = n * r->r.count[v] + (values[v] - from);
    }
    return r->r.n_tensors ? r->r.first_tensor + (uint32_t)n : UINT32_MAX;
}

void sw_role_values(const struct sw_model_role *r, uint32_t tensor, int64_t *values)
{
    uint32_t n = tensor - r->r.first_tensor;

    for (uint32_t v = r->r.n_variables; v-- > 0;) {
        const uint32_t count = (uint32_t)r->r.count[v];

        values[v] = r->r.from[v] + n % count;
        n /= count;
    }
}

/* ---- stored names ---- */

uint32_t sw_model_stored(const struct sw_model *m)
{
    return m->n_stored;
}

static bool number_in(const struct sw_family *f, const int64_t *values, uint32_t *out)
{
    int64_t n = 0;

    for (uint32_t v = 0; v < f->n_variables; v++) {
        if (values[v] < f->from[v] || values[v] >= f->from[v] + f->count[v])
            return false;
        n = n * f->count[v] + (values[v] - f->from[v]);
    }
    *out = f->first + (uint32_t)n;
    return f->n > 0;
}

bool sw_family_find(const struct sw_model *m, const struct sw_family *f, const struct sw_name *name,
    uint32_t *stored)
{
    int64_t values[SW_RULE_FOR_MAX] = {0};

    return sw_pattern_match(&f->pattern, name, values) && number_in(f, values, stored) &&
           sw_bit(m->known, *stored);
}

enum sw_known sw_model_find(const struct sw_model *m, const char *name, uint32_t *stored)
{
    int64_t values[SW_RULE_FOR_MAX] = {0};
    struct sw_name n;
    uint32_t i, found;

    if (!sw_name_read(name, strnlen(name, SW_NAME_MAX + 1), &n))
        return SW_UNKNOWN;
    for (i = sw_pattern_index_find(&m->stored, &n, UINT32_MAX, values); i != UINT32_MAX;
         i = sw_pattern_index_find(&m->stored, &n, i, values)) {
        if (i >= m->n_families)
            return SW_SKIPPED;
        if (!number_in(&m->families[i], values, &found) || !sw_bit(m->known, found))
            continue;
        *stored = found;
        return SW_KNOWN;
    }
    return SW_UNKNOWN;
}

static const struct sw_family *family_of(const struct sw_model *m, uint32_t stored)
{
    uint32_t low = 0, high = m->n_families;

    while (high - low > 1) { /* families without names have none between two firsts */
        const uint32_t middle = low + (high - low) / 2;

        if (m->families[middle].first <= stored)
            low = middle;
        else
            high = middle;
    }
    return &m->families[low];
}

bool sw_model_scale_of(const struct sw_model *m, uint32_t stored, uint32_t *scale)
{
    const struct sw_family *f = family_of(m, stored);
    uint32_t found;

    if (f->scales == SW_NO_FAMILY)
        return false;
    found = m->families[f->scales].first + (stored - f->first);
    if (!sw_bit(m->known, found))
        return false;
    *scale = found;
    return true;
}

void sw_model_stored_get(const struct sw_model *m, uint32_t stored, struct sw_stored *out)
{
    uint32_t scale;

    *out = family_of(m, stored)->s;
    out->fp8 = sw_model_scale_of(m, stored, &scale);
}

void sw_model_stored_name(const struct sw_model *m, uint32_t stored, char *name)
{
    const struct sw_family *f = family_of(m, stored);
    int64_t values[SW_RULE_FOR_MAX] = {0};
    uint32_t n = stored - f->first;

    for (uint32_t v = f->n_variables; v-- > 0;) {
        const uint32_t count = (uint32_t)f->count[v];

        values[v] = f->from[v] + n % count;
        n /= count;
    }
    (void)sw_pattern_print(&f->pattern, values, name);
}

bool sw_model_locate(
    const struct sw_model *m, uint32_t tensor, uint32_t i, uint32_t *stored, uint64_t *origin)
{
    const struct sw_model_role *role = &m->roles[sw_model_role_of(m, tensor)];
    const struct sw_family *f;
    const struct sw_way *way;
    int64_t values[SW_RULE_FOR_MAX], own[SW_RULE_FOR_MAX] = {0};

    if (i >= role->n_ways)
        return false;
    way = &role->ways[i];
    f = &m->families[way->family];
    sw_role_values(role, tensor, values);
    for (uint32_t v = 0; v < way->n_values; v++)
        own[v] = values[way->of[v]];
    if (!number_in(f, own, stored))
        return false;
    for (uint32_t d = 0; d < f->s.ndim; d++) {
        int64_t at = 0;

        if (!way->whole) /* it could be computed when the model was made */
            (void)sw_expression_evaluate(&way->origin[d].x, values, &at, NULL);
        origin[d] = (uint64_t)at;
    }
    return true;
}
