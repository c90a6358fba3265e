/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "client/executor.h"
#include "client/loads.h"
#include "client/strided.h"

#define NONE UINT32_MAX

/* ---- strided walks, against an element by element reference ---- */

static uint32_t seed = 1;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

struct shape {
    uint32_t ndim, size;
    uint64_t len[SW_MAX_DIMS];
    int64_t src[SW_MAX_DIMS], dst[SW_MAX_DIMS];
    uint64_t elements, src_bytes, dst_bytes;
    int64_t src_start; /* where the first element lies in the memory */
};

/* Dense places in a random order of dimensions, with gaps; src also with negative and 0 strides. */
static void random_shape(struct shape *s)
{
    static const uint32_t sizes[] = {1, 2, 4, 8};
    uint32_t order[SW_MAX_DIMS] = {0, 1, 2, 3, 4, 5};
    int64_t src, dst;

    memset(s, 0, sizeof(*s));
    s->ndim = draw(SW_MAX_DIMS + 1);
    s->size = sizes[draw(4)];
    s->elements = 1;
    src = dst = s->size;
    for (uint32_t d = 0; d < s->ndim; d++) {
        const uint32_t other = draw(s->ndim), swap = order[d];

        if (other < s->ndim && draw(2)) {
            order[d] = order[other];
            order[other] = swap;
        }
        s->len[d] = draw(8) ? 1 + draw(5) : 0;
        s->elements *= s->len[d];
    }
    for (uint32_t i = s->ndim; i-- > 0;) {
        const uint32_t d = order[i];
        const uint64_t n = s->len[d] ? s->len[d] : 1;

        s->dst[d] = dst;
        dst = dst * (int64_t)n + (int64_t)(draw(3) ? 0 : draw(4) * s->size);
        s->src[d] = draw(6) ? src : 0;
        src = src * (int64_t)n + (int64_t)(draw(3) ? 0 : draw(40));
        if (draw(4) == 0) {
            s->src[d] = -s->src[d];
            s->src_start -= s->src[d] * (int64_t)(n - 1);
        }
    }
    s->src_bytes = (uint64_t)src;
    s->dst_bytes = (uint64_t)dst;
}

/* Copies by definition; the walk's bytes also go to `dense`. */
static void reference(const struct shape *s, char *dst, const char *src, char *dense)
{
    for (uint64_t i = 0; i < s->elements; i++) {
        uint64_t rest = i;
        int64_t from = s->src_start, to = 0;

        for (uint32_t d = s->ndim; d-- > 0;) {
            from += (int64_t)(rest % s->len[d]) * s->src[d];
            to += (int64_t)(rest % s->len[d]) * s->dst[d];
            rest /= s->len[d];
        }
        memcpy(dst + to, src + from, s->size);
        memcpy(dense + i * s->size, src + from, s->size);
    }
}

START_TEST(walks_like_the_reference)
{
    for (unsigned round = 0; round < 3000; round++) {
        struct shape s;
        char *src, *got, *want, *dense;
        struct sw_strided w, flat;
        uint64_t cut[4], high[2], low[2], bytes;

        random_shape(&s);
        bytes = s.elements * s.size;
        src = malloc(s.src_bytes);
        got = calloc(1, s.dst_bytes);
        want = calloc(1, s.dst_bytes);
        dense = malloc(bytes + 1);
        for (uint64_t i = 0; i < s.src_bytes; i++)
            src[i] = (char)draw(256);
        reference(&s, want, src, dense);
        w = sw_strided_make(s.size * 8, s.ndim, s.len, s.src, s.dst);
        ck_assert_uint_eq(w.total, bytes);
        cut[0] = 0;
        cut[1] = bytes ? draw((uint32_t)bytes + 1) : 0; /* anywhere, units included */
        cut[2] = cut[1] + (bytes - cut[1] ? draw((uint32_t)(bytes - cut[1]) + 1) : 0);
        cut[3] = bytes;
        for (unsigned i = 3; i-- > 0;)
            sw_strided_copy(&w, got, src + s.src_start, cut[i], cut[i + 1]);
        ck_assert_mem_eq(got, want, s.dst_bytes);
        sw_strided_digest(&w, src + s.src_start, &high[0], &low[0]);
        flat = sw_strided_make(8, 1, &bytes, (int64_t[]){1}, (int64_t[]){1});
        sw_strided_digest(&flat, dense, &high[1], &low[1]);
        ck_assert(high[0] == high[1] && low[0] == low[1]);
        free(src);
        free(got);
        free(want);
        free(dense);
    }
}
END_TEST

