/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/document.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "common/text.h"
#include "tools/progress.h"
#include "tools/table.h"

#define STEP 2
#define DEPTH_MAX 32 /* what lies deeper is not shown */
#define VALUE_MAX 1100

static bool ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

static bool is_scalar(const json_t *v)
{
    return !json_is_object(v) && !json_is_array(v);
}

static bool is_nothing(const json_t *v)
{
    return json_is_null(v) || (json_is_string(v) && !json_string_length(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static const char *format_integer(const char *key, json_int_t n, char out[VALUE_MAX])
{
    char bytes[32];

    snprintf(out, VALUE_MAX, "%" JSON_INTEGER_FORMAT, n);
    if (n >= 1000 && (ends_with(key, "bytes") || ends_with(key, "bytes_total")))
        snprintf(out, VALUE_MAX, "%" JSON_INTEGER_FORMAT " (%s)", n,
            sw_format_bytes((uint64_t)n, bytes));
    return out;
}

/* A scalar as text, not escaped yet. */
static const char *format(const char *key, const json_t *v, char out[VALUE_MAX])
{
    char time[32];

    switch (json_typeof(v)) {
    case JSON_STRING:
        return json_string_value(v);
    case JSON_TRUE:
        return "yes";
    case JSON_FALSE:
        return "no";
    case JSON_INTEGER:
        return format_integer(key, json_integer_value(v), out);
    case JSON_REAL:
        if (ends_with(key, "_s") && json_real_value(v) >= 0 && json_real_value(v) < 1e9)
            snprintf(
                out, VALUE_MAX, "%s", sw_format_time((uint64_t)(json_real_value(v) * 1e9), time));
        else
            snprintf(out, VALUE_MAX, "%g", json_real_value(v));
        return out;
    default:
        return "";
    }
}

static void print_key(const char *key, unsigned indent, FILE *out)
{
    char shown[256];

    sw_text_escape(shown, sizeof(shown), key);
    for (char *c = shown; *c; c++)
        if (*c == '_')
            *c = ' ';
    fprintf(out, "%*s%s:", (int)indent, "", shown);
}

static void print_scalar(const char *key, const json_t *v, FILE *out)
{
    char value[VALUE_MAX], shown[2 * VALUE_MAX];

    fprintf(out, " %s", sw_text_escape(shown, sizeof(shown), format(key, v, value)));
}

/* Rows that hold nothing but scalars make a table. */
static bool is_table(const json_t *array)
{
    const char *key;
    const json_t *row;
    json_t *v;
    size_t i;

    json_array_foreach(array, i, row)
    {
        if (!json_is_object(row))
            return false;
        json_object_foreach((json_t *)(uintptr_t)row, key, v)
        {
            if (!is_scalar(v) && !is_nothing(v))
                return false;
        }
    }
    return true;
}

/* Every key of any row that has a value somewhere, in the order of appearance: a new object. */
static json_t *columns_of(const json_t *array)
{
    json_t *columns = json_object(), *v;
    const json_t *row;
    const char *key;
    size_t i;

    json_array_foreach(array, i, row)
    {
        json_object_foreach((json_t *)(uintptr_t)row, key, v)
        {
            if (!is_nothing(v))
                json_object_set_new(columns, key, json_true());
        }
    }
    return columns;
}

static void print_table(const json_t *array, unsigned indent, FILE *out)
{
    json_t *columns = columns_of(array), *ignored;
    struct sw_table *t = sw_table_new();
    char value[VALUE_MAX];
    const json_t *row;
    const char *key;
    size_t i;

    json_object_foreach(columns, key, ignored)
    {
        sw_table_cell(t, key);
    }
    sw_table_row(t);
    json_array_foreach(array, i, row)
    {
        json_object_foreach(columns, key, ignored)
        {
            const json_t *v = json_object_get(row, key);
            sw_table_cell(t, v && is_scalar(v) ? format(key, v, value) : "");
        }
        sw_table_row(t);
    }
    sw_table_print(t, indent, out);
    json_decref(columns);
}

static void print_object(const json_t *object, unsigned indent, FILE *out);

static void print_array(const json_t *array, unsigned indent, FILE *out)
{
    const json_t *item;
    size_t i;

    if (is_table(array)) {
        print_table(array, indent, out);
        return;
    }
    json_array_foreach(array, i, item)
    {
        fprintf(out, "%*s-", (int)indent, "");
        if (is_scalar(item)) {
            print_scalar("", item, out);
            fputc('\n', out);
        } else {
            fputc('\n', out);
            if (json_is_object(item))
                print_object(item, indent + STEP, out);
            else if (indent < DEPTH_MAX * STEP)
                print_array(item, indent + STEP, out);
        }
    }
}

/* Scalars first: what comes after a section would look as if it belonged to it. */
static void print_object(const json_t *object, unsigned indent, FILE *out)
{
    const char *key;
    json_t *v;

    if (indent > DEPTH_MAX * STEP)
        return;
    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    {
        if (!is_scalar(v) || is_nothing(v))
            continue;
        print_key(key, indent, out);
        print_scalar(key, v, out);
        fputc('\n', out);
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    {
        if (is_scalar(v) || is_nothing(v))
            continue;
        print_key(key, indent, out);
        fputc('\n', out);
        if (json_is_object(v))
            print_object(v, indent + STEP, out);
        else
            print_array(v, indent + STEP, out);
    }
}

void sw_document_print(const json_t *object, FILE *out)
{
    print_object(object, 0, out);
}
