/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "client/cast.h"
#include "client/quantise.h"
#include "client/test_fp8.h"

#define ALL 65536u

static const enum sw_dtype types[3] = {SW_BF16, SW_F16, SW_F32};

static unsigned size_of(enum sw_dtype t)
{
    return t == SW_F32 ? 4 : 2;
}

static uint64_t state = 88172645463325252u;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Less than n, which is more than 0. */
static uint32_t below(uint64_t n)
{
    ck_assert_uint_gt(n, 0);
    return (uint32_t)(draw() % n);
}

/* ---- one row with one scale ---- */

static void values_of(
    unsigned isa, enum sw_dtype t, const void *in, uint64_t n, float inverse, uint8_t *out)
{
    const struct sw_panel p = {.src = in, .rows = 1, .columns = n, .first = n, .block = n};

    sw_quantiser_find(isa, t)->values(&p, &inverse, (char *)out, 0, isa % 2, NULL);
}

static void compare(enum sw_dtype t, const void *in, uint64_t n, float scale, bool by_oracle)
{
    const float inverse = 1.0f / scale;
    static uint8_t want[ALL], out[ALL];

    ck_assert_uint_le(n, ALL);
    values_of(SW_ISA_SCALAR, t, in, n, inverse, want);
    for (uint64_t i = 0; i < n && by_oracle; i++) {
        const float x = sw_cast_widen(t, (const char *)in + i * size_of(t));

        if (isfinite(x) && want[i] != fp8_of(x, scale))
            ck_abort_msg("%s %a by %a: %02x, must be %02x", sw_dtype_name(t), (double)x,
                (double)scale, want[i], fp8_of(x, scale));
    }
    for (unsigned isa = 1; isa < SW_ISA_COUNT; isa++) {
        if (!sw_quantiser_find(isa, t))
            continue;
        values_of(isa, t, in, n, inverse, out);
        for (uint64_t i = 0; i < n; i++) {
            const float x = sw_cast_widen(t, (const char *)in + i * size_of(t));

            if (isfinite(x) && want[i] != out[i])
                ck_abort_msg("%s: %s %a by %a: %02x, scalar %02x", sw_isa_name(isa),
                    sw_dtype_name(t), (double)x, (double)inverse, out[i], want[i]);
        }
    }
}

static uint16_t every[ALL];

static void setup(void)
{
    for (uint32_t i = 0; i < ALL; i++)
        every[i] = (uint16_t)i;
}

/* Scales of blocks of every magnitude: each finite BF16 maximum's own, for all BF16 and F16 values.
 */
START_TEST(every_half_by_many_scales)
{
    for (uint32_t top = _i * 0x1000u; top < 0x7f80 && top < (_i + 1) * 0x1000u; top += 61) {
        const uint16_t code = (uint16_t)top;
        const float amax = sw_cast_widen(SW_BF16, &code);

        compare(SW_BF16, every, ALL, sw_scale_of(SW_SCALE_FP32, amax), top % 5 == 0);
        compare(SW_BF16, every, ALL, sw_scale_of(SW_SCALE_UE8M0, amax), top % 5 == 1);
        compare(SW_F16, every, ALL, sw_scale_of(SW_SCALE_FP32, amax), top % 5 == 2);
        compare(SW_F16, every, ALL, sw_scale_of(SW_SCALE_UE8M0, amax), top % 5 == 3);
    }
}
END_TEST

/* Every value of E4M3, every middle between two, and what lies beside it, by powers of two. */
START_TEST(every_tie)
{
    for (int power = -20; power <= 20; power++) {
        float in[127 * 5 * 2];
        unsigned n = 0;

        for (unsigned code = 0; code < 127; code++) {
            const float exact = (float)ldexp(fp8_value(code), power);
            const float middle = code < 126 ? (float)ldexp(fp8_middle(code), power) : exact;

            for (int sign = 0; sign < 2; sign++) {
                const float all[5] = {exact, middle, nextafterf(middle, 0),
                    nextafterf(middle, INFINITY), nextafterf(exact, INFINITY)};

                for (int i = 0; i < 5; i++)
                    in[n++] = sign ? -all[i] : all[i];
            }
        }
        compare(SW_F32, in, n, (float)ldexp(1, power), true);
    }
}
END_TEST

