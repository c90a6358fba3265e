/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include "tools/shardctl.h"
#include "tools/table.h"

/* The version that all ranks of an engine hold; -1 when they differ or a rank is missing. */
static json_int_t version_of(const json_t *engine)
{
    const json_t *rank;
    json_int_t version = -1;
    size_t i;

    json_array_foreach(json_object_get(engine, "ranks"), i, rank)
    {
        const json_int_t v = json_integer_value(json_object_get(rank, "version"));
        if (i && v != version)
            return -1;
        version = v;
    }
    return version;
}

/* True when every engine of the group serves the live version. */
static bool print_live(const json_t *state)
{
    const json_int_t live = json_integer_value(json_object_get(state, "live_version"));
    struct sw_table *t = sw_table_new();
    const json_t *engine;
    bool all = true;
    char text[32];
    size_t i;

    printf("live version %" JSON_INTEGER_FORMAT "\n", live);
    json_array_foreach(json_object_get(state, "engines"), i, engine)
    {
        const json_int_t version = version_of(engine);
        const bool is_live = json_is_true(json_object_get(engine, "live"));
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, version);
        sw_table_cell(t, json_string_value(json_object_get(engine, "name")));
        sw_table_cell(t, version < 0 ? "mixed" : text);
        sw_table_cell(t, is_live ? "live" : "not live");
        sw_table_row(t);
        all = all && is_live;
    }
    sw_table_print(t, 2, stdout);
    return all;
}

int sw_ctl_live(const struct sw_ctl *ctl)
{
    struct sw_error e = {0};
    const json_t *state;
    json_t *document;
    int status;

    if (sw_ctl_get_status(ctl, &document, &e))
        return sw_ctl_fail("live", &e);
    state = sw_ctl_group_state(document, &e);
    if (!state)
        status = sw_ctl_fail("live", &e);
    else
        status = print_live(state) ? SW_CTL_OK : SW_CTL_PARTIAL;
    json_decref(document);
    return status;
}