/* A long strided value is hashed in pieces. */
START_TEST(digests_long_values)
{
    const uint64_t len[2] = {50000, 3};
    const int64_t strides[2] = {8, 2}, packed[2] = {6, 2};
    char *gaps = calloc(50000, 8), *dense = calloc(50000, 6);
    uint64_t high[2], low[2];
    struct sw_strided w;

    for (uint32_t i = 0; i < 50000; i++)
        for (uint32_t k = 0; k < 6; k++)
            gaps[i * 8 + k] = dense[i * 6 + k] = (char)(i * 7 + k);
    w = sw_strided_make(16, 2, len, strides, packed);
    sw_strided_digest(&w, gaps, &high[0], &low[0]);
    w = sw_strided_make(16, 2, len, packed, packed);
    ck_assert_uint_eq(w.n, 0);
    sw_strided_digest(&w, dense, &high[1], &low[1]);
    ck_assert(high[0] == high[1] && low[0] == low[1]);
    free(gaps);
    free(dense);
}
END_TEST

/* ---- programs ---- */

/* Sources: a f32 [4, 6], b bf16 [8] of which [2, 6) is held, c f4 [2, 4], d u8 [3], tied f32 [24].
 * Tiles: a's left and right halves, b, c; d is unused, tied only checked. */
static struct sw_source sources[6];
static struct sw_load_template templates[8];
static struct sw_load loads[8];
static struct sw_grid grids[2];
static struct sw_alias_check checks[2];
static struct sw_tile tiles[8];
static struct sw_load_program program;

static void set_source(uint32_t i, const char *name, enum sw_dtype dtype, uint32_t ndim,
    uint64_t first, uint64_t second)
{
    sources[i] = (struct sw_source){.name = name,
        .dtype = dtype,
        .ndim = ndim,
        .shape = {first, second},
        .box = {.ndim = ndim, .len = {first, second}}};
}

static void setup(void)
{
    set_source(0, "a", SW_F32, 2, 4, 6);
    set_source(1, "b", SW_BF16, 1, 8, 0);
    sources[1].box.lo[0] = 2;
    sources[1].box.len[0] = 4;
    set_source(2, "c", SW_F4, 2, 2, 4);
    set_source(3, "d", SW_U8, 1, 3, 0);
    set_source(4, "tied", SW_F32, 1, 24, 0);
    templates[0] =
        (struct sw_load_template){SW_TRANSFORM_COPY, SW_F32, SW_F32, 2, {0, 0}, {4, 3}, {12, 4}};
    templates[1] = templates[0];
    templates[1].lo[1] = 3;
    templates[2] = (struct sw_load_template){SW_TRANSFORM_COPY, SW_BF16, SW_BF16, 1, {0}, {4}, {2}};
    templates[3] =
        (struct sw_load_template){SW_TRANSFORM_COPY, SW_F4, SW_F4, 2, {0, 0}, {2, 4}, {2, 0}};
    loads[0] = (struct sw_load){2, 3, 3, 0}; /* in no order of sources */
    loads[1] = (struct sw_load){0, 0, 1, 0};
    loads[2] = (struct sw_load){1, 2, 2, 0};
    loads[3] = (struct sw_load){0, 1, 0, 0};
    checks[0] = (struct sw_alias_check){4, 9};
    checks[1] = (struct sw_alias_check){0, 9};
    tiles[0] = (struct sw_tile){0, 48};
    tiles[1] = (struct sw_tile){48, 48};
    tiles[2] = (struct sw_tile){96, 8};
    tiles[3] = (struct sw_tile){104, 4};
    program = (struct sw_load_program){.layout_epoch = 3,
        .rank = 1,
        .replica_bytes = 108,
        .total_templates = 4,
        .total_loads = 4,
        .total_checks = 2,
        .total_tiles = 4,
        .n_templates = 4,
        .n_loads = 4,
        .n_checks = 2,
        .n_tiles = 4,
        .templates = templates,
        .loads = loads,
        .checks = checks,
        .tiles = tiles};
}

