/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/manifest.h"

static struct sw_source source(const char *name, uint64_t a, uint64_t b)
{
    return (struct sw_source){.name = name,
        .dtype = SW_BF16,
        .ndim = 2,
        .shape = {a, b},
        .box = {.ndim = 2, .len = {a, b}}};
}

static struct sw_manifest *of(const struct sw_source *items, uint32_t n)
{
    struct sw_manifest *m = sw_manifest_new(n);
    struct sw_error e;

    ck_assert_int_eq(sw_manifest_add_sources(
                         m, &(struct sw_sources){.total = n, .n = n, .items = (void *)items}, &e),
        0);
    return m;
}

START_TEST(sources_come_back_as_they_were)
{
    struct sw_source in[] = {
        source("a", 2, 3), source("b", 4, 5), {.name = "scalar", .dtype = SW_F32}};
    struct sw_manifest *m = sw_manifest_new(3);
    struct sw_source *out;
    struct sw_error e;

    in[1].box.lo[0] = 1;
    in[1].box.len[0] = 2;
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(!sw_manifest_complete(m));
        ck_assert_int_eq(
            sw_manifest_add_sources(
                m, &(struct sw_sources){.first = i, .total = 3, .n = 1, .items = &in[i]}, &e),
            0);
    }
    ck_assert(sw_manifest_complete(m));
    out = sw_manifest_sources(m);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(out[i].name, in[i].name);
        ck_assert_int_eq(out[i].dtype, in[i].dtype);
        ck_assert_uint_eq(out[i].ndim, in[i].ndim);
        ck_assert_int_eq(memcmp(out[i].shape, in[i].shape, sizeof(in[i].shape)), 0);
        ck_assert_int_eq(memcmp(&out[i].box, &in[i].box, sizeof(in[i].box)), 0);
    }
    free(out);
    sw_manifest_free(m);
}
END_TEST

START_TEST(parameters_come_back_as_they_were)
{
    struct sw_parameter in[] = {
        {.name = "p", .dtype = SW_F4, .ndim = 1, .shape = {8}, .region = 3, .offset = 77},
        {.name = "q",
            .dtype = SW_F4,
            .ndim = 1,
            .shape = {8},
            .region = 3,
            .offset = 77,
            .alias_of = "p"},
        {.name = "r", .dtype = SW_F32, .offset = UINT64_MAX, .alias_of = ""}};
    struct sw_manifest *m = sw_manifest_new(3);
    struct sw_parameter *out;
    struct sw_error e;

    ck_assert_int_eq(
        sw_manifest_add_parameters(m, &(struct sw_parameters){.total = 3, .n = 3, .items = in}, &e),
        0);
    out = sw_manifest_parameters(m);
    ck_assert_uint_eq(sw_manifest_count(m), 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(out[i].name, in[i].name);
        ck_assert_int_eq(out[i].dtype, in[i].dtype);
        ck_assert_uint_eq(out[i].region, in[i].region);
        ck_assert_uint_eq(out[i].offset, in[i].offset);
        ck_assert_int_eq(memcmp(out[i].shape, in[i].shape, sizeof(in[i].shape)), 0);
    }
    ck_assert_ptr_null(out[0].alias_of);
    ck_assert_str_eq(out[1].alias_of, "p");
    ck_assert_ptr_null(out[2].alias_of);
    free(out);
    sw_manifest_free(m);
}
END_TEST

START_TEST(equal_means_every_field)
{
    const struct sw_source base[] = {source("a", 2, 3), source("b", 4, 5)};
    struct sw_source other[2];
    struct sw_manifest *a = of(base, 2), *b;

    b = of(base, 2);
    ck_assert(sw_manifest_equal(a, b));
    sw_manifest_free(b);
    for (int change = 0; change < 7; change++) {
        memcpy(other, base, sizeof(base));
        switch (change) {
        case 0:
            other[1].name = "c";
            break;
        case 1:
            other[1].dtype = SW_F16;
            break;
        case 2:
            other[1].shape[0] = other[1].box.len[0] = 6;
            break;
        case 3:
            other[1].box.lo[0] = 1;
            other[1].box.len[0] = 3;
            break;
        case 4:
            other[1].ndim = other[1].box.ndim = 1;
            break;
        case 5:
            other[0] = base[1];
            other[1] = base[0];
            break;
        default:
            other[1].box.len[0] = 3;
        }
        b = of(other, 2);
        ck_assert_msg(!sw_manifest_equal(a, b), "change %d", change);
        sw_manifest_free(b);
    }
    b = of(base, 1);
    ck_assert(!sw_manifest_equal(a, b));
    sw_manifest_free(b);
    sw_manifest_free(a);
}
END_TEST

START_TEST(parts_must_join)
{
    static const struct {
        uint32_t first, total, n;
    } wrong[] = {{0, 4, 1}, {2, 4, 1}, {1, 5, 1}, {1, 3, 1}, {1, 4, 4}, {1, 4, 0},
        {1, 4, UINT32_MAX}, {UINT32_MAX, 4, 1}};
    struct sw_source items[4] = {
        source("a", 1, 1), source("b", 1, 1), source("c", 1, 1), source("d", 1, 1)};
    struct sw_error e;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct sw_manifest *m = sw_manifest_new(4);

        ck_assert_int_eq(sw_manifest_add_sources(
                             m, &(struct sw_sources){.total = 4, .n = 1, .items = items}, &e),
            0);
        ck_assert_int_eq(sw_manifest_add_sources(m,
                             &(struct sw_sources){.first = wrong[i].first,
                                 .total = wrong[i].total,
                                 .n = wrong[i].n,
                                 .items = items},
                             &e),
            SW_ERR_PROTOCOL);
        sw_manifest_free(m);
    }
}
END_TEST

START_TEST(an_empty_manifest_is_complete)
{
    struct sw_manifest *m = sw_manifest_new(0);
    struct sw_error e;

    ck_assert(sw_manifest_complete(m));
    ck_assert_int_eq(sw_manifest_add_sources(m, &(struct sw_sources){0}, &e), 0);
    ck_assert(sw_manifest_complete(m));
    sw_manifest_free(m);
}
END_TEST

START_TEST(a_long_manifest_costs_little_more_than_its_names)
{
    const uint32_t n = 100000;
    struct sw_manifest *m = sw_manifest_new(n);
    struct sw_parameter items[500];
    char names[500][64];
    size_t bytes = 0;
    struct sw_error e;

    for (uint32_t first = 0; first < n; first += 500) {
        for (uint32_t i = 0; i < 500; i++) {
            snprintf(names[i], sizeof(names[i]), "model.layers.%u.mlp.experts.down_proj.weight",
                first + i);
            bytes += strlen(names[i]);
            items[i] = (struct sw_parameter){
                .name = names[i], .dtype = SW_BF16, .ndim = 2, .shape = {16, 32}, .offset = i};
        }
        ck_assert_int_eq(
            sw_manifest_add_parameters(m,
                &(struct sw_parameters){.first = first, .total = n, .n = 500, .items = items}, &e),
            0);
    }
    ck_assert(sw_manifest_complete(m));
    ck_assert_uint_lt(sw_manifest_memory(m), bytes + (size_t)n * 60);
    sw_manifest_free(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tcase = tcase_create("manifest");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, sources_come_back_as_they_were);
    tcase_add_test(tcase, parameters_come_back_as_they_were);
    tcase_add_test(tcase, equal_means_every_field);
    tcase_add_test(tcase, parts_must_join);
    tcase_add_test(tcase, an_empty_manifest_is_complete);
    tcase_add_test(tcase, a_long_manifest_costs_little_more_than_its_names);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
