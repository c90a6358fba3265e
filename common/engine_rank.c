/* SPDX-License-Identifier: Apache-2.0 */
#include "common/engine_rank.h"

#include <string.h>

#include "common/error.h"
#include "common/limits.h"

#define BLOCK_MAX 65536u /* rows or columns of an FP8 block */

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* Names go into logs, JSON and messages for people: no control characters. */
static bool printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

bool sw_engine_rank_identity(const struct sw_engine_rank *r)
{
    const char *layout = or_empty(r->layout);

    return !layout[0] || strcmp(layout, "identity") == 0;
}

static int check_identity(const struct sw_engine_rank *r, struct sw_error *e)
{
    const char *engine = or_empty(r->engine);

    if (!engine[0] || strlen(engine) > SW_LABEL_MAX || !printable(engine))
        return sw_fail(e, SW_ERR_INVALID,
            "engine name must have 1 to %d printable characters; choose another one", SW_LABEL_MAX);
    if (r->world == 0 || r->world > SW_WORLD_MAX || r->rank >= r->world)
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s: rank %u of a world of %u; ranks go from 0 to world - 1, worlds up to %u",
            engine, r->rank, r->world, SW_WORLD_MAX);
    return 0;
}

/* With a layout the sizes must also divide; without, nobody looks at them. */
static int check_coordinates(const struct sw_engine_rank *r, struct sw_error *e)
{
    struct sw_coordinates at = r->at;
    int rc;

    for (unsigned g = 0; g < SW_GROUP_COUNT; g++)
        if (at.of[g].size ? at.of[g].rank >= at.of[g].size : at.of[g].rank > 0)
            return sw_fail(e, SW_ERR_INVALID,
                "engine %s rank %u: %s %u/%u: a coordinate must be less than its size", r->engine,
                r->rank, sw_group_name((enum sw_group_kind)g), at.of[g].rank, at.of[g].size);
    if (sw_engine_rank_identity(r))
        return 0;
    rc = sw_coordinates_complete(&at, r->kind, e);
    return rc ? sw_error_context(e, rc, "engine %s rank %u", r->engine, r->rank) : 0;
}

static int check_layout(const struct sw_engine_rank *r, struct sw_error *e)
{
    const char *layout = or_empty(r->layout);

    if (strlen(layout) > SW_LABEL_MAX || !printable(layout) || strchr(layout, '/'))
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: a layout is \"identity\", \"auto\", or the name of a layout file "
            "without its folder, of at most %d printable characters",
            r->engine, r->rank, SW_LABEL_MAX);
    if (!sw_engine_kind_name(r->kind))
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "engine %s rank %u: engine kind %d is unknown; known are sglang and vllm", r->engine,
            r->rank, (int)r->kind);
    if (strlen(or_empty(r->config)) > SW_CONFIG_TEXT_MAX)
        return sw_fail(e, SW_ERR_LIMIT,
            "engine %s rank %u: a config.json of %zu bytes; the limit is %u", r->engine, r->rank,
            strlen(r->config), SW_CONFIG_TEXT_MAX);
    if (sw_engine_rank_identity(r))
        return 0;
    if (r->kind == SW_ENGINE_ANY)
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: layout %s needs the kind of engine, sglang or vllm: parameters "
            "have "
            "other names in each",
            r->engine, r->rank, layout);
    if (!or_empty(r->config)[0])
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: layout %s needs the text of the model's config.json", r->engine,
            r->rank, layout);
    return 0;
}

static int check_formats(const struct sw_engine_rank *r, struct sw_error *e)
{
    const char *scale = or_empty(r->scale_format);

    if (scale[0] && strcmp(scale, "fp32") != 0 && strcmp(scale, "ue8m0") != 0)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "engine %s rank %u: scale format '%.32s' is unknown; known are fp32 and ue8m0",
            r->engine, r->rank, scale);
    if (!r->block_rows != !r->block_columns || r->block_rows > BLOCK_MAX ||
        r->block_columns > BLOCK_MAX)
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: FP8 blocks of %u x %u; both must be 1 to %u, or both 0 (as "
            "config.json says)",
            r->engine, r->rank, r->block_rows, r->block_columns, BLOCK_MAX);
    if (r->fused_shared_experts > 1)
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: %u fused shared experts; 0 or 1 are possible", r->engine, r->rank,
            r->fused_shared_experts);
    return 0;
}

static int check_map(const struct sw_engine_rank *r, struct sw_error *e)
{
    const uint64_t n = (uint64_t)r->expert_map_layers * r->expert_map_slots;

    if (n != r->n_expert_map || n > SW_EXPERT_MAP_MAX || (n > 0 && !r->expert_map))
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: an expert map of %u layers with %u slots has %u numbers; layers "
            "times slots are needed, at most %u",
            r->engine, r->rank, r->expert_map_layers, r->expert_map_slots, r->n_expert_map,
            SW_EXPERT_MAP_MAX);
    if (n > 0 && r->expert_map_version == 0)
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: an expert map needs a version of at least 1, larger with each "
            "change",
            r->engine, r->rank);
    if (n == 0 && r->expert_map_version && !sw_engine_rank_identity(r))
        return sw_fail(e, SW_ERR_INVALID,
            "engine %s rank %u: version %llu of an expert map, but no map came with it", r->engine,
            r->rank, (unsigned long long)r->expert_map_version);
    for (uint32_t i = 0; i < n; i++)
        if (r->expert_map[i] >= SW_EXPERTS_MAX)
            return sw_fail(e, SW_ERR_INVALID,
                "engine %s rank %u: expert map: layer %u slot %u holds expert %u; ids go up to %u",
                r->engine, r->rank, i / r->expert_map_slots, i % r->expert_map_slots,
                r->expert_map[i], SW_EXPERTS_MAX - 1);
    return 0;
}

int sw_engine_rank_check(const struct sw_engine_rank *r, struct sw_error *e)
{
    int rc = check_identity(r, e);

    if (!rc)
        rc = check_layout(r, e);
    if (!rc)
        rc = check_coordinates(r, e);
    if (!rc)
        rc = check_formats(r, e);
    if (!rc)
        rc = check_map(r, e);
    return rc;
}

int sw_engine_rank_placement(const struct sw_engine_rank *r, const uint32_t block[2],
    struct sw_placement *out, struct sw_error *e)
{
    const char *scale = or_empty(r->scale_format);
    struct sw_placement p = {.kind = r->kind,
        .at = r->at,
        .block = {block[0], block[1]},
        .fused_shared_experts = r->fused_shared_experts,
        .map_version = r->expert_map_version,
        .map_layers = r->expert_map_layers,
        .map_slots = r->expert_map_slots,
        .map = r->n_expert_map ? r->expert_map : NULL};
    int rc = sw_coordinates_complete(&p.at, r->kind, e);

    if (rc)
        return sw_error_context(e, rc, "engine %s rank %u", r->engine, r->rank);
    if (r->block_rows) {
        p.block[0] = r->block_rows;
        p.block[1] = r->block_columns;
    }
    if (p.block[0])
        p.scale = strcmp(scale, "ue8m0") == 0 ? SW_SCALE_UE8M0 : SW_SCALE_FP32;
    *out = p;
    return 0;
}