/* Besides: q bf16 [9, 8] in blocks of 4x4, of which [3, 9) x [0, 8) is held (rows of 3 blocks), as
 * FP8 with UE8M0 scales and as F32; zeros. Its blocks are shared, from maximum 2 on; a second grid
 * over it, of larger blocks, has no loads. */
static void setup_more(void)
{
    setup();
    set_source(5, "q", SW_BF16, 2, 9, 8);
    sources[5].box = (struct sw_box){2, {3, 0}, {6, 8}};
    templates[4] = (struct sw_load_template){
        SW_TRANSFORM_FP8_VALUES, SW_BF16, SW_F8_E4M3, 2, {0}, {6, 8}, {8, 1}};
    templates[5] = (struct sw_load_template){
        SW_TRANSFORM_FP8_SCALES, SW_BF16, SW_F8_E8M0, 2, {0}, {3, 2}, {2, 1}};
    templates[6] =
        (struct sw_load_template){SW_TRANSFORM_CAST, SW_BF16, SW_F32, 2, {0}, {6, 8}, {32, 4}};
    templates[7] =
        (struct sw_load_template){SW_TRANSFORM_ZERO, SW_DTYPE_INVALID, SW_BF16, 1, {0}, {5}, {2}};
    grids[0] = (struct sw_grid){5, {4, 4}, SW_SCALE_UE8M0, 1, 2};
    grids[1] = (struct sw_grid){5, {100, 4}, SW_SCALE_FP32, 1, 0};
    loads[4] = (struct sw_load){5, 6, 6, NONE, 0};
    loads[5] = (struct sw_load){5, 5, 5, 0, 0};
    loads[6] = (struct sw_load){5, 4, 4, 0, 0};
    loads[7] = (struct sw_load){NONE, 7, 7, NONE, 0};
    tiles[4] = (struct sw_tile){108, 48};
    tiles[5] = (struct sw_tile){156, 6};
    tiles[6] = (struct sw_tile){162, 192};
    tiles[7] = (struct sw_tile){354, 10};
    program.replica_bytes = 364;
    program.n_maxima = 8;
    program.grids = grids;
    program.n_templates = program.total_templates = 8;
    program.n_loads = program.total_loads = 8;
    program.n_grids = program.total_grids = 2;
    program.n_tiles = program.total_tiles = 8;
}

static struct sw_loads *take_program(void)
{
    struct sw_loads *l = sw_loads_new();
    struct sw_error e;

    ck_assert_msg(sw_loads_add(l, &program, &e) == 0, "%s", e.text);
    ck_assert(sw_loads_whole(l));
    ck_assert_msg(sw_loads_check(l, sources, 5, &e) == 0, "%s", e.text);
    return l;
}

START_TEST(parts_join)
{
    struct sw_load_program part = program;
    struct sw_loads *l = sw_loads_new(), *whole = take_program();
    struct sw_error e;

    part.n_loads = 1;
    part.n_checks = part.n_tiles = 0;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), 0);
    ck_assert(!sw_loads_whole(l));
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL); /* the same once more */
    part = program;
    part.first_template = 4;
    part.n_templates = 0;
    part.first_load = 1;
    part.n_loads = 3;
    part.loads = loads + 1;
    part.layout_epoch = 4;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL);
    part.layout_epoch = 3;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), 0);
    ck_assert(sw_loads_whole(l));
    ck_assert_mem_eq(l->loads, whole->loads, 4 * sizeof(loads[0]));
    ck_assert_int_eq(sw_loads_check(l, sources, 5, &e), 0);
    sw_loads_free(l);
    sw_loads_free(whole);
    l = sw_loads_new();
    part = program;
    part.total_loads = UINT32_MAX;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL);
    part = program;
    part.replica_bytes = UINT64_MAX;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL);
    part = program;
    part.n_tiles = 5; /* more than announced */
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL);
    part = program;
    part.n_maxima = UINT64_MAX / 2;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL);
    sw_loads_free(l);
    setup_more();
    l = sw_loads_new();
    part = program;
    part.n_grids = 1;
    part.n_checks = part.n_tiles = 0;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), 0);
    part.n_templates = part.n_loads = 0;
    part.first_template = part.first_load = 8;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL); /* the same grid once more */
    part.first_grid = 1;
    part.grids = grids + 1;
    part.n_maxima++;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), SW_ERR_PROTOCOL);
    part.n_maxima--;
    part.n_checks = 2;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), 0);
    ck_assert(!sw_loads_whole(l));
    part = program;
    part.n_templates = part.n_loads = part.n_grids = part.n_checks = 0;
    part.first_template = part.first_load = 8;
    part.first_grid = part.first_check = 2;
    ck_assert_int_eq(sw_loads_add(l, &part, &e), 0);
    ck_assert(sw_loads_whole(l));
    ck_assert_mem_eq(l->grids, grids, sizeof(grids));
    sw_loads_free(l);
}
END_TEST

