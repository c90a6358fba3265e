/* SPDX-License-Identifier: Apache-2.0 */
/* A declared parameter: its rule, and whether it is as the rule says. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/text.h"
#include "trainerd/plan/model_impl.h"

/* ---- finding the rule ---- */

/* 1: found; 0: no rule has this name; or an error. `near` is one that has the name but not these
 * values. */
static int find_rule(
    struct sw_declared *k, const char *name, size_t length, const struct sw_model_rule **near)
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

static int refuse_format(const struct sw_declared *k, const char *format)
{
    char shown[200];

    return sw_fail(k->e, SW_ERR_PLAN,
        "parameter '%s' (%s) is of an engine with %s weights, which is not done: expected BF16, "
        "F16, F32, or FP8 in blocks",
        sw_text_escape(shown, sizeof(shown), k->declared->name), sw_dtype_name(k->declared->dtype),
        format);
}

static int no_rule(const struct sw_declared *k, const struct sw_model_rule *near)
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

int sw_declared_find(struct sw_declared *k)
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

static int check_shape(const struct sw_declared *k, uint32_t ndim, const uint64_t *shape)
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

static int wrong_dtype(const struct sw_declared *k, const char *expected)
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

static int check_scale_dtype(const struct sw_declared *k)
{
    const enum sw_dtype found = k->declared->dtype;

    if (found == SW_F32 || (found == SW_F8_E8M0 && k->p.at->scale == SW_SCALE_UE8M0))
        return 0;
    return wrong_dtype(k, k->p.at->scale == SW_SCALE_UE8M0 ? "F32 or F8_E8M0" : "F32");
}

static int check_dtype(struct sw_declared *k, enum sw_dtype tensor)
{
    const enum sw_dtype found = k->declared->dtype;
    const bool quantise = k->p.rule->rule->quantise;
    char expected[64];

    if (found == tensor || (castable(found) && castable(tensor)))
        return 0;
    if (found == SW_F8_E4M3 && quantise && castable(tensor)) {
        k->quantised = true;
        return 0;
    }
    if (found == SW_F4 || found == SW_F6_E2M3 || found == SW_F6_E3M2)
        return refuse_format(k, foreign_format(k->declared));
    snprintf(expected, sizeof(expected), "%s%s",
        castable(tensor) ? "BF16, F16 or F32" : sw_dtype_name(tensor),
        castable(tensor) && quantise ? ", or F8_E4M3 in blocks" : "");
    return wrong_dtype(k, expected);
}

int sw_declared_check(struct sw_declared *k)
{
    uint64_t scales[SW_MAX_DIMS] = {0};
    int err = sw_parameter_measure(&k->p, k->e);

    if (!err && k->scales)
        err = check_scale_dtype(k);

    for (uint32_t i = 0; !err && !k->scales && i < k->p.n_parts; i++)
        err = check_dtype(k, k->p.parts[i].role->r.dtype);
    if (!err && (k->scales || k->quantised))
        err = sw_parameter_measure_scales(&k->p, scales, k->e);
    return err ? err : check_shape(k, k->p.ndim, k->scales ? scales : k->p.shape);
}
