/* SPDX-License-Identifier: Apache-2.0 */
#include "client/kernels.h"

#if SW_ISA_X86
#include <immintrin.h>
#include <string.h>

#define VECTOR __attribute__((target("avx2,f16c")))
#define INLINE static inline __attribute__((always_inline)) VECTOR
#define LINE 64u
#define INFINITE 0x7f800000

/* ---- numbers: 8 at a time, as single precision ---- */

INLINE unsigned size_of(enum sw_dtype dtype)
{
    return dtype == SW_F32 ? 4 : 2;
}

INLINE __m256i magnitude_of(__m256i f)
{
    return _mm256_and_si256(f, _mm256_set1_epi32(0x7fffffff));
}

INLINE __m256i quiet(__m256i f)
{
    const __m256i nan = _mm256_cmpgt_epi32(magnitude_of(f), _mm256_set1_epi32(INFINITE));

    return _mm256_or_si256(f, _mm256_and_si256(nan, _mm256_set1_epi32(0x400000)));
}

INLINE __m256i load8(enum sw_dtype from, const char *src)
{
    __m128i half;

    if (from == SW_F32)
        return _mm256_loadu_si256((const void *)src);
    half = _mm_loadu_si128((const void *)src);
    if (from == SW_F16)
        return _mm256_castps_si256(_mm256_cvtph_ps(half));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

INLINE __m128i narrow(enum sw_dtype to, __m256i f)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(f, 16), _mm256_set1_epi32(1));
    const __m256i up =
        _mm256_add_epi32(_mm256_add_epi32(f, odd), _mm256_set1_epi32(0x7fff));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude_of(f), _mm256_set1_epi32(INFINITE));
    __m256i half;

    if (to == SW_F16)
        return _mm256_cvtps_ph(_mm256_castsi256_ps(f), _MM_FROUND_TO_NEAREST_INT);
    half = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet(f), nan), 16);
    half = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    return _mm256_castsi256_si128(half);
}

INLINE uint32_t largest32(__m256i most)
{
    uint32_t all[8], max = 0;

    _mm256_storeu_si256((void *)all, most);
    for (int i = 0; i < 8; i++)
        max = all[i] > max ? all[i] : max;
    return max;
}

/* ---- casts ---- */

INLINE __m256i cast8(enum sw_dtype from, enum sw_dtype to, char *dst, const char *src, bool stream,
    __m256i most)
{
    const __m256i f = load8(from, src);

    if (to == SW_F32) {
        const __m256i q = from == SW_BF16 ? quiet(f) : f; /* the conversion from F16 did that */

        if (stream)
            _mm256_stream_si256((void *)dst, q);
        else
            _mm256_storeu_si256((void *)dst, q);
    } else if (stream) {
        _mm_stream_si128((void *)dst, narrow(to, f));
    } else {
        _mm_storeu_si128((void *)dst, narrow(to, f));
    }
    return _mm256_max_epu32(most, magnitude_of(f));
}

INLINE bool cast(
    void *dst, const void *src, uint64_t n, bool stream, enum sw_dtype from, enum sw_dtype to)
{
    sw_cast_fn *const rest = sw_cast_find(SW_ISA_SCALAR, from, to);
    const unsigned in = size_of(from), out = size_of(to);
    uint64_t head = (LINE - (uintptr_t)dst % LINE) % LINE;
    __m256i most = _mm256_setzero_si256();
    const char *s = src;
    char *d = dst;
    bool finite = true;

    if (stream && head % out == 0 && head / out < n) {
        head /= out;
        finite = rest(d, s, head, false);
        s += head * in;
        d += head * out;
        for (n -= head; n >= 32; n -= 32, s += 32 * in, d += 32 * out)
            for (unsigned i = 0; i < 32; i += 8)
                most = cast8(from, to, d + i * out, s + i * in, true, most);
    }
    for (; n >= 8; n -= 8, s += 8 * in, d += 8 * out)
        most = cast8(from, to, d, s, false, most);
    return rest(d, s, n, false) && finite && largest32(most) < INFINITE;
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

const struct kernel_casts kernel_casts_avx2 = {
    f32_bf16, f32_f16, bf16_f32, bf16_f16, f16_f32, f16_bf16};

/* ---- maxima ---- */

INLINE float widen(enum sw_dtype from, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;

    return from == SW_F32 ? sw_cast_widen(from, &bits) : sw_cast_widen(from, &half);
}

/* Magnitudes of half precision are ordered like numbers of 16 bits. What is left of a row, less
 * than a vector, is padded with zeros. */
INLINE __m256i raise(enum sw_dtype from, __m256i most, const char *src, uint64_t n)
{
    const unsigned each = 32 / size_of(from);
    const __m256i mask = from == SW_F32 ? _mm256_set1_epi32(0x7fffffff) : _mm256_set1_epi16(0x7fff);
    char rest[32] = {0};

    for (; n >= each; n -= each, src += 32) {
        const __m256i x = _mm256_and_si256(_mm256_loadu_si256((const void *)src), mask);

        most = from == SW_F32 ? _mm256_max_epu32(most, x) : _mm256_max_epu16(most, x);
    }
    if (n) {
        __m256i x;

        memcpy(rest, src, n * size_of(from));
        x = _mm256_and_si256(_mm256_loadu_si256((const void *)rest), mask);
        most = from == SW_F32 ? _mm256_max_epu32(most, x) : _mm256_max_epu16(most, x);
    }
    return most;
}

INLINE float largest(enum sw_dtype from, __m256i most)
{
    if (from == SW_F32)
        return widen(from, largest32(most));
    return widen(from, largest32(_mm256_max_epu32(_mm256_srli_epi32(most, 16),
                           _mm256_and_si256(most, _mm256_set1_epi32(0xffff)))));
}

INLINE bool maxima(const struct sw_panel *p, float *amax, enum sw_dtype from)
{
    const uint32_t n = sw_panel_blocks(p);
    __m256i most[SW_PANEL_BLOCKS];
    bool finite = true;

    for (uint32_t b = 0; b < n; b++)
        most[b] = _mm256_setzero_si256();
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
    for (uint32_t b = 0; b < n; b++) {
        amax[b] = largest(from, most[b]);
        finite = finite && amax[b] <= 3.402823466e38f; /* no NaN is */
    }
    return finite;
}

/* ---- values ---- */

/* As in kernels_avx512.c, where it is explained. */
INLINE __m256i code8(__m256i x, __m256 inverse)
{
    const __m256i y = _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(x), inverse));
    const __m256 a =
        _mm256_min_ps(_mm256_castsi256_ps(magnitude_of(y)), _mm256_set1_ps(448.0f));
    const __m256i exponent = _mm256_max_epi32(
        _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(INFINITE)),
        _mm256_set1_epi32(121 << 23));
    const __m256i place = _mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23));
    const __m256i sum = _mm256_castps_si256(_mm256_add_ps(a, _mm256_castsi256_ps(place)));
    const __m256i code = _mm256_add_epi32(sum, _mm256_srli_epi32(sum, 20));
    const __m256i low = _mm256_add_epi32(code, _mm256_set1_epi32(-(141 << 3)));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(y, 24), _mm256_set1_epi32(0x80));

    return _mm256_or_si256(sign, _mm256_and_si256(low, _mm256_set1_epi32(0x7f)));
}

