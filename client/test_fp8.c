/* SPDX-License-Identifier: Apache-2.0 */
/* Load programs with transforms, made at random, against what the formulas say element by element.
 */
#include "client/test_fp8.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/cast.h"
#include "client/executor.h"
#include "client/loads.h"

#define PARTS 3u

static uint64_t state;

static uint32_t draw(uint32_t n) /* splitmix64: neighbouring seeds give other programs */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;

    ck_assert_uint_gt(n, 0);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return n ? (uint32_t)((z ^ z >> 31) >> 16) % n : 0;
}

static unsigned size_of(enum sw_dtype t)
{
    return sw_dtype_bits(t) / 8;
}

/* One source, one grid over it; a tile of values, one of scales, one of cast elements, one of
 * zeros. Each is filled by up to PARTS loads, that take slices of one dimension. */
struct scene {
    struct sw_source source;
    struct sw_grid grid;
    struct sw_load_template templates[4 * PARTS];
    struct sw_load loads[4 * PARTS];
    struct sw_tile tiles[4];
    struct sw_load_program program;
    enum sw_dtype scale_type, cast_type;
    uint64_t shape[SW_MAX_DIMS], blocks; /* of the grid */
    uint64_t elements;
    uint64_t lo[4][SW_MAX_DIMS]; /* the part of the box, or of the grid, that each tile has */
    uint64_t len[4][SW_MAX_DIMS];
    uint64_t place[4][SW_MAX_DIMS]; /* strides in the tiles, in elements */

    char *memory, *value; /* first element */
    uint64_t value_bytes;
    int64_t strides[SW_MAX_DIMS]; /* of the value, in elements */

    struct sw_loads *checked;
    struct sw_executor *x;
    char *data;
    float *maxima;
    uint64_t counters[4];
};

/* Dense strides of `len`, dimensions in a random order. */
static void random_places(uint32_t ndim, const uint64_t *len, bool shuffle, uint64_t *strides)
{
    uint32_t order[SW_MAX_DIMS] = {0, 1, 2, 3, 4, 5};
    uint64_t n = 1;

    for (uint32_t d = 0; d < ndim && shuffle; d++) {
        const uint32_t other = draw(ndim), swap = order[d];

        order[d] = order[other];
        order[other] = swap;
    }
    for (uint32_t i = ndim; i-- > 0;) {
        strides[order[i]] = n;
        n *= len[order[i]];
    }
}

static void random_source(struct scene *s, bool large)
{
    static const enum sw_dtype types[3] = {SW_BF16, SW_F16, SW_F32};
    const uint32_t ndim = large ? 2 : 1 + draw(4);

    s->source =
        (struct sw_source){.name = "w", .dtype = large ? SW_F32 : types[draw(3)], .ndim = ndim};
    s->source.box.ndim = ndim;
    s->elements = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        const uint32_t most = d + 2 < ndim ? 4 : d + 1 < ndim ? 150 : 500;

        s->source.box.len[d] = large ? 270 + draw(200) : 1 + draw(most);
        s->source.box.lo[d] = draw(3) ? draw(200) : 0;
        s->source.shape[d] = s->source.box.lo[d] + s->source.box.len[d] + draw(100);
        s->elements *= s->source.box.len[d];
    }
    s->grid =
        (struct sw_grid){.block = {1 + draw(large ? 2000 : 140), 1 + draw(large ? 2000 : 140)},
            .scale = draw(2) ? SW_SCALE_FP32 : SW_SCALE_UE8M0,
            .shared = draw(2),
            .first = draw(5)};
    if (draw(3) == 0)
        s->grid.block[0] = s->grid.block[1] = 128;
}

static void find_shape(struct scene *s)
{
    const uint32_t ndim = s->source.ndim;

    s->blocks = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        const uint64_t lo = s->source.box.lo[d], len = s->source.box.len[d];
        const uint64_t block = d + 1 == ndim ? s->grid.block[1] : s->grid.block[0];

        s->shape[d] = d + 2 < ndim ? len : (lo + len - 1) / block - lo / block + 1;
        s->blocks *= s->shape[d];
    }
}

/* Loads of one tile, whose elements are those of a box of this shape, or of a part of it. */
static void add_loads(struct scene *s, uint32_t tile, enum sw_transform transform,
    enum sw_dtype type, const uint64_t *shape, bool whole)
{
    struct sw_load_program *p = &s->program;
    const uint32_t ndim = s->source.ndim, along = draw(ndim), parts = 1 + draw(PARTS);
    uint64_t *lo = s->lo[tile], *len = s->len[tile], at = 0, elements = 1;

