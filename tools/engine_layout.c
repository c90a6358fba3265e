/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/engine_layout.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "tools/file.h"

#define MAP_FILE_MAX (64u << 20)
#define MAP_ROWS_MAX 10000u
#define MAP_SLOTS_MAX 100000u /* physical ones, of all ranks */

/* ---- the expert map ---- */

struct map_file {
    uint64_t version;
    size_t rows, slots; /* slots of all ranks together */
    const json_t *map;
};

static int check_map(const char *path, const json_t *root, struct map_file *f, struct sw_error *e)
{
    const json_t *version = json_object_get(root, "version"), *row;
    size_t i;

    f->map = json_object_get(root, "map");
    f->rows = json_array_size(f->map);
    f->slots = json_array_size(json_array_get(f->map, 0));
    if (!json_is_integer(version) || json_integer_value(version) < 1)
        return sw_fail(e, SW_ERR_INVALID, "%s: \"version\": a number from 1 on is expected", path);
    f->version = (uint64_t)json_integer_value(version);
    if (!f->rows || f->rows > MAP_ROWS_MAX || !f->slots || f->slots > MAP_SLOTS_MAX)
        return sw_fail(e, SW_ERR_INVALID,
            "%s: \"map\": a list of 1 to %u rows of 1 to %u slots is expected", path, MAP_ROWS_MAX,
            MAP_SLOTS_MAX);
    json_array_foreach(f->map, i, row)
    {
        if (json_array_size(row) != f->slots)
            return sw_fail(e, SW_ERR_INVALID, "%s: \"map\": row %zu has %zu slots, the first %zu",
                path, i, json_array_size(row), f->slots);
    }
    return 0;
}

/* The slots of this rank: its contiguous part of each row. */
static int take_map(
    const char *path, const struct map_file *f, struct sw_engine_layout *l, struct sw_error *e)
{
    const struct sw_group ep = l->place.at.of[SW_GROUP_EP];
    const size_t mine = f->slots / ep.size;

    if (f->slots % ep.size)
        return sw_fail(
            e, SW_ERR_INVALID, "%s: %zu slots are no multiple of ep %u", path, f->slots, ep.size);
    l->map = calloc(f->rows * mine, sizeof(*l->map));
    if (!l->map)
        return sw_fail(e, SW_ERR_NOMEM, "%s: no memory for the expert map", path);
    for (size_t r = 0; r < f->rows; r++)
        for (size_t s = 0; s < mine; s++) {
            const json_t *v = json_array_get(json_array_get(f->map, r), ep.rank * mine + s);

            if (!json_is_integer(v) || json_integer_value(v) < 0 ||
                json_integer_value(v) > MAP_SLOTS_MAX)
                return sw_fail(e, SW_ERR_INVALID,
                    "%s: row %zu, slot %zu: an expert's id is expected", path, r,
                    ep.rank * mine + s);
            l->map[r * mine + s] = (uint32_t)json_integer_value(v);
        }
    l->place.map_version = f->version;
    l->place.map_layers = (uint32_t)f->rows;
    l->place.map_slots = (uint32_t)mine;
    l->place.map = l->map;
    return 0;
}

static int read_map(const char *path, struct sw_engine_layout *l, struct sw_error *e)
{
    struct map_file f = {0};
    json_error_t why;
    json_t *root;
    size_t length;
    char *text;
    int code = sw_file_read(AT_FDCWD, ".", path, MAP_FILE_MAX, &text, &length, e);

    if (code)
        return code;
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!root)
        return sw_fail(e, SW_ERR_INVALID, "%s: line %d: %s", path, why.line, why.text);
    code = check_map(path, root, &f, e);
    if (!code)
        code = take_map(path, &f, l, e);
    json_decref(root);
    return code;
}

/* ---- all of it ---- */