START_TEST(random_singles)
{
    float *in = malloc(ALL * sizeof(*in));

    for (int round = 0; round < 40; round++) {
        float amax = 0;
        float scale;

        for (uint32_t i = 0; i < ALL; i++) {
            const uint32_t bits = draw();

            if (round % 2) {
                in[i] = ldexpf((float)(int32_t)bits, round - 40);
            } else {
                memcpy(&in[i], &bits, 4);
                in[i] = isfinite(in[i]) ? in[i] : 0;
            }
            amax = fabsf(in[i]) > amax ? fabsf(in[i]) : amax;
        }
        scale = sw_scale_of(round % 3 ? SW_SCALE_FP32 : SW_SCALE_UE8M0, amax);
        compare(SW_F32, in, ALL, scale, true);
        compare(SW_F32, in, ALL, sw_scale_of(SW_SCALE_FP32, 1.0f), true);
    }
    free(in);
}
END_TEST

START_TEST(scales)
{
    for (uint32_t i = 0; i < 3000000; i++) {
        const uint32_t bits = i < 2000000 ? draw() & 0x7fffffff : 0x43600000u + i - 2500000;
        float amax;

        memcpy(&amax, &bits, 4);
        if (!isfinite(amax))
            continue;
        if (sw_scale_of(SW_SCALE_FP32, amax) != fp8_scale(SW_SCALE_FP32, amax) ||
            sw_scale_of(SW_SCALE_UE8M0, amax) != fp8_scale(SW_SCALE_UE8M0, amax))
            ck_abort_msg("scale of %a", (double)amax);
    }
    for (int power = -126; power < 128; power++)
        ck_assert_uint_eq(sw_scale_e8m0((float)ldexp(1, power)), power + 127);
    ck_assert_float_eq(sw_scale_of(SW_SCALE_UE8M0, 448.0f), 1.0f);
    ck_assert_float_eq(sw_scale_of(SW_SCALE_UE8M0, 449.0f), 2.0f);
    ck_assert_float_eq(sw_scale_of(SW_SCALE_UE8M0, 0), (float)ldexp(1, -22));
    ck_assert_float_eq(sw_scale_of(SW_SCALE_FP32, 0), 1e-10f / 448.0f);
    ck_assert(isfinite(1.0f / sw_scale_of(SW_SCALE_FP32, 0)));
}
END_TEST

/* ---- panels ---- */

struct shape {
    struct sw_panel p;
    uint32_t n;
    enum sw_dtype type;
    char *memory;
};

static void random_panel(struct shape *s)
{
    uint64_t stride, start;

    s->type = types[draw() % 3];
    s->p = (struct sw_panel){.rows = 1 + draw() % 6, .block = 1 + draw() % 150};
    s->p.first = 1 + draw() % s->p.block;
    s->p.columns = 1 + draw() % (s->p.first + 31 * s->p.block);
    s->n = sw_panel_blocks(&s->p);
    ck_assert_uint_le(s->n, SW_PANEL_BLOCKS);
    stride = s->p.columns * size_of(s->type) + draw() % 50;
    start = draw() % 70;
    s->memory = malloc(start + s->p.rows * stride);
    for (uint64_t i = 0; i < start + s->p.rows * stride; i++)
        s->memory[i] = (char)draw();
    s->p.src = s->memory + start;
    s->p.stride = (int64_t)stride;
    if (draw() % 2) { /* upside down */
        s->p.src += (int64_t)(s->p.rows - 1) * s->p.stride;
        s->p.stride = -s->p.stride;
    }
    s->p.next = draw() % 2 ? s->p.src : NULL;
    for (uint64_t r = 0; r < s->p.rows; r++) /* finite ones */
        for (uint64_t c = 0; c < s->p.columns; c++) {
            char *at = s->memory + (s->p.src - s->memory) + (int64_t)r * s->p.stride +
                       (int64_t)(c * size_of(s->type));

            if (!isfinite(sw_cast_widen(s->type, at)))
                memset(at, 0x11, size_of(s->type));
        }
}

static uint32_t block_of(const struct sw_panel *p, uint64_t column)
{
    return column < p->first ? 0 : (uint32_t)(1 + (column - p->first) / p->block);
}

static const char *at_of(const struct shape *s, uint64_t r, uint64_t c)
{
    return s->p.src + (int64_t)r * s->p.stride + (int64_t)(c * size_of(s->type));
}

