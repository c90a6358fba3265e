/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan_live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/engine_rank.h"
#include "common/error.h"

/* Ranks of one engine say the same: then they share the model. */
static bool same_model(const struct sw_engine_rank *a, const struct sw_engine_rank *b)
{
    return a->kind == b->kind && !strcmp(a->layout, b->layout) && !strcmp(a->config, b->config);
}

static int make_model(struct sw_plan_live *live, const char *folder, const struct sw_engine_rank *r,
    struct sw_error *e)
{
    char name[128];
    int code;

    snprintf(name, sizeof(name), "config.json of engine %.64s rank %u", r->engine, r->rank);
    code = sw_model_files_make(
        name, r->config, folder, r->layout, r->kind, &live->models[live->n_models], e);
    live->n_models += !code;
    return code;
}

/* *model: the number of the rank's model. */
static int find_model(struct sw_plan_live *live, const char *folder, const uint32_t *model_of,
    uint32_t i, uint32_t *model, struct sw_error *e)
{
    const struct sw_engine_rank *r = live->engines->items[i].rank;

    for (uint32_t k = 0; k < i; k++) {
        const struct sw_engine_rank *other = live->engines->items[k].rank;

        if (!sw_engine_rank_identity(other) && same_model(other, r)) {
            *model = model_of[k];
            return 0;
        }
    }
    *model = live->n_models;
    return make_model(live, folder, r, e);
}

static int add_target(struct sw_plan_live *live, const char *folder, uint32_t *model_of, uint32_t i,
    struct sw_error *e)
{
    const struct sw_live_rank *item = &live->engines->items[i];
    const struct sw_engine_rank *r = item->rank;
    struct sw_plan_target *t = &live->targets[i];
    uint32_t block[2];
    int code = 0;

    *t = (struct sw_plan_target){.target = i,
        .engine = r->engine,
        .engine_rank = r->rank,
        .nic = i,
        .n_regions = r->n_regions,
        .region_bytes = r->region_bytes,
        .n_parameters = item->n_parameters,
        .parameters = item->parameters};
    if (sw_engine_rank_identity(r))
        return 0;
    code = find_model(live, folder, model_of, i, &model_of[i], e);
    if (code)
        return code;
    if (!sw_config_fp8(live->models[model_of[i]].config, block))
        block[0] = block[1] = 0;
    t->model = live->models[model_of[i]].model;
    t->placement = &live->places[i];
    return sw_engine_rank_placement(r, block, &live->places[i], e);
}

static int add_targets(struct sw_plan_live *live, const char *folder, struct sw_error *e)
{
    const size_t n = live->engines->n;
    uint32_t *model_of = calloc(n + 1, sizeof(*model_of));
    int code = 0;

    live->models = calloc(n + 1, sizeof(*live->models));
    live->places = calloc(n + 1, sizeof(*live->places));
    live->targets = calloc(n + 1, sizeof(*live->targets));
    if (!model_of || !live->models || !live->places || !live->targets)
        code = sw_fail(e, SW_ERR_NOMEM, "no memory for %zu engine ranks", n);
    for (uint32_t i = 0; !code && i < n; i++)
        code = add_target(live, folder, model_of, i, e);
    live->n_targets = (uint32_t)n;
    free(model_of);
    return code;
}

int sw_plan_live_ask(const struct sw_control_where *where, const char *folder,
    struct sw_plan_live *live, struct sw_error *e)
{
    struct sw_plan_live l = {0};
    int code = sw_live_engines_ask(where, &l.engines, e);

    if (!code && !l.engines->n)
        code = sw_fail(
            e, SW_ERR_NOT_FOUND, "no engine rank is registered with the inferd at %s", where->host);
    if (!code)
        code = add_targets(&l, folder, e);
    if (code) {
        sw_plan_live_clear(&l);
        return code;
    }
    *live = l;
    return 0;
}

void sw_plan_live_clear(struct sw_plan_live *live)
{
    for (uint32_t i = 0; live->models && i < live->n_models; i++)
        sw_model_files_clear(&live->models[i]);
    free(live->models);
    free(live->places);
    free(live->targets);
    sw_live_engines_free(live->engines);
    *live = (struct sw_plan_live){0};
}
