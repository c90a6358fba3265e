/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include "tools/shardctl.h"
#include "tools/table.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void number_cell(struct sw_table *t, const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    char text[32] = "";

    if (json_is_integer(v))
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    sw_table_cell(t, text);
}

static void add_rank(struct sw_table *t, const char *engine, const json_t *rank)
{
    sw_table_cell(t, engine);
    number_cell(t, rank, "rank");
    sw_table_cell(t, text_of(rank, "state"));
    number_cell(t, rank, "version");
    sw_table_cell(t, text_of(rank, "host"));
    number_cell(t, rank, "pid");
    number_cell(t, rank, "parameters");
    sw_table_cell(
        t, text_of(rank, "misfit")[0] ? text_of(rank, "misfit") : text_of(rank, "reason"));
    sw_table_row(t);
}

static struct sw_table *new_table(void)
{
    static const char *const titles[] = {
        "ENGINE", "RANK", "STATE", "VERSION", "HOST", "PID", "PARAMETERS", "REASON"};
    struct sw_table *t = sw_table_new();

    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        sw_table_cell(t, titles[i]);
    sw_table_row(t);
    return t;
}

/* The coordinator knows all engines of the group, inferd those of its host. */
static void print_engines(const json_t *document, const json_t *state)
{
    struct sw_table *t = new_table();
    const json_t *engine, *rank;
    size_t i, r;

    json_array_foreach(json_object_get(state, "engines"), i, engine)
    {
        json_array_foreach(json_object_get(engine, "ranks"), r, rank)
        {
            add_rank(t, text_of(engine, "name"), rank);
        }
    }
    if (!state) {
        json_array_foreach(json_object_get(document, "ranks"), r, rank)
        {
            add_rank(t, text_of(rank, "engine"), rank);
        }
    }
    sw_table_print(t, 0, stdout);
}

int sw_ctl_engines(const struct sw_ctl *ctl)
{
    struct sw_error e = {0};
    const json_t *state;
    json_t *document;
    int status = SW_CTL_OK;

    if (sw_ctl_get_status(ctl, &document, &e))
        return sw_ctl_fail("engines", &e);
    state = sw_ctl_group_state(document, &e);
    if (state || json_is_array(json_object_get(document, "ranks")))
        print_engines(document, state);
    else
        status = sw_ctl_fail("engines", &e);
    json_decref(document);
    return status;
}
