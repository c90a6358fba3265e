/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kernels.h"

#if SW_ISA_X86
#include <immintrin.h>
#include <string.h>

#define VECTOR __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE static inline __attribute__((always_inline)) VECTOR
#define LINE 64u
#define ROWS_AHEAD 4 /* of the row whose maxima are found, fetched from memory */
#define INFINITE 0x7f800000

/* ---- numbers: 16 at a time, as single precision ---- */

INLINE __m512i quiet(__m512i f)
{
    const __m512i magnitude = _mm512_and_si512(f, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(INFINITE));

    return _mm512_mask_or_epi32(f, nan, f, _mm512_set1_epi32(0x400000));
}

INLINE __m512i widen(enum sw_dtype from, __m256i half)
{
    if (from == SW_F16)
        return _mm512_castps_si512(_mm512_cvtph_ps(half));
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

INLINE __m512i load16(enum sw_dtype from, const char *src, __mmask16 mask)
{
    if (from == SW_F32)
        return _mm512_maskz_loadu_epi32(mask, src);
    return widen(from, _mm256_maskz_loadu_epi16(mask, src));
}

INLINE __m256i narrow(enum sw_dtype to, __m512i f)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(f, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i magnitude = _mm512_and_si512(f, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 finite = _mm512_cmple_epi32_mask(magnitude, _mm512_set1_epi32(INFINITE));

    if (to == SW_F16)
        return _mm512_cvtps_ph(_mm512_castsi512_ps(f), _MM_FROUND_TO_NEAREST_INT);
    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_mask_add_epi32(quiet(f), finite, f, up), 16));
}

/* ---- casts ---- */

INLINE unsigned size_of(enum sw_dtype dtype)
{
    return dtype == SW_F32 ? 4 : 2;
}

INLINE __m512i cast16(enum sw_dtype from, enum sw_dtype to, char *dst, const char *src,
    __mmask16 mask, bool stream, __m512i most)
{
    __m512i f = load16(from, src, mask);

    most = _mm512_max_epu32(most, _mm512_and_si512(f, _mm512_set1_epi32(0x7fffffff)));
    if (to == SW_F32) {
        f = from == SW_BF16 ? quiet(f) : f; /* the conversion from F16 did that */
        if (stream)
            _mm512_stream_si512((void *)dst, f);
        else
            _mm512_mask_storeu_epi32(dst, mask, f);
    } else if (stream) {
        _mm256_stream_si256((void *)dst, narrow(to, f));
    } else {
        _mm256_mask_storeu_epi16(dst, mask, narrow(to, f));
    }
    return most;
}

INLINE bool cast(
    void *dst, const void *src, uint64_t n, bool stream, enum sw_dtype from, enum sw_dtype to)
{
    const unsigned in = size_of(from), out = size_of(to);
    const char *s = src;
    char *d = dst;
    __m512i most = _mm512_setzero_si512();
    uint64_t head = (LINE - (uintptr_t)d % LINE) % LINE;

    if (stream && head % out == 0 && head / out < n) {
        for (head /= out; head; n--, head--, s += in, d += out)
            most = cast16(from, to, d, s, 1, false, most);
        for (; n >= 32; n -= 32, s += 32 * in, d += 32 * out) {
            most = cast16(from, to, d, s, 0xffff, true, most);
            most = cast16(from, to, d + 16 * out, s + 16 * in, 0xffff, true, most);
        }
    }
    for (; n >= 16; n -= 16, s += 16 * in, d += 16 * out)
        most = cast16(from, to, d, s, 0xffff, false, most);
    if (n)
        most = cast16(from, to, d, s, (__mmask16)((1u << n) - 1), false, most);
    return _mm512_reduce_max_epu32(most) < INFINITE;
}

#define CAST(name, from, to)                                                                       \
    VECTOR static bool name(void *dst, const void *src, uint64_t n, bool stream)                   \
    {                                                                                              \
        return cast(dst, src, n, stream, from, to);                                                \
    }
CAST(f32_bf16, SW_F32, SW_BF16)
CAST(f32_f16, SW_F32, SW_F16)
CAST(bf16_f32, SW_BF16, SW_F32)
CAST(bf16_f16, SW_BF16, SW_F16)
CAST(f16_f32, SW_F16, SW_F32)
CAST(f16_bf16, SW_F16, SW_BF16)
#undef CAST

const struct kernel_casts kernel_casts_avx512 = {
    f32_bf16, f32_f16, bf16_f32, bf16_f16, f16_f32, f16_bf16};

/* ---- maxima ---- */