INLINE __m256i code32(enum sw_dtype from, const char *src, __m256 inverse)
{
    const unsigned step = 8 * size_of(from);
    const __m256i a = code8(load8(from, src), inverse);
    const __m256i b = code8(load8(from, src + step), inverse);
    const __m256i c = code8(load8(from, src + 2 * step), inverse);
    const __m256i d = code8(load8(from, src + 3 * step), inverse);
    const __m256i all =
        _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));

    return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* At most 32. */
INLINE void some(enum sw_dtype from, char *dst, const char *src, uint64_t n, __m256 inverse)
{
    char in[32 * 4] = {0}, out[32];

    memcpy(in, src, n * size_of(from));
    _mm256_storeu_si256((void *)out, code32(from, in, inverse));
    memcpy(dst, out, n);
}

INLINE void row(enum sw_dtype from, char *dst, const char *src, uint64_t n, float inverse,
    bool stream, const char *next)
{
    const unsigned step = 32 * size_of(from), line = 2 * step;
    const __m256 by = _mm256_set1_ps(inverse);
    uint64_t head = (LINE - (uintptr_t)dst % LINE) % LINE;

    if (stream && head < n) {
        n -= head;
        for (; head; head -= head < 32 ? head : 32) {
            const uint64_t now = head < 32 ? head : 32;

            some(from, dst, src, now, by);
            dst += now;
            src += now * size_of(from);
        }
        for (; n >= LINE; n -= LINE, dst += LINE, src += line) {
            if (next) {
                for (unsigned at = 0; at < line; at += LINE)
                    _mm_prefetch(next + at, _MM_HINT_T0);
                next += line;
            }
            _mm256_stream_si256((void *)dst, code32(from, src, by));
            _mm256_stream_si256((void *)(dst + 32), code32(from, src + step, by));
        }
    }
    for (; n >= 32; n -= 32, dst += 32, src += step)
        _mm256_storeu_si256((void *)dst, code32(from, src, by));
    if (n)
        some(from, dst, src, n, by);
}

INLINE void values(const struct sw_panel *p, const float *inverse, char *dst, int64_t dst_stride,
    bool stream, enum sw_dtype from)
{
    for (uint64_t r = 0; r < p->rows; r++) {
        const int64_t at = (int64_t)r * p->stride;
        const char *src = p->src + at, *next = p->next ? p->next + at : NULL;
        char *to = dst + (int64_t)r * dst_stride;
        uint64_t left = p->columns, length = p->first;

        for (uint32_t b = 0; left; b++) {
            length = length < left ? length : left;
            row(from, to, src, length, inverse[b], stream, next);
            src += length * size_of(from);
            next = next ? next + length * size_of(from) : NULL;
            to += length;
            left -= length;
            length = p->block;
        }
    }
}

#define QUANTISER(name, from)                                                                      \
    VECTOR static bool maxima_##name(const struct sw_panel *p, float *amax)                        \
    {                                                                                              \
        return maxima(p, amax, from);                                                              \
    }                                                                                              \
    VECTOR static void values_##name(const struct sw_panel *p, const float *inverse, char *dst,    \
        int64_t dst_stride, bool stream)                                                           \
    {                                                                                              \
        values(p, inverse, dst, dst_stride, stream, from);                                         \
    }                                                                                              \
    const struct sw_quantiser kernel_##name##_avx2 = {maxima_##name, values_##name};
QUANTISER(bf16, SW_BF16)
QUANTISER(f16, SW_F16)
QUANTISER(f32, SW_F32)
#undef QUANTISER

#endif
