/* SPDX-License-Identifier: Apache-2.0 */
/* The proof must see every kind of error in a plan: each is planted in a right one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/plan.h"

/*
 * By name. Two ranks, one target. Rank 0 loads a (64 bytes) and b (64), rank 1 loads c (32). The
 * region has a b | gap of 16 | c; d is an alias of a, and is checked by rank 1.
 */
struct bench {
    struct sw_plan_tensor tensors[2][2];
    uint32_t groups[2];
    struct sw_source_list lists[2];
    struct sw_box boxes[2][2];
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

static struct sw_plan_tensor source(const char *name, uint64_t n)
{
    return (struct sw_plan_tensor){.name = name, .dtype = SW_BF16, .ndim = 1, .shape = {n}};
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
    b->tensors[0][0] = source("a", 32);
    b->tensors[0][1] = source("b", 32);
    b->tensors[1][0] = source("c", 16);
    b->tensors[1][1] = source("d", 32);
    b->groups[1] = 1;
    for (uint32_t r = 0; r < 2; r++) {
        b->lists[r] = (struct sw_source_list){2, 2, b->tensors[r], b->groups};
        for (uint32_t i = 0; i < 2; i++)
            b->boxes[r][i] = (struct sw_box){.ndim = 1, .len = {b->tensors[r][i].shape[0]}};
        b->ranks[r] = (struct sw_plan_rank){.rank = r, .list = &b->lists[r], .boxes = b->boxes[r]};
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
    b->loads[0][0] = (struct sw_load){0, 0, 0, UINT32_MAX, 0};
    b->loads[0][1] = (struct sw_load){1, 0, 1, UINT32_MAX, 0};
    b->loads[1][0] = (struct sw_load){0, 1, 0, UINT32_MAX, 0};
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
    return sw_plan_prove(b->ranks, 2, b->plans, &b->target, 1, b->writes, 2, e);
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
static void more_than_a_source(struct bench *b)
{
    b->templates[1].lo[0] = 1;
}
static void cast_to_itself(struct bench *b)
{
    b->templates[1].transform = SW_TRANSFORM_CAST;
}
static void other_shape(struct bench *b)
{
    b->tensors[1][0] = source("a", 16);
}
static void sharded_otherwise(struct bench *b)
{
    b->boxes[1][0].lo[0] = 8;
    b->boxes[1][0].len[0] = 8;
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
static void alias_of_another_box(struct bench *b)
{
    b->boxes[1][1].len[0] = 16;
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
    {strange_template, "does not fill its tile densely"},
    {half_a_source, "parameter c, byte 16: is read from replica bytes that no load fills"},
    {more_than_a_source, "a load takes more than its rank holds"},
    {load_out_of_range, "that there is not"},
    {cast_to_itself, "a transform for other dtypes"},
    {other_shape, "source tensor a is declared twice"},
    {sharded_otherwise, "a load takes more than its rank holds"},
    {unread_replica, "is read from replica bytes that no load fills"},
    {past_the_replica, "reads past the replica"},
    {empty_extent, "an extent is empty"},
    {alias_not_checked, "its aliases' sources are not compared"},
    {alias_in_another_set, "its aliases' sources are not compared"},
    {alias_of_another_box, "parts of a that differ are compared"},
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

/* ---- by a model ---- */

/*
 * Two ranks that hold rows of w, one engine rank of two. In bytes of its region:
 *
 *     0 w as FP8, 48    48 its scales, 16    64 n as F32, 20
 *    84 e with a row of zeros, 48    132 the right half of o's columns, 24    156 d, derived
 *
 * Rank 0 has rows 0 .. 2 of w, n and o; rank 1 has rows 3 .. 7 of w, and e. Blocks are 4 x 3, so
 * both have some of the first ones.
 */
struct model_bench {
    struct sw_model *model;
    struct sw_placement placement;
    struct sw_plan_tensor tensors[2][3];
    uint32_t groups[3];
    struct sw_source_list lists[2];
    struct sw_box boxes[2][3];
    struct sw_plan_rank ranks[2];
    struct sw_load_template templates[2][4];
    struct sw_load loads[2][4];
    struct sw_tile tiles[2][4];
    struct sw_grid grids[2][2];
    struct sw_load_plan plans[2];
    struct sw_parameter parameters[6];
    uint64_t region_bytes;
    struct sw_plan_target target;
    struct sw_extent extents[2][5];
    struct sw_write_plan writes[2];
};

static const char rules[] = "[layout]\n"
                            "architectures = Toy\n"
                            "[tensor w]\nstored = w.weight\nshape = 8, 6\n"
                            "[tensor n]\nstored = n.weight\nshape = 5\n"
                            "[tensor e]\nstored = e.weight\nshape = 5, 4\n"
                            "[tensor o]\nstored = o.weight\nshape = 4, 6\n"
                            "[parameter w.weight]\npart = w\nquantise = yes\n"
                            "[parameter n.weight]\npart = n\n"
                            "[parameter e.weight]\npart = e, rows over ep padded to 3\n"
                            "[parameter o.weight]\npart = o, columns over tp\n"
                            "[derived]\nparameter = d.weight\n";
static const char config[] = "{\"architectures\": [\"Toy\"], \"torch_dtype\": \"bfloat16\"}";

static void make_model(struct model_bench *b)
{
    struct sw_rules *r;
    struct sw_config *c;
    struct sw_error e = {0};

    ck_assert_msg(
        sw_rules_parse("toy.layout", rules, strlen(rules), NULL, NULL, &r, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_config_parse(config, strlen(config), &c, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_model_make(r, c, SW_ENGINE_SGLANG, &b->model, &e) == 0, "%s", e.text);
    sw_rules_free(r);
    sw_config_free(c);
    b->placement =
        (struct sw_placement){.kind = SW_ENGINE_SGLANG, .scale = SW_SCALE_FP32, .block = {4, 3}};
    b->placement.at.of[SW_GROUP_TP] = (struct sw_group){1, 2};
    ck_assert_msg(
        sw_coordinates_complete(&b->placement.at, SW_ENGINE_SGLANG, &e) == 0, "%s", e.text);
}

static struct sw_load_template template_of(enum sw_transform transform, enum sw_dtype dst,
    uint64_t rows, uint64_t columns, uint64_t first_row, uint64_t first_column)
{
    const uint64_t bytes = sw_dtype_bits(dst) / 8;

    return (struct sw_load_template){.transform = transform,
        .src_dtype = transform == SW_TRANSFORM_ZERO ? SW_DTYPE_INVALID : SW_BF16,
        .dst_dtype = dst,
        .ndim = 2,
        .lo = {first_row, first_column},
        .len = {rows, columns},
        .dst_stride = {columns * bytes, bytes}};
}

static void add_tensor(struct model_bench *b, uint32_t rank, const char *name, uint64_t rows,
    uint64_t columns, uint64_t lo, uint64_t len)
{
    const uint32_t i = b->lists[rank].n++;
    const uint32_t ndim = columns ? 2 : 1;

    b->tensors[rank][i] = (struct sw_plan_tensor){name, SW_BF16, ndim, {rows, columns}};
    b->boxes[rank][i] = (struct sw_box){ndim, {lo, 0}, {len, columns}};
    b->groups[i] = i;
}

static void add_load(struct model_bench *b, uint32_t rank, uint32_t source,
    struct sw_load_template tmpl, uint64_t bytes)
{
    struct sw_load_plan *p = &b->plans[rank];
    const uint32_t i = p->n_loads++;
    const bool fp8 =
        tmpl.transform == SW_TRANSFORM_FP8_VALUES || tmpl.transform == SW_TRANSFORM_FP8_SCALES;

    p->templates[p->n_templates++] = tmpl;
    p->loads[i] = (struct sw_load){source, i, i, fp8 ? 0 : UINT32_MAX, 0};
    p->tiles[p->n_tiles++] =
        (struct sw_tile){i ? p->tiles[i - 1].offset + p->tiles[i - 1].bytes : 0, bytes};
}

static void declare(struct model_bench *b, const char *name, enum sw_dtype dtype, uint64_t rows,
    uint64_t columns, uint64_t offset)
{
    b->parameters[b->target.n_parameters++] = (struct sw_parameter){.name = name,
        .dtype = dtype,
        .ndim = columns ? 2 : 1,
        .shape = {rows, columns},
        .offset = offset};
}

static void add_extent(
    struct model_bench *b, uint32_t rank, uint64_t src, uint64_t dst, uint64_t length)
{
    b->extents[rank][b->writes[rank].n++] =
        (struct sw_extent){.src = src, .dst = dst, .length = length};
}

static void setup_rank(struct model_bench *b, uint32_t r)
{
    b->lists[r] = (struct sw_source_list){0, 3, b->tensors[r], b->groups};
    b->ranks[r] = (struct sw_plan_rank){.rank = r, .list = &b->lists[r], .boxes = b->boxes[r]};
    b->plans[r] = (struct sw_load_plan){.rank = r,
        .replica_bytes = 4096,
        .n_maxima = r ? 4 : 2,
        .n_grids = 1,
        .templates = b->templates[r],
        .loads = b->loads[r],
        .tiles = b->tiles[r],
        .grids = b->grids[r]};
    b->grids[r][0] =
        (struct sw_grid){.source = 0, .block = {4, 3}, .scale = SW_SCALE_FP32, .shared = 1};
    b->writes[r] = (struct sw_write_plan){.rank = r, .extents = b->extents[r]};
}

static void setup_model_bench(struct model_bench *b)
{
    struct sw_load_template n = template_of(SW_TRANSFORM_CAST, SW_F32, 5, 1, 0, 0);

    memset(b, 0, sizeof(*b));
    make_model(b);
    for (uint32_t r = 0; r < 2; r++)
        setup_rank(b, r);
    add_tensor(b, 0, "w.weight", 8, 6, 0, 3);
    add_tensor(b, 0, "n.weight", 5, 0, 0, 5);
    add_tensor(b, 0, "o.weight", 4, 6, 0, 4);
    add_tensor(b, 1, "w.weight", 8, 6, 3, 5);
    add_tensor(b, 1, "e.weight", 5, 4, 0, 5);
    n.ndim = 1;
    n.dst_stride[0] = 4;
    add_load(b, 0, 0, template_of(SW_TRANSFORM_FP8_VALUES, SW_F8_E4M3, 3, 6, 0, 0), 18);
    add_load(b, 0, 0, template_of(SW_TRANSFORM_FP8_SCALES, SW_F32, 1, 2, 0, 0), 8);
    add_load(b, 0, 1, n, 20);
    add_load(b, 0, 2, template_of(SW_TRANSFORM_COPY, SW_BF16, 4, 3, 0, 3), 24);
    add_load(b, 1, 0, template_of(SW_TRANSFORM_FP8_VALUES, SW_F8_E4M3, 5, 6, 0, 0), 30);
    add_load(b, 1, 0, template_of(SW_TRANSFORM_FP8_SCALES, SW_F32, 1, 2, 1, 0), 8);
    add_load(b, 1, 1, template_of(SW_TRANSFORM_COPY, SW_BF16, 5, 4, 0, 0), 40);
    add_load(b, 1, UINT32_MAX, template_of(SW_TRANSFORM_ZERO, SW_BF16, 1, 4, 0, 0), 8);
    b->region_bytes = 256;
    b->target = (struct sw_plan_target){.engine = "A",
        .model = b->model,
        .placement = &b->placement,
        .n_regions = 1,
        .region_bytes = &b->region_bytes,
        .parameters = b->parameters};
    declare(b, "w.weight", SW_F8_E4M3, 8, 6, 0);
    declare(b, "w.weight_scale_inv", SW_F32, 2, 2, 48);
    declare(b, "n.weight", SW_F32, 5, 0, 64);
    declare(b, "e.weight", SW_BF16, 6, 4, 84);
    declare(b, "o.weight", SW_BF16, 4, 3, 132);
    declare(b, "d.weight", SW_BF16, 4, 3, 156);
    add_extent(b, 0, 0, 0, 18);
    add_extent(b, 0, 18, 48, 8);
    add_extent(b, 0, 26, 64, 20);
    add_extent(b, 0, 46, 132, 24);
    add_extent(b, 1, 0, 18, 30);
    add_extent(b, 1, 30, 56, 8);
    add_extent(b, 1, 38, 84, 48);
}

static int prove_model(const struct model_bench *b, struct sw_error *e)
{
    return sw_plan_prove(b->ranks, 2, b->plans, &b->target, 1, b->writes, 2, e);
}

static void other_blocks(struct model_bench *b)
{
    b->grids[0][0].block[0] = 3;
    b->plans[0].n_maxima = 4;
}
static void other_scale(struct model_bench *b)
{
    b->grids[1][0].scale = SW_SCALE_UE8M0;
}
static void not_shared(struct model_bench *b)
{
    b->grids[1][0].shared = 0;
}
static void no_grid(struct model_bench *b)
{
    b->loads[0][0].grid = UINT32_MAX;
}
static void grid_of_another(struct model_bench *b)
{
    b->loads[1][0].source = 1;
}
static void maxima_overlap(struct model_bench *b)
{
    b->grids[1][1] = b->grids[1][0];
    b->plans[1].n_grids = 2;
}
static void too_few_maxima(struct model_bench *b)
{
    b->plans[1].n_maxima = 3;
}
static void grid_without_blocks(struct model_bench *b)
{
    b->grids[0][0].block[1] = 0;
}
static void scales_of_other_blocks(struct model_bench *b)
{
    b->templates[1][1].lo[0] = 0;
}
static void scales_beyond(struct model_bench *b)
{
    b->templates[1][1].lo[0] = 2;
}
static void scales_swapped(struct model_bench *b)
{
    b->extents[0][1].dst = 56;
    b->extents[1][1].dst = 48;
}
static void scales_as_values(struct model_bench *b)
{
    b->templates[0][1].transform = SW_TRANSFORM_FP8_VALUES;
}
static void values_of_other_rows(struct model_bench *b)
{
    b->extents[1][0].dst = 0;
    b->extents[0][0].dst = 30;
}
static void other_columns(struct model_bench *b)
{
    b->templates[0][3].lo[1] = 2;
}
static void columns_beyond(struct model_bench *b)
{
    b->templates[0][3].lo[1] = 4;
}
static void transposed(struct model_bench *b)
{
    b->templates[0][3].dst_stride[0] = 2;
    b->templates[0][3].dst_stride[1] = 8;
}
static void copy_for_zeros(struct model_bench *b)
{
    b->templates[1][3].transform = SW_TRANSFORM_COPY;
    b->templates[1][3].src_dtype = SW_BF16;
    b->loads[1][3].source = 1;
}
static void zeros_for_a_copy(struct model_bench *b)
{
    b->templates[1][2].len[0] = 4;
    b->templates[1][3].len[0] = 2;
    b->tiles[1][2].bytes = 32;
    b->tiles[1][3] = (struct sw_tile){70, 16};
}
static void zeros_of_a_source(struct model_bench *b)
{
    b->loads[1][3].source = 1;
}
static void copy_for_a_cast(struct model_bench *b)
{
    b->parameters[3].dtype = SW_F16;
}
static void cast_of_integers(struct model_bench *b)
{
    b->templates[0][2].dst_dtype = SW_I32;
}
static void no_way_to_make_it(struct model_bench *b)
{
    b->parameters[2].dtype = SW_I32;
}
static void cut_short(struct model_bench *b)
{
    b->templates[0][2].len[0] = 4;
}
static void derived_is_written(struct model_bench *b)
{
    add_extent(b, 0, 46, 156, 24);
}
static void source_not_held(struct model_bench *b)
{
    b->tensors[0][2].name = "x.weight";
}

static const struct {
    void (*plant)(struct model_bench *b);
    const char *text;
} model_faults[] = {
    {other_blocks, "parameter w.weight, byte 0: is quantised in other blocks"},
    {other_scale, "parameter w.weight, byte 18: is quantised in other blocks"},
    {not_shared, "needs the maximum of a block that its rank holds a part of"},
    {no_grid, "has no grid"},
    {grid_of_another, "has the grid of another source"},
    {maxima_overlap, "two grids have the same maxima"},
    {too_few_maxima, "a grid goes past the rank's maxima"},
    {grid_without_blocks, "a grid has no source, block or scale format"},
    {scales_of_other_blocks, "parameter w.weight_scale_inv, byte 8: is read from another position"},
    {scales_beyond, "a load takes more than its rank holds"},
    {scales_swapped, "parameter w.weight_scale_inv, byte 0: is read from another position"},
    {scales_as_values, "a transform for other dtypes"},
    {values_of_other_rows, "parameter w.weight, byte 0: is read from another position"},
    {other_columns, "parameter o.weight, byte 0: is read from another position"},
    {columns_beyond, "a load takes more than its rank holds"},
    {transposed, "does not fill its tile densely"},
    {copy_for_zeros, "parameter e.weight, byte 40: is read from another tensor"},
    {zeros_for_a_copy, "parameter e.weight, byte 32: is read from another tensor"},
    {zeros_of_a_source, "names a source that there is not"},
    {copy_for_a_cast, "parameter e.weight, byte 0: is made by another transform"},
    {cast_of_integers, "a transform for other dtypes"},
    {no_way_to_make_it, "parameter 'n.weight' (rule toy.layout:18): expected BF16, F16 or F32"},
    {cut_short, "a tile has bytes that no load fills"},
    {derived_is_written, "are written that nobody declared"},
    {source_not_held, "parameter o.weight: no rank holds a tensor that it is made of"},
};

START_TEST(a_right_plan_of_a_model_is_proved)
{
    struct model_bench b;
    struct sw_error e = {0};

    setup_model_bench(&b);
    ck_assert_msg(prove_model(&b, &e) == 0, "%s", e.text);
    sw_model_free(b.model);
}
END_TEST

START_TEST(an_error_planted_in_a_models_plan_is_found)
{
    struct model_bench b;
    struct sw_error e = {0};

    setup_model_bench(&b);
    model_faults[_i].plant(&b);
    ck_assert_msg(
        prove_model(&b, &e) == SW_ERR_PLAN, "%s was not found: %s", model_faults[_i].text, e.text);
    ck_assert_msg(
        strstr(e.text, model_faults[_i].text), "%s is not: %s", e.text, model_faults[_i].text);
    sw_model_free(b.model);
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
    tcase_add_test(tcase, a_right_plan_of_a_model_is_proved);
    tcase_add_loop_test(tcase, an_error_planted_in_a_models_plan_is_found, 0,
        (int)(sizeof(model_faults) / sizeof(model_faults[0])));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
