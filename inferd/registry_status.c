/* SPDX-License-Identifier: Apache-2.0 */
#include "inferd/registry_impl.h"

static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *rank_status(const struct sw_rank *k, uint64_t now_ns)
{
    const struct sw_engine *g = k->engine;
    char id[17], window[17];
    json_t *o = json_object();

    json_object_set_new(o, "session", number(k->session));
    json_object_set_new(o, "engine", json_string(k->manifest.engine));
    json_object_set_new(o, "rank", json_integer(k->manifest.rank));
    json_object_set_new(o, "world", json_integer(k->manifest.world));
    json_object_set_new(o, "instance", json_string(sw_id_short(&k->manifest.instance, id)));
    json_object_set_new(o, "pid", json_integer(k->pid));
    json_object_set_new(
        o, "state", json_string(sw_rank_state_name(sw_step_state(k->step, k->torn))));
    json_object_set_new(o, "step", json_string(sw_step_name(k->step)));
    json_object_set_new(o, "version", number(k->version));
    json_object_set_new(o, "torn", json_boolean(k->torn));
    json_object_set_new(o, "reason", json_string(k->reason));
    json_object_set_new(o, "parameters", json_integer(k->manifest.n));
    json_object_set_new(o, "parameter_bytes", number(k->manifest.parameter_bytes));
    json_object_set_new(o, "regions", json_integer(k->manifest.n_regions));
    json_object_set_new(o, "updates", number(k->updates));
    json_object_set_new(o, "bytes_total", number(k->bytes_total));
    json_object_set_new(o, "tokens", json_integer(k->tokens.n));
    json_object_set_new(o, "window",
        sw_step_has_window(k->step) ? json_string(sw_id_short(&k->window, window)) : json_null());
    json_object_set_new(o, "update", g && k->member ? number(g->update) : json_null());
    json_object_set_new(o, "lease_ms",
        g && g->lease_end_ns
            ? number(g->lease_end_ns > now_ns ? (g->lease_end_ns - now_ns) / 1000000 : 0)
            : json_null());
    return o;
}

void sw_registry_each(const struct sw_registry *r,
    bool (*call)(const struct sw_manifest *m, uint32_t pid, void *arg), void *arg)
{
    bool more = true;

    for (const struct sw_rank *k = r->ranks; k && more; k = k->next)
        if (sw_step_registered(k->step))
            more = call(&k->manifest, k->pid, arg);
}

json_t *sw_registry_status(const struct sw_registry *r, uint64_t now_ns)
{
    json_t *o = json_object(), *ranks = json_array();
    uint32_t undeclared = 0;
    char id[17];

    for (const struct sw_rank *k = r->ranks; k; k = k->next) {
        if (k->step == SW_STEP_CONNECTED)
            undeclared++;
        else
            json_array_append_new(ranks, rank_status(k, now_ns));
    }
    json_object_set_new(o, "ranks", ranks);
    json_object_set_new(o, "undeclared_processes", json_integer(undeclared));
    json_object_set_new(o, "coordinator_connected", json_boolean(r->coordinator_up));
    json_object_set_new(o, "coordinator_instance",
        r->generation ? json_string(sw_id_short(&r->coordinator, id)) : json_null());
    return o;
}
