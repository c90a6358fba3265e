/* SPDX-License-Identifier: Apache-2.0 */
#include "common/engine_rank.h"

#include <string.h>

#include "common/test_suite.h"

static uint32_t map[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static struct sw_error e;

/* Rank 5 of 8: attention in two data-parallel halves, experts over all. */
static struct sw_engine_rank good(void)
{
    struct sw_engine_rank r = {.engine = "A",
        .rank = 5,
        .world = 8,
        .layout = "auto",
        .kind = SW_ENGINE_SGLANG,
        .config = "{}",
        .scale_format = "",
        .expert_map_version = 1,
        .expert_map_layers = 2,
        .expert_map_slots = 4,
        .n_expert_map = 8,
        .expert_map = map};

    r.at.of[SW_GROUP_TP] = (struct sw_group){5, 8};
    r.at.of[SW_GROUP_DP] = (struct sw_group){1, 2};
    r.at.of[SW_GROUP_EP] = (struct sw_group){5, 8};
    return r;
}

enum what {
    NOTHING,
    NULL_STRINGS,
    NO_NAME,
    CONTROL,
    RANK,
    WORLD,
    COORDINATE,
    UNSAID,
    DIVIDES,
    DIVIDES_IDENTITY,
    FOLDER,
    LONG_LAYOUT,
    KIND,
    NO_KIND,
    NO_CONFIG,
    SCALE,
    BLOCK,
    HUGE_BLOCK,
    FUSED,
    MAP_COUNT,
    MAP_NONE,
    MAP_VERSION,
    MAP_MISSING,
    MAP_EXPERT,
    MAP_OVERFLOW,
    WHATS
};

static const struct {
    int code;
    const char *says;
} expected[WHATS] = {
    [NO_NAME] = {SW_ERR_INVALID, "1 to 64"},
    [CONTROL] = {SW_ERR_INVALID, "printable"},
    [RANK] = {SW_ERR_INVALID, "rank 8 of a world of 8"},
    [WORLD] = {SW_ERR_INVALID, "world of 0"},
    [COORDINATE] = {SW_ERR_INVALID, "engine A rank 5: head_tp 2/2"},
    [UNSAID] = {SW_ERR_INVALID, "moe_tp 1/0"},
    [DIVIDES] = {SW_ERR_INVALID, "engine A rank 5: tp 8"},
    [FOLDER] = {SW_ERR_INVALID, "without its folder"},
    [LONG_LAYOUT] = {SW_ERR_INVALID, "at most 64"},
    [KIND] = {SW_ERR_UNSUPPORTED, "kind 9 is unknown"},
    [NO_KIND] = {SW_ERR_INVALID, "sglang or vllm"},
    [NO_CONFIG] = {SW_ERR_INVALID, "config.json"},
    [SCALE] = {SW_ERR_UNSUPPORTED, "'e4m3'"},
    [BLOCK] = {SW_ERR_INVALID, "blocks of 128 x 0"},
    [HUGE_BLOCK] = {SW_ERR_INVALID, "1 to 65536"},
    [FUSED] = {SW_ERR_INVALID, "2 fused"},
    [MAP_COUNT] = {SW_ERR_INVALID, "2 layers with 4 slots has 7 numbers"},
    [MAP_NONE] = {SW_ERR_INVALID, "numbers"},
    [MAP_VERSION] = {SW_ERR_INVALID, "version of at least 1"},
    [MAP_MISSING] = {SW_ERR_INVALID, "version 1 of an expert map, but no map"},
    [MAP_EXPERT] = {SW_ERR_INVALID, "layer 1 slot 2 holds expert 65536"},
    [MAP_OVERFLOW] = {SW_ERR_INVALID, "layers times slots"},
};

static void names(struct sw_engine_rank *r, enum what what)
{
    switch (what) {
    case NULL_STRINGS: /* an identity engine that says nothing */
        r->layout = r->config = r->scale_format = NULL;
        r->kind = SW_ENGINE_ANY;
        break;
    case NO_NAME:
        r->engine = NULL;
        break;
    case CONTROL:
        r->engine = "a\x7f";
        break;
    case RANK:
        r->rank = 8;
        break;
    case WORLD:
        r->world = 0;
        break;
    case FOLDER:
        r->layout = "../secret";
        break;
    case LONG_LAYOUT:
        r->layout = "12345678901234567890123456789012345678901234567890123456789012345";
        break;
    case KIND:
        r->kind = (enum sw_engine_kind)9;
        break;
    case NO_KIND:
        r->kind = SW_ENGINE_ANY;
        break;
    case NO_CONFIG:
        r->config = "";
        break;
    default:
        break;
    }
}

static void numbers(struct sw_engine_rank *r, enum what what)
{
    switch (what) {
    case COORDINATE:
        r->at.of[SW_GROUP_HEAD_TP] = (struct sw_group){2, 2};
        break;
    case UNSAID:
        r->at.of[SW_GROUP_MOE_TP].rank = 1;
        break;
    case DIVIDES_IDENTITY: /* nobody looks at them there */
        r->layout = "identity";
        r->at.of[SW_GROUP_DP].size = 3;
        break;
    case DIVIDES:
        r->at.of[SW_GROUP_DP].size = 3;
        break;
    case SCALE:
        r->scale_format = "e4m3";
        break;
    case BLOCK:
        r->block_rows = 128;
        break;
    case HUGE_BLOCK:
        r->block_rows = 1;
        r->block_columns = 65537;
        break;
    case FUSED:
        r->fused_shared_experts = 2;
        break;
    default:
        break;
    }
}

static void maps(struct sw_engine_rank *r, enum what what)
{
    switch (what) {
    case MAP_COUNT:
        r->n_expert_map = 7;
        break;
    case MAP_NONE:
        r->expert_map = NULL;
        break;
    case MAP_VERSION:
        r->expert_map_version = 0;
        break;
    case MAP_MISSING:
        r->n_expert_map = r->expert_map_layers = r->expert_map_slots = 0;
        break;
    case MAP_EXPERT:
        map[6] = SW_EXPERTS_MAX;
        break;
    case MAP_OVERFLOW:
        r->expert_map_layers = r->expert_map_slots = 1u << 16;
        r->n_expert_map = 0;
        break;
    default:
        break;
    }
}

START_TEST(checks)
{
    const enum what what = (enum what)_i;
    struct sw_engine_rank r = good();
    int rc;

    names(&r, what);
    numbers(&r, what);
    maps(&r, what);
    rc = sw_engine_rank_check(&r, &e);
    ck_assert_msg(rc == expected[what].code, "%d: %d %s", _i, rc, e.text);
    if (expected[what].says)
        ck_assert_msg(strstr(e.text, expected[what].says) != NULL, "%d: \"%s\" lacks \"%s\"", _i,
            e.text, expected[what].says);
}
END_TEST

START_TEST(identity)
{
    struct sw_engine_rank r = {.layout = NULL};

    ck_assert(sw_engine_rank_identity(&r));
    r.layout = "";
    ck_assert(sw_engine_rank_identity(&r));
    r.layout = "identity";
    ck_assert(sw_engine_rank_identity(&r));
    r.layout = "auto";
    ck_assert(!sw_engine_rank_identity(&r));
}
END_TEST

START_TEST(placements)
{
    static const uint32_t none[2] = {0, 0}, config[2] = {128, 64};
    struct sw_engine_rank r = good();
    struct sw_placement p;

    ck_assert_int_eq(sw_engine_rank_placement(&r, none, &p, &e), 0);
    ck_assert(p.kind == SW_ENGINE_SGLANG && p.scale == SW_SCALE_NONE);
    ck_assert(p.block[0] == 0 && p.block[1] == 0 && p.fused_shared_experts == 0);
    ck_assert(p.at.of[SW_GROUP_ATTN_TP].rank == 1 && p.at.of[SW_GROUP_ATTN_TP].size == 4);
    ck_assert(p.at.of[SW_GROUP_PP].rank == 0 && p.at.of[SW_GROUP_PP].size == 1);
    ck_assert(p.map == map && p.map_layers == 2 && p.map_slots == 4 && p.map_version == 1);
    r.n_expert_map = r.expert_map_layers = r.expert_map_slots = 0;
    ck_assert_int_eq(sw_engine_rank_placement(&r, config, &p, &e), 0);
    ck_assert_ptr_null(p.map);
    ck_assert(p.scale == SW_SCALE_FP32 && p.block[0] == 128 && p.block[1] == 64);
    r.scale_format = "ue8m0";
    r.block_rows = 32;
    r.block_columns = 16; /* the engine's word counts more than the config's */
    ck_assert_int_eq(sw_engine_rank_placement(&r, config, &p, &e), 0);
    ck_assert(p.scale == SW_SCALE_UE8M0 && p.block[0] == 32 && p.block[1] == 16);
    r.block_rows = r.block_columns = 0;
    ck_assert_int_eq(sw_engine_rank_placement(&r, none, &p, &e), 0);
    ck_assert(p.scale == SW_SCALE_NONE); /* nothing is quantised */
    r = good();
    r.at.of[SW_GROUP_EP].size = 7;
    ck_assert_int_eq(sw_engine_rank_placement(&r, none, &p, &e), SW_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(e.text, "engine A rank 5"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine_rank");
    TCase *t = tcase_create("engine_rank");

    tcase_add_loop_test(t, checks, 0, WHATS);
    tcase_add_test(t, identity);
    tcase_add_test(t, placements);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
