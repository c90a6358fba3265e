/* SPDX-License-Identifier: Apache-2.0 */
#include "client/quantise.h"

#include <fenv.h>
#include <stddef.h>
#include <string.h>
#include "client/kernels.h"

#define INFINITE 0x7f800000u

static uint32_t bits_of(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* ---- scales ---- */

float sw_scale_of(enum sw_scale_format format, float amax)
{
    const float floor = format == SW_SCALE_UE8M0 ? 1e-4f : 1e-10f;
    const float ratio = (amax > floor ? amax : floor) / 448.0f;
    uint32_t bits;

    if (format != SW_SCALE_UE8M0)
        return ratio;
    bits = bits_of(ratio); /* the next power of two: never a subnormal, never infinite */
    return float_of((bits + 0x7fffffu) & INFINITE);
}

uint8_t sw_scale_e8m0(float scale)
{
    return (uint8_t)(bits_of(scale) >> 23);
}

int sw_quantise_enter(void)
{
    const int before = fegetround();

    if (before != FE_TONEAREST)
        fesetround(FE_TONEAREST);
    return before;
}

void sw_quantise_leave(int before)
{
    if (before != FE_TONEAREST)
        fesetround(before);
}

/* ---- the reference ---- */

/* Of a magnitude up to 448. */
static uint8_t e4m3(uint32_t magnitude)
{
    const uint32_t exponent = magnitude >> 23;

    if (exponent >= 121) /* a normal number there: 2^-6 and more; a carry goes into the exponent */
        return (uint8_t)(kernel_shift_even(magnitude, 20) - (120u << 3));
    if (exponent < 117) /* less than half of 2^-9, the step of subnormal numbers */
        return 0;
    return (uint8_t)kernel_shift_even((magnitude & 0x7fffffu) | 0x800000u, 141 - exponent);
}

static uint8_t value_of(float x, float inverse)
{
    const uint32_t y = bits_of(x * inverse), most = bits_of(448.0f);
    const uint32_t magnitude = y & 0x7fffffffu;

    return (uint8_t)(y >> 24 & 0x80) | e4m3(magnitude < most ? magnitude : most);
}

static inline bool maxima(const struct sw_panel *p, float *amax, enum sw_dtype from, unsigned size)
{
    const uint32_t n = sw_panel_blocks(p);
    uint32_t most[SW_PANEL_BLOCKS] = {0}, any = 0;

    for (uint64_t r = 0; r < p->rows; r++) {
        const char *src = p->src + (int64_t)r * p->stride;
        uint64_t end = p->first;

        for (uint64_t c = 0, b = 0; c < p->columns; c++) {
            uint32_t bits;

            if (c == end) {
                end += p->block;
                b++;
            }
            bits = bits_of(sw_cast_widen(from, src + c * size)) & 0x7fffffffu;
            most[b] = bits > most[b] ? bits : most[b];
        }
    }
    for (uint32_t b = 0; b < n; b++) {
        amax[b] = float_of(most[b]);
        any = most[b] > any ? most[b] : any;
    }
    return any < INFINITE;
}

static inline bool values(const struct sw_panel *p, const float *inverse, char *dst,
    int64_t dst_stride, float *amax, enum sw_dtype from, unsigned size)
{
    struct sw_panel next = *p;

    next.src = p->next;
    for (uint64_t r = 0; r < p->rows; r++) {
        const char *src = p->src + (int64_t)r * p->stride;
        uint8_t *to = (uint8_t *)dst + (int64_t)r * dst_stride;
        uint64_t end = p->first;

        for (uint64_t c = 0, b = 0; c < p->columns; c++) {
            if (c == end) {
                end += p->block;
                b++;
            }
            to[c] = value_of(sw_cast_widen(from, src + c * size), inverse[b]);
        }
    }
    return !p->next || !amax || maxima(&next, amax, from, size);
}

#define QUANTISER(from, size)                                                                      \
    static bool maxima_##from(const struct sw_panel *p, float *amax)                               \
    {                                                                                              \
        return maxima(p, amax, SW_##from, size);                                                   \
    }                                                                                              \
    static bool values_##from(const struct sw_panel *p, const float *inverse, char *dst,           \
        int64_t dst_stride, bool stream, float *amax)                                              \
    {                                                                                              \
        (void)stream;                                                                              \
        return values(p, inverse, dst, dst_stride, amax, SW_##from, size);                         \
    }                                                                                              \
    static const struct sw_quantiser scalar_##from = {maxima_##from, values_##from};
QUANTISER(BF16, 2)
QUANTISER(F16, 2)
QUANTISER(F32, 4)
#undef QUANTISER

const struct sw_quantiser *sw_quantiser_find(enum sw_isa isa, enum sw_dtype from)
{
    static const struct sw_quantiser *const all[SW_ISA_COUNT][3] = {
        {&scalar_BF16, &scalar_F16, &scalar_F32},
#if SW_ISA_X86
        {&kernel_bf16_avx2, &kernel_f16_avx2, &kernel_f32_avx2},
        {&kernel_bf16_avx512, &kernel_f16_avx512, &kernel_f32_avx512},
#endif
    };

    if (!sw_isa_has(isa))
        return NULL;
    return from == SW_BF16  ? all[isa][0]
           : from == SW_F16 ? all[isa][1]
           : from == SW_F32 ? all[isa][2]
                            : NULL;
}