static int place(
    const struct sw_engine_arguments *a, struct sw_engine_layout *l, struct sw_error *e)
{
    struct sw_engine_spec spec = a->spec;
    int code;

    if (!a->fp8_said && !sw_config_fp8(l->files.config, spec.block))
        spec.block[0] = spec.block[1] = 0;
    if (!spec.block[0])
        spec.scale = SW_SCALE_NONE;
    code = sw_scene_place(&spec, a->rank, &l->place, e);
    if (!code && a->expert_map)
        code = read_map(a->expert_map, l, e);
    return code;
}

static int read_model(
    const struct sw_engine_arguments *a, struct sw_engine_layout *l, struct sw_error *e)
{
    char path[4096];
    int code;

    if ((size_t)snprintf(path, sizeof(path), "%s/config.json", a->folder) >= sizeof(path))
        return sw_fail(e, SW_ERR_INVALID, "%s: the path is too long", a->folder);
    code = sw_model_files_read(path, a->layouts, a->layout, a->spec.kind, &l->files, e);
    if (!code)
        code = place(a, l, e);
    if (!code)
        code =
            sw_rank_parameters_model(l->files.model, &l->place, a->spec.draft, &l->parameters, e);
    return code;
}

int sw_engine_layout_read(
    const struct sw_engine_arguments *a, struct sw_engine_layout *out, struct sw_error *e)
{
    struct sw_engine_layout l = {0};
    int code;

    if (!strcmp(a->layout, "identity"))
        code = sw_rank_parameters_checkpoint(a->folder, &l.parameters, e);
    else
        code = read_model(a, &l, e);
    if (code) {
        sw_engine_layout_clear(&l);
        return code;
    }
    *out = l;
    return 0;
}

void sw_engine_layout_tell(const struct sw_engine_arguments *a, const struct sw_engine_layout *l,
    struct sw_engine_options *o)
{
    const struct sw_group *g = l->place.at.of;

    if (!l->files.model)
        return;
    o->at = (struct sw_engine_coordinates){
        .pp = g[SW_GROUP_PP].rank,
        .pp_size = g[SW_GROUP_PP].size,
        .tp = g[SW_GROUP_TP].rank,
        .tp_size = g[SW_GROUP_TP].size,
        .ep = g[SW_GROUP_EP].rank,
        .ep_size = g[SW_GROUP_EP].size,
        .dp = g[SW_GROUP_DP].rank,
        .dp_size = g[SW_GROUP_DP].size,
        .attn_tp = g[SW_GROUP_ATTN_TP].rank,
        .attn_tp_size = g[SW_GROUP_ATTN_TP].size,
        .moe_tp = g[SW_GROUP_MOE_TP].rank,
        .moe_tp_size = g[SW_GROUP_MOE_TP].size,
        .mlp_tp = g[SW_GROUP_MLP_TP].rank,
        .mlp_tp_size = g[SW_GROUP_MLP_TP].size,
        .shared_tp = g[SW_GROUP_SHARED_TP].rank,
        .shared_tp_size = g[SW_GROUP_SHARED_TP].size,
        .embed_tp = g[SW_GROUP_EMBED_TP].rank,
        .embed_tp_size = g[SW_GROUP_EMBED_TP].size,
        .head_tp = g[SW_GROUP_HEAD_TP].rank,
        .head_tp_size = g[SW_GROUP_HEAD_TP].size,
    };
    o->layout = a->layout;
    o->kind = sw_engine_kind_name(l->place.kind);
    o->config = l->files.text;
    o->block_rows = l->place.block[0];
    o->block_columns = l->place.block[1];
    o->scale_format = l->place.scale == SW_SCALE_UE8M0 ? "ue8m0" : "fp32";
    o->fused_shared_experts = l->place.fused_shared_experts;
    o->expert_map_version = l->place.map_version;
    o->expert_map_layers = l->place.map_layers;
    o->expert_map_slots = l->place.map_slots;
    o->expert_map = l->place.map;
}

void sw_engine_layout_clear(struct sw_engine_layout *l)
{
    sw_rank_parameters_clear(&l->parameters);
    sw_model_files_clear(&l->files);
    free(l->map);
    *l = (struct sw_engine_layout){0};
}