/* Magnitudes of half precision are ordered like numbers of 16 bits. */
INLINE __m512i raise(enum sw_dtype from, __m512i most, const char *src, uint64_t n)
{
    const unsigned size = size_of(from), each = LINE / size;
    const __m512i half = _mm512_set1_epi16(0x7fff), single = _mm512_set1_epi32(0x7fffffff);

    for (; n >= each; n -= each, src += LINE) {
        const __m512i x = _mm512_loadu_si512(src);

        most = from == SW_F32 ? _mm512_max_epu32(most, _mm512_and_si512(x, single))
                              : _mm512_max_epu16(most, _mm512_and_si512(x, half));
    }
    if (n && from == SW_F32)
        return _mm512_max_epu32(most,
            _mm512_and_si512(_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), src), single));
    if (n)
        return _mm512_max_epu16(
            most, _mm512_and_si512(_mm512_maskz_loadu_epi16((1u << n) - 1, src), half));
    return most;
}

INLINE float largest(enum sw_dtype from, __m512i most)
{
    const __m512i even = _mm512_and_si512(most, _mm512_set1_epi32(0xffff));
    uint32_t bits;
    uint16_t half;
    float f;

    if (from == SW_F32) {
        bits = _mm512_reduce_max_epu32(most);
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    half = (uint16_t)_mm512_reduce_max_epu32(_mm512_max_epu32(even, _mm512_srli_epi32(most, 16)));
    return sw_cast_widen(from, &half);
}

INLINE bool maxima_of(const __m512i *most, uint32_t n, float *amax, enum sw_dtype from)
{
    bool finite = true;

    for (uint32_t b = 0; b < n; b++) {
        amax[b] = largest(from, most[b]);
        finite = finite && amax[b] <= 3.402823466e38f; /* no NaN is */
    }
    return finite;
}

INLINE bool maxima(const struct sw_panel *p, float *amax, enum sw_dtype from)
{
    const uint32_t n = sw_panel_blocks(p);
    __m512i most[SW_PANEL_BLOCKS];

    for (uint32_t b = 0; b < n; b++)
        most[b] = _mm512_setzero_si512();
    for (uint64_t r = 0; r < p->rows; r++) {
        const char *src = p->src + (int64_t)r * p->stride;
        uint64_t left = p->columns, length = p->first;

        for (uint32_t b = 0; b < n; b++) {
            length = length < left ? length : left;
            most[b] = raise(from, most[b], src, length);
            src += length * size_of(from);
            left -= length;
            length = p->block;
        }
    }
    return maxima_of(most, n, amax, from);
}

/* ---- values ---- */

/*
 * y = 8 * x / scale is rounded by adding 2^(exponent + 20) to it, which leaves room for three bits
 * of its mantissa; the sum is rounded like any other. What lies below 2^-3 (2^-6 of the final
 * number) has the step that this place has. Low half of the sum's bits: the mantissa with its
 * leading bit (or a subnormal's, or a carry): k, up to 16. High half: sign and exponent, with zeros
 * below. So 16 * k + high half = sign << 15 | (code + 1152) << 4, and 1152 is 9 * 128.
 */
INLINE __m512i code16(__m512i x, __m512 by)
{
    const __m512i weights = _mm512_set1_epi32(1 << 16 | 16);
    const __m512 y = _mm512_mul_ps(_mm512_castsi512_ps(x), by);
    const __m512 a = _mm512_range_ps(y, _mm512_set1_ps(448.0f * 8), 2);    /* nearer to 0 */
    const __m512 at_least = _mm512_range_ps(a, _mm512_set1_ps(0.125f), 3); /* farther from 0 */
    const __m512 place =
        _mm512_and_ps(at_least, _mm512_castsi512_ps(_mm512_set1_epi32((int)0xff800000)));
    const __m512 sum = _mm512_fmadd_ps(place, _mm512_set1_ps(1 << 20), a);

    return _mm512_madd_epi16(_mm512_castps_si512(sum), weights);
}

/* The bytes of two times 16, in halves of words. */
INLINE __m512i bytes32(__m512i a, __m512i b)
{
    const __m512i both = _mm512_packs_epi32(a, b);
    const __m512i sign = _mm512_set1_epi16((short)0x8000);

    /* (both & sign) | (both << 4 & ~sign) */
    return _mm512_srli_epi16(
        _mm512_ternarylogic_epi32(both, _mm512_slli_epi16(both, 4), sign, 0xe4), 8);
}

INLINE __m512i code64(enum sw_dtype from, const char *src, __m512 by)
{
    const __m512i zero = _mm512_setzero_si512();
    const unsigned step = 16 * size_of(from);

    if (from == SW_BF16) { /* a zero below each makes them single precision */
        const __m512i a = _mm512_loadu_si512(src), b = _mm512_loadu_si512(src + LINE);
        const __m512i low = bytes32(
            code16(_mm512_unpacklo_epi16(zero, a), by), code16(_mm512_unpackhi_epi16(zero, a), by));
        const __m512i high = bytes32(
            code16(_mm512_unpacklo_epi16(zero, b), by), code16(_mm512_unpackhi_epi16(zero, b), by));

        return _mm512_permutexvar_epi64(
            _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packus_epi16(low, high));
    }
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_packus_epi16(bytes32(code16(load16(from, src, 0xffff), by),
                                code16(load16(from, src + step, 0xffff), by)),
            bytes32(code16(load16(from, src + 2 * step, 0xffff), by),
                code16(load16(from, src + 3 * step, 0xffff), by))));
}

