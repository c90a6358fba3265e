/* SPDX-License-Identifier: Apache-2.0 */
/* [tensor NAME]: what a checkpoint has. */
#include <string.h>

#include "common/error.h"
#include "trainerd/plan/rules_parse.h"

#define STORED_MAX 8

static const char *const tensor_keys[] = {
    "for", "when", "shape", "stored", "dtype", "trainer", "draft", "optional", NULL};

int sw_rule_parse_tensor_head(struct sw_rule_parsing *p, struct sw_rule_tensor *out)
{
    const char *text = p->section->name, *name;
    int err = sw_rule_check_keys(p, tensor_keys);

    if (err || (err = sw_rule_parse_word(p, &text, "a word after 'tensor'", &name)) ||
        (err = sw_rule_parse_end(p, text)))
        return err;
    out->name = p->section->name;
    return sw_rule_parse_head(p, &out->head);
}

static int parse_list(struct sw_rule_parsing *p, const char **text, uint32_t max,
    struct sw_rule_value *out, uint32_t *n)
{
    *n = 0;
    do {
        int err;

        if (*n == max)
            return sw_rule_expected(p, "fewer numbers", *text);
        err = sw_rule_parse_value(p, text, &out[(*n)++]);
        if (err)
            return err;
    } while (sw_rule_take_sign(text, ','));
    return 0;
}

/* "[d0, d1] at o0, o1" */
static int parse_block(struct sw_rule_parsing *p, const char *text, const struct sw_rule_tensor *t,
    struct sw_rule_stored *out)
{
    uint32_t n;
    int err;

    if (!sw_rule_take_sign(&text, '['))
        return sw_rule_expected(p, "'[' or the end", text);
    err = parse_list(p, &text, SW_MAX_DIMS, out->shape, &out->ndim);
    if (err)
        return err;
    if (!sw_rule_take_sign(&text, ']') || !sw_rule_take_word(&text, "at"))
        return sw_rule_expected(p, "'] at' and where the tensor begins", text);
    err = parse_list(p, &text, SW_MAX_DIMS, out->origin, &n);
    if (err || (err = sw_rule_parse_end(p, text)))
        return err;
    if (n != out->ndim)
        return sw_rule_expected(p, "as many numbers after 'at' as in []", "another number of them");
    if (out->ndim < t->ndim)
        return sw_rule_expected(p, "as many dimensions in [] as the tensor has, or more", "fewer");
    return 0;
}

static int parse_stored(
    struct sw_rule_parsing *p, const struct sw_rule_tensor *t, struct sw_rule_stored *out)
{
    const char *text = p->entry->value;
    const size_t n = strcspn(text, " \t[");
    char *name = sw_arena_strndup(&p->rules->arena, text, n);
    int err;

    if (!name)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file of this size");
    err = sw_rule_parse_pattern(p, name, &t->head, &out->pattern);
    text += n;
    sw_rule_skip_space(&text);
    if (err)
        return err;
    if (*text)
        return parse_block(p, text, t, out);
    for (uint32_t v = 0; v < t->head.n_for; v++)
        if (!sw_pattern_holds(&out->pattern, (int)v))
            return sw_rule_expected(p, "every variable of `for` in the name", name);
    return 0;
}

static int parse_names(struct sw_rule_parsing *p, struct sw_rule_tensor *out)
{
    const uint32_t n = sw_rule_count(p, "stored");

    p->entry = NULL;
    if (n == 0)
        return sw_fail(p->e, SW_ERR_INVALID, "expected a key 'stored'");
    if (n > STORED_MAX)
        return sw_fail(p->e, SW_ERR_LIMIT, "expected at most %d ways to store it", STORED_MAX);
    out->stored = sw_arena_array(&p->rules->arena, n, sizeof(*out->stored));
    if (!out->stored)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file of this size");
    for (uint32_t i = 0; i < p->section->n; i++) {
        int err;

        p->entry = &p->section->entries[i];
        if (strcmp(p->entry->key, "stored") != 0)
            continue;
        err = parse_stored(p, out, &out->stored[out->n_stored++]);
        if (err)
            return err;
    }
    return 0;
}

static int parse_trainer(struct sw_rule_parsing *p, struct sw_rule_tensor *out)
{
    static const char *const words[] = {
        [SW_AXIS_NONE] = "none", [SW_AXIS_ROWS] = "rows", [SW_AXIS_COLUMNS] = "columns"};

    if (!sw_rule_find(p, "trainer"))
        return 0;
    for (uint32_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strcmp(words[i], p->entry->value) == 0) {
            out->trainer = (enum sw_axis)i;
            return 0;
        }
    return sw_rule_expected(p, "rows, columns or none", p->entry->value);
}

int sw_rule_parse_tensor(struct sw_rule_parsing *p, struct sw_rule_tensor *out)
{
    const char *text;
    int err;

    if (!sw_rule_find(p, "shape"))
        return sw_fail(p->e, SW_ERR_INVALID, "expected a key 'shape'");
    text = p->entry->value;
    err = parse_list(p, &text, SW_RULE_SHAPE_MAX, out->shape, &out->ndim);
    if (err || (err = sw_rule_parse_end(p, text)) || (err = parse_names(p, out)) ||
        (err = parse_trainer(p, out)))
        return err;
    if (!sw_rule_find(p, "optional"))
        return 0;
    text = p->entry->value;
    err = sw_rule_parse_value(p, &text, &out->optional);
    return err ? err : sw_rule_parse_end(p, text);
}
