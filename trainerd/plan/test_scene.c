/* SPDX-License-Identifier: Apache-2.0 */
/* Made up trainers together hold what the model has, once; engines stand where they should. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/scene.h"
#include "trainerd/plan/test_layout_files.h"

static struct sw_model *model;

static void set_up(void)
{
    model = open_model("qwen3_moe", "Qwen3-30B-A3B", SW_ENGINE_SGLANG);
}

static void tear_down(void)
{
    sw_model_free(model);
}

static struct sw_scene trainers(const struct sw_trainer_spec *spec)
{
    struct sw_scene s = {0};
    struct sw_error e = {0};

    ck_assert_msg(sw_scene_make(model, spec, NULL, &s, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(s.n_ranks, spec->world);
    return s;
}

static uint64_t elements(const struct sw_plan_rank *r)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < r->list->n; i++)
        sum += volume(r->list->tensors[i].ndim, r->boxes[r->list->group[i]].len);
    return sum;
}

static uint64_t all_elements(const struct sw_scene *s)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r < s->n_ranks; r++)
        sum += elements(&s->ranks[r]);
    return sum;
}

#define PARAMETERS 30532122624ull

START_TEST(test_gathered_is_whole_in_every_rank)
{
    struct sw_scene s = trainers(&(struct sw_trainer_spec){.world = 4, .tp = 2, .ep = 4});

    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_uint_eq(elements(&s.ranks[r]), PARAMETERS);
        ck_assert_ptr_eq(s.ranks[r].list, s.ranks[0].list);
    }
    sw_scene_clear(&s);
}
END_TEST

START_TEST(test_stages_part_the_layers)
{
    struct sw_scene s = trainers(&(struct sw_trainer_spec){.world = 10, .pp = 5, .per_host = 4});

    ck_assert_uint_eq(all_elements(&s), 2 * PARAMETERS); /* two ranks a stage */
    ck_assert_ptr_eq(s.ranks[2].list, s.ranks[3].list);
    ck_assert_ptr_ne(s.ranks[1].list, s.ranks[2].list);
    ck_assert_str_eq(s.ranks[0].list->tensors[0].name, "model.embed_tokens.weight");
    ck_assert_uint_eq(s.ranks[9].host, 2);
    ck_assert_uint_eq(s.ranks[9].nic, 1);
    sw_scene_clear(&s);
}
END_TEST

START_TEST(test_fsdp_parts_rows)
{
    struct sw_scene s =
        trainers(&(struct sw_trainer_spec){.world = 7, .holds = SW_HOLDS_FSDP, .packed = _i});

    ck_assert_uint_eq(all_elements(&s), PARAMETERS);
    sw_scene_clear(&s);
}
END_TEST

/* Each split tensor once in a tensor- or expert-parallel group, the others in every rank. */
START_TEST(test_shards_part_what_megatron_splits)
{
    struct sw_scene s = trainers(&(struct sw_trainer_spec){
        .world = 8, .tp = 2, .ep = 8, .holds = SW_HOLDS_SHARDS, .packed = _i});
    const uint64_t experts = 48ull * 128 * 3 * 2048 * 768, vocabulary = 2ull * 151936 * 2048,
                   attention = 48ull * 2048 * 128 * (32 + 4 + 4 + 32),
                   others = PARAMETERS - experts - vocabulary - attention;

    ck_assert_uint_eq(all_elements(&s), experts + 4 * (vocabulary + attention) + 8 * others);
    sw_scene_clear(&s);
}
END_TEST

static const struct {
    struct sw_trainer_spec spec;
    const char *text;
} bad_trainers[] = {
    {{.world = 0}, "a world of 0 ranks"},
    {{.world = 7, .pp = 2}, "pp 2 does not divide 7"},
    {{.world = 98, .pp = 49}, "fewer layers (48)"},
    {{.world = 6, .tp = 4}, "tp 4 does not divide the 6 ranks"},
    {{.world = 6, .ep = 4}, "ep 4 does not divide the 6 ranks"},
    {{.world = 3, .ep = 3, .holds = SW_HOLDS_SHARDS}, "ep 3 does not divide 128 experts"},
};

START_TEST(test_bad_trainers)
{
    struct sw_scene s = {0};
    struct sw_error e = {0};

    ck_assert_int_eq(sw_scene_make(model, &bad_trainers[_i].spec, NULL, &s, &e), SW_ERR_INVALID);
    ck_assert_msg(strstr(e.text, bad_trainers[_i].text) != NULL, "%s", e.text);
}
END_TEST

static struct sw_placement stand(const struct sw_engine_spec *spec, uint32_t rank)
{
    struct sw_placement p;
    struct sw_error e = {0};