static void load_source(void)
{
    loads[2].source = 5;
}
static void load_template(void)
{
    loads[2].tmpl = 4;
}
static void load_tile(void)
{
    loads[2].tile = NONE;
}
static void load_offset(void)
{
    loads[2].offset = 1;
}
static void load_offset_wraps(void)
{
    loads[2].offset = UINT64_MAX - 3;
}
static void check_source(void)
{
    checks[1].source = 5;
}
static void transform(void)
{
    templates[2].transform = 2;
}
static void dtype_of_source(void)
{
    templates[2].src_dtype = templates[2].dst_dtype = SW_F16;
}
static void dtype_changes(void)
{
    templates[2].dst_dtype = SW_F16;
}
static void dtype_unknown(void)
{
    templates[2].src_dtype = templates[2].dst_dtype = 99;
}
static void too_many_dims(void)
{
    templates[2].ndim = SW_MAX_DIMS + 1;
}
static void other_dims(void)
{
    templates[2].ndim = 2;
    templates[2].len[1] = 1;
}
static void box_outside(void)
{
    templates[2].lo[0] = 1;
}
static void box_wraps(void)
{
    templates[2].lo[0] = UINT64_MAX;
}
static void box_global(void)
{
    templates[2].len[0] = 8; /* inside the tensor, not inside what is held of it */
}
static void stride_far(void)
{
    templates[2].dst_stride[0] = 1ull << 62;
}
static void stride_wraps(void)
{
    templates[2].dst_stride[0] = UINT64_MAX / 3 + 1;
}
static void stride_overlaps(void)
{
    templates[2].dst_stride[0] = 1;
}
static void stride_zero(void)
{
    templates[2].dst_stride[0] = 0;
}
static void stride_leaves_tile(void)
{
    templates[2].dst_stride[0] = 4;
}
static void half_bytes_stride(void)
{
    templates[3].dst_stride[1] = 1;
}
static void half_bytes_start(void)
{
    templates[3].lo[1] = 1;
    templates[3].len[1] = 2;
}
static void half_bytes_length(void)
{
    templates[3].len[1] = 3;
}
static void half_bytes_scalar(void)
{
    templates[3].ndim = 0;
}
static void tile_outside(void)
{
    tiles[3].offset = 105;
}
static void tile_wraps(void)
{
    tiles[3].offset = UINT64_MAX - 1;
}
static void tile_overlaps(void)
{
    tiles[3].offset = 100;
}
static void tile_never_full(void)
{
    loads[1].tmpl = 0;
    loads[3].tile = 1;
}
static void tile_larger(void)
{
    program.replica_bytes = 200;
    tiles[3].bytes = 5;
}

/* Of what setup_more makes. */
static void more_source(void)
{
    loads[6].source = NONE;
}
static void zero_source(void)
{
    loads[7].source = 0;
}
static void zero_type(void)
{
    templates[7].src_dtype = SW_BF16;
}
static void cast_type(void)
{
    templates[6].dst_dtype = SW_I32;
}
static void cast_not(void)
{
    templates[6].dst_dtype = SW_BF16;
    templates[6].len[1] = 16;
}
static void cast_box(void)
{
    templates[6].lo[0] = 1;
}
static void fp8_type(void)
{
    templates[4].dst_dtype = SW_F8_E5M2;
}
static void fp8_source(void)
{
    templates[4].src_dtype = SW_F32;
}
static void fp8_box(void)
{
    templates[4].lo[1] = UINT64_MAX;
}
static void fp8_no_grid(void)
{
    loads[6].grid = NONE;
}
static void fp8_grid(void)
{
    loads[6].grid = 2;
}
static void fp8_grid_of_another(void)
{
    grids[0].source = 1;
    grids[0].first = grids[1].first = 0;
    grids[1].shared = 0;
}
static void scales_type(void)
{
    templates[5].dst_dtype = SW_F16;
}
static void scales_format(void)
{
    grids[0].scale = SW_SCALE_FP32; /* E8M0 can't hold them */
}
static void scales_box(void)
{
    templates[5].lo[0] = 1; /* the box has more rows than the grid */
}
static void grid_source(void)
{
    grids[1].source = 6;
}
static void grid_of_bytes(void)
{
    grids[1].source = 3;
}
static void grid_block(void)
{
    grids[1].block[0] = 0;
}
static void grid_scale(void)
{
    grids[1].scale = SW_SCALE_NONE;
}
static void grid_shared(void)
{
    grids[1].shared = 2;
}
static void maxima_outside(void)
{
    grids[0].first = 3;
}
static void maxima_wrap(void)
{
    grids[0].first = UINT64_MAX - 2;
}
static void maxima_overlap(void)
{
    grids[1].first = 1;
}

