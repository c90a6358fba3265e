/* SPDX-License-Identifier: Apache-2.0 */
/* [parameter NAME]: what an engine rank has. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/rules_parse.h"

#define PARTS_MAX 64

static const char *const parameter_keys[] = {"engine", "for", "when", "dtype", "draft", "part",
    "stack", "extra", "quantise", "alias", "sglang", "vllm", "listed", NULL};

/* ---- GROUP and SPLIT ---- */

static int parse_group(struct sw_rule_parsing *p, const char **text, enum sw_group_kind *out)
{
    const char *from, *word;
    int err;

    if (!sw_rule_take_word(text, "over"))
        return sw_rule_expected(p, "'over GROUP'", *text);
    from = *text;
    err = sw_rule_parse_word(p, text, "a group", &word);
    if (err)
        return err;
    *out = sw_group_from_name(word, (uint32_t)strlen(word));
    /* A pipeline stage has other parameters, and data-parallel ranks have equal ones. */
    if (*out == SW_GROUP_COUNT || *out == SW_GROUP_PP || *out == SW_GROUP_DP)
        return sw_rule_expected(
            p, "one of tp, attn_tp, mlp_tp, shared_tp, moe_tp, ep, embed_tp, head_tp", from);
    return 0;
}

static int parse_split(struct sw_rule_parsing *p, const char *text, struct sw_rule_part *out)
{
    int err;

    if (sw_rule_take_word(&text, "rows"))
        out->axis = SW_AXIS_ROWS;
    else if (sw_rule_take_word(&text, "columns"))
        out->axis = SW_AXIS_COLUMNS;
    else
        return sw_rule_expected(p, "'rows over GROUP' or 'columns over GROUP'", text);
    err = parse_group(p, &text, &out->group);
    while (!err && *text) {
        if (!out->units.x.nodes && sw_rule_take_word(&text, "in")) {
            if (!sw_rule_take_word(&text, "units") || !sw_rule_take_word(&text, "of"))
                return sw_rule_expected(p, "'in units of'", text);
            err = sw_rule_parse_value(p, &text, &out->units);
        } else if (!out->padded.x.nodes && sw_rule_take_word(&text, "padded")) {
            if (!sw_rule_take_word(&text, "to"))
                return sw_rule_expected(p, "'padded to'", text);
            err = sw_rule_parse_value(p, &text, &out->padded);
        } else if (!out->shared && sw_rule_take_word(&text, "shared")) {
            out->shared = true;
        } else {
            return sw_rule_expected(p, "'in units of', 'shared', 'padded to' or the end", text);
        }
    }
    if (!err && out->shared && !out->units.x.nodes)
        return sw_rule_expected(p, "'in units of' with 'shared'", "none");
    return err;
}

/* ---- TENSOR ---- */

static int find_tensor(struct sw_rule_parsing *p, const char **text, uint32_t *out)
{
    const char *from = *text, *name;
    int err = sw_rule_parse_word(p, text, "the name of a tensor", &name);

    if (err)
        return err;
    for (uint32_t i = 0; i < p->rules->n_tensors; i++)
        if (strcmp(p->rules->tensors[i].name, name) == 0) {
            *out = i;
            return 0;
        }
    return sw_rule_expected(p, "the name of a [tensor] section", from);
}

/* Its variables are the parameter's of the same names. */
static int index_by_name(struct sw_rule_parsing *p, const struct sw_rule_tensor *t,
    const struct sw_rule_head *head, uint32_t n_variables, struct sw_rule_choice *out)
{
    for (uint32_t v = 0; v < t->head.n_for; v++) {
        const char *name = t->head.variables[v], *text = name;
        uint32_t i = 0;
        int err;

        while (i < n_variables && strcmp(head->variables[i], name) != 0)
            i++;
        if (i == n_variables) {
            char what[200];

            snprintf(what, sizeof(what), "%.60s(...) with its variable %.60s, as this has none so",
                t->name, name);
            return sw_rule_expected(p, what, p->entry->value);
        }
        err = sw_rule_parse_value(p, &text, &out->index[v]);
        if (err)
            return err;
    }
    return 0;
}