INLINE void some(enum sw_dtype from, char *dst, const char *src, uint64_t n, __m512 by)
{
    const unsigned step = 16 * size_of(from);

    for (; n; dst += 16, src += step) {
        const uint64_t now = n < 16 ? n : 16;
        const __mmask16 mask = (__mmask16)((1u << now) - 1);
        const __m512i code = code16(load16(from, src, mask), by);
        const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(code, 8), _mm512_set1_epi32(0x80));

        /* sign | (code >> 4 & 0x7f) */
        _mm512_mask_cvtepi32_storeu_epi8(dst, mask,
            _mm512_ternarylogic_epi32(
                sign, _mm512_srli_epi32(code, 4), _mm512_set1_epi32(0x7f), 0xf8));
        n -= now;
    }
}

INLINE void row(
    enum sw_dtype from, char *dst, const char *src, uint64_t n, float inverse, bool stream)
{
    const unsigned line = LINE * size_of(from);
    const __m512 by = _mm512_set1_ps(inverse * 8);
    uint64_t head = (LINE - (uintptr_t)dst % LINE) % LINE;

    if (stream && head < n) {
        some(from, dst, src, head, by);
        dst += head;
        src += head * size_of(from);
        n -= head;
        for (; n >= LINE; n -= LINE, dst += LINE, src += line) {
            _mm512_stream_si512((void *)dst, code64(from, src, by));
        }
    }
    for (; n >= LINE; n -= LINE, dst += LINE, src += line)
        _mm512_storeu_si512(dst, code64(from, src, by));
    some(from, dst, src, n, by);
}

INLINE void fetch(const char *src, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += LINE)
        _mm_prefetch(src + at, _MM_HINT_T1);
}

INLINE bool values(const struct sw_panel *p, const float *inverse, char *dst, int64_t dst_stride,
    bool stream, float *amax, enum sw_dtype from)
{
    const uint32_t n = sw_panel_blocks(p);
    const unsigned size = size_of(from);
    __m512i most[SW_PANEL_BLOCKS];

    for (uint32_t b = 0; b < n; b++)
        most[b] = _mm512_setzero_si512();
    for (uint64_t r = 0; r < p->rows; r++) {
        const int64_t at = (int64_t)r * p->stride;
        uint64_t c = 0, length = p->first;

        for (uint32_t b = 0; b < n; b++, c += length, length = p->block) {
            length = length < p->columns - c ? length : p->columns - c;
            row(from, dst + (int64_t)r * dst_stride + c, p->src + at + c * size, length, inverse[b],
                stream);
            if (!p->next)
                continue;
            if (r + ROWS_AHEAD < p->rows)
                fetch(p->next + at + ROWS_AHEAD * p->stride + c * size, length * size);
            if (amax)
                most[b] = raise(from, most[b], p->next + at + c * size, length);
        }
    }
    return !p->next || !amax || maxima_of(most, n, amax, from);
}

#define QUANTISER(name, from)                                                                      \
    VECTOR static bool maxima_##name(const struct sw_panel *p, float *amax)                        \
    {                                                                                              \
        return maxima(p, amax, from);                                                              \
    }                                                                                              \
    VECTOR static bool values_##name(const struct sw_panel *p, const float *inverse, char *dst,    \
        int64_t dst_stride, bool stream, float *amax)                                              \
    {                                                                                              \
        return values(p, inverse, dst, dst_stride, stream, amax, from);                            \
    }                                                                                              \
    const struct sw_quantiser kernel_##name##_avx512 = {maxima_##name, values_##name};
QUANTISER(bf16, SW_BF16)
QUANTISER(f16, SW_F16)
QUANTISER(f32, SW_F32)
#undef QUANTISER

#endif