static void (*const more_attacks[])(void) = {more_source, zero_source, zero_type, cast_type,
    cast_not, cast_box, fp8_type, fp8_source, fp8_box, fp8_no_grid, fp8_grid, fp8_grid_of_another,
    scales_type, scales_format, scales_box, grid_source, grid_of_bytes, grid_block, grid_scale,
    grid_shared, maxima_outside, maxima_wrap, maxima_overlap};

static void (*const attacks[])(void) = {load_source, load_template, load_tile, load_offset,
    load_offset_wraps, check_source, transform, dtype_of_source, dtype_changes, dtype_unknown,
    too_many_dims, other_dims, box_outside, box_wraps, box_global, stride_far, stride_wraps,
    stride_overlaps, stride_zero, stride_leaves_tile, half_bytes_stride, half_bytes_start,
    half_bytes_length, half_bytes_scalar, tile_outside, tile_wraps, tile_overlaps, tile_never_full,
    tile_larger};

START_TEST(hostile_programs_are_refused)
{
    struct sw_loads *l = sw_loads_new();
    struct sw_error e;
    int rc;

    attacks[_i]();
    ck_assert_int_eq(sw_loads_add(l, &program, &e), 0);
    rc = sw_loads_check(l, sources, 5, &e);
    ck_assert_msg(rc == SW_ERR_PROTOCOL || rc == SW_ERR_UNSUPPORTED, "attack %d: %d", _i, rc);
    ck_assert(strstr(e.text, "load program"));
    sw_loads_free(l);
}
END_TEST

START_TEST(hostile_transforms_are_refused)
{
    struct sw_loads *l = sw_loads_new();
    struct sw_error e = {0};
    int rc;

    setup_more();
    ck_assert_int_eq(sw_loads_add(l, &program, &e), 0);
    ck_assert_msg(sw_loads_check(l, sources, 6, &e) == 0, "%s", e.text);
    sw_loads_free(l);
    l = sw_loads_new();
    more_attacks[_i]();
    ck_assert_int_eq(sw_loads_add(l, &program, &e), 0);
    rc = sw_loads_check(l, sources, 6, &e);
    ck_assert_msg(rc == SW_ERR_PROTOCOL, "attack %d: %d", _i, rc);
    ck_assert(strstr(e.text, "load program"));
    sw_loads_free(l);
}
END_TEST

/* What the check finds for the executor: loads by source, and in which order. */
START_TEST(loads_are_found)
{
    struct sw_loads *l = sw_loads_new();
    struct sw_error e;

    setup_more();
    loads[7] = loads[4]; /* the cast comes first here, and last in the order */
    loads[4] = (struct sw_load){NONE, 7, 7, NONE, 0};
    ck_assert_int_eq(sw_loads_add(l, &program, &e), 0);
    ck_assert_int_eq(sw_loads_check(l, sources, 6, &e), 0);
    ck_assert_uint_eq(l->first_load[5], 4);
    ck_assert_uint_eq(l->first_load[6], 7);
    ck_assert_uint_eq(l->first_load[7], 8);
    ck_assert_uint_eq(l->load_order[4], 5);
    ck_assert_uint_eq(l->load_order[5], 6);
    ck_assert_uint_eq(l->load_order[6], 7);
    ck_assert_uint_eq(l->load_order[7], 4); /* zeros */
    ck_assert(l->shares && sw_loads_shares(l, 5) && !sw_loads_shares(l, 0));
    ck_assert(sw_loads_wants(l, 5) && sw_loads_wants(l, 4) && !sw_loads_wants(l, 3));
    sw_loads_free(l);
}
END_TEST

