/* SPDX-License-Identifier: Apache-2.0 */
/* Where an engine rank stands: parallel groups, number format, expert map. Plain values. */
#ifndef SW_COMMON_PLACEMENT_H
#define SW_COMMON_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include <shardwire/error.h>

enum sw_engine_kind {  /* whose parameter names and habits */
    SW_ENGINE_ANY = 0, /* checkpoint names: the identity layout */
    SW_ENGINE_SGLANG = 1,
    SW_ENGINE_VLLM = 2,
};

enum sw_group_kind {
    SW_GROUP_PP = 0,
    SW_GROUP_TP,
    SW_GROUP_EP,
    SW_GROUP_DP,
    SW_GROUP_ATTN_TP,
    SW_GROUP_MOE_TP,
    SW_GROUP_MLP_TP,
    SW_GROUP_SHARED_TP,
    SW_GROUP_EMBED_TP,
    SW_GROUP_HEAD_TP,
    SW_GROUP_COUNT
};

struct sw_group { /* rank < size; 0/0 = not said */
    uint32_t rank, size;
};

enum sw_scale_format {
    SW_SCALE_NONE = 0,  /* not quantised */
    SW_SCALE_FP32 = 1,  /* amax / 448 */
    SW_SCALE_UE8M0 = 2, /* the next power of two above it */
};

struct sw_coordinates {
    struct sw_group of[SW_GROUP_COUNT];
};

struct sw_placement { /* pointers are borrowed */
    enum sw_engine_kind kind;
    struct sw_coordinates at; /* complete: every size > 0 */
    enum sw_scale_format scale;
    uint32_t block[2];             /* rows, columns of an FP8 block; 0 when not quantised */
    uint32_t fused_shared_experts; /* extra slots after the stacked ones: 0 or 1 */
    /* Which expert lies in which slot of this rank; NULL = contiguous by id. One row of `slots`
     * numbers for each layer, or one row for all (map_layers 1). */
    uint64_t map_version;
    uint32_t map_layers, map_slots;
    const uint32_t *map;
};

/* "tp", "attn_tp", ...; NULL for a number that is none. */
const char *sw_group_name(enum sw_group_kind kind);
/* SW_GROUP_COUNT when there is none of that name. */
enum sw_group_kind sw_group_from_name(const char *name, uint32_t length);

/* "sglang", "vllm", "" and back (-1). */
const char *sw_engine_kind_name(enum sw_engine_kind kind);
int sw_engine_kind_from_name(const char *name);

/*
 * Fills in what was not said (docs/layouts.md, "GROUP"). SW_ERR_INVALID names a group whose rank is
 * not below its size, or sizes that do not divide: tp % dp (SGLang, unless attn_tp is given), tp %
 * ep (unless moe_tp is given). Inner groups are neighbours: moe_tp rank = tp rank % moe_tp size.
 */
int sw_coordinates_complete(
    struct sw_coordinates *at, enum sw_engine_kind kind, struct sw_error *e);

/* Equal in everything that decides what a parameter of a rank holds: pp and dp do not. */
bool sw_placement_equal(const struct sw_placement *a, const struct sw_placement *b);

#endif