    ck_assert_msg(sw_scene_place(spec, rank, &p, &e) == 0, "%s", e.text);
    return p;
}

START_TEST(test_sglang_places)
{
    const struct sw_engine_spec s = {.kind = SW_ENGINE_SGLANG, .tp = 8, .ep = 4, .dp = 2, .pp = 2};
    const struct sw_placement p = stand(&s, 8 + 5);

    ck_assert_uint_eq(p.at.of[SW_GROUP_PP].rank, 1);
    ck_assert_uint_eq(p.at.of[SW_GROUP_TP].rank, 5);
    ck_assert_uint_eq(p.at.of[SW_GROUP_EP].rank, 2);
    ck_assert_uint_eq(p.at.of[SW_GROUP_MOE_TP].rank, 1);
    ck_assert_uint_eq(p.at.of[SW_GROUP_MOE_TP].size, 2);
    ck_assert_uint_eq(p.at.of[SW_GROUP_ATTN_TP].rank, 1);
    ck_assert_uint_eq(p.at.of[SW_GROUP_ATTN_TP].size, 4);
}
END_TEST

START_TEST(test_vllm_places)
{
    const struct sw_engine_spec s = {.kind = SW_ENGINE_VLLM, .tp = 2, .dp = 4, .ep = 8, .pp = 2};
    const struct sw_placement p = stand(&s, 11); /* dp 2, pp 1, tp 1 */

    ck_assert_uint_eq(p.at.of[SW_GROUP_DP].rank, 2);
    ck_assert_uint_eq(p.at.of[SW_GROUP_PP].rank, 1);
    ck_assert_uint_eq(p.at.of[SW_GROUP_TP].rank, 1);
    ck_assert_uint_eq(p.at.of[SW_GROUP_EP].rank, 5);
    ck_assert_uint_eq(p.at.of[SW_GROUP_EP].size, 8);
    ck_assert_uint_eq(p.at.of[SW_GROUP_MOE_TP].size, 1);
}
END_TEST

START_TEST(test_engines_share_lists)
{
    const struct sw_trainer_spec t = {.world = 1};
    const struct sw_engine_spec x = {.kind = SW_ENGINE_SGLANG, .tp = 4, .ep = 4, .engines = 3};
    struct sw_scene s = {0};
    struct sw_error e = {0};

    ck_assert_msg(sw_scene_make(model, &t, &x, &s, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(s.n_targets, 12);
    for (uint32_t i = 0; i < 12; i++) {
        ck_assert_ptr_eq(s.targets[i].parameters, s.targets[0].parameters);
        ck_assert_uint_eq(s.targets[i].engine_rank, i % 4);
        ck_assert_uint_eq(s.targets[i].placement->at.of[SW_GROUP_EP].rank, i % 4);
    }
    ck_assert_str_eq(s.targets[11].engine, "engine 2");
    ck_assert_uint_eq(s.targets[11].host, 1);
    sw_scene_clear(&s);
}
END_TEST

static const struct {
    struct sw_engine_spec spec;
    const char *text;
} bad_engines[] = {
    {{.kind = SW_ENGINE_SGLANG, .tp = 4, .ep = 3}, "ep does not divide tp 4: 3"},
    {{.kind = SW_ENGINE_SGLANG, .tp = 4, .dp = 3}, "dp does not divide tp 4: 3"},
    {{.kind = SW_ENGINE_VLLM, .tp = 4, .ep = 3}, "vLLM has 1, or dp x tp = 4"},
    {{.kind = SW_ENGINE_SGLANG, .scale = SW_SCALE_FP32}, "FP8 needs the size of a block"},
};

START_TEST(test_bad_engines)
{
    struct sw_error e = {0};
    uint32_t world;

    ck_assert_int_eq(sw_scene_engine_world(&bad_engines[_i].spec, &world, &e), SW_ERR_INVALID);
    ck_assert_msg(strstr(e.text, bad_engines[_i].text) != NULL, "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scene");
    TCase *c = tcase_create("scene");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, test_gathered_is_whole_in_every_rank);
    tcase_add_test(c, test_stages_part_the_layers);
    tcase_add_loop_test(c, test_fsdp_parts_rows, 0, 2);
    tcase_add_loop_test(c, test_shards_part_what_megatron_splits, 0, 2);
    tcase_add_loop_test(
        c, test_bad_trainers, 0, (int)(sizeof(bad_trainers) / sizeof(bad_trainers[0])));
    tcase_add_test(c, test_sglang_places);
    tcase_add_test(c, test_vllm_places);
    tcase_add_test(c, test_engines_share_lists);
    tcase_add_loop_test(
        c, test_bad_engines, 0, (int)(sizeof(bad_engines) / sizeof(bad_engines[0])));
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