START_TEST(panels)
{
    for (int round = 0; round < 1500; round++) {
        float want[SW_PANEL_BLOCKS] = {0}, got[SW_PANEL_BLOCKS] = {0};
        float inverse[SW_PANEL_BLOCKS] = {0}, scale[SW_PANEL_BLOCKS] = {0};
        const unsigned isa = draw() % SW_ISA_COUNT;
        const struct sw_quantiser *q;
        uint64_t stride, bytes;
        struct shape s;
        uint8_t *out;

        random_panel(&s);
        q = sw_quantiser_find(isa, s.type);
        stride = s.p.columns + draw() % 70;
        bytes = 70 + stride * s.p.rows;
        out = malloc(bytes);
        memset(out, 0x5a, bytes);
        for (uint64_t r = 0; r < s.p.rows; r++)
            for (uint64_t c = 0; c < s.p.columns; c++) {
                const float x = fabsf(sw_cast_widen(s.type, at_of(&s, r, c)));
                const uint32_t b = block_of(&s.p, c);

                want[b] = x > want[b] ? x : want[b];
            }
        if (q) {
            const unsigned at = draw() % 70;

            ck_assert(q->maxima(&s.p, got));
            for (uint32_t b = 0; b < s.n; b++) {
                ck_assert(want[b] == got[b]);
                scale[b] = sw_scale_of(SW_SCALE_FP32, got[b]);
                inverse[b] = 1.0f / scale[b];
            }
            for (uint32_t b = 0; b < s.n; b++)
                got[b] = -1;
            ck_assert(q->values(&s.p, inverse, (char *)out + at, (int64_t)stride, round % 2,
                round % 3 ? got : NULL));
            for (uint32_t b = 0; b < s.n; b++) /* the next panel is the same one */
                ck_assert(got[b] == (s.p.next && round % 3 ? want[b] : -1));
            for (uint64_t i = 0; i < bytes; i++) {
                const uint64_t r = i < at ? s.p.rows : (i - at) / stride, c = (i - at) % stride;

                const uint8_t must =
                    r < s.p.rows && c < s.p.columns
                        ? fp8_of(sw_cast_widen(s.type, at_of(&s, r, c)), scale[block_of(&s.p, c)])
                        : 0x5a;

                if (out[i] != must)
                    ck_abort_msg("%s: byte %u is %02x, must be %02x", sw_isa_name(isa), (unsigned)i,
                        out[i], must);
            }
        }
        free(out);
        free(s.memory);
    }
}
END_TEST

START_TEST(non_finite_is_noticed)
{
    for (int round = 0; round < 3000; round++) {
        static const uint32_t bad[3][4] = {{0x7f80, 0xff80, 0x7fc0, 0xff81},
            {0x7c00, 0xfc00, 0x7e00, 0xfc01}, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001}};
        const unsigned isa = draw() % SW_ISA_COUNT;
        const struct sw_quantiser *q;
        float amax[SW_PANEL_BLOCKS];
        struct shape s;
        unsigned type;

        random_panel(&s);
        type = s.type == SW_BF16 ? 0 : s.type == SW_F16 ? 1 : 2;
        q = sw_quantiser_find(isa, s.type);
        memcpy(s.memory + (at_of(&s, below(s.p.rows), below(s.p.columns)) - s.memory),
            &bad[type][draw() % 4], size_of(s.type));
        ck_assert(!q || !q->maxima(&s.p, amax));
        if (q && s.p.next) {
            float inverse[SW_PANEL_BLOCKS] = {0};
            char *out = malloc(s.p.rows * s.p.columns);

            ck_assert(!q->values(&s.p, inverse, out, (int64_t)s.p.columns, round % 2, amax));
            free(out);
        }
        free(s.memory);
    }
}
END_TEST

/* A program that rounds otherwise doesn't change what engines get. */
START_TEST(rounding_is_to_nearest)
{
    int before;

    ck_assert_int_eq(fesetround(FE_UPWARD), 0);
    before = sw_quantise_enter();
    compare(SW_BF16, every, ALL, sw_scale_of(SW_SCALE_FP32, 3.0f), true);
    ck_assert_int_eq(fegetround(), FE_TONEAREST);
    sw_quantise_leave(before);
    ck_assert_int_eq(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    before = sw_quantise_enter();
    sw_quantise_leave(before);
    ck_assert_int_eq(fegetround(), FE_TONEAREST);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quantise");
    TCase *c = tcase_create("quantise");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_loop_test(c, every_half_by_many_scales, 0, 8);
    tcase_add_test(c, every_tie);
    tcase_add_test(c, random_singles);
    tcase_add_test(c, scales);
    tcase_add_test(c, panels);
    tcase_add_test(c, non_finite_is_noticed);
    tcase_add_test(c, rounding_is_to_nearest);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
