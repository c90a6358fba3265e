/* SPDX-License-Identifier: Apache-2.0 */
/* What [tensor] and [parameter] sections have in common. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/text.h"
#include "trainerd/plan/rules_parse.h"

static bool is_word(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int sw_rule_expected(struct sw_rule_parsing *p, const char *what, const char *found)
{
    char shown[80], text[24] = "";

    if (!*found)
        return sw_fail(p->e, SW_ERR_INVALID, "expected %s, found the end", what);
    strncpy(text, found, sizeof(text) - 1);
    return sw_fail(p->e, SW_ERR_INVALID, "expected %s, found '%s'", what,
        sw_text_escape(shown, sizeof(shown), text));
}

static int no_memory(struct sw_rule_parsing *p)
{
    return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file of this size");
}

void sw_rule_skip_space(const char **text)
{
    while (**text == ' ' || **text == '\t')
        (*text)++;
}

bool sw_rule_take_word(const char **text, const char *word)
{
    const size_t n = strlen(word);

    if (strncmp(*text, word, n) != 0 || is_word((*text)[n]))
        return false;
    *text += n;
    sw_rule_skip_space(text);
    return true;
}

bool sw_rule_take_sign(const char **text, char sign)
{
    if (**text != sign)
        return false;
    ++*text;
    sw_rule_skip_space(text);
    return true;
}

int sw_rule_parse_end(struct sw_rule_parsing *p, const char *text)
{
    sw_rule_skip_space(&text);
    return *text ? sw_rule_expected(p, "the end", text) : 0;
}

int sw_rule_parse_value(struct sw_rule_parsing *p, const char **text, struct sw_rule_value *out)
{
    *out = (struct sw_rule_value){
        .key = p->entry->key, .file = p->entry->file, .line = p->entry->line};
    return sw_expression_parse(&p->rules->arena, text, &out->x, p->e);
}

int sw_rule_parse_word(
    struct sw_rule_parsing *p, const char **text, const char *what, const char **out)
{
    size_t n = 0;

    while (is_word((*text)[n]))
        n++;
    if (n == 0 || (**text >= '0' && **text <= '9'))
        return sw_rule_expected(p, what, *text);
    *out = sw_arena_strndup(&p->rules->arena, *text, n);
    if (!*out)
        return no_memory(p);
    *text += n;
    sw_rule_skip_space(text);
    return 0;
}

int sw_rule_parse_range(struct sw_rule_parsing *p, const char **text, struct sw_rule_range *out)
{
    int err = sw_rule_parse_word(p, text, "a variable", &out->variable);

    for (uint32_t i = 0; !err && i < p->rules->n_definitions; i++)
        if (strcmp(p->rules->definitions[i].name, out->variable) == 0)
            return sw_rule_expected(
                p, "a variable that is not the name of a definition too", out->variable);
    if (!err && !sw_rule_take_word(text, "from"))
        err = sw_rule_expected(p, "'VARIABLE from A to B'", *text);
    if (!err)
        err = sw_rule_parse_value(p, text, &out->from);
    if (!err && !sw_rule_take_word(text, "to"))
        err = sw_rule_expected(p, "'to'", *text);
    return err ? err : sw_rule_parse_value(p, text, &out->to);
}

bool sw_rule_find(struct sw_rule_parsing *p, const char *key)
{
    p->entry = sw_rule_section_get(p->section, key);
    return p->entry;
}

uint32_t sw_rule_count(const struct sw_rule_parsing *p, const char *key)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->section->n; i++)
        n += strcmp(p->section->entries[i].key, key) == 0;
    return n;
}

int sw_rule_parse_yes(struct sw_rule_parsing *p, const char *key, bool *out)
{
    *out = false;
    if (!sw_rule_find(p, key))
        return 0;
    *out = strcmp(p->entry->value, "yes") == 0;
    return *out || strcmp(p->entry->value, "no") == 0
               ? 0
               : sw_rule_expected(p, "yes or no", p->entry->value);
}

int sw_rule_check_keys(struct sw_rule_parsing *p, const char *const *keys)
{
    char list[256];
    int n = 0;

    for (uint32_t i = 0; i < p->section->n; i++) {
        uint32_t k = 0;

        p->entry = &p->section->entries[i];
        while (keys[k] && strcmp(keys[k], p->entry->key) != 0)
            k++;
        if (keys[k])
            continue;
        for (k = 0; keys[k]; k++)
            n += snprintf(list + n, sizeof(list) - (size_t)n, "%s%s", k ? ", " : "", keys[k]);
        return sw_fail(p->e, SW_ERR_INVALID, "no key of such a section: expected one of %s", list);
    }
    p->entry = NULL;
    return 0;
}

int sw_rule_parse_pattern(struct sw_rule_parsing *p, const char *name,
    const struct sw_rule_head *head, struct sw_pattern *out)
{
    const char *wrong = sw_pattern_parse(
        &p->rules->arena, name, head ? head->variables : NULL, head ? head->n_for : 0, !head, out);

    return wrong ? sw_rule_expected(p, wrong, name) : 0;
}

const char *sw_rule_where(struct sw_rule_parsing *p, const char *file, uint32_t line)
{
    char at[300];

    snprintf(at, sizeof(at), "%.280s:%u", file, line);
    return sw_arena_strdup(&p->rules->arena, at);
}

static int parse_ranges(struct sw_rule_parsing *p, struct sw_rule_head *out)
{
    for (uint32_t i = 0; i < p->section->n; i++) {
        const char *text = p->section->entries[i].value;
        int err;

        if (strcmp(p->section->entries[i].key, "for") != 0)
            continue;
        p->entry = &p->section->entries[i];
        if (out->n_for == SW_RULE_FOR_MAX)
            return sw_rule_expected(p, "at most two lines", text);
        err = sw_rule_parse_range(p, &text, &out->ranges[out->n_for]);
        if (err || (err = sw_rule_parse_end(p, text)))
            return err;
        if (out->n_for == 1 && strcmp(out->ranges[0].variable, out->ranges[1].variable) == 0)
            return sw_rule_expected(p, "another variable", p->entry->value);
        out->variables[out->n_variables++] = out->ranges[out->n_for++].variable;
    }
    if (out->n_for == 2 && strcmp(out->variables[0], "expert") == 0)
        return sw_rule_expected(p, "the line of `expert` last", out->variables[1]);
    return 0;
}

int sw_rule_parse_head(struct sw_rule_parsing *p, struct sw_rule_head *out)
{
    int err;

    out->header = p->section->header;
    out->at = sw_rule_where(p, p->section->file, p->section->line);
    if (!out->at)
        return no_memory(p);
    err = parse_ranges(p, out);
    if (!err && sw_rule_find(p, "when")) {
        const char *text = p->entry->value;

        err = sw_rule_parse_value(p, &text, &out->when);
        if (!err)
            err = sw_rule_parse_end(p, text);
    }
    if (!err && sw_rule_find(p, "dtype")) {
        out->dtype = sw_dtype_from_name(p->entry->value);
        if (out->dtype == SW_DTYPE_INVALID)
            err = sw_rule_expected(p, "a type such as BF16 or F32", p->entry->value);
    }
    return err ? err : sw_rule_parse_yes(p, "draft", &out->draft);
}
