/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "client/cast.h"

#define ALL 65536u

static const enum sw_dtype types[3] = {SW_F32, SW_BF16, SW_F16};

static unsigned size_of(enum sw_dtype t)
{
    return t == SW_F32 ? 4 : 2;
}

/* ---- an oracle that knows the formats by their numbers only ---- */

static double value16(enum sw_dtype t, uint32_t code) /* finite ones */
{
    const int bits = t == SW_BF16 ? 7 : 10, bias = t == SW_BF16 ? 127 : 15;
    const uint32_t magnitude = code & 0x7fff, exponent = magnitude >> bits;
    const double mantissa = magnitude & ((1u << bits) - 1);
    const double m = exponent ? ldexp(mantissa + (double)(1 << bits), (int)exponent - bias - bits)
                              : ldexp(mantissa, 1 - bias - bits);

    return code & 0x8000 ? -m : m;
}

static uint32_t infinite16(enum sw_dtype t)
{
    return t == SW_BF16 ? 0x7f80 : 0x7c00;
}

static double value32(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, 4);
    return (double)f;
}

/* The code nearest to a finite number, by search; the even one in the middle. */
static uint32_t nearest16(enum sw_dtype t, uint32_t f32)
{
    const double a = fabs(value32(f32));
    const uint32_t sign = f32 >> 16 & 0x8000;
    uint32_t low = 0, high = infinite16(t); /* low's value <= a; high: the next power of two */
    double below, above;

    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;

        if (value16(t, middle) <= a)
            low = middle;
        else
            high = middle;
    }
    below = a - value16(t, low);
    above = value16(t, high) - a; /* of the infinite code: as if the exponent went on */
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

static bool is_nan(enum sw_dtype t, uint32_t bits)
{
    return t == SW_F32 ? (bits & 0x7fffffff) > 0x7f800000 : (bits & 0x7fff) > infinite16(t);
}

static bool is_finite(enum sw_dtype t, uint32_t bits)
{
    return t == SW_F32 ? (bits & 0x7f800000) != 0x7f800000
                       : (bits & infinite16(t)) != infinite16(t);
}

static uint32_t to_f32(enum sw_dtype from, uint32_t bits)
{
    const uint32_t sign = from == SW_F32 ? bits & 0x80000000u : (bits & 0x8000) << 16;
    float f;

    if (from == SW_F32)
        return bits;
    if (!is_finite(from, bits) && !is_nan(from, bits))
        return sign | 0x7f800000;
    f = (float)value16(from, bits);
    memcpy(&bits, &f, 4);
    return bits;
}

static void check_one(
    enum sw_dtype from, enum sw_dtype to, uint32_t in, uint32_t out, const char *isa)
{
    const unsigned in_bits = from == SW_F32 ? 32 : 16, out_bits = to == SW_F32 ? 32 : 16;
    const uint32_t quiet = to == SW_F32 ? 0x400000 : to == SW_BF16 ? 0x40 : 0x200;
    uint32_t want;

    if (is_nan(from, in)) {
        ck_assert_msg(
            is_nan(to, out) && (out & quiet) && in >> (in_bits - 1) == out >> (out_bits - 1),
            "%s: NaN %x became %x", isa, in, out);
        return;
    }
    want = to_f32(from, in);
    if (to != SW_F32)
        want =
            is_finite(SW_F32, want) ? nearest16(to, want) : (want >> 16 & 0x8000) | infinite16(to);
    ck_assert_msg(want == out, "%s: %s %x to %s: %x, must be %x", isa, sw_dtype_name(from), in,
        sw_dtype_name(to), out, want);
}

static uint32_t get(enum sw_dtype t, const void *at, uint64_t i)
{
    uint32_t bits = 0;

    memcpy(&bits, (const char *)at + i * size_of(t), size_of(t)); /* little-endian */
    return bits;
}

/* ---- tests ---- */

static uint64_t state = 88172645463325252u;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Every one of 16 bits; of 32 bits every tie of both formats and its neighbours, and random ones.
 */
static uint64_t inputs(enum sw_dtype from, void **out)
{
    uint64_t n = 0;
    uint32_t *wide;
    uint16_t *half;

    if (from != SW_F32) {
        half = malloc(ALL * sizeof(*half));
        for (uint32_t i = 0; i < ALL; i++)
            half[i] = (uint16_t)i;
        *out = half;
        return ALL;
    }
    wide = malloc(20ull * ALL * sizeof(*wide));
    for (uint32_t t = 1; t < 3; t++)
        for (uint32_t i = 0; i + 1 < ALL; i++) {
            float f = 0;

            if (is_finite(types[t], i) && is_finite(types[t], i + 1))
                f = (float)((value16(types[t], i) + value16(types[t], i + 1)) / 2);
            for (int k = -1; k <= 1; k++) {
                memcpy(&wide[n], &f, 4);
                wide[n++] += (uint32_t)k;
            }
        }
    while (n < 20ull * ALL)
        wide[n++] = draw();
    for (uint32_t i = 0; i < 3000; i++) /* around the largest ones, the smallest ones, NaNs */
        wide[i * 7] = (i % 3 == 0      ? 0x477fe000u
                          : i % 3 == 1 ? 0x7f7f0000u
                                       : 0x7f800000u) +
                      i * 5 % 20000 - 10000;
    *out = wide;
    return n;
}

