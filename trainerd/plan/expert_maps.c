/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/expert_maps.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"
#include "trainerd/plan/model.h"

static bool has_map(const struct sw_plan_target *t)
{
    return t->model && t->placement && t->placement->map;
}

/* Marks the experts' tensors that a rank holds something of. */
static void mark(const struct sw_plan_target *t, struct sw_pieces *pieces, uint8_t *held)
{
    struct sw_error ignored;

    for (uint32_t i = 0; i < t->n_parameters; i++) {
        if (sw_model_pieces(t->model, t->placement, &t->parameters[i], pieces, &ignored))
            return; /* the planner says why */
        for (uint32_t k = 0; pieces->expert && k < pieces->n; k++)
            if (pieces->items[k].tensor != UINT32_MAX)
                held[pieces->items[k].tensor] = 1;
    }
}

static int nobody_has(const struct sw_plan_target *t, const struct sw_tensor_role *role,
    uint32_t tensor, struct sw_error *e)
{
    const uint32_t last = role->n_variables - 1;
    char name[SW_NAME_MAX + 1] = "?";
    uint64_t origin[SW_MAX_DIMS];
    uint32_t stored;

    if (sw_model_locate(t->model, tensor, 0, &stored, origin))
        sw_model_stored_name(t->model, stored, name);
    return sw_fail(e, SW_ERR_PLAN,
        "engine %s: expert %lld is in no slot of any rank's expert map (version %llu), so that "
        "nobody would hold %s (rule %s): every expert of a layer needs a slot",
        t->engine,
        (long long)(role->from[last] + (tensor - role->first_tensor) % (uint32_t)role->count[last]),
        (unsigned long long)t->placement->map_version, name, role->rule);
}

/* Of a layer's experts all must be held, or none: the layer is no part of this engine then. */
static int check_role(const struct sw_plan_target *t, const struct sw_tensor_role *role,
    const uint8_t *held, struct sw_error *e)
{
    const uint32_t experts = (uint32_t)role->count[role->n_variables - 1];

    for (uint32_t first = 0; experts && first + experts <= role->n_tensors; first += experts) {
        const uint8_t *layer = held + role->first_tensor + first;

        if (!memchr(layer, 1, experts))
            continue;
        for (uint32_t i = 0; i < experts; i++) {
            const uint32_t tensor = role->first_tensor + first + i;

            if (!layer[i] && sw_model_exists(t->model, tensor))
                return nobody_has(t, role, tensor, e);
        }
    }
    return 0;
}

/* The n ranks of one engine, of which the first has a map. */
static int check_engine(const struct sw_plan_target *t, uint32_t n, struct sw_error *e)
{
    uint8_t *held = calloc((size_t)sw_model_tensors(t->model) + 1, 1);
    struct sw_pieces pieces = {0};
    int err = 0;

    if (!held)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to look at expert maps");
    for (uint32_t i = 0; i < n; i++)
        if (t[i].model == t->model && t[i].placement)
            mark(&t[i], &pieces, held);
    for (uint32_t r = 0; !err && r < sw_model_roles(t->model); r++) {
        const struct sw_tensor_role *role = sw_model_role(t->model, r);

        if (role->expert && role->n_tensors)
            err = check_role(t, role, held, e);
    }
    sw_pieces_free(&pieces);
    free(held);
    return err;
}

int sw_expert_maps_check(const struct sw_plan_target *targets, uint32_t n, struct sw_error *e)
{
    int err = 0;

    for (uint32_t from = 0, to; !err && from < n; from = to) {
        to = from + 1;
        if (!has_map(&targets[from]))
            continue;
        while (to < n && !strcmp(targets[to].engine, targets[from].engine))
            to++;
        err = check_engine(&targets[from], to - from, e);
    }
    return err;
}