    whole = whole || (s->source.dtype == SW_F32 ? draw(4) == 0 : draw(3) != 0);
    for (uint32_t d = 0; d < ndim; d++) {
        lo[d] = whole ? 0 : draw((uint32_t)shape[d]);
        len[d] = whole ? shape[d] : 1 + draw((uint32_t)(shape[d] - lo[d]));
    }
    if (!whole && draw(2)) /* another rank has them */
        len[along] = 0;
    random_places(ndim, len, draw(3) == 0, s->place[tile]);
    for (uint32_t i = 0; i < parts; i++) {
        struct sw_load_template *t = &s->templates[p->n_templates];
        const uint64_t left = len[along] - at;

        *t = (struct sw_load_template){.transform = transform,
            .src_dtype = transform == SW_TRANSFORM_ZERO ? SW_DTYPE_INVALID : s->source.dtype,
            .dst_dtype = type,
            .ndim = ndim};
        memcpy(t->lo, lo, sizeof(t->lo));
        memcpy(t->len, len, sizeof(t->len));
        t->lo[along] += at;
        t->len[along] = i + 1 == parts ? left : draw((uint32_t)left + 1);
        for (uint32_t d = 0; d < ndim; d++)
            t->dst_stride[d] = s->place[tile][d] * size_of(type);
        s->loads[p->n_loads++] = (struct sw_load){
            .source = transform == SW_TRANSFORM_ZERO ? UINT32_MAX : 0,
            .tmpl = p->n_templates++,
            .tile = tile,
            .grid =
                transform == SW_TRANSFORM_CAST || transform == SW_TRANSFORM_ZERO ? UINT32_MAX : 0,
            .offset = at * t->dst_stride[along]};
        at += t->len[along];
    }
    for (uint32_t d = 0; d < ndim; d++)
        elements *= len[d];
    s->tiles[tile] = (struct sw_tile){p->replica_bytes, elements * size_of(type)};
    p->replica_bytes += s->tiles[tile].bytes + draw(40);
}

/* Any order of dimensions, gaps, upside down. */
static void random_value(struct scene *s, bool plain)
{
    const unsigned size = size_of(s->source.dtype);
    uint64_t places[SW_MAX_DIMS] = {0}, gap = plain ? 1 : 1 + draw(2);
    int64_t start = 0;

    random_places(s->source.ndim, s->source.box.len, !plain && draw(2), places);
    s->value_bytes = s->elements * gap * size;
    s->memory = malloc(s->value_bytes);
    for (uint32_t d = 0; d < s->source.ndim; d++) {
        s->strides[d] = (int64_t)(places[d] * gap);
        if (!plain && draw(3) == 0) {
            start += s->strides[d] * (int64_t)(s->source.box.len[d] - 1);
            s->strides[d] = -s->strides[d];
        }
    }
    s->value = s->memory + start * (int64_t)size;
}

static char *element(const struct scene *s, const uint64_t *index)
{
    int64_t at = 0;

    for (uint32_t d = 0; d < s->source.ndim; d++)
        at += (int64_t)index[d] * s->strides[d];
    return s->value + at * (int64_t)size_of(s->source.dtype);
}

static void set(const struct scene *s, char *at, float f)
{
    if (s->source.dtype == SW_F32)
        memcpy(at, &f, sizeof(f));
    else
        sw_cast_find(SW_ISA_SCALAR, SW_F32, s->source.dtype)(at, &f, 1, false);
}

/* Every magnitude, so that blocks and their parts differ; some blocks of zeros only. */
static void fill_value(struct scene *s)
{
    const unsigned size = size_of(s->source.dtype);
    const uint32_t kind = draw(4);

    for (uint64_t i = 0; i < s->value_bytes / size; i++)
        set(s, s->memory + i * size,
            kind == 0 && draw(900) ? 0
                                   : ldexpf((float)(int)draw(1 << 24) - 8388608.0f,
                                         kind == 1 ? (int)draw(20) - 34 : -26));
}

static struct sw_tensor tensor_of(const struct scene *s)
{
    struct sw_tensor t = {
        .data = s->value, .dtype = s->source.dtype, .ndim = s->source.ndim, .has_strides = 1};