/* ---- puts ---- */

struct bench {
    struct sw_loads *loads;
    struct sw_executor *x;
    char data[108];
    uint64_t counters[4];
};

static void bench_start(struct bench *b, unsigned threads)
{
    memset(b, 0, sizeof(*b));
    b->loads = take_program();
    b->x = sw_executor_new(b->loads, sources, threads);
    sw_executor_begin(b->x, b->data, b->counters);
}

static void bench_end(struct bench *b)
{
    sw_executor_free(b->x);
    sw_loads_free(b->loads);
}

static struct sw_tensor tensor(uint32_t source, const void *data)
{
    struct sw_tensor t = {
        .data = data, .dtype = sources[source].dtype, .ndim = sources[source].ndim};

    memcpy(t.shape, sources[source].box.len, sizeof(t.shape));
    return t;
}

START_TEST(puts_land_in_tiles)
{
    float value[24], column[24], got[12];
    const uint16_t b16[4] = {1, 2, 3, 4};
    const uint8_t f4[4] = {0x21, 0x43, 0x65, 0x87};
    struct sw_digest digests[2];
    uint32_t missing[5];
    struct sw_tensor t;
    struct sw_error e;
    struct bench b;

    bench_start(&b, 1);
    for (int i = 0; i < 24; i++) {
        value[i] = (float)i;
        column[i % 6 * 4 + i / 6] = (float)i;
    }
    ck_assert_uint_eq(sw_executor_missing(b.x, missing, 5), 4);
    ck_assert_uint_eq(missing[3], 4); /* all but the unused one */
    t = tensor(0, column);
    t.has_strides = 1;
    t.strides[0] = 1;
    t.strides[1] = 4;
    ck_assert_msg(sw_executor_put(b.x, 0, &t, &e) == 0, "%s", e.text);
    for (int half = 0; half < 2; half++) {
        memcpy(got, b.data + (half ? 0 : 48), sizeof(got));
        for (int i = 0; i < 12; i++)
            ck_assert_float_eq(got[i], value[i / 3 * 6 + i % 3 + half * 3]);
    }
    t = tensor(1, b16);
    ck_assert_int_eq(sw_executor_put(b.x, 1, &t, &e), 0);
    ck_assert_mem_eq(b.data + 96, b16, 8);
    t = tensor(2, f4);
    t.has_strides = 1;
    t.strides[0] = -4;
    t.strides[1] = 1;
    t.data = f4 + 2;
    ck_assert_int_eq(sw_executor_put(b.x, 2, &t, &e), 0);
    ck_assert_mem_eq(b.data + 104, "\x65\x87\x21\x43", 4);
    t = tensor(3, "abc");
    ck_assert_int_eq(sw_executor_put(b.x, 3, &t, &e), 0);
    ck_assert_uint_eq(sw_executor_missing(b.x, missing, 1), 1);
    ck_assert_uint_eq(missing[0], 4);
    ck_assert_uint_eq(sw_executor_digests(b.x, digests), 1);
    t = tensor(4, value);
    ck_assert_int_eq(sw_executor_put(b.x, 4, &t, &e), 0);
    ck_assert_uint_eq(sw_executor_missing(b.x, missing, 1), 0);
    ck_assert_uint_eq(sw_executor_digests(b.x, digests), 2);
    ck_assert_uint_eq(digests[0].set, 9);
    ck_assert(digests[0].source == 4 && digests[1].source == 0);
    ck_assert(digests[0].high == digests[1].high && digests[0].low == digests[1].low);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(b.counters[i], tiles[i].bytes);
    ck_assert_uint_eq(sw_executor_bytes(b.x), 108);
    sw_executor_begin(b.x, b.data, b.counters); /* the next version: everything again */
    ck_assert_uint_eq(sw_executor_missing(b.x, missing, 1), 4);
    ck_assert_uint_eq(sw_executor_bytes(b.x), 0);
    ck_assert_uint_eq(sw_executor_digests(b.x, digests), 0);
    bench_end(&b);
}
END_TEST

static void refuse(struct bench *b, uint32_t source, const struct sw_tensor *t, int code)
{
    struct sw_error e = {0};

    ck_assert_int_eq(sw_executor_put(b->x, source, t, &e), code);
    ck_assert_msg(strstr(e.text, sources[source].name) != NULL, "%s", e.text);
}

