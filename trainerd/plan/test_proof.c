/* SPDX-License-Identifier: Apache-2.0 */
/* The proof must see every kind of error in a plan: each is planted in a right one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/plan.h"

/*
 * Two ranks, one target. Rank 0 loads a (64 bytes) and b (64), rank 1 loads c (32). The region has
 * a b | gap of 16 | c; d is an alias of a, and is checked by rank 1.
 */
struct bench {
    struct sw_source sources[2][2];
    struct sw_plan_rank ranks[2];
    struct sw_load_template templates[2];
    struct sw_load loads[2][2];
    struct sw_tile tiles[2][2];
    struct sw_alias_check checks[2];
    struct sw_load_plan plans[2];
    struct sw_parameter parameters[4];
    uint64_t region_bytes;
    struct sw_plan_target target;
    struct sw_extent extents[2][3];
    struct sw_write_plan writes[2];
};

static struct sw_source source(const char *name, uint64_t n)
{
    return (struct sw_source){
        .name = name, .dtype = SW_BF16, .ndim = 1, .shape = {n}, .box = {.ndim = 1, .len = {n}}};
}

static struct sw_parameter parameter(const char *name, uint64_t n, uint64_t offset)
{
    return (struct sw_parameter){
        .name = name, .dtype = SW_BF16, .ndim = 1, .shape = {n}, .offset = offset};
}

static struct sw_load_template copy_of(uint64_t n)
{
    return (struct sw_load_template){.transform = SW_TRANSFORM_COPY,
        .src_dtype = SW_BF16,
        .dst_dtype = SW_BF16,
        .ndim = 1,
        .len = {n},
        .dst_stride = {2}};
}

static void setup_bench(struct bench *b)
{
    memset(b, 0, sizeof(*b));
    b->sources[0][0] = source("a", 32);
    b->sources[0][1] = source("b", 32);
    b->sources[1][0] = source("c", 16);
    b->sources[1][1] = source("d", 32);
    for (uint32_t r = 0; r < 2; r++) {
        b->ranks[r] = (struct sw_plan_rank){r, 2, b->sources[r]};
        b->plans[r] = (struct sw_load_plan){.rank = r,
            .replica_bytes = 4096,
            .n_templates = 2,
            .n_loads = r ? 1 : 2,
            .n_checks = 1,
            .n_tiles = r ? 1 : 2,
            .templates = b->templates,
            .loads = b->loads[r],
            .checks = &b->checks[r],
            .tiles = b->tiles[r]};
        b->checks[r] = (struct sw_alias_check){r, 0}; /* a on rank 0, d on rank 1 */
    }
    b->templates[0] = copy_of(32);
    b->templates[1] = copy_of(16);
    b->loads[0][0] = (struct sw_load){0, 0, 0, 0};
    b->loads[0][1] = (struct sw_load){1, 0, 1, 0};
    b->loads[1][0] = (struct sw_load){0, 1, 0, 0};
    b->tiles[0][0] = (struct sw_tile){0, 64};
    b->tiles[0][1] = (struct sw_tile){64, 64};
    b->tiles[1][0] = (struct sw_tile){0, 32};
    b->parameters[0] = parameter("a", 32, 0);
    b->parameters[1] = parameter("b", 32, 64);
    b->parameters[2] = parameter("c", 16, 144);
    b->parameters[3] = parameter("d", 32, 0);
    b->parameters[3].alias_of = "a";
    b->region_bytes = 200;
    b->target = (struct sw_plan_target){.engine = "A",
        .n_regions = 1,
        .region_bytes = &b->region_bytes,
        .n_parameters = 4,
        .parameters = b->parameters};
    b->extents[0][0] = (struct sw_extent){.src = 0, .dst = 0, .length = 128};
    b->extents[1][0] = (struct sw_extent){.src = 0, .dst = 144, .length = 32};
    b->writes[0] = (struct sw_write_plan){.rank = 0, .n = 1, .extents = b->extents[0]};
    b->writes[1] = (struct sw_write_plan){.rank = 1, .n = 1, .extents = b->extents[1]};
}

static int prove(const struct bench *b, struct sw_error *e)
{
    const struct sw_load_plan *loads[] = {&b->plans[0], &b->plans[1]};
    const struct sw_write_plan *writes[] = {&b->writes[0], &b->writes[1]};

    return sw_plan_prove(b->ranks, 2, loads, &b->target, 1, writes, 2, e);
}

static void split(struct bench *b) /* a and b in extents of their own */
{
    b->extents[0][0] = (struct sw_extent){.src = 0, .dst = 0, .length = 64};
    b->extents[0][1] = (struct sw_extent){.src = 64, .dst = 64, .length = 64};
    b->writes[0].n = 2;
}