START_TEST(casts_are_right)
{
    for (int a = 0; a < 3; a++) {
        void *in;
        const uint64_t n = inputs(types[a], &in);
        void *out = malloc(n * 4), *want = malloc(n * 4);

        for (int b = 0; b < 3; b++) {
            for (unsigned isa = 0; isa < SW_ISA_COUNT && a != b; isa++) {
                sw_cast_fn *cast = sw_cast_find(isa, types[a], types[b]);

                if (!cast)
                    continue;
                memset(out, 0xee, n * 4);
                ck_assert(!cast(out, in, n, isa % 2));
                if (isa == SW_ISA_SCALAR) {
                    memcpy(want, out, n * size_of(types[b]));
                    for (uint64_t i = 0; i < n; i++)
                        check_one(types[a], types[b], get(types[a], in, i), get(types[b], out, i),
                            sw_isa_name(isa));
                }
                for (uint64_t i = 0; i < n; i++)
                    if (get(types[b], out, i) != get(types[b], want, i))
                        ck_abort_msg("%s: %s %x to %s: %x, scalar %x", sw_isa_name(isa),
                            sw_dtype_name(types[a]), get(types[a], in, i), sw_dtype_name(types[b]),
                            get(types[b], out, i), get(types[b], want, i));
            }
        }
        free(in);
        free(out);
        free(want);
    }
}
END_TEST

/* Any length, any place, past the caches or not: nothing beside it is touched. */
START_TEST(lengths_and_places)
{
    char in[1200], out[1200], want[1200];

    for (unsigned round = 0; round < 20000; round++) {
        const enum sw_dtype from = types[draw() % 3], to = types[draw() % 3];
        const unsigned isa = draw() % SW_ISA_COUNT, n = draw() % 200;
        const unsigned at = draw() % 200, start = draw() % 200;
        sw_cast_fn *cast = sw_cast_find(isa, from, to);

        if (!cast)
            continue;
        for (unsigned i = 0; i < sizeof(in); i++)
            in[i] = (char)(draw() % 3 ? draw() : 0x11);
        memset(out, 0x5a, sizeof(out));
        memset(want, 0x5a, sizeof(want));
        ck_assert(cast(out + at, in + start, n, round % 2) ==
                  sw_cast_find(SW_ISA_SCALAR, from, to)(want + at, in + start, n, false));
        ck_assert_mem_eq(out, want, sizeof(out));
    }
}
END_TEST

/* One value that is not finite is noticed wherever it lies. */
START_TEST(non_finite_is_noticed)
{
    char in[100 * 4], out[100 * 4];

    for (unsigned isa = 0; isa < SW_ISA_COUNT; isa++)
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) {
                const enum sw_dtype t = types[a];
                const uint32_t most = t == SW_F32 ? 0xff7fffff : 0x8000 | (infinite16(t) - 1);
                const uint32_t bad[3] = {
                    most + 1, most + 2, most - (t == SW_F32 ? 1u << 31 : 0x8000) + 1};
                sw_cast_fn *cast = sw_cast_find(isa, t, types[b]);

                for (unsigned i = 0; i < 100 && cast; i++) {
                    for (unsigned k = 0; k < 100; k++)
                        memcpy(in + k * size_of(t), &most, size_of(t));
                    ck_assert(cast(out, in, 100, false));
                    memcpy(in + i * size_of(t), &bad[i % 3], size_of(t));
                    ck_assert(!cast(out, in, 100, false));
                    ck_assert(!cast(out, in, i + 1, true));
                    ck_assert(cast(out, in, i, true));
                }
            }
}
END_TEST

START_TEST(casts_there_are)
{
    ck_assert(sw_isa_has(SW_ISA_SCALAR) && sw_isa_has(sw_isa_best()));
    ck_assert(!sw_cast_find(SW_ISA_SCALAR, SW_F32, SW_F32));
    ck_assert(!sw_cast_find(SW_ISA_SCALAR, SW_F32, SW_F64));
    ck_assert(!sw_cast_find(SW_ISA_SCALAR, SW_U8, SW_F32));
    ck_assert(!sw_cast_find(SW_ISA_COUNT, SW_F32, SW_BF16));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cast");
    TCase *c = tcase_create("cast");
    SRunner *runner;
    int failed;

    tcase_add_test(c, casts_are_right);
    tcase_add_test(c, lengths_and_places);
    tcase_add_test(c, non_finite_is_noticed);
    tcase_add_test(c, casts_there_are);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