START_TEST(wrong_values_are_refused)
{
    float value[24] = {0};
    struct sw_tensor t;
    struct bench b;

    bench_start(&b, 1);
    t = tensor(0, NULL);
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t = tensor(0, value);
    t.dtype = SW_I32;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t = tensor(0, value);
    t.ndim = 1;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t = tensor(0, value);
    t.shape[1] = 5;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t = tensor(0, value);
    t.device = SW_DEVICE_CUDA;
    refuse(&b, 0, &t, SW_ERR_UNSUPPORTED);
    t.device = 7;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t = tensor(0, value);
    t.has_strides = 1;
    t.strides[0] = INT64_MAX / 2;
    t.strides[1] = 1;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t.strides[0] = INT64_MIN;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t.strides[0] = INT64_C(1) << 57; /* each is possible, their sum leads out of any memory */
    t.strides[1] = INT64_C(1) << 57;
    refuse(&b, 0, &t, SW_ERR_INVALID);
    t = tensor(2, value);
    t.has_strides = 1;
    t.strides[0] = 4;
    t.strides[1] = 2;
    refuse(&b, 2, &t, SW_ERR_UNSUPPORTED);
    t.strides[0] = 5; /* the middle of a byte */
    t.strides[1] = 1;
    refuse(&b, 2, &t, SW_ERR_INVALID);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(b.counters[i], 0);
    t = tensor(0, value); /* none of them counts as put */
    ck_assert_int_eq(sw_executor_put(b.x, 0, &t, NULL), 0);
    refuse(&b, 0, &t, SW_ERR_EXISTS);
    ck_assert_uint_eq(b.counters[0], 48);
    bench_end(&b);
}
END_TEST

/* ---- many threads ---- */

#define MANY 64u
#define ROWS 700u
#define COLUMNS 1024u

/* `n` transposed u32 sources of `rows` x COLUMNS, each with a tile of its own. */
struct many {
    uint32_t n, rows;
    struct sw_source sources[MANY];
    struct sw_load loads[MANY];
    struct sw_tile tiles[MANY];
    uint32_t *values[MANY];
    struct sw_loads *program;
    struct sw_executor *x;
    uint64_t counters[MANY];
    uint32_t *data;
    atomic_uint next, twice;
};

static void many_start(struct many *m, uint32_t n, uint32_t rows, unsigned threads)
{
    const uint64_t bytes = (uint64_t)rows * COLUMNS * 4;
    struct sw_load_template tmpl = {
        SW_TRANSFORM_COPY, SW_U32, SW_U32, 2, {0}, {rows, COLUMNS}, {COLUMNS * 4, 4}};
    struct sw_load_program p = {.replica_bytes = n * bytes,
        .total_templates = 1,
        .n_templates = 1,
        .templates = &tmpl,
        .total_loads = n,
        .n_loads = n,
        .loads = m->loads,
        .total_tiles = n,
        .n_tiles = n,
        .tiles = m->tiles};

    memset(m, 0, sizeof(*m));
    m->n = n;
    m->rows = rows;
    m->data = calloc(n, bytes);
    for (uint32_t i = 0; i < n; i++) {
        struct sw_source *s = &m->sources[i];

        *s = (struct sw_source){.name = "x", .dtype = SW_U32, .ndim = 2};
        s->box.ndim = 2;
        s->shape[0] = s->box.len[0] = rows;
        s->shape[1] = s->box.len[1] = COLUMNS;
        m->loads[i] = (struct sw_load){i, 0, i, 0};
        m->tiles[i] = (struct sw_tile){i * bytes, bytes};
        m->values[i] = malloc(bytes);
        for (uint32_t k = 0; k < rows * COLUMNS; k++)
            m->values[i][k] = i * 31u + k;
    }
    m->program = sw_loads_new();
    ck_assert_int_eq(sw_loads_add(m->program, &p, NULL), 0);
    ck_assert_int_eq(sw_loads_check(m->program, m->sources, n, NULL), 0);
    m->x = sw_executor_new(m->program, m->sources, threads);
    sw_executor_begin(m->x, m->data, m->counters);
}

