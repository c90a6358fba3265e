/* SPDX-License-Identifier: Apache-2.0 */
#include "common/placement.h"

#include <string.h>
#include "common/error.h"

static const char *const group_names[SW_GROUP_COUNT] = {
    [SW_GROUP_PP] = "pp",
    [SW_GROUP_TP] = "tp",
    [SW_GROUP_EP] = "ep",
    [SW_GROUP_DP] = "dp",
    [SW_GROUP_ATTN_TP] = "attn_tp",
    [SW_GROUP_MOE_TP] = "moe_tp",
    [SW_GROUP_MLP_TP] = "mlp_tp",
    [SW_GROUP_SHARED_TP] = "shared_tp",
    [SW_GROUP_EMBED_TP] = "embed_tp",
    [SW_GROUP_HEAD_TP] = "head_tp",
};

static const char *const kind_names[] = {
    [SW_ENGINE_ANY] = "",
    [SW_ENGINE_SGLANG] = "sglang",
    [SW_ENGINE_VLLM] = "vllm",
};

const char *sw_group_name(enum sw_group_kind kind)
{
    return (unsigned)kind < SW_GROUP_COUNT ? group_names[kind] : NULL;
}

enum sw_group_kind sw_group_from_name(const char *name, uint32_t length)
{
    for (unsigned g = 0; g < SW_GROUP_COUNT; g++)
        if (strlen(group_names[g]) == length && memcmp(group_names[g], name, length) == 0)
            return (enum sw_group_kind)g;
    return SW_GROUP_COUNT;
}

const char *sw_engine_kind_name(enum sw_engine_kind kind)
{
    return (unsigned)kind < sizeof(kind_names) / sizeof(*kind_names) ? kind_names[kind] : NULL;
}

int sw_engine_kind_from_name(const char *name)
{
    for (unsigned k = 0; k < sizeof(kind_names) / sizeof(*kind_names); k++)
        if (strcmp(kind_names[k], name) == 0)
            return (int)k;
    return -1;
}

static int check_said(const struct sw_coordinates *at, struct sw_error *e)
{
    for (unsigned g = 0; g < SW_GROUP_COUNT; g++) {
        const struct sw_group *group = &at->of[g];

        if (group->size == 0 && group->rank == 0)
            continue;
        if (group->rank >= group->size)
            return sw_fail(e, SW_ERR_INVALID, "%s: rank %u of %u: expected a rank below the size",
                group_names[g], group->rank, group->size);
    }
    return 0;
}

static void alone(struct sw_group *g)
{
    if (g->size == 0)
        *g = (struct sw_group){.rank = 0, .size = 1};
}

static void same_as(struct sw_group *g, const struct sw_group *other)
{
    if (g->size == 0)
        *g = *other;
}

/* The ranks of `whole` in runs of whole / by neighbours; this rank's place in its run. */
static int inner(struct sw_coordinates *at, enum sw_group_kind kind, enum sw_group_kind whole,
    enum sw_group_kind by, struct sw_error *e)
{
    const struct sw_group *w = &at->of[whole], *b = &at->of[by];
    uint32_t size;

    if (at->of[kind].size)
        return 0;
    if (w->size % b->size)
        return sw_fail(e, SW_ERR_INVALID,
            "%s %u is no multiple of %s %u: expected one, or the size of %s", group_names[whole],
            w->size, group_names[by], b->size, group_names[kind]);
    size = w->size / b->size;
    at->of[kind] = (struct sw_group){.rank = w->rank % size, .size = size};
    return 0;
}

int sw_coordinates_complete(struct sw_coordinates *at, enum sw_engine_kind kind, struct sw_error *e)
{
    struct sw_coordinates out = *at;
    struct sw_group *of = out.of;

    if (check_said(at, e))
        return SW_ERR_INVALID;
    alone(&of[SW_GROUP_PP]);
    alone(&of[SW_GROUP_TP]);
    alone(&of[SW_GROUP_EP]);
    alone(&of[SW_GROUP_DP]);
    /* In SGLang `dp` > 1 is data-parallel attention inside the tp group; elsewhere it is outside.
     */
    if (kind == SW_ENGINE_SGLANG && inner(&out, SW_GROUP_ATTN_TP, SW_GROUP_TP, SW_GROUP_DP, e))
        return SW_ERR_INVALID;
    if (inner(&out, SW_GROUP_MOE_TP, SW_GROUP_TP, SW_GROUP_EP, e))
        return SW_ERR_INVALID;
    same_as(&of[SW_GROUP_ATTN_TP], &of[SW_GROUP_TP]);
    same_as(&of[SW_GROUP_MLP_TP], &of[SW_GROUP_TP]);
    same_as(&of[SW_GROUP_SHARED_TP], &of[SW_GROUP_TP]);
    same_as(&of[SW_GROUP_EMBED_TP], &of[SW_GROUP_ATTN_TP]);
    same_as(&of[SW_GROUP_HEAD_TP], &of[SW_GROUP_TP]);
    *at = out;
    return 0;
}

static bool maps_equal(const struct sw_placement *a, const struct sw_placement *b)
{
    const uint64_t n = (uint64_t)a->map_layers * a->map_slots;

    if (!a->map || !b->map)
        return !a->map && !b->map;
    if (a->map_layers != b->map_layers || a->map_slots != b->map_slots)
        return false;
    return a->map == b->map || n == 0 || memcmp(a->map, b->map, n * sizeof(*a->map)) == 0;
}

bool sw_placement_equal(const struct sw_placement *a, const struct sw_placement *b)
{
    if (a->kind != b->kind || a->scale != b->scale || a->block[0] != b->block[0] ||
        a->block[1] != b->block[1] || a->fused_shared_experts != b->fused_shared_experts)
        return false;
    for (unsigned g = 0; g < SW_GROUP_COUNT; g++) {
        /* Which parameters a rank has follows from pp; what is in them, from neither. */
        if (g == SW_GROUP_PP || g == SW_GROUP_DP)
            continue;
        if (a->at.of[g].rank != b->at.of[g].rank || a->at.of[g].size != b->at.of[g].size)
            return false;
    }
    return maps_equal(a, b);
}
