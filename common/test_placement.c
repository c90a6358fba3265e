/* SPDX-License-Identifier: Apache-2.0 */
#include "common/placement.h"

#include <string.h>
#include "common/test_suite.h"

START_TEST(names_go_there_and_back)
{
    for (unsigned g = 0; g < SW_GROUP_COUNT; g++) {
        const char *name = sw_group_name((enum sw_group_kind)g);

        ck_assert_ptr_nonnull(name);
        ck_assert_int_eq(sw_group_from_name(name, (uint32_t)strlen(name)), g);
    }
    ck_assert_ptr_null(sw_group_name(SW_GROUP_COUNT));
    ck_assert_int_eq(sw_group_from_name("attn_tp", 4), SW_GROUP_COUNT);
    ck_assert_int_eq(sw_group_from_name("tp,", 2), SW_GROUP_TP);
    ck_assert_int_eq(sw_engine_kind_from_name("sglang"), SW_ENGINE_SGLANG);
    ck_assert_int_eq(sw_engine_kind_from_name(""), SW_ENGINE_ANY);
    ck_assert_int_eq(sw_engine_kind_from_name("trt"), -1);
    ck_assert_str_eq(sw_engine_kind_name(SW_ENGINE_VLLM), "vllm");
}
END_TEST

static void check_group(
    const struct sw_coordinates *at, enum sw_group_kind g, uint32_t rank, uint32_t size)
{
    ck_assert_msg(at->of[g].rank == rank && at->of[g].size == size, "%s is %u of %u",
        sw_group_name(g), at->of[g].rank, at->of[g].size);
}

START_TEST(what_is_not_said_follows_from_tp)
{
    struct sw_coordinates at = {.of = {[SW_GROUP_TP] = {5, 8}, [SW_GROUP_EP] = {2, 4}}};

    ck_assert_int_eq(sw_coordinates_complete(&at, SW_ENGINE_VLLM, NULL), 0);
    check_group(&at, SW_GROUP_PP, 0, 1);
    check_group(&at, SW_GROUP_DP, 0, 1);
    check_group(&at, SW_GROUP_ATTN_TP, 5, 8);
    check_group(&at, SW_GROUP_MOE_TP, 1, 2);
    check_group(&at, SW_GROUP_MLP_TP, 5, 8);
    check_group(&at, SW_GROUP_SHARED_TP, 5, 8);
    check_group(&at, SW_GROUP_EMBED_TP, 5, 8);
    check_group(&at, SW_GROUP_HEAD_TP, 5, 8);
}
END_TEST

START_TEST(data_parallel_attention_is_inside_tp_in_sglang_only)
{
    const struct sw_coordinates said = {.of = {[SW_GROUP_TP] = {13, 16}, [SW_GROUP_DP] = {3, 4}}};
    struct sw_coordinates at = said;

    ck_assert_int_eq(sw_coordinates_complete(&at, SW_ENGINE_SGLANG, NULL), 0);
    check_group(&at, SW_GROUP_ATTN_TP, 1, 4);
    check_group(&at, SW_GROUP_EMBED_TP, 1, 4);
    check_group(&at, SW_GROUP_HEAD_TP, 13, 16);
    at = said;
    ck_assert_int_eq(sw_coordinates_complete(&at, SW_ENGINE_VLLM, NULL), 0);
    check_group(&at, SW_GROUP_ATTN_TP, 13, 16);
}
END_TEST

START_TEST(what_is_said_stays)
{
    struct sw_coordinates at = {.of = {[SW_GROUP_TP] = {1, 2},
                                    [SW_GROUP_EP] = {3, 4},
                                    [SW_GROUP_MOE_TP] = {0, 1},
                                    [SW_GROUP_HEAD_TP] = {0, 1}}};

    ck_assert_int_eq(sw_coordinates_complete(&at, SW_ENGINE_VLLM, NULL), 0);
    check_group(&at, SW_GROUP_MOE_TP, 0, 1);
    check_group(&at, SW_GROUP_HEAD_TP, 0, 1);
}
END_TEST

START_TEST(wrong_sizes_are_named_and_change_nothing)
{
    static const struct {
        struct sw_coordinates at;
        const char *word;
    } cases[] = {
        {{.of = {[SW_GROUP_MLP_TP] = {2, 2}}}, "mlp_tp: rank 2 of 2"},
        {{.of = {[SW_GROUP_EP] = {1, 0}}}, "ep: rank 1 of 0"},
        {{.of = {[SW_GROUP_TP] = {0, 8}, [SW_GROUP_DP] = {0, 3}}}, "tp 8 is no multiple of dp 3"},
        {{.of = {[SW_GROUP_TP] = {0, 8}, [SW_GROUP_EP] = {0, 3}}}, "tp 8 is no multiple of ep 3"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_coordinates at = cases[i].at;
        struct sw_error e = {0};

        ck_assert_int_eq(sw_coordinates_complete(&at, SW_ENGINE_SGLANG, &e), SW_ERR_INVALID);
        ck_assert_msg(strstr(e.text, cases[i].word), "%s", e.text);
        ck_assert_mem_eq(&at, &cases[i].at, sizeof(at));
    }
}
END_TEST

START_TEST(equal_is_what_decides)
{
    const uint32_t map[] = {0, 1, 2, 3}, same[] = {0, 1, 2, 3}, other[] = {0, 1, 2, 2};
    const struct sw_placement a = {
        .kind = SW_ENGINE_SGLANG, .map_layers = 2, .map_slots = 2, .map = map, .map_version = 1};
    struct sw_placement b = a;

    b.map = same;
    b.map_version = 2;
    b.at.of[SW_GROUP_PP] = (struct sw_group){1, 2};
    b.at.of[SW_GROUP_DP] = (struct sw_group){1, 2};
    ck_assert(sw_placement_equal(&a, &b));
    b.map = other;
    ck_assert(!sw_placement_equal(&a, &b));
    b.map = NULL;
    ck_assert(!sw_placement_equal(&a, &b));
    b = a;
    b.at.of[SW_GROUP_EP].rank = 1;
    ck_assert(!sw_placement_equal(&a, &b));
    b = a;
    b.block[1] = 64;
    ck_assert(!sw_placement_equal(&a, &b));
    b = a;
    b.fused_shared_experts = 1;
    ck_assert(!sw_placement_equal(&a, &b));
    b = a;
    b.map_layers = 1;
    b.map_slots = 4;
    ck_assert(!sw_placement_equal(&a, &b));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("placement");
    TCase *tc = tcase_create("placement");

    tcase_add_test(tc, names_go_there_and_back);
    tcase_add_test(tc, what_is_not_said_follows_from_tp);
    tcase_add_test(tc, data_parallel_attention_is_inside_tp_in_sglang_only);
    tcase_add_test(tc, what_is_said_stays);
    tcase_add_test(tc, wrong_sizes_are_named_and_change_nothing);
    tcase_add_test(tc, equal_is_what_decides);
    suite_add_tcase(suite, tc);
    return test_suite_run(suite);
}