static int many_put(struct many *m, uint32_t i)
{
    const struct sw_tensor t = {.data = m->values[i],
        .dtype = SW_U32,
        .ndim = 2,
        .shape = {m->rows, COLUMNS},
        .strides = {1, m->rows},
        .has_strides = 1};

    return sw_executor_put(m->x, i, &t, NULL);
}

static void many_check_and_end(struct many *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const uint32_t *at = m->data + m->tiles[i].offset / 4;

        ck_assert_uint_eq(__atomic_load_n(&m->counters[i], __ATOMIC_ACQUIRE), m->tiles[i].bytes);
        for (uint32_t k = 0; k < m->rows * COLUMNS; k++)
            if (at[k] != i * 31u + k % COLUMNS * m->rows + k / COLUMNS)
                ck_abort_msg("source %u, element %u", i, k);
        free(m->values[i]);
    }
    sw_executor_free(m->x);
    sw_loads_free(m->program);
    free(m->data);
}

/* Every source twice: one of the two puts is refused. */
static void *put_all(void *arg)
{
    struct many *m = arg;
    uint32_t at;

    while ((at = atomic_fetch_add(&m->next, 1)) < 2 * m->n) {
        const int rc = many_put(m, at / 2);

        ck_assert(rc == 0 || rc == SW_ERR_EXISTS);
        atomic_fetch_add(&m->twice, rc == SW_ERR_EXISTS);
    }
    return NULL;
}

START_TEST(puts_at_the_same_time)
{
    static struct many m;
    pthread_t threads[4];

    many_start(&m, MANY, 3, 1);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, put_all, &m), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(atomic_load(&m.twice), MANY);
    many_check_and_end(&m);
}
END_TEST

#define RACES 5000

static pthread_barrier_t line;
static atomic_uint ready;

static void *race(void *arg)
{
    struct many *m = arg;

    for (int i = 0; i < RACES; i++) {
        atomic_fetch_add(&ready, 1); /* closer together than a barrier lets them go */
        while (atomic_load(&ready) < 2u * (unsigned)(i + 1))
            sched_yield();
        atomic_fetch_add(&m->twice, many_put(m, 0) == SW_ERR_EXISTS);
        const int turn = pthread_barrier_wait(&line);

        if (turn == PTHREAD_BARRIER_SERIAL_THREAD) {
            m->counters[0] = 0;
            sw_executor_begin(m->x, m->data, m->counters);
        }
        pthread_barrier_wait(&line);
    }
    return NULL;
}

/* Two puts of one tensor, at once: one of them is refused, in every version. */
START_TEST(the_same_tensor_at_the_same_time)
{
    static struct many m;
    pthread_t other;

    many_start(&m, 1, 1, 1);
    pthread_barrier_init(&line, NULL, 2);
    ck_assert_int_eq(pthread_create(&other, NULL, race, &m), 0);
    race(&m);
    pthread_join(other, NULL);
    ck_assert_uint_eq(atomic_load(&m.twice), RACES);
    ck_assert_int_eq(many_put(&m, 0), 0);
    many_check_and_end(&m);
    pthread_barrier_destroy(&line);
}
END_TEST

START_TEST(one_put_by_several_threads)
{
    static struct many m;

    many_start(&m, 2, ROWS, 3); /* 2.7 MiB: a part for each of two threads, cut inside a row */
    ck_assert_int_eq(many_put(&m, 0), 0);
    ck_assert_int_eq(many_put(&m, 1), 0);
    many_check_and_end(&m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("executor");
    TCase *pure = tcase_create("strided"), *c = tcase_create("program");
    SRunner *runner;
    int failed;

    tcase_add_test(pure, walks_like_the_reference);
    tcase_add_test(pure, digests_long_values);
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, parts_join);
    tcase_add_loop_test(c, hostile_programs_are_refused, 0, sizeof(attacks) / sizeof(attacks[0]));
    tcase_add_loop_test(
        c, hostile_transforms_are_refused, 0, sizeof(more_attacks) / sizeof(more_attacks[0]));
    tcase_add_test(c, loads_are_found);
    tcase_add_test(c, puts_land_in_tiles);
    tcase_add_test(c, wrong_values_are_refused);
    tcase_add_test(c, puts_at_the_same_time);
    tcase_add_test(c, the_same_tensor_at_the_same_time);
    tcase_add_test(c, one_put_by_several_threads);
    tcase_set_timeout(c, 60);
    tcase_set_timeout(pure, 60);
    suite_add_tcase(suite, pure);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