    memcpy(t.shape, s->source.box.len, sizeof(t.shape));
    memcpy(t.strides, s->strides, sizeof(t.strides));
    return t;
}

static void scene_start(struct scene *s, bool large, bool whole)
{
    static const enum sw_dtype types[3] = {SW_BF16, SW_F16, SW_F32};
    struct sw_load_program *p = &s->program;
    struct sw_error e;

    memset(s, 0, sizeof(*s));
    random_source(s, large);
    find_shape(s);
    s->scale_type = s->grid.scale == SW_SCALE_UE8M0 && draw(2) ? SW_F8_E8M0 : SW_F32;
    do
        s->cast_type = types[draw(3)];
    while (s->cast_type == s->source.dtype);
    add_loads(s, 0, SW_TRANSFORM_FP8_VALUES, SW_F8_E4M3, s->source.box.len, whole);
    add_loads(s, 1, SW_TRANSFORM_FP8_SCALES, s->scale_type, s->shape, whole);
    add_loads(s, 2, SW_TRANSFORM_CAST, s->cast_type, s->source.box.len, whole);
    add_loads(s, 3, SW_TRANSFORM_ZERO, SW_BF16, s->source.box.len, whole);
    p->templates = s->templates;
    p->loads = s->loads;
    p->tiles = s->tiles;
    p->grids = &s->grid;
    p->n_tiles = p->total_tiles = 4;
    p->n_grids = p->total_grids = 1;
    p->total_templates = p->n_templates;
    p->total_loads = p->n_loads;
    p->n_maxima = s->grid.shared ? s->grid.first + s->blocks + draw(3) : 0;
    random_value(s, large && draw(2));
    fill_value(s);
    s->checked = sw_loads_new();
    ck_assert_msg(sw_loads_add(s->checked, p, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_loads_check(s->checked, &s->source, 1, &e) == 0, "%s", e.text);
    s->x = sw_executor_new(s->checked, &s->source, 1 + draw(3));
    s->data = malloc(p->replica_bytes);
    memset(s->data, 0x5a, p->replica_bytes);
    s->maxima = malloc((p->n_maxima + 1) * sizeof(float));
    for (uint64_t i = 0; i <= p->n_maxima; i++)
        s->maxima[i] = 77;
    sw_executor_begin(s->x, s->data, s->counters);
    ck_assert_int_eq(sw_executor_needs_maxima(s->x), s->grid.shared);
    ck_assert_int_eq(sw_executor_holds(s->x, 0), s->grid.shared);
    if (s->grid.shared)
        sw_executor_set_maxima(s->x, s->maxima, p->n_maxima);
}

static void scene_end(struct scene *s)
{
    sw_executor_free(s->x);
    sw_loads_free(s->checked);
    free(s->data);
    free(s->maxima);
    free(s->memory);
}

/* ---- what must come out ---- */

static bool next(uint32_t ndim, const uint64_t *len, uint64_t *index)
{
    for (uint32_t d = ndim; d-- > 0; index[d] = 0)
        if (++index[d] < len[d])
            return true;
    return false;
}

/* Number of an element's block in C order. */
static uint64_t block_of(const struct scene *s, const uint64_t *index)
{
    const uint32_t ndim = s->source.ndim;
    uint64_t at = 0;

    for (uint32_t d = 0; d < ndim; d++) {
        const uint64_t lo = s->source.box.lo[d];
        const uint64_t block = d + 1 == ndim ? s->grid.block[1] : s->grid.block[0];

        at = at * s->shape[d] + (d + 2 < ndim ? index[d] : (lo + index[d]) / block - lo / block);
    }
    return at;
}

static float *find_maxima(const struct scene *s)
{
    float *amax = calloc(s->blocks, sizeof(*amax));
    uint64_t index[SW_MAX_DIMS] = {0};

    do {
        const float x = fabsf(sw_cast_widen(s->source.dtype, element(s, index)));
        float *most = &amax[block_of(s, index)];

        *most = x > *most ? x : *most;
    } while (next(s->source.ndim, s->source.box.len, index));
    return amax;
}

/* Where an element lies in a tile; NULL: it hasn't that one. */
static const char *placed(
    const struct scene *s, uint32_t tile, unsigned size, const uint64_t *index)
{
    uint64_t at = 0;

    for (uint32_t d = 0; d < s->source.ndim; d++) {
        if (index[d] < s->lo[tile][d] || index[d] >= s->lo[tile][d] + s->len[tile][d])
            return NULL;
        at += (index[d] - s->lo[tile][d]) * s->place[tile][d];
    }
    return s->data + s->tiles[tile].offset + at * size;
}

static void check_values(const struct scene *s, const float *amax)
{
    sw_cast_fn *cast = sw_cast_find(SW_ISA_SCALAR, s->source.dtype, s->cast_type);
    uint64_t index[SW_MAX_DIMS] = {0};

    do {
        const float x = sw_cast_widen(s->source.dtype, element(s, index));
        const float scale = fp8_scale(s->grid.scale, amax[block_of(s, index)]);
        const char *fp8 = placed(s, 0, 1, index), *zero = placed(s, 3, 2, index);
        const char *other = placed(s, 2, size_of(s->cast_type), index);
        char want[4];

        if (fp8 && (uint8_t)*fp8 != fp8_of(x, scale))
            ck_abort_msg("%a by %a: %02x, must be %02x", (double)x, (double)scale, (uint8_t)*fp8,
                fp8_of(x, scale));
        cast(want, element(s, index), 1, false);
        if (other && memcmp(want, other, size_of(s->cast_type)) != 0)
            ck_abort_msg("%a was cast wrongly to %s", (double)x, sw_dtype_name(s->cast_type));
        if (zero && memcmp(zero, "\0", 2) != 0)
            ck_abort_msg("not 0");
    } while (next(s->source.ndim, s->source.box.len, index));
}

static void check_scales(const struct scene *s, const float *amax)
{
    uint64_t index[SW_MAX_DIMS] = {0}, n = 0;

    do {
        const float want = fp8_scale(s->grid.scale, amax[n++]);
        const char *at = placed(s, 1, size_of(s->scale_type), index);
        float got;

        if (!at)
            continue;
        if (s->scale_type == SW_F8_E8M0)
            got = (float)ldexp(1, (uint8_t)*at - 127);
        else
            memcpy(&got, at, sizeof(got));
        if (got != want)
            ck_abort_msg("scale %a, must be %a", (double)got, (double)want);
    } while (next(s->source.ndim, s->shape, index));
}

/* Nothing between the tiles was written. */
static void check_gaps(const struct scene *s)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i <= 4; i++) {
        const uint64_t end = i < 4 ? s->tiles[i].offset : s->program.replica_bytes;

        for (; at < end; at++)
            if (s->data[at] != 0x5a)
                ck_abort_msg("a byte between two tiles was written");
        at = i < 4 ? end + s->tiles[i].bytes : at;
    }
}