static int parse_choice(struct sw_rule_parsing *p, const char **text,
    const struct sw_rule_head *head, uint32_t n_variables, struct sw_rule_choice *out)
{
    const struct sw_rule_tensor *t;
    int err = find_tensor(p, text, &out->tensor);

    if (err)
        return err;
    t = &p->rules->tensors[out->tensor];
    if (!sw_rule_take_sign(text, '('))
        return index_by_name(p, t, head, n_variables, out);
    for (uint32_t v = 0; v < t->head.n_for; v++) {
        if (v > 0 && !sw_rule_take_sign(text, ','))
            return sw_rule_expected(p, "',' and a value of the tensor's next variable", *text);
        err = sw_rule_parse_value(p, text, &out->index[v]);
        if (err)
            return err;
    }
    return sw_rule_take_sign(text, ')') ? 0 : sw_rule_expected(p, "')'", *text);
}

static int parse_part(struct sw_rule_parsing *p, const struct sw_rule_head *head,
    uint32_t n_variables, struct sw_rule_part *out)
{
    const char *text = p->entry->value;

    out->at = sw_rule_where(p, p->entry->file, p->entry->line);
    if (!out->at)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file of this size");
    do {
        int err;

        if (out->n_choices == 2)
            return sw_rule_expected(p, "at most one 'or'", text);
        err = parse_choice(p, &text, head, n_variables, &out->choices[out->n_choices++]);
        if (err)
            return err;
    } while (sw_rule_take_word(&text, "or"));
    if (sw_rule_take_sign(&text, ','))
        return parse_split(p, text, out);
    return sw_rule_parse_end(p, text);
}

static int parse_parts(struct sw_rule_parsing *p, const char *key, const struct sw_rule_head *head,
    uint32_t n_variables, struct sw_rule_part **parts, uint32_t *n)
{
    const uint32_t count = sw_rule_count(p, key);

    p->entry = NULL;
    if (count > PARTS_MAX)
        return sw_fail(p->e, SW_ERR_LIMIT, "expected at most %d lines of '%s'", PARTS_MAX, key);
    *parts = sw_arena_array(&p->rules->arena, count, sizeof(**parts));
    if (!*parts)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file of this size");
    for (uint32_t i = 0; i < p->section->n; i++) {
        int err;

        p->entry = &p->section->entries[i];
        if (strcmp(p->entry->key, key) != 0)
            continue;
        err = parse_part(p, head, n_variables, &(*parts)[(*n)++]);
        if (err)
            return err;
    }
    return 0;
}

/* ---- the section ---- */

static int parse_engine(struct sw_rule_parsing *p, struct sw_rule_parameter *out)
{
    int kind;

    if (!sw_rule_find(p, "engine"))
        return 0;
    kind = sw_engine_kind_from_name(p->entry->value);
    if (kind <= SW_ENGINE_ANY)
        return sw_rule_expected(p, "sglang or vllm", p->entry->value);
    out->engine = (enum sw_engine_kind)kind;
    return 0;
}

static int parse_stack(struct sw_rule_parsing *p, struct sw_rule_parameter *out)
{
    struct sw_rule_head *h = &out->head;
    const char *text;
    int err;

    if (!sw_rule_find(p, "stack"))
        return 0;
    text = p->entry->value;
    err = sw_rule_parse_range(p, &text, &out->stack);
    if (err || (err = parse_group(p, &text, &out->stack_group)) ||
        (err = sw_rule_parse_end(p, text)))
        return err;
    for (uint32_t i = 0; i < h->n_for; i++)
        if (strcmp(h->variables[i], out->stack.variable) == 0)
            return sw_rule_expected(p, "a variable that `for` has not", out->stack.variable);
    out->stacked = true;
    h->variables[h->n_variables++] = out->stack.variable;
    return 0;
}

