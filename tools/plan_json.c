/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as JSON: sizes in bytes, times in seconds, bandwidths in bytes a second. */
#include "tools/plan_run.h"
#include "trainerd/plan/compact.h"

static json_int_t integer(uint64_t n)
{
    return (json_int_t)n;
}

static json_t *places(const struct sw_cost_place *p, uint32_t n, bool trainers)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < n; i++) {
        json_t *item = json_pack("{s:I, s:I, s:I, s:I}", "host", integer(p[i].host), "nic",
            integer(p[i].nic), trainers ? "sent_bytes" : "received_bytes", integer(p[i].moved),
            "pairs", integer(p[i].pairs));

        if (item && trainers)
            json_object_set_new(item, "replica_bytes", json_integer(integer(p[i].replica)));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *pairs(const struct sw_plan_run *run)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < sw_writes_count(run->writes); i++) {
        const struct sw_pair *p = sw_writes_pair(run->writes, i);

        json_array_append_new(
            list, json_pack("[I, I, I]", integer(p->rank), integer(p->target), integer(p->bytes)));
    }
    return list;
}

static json_t *warnings(const struct sw_plan_run *run)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < run->n_warnings; i++)
        json_array_append_new(list, json_string(run->warnings[i]));
    return list;
}

static json_t *totals(const struct sw_plan_run *run)
{
    const struct sw_compact *p = sw_layout_compact(run->layout);
    const struct sw_cost *c = &run->cost;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", /**/
        "trainer_ranks", integer(c->n_ranks),                                   /**/
        "engine_ranks", integer(c->n_targets),                                  /**/
        "tensors", integer(p->n_entries),                                       /**/
        "slabs", integer(p->n_slabs),                                           /**/
        "staged_bytes", integer(c->distinct),                                   /**/
        "moved_bytes", integer(c->moved),                                       /**/
        "pairs", integer(c->pairs),                                             /**/
        "waves", integer(c->waves),                                             /**/
        "busiest_source_nic_bytes", integer(c->busiest),                        /**/
        "lower_bound_bytes", integer(c->lower_bound),                           /**/
        "block_maxima", integer(c->maxima));
}

static json_t *predicted(const struct sw_cost *c)
{
    return json_pack("{s:f, s:s, s:f, s:s}", "stage_s", c->stage_seconds, "stage_limit",
        sw_limit_name(c->stage_limit), "pause_s", c->publish_seconds, "pause_limit",
        sw_limit_name(c->publish_limit));
}

json_t *sw_plan_run_json(const struct sw_plan_run *run)
{
    const struct sw_cost *c = &run->cost;
    const struct sw_machine *m = &run->machine;
    const struct {
        const char *key;
        json_t *value;
    } parts[] = {
        {"totals", totals(run)},
        {"assumed", json_pack("{s:f, s:f, s:f, s:f}", "nic", m->nic, "pcie", m->pcie, "stage",
                        m->stage, "host", m->host)},
        {"predicted", predicted(c)},
        {"trainers", places(c->ranks, c->n_ranks, true)},
        {"engines", places(c->targets, c->n_targets, false)},
        {"training_hosts", places(c->source_hosts, c->n_source_hosts, true)},
        {"inference_hosts", places(c->target_hosts, c->n_target_hosts, false)},
        {"source_nics", places(c->source_nics, c->n_source_nics, true)},
        {"target_nics", places(c->target_nics, c->n_target_nics, false)},
        {"pairs_of_rank_target_bytes", pairs(run)},
        {"warnings", warnings(run)},
    };
    json_t *document = json_object();
    bool whole = document != NULL;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (json_object_set_new(document, parts[i].key, parts[i].value)) /* takes it in any case */
            whole = false;
    if (whole)
        return document;
    json_decref(document);
    return NULL;
}
