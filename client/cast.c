/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cast.h"

#include <stddef.h>
#include <string.h>
#include "client/kernels.h"

/* ---- bits of one number ---- */

static uint32_t quiet(uint32_t f32)
{
    return (f32 & 0x7fffffffu) > 0x7f800000u ? f32 | 0x400000u : f32;
}

static uint32_t from_bf16(uint16_t b)
{
    return quiet((uint32_t)b << 16);
}

static uint16_t to_bf16(uint32_t f32)
{
    if ((f32 & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(quiet(f32) >> 16);
    return (uint16_t)((f32 + 0x7fffu + (f32 >> 16 & 1)) >> 16);
}

static uint32_t from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31;
    uint32_t mantissa = h & 0x3ff, shift = 0;

    if (exponent == 31)
        return quiet(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return sign | (exponent + 112) << 23 | mantissa << 13;
    if (!mantissa)
        return sign;
    while (!(mantissa & 0x400)) { /* subnormal there, normal here */
        mantissa <<= 1;
        shift++;
    }
    return sign | (113 - shift) << 23 | (mantissa & 0x3ff) << 13;
}

static uint16_t to_f16(uint32_t f32)
{
    const uint16_t sign = (uint16_t)(f32 >> 16 & 0x8000);
    const uint32_t a = f32 & 0x7fffffffu, exponent = a >> 23;

    if (a > 0x7f800000u)
        return sign | 0x7e00 | (uint16_t)(a >> 13 & 0x3ff);
    if (exponent >= 143) /* 65536 and more */
        return sign | 0x7c00;
    if (exponent >= 113) /* a carry goes into the exponent, at the end to infinity */
        return sign | (uint16_t)(kernel_shift_even(a, 13) - (112u << 10));
    if (exponent < 102) /* less than half of the smallest */
        return sign;
    return sign | (uint16_t)kernel_shift_even((a & 0x7fffff) | 0x800000, 126 - exponent);
}

/* ---- memory ---- */

static unsigned size_of(enum sw_dtype dtype)
{
    return dtype == SW_F32 ? 4 : 2;
}

static uint32_t load(enum sw_dtype from, const char *src)
{
    uint32_t f32;
    uint16_t half;

    if (from == SW_F32) {
        memcpy(&f32, src, sizeof(f32));
        return f32;
    }
    memcpy(&half, src, sizeof(half));
    return from == SW_BF16 ? from_bf16(half) : from_f16(half);
}

static void store(enum sw_dtype to, char *dst, uint32_t f32)
{
    uint16_t half;

    if (to == SW_F32) {
        memcpy(dst, &f32, sizeof(f32));
        return;
    }
    half = to == SW_BF16 ? to_bf16(f32) : to_f16(f32);
    memcpy(dst, &half, sizeof(half));
}

float sw_cast_widen(enum sw_dtype from, const void *src)
{
    const uint32_t bits = load(from, src);
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline bool run(void *dst, const void *src, uint64_t n, enum sw_dtype from, enum sw_dtype to)
{
    const char *s = src;
    char *d = dst;
    uint32_t most = 0;

    for (uint64_t i = 0; i < n; i++) {
        const uint32_t f32 = load(from, s + i * size_of(from));

        most = (f32 & 0x7fffffffu) > most ? f32 & 0x7fffffffu : most;
        store(to, d + i * size_of(to), f32);
    }
    return most < 0x7f800000u;
}

#define CAST(from, to)                                                                             \
    static bool from##_to_##to(void *dst, const void *src, uint64_t n, bool stream)                \
    {                                                                                              \
        (void)stream;                                                                              \
        return run(dst, src, n, SW_##from, SW_##to);                                               \
    }
CAST(F32, BF16)
CAST(F32, F16)
CAST(BF16, F32)
CAST(BF16, F16)
CAST(F16, F32)
CAST(F16, BF16)
#undef CAST

static const struct kernel_casts scalar = {
    F32_to_BF16, F32_to_F16, BF16_to_F32, BF16_to_F16, F16_to_F32, F16_to_BF16};

sw_cast_fn *sw_cast_find(enum sw_isa isa, enum sw_dtype from, enum sw_dtype to)
{
    const struct kernel_casts *k = &scalar;

    if (!sw_isa_has(isa))
        return NULL;
#if SW_ISA_X86
    if (isa == SW_ISA_AVX2)
        k = &kernel_casts_avx2;
    if (isa == SW_ISA_AVX512)
        k = &kernel_casts_avx512;
#endif
    if (from == SW_F32)
        return to == SW_BF16 ? k->f32_bf16 : to == SW_F16 ? k->f32_f16 : NULL;
    if (from == SW_BF16)
        return to == SW_F32 ? k->bf16_f32 : to == SW_F16 ? k->bf16_f16 : NULL;
    if (from == SW_F16)
        return to == SW_F32 ? k->f16_f32 : to == SW_BF16 ? k->f16_bf16 : NULL;
    return NULL;
}