static void put_and_check(struct scene *s)
{
    const struct sw_tensor t = tensor_of(s);
    const bool shared = s->grid.shared;
    float *amax = find_maxima(s);
    struct sw_error e;
    uint64_t total = 0;

    ck_assert_uint_eq(s->counters[3], s->tiles[3].bytes); /* zeros wait for nobody */
    ck_assert_msg(sw_executor_put(s->x, 0, &t, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(s->counters[0], shared ? 0 : s->tiles[0].bytes);
    ck_assert_uint_eq(s->counters[1], shared ? 0 : s->tiles[1].bytes);
    ck_assert_uint_eq(s->counters[2], s->tiles[2].bytes);
    for (uint64_t b = 0; b < s->blocks && shared; b++) {
        float *mine = &s->maxima[s->grid.first + b];

        ck_assert_msg(*mine == amax[b], "%a, must be %a", (double)*mine, (double)amax[b]);
        if (draw(2)) /* another rank has more */
            *mine = amax[b] = amax[b] * (1.0f + (float)draw(100) / 10) + (float)draw(2);
    }
    for (uint64_t i = 0; i <= s->program.n_maxima; i++)
        if (i < s->grid.first || i >= s->grid.first + s->blocks)
            ck_assert(s->maxima[i] == 77);
    ck_assert_msg(sw_executor_finish(s->x, &e) == 0, "%s", e.text);
    ck_assert_int_eq(sw_executor_finish(s->x, &e), 0); /* once more: nothing */
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(s->counters[i], s->tiles[i].bytes);
        total += s->tiles[i].bytes;
    }
    ck_assert_uint_eq(sw_executor_bytes(s->x), total);
    check_values(s, amax);
    check_scales(s, amax);
    check_gaps(s);
    free(amax);
}

START_TEST(any_program)
{
    for (uint32_t round = 0; round < 200; round++) {
        struct scene s;

        state = (uint64_t)_i << 32 | round;
        scene_start(&s, round % 8 == 0, false);
        put_and_check(&s);
        scene_end(&s);
    }
}
END_TEST

/* A value that is not finite fails the put, which counts nothing and can be repeated. */
START_TEST(non_finite_values_are_refused)
{
    static const float bad[3] = {NAN, INFINITY, -INFINITY};
    static const char *const names[3] = {"NaN", "inf", "-inf"};

    for (uint32_t round = 0; round < 200; round++) {
        uint64_t index[SW_MAX_DIMS] = {0};
        const uint32_t kind = draw(3);
        struct sw_error e = {0};
        char want[128], saved[4];
        struct sw_tensor t;
        struct scene s;
        uint32_t missing;
        size_t used = 0;

        scene_start(&s, round % 20 == 0, true);
        t = tensor_of(&s);
        for (uint32_t d = 0; d < s.source.ndim; d++) {
            index[d] = draw((uint32_t)s.source.box.len[d]);
            used += (size_t)snprintf(
                want + used, sizeof(want) - used, "%s%u", d ? ", " : "[", (unsigned)index[d]);
        }
        snprintf(want + used, sizeof(want) - used, "] of what was put is %s", names[kind]);
        memcpy(saved, element(&s, index), size_of(s.source.dtype));
        set(&s, element(&s, index), bad[kind]);
        ck_assert_int_eq(sw_executor_put(s.x, 0, &t, &e), SW_ERR_INVALID);
        ck_assert_msg(strstr(e.text, want) && strstr(e.text, "tensor w"), "%s (%s)", e.text, want);
        for (uint32_t i = 0; i < 3; i++)
            ck_assert_uint_eq(s.counters[i], 0);
        ck_assert_uint_eq(sw_executor_missing(s.x, &missing, 1), 1);
        ck_assert_int_eq(sw_executor_finish(s.x, &e), 0); /* nothing is held */
        ck_assert_uint_eq(s.counters[0], 0);
        memcpy(element(&s, index), saved, size_of(s.source.dtype));
        put_and_check(&s);
        ck_assert_int_eq(sw_executor_put(s.x, 0, &t, &e), SW_ERR_EXISTS);
        scene_end(&s);
    }
}
END_TEST

/* Maxima that come back as no numbers, or never; a version that was given up. */
START_TEST(maxima_that_are_wrong)
{
    static const float bad[3] = {NAN, INFINITY, -1};
    struct sw_error e = {0};
    struct sw_tensor t;
    float before;
    struct scene s;

    do {
        scene_start(&s, false, true);
        if (!s.grid.shared)
            scene_end(&s);
    } while (!s.grid.shared);
    t = tensor_of(&s);
    ck_assert_int_eq(sw_executor_put(s.x, 0, &t, &e), 0);
    before = s.maxima[s.grid.first];
    for (int i = 0; i < 3; i++) {
        s.maxima[s.grid.first] = bad[i];
        ck_assert_int_eq(sw_executor_finish(s.x, &e), SW_ERR_PROTOCOL);
        ck_assert(strstr(e.text, "tensor w"));
        ck_assert_uint_eq(s.counters[0], 0);
    }
    s.maxima[s.grid.first] = before;
    memset(s.counters, 0, sizeof(s.counters));
    sw_executor_begin(s.x, s.data, s.counters); /* the next one: nothing is held, nor put */
    ck_assert_int_eq(sw_executor_put(s.x, 0, &t, &e), SW_ERR_STATE); /* set_maxima was forgotten */
    ck_assert(strstr(e.text, "tensor w"));
    sw_executor_set_maxima(s.x, s.maxima, s.program.n_maxima);
    ck_assert_int_eq(sw_executor_finish(s.x, &e), 0);
    ck_assert_uint_eq(s.counters[0], 0);
    put_and_check(&s);
    scene_end(&s);
}
END_TEST

/* ---- many sources, put and finished by several threads ---- */

#define MANY 200u
#define ROWS 40u
#define COLUMNS 700u

/* Each source has rows 30 to 69 of a tensor of 128, so that its block goes on elsewhere. */
START_TEST(many_held_values)
{
    static uint16_t values[MANY][ROWS * COLUMNS];
    static struct sw_source sources[MANY];
    static struct sw_load loads[2 * MANY];
    static struct sw_grid grids[MANY];
    static struct sw_tile tiles[2 * MANY];
    static uint64_t counters[2 * MANY];
    static float maxima[MANY * 6];
    struct sw_load_template templates[2] = {
        {SW_TRANSFORM_FP8_VALUES, SW_BF16, SW_F8_E4M3, 2, {0}, {ROWS, COLUMNS}, {COLUMNS, 1}},
        {SW_TRANSFORM_FP8_SCALES, SW_BF16, SW_F32, 2, {0}, {1, 6}, {24, 4}}};
    struct sw_load_program p = {.replica_bytes = MANY * (ROWS * COLUMNS + 24),
        .n_maxima = MANY * 6,
        .templates = templates,
        .loads = loads,
        .grids = grids,
        .tiles = tiles};
    struct sw_loads *l = sw_loads_new();
    struct sw_executor *x;
    struct sw_error e;
    char *data;

    p.n_templates = p.total_templates = 2;
    p.n_loads = p.total_loads = p.n_tiles = p.total_tiles = 2 * MANY;
    p.n_grids = p.total_grids = MANY;
    for (uint32_t i = 0; i < MANY; i++) {
        sources[i] =
            (struct sw_source){"w", SW_BF16, 2, {128, COLUMNS}, {2, {30, 0}, {ROWS, COLUMNS}}};
        grids[MANY - 1 - i] = (struct sw_grid){i, {128, 128}, SW_SCALE_FP32, 1, 6ull * i};
        loads[2 * i] = (struct sw_load){i, 0, 2 * i, MANY - 1 - i, 0};
        loads[2 * i + 1] = (struct sw_load){i, 1, 2 * i + 1, MANY - 1 - i, 0};
        tiles[2 * i] = (struct sw_tile){(uint64_t)i * ROWS * COLUMNS, ROWS * COLUMNS};
        tiles[2 * i + 1] = (struct sw_tile){(uint64_t)MANY * ROWS * COLUMNS + i * 24ull, 24};
        for (uint32_t k = 0; k < ROWS * COLUMNS; k++)
            values[i][k] = (uint16_t)(0x3c00 + draw(0x300) + (draw(2) << 15));
    }
    ck_assert_msg(sw_loads_add(l, &p, &e) == 0, "%s", e.text);
    ck_assert_msg(sw_loads_check(l, sources, MANY, &e) == 0, "%s", e.text);
    data = malloc(p.replica_bytes);
    x = sw_executor_new(l, sources, 4);
    sw_executor_begin(x, data, counters);
    sw_executor_set_maxima(x, maxima, MANY * 6);
    for (uint32_t i = 0; i < MANY; i++) {
        const struct sw_tensor t = {values[i], SW_BF16, 2, {ROWS, COLUMNS}};

        ck_assert_int_eq(sw_executor_put(x, i, &t, &e), 0);
    }
    ck_assert_int_eq(sw_executor_finish(x, &e), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        float amax[6] = {0};
        uint32_t bad = 0;

        for (uint32_t k = 0; k < ROWS * COLUMNS; k++) {
            const float a = fabsf(sw_cast_widen(SW_BF16, &values[i][k]));

            amax[k % COLUMNS / 128] = a > amax[k % COLUMNS / 128] ? a : amax[k % COLUMNS / 128];
        }
        for (uint32_t k = 0; k < ROWS * COLUMNS; k++)
            bad += (uint8_t)data[tiles[2 * i].offset + k] !=
                   fp8_of(sw_cast_widen(SW_BF16, &values[i][k]),
                       fp8_scale(SW_SCALE_FP32, amax[k % COLUMNS / 128]));
        ck_assert_uint_eq(bad, 0);
        ck_assert_uint_eq(counters[2 * i], tiles[2 * i].bytes);
        ck_assert_uint_eq(counters[2 * i + 1], 24);
    }
    sw_executor_free(x);
    sw_loads_free(l);
    free(data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fp8");
    TCase *c = tcase_create("programs");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(c, any_program, 0, 4);
    tcase_add_test(c, non_finite_values_are_refused);
    tcase_add_test(c, maxima_that_are_wrong);
    tcase_add_test(c, many_held_values);
    tcase_set_timeout(c, 240);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