static int parse_alias(struct sw_rule_parsing *p, struct sw_rule_parameter *out)
{
    const char *text;
    size_t n;
    int err;

    if (!sw_rule_find(p, "alias"))
        return 0;
    text = p->entry->value;
    n = strcspn(text, ", \t");
    out->alias = sw_arena_strndup(&p->rules->arena, text, n);
    if (!out->alias)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file of this size");
    err = sw_rule_parse_pattern(p, out->alias, &out->head, &out->alias_pattern);
    text += n;
    sw_rule_skip_space(&text);
    if (err || !*text)
        return err;
    if (!sw_rule_take_sign(&text, ','))
        return sw_rule_expected(p, "',' and when it is one", text);
    err = sw_rule_parse_value(p, &text, &out->alias_when);
    return err ? err : sw_rule_parse_end(p, text);
}

static int parse_name(struct sw_rule_parsing *p, const char *name, const struct sw_rule_head *h,
    struct sw_pattern *out)
{
    int err = sw_rule_parse_pattern(p, name, h, out);

    if (!err && h->draft != (strncmp(name, "draft/", 6) == 0))
        return sw_rule_expected(
            p, "a name that begins with 'draft/', and 'draft = yes', together", name);
    return err;
}

static int parse_names(struct sw_rule_parsing *p, struct sw_rule_parameter *out)
{
    int err;

    p->entry = NULL;
    err = parse_name(p, p->section->name, &out->head, &out->pattern);
    if (!err && sw_rule_find(p, "sglang"))
        err = parse_name(p, p->entry->value, &out->head, &out->sglang);
    if (!err && sw_rule_find(p, "vllm"))
        err = parse_name(p, p->entry->value, &out->head, &out->vllm);
    return err;
}

static void add_engine_variables(struct sw_rule_head *h)
{
    static const char *const names[SW_RULE_GROUPS] = {
        [SW_RULE_FUSED] = "fused_shared_experts",
        [SW_RULE_PP_FIRST] = "pp_first",
        [SW_RULE_PP_LAST] = "pp_last",
    };

    h->n_own = h->n_variables;
    for (uint32_t i = 0; i < SW_RULE_GROUPS; i++)
        h->variables[h->n_variables++] = names[i];
    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        h->variables[h->n_variables++] = sw_group_name((enum sw_group_kind)g);
}

static int parse_listed(struct sw_rule_parsing *p, bool *unlisted)
{
    bool listed = true;
    int err = sw_rule_find(p, "listed") ? sw_rule_parse_yes(p, "listed", &listed) : 0;

    *unlisted = !listed;
    return err;
}

int sw_rule_parse_parameter(struct sw_rule_parsing *p, struct sw_rule_parameter *out)
{
    struct sw_rule_head *h = &out->head;
    int err = sw_rule_check_keys(p, parameter_keys);

    if (err || (err = sw_rule_parse_head(p, h)) || (err = parse_engine(p, out)) ||
        (err = parse_stack(p, out)) || (err = parse_names(p, out)))
        return err;
    err = parse_parts(p, "part", h, h->n_variables, &out->parts, &out->n_parts);
    if (!err)
        err = parse_parts(p, "extra", h, h->n_for, &out->extras, &out->n_extras);
    if (err)
        return err;
    p->entry = NULL;
    if (out->n_parts == 0)
        return sw_fail(p->e, SW_ERR_INVALID, "expected a key 'part'");
    if (out->n_extras && !out->stacked)
        return sw_fail(p->e, SW_ERR_INVALID, "expected 'stack' with 'extra'");
    add_engine_variables(h);
    err = sw_rule_parse_yes(p, "quantise", &out->quantise);
    if (!err)
        err = parse_listed(p, &out->unlisted);
    return err ? err : parse_alias(p, out);
}