static void missing_extent(struct bench *b)
{
    split(b);
    b->writes[0].n = 1;
}
static void missing_rank(struct bench *b)
{
    b->writes[1].n = 0;
}
static void short_extent(struct bench *b)
{
    b->extents[0][0].length = 127;
}
static void overlapping(struct bench *b)
{
    split(b);
    b->extents[0][0].length = 65;
}
static void written_by_two_ranks(struct bench *b)
{
    b->extents[1][1] = b->extents[1][0];
    b->writes[1].n = 2;
}
static void wrong_offset(struct bench *b)
{
    b->extents[1][0].src = 2;
}
static void shifted(struct bench *b)
{
    split(b);
    b->extents[0][0].src = 64; /* b's bytes, at the right positions */
    b->extents[0][1].src = 0;
}
static void over_a_gap(struct bench *b)
{
    b->extents[0][0].length = 136;
}
static void before_the_parameter(struct bench *b)
{
    b->extents[1][0] = (struct sw_extent){.src = 0, .dst = 140, .length = 36};
}
static void after_everything(struct bench *b)
{
    b->extents[1][1] = (struct sw_extent){.src = 0, .dst = 180, .length = 4};
    b->writes[1].n = 2;
}
static void past_the_region(struct bench *b)
{
    b->region_bytes = 176;
    b->extents[1][0].length = 33;
}
static void another_region(struct bench *b)
{
    b->extents[1][0].region = 1;
}
static void tile_not_loaded(struct bench *b)
{
    b->plans[0].n_loads = 1;
}
static void tile_loaded_twice(struct bench *b)
{
    b->loads[0][1].tile = 0;
}
static void tile_too_large(struct bench *b)
{
    b->tiles[1][0].bytes = 48;
}
static void tiles_overlap(struct bench *b)
{
    b->tiles[0][1].offset = 32;
}
static void swapped_sources(struct bench *b)
{
    b->loads[0][0].source = 1;
    b->loads[0][1].source = 0;
}
static void strange_template(struct bench *b)
{
    b->templates[1].dst_stride[0] = 4;
}
static void half_a_source(struct bench *b)
{
    b->templates[1].len[0] = 8;
    b->tiles[1][0].bytes = 16;
}
static void load_out_of_range(struct bench *b)
{
    b->loads[1][0].tile = 5;
}
static void unread_replica(struct bench *b)
{
    b->extents[1][0].src = 512;
}
static void past_the_replica(struct bench *b)
{
    b->extents[1][0].src = UINT64_MAX - 3;
}
static void empty_extent(struct bench *b)
{
    b->extents[1][1] = (struct sw_extent){.dst = 176};
    b->writes[1].n = 2;
}
static void alias_not_checked(struct bench *b)
{
    b->plans[1].n_checks = 0;
}
static void alias_in_another_set(struct bench *b)
{
    b->checks[1].set = 1;
}
static void dtype_differs(struct bench *b)
{
    b->parameters[2].dtype = SW_F16;
}
static void unknown_rank(struct bench *b)
{
    b->writes[1].rank = 9;
}
static void unknown_target(struct bench *b)
{
    b->writes[1].target = 9;
    b->target.n_parameters = 2;
}
static void declared_twice(struct bench *b)
{
    b->parameters[2].offset = 120;
}

static const struct {
    void (*plant)(struct bench *b);
    const char *text;
} faults[] = {
    {missing_extent, "parameter b, byte 0: is written by no extent"},
    {missing_rank, "parameter c, byte 0: is written by no extent"},
    {short_extent, "parameter b, byte 63: is written by no extent"},
    {overlapping, "two extents write the same bytes"},
    {written_by_two_ranks, "two extents write the same bytes"},
    {wrong_offset, "parameter c, byte 0: is read from another position"},
    {shifted, "parameter a, byte 0: is read from another tensor"},
    {over_a_gap, "bytes that nobody declared"},
    {before_the_parameter, "bytes that nobody declared"},
    {after_everything, "are written that nobody declared"},
    {past_the_region, "goes past its region"},
    {another_region, "goes past its region"},
    {tile_not_loaded, "a tile has bytes that no load fills"},
    {tile_loaded_twice, "two loads fill the same bytes"},
    {tile_too_large, "a tile has bytes that no load fills"},
    {tiles_overlap, "two loads fill the same bytes"},
    {swapped_sources, "is read from another tensor"},
    {strange_template, "does not copy its whole source"},
    {half_a_source, "does not copy its whole source"},
    {load_out_of_range, "that there is not"},
    {unread_replica, "is read from replica bytes that no load fills"},
    {past_the_replica, "reads past the replica"},
    {empty_extent, "an extent is empty"},
    {alias_not_checked, "its aliases' sources are not compared"},
    {alias_in_another_set, "its aliases' sources are not compared"},
    {dtype_differs, "parameter c, byte 0: is read from another tensor"},
    {unknown_rank, "a rank that there is not, rank 9"},
    {unknown_target, "a target that there is not"},
    {declared_twice, "declared twice"},
};

START_TEST(a_right_plan_is_proved)
{
    struct bench b;
    struct sw_error e = {0};

    setup_bench(&b);
    ck_assert_msg(prove(&b, &e) == 0, "%s", e.text);
    split(&b);
    ck_assert_msg(prove(&b, &e) == 0, "%s", e.text);
}
END_TEST

START_TEST(a_planted_error_is_found)
{
    struct bench b;
    struct sw_error e = {0};

    setup_bench(&b);
    faults[_i].plant(&b);
    ck_assert_msg(prove(&b, &e) == SW_ERR_PLAN, "%s was not found", faults[_i].text);
    ck_assert_msg(strstr(e.text, faults[_i].text), "%s is not: %s", e.text, faults[_i].text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proof");
    TCase *tcase = tcase_create("proof");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, a_right_plan_is_proved);
    tcase_add_loop_test(
        tcase, a_planted_error_is_found, 0, (int)(sizeof(faults) / sizeof(faults[0])));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
